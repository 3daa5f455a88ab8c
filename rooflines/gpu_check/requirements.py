"""The packages that a check needs: in a repository that is not installed, some may be missing."""

from __future__ import annotations

import importlib.util
import sys

from rooflines.errors import UsageError

# By the names of their modules. What only some reports need (typst, tensorboard) or other sources of traces is not among them.
MODULES = (
    "torch", "torchvision", "numpy", "pandas", "pyarrow", "psutil", "numba", "pynvml", "matplotlib", "jinja2", "rich", "msgspec",
    "platformdirs", "filelock",
)  # fmt: skip


def check_installed() -> None:
    """Raise UsageError naming the packages that this interpreter lacks."""
    missing = [name for name in MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"GPU check: {sys.executable} lacks {', '.join(missing)}: nothing was checked.",
            hint="Install rooflines (make profile), or choose an interpreter that has them (make gpu-check PYTHON=...).",
        )
