"""The packages that only some commands need, and the extra of rooflines that installs each: ``pip install
'rooflines[torch]'``."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

# By the name that is imported.
EXTRA_OF: Final = {
    "torch": "torch",
    "torchvision": "torchvision",
    "numba": "kernels",
    "llvmlite": "kernels",
    "matplotlib": "charts",
    "typst": "pdf",
    "tensorboard": "tensorboard",
    "pandas": "dataframe",
    "pyarrow": "dataframe",
    "mcp": "mcp",
    "perfetto": "perfetto",
}


def is_installed(*packages: str) -> bool:
    """Whether all of the packages can be imported; imports none of them."""
    return all(find_spec(package) is not None for package in packages)


def missing(error: ModuleNotFoundError) -> tuple[str, str] | None:
    """What to say of a package that is not installed and how to install it; None if no extra of rooflines has
    it."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(package)
    return (
        None
        if extra is None
        else (f"this needs {package}, which is not installed.", f"pip install 'rooflines[{extra}]'")
    )
