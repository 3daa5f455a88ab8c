"""The package as a whole: public names, the direction of imports, what importing it costs, what the wheel holds."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rooflines

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "rooflines"

# From the top down; a module imports from its own layer and from those below it.
LAYERS = ("cli", "integrations", "studies", "pipeline", "reports", "roofline", "profiler", "device_specs", "kernels")
FOR_ALL = ("errors", "units", "serial", "_version")
COMMAND = "import sys; sys.argv = {}; import rooflines.cli\ntry: rooflines.cli.main()\nexcept SystemExit: pass"
HEAVY = (
    "torch",
    "torchvision",
    "numpy",
    "pandas",
    "pyarrow",
    "matplotlib",
    "plotly",
    "numba",
    "cupy",
    "pynvml",
    "tensorboard",
    "typst",
)


def test_public_names():
    assert rooflines.__all__ == [
        "Analysis", "Comparison", "Count", "RooflinesError", "Run", "__version__", "analyze", "compare", "count", "formula", "load",
        "measure_ceilings", "profile", "record", "work",
    ]  # fmt: skip
    for name in rooflines.__all__:
        assert getattr(rooflines, name) is not None
        assert name in dir(rooflines)
    with pytest.raises(AttributeError, match="has no attribute 'profle'"):
        rooflines.profle  # noqa: B018


def imports(path):
    """Every name of ours that the module at ``path`` imports anywhere, also for type checkers only."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "rooflines")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module and node.module.split(".")[0] == "rooflines":
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(name):
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(ROOT)) for path in MODULES])
def test_imports_go_downward(path):
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    if own in ("__init__", "__main__"):
        return  # the front doors name everything
    for name in imports(path):
        target = layer(name)
        if own in FOR_ALL:
            assert target in FOR_ALL, f"{own} imports {name}"
        else:
            assert own in LAYERS, f"{own} has no place among {LAYERS}"
            below = (*LAYERS[LAYERS.index(own) :], *FOR_ALL)
            assert target in below, f"{own} imports {name}, which is above it"


@pytest.mark.parametrize(
    "statement",
    [
        "import rooflines",
        "import rooflines.cli",
        "import rooflines.errors, rooflines.units",
        "import rooflines.roofline.work",
        "from rooflines.roofline.work import count",
        "import rooflines.integrations.pytest_plugin",
        *(
            COMMAND.format(["rooflines", *arguments])
            for arguments in (
                ["--help"],
                ["profile", "--help"],
                ["ceilings", "--help"],
                ["monitor", "--help"],
                ["--version"],
                ["devices", "h200"],
            )
        ),
    ],
    ids=lambda text: text.replace("\n", " ")[:60],
)
def test_what_must_be_quick_loads_nothing_heavy(statement):
    check = f"{statement}\nimport json, sys\nprint('\\n' + json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_python_m_is_the_command():
    done = subprocess.run([sys.executable, "-m", "rooflines", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == rooflines.__version__


def test_the_wheel_holds_every_file_of_the_package(tmp_path):
    pytest.importorskip("hatchling", reason="building a wheel needs hatchling, which pip fetches by itself")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT, check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(["git", "ls-files", "rooflines"], cwd=ROOT, capture_output=True, text=True)
    expected = set(tracked.stdout.split()) if tracked.returncode == 0 else {str(path.relative_to(ROOT)) for path in MODULES}
    assert expected, "no files to look for"
    assert {name for name in expected if (ROOT / name).exists()} <= held
    for suffix in (".j2", ".toml", ".typ"):
        on_disk = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob(f"*{suffix}")}
        assert on_disk <= held, suffix
    assert {name.split("/")[0] for name in held} == {"rooflines", f"rooflines-{rooflines.__version__}.dist-info"}
