"""The pytest plugin of ``make gpu-check``: records what the GPU tests measured and their outcomes, written after each part.

``--evidence DIRECTORY`` gets ``gpu_check_DEVICE.json`` (the record), the same as an HTML report, a folder of raw files, and a zip of
all of it for a bug report. Record, report and zip are redacted; the folder is not. Without the option nothing is measured.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

import pytest

from rooflines.reports.render import html
from rooflines.serial import read_json, to_json, write_json, write_text
from tests.gpu.parts import Check, Device, Findings, Outcome, Part, Record, Recorder, find_device, outcome_of
from tests.gpu.redaction import Redaction, bundle
from tests.gpu.report import report, verdict

# Seconds of a whole session, and those of them that the evidence may take.
TOTAL_S = 600.0
EVIDENCE_S = 40.0
# The parts in their order (``tests/gpu/test_PART.py``) and the seconds that each needs on a large GPU.
SHARES_S = {"ceilings": 115, "profiles": 215, "energy": 32, "networks": 45, "counters": 25, "tests": 128}
_DRIVER_S = 20.0
SESSION = pytest.StashKey["Session"]()
_OUTCOMES: dict[str, Outcome] = {"passed": "ok", "failed": "failed", "skipped": "left out"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of the GPU tests."""
    group = parser.getgroup("GPU tests")
    group.addoption("--evidence", type=Path, metavar="DIRECTORY", help="Measure, and write the evidence here.")
    group.addoption("--require-gpu", action="store_true", help="Fail if there is no GPU to test.")
    group.addoption("--rejudge", type=Path, metavar="RECORD", help="Judge this record again instead of measuring.")


def pytest_configure(config: pytest.Config) -> None:
    """Make the session where evidence is asked for."""
    if folder := config.getoption("--evidence"):
        session = Session(folder.absolute(), config.getoption("--rejudge"), config.getoption("--require-gpu"))
        config.stash[SESSION] = session
        config.pluginmanager.register(session, "gpu-evidence")


def limit_s(part: str, chosen: set[str], elapsed_s: float) -> float:
    """Return the time limit of ``part`` after ``elapsed_s`` seconds: all that is left, except the shares of later ``chosen`` parts.

    A part may use what earlier parts left over, and all together leave ``EVIDENCE_S`` of ``TOTAL_S``.
    """
    names = list(SHARES_S)
    later = sum(SHARES_S[name] for name in names[names.index(part) + 1 :] if name in chosen)
    return max(TOTAL_S - EVIDENCE_S - elapsed_s - later, 1.0)


class Session:
    """A session of GPU tests and its evidence in ``folder``; ``rejudges`` is a record to judge again instead of measuring."""

    def __init__(self, folder: Path, rejudges: Path | None, require_gpu: bool) -> None:
        self.folder = folder
        self.rejudges = rejudges
        self.require_gpu = require_gpu
        self._began = time.monotonic()
        self._redaction = Redaction.here()
        self._old = read_json(rejudges, Record) if rejudges else None
        self._chosen: set[str] = set()
        self._recorders: dict[str, Recorder] = {}
        self._record: Record | None = None
        self._stem = ""

    def begin(self) -> Device:
        """Return the device and begin its record. Raises DeviceError where there is no GPU."""
        device = self._old.device if self._old else find_device()
        created = datetime.now(timezone.utc)
        name = re.sub(r"[^A-Za-z0-9]+", "-", device.environment.device_name).strip("-").lower()
        self._stem = f"gpu_check_{name}{'-rejudged' if self._old else ''}"
        self._record = Record(
            created=created.isoformat(timespec="seconds"),
            device=device,
            evidence=f"{self._stem}-{created:%Y%m%d-%H%M%S}",
            rehearsal=f"The figures are those of {self._old.created}; nothing was measured." if self._old else "",
        )
        self.raw.mkdir(parents=True)
        write_json(self.raw / "device.json", device)
        (self.raw / "packages.txt").write_text("".join(f"{line}\n" for line in packages()))
        (self.raw / "nvidia-smi.txt").write_text(driver_facts())
        return device

    @property
    def raw(self) -> Path:
        """The folder of raw files."""
        assert self._record is not None
        return self.folder / self._record.evidence

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[Recorder]:
        """Give the recorder of the part ``name``, and add the part to the record in the end."""
        assert self._record is not None
        begun = time.monotonic()
        limit = limit_s(name, self._chosen, begun - self._began)
        folder = self.raw / name
        if self.rejudges and self._old:
            folder = self.rejudges.parent / self._old.evidence / name
        else:
            folder.mkdir()
        recorder = self._recorders[name] = Recorder(folder, self._record.device, limit)
        if self._old:
            old = next((part.findings for part in self._old.parts if part.name == name), Findings())
            recorder.findings = Findings(figures=old.figures, left_out=old.left_out)
            recorder.rejudges = True
        try:
            yield recorder
        finally:
            outcome, reason = outcome_of(recorder.findings, recorder.error)
            self._record.parts.append(
                Part(
                    name=name,
                    outcome=outcome,
                    reason=reason,
                    wall_s=time.monotonic() - begun,
                    limit_s=limit,
                    findings=recorder.findings,
                )
            )
            self._write()

    def _write(self) -> Path:
        path = self.folder / f"{self._stem}.json"
        write_text(path, self._redaction.json(to_json(self._record)))
        return path

    # --- hooks of pytest

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Order the parts: the ceilings first, because profiles use them, and the most important before the others."""
        order = {f"test_{name}": place for place, name in enumerate(SHARES_S)}
        items.sort(key=lambda item: order.get(item.path.stem, len(order)))
        self._chosen = {item.path.stem.removeprefix("test_") for item in items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the outcome of a law, by the name of its test: ``SUBJECT: LAW``."""
        path, _, name = report.nodeid.partition("[")
        recorder = self._recorders.get(Path(path.partition("::")[0]).stem.removeprefix("test_"))
        if recorder is None or report.when == "teardown" or (report.when == "setup" and report.passed):
            return
        subject, _, law = name.removesuffix("]").partition(": ")
        check = Check(law=law, subject=subject, outcome=_OUTCOMES[report.outcome], found=found(report))
        recorder.findings.checks.append(check)

    def pytest_sessionfinish(self) -> None:
        """Write report and zip."""
        if self._record is None:
            return
        files = [self._write()]
        redacted = read_json(files[0], Record)
        try:
            files.append(html.write(report(redacted), self.folder / f"{self._stem}.html"))
        finally:  # if the report fails, the rest can still be sent
            zipped = self.folder / f"{self._record.evidence}.zip"
            bundle(files, self.raw, zipped, self._redaction, until=self._began + TOTAL_S)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what the check found and where its files are."""
        if self._record is None:
            return
        terminalreporter.section("GPU check")
        terminalreporter.line(verdict(self._record))
        for what, ending in {"record": ".json", "report": ".html"}.items():
            terminalreporter.line(f"{what}: {self.folder / (self._stem + ending)}")
        terminalreporter.line(f"for a bug report: {self.raw}.zip")


def found(report: pytest.TestReport) -> str:
    """Return the figures that a test compared, else why it was skipped or failed."""
    compared = dict(report.user_properties).get("found")
    if compared is not None:
        return str(compared)
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    lines = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
    return lines[0].removeprefix("E ").strip() if lines else report.longreprtext


def packages() -> list[str]:
    """Return the installed packages as pip freeze does, without the addresses that they came from, which may hold tokens."""
    versions = {(dist.metadata["Name"] or "").lower(): dist.version for dist in metadata.distributions()}
    return sorted(f"{name}=={version}" for name, version in versions.items() if name)


def driver_facts() -> str:
    """Return what ``nvidia-smi -q`` prints, or why it prints nothing."""
    if (program := shutil.which("nvidia-smi")) is None:
        return "nvidia-smi is not installed\n"
    try:
        done = subprocess.run([program, "-q"], capture_output=True, text=True, errors="replace", timeout=_DRIVER_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi -q failed: {error}\n"
    return done.stdout + done.stderr
