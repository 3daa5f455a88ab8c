"""The size of the package by a ruler that the length of lines cannot change: nodes of the syntax tree, functions, files, long lines and
places that the formatter leaves alone, by folder.

A number may fall. One that rises needs an edit of the table, which a reviewer sees; ``python -m tests.test_size`` prints the current
numbers.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LONG = 110
# Each name of a public class means one thing; this one is the callback of two frameworks, each in its own words.
SHARED_NAMES = {"RooflinesCallback"}
# Folder: nodes, functions, files, lines longer than 110 characters, ``fmt: skip``.
MOST: dict[str, tuple[int, int, int, int, int]] = {
    ".": (4_043, 55, 12, 0, 0),
    "all": (606_755, 4_343, 460, 0, 0),
    "cli": (15_438, 83, 27, 0, 0),
    "device_specs": (34_868, 292, 22, 0, 0),
    "integrations": (6_095, 64, 11, 0, 0),
    "kernels": (14_547, 166, 18, 0, 0),
    "pipeline": (19_007, 114, 18, 0, 0),
    "profiler": (151_253, 1_284, 115, 0, 0),
    "reports": (103_621, 638, 61, 0, 0),
    "roofline": (231_736, 1_468, 157, 0, 0),
    "rooflines_studies": (55_580, 389, 35, 0, 0),
    "sweeps": (26_147, 179, 19, 0, 0),
}


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """Every file of both packages, read once."""
    found = (path for package in ("rooflines", "rooflines_studies") for path in sorted((ROOT / package).rglob("*.py")))
    return {path: ast.parse(path.read_text()) for path in found}


@functools.cache
def sizes() -> dict[str, tuple[int, ...]]:
    """The same five numbers of every folder of the package, of all of it, and of the studies' package, as they are."""
    found: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
    for path, tree in trees().items():
        text = path.read_text()
        nodes = list(ast.walk(tree))
        functions = sum(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in nodes)
        package, *parts = path.relative_to(ROOT).parts
        own = (len(nodes), functions, 1, sum(len(line) > LONG for line in text.splitlines()), text.count("# fmt: skip"))
        ours = (parts[0] if len(parts) > 1 else ".", "all")
        for folder in ours if package == "rooflines" else (package,):
            found[folder] = [a + b for a, b in zip(found[folder], own, strict=True)]
    return {folder: tuple(numbers) for folder, numbers in sorted(found.items())}


@pytest.mark.parametrize("folder", [*MOST])
def test_no_folder_grows_unseen(folder):
    now = sizes().get(folder, (0,) * 5)
    assert all(number <= most for number, most in zip(now, MOST[folder], strict=True)), (
        f"{folder}: {now}, at most {MOST[folder]}; python -m tests.test_size prints the table"
    )


def test_every_folder_is_in_the_table():
    assert set(sizes()) <= set(MOST)


def test_no_name_of_a_class_has_two_meanings():
    modules: dict[str, set[Path]] = defaultdict(set)
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].add(path)
    assert {name for name, paths in modules.items() if len(paths) > 1} == SHARED_NAMES


if __name__ == "__main__":
    for folder, numbers in sizes().items():
        print(f'    "{folder}": ({", ".join(f"{number:_}" for number in numbers)}),')
