"""The tests that measure a GPU: ``make gpu-check``, with an interpreter in which some packages may be missing."""

import sys
from importlib.util import find_spec

MODULES = (
    "torch", "torchvision", "numpy", "pandas", "pyarrow", "psutil", "numba", "pynvml", "matplotlib", "jinja2", "rich", "typer",
    "msgspec", "platformdirs", "filelock", "hypothesis",
)  # fmt: skip

if _missing := [name for name in MODULES if find_spec(name) is None]:
    sys.exit(
        f"GPU tests: {sys.executable} lacks {', '.join(_missing)}: nothing was tested.\n"
        "Install rooflines (make profile), or choose an interpreter that has them (make gpu-check PYTHON=...)."
    )
