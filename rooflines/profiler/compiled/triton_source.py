"""The memory that the code of a Triton kernel accesses, read from its loads and stores.

Inductor writes one statement for each variable of an index (``x0 = (xindex % 128)``, ``x1 = xindex // 128``), and loads and stores
``pointer + (index)`` with an index made of these. The number of values of each variable follows from the number of iterations.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from rooflines.profiler.compiled.records import Access

_ITERATIONS: Final = re.compile(r"([xyz]|r\d*_?)numel\Z")
_INDEX: Final = re.compile(r"([xyz]|r\d*_?)index\Z")
_ACCESSES: Final = {"load": False, "store": True, "atomic_add": True}


@dataclass(frozen=True, slots=True)
class PointerAccess:
    """One load or store: the parameter, and the index as an expression; ``adds`` says that a store adds to what is there."""

    parameter: str
    index: str
    writes: bool
    adds: bool


@dataclass(frozen=True, slots=True)
class TritonSource:
    """A Triton kernel: its parameters in order without constants, the iterations that its code fixes, the variables of its indices as
    expressions, and its loads and stores."""

    name: str
    parameters: tuple[str, ...]
    iterations: tuple[tuple[str, int], ...]
    variables: tuple[tuple[str, str], ...]
    accesses: tuple[PointerAccess, ...]

    def accessed(self, arguments: Mapping[str, int], buffers: Mapping[str, tuple[int, int]]) -> tuple[list[Access], list[Access]]:
        """The reads and writes of a call. ``arguments`` are its integers by parameter, ``buffers`` has the number of each tensor and
        how many elements it has."""
        numbers = {**dict(self.iterations), **arguments}
        points = prod(size for name, size in numbers.items() if _ITERATIONS.match(name))
        ranges = {f"{name.removesuffix('numel')}index": size for name, size in numbers.items() if _ITERATIONS.match(name)}
        for name, expression in self.variables:
            bounds = _bounds(ast.parse(expression, mode="eval").body, ranges, numbers)
            if bounds is not None:
                ranges[name] = bounds[1] + 1
        reads: dict[Access, None] = {}
        writes: dict[Access, None] = {}
        made = {one.parameter for one in self.accesses if one.writes and one.parameter.startswith("out_ptr")}
        for one in self.accesses:
            if one.parameter not in buffers or (not one.writes and one.parameter in made):
                continue
            number, elements = buffers[one.parameter]
            tree = ast.parse(one.index, mode="eval").body
            names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
            bounds = _bounds(tree, ranges, numbers)
            if bounds is None:  # a loaded value says which element
                access = Access(number, min(points, elements), 0, elements - 1, one.adds, anywhere=True)
            else:
                reached = prod(ranges[name] for name in names if name in ranges)
                access = Access(number, min(reached, elements), max(bounds[0], 0), bounds[1], one.adds)
            (writes if one.writes else reads)[access] = None
        return list(reads), list(writes)


def read_triton(code: str) -> TritonSource | None:
    """The kernel in ``code``; None where there is none whose loads and stores are of the known form."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    function = next((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _is_kernel(node)), None)
    if function is None:
        return None
    parameters = tuple(one.arg for one in function.args.args if one.annotation is None)
    iterations, variables, accesses = {}, {}, []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if _ITERATIONS.match(name) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, int):
                iterations[name] = node.value.value
            elif re.match(r"[xyzr]\d", name) and not _INDEX.match(name):
                variables[name] = ast.unparse(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ACCESSES and node.args:
            access = _access(node)
            if access is None:
                return None
            accesses.append(access)
    if any(isinstance(node, ast.Call) and "make_block_ptr" in ast.dump(node.func) for node in ast.walk(function)):
        return None
    return TritonSource(function.name, parameters, tuple(iterations.items()), tuple(variables.items()), tuple(accesses))


def _is_kernel(node: ast.FunctionDef) -> bool:
    return node.name.startswith("triton_") and any("jit" in ast.dump(one) for one in node.decorator_list)


def _access(call: ast.Call) -> PointerAccess | None:
    """``tl.load(in_ptr0 + (x2 + 128 * x3), ...)``."""
    assert isinstance(call.func, ast.Attribute)
    pointer: Any = call.args[0]
    index: ast.expr = ast.Constant(0)
    if isinstance(pointer, ast.BinOp) and isinstance(pointer.op, ast.Add):
        pointer, index = pointer.left, pointer.right
    if not isinstance(pointer, ast.Name):
        return None
    while isinstance(index, ast.Call) and index.args:  # tl.broadcast_to(index, [XBLOCK, R0_BLOCK])
        index = index.args[0]
    kind = call.func.attr
    return PointerAccess(pointer.id, ast.unparse(index), _ACCESSES[kind], kind == "atomic_add")


def _bounds(node: ast.expr, ranges: Mapping[str, int], numbers: Mapping[str, int]) -> tuple[int, int] | None:
    """The lowest and the highest value of an index; None where it has a name that is not a variable of an index."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value, node.value
    if isinstance(node, ast.Name):
        if node.id in ranges:
            return 0, max(ranges[node.id] - 1, 0)
        return (numbers[node.id], numbers[node.id]) if node.id in numbers else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        found = _bounds(node.operand, ranges, numbers)
        return None if found is None else (-found[1], -found[0])
    if isinstance(node, ast.BinOp):
        left, right = _bounds(node.left, ranges, numbers), _bounds(node.right, ranges, numbers)
        return None if left is None or right is None else _combined(node.op, left, right)
    return None


def _combined(operation: ast.operator, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int] | None:
    if isinstance(operation, ast.Add):
        return left[0] + right[0], left[1] + right[1]
    if isinstance(operation, ast.Sub):
        return left[0] - right[1], left[1] - right[0]
    if isinstance(operation, ast.Mult):
        corners = [a * b for a in left for b in right]
        return min(corners), max(corners)
    if isinstance(operation, ast.FloorDiv) and right[0] == right[1] > 0:
        return left[0] // right[0], left[1] // right[0]
    if isinstance(operation, ast.Mod) and right[0] == right[1] > 0:
        return (left[0], left[1]) if left[0] >= 0 and left[1] < right[0] else (0, right[0] - 1)
    return None
