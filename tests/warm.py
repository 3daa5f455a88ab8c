"""``python -m rooflines`` in processes that have torch loaded: forks of one process that loads it and does nothing else.

To load torch takes longer than most commands that tests run. A fork has its own memory, modules, signals, threads and exit, so that it
differs from a new process only in what is imported already. What depends on that starts a new process (``tests.commands.start``).
"""

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import subprocess
import sys
import tempfile
from pathlib import Path


@functools.cache
def _server() -> subprocess.Popen[str]:
    """The process that forks, one for each process of the suite. It ends when its input does."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.warm"], cwd=Path(__file__).parents[1], env=environment, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    atexit.register(server.communicate)
    return server


def run(arguments: list[str], *, cwd: Path, environment: dict[str, str], given: str, timeout_s: float) -> tuple[int, str, str]:
    """Run ``rooflines ARGUMENTS`` in a fork; its exit code (negative: the signal), standard output and standard error."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("in", "out", "err")]
        files[0].write_text(given)
        print(json.dumps([arguments, str(cwd), environment, [str(path) for path in files]]), file=server.stdin, flush=True)
        if not select.select([server.stdout], [], [], timeout_s)[0]:
            server.kill()
            _server.cache_clear()
            raise subprocess.TimeoutExpired(arguments, timeout_s)
        return int(server.stdout.readline()), files[1].read_text(), files[2].read_text()


def _become(arguments: list[str], cwd: str, environment: dict[str, str], files: list[str]) -> None:
    """Give this process what a new one is started with."""
    for number, path in enumerate(files):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND if number else os.O_RDONLY)
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = cwd
    sys.argv = ["rooflines", *arguments]


def _serve() -> None:
    """Fork for each line of the input and print the exit code; return in the fork, which goes on as a process of its own."""
    while line := sys.stdin.readline():
        if (process := os.fork()) == 0:
            _become(*json.loads(line))
            runpy.run_module("rooflines", run_name="__main__", alter_sys=True)
            return
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    for module in ("torch._dynamo", "rooflines.cli", "rooflines.roofline.analyze"):  # optimizers load the first
        importlib.import_module(module)

    gc.freeze()
    _serve()
