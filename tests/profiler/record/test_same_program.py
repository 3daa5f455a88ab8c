"""The law of the recorder: a program prints, writes and exits the same with and without ``rooflines profile``.

Each program in ``programs/`` runs with Python and under ``rooflines profile --to-end``, in the same new directory. What is left of
standard output and error without our own lines, the exit code and the files must be equal. A program is a file, or a function of one
of ``SEVERAL``.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.commands import TIMEOUT_S, command, environment, write_ceilings

PROGRAMS = Path(__file__).parent / "programs"
# Run by `make test`; all others are slow.
FAST = {"half_lines", "raises"}
SEVERAL = ("endings", "profilers", "surroundings", "threads", "training")
ARGUMENTS = {"main_module": ["--steps", "3", "--device", "mine"], "refuses_arguments": ["--nonsense"]}
MODULES = {"package_program", "package_program.part"}
INPUT = {"reads_input": "Ada\nsecond line\nthird\nfourth\n", "streams": "not read\n"}
# Traces and samples have times in them.
VARYING = (".json", ".gz", ".parquet", ".pyc")
# Addresses, and the times and processes in lines of torch's logs; a line that Kineto writes once in a process. Frames of torch's call
# of a module, which takes another way where there are hooks.
_VARIES = re.compile(
    r"(?<=0x)[0-9a-f]+|(?<=\[[WE])\d{4} [\d:.]+|(?<=USDT:)[\d: -]+|(?<=ERROR:)[\d: -]+|^ERROR:.*gpuGetDeviceCount.*\n"
    r'|^  File ".*/torch/nn/modules/module\.py", .*\n    .*\n(?: +[~^]+\n)?',
    re.MULTILINE,
)
_PAGE = re.compile(r"^\S+ · .* · rooflines .*\n(?:.*\n)*?(?:all ranks .*\n|next +.*\n)+", re.MULTILINE)
_PROGRESS = re.compile(r"^ *\d+ s  [a-z].*\n", re.MULTILINE)
_COMPLAINT = re.compile(r"^rooflines: .*\n(?:  .*\n)?", re.MULTILINE)


@dataclass(frozen=True)
class Left:
    """What a program left behind."""

    code: int
    out: str
    err: str
    files: dict[str, bytes]


def programs():
    """The command line of each program by its name, which is no path for those that are run as modules."""
    found = {name: ("-m", name) for name in MODULES}
    found |= {path.stem: (path,) for path in PROGRAMS.glob("*.py") if path.stem not in ("small", *SEVERAL)}
    for path in (PROGRAMS / f"{name}.py" for name in SEVERAL):
        found |= {one.name: (path, one.name) for one in ast.parse(path.read_text()).body if isinstance(one, ast.FunctionDef)}
    return found


ALL = programs()


def left(line, place, given):
    """Run a command line in ``place``, which is new."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    variables = {**environment(), "PYTHONPATH": os.pathsep.join([str(PROGRAMS), str(Path(__file__).parents[3])])}
    done = subprocess.run(line, cwd=place, env=variables, input=given, capture_output=True, text=True, timeout=TIMEOUT_S)
    files = {
        str(path.relative_to(place)): path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.is_file() and "out" not in path.parts and "board" not in path.parts and path.suffix not in VARYING
    }
    return Left(done.returncode, _VARIES.sub("", done.stdout), _VARIES.sub("", done.stderr), files)


def both(name, folder):
    """What ``name`` leaves under Python and under us, there without our own lines."""
    path, *own = [os.path.relpath(word, folder / "place") if isinstance(word, Path) else word for word in ALL[name]]
    program = [path] if name not in MODULES else [path, own.pop()]
    own, given = own + ARGUMENTS.get(name, []), INPUT.get(name, "")
    options = [
        "--ceilings", write_ceilings(folder), "--formats", "json", "--device", "cpu", "--steps", "3", "--warmup", "2", "-o", "out",
    ]  # fmt: skip
    plain = left([sys.executable, *program, *own], folder / "place", given)
    ours = left(command("profile", *options, "--to-end", *program, "--", *own), folder / "place", given)
    out, err = _PAGE.sub("", ours.out), _COMPLAINT.sub("", _PROGRESS.sub("", ours.err))
    if name == "interrupts_itself":  # Python ends it by the signal or with 1; we with what a shell says of the signal
        assert ours.code == 130
        return plain, Left(plain.code, out, err, ours.files)
    return plain, Left(ours.code, out, err, ours.files)


@pytest.mark.ci
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in sorted(ALL)])
def test_a_program_is_the_same_under_us(name, tmp_path):
    plain, ours = both(name, tmp_path)
    assert ours.out == plain.out
    assert ours.err == plain.err
    assert (ours.code, ours.files) == (plain.code, plain.files)


@pytest.mark.ci
def test_the_level_of_kinetos_log_that_the_program_was_given_holds(monkeypatch, tmp_path):
    monkeypatch.setenv("KINETO_LOG_LEVEL", "99")
    plain, ours = both("own_profile", tmp_path)
    assert ours.err == plain.err == ""
