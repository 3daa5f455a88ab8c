"""Writes ``families.json``, which module registers the formula of each operator, ``evidence.json``, which operators of libraries are in
recorded traces or called in tests, and ``docs/operators.csv``.

python tests/roofline/formulas/families.py
"""

from __future__ import annotations

import ast
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import rooflines.roofline.formulas
from rooflines.roofline.formulas import families, registry
from rooflines.roofline.formulas.evidence import FILE as EVIDENCE
from rooflines.roofline.formulas.libraries import canonical

PACKAGE = rooflines.roofline.formulas.__name__
PREFIX = f"{PACKAGE}."


def registered_by_module() -> dict[str, list[str]]:
    """Import every module of the package in a process that has imported none, and note what each registers."""
    operators: dict[str, list[str]] = {}
    register = registry._register

    def noting(names, *rest):
        frame = sys._getframe()
        while frame.f_code.co_name != "<module>" or not frame.f_globals["__name__"].startswith(PREFIX):
            frame = frame.f_back
        operators.setdefault(frame.f_globals["__name__"].removeprefix(PREFIX), []).extend(names)
        register(names, *rest)

    registry._register = noting
    families.modules = dict
    folder = Path(families.__file__).parent
    for path in sorted(path.relative_to(folder) for path in folder.rglob("*.py") if path.stem != "__init__"):
        if path.parts[0] != "kernels":
            families.load(".".join(path.with_suffix("").parts))
    return dict(sorted(operators.items()))


WIDTH = 120
# The recorded traces, calls in tests with the library installed, and tests of calls that were copied from a trace.
TESTS = Path(__file__).parents[2]
CALLS = TESTS / "roofline" / "formulas" / "libraries" / "test_real_calls.py"


def evidence(libraries: set[str]) -> dict[str, list[str]]:
    """The operators of ``libraries`` by evidence."""
    texts = [gzip.decompress(path.read_bytes()).decode(errors="replace") for path in sorted(TESTS.glob("data/traces/**/*.json.gz"))]
    for path in sorted((TESTS / "roofline").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = (ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef))
        texts += [text.replace("'", '"') for text in functions if "TraceLens" in text]
    strings = {name for text in texts for name in re.findall(r'"([A-Za-z_][^"\n]*)"', text)}
    traced = {name for string in strings for name in (string, canonical(string)) if name in libraries}
    called = set(re.findall(r'(?:check\(tmp_path|counted\(trace), "([^"]+)"', CALLS.read_text(encoding="utf-8")))
    return {"trace": sorted(traced), "call": sorted(called & libraries), "upstream": []}


def wrapped(lists: dict[str, list[str]]) -> str:
    """Lists of names as JSON, several names a line."""
    parts = []
    for key, names in lists.items():
        lines = [""]
        for name in map(json.dumps, names):
            if len(lines[-1]) + len(name) > WIDTH:
                lines.append("")
            lines[-1] += f"{name}, "
        parts.append(f'"{key}": [\n' + "\n".join(line.rstrip() for line in lines).rstrip(",") + "\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def written() -> dict[Path, str]:
    """The generated files with their contents."""
    modules = registered_by_module()
    libraries = {name for module, names in modules.items() if module.startswith("libraries.") for name in names}
    return {
        families.FILE: wrapped(modules),
        EVIDENCE: wrapped(evidence(libraries)),
    }


if __name__ == "__main__":
    for path, text in written().items():
        if sys.argv[1:] == ["--check"]:
            if path.read_text(encoding="utf-8") != text:
                print(path.name)
        else:
            path.write_text(text, encoding="utf-8")
    if not sys.argv[1:]:
        # In a process of its own, which reads the new ``families.json``.
        code = "from tests.roofline.formulas import operators; operators.FILE.write_text(operators.text(), encoding='utf-8')"
        subprocess.run([sys.executable, "-c", code], cwd=TESTS.parent, check=True)
