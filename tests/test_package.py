"""The package as a whole: public names, the direction of imports, what importing it costs, what the wheel holds."""

import ast
import functools
import json
import re
import subprocess
import sys
import zipfile
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import FunctionType

import pytest

import rooflines
import rooflines.ext
from rooflines.cli.app import COMMANDS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "rooflines"

# From the top down; a module imports from its own layer and from those below it.
LAYERS = (
    "cli", "integrations", "sweeps", "pipeline", "reports", "roofline", "profiler", "device_specs", "kernels",
)  # fmt: skip
FOR_ALL = ("arguments", "errors", "extras", "installed", "lazy", "units", "serial", "shown", "_version")
# Upward on purpose: a record asks for its report, and a run for its analysis, by name ("Records show themselves through a name",
# docs/design.md).
HOOKS = {
    "rooflines.shown": ("rooflines.reports.page.glance",),
    "rooflines.profiler.records": ("rooflines.pipeline.reading",),
}
COMMAND = "import sys; sys.argv = {}; import rooflines.cli\ntry: rooflines.cli.main()\nexcept SystemExit: pass"
HEAVY = (
    "torch", "torchvision", "numpy", "pandas", "pyarrow", "matplotlib", "numba", "cupy", "pynvml", "tensorboard", "typst",
)  # fmt: skip
# What the analysis of a trace needs none of where all of its operators have a formula.
NOT_FOR_TRACES = (
    *(name for name in HEAVY if name != "numpy"), "jinja2", "rich.console", "fsspec", "backports.zstd", "numpy.ma",
    "importlib.metadata", "email",
)  # fmt: skip
TRACE = ROOT / "tests" / "data" / "traces" / "bert-small_h100_inference.json.gz"


def test_public_names():
    assert rooflines.__all__ == [
        "Analysis", "Ceilings", "Comparison", "Count", "Finding", "Forecast", "MonitorAnalysis", "Monitored", "NotCounted",
        "ProfileOptions", "RankAnalysis", "RooflinesError", "Run", "Signature", "TensorArg", "Training", "Work", "__version__",
        "analyze", "analyze_ranks", "calibrate", "compare", "count", "declare_work", "devices", "formula", "generating", "load", "log",
        "measure_ceilings", "monitor", "predict", "profile", "record", "report", "sweep", "train", "what_if",
    ]  # fmt: skip
    for name in rooflines.__all__:
        assert getattr(rooflines, name) is not None
        assert name in dir(rooflines)
    with pytest.raises(AttributeError, match="has no attribute 'profle'"):
        rooflines.profle  # noqa: B018


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'profle'"):
        rooflines.profle  # noqa: B018


def imports(path, *, for_types=True):
    """The names of ours that the module at ``path`` imports, also inside functions, and the modules that a text in it names
    (``"rooflines.a.b"``, ``"rooflines.a.b:function"``), but for ``HOOKS``; ``for_types``: also under ``TYPE_CHECKING``."""
    hooks = HOOKS.get(dotted(path), ())
    return (name for name in _imports(path, for_types) if name not in hooks)


def _imports(path, for_types):
    nodes = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not for_types:
            continue
        nodes.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "rooflines")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module and node.module.split(".")[0] == "rooflines":
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = node.value.partition(":")[0]
            yield from [named] if "." in named and named in NAMES else []


def layer(name):
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


def dotted(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = sorted(PACKAGE.rglob("*.py"))
STUDIES = sorted((ROOT / "rooflines_studies").rglob("*.py"))
NAMES = {dotted(path): path for path in MODULES}
PACKAGES = sorted(dotted(path) for path in MODULES if path.name == "__init__.py")


@functools.cache
def import_graph():
    """The modules that each module imports when it runs; ``from a import b`` is module ``a.b`` where that exists, else ``a``."""
    graph = {}
    for name, path in NAMES.items():
        found = (one if one in NAMES else one.rpartition(".")[0] for one in imports(path))
        graph[name] = {one for one in found if one in NAMES and one != name}
    return graph


def circle(graph):
    """One circle in ``graph``; empty where it has none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def within(package, graph):
    """The imports between the folders and files of ``package``: each folder stands for all that is in it."""
    found = {}
    for name, imported in graph.items():
        for one in imported:
            if name.startswith(f"{package}.") and one.startswith(f"{package}."):
                ours, theirs = (module.removeprefix(f"{package}.").partition(".")[0] for module in (name, one))
                if ours != theirs:
                    found.setdefault(ours, set()).add(theirs)
    return found


@pytest.mark.parametrize("path", STUDIES, ids=[str(path.relative_to(ROOT)) for path in STUDIES])
def test_the_studies_are_an_extension_like_any_other(path):
    assert {name.rpartition(".")[0] for name in imports(path)} <= {"rooflines", "rooflines.ext"}


@pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(ROOT)) for path in MODULES])
def test_imports_go_downward(path):
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    if own in ("__init__", "__main__", "ext"):
        return  # the front doors name everything
    for name in imports(path):
        target = layer(name)
        if own in FOR_ALL:
            assert target in FOR_ALL, f"{own} imports {name}"
        else:
            assert own in LAYERS, f"{own} has no place among {LAYERS}"
            below = (*LAYERS[LAYERS.index(own) :], *FOR_ALL)
            assert target in below, f"{own} imports {name}, which is above it"


def test_no_module_imports_itself_through_others():
    assert circle(import_graph()) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_the_folders_of_a_package_have_an_order(package):
    assert circle(within(package, import_graph())) == []


def test_predictions_know_nothing_of_advice():
    """Advice asks for predictions: nothing that they import, directly or through others, is a rule or what collects the rules."""
    graph = import_graph()
    found, names = set(), [name for name in graph if name.startswith("rooflines.roofline.predict")]
    while names:
        found.add(name := names.pop())
        names += graph[name] - found
    above = tuple(f"rooflines.roofline.{name}" for name in ("advise", "analyze", "compare", "ranks"))
    assert [name for name in found if name.startswith(above)] == []


def test_a_circle_is_found_between_modules_and_between_folders():
    graph = {"a.b.one": {"a.c.one"}, "a.c.two": {"a.b.two"}, "a.d": {"a.b.one"}}
    assert circle(graph) == []
    assert set(circle(within("a", graph))) == {"b", "c"}
    assert set(circle(graph | {"a.c.one": {"a.b.one"}})) == {"a.b.one", "a.c.one"}


@pytest.mark.parametrize("statement", [
    "import rooflines",
    "import rooflines.cli",
    "import rooflines.errors, rooflines.units",
    "import rooflines.roofline.count.formulas",
    "from rooflines.roofline.count.formulas import count",
    "import rooflines.integrations.pytest_plugin",
    "import rooflines.integrations.tensorboard_tab",
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
], ids=lambda text: text.replace("\n", " ")[:60])  # fmt: skip
def test_what_must_be_quick_loads_nothing_heavy(statement):
    check = f"{statement}\nimport json, sys\nprint('\\n' + json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []


LOADED = "\nimport json, sys\nprint('\\n' + json.dumps(sorted(sys.modules)))"


def loaded(statement):
    """The modules that are loaded after ``statement`` in a process of its own."""
    # The modules of this environment's own that start with the interpreter are not of the package.
    done = subprocess.run([sys.executable, "-c", f"{statement}{LOADED}"], capture_output=True, text=True, check=True)
    before = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1])) - set(json.loads(before.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "statement",
    [f"import rooflines; rooflines.analyze({str(TRACE)!r})", COMMAND.format(["rooflines", "analyze", str(TRACE), "--format", "json"])],
    ids=["python", "command"],
)
def test_a_trace_loads_what_it_needs(statement):
    found = loaded(statement)
    assert found.isdisjoint(NOT_FOR_TRACES)
    # nothing of pages, of other jobs, of several ranks, and no formula of an operator that is not in the trace
    assert found.isdisjoint({"rooflines.reports.document", "rooflines.pipeline.recording", "rooflines.pipeline.monitoring"})
    assert found.isdisjoint(
        {f"rooflines.roofline.count.formulas.{family}" for family in ("optimizer", "recurrent", "vision", "sparse")}
    )
    drawn = {name for name in found if name.startswith(("rooflines.roofline.ranks.", "rooflines.reports.render."))}
    assert drawn <= {f"rooflines.reports.render.{name}" for name in ("formats", "progress", "screen")}


@pytest.mark.parametrize(("arguments", "expected"), [(["devices", "h200"], {"devices"}), (["--version"], set())], ids=str)
def test_a_command_loads_no_other(arguments, expected):
    found = loaded(COMMAND.format(["rooflines", *arguments]))
    assert {name for name in COMMANDS if f"rooflines.cli.{name}" in found} == expected


def test_every_file_of_a_command_is_listed_and_helped_and_python_m_is_the_command():
    registering = {
        path.stem for path in (PACKAGE / "cli").glob("*.py") if re.search(r"^(@app\.command|app\.add_typer)", path.read_text(), re.M)
    }
    assert sorted(COMMANDS) == sorted(registering)
    done = subprocess.run([sys.executable, "-m", "rooflines", "--help"], capture_output=True, text=True, check=True)
    for name in COMMANDS:
        assert re.search(rf"^\W*{name} +[A-Z]\w+", done.stdout, re.MULTILINE), name


def test_the_wheel_holds_every_file_of_the_package(tmp_path):
    pytest.importorskip("hatchling", reason="building a wheel needs hatchling, which pip fetches by itself")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT, check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(["git", "ls-files", "rooflines", "rooflines_studies"], cwd=ROOT, capture_output=True, text=True)
    expected = set(tracked.stdout.split()) if tracked.returncode == 0 else {str(path.relative_to(ROOT)) for path in MODULES}
    assert expected, "no files to look for"
    assert {name for name in expected if (ROOT / name).exists()} <= held
    for suffix in (".j2", ".toml", ".typ", ".js", ".css"):
        on_disk = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob(f"*{suffix}")}
        assert on_disk <= held, suffix
    assert {name.split("/")[0] for name in held} == {
        "rooflines", "rooflines_studies", f"rooflines-{rooflines.__version__}.dist-info",
    }  # fmt: skip


def test_what_extensions_import_is_there():
    for name in rooflines.ext.__all__:
        value = getattr(rooflines.ext, name)
        assert not isinstance(value, (type, FunctionType)) or value.__doc__, f"{name} has no docstring"
        assert f"``{name}``" in rooflines.ext.__doc__
