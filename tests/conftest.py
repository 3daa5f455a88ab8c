"""Settings and fixtures of the whole suite."""

import gc
import os
import signal
from collections.abc import Iterator

# The processes of pytest-xdist share the cores. With a thread for each core in each of them, threads mostly wait for one another,
# and waiting takes processor time: three times what one thread takes. Set before anything loads torch.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from tests.profiler.samplers.nvml_driver.fixtures import nvml_library, stand_in, stand_in_here  # noqa: F401 (fixtures, for every test)

# What a shell starts in the background ignores Ctrl-C, and with nohup the end of its terminal as well. The processes that the tests
# start and interrupt would inherit that.
for _signal, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, _handler)

# No deadline: a shared machine takes seconds for what usually takes a millisecond. The same examples every time, so that a failure can
# be repeated; `make test-all` draws new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.load_profile("repeatable")


def pytest_collection_finish() -> None:
    """Keep the collected tests out of every later collection of garbage: a million objects, which take half a second to search."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _own_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the suite away from the ceilings and data sheets of the user who runs it, also in the processes that tests start."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CACHE", "CONFIG"):
            patch.setenv(f"ROOFLINES_{name}_DIR", str(tmp_path_factory.mktemp(name.lower())))
        # The other processes of the suite disturb the steps of this one, and no test waits for their end.
        patch.setattr("rooflines.profiler.record.step_counts.PATIENCE_S", 0.5)
        yield
