"""Fixtures of the GPU tests, which ``make gpu-check`` runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from rooflines.errors import DeviceError
from tests.gpu.evidence import SESSION, Session
from tests.gpu.parts import Device, Judge, NotMeasured, Recorder, measured, settle


@pytest.fixture(scope="session")
def gpu_session(request: pytest.FixtureRequest) -> Session:
    """The session that writes the evidence. Without it, as in ``make test``, nothing is measured."""
    if (session := request.config.stash.get(SESSION, None)) is None:
        pytest.skip("measured by make gpu-check")
    return session


@pytest.fixture(scope="session")
def device(gpu_session: Session) -> Device:
    """The GPU under test, or the one of the record that is judged again. Skips with the reason where there is none."""
    try:
        return gpu_session.begin()
    except DeviceError as error:
        if gpu_session.require_gpu:
            pytest.exit(f"GPU tests: no GPU to test: {error.message}", returncode=2)
        pytest.skip(error.message)


@pytest.fixture(scope="module")
def recorder(request: pytest.FixtureRequest, gpu_session: Session, device: Device) -> Iterator[Recorder]:
    """What the part in this module recorded: measured now, or read from the record that is judged again."""
    with gpu_session.part(request.path.stem.removeprefix("test_")) as recorder:
        if not recorder.rejudges:
            if hasattr(request.module, "measure"):
                function = f"{request.module.__name__}:measure"
                recorder.findings, recorder.error = measured(function, device, recorder.folder, recorder.left_s)
            elif hasattr(request.module, "run_commands"):
                request.module.run_commands(recorder)
        yield recorder
    assert not recorder.error, recorder.error


@pytest.fixture
def judge(recorder: Recorder, record_property: Callable[[str, object], None]) -> Callable[[Judge], None]:
    """Judges what the part recorded. Fails where its process failed before the figure, skips where it was left out."""

    def apply(law: Judge) -> None:
        try:
            verdict = law(recorder.findings, recorder.device)
        except NotMeasured as reason:
            verdict = (False, recorder.error) if recorder.error else str(reason)
        settle(verdict, record_property)

    return apply
