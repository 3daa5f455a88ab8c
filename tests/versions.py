"""``make test-versions``: unit tests on the oldest supported torch and on every supported Python here; static checks for the others.

Each combination gets an environment of its own below build/versions; torch is gigabytes. The result is written to
benchmarks/results/versions.json. Exits 1 where a combination fails. ``--static`` installs nothing and runs the static checks only.
"""

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "versions"
RESULT = ROOT / "benchmarks" / "results" / "versions.json"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
# The oldest torch that pyproject.toml allows and the one that constraints.txt pins, with their torchvision.
OLDEST = ("torch==2.6.*", "torchvision==0.21.*")
PINNED = ("torch==2.14.*", "torchvision==0.29.*")
TOOLS = (
    "pytest>=8.0", "pytest-xdist>=3.5", "hypothesis>=6.100", "pypdf>=5.0", "hatchling>=1.24", "fvcore>=0.1.5.post20221221", "timm>=1.0",
)  # fmt: skip
UNIT = ("tests/roofline", "tests/device_specs/test_catalog.py", "tests/profiler/read", "tests/profiler/calls", "tests/reports")


def outcome(command: list[str], what: str) -> dict[str, Any]:
    """Run a command and keep its last line; all of its output where it fails."""
    print(f"{what}: {' '.join(command)}", flush=True)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout[-6000:], done.stderr[-2000:], sep="\n")
    last = (done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [""])[-1]
    return {"what": what, "passed": done.returncode == 0, "summary": last}


def unit_tests(name: str, python: str, packages: tuple[str, ...]) -> dict[str, Any]:
    """The unit tests in an environment with this Python and these packages."""
    folder = ENVIRONMENTS / name
    binary = folder / "bin" / "python"
    steps = ([python, "-m", "venv", str(folder)], [str(binary), "-m", "pip", "install", "--quiet", "-e", ".[all]", *packages, *TOOLS])
    for command in steps:
        installed = outcome(command, name)
        if not installed["passed"]:
            return installed
    return outcome([str(binary), "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-m", "not slow and not ci", *UNIT], name)


def combinations() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Name, interpreter and packages of what can be run here."""
    yield f"Python {platform.python_version()}, {OLDEST[0]}", sys.executable, OLDEST
    for version in PYTHONS:
        python = shutil.which(f"python{version}")
        # pyenv puts a command on the path for every Python, which fails for those that are not chosen
        runs = python and subprocess.run([python, "--version"], capture_output=True, check=False).returncode == 0
        if python and runs and not platform.python_version().startswith(f"{version}."):
            yield f"Python {version}, {PINNED[0]}", python, PINNED


def static_checks() -> list[dict[str, Any]]:
    """Syntax (ruff) and the standard library (mypy) of every supported Python."""
    found = []
    for version in PYTHONS:
        target = f"py{version.replace('.', '')}"
        ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E9,F", "--target-version", target]
        ruff += ["--per-file-ignores", "*.pyi:F401"]  # names that are given on under another one
        found.append(outcome([*ruff, "rooflines", "benchmarks"], f"Python {version}: syntax"))
        # what exists in this Python, not what the stubs of today's NumPy say of its types
        lenient = ("--no-warn-return-any", "--no-warn-unused-ignores", "--disable-error-code", "arg-type")
        mypy = [sys.executable, "-m", "mypy", *lenient, "--python-version", version, "rooflines"]
        found.append(outcome(mypy, f"Python {version}: standard library"))
    return found


def main() -> int:
    results = static_checks()
    if "--static" not in sys.argv[1:]:
        results += [unit_tests(*combination) for combination in combinations()]
    RESULT.write_text(json.dumps(results, indent=1) + "\n")
    for one in results:
        print(f"{'passed' if one['passed'] else 'FAILED'}  {one['what']}: {one['summary']}")
    return 0 if all(one["passed"] for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
