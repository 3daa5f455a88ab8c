"""Fixtures that put the stand-in driver where pynvml finds it: for the processes that a test starts, or for this one."""

import contextlib
import ctypes
import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

SOURCE = Path(__file__).with_name("nvml.c")
SCRIPT = "STAND_IN_NVML"

StandIn = Callable[[str], dict[str, str]]


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in, compiled; it has the file name that pynvml asks the system for."""
    if sys.platform != "linux":
        pytest.skip("the stand-in NVML driver is a Linux library")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("the stand-in NVML driver needs a C compiler")
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-shared", "-fPIC"]
    done = subprocess.run([compiler, *flags, "-o", str(library), str(SOURCE), "-lm"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return library


@pytest.fixture
def stand_in(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """``stand_in(script)`` gives the GPUs of ``script`` to every process started from now on.

    Returns the environment that does it, which is also set here until the test ends. The script's zero is the time of this call unless
    it has an ``epoch`` of its own. A second call replaces the script for processes started after it.
    """

    return functools.partial(install, library=nvml_library, folder=tmp_path, patch=monkeypatch)


@pytest.fixture
def stand_in_here(nvml_library: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """Like ``stand_in``, and this process's own pynvml finds those GPUs too."""
    with loaded_here(nvml_library, monkeypatch):
        yield stand_in


def install(script: str, *, library: Path, folder: Path, patch: pytest.MonkeyPatch) -> dict[str, str]:
    """Give the GPUs of ``script``, kept in ``folder``, to every process started from now on, as ``stand_in`` says."""
    path = folder / "nvml.script"
    path.write_text(script if script.startswith("epoch ") else f"epoch {time.time()!r}\n{script}")
    search = os.pathsep.join([str(library.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    environment = {"LD_LIBRARY_PATH": search, SCRIPT: str(path)}
    for name, value in environment.items():
        patch.setenv(name, value)
    return environment


@contextlib.contextmanager
def loaded_here(library: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside, this process's own pynvml is over the stand-in.

    The library is loaded by its path: by then the loader has read its search path, and pynvml may have found a real driver.
    """
    patch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library)))
    patch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    yield
    # Whoever forgot to shut it down would leave this test's script to the next one.
    left = 0
    while ctypes.CDLL(str(library)).nvmlShutdown() == 0:
        left += 1
    assert not left, f"nvmlShutdown was called {left} times too few"
