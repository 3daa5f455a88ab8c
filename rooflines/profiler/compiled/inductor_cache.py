"""Kernels in inductor's cache: the files that a recorded run left in ``TORCHINDUCTOR_CACHE_DIR`` or in
``torch_compile_debug``.

Two kinds of files have kernels: the code of a graph, in which each kernel is a string with its operators in
the comment above, and the code of one Triton kernel. They are parsed and never executed. Format: torch 2.1 to
2.14 (``get_kernel_metadata`` in torch/_inductor/utils.py, ``TritonKernel.codegen_kernel`` in
torch/_inductor/codegen/triton.py); shapes in the comment since 2.9.
"""

from __future__ import annotations

import ast
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

from rooflines.errors import UsageError
from rooflines.profiler.compiled.records import Access
from rooflines.profiler.read.signature import MISSING, Argument, Signature, TensorArg, Tensors

# --- loads and stores of Triton code ----------------------------------------------------------------------
# Inductor writes one statement for each variable of an index (``x0 = (xindex % 128)``, ``x1 = xindex //
# 128``), and loads and stores ``pointer + (index)`` with an index made of these. The number of values of each
# variable follows from the number of iterations.

_ITERATIONS = re.compile(r"([xyz]|r\d*_?)numel\Z")
_INDEX = re.compile(r"([xyz]|r\d*_?)index\Z")
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
# The lowest and the highest value.
_Range: TypeAlias = tuple[int, int]
_ACCESSES = {"load": False, "store": True, "atomic_add": True}


@dataclass(frozen=True, slots=True)
class PointerAccess:
    """One load or store: the parameter, and the index as an expression; ``adds`` says that a store adds to
    what is there."""

    parameter: str
    index: str
    writes: bool
    adds: bool


@dataclass(frozen=True, slots=True)
class TritonSource:
    """A Triton kernel: its parameters in order without constants, the iterations that its code fixes, the
    variables of its indices as expressions, and its loads and stores."""

    name: str
    parameters: tuple[str, ...]
    iterations: tuple[tuple[str, int], ...]
    variables: tuple[tuple[str, str], ...]
    accesses: tuple[PointerAccess, ...]

    def accessed(
        self, arguments: Mapping[str, int], buffers: Mapping[str, tuple[int, int]]
    ) -> tuple[list[Access], list[Access]]:
        """The reads and writes of a call. ``arguments`` are its integers by parameter, ``buffers`` has the
        number of each tensor and how many elements it has."""
        numbers = {**dict(self.iterations), **arguments}
        sizes = {name: size for name, size in numbers.items() if _ITERATIONS.match(name)}
        points = prod(sizes.values())
        loops = {f"{name.removesuffix('numel')}index": size for name, size in sizes.items()}
        known = {name: (number, number) for name, number in numbers.items()} | {
            name: _upto(size) for name, size in loops.items()
        }
        for name, expression in self.variables:
            bounds = _bounds(ast.parse(expression, mode="eval").body, known)
            if bounds is not None:
                loops[name] = bounds[1] + 1
                known[name] = _upto(loops[name])
        reads: dict[Access, None] = {}
        writes: dict[Access, None] = {}
        made = {
            pointer.parameter
            for pointer in self.accesses
            if pointer.writes and pointer.parameter.startswith("out_ptr")
        }
        for pointer in self.accesses:
            if pointer.parameter not in buffers or (not pointer.writes and pointer.parameter in made):
                continue
            number, elements = buffers[pointer.parameter]
            tree = ast.parse(pointer.index, mode="eval").body
            bounds = _bounds(tree, known)
            if bounds is None:  # a loaded value says which element
                access = Access(number, min(points, elements), 0, elements - 1, pointer.adds, anywhere=True)
            else:
                reached = prod(
                    loops.get(name, 1)
                    for name in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
                )
                access = Access(number, min(reached, elements), max(bounds[0], 0), bounds[1], pointer.adds)
            (writes if pointer.writes else reads)[access] = None
        return list(reads), list(writes)


def read_triton(code: str) -> TritonSource | None:
    """The kernel in ``code``; None where there is none whose loads and stores are of the known form."""
    try:
        tree = ast.parse(code)
    except _UNREADABLE:
        return None
    functions = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("triton_")
        if any("jit" in ast.dump(mark) for mark in node.decorator_list)
    )
    if (function := next(functions, None)) is None:
        return None
    parameters = tuple(argument.arg for argument in function.args.args if argument.annotation is None)
    iterations, variables, accesses = {}, {}, []
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int(number))) if (
                _ITERATIONS.match(name)
            ):
                iterations[name] = number
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if re.match(r"[xyzr]\d", name) and not _INDEX.match(name):
                    variables[name] = ast.unparse(value)
            case ast.Call(func=ast.Attribute(attr="make_block_ptr")):
                return None
            case ast.Call(func=ast.Attribute(attr=kind), args=[pointer, *_]) if kind in _ACCESSES:
                access = _access(kind, pointer)
                if access is None:
                    return None
                accesses.append(access)
    return TritonSource(
        function.name, parameters, tuple(iterations.items()), tuple(variables.items()), tuple(accesses)
    )


def _access(kind: str, pointer: ast.expr) -> PointerAccess | None:
    """``tl.load(in_ptr0 + (x2 + 128 * x3), ...)``."""
    index: ast.expr = ast.Constant(0)
    match pointer:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            pointer, index = left, right
    if not isinstance(pointer, ast.Name):
        return None
    while isinstance(index, ast.Call) and index.args:  # tl.broadcast_to(index, [XBLOCK, R0_BLOCK])
        index = index.args[0]
    return PointerAccess(pointer.id, ast.unparse(index), _ACCESSES[kind], kind == "atomic_add")


def _upto(size: int) -> _Range:
    return 0, max(size - 1, 0)


# They grow or fall with each operand, so their extremes are at those of the operands.
_MONOTONE: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def _bounds(node: ast.expr, known: Mapping[str, _Range]) -> _Range | None:
    """The lowest and the highest value of an index; None where it has a name that is not ``known``, or
    another operation."""
    match node:
        case ast.Constant(value=int(value)):
            return value, value
        case ast.Name(id=name):
            return known.get(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            bounds = _bounds(operand, known)
            return None if bounds is None else (-bounds[1], -bounds[0])
        case ast.BinOp(left=left, op=operation, right=right):
            one, other = _bounds(left, known), _bounds(right, known)
            if one is None or other is None:
                return None
            if isinstance(operation, (ast.FloorDiv, ast.Mod)) and not 0 < other[0] == other[1]:
                return None
            if isinstance(operation, ast.Mod):
                return one if one[0] >= 0 and one[1] < other[0] else (0, other[0] - 1)
            if (apply := _MONOTONE.get(type(operation))) is not None:
                corners = [apply(a, b) for a in one for b in other]
                return min(corners), max(corners)
    return None


# --- the comment above a kernel: the part of the graph that it computes -----------------------------------
# %add : Tensor "f32[8, 16][16, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args
# = (%a, %b), kwargs = {})

_DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "c64": "complex64",
    "c128": "complex128",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "b8": "bool",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0fnu": "float8_e8m0fnu",
}
_NODE = re.compile(
    r'%(?P<name>\w+) : (?:Tensor )?(?:"(?P<dtype>\w+)\[(?P<shape>[\d, ]*)\](?:\[(?P<strides>[\d, '
    r']*)\])?[^"]*")?'
    r"\s*(?:\[num_users=\d+\])? = "
    r"(?P<kind>\w+)\[target=(?P<target>[\w.]+)\](?:\(args = (?P<args>.*), kwargs = .*\))?\Z"
)
_RETURNS = re.compile(r"return (?P<names>%\w+(?:,\s?%\w+)*)\Z")


@dataclass(frozen=True, slots=True)
class Fragment:
    """The operator calls of a kernel with their results, the tensors that it gets from outside and those that
    it returns.

    ``calls`` is None where the shapes of the nodes are not in the comment.
    """

    calls: tuple[tuple[Signature, Tensors], ...] | None
    inputs: Tensors
    results: Tensors


def read_fragment(comment: list[str]) -> Fragment | None:
    """The fragment in the lines of a kernel's comment; None where there is none."""
    tensors: dict[str, TensorArg] = {}
    calls: list[tuple[str, str, str]] = []
    inputs: list[TensorArg] = []
    returned: list[str] = []
    for line in comment:
        if (match := _RETURNS.match(line)) is not None:
            returned = re.findall(r"%(\w+)", match["names"])
        elif (match := _NODE.match(line)) is not None:
            if match["dtype"] in _DTYPES:
                sizes, strides = (
                    None if text is None else tuple(map(int, re.findall(r"\d+", text)))
                    for text in (match["shape"], match["strides"])
                )
                tensors[match["name"]] = TensorArg(sizes or (), _DTYPES[match["dtype"]], strides)
            if match["kind"] == "PlaceHolder" and match["name"] in tensors:
                inputs.append(tensors[match["name"]])
            elif match["kind"] == "call_function" and match["target"].startswith("torch.ops."):
                calls.append((match["name"], match["target"], match["args"] or "()"))
    if not calls and not inputs:
        return None
    # A call without a tensor returns several; they are used under the names of their parts, which are not
    # listed.
    made = {name: (tensors[name],) if name in tensors else () for name, _, _ in calls}
    shaped = tuple(
        (_signature(target, args, tensors, made[name]), made[name]) for name, target, args in calls
    )
    return Fragment(
        shaped if any(made.values()) else None,
        tuple(inputs),
        tuple(tensors[name] for name in returned if name in tensors),
    )


def _signature(target: str, args: str, tensors: dict[str, TensorArg], made: Tensors) -> Signature:
    """``torch.ops.aten.add.Tensor`` with its arguments as a call of ``aten::add``."""
    namespace, name = target.removeprefix("torch.ops.").split(".")[:2]
    try:
        tree: Any = ast.parse(re.sub(r"%(\w+)", r"T_\1", args), mode="eval").body
        values = (
            tuple(_value(node, tensors, made) for node in tree.elts) if isinstance(tree, ast.Tuple) else ()
        )
    except _UNREADABLE:
        values = ()
    return Signature(f"{namespace}::{name}", values)


def _value(node: ast.expr, tensors: dict[str, TensorArg], made: Tensors) -> Argument:
    if isinstance(node, ast.Name) and node.id.startswith("T_"):
        name = node.id.removeprefix("T_")
        # A part of several results, such as the mean of ``var_mean``, has no shape of its own; it is
        # broadcast to the result.
        return tensors.get(name, made[0] if made and name.startswith("getitem") else MISSING)
    if isinstance(node, (ast.List, ast.Tuple)):
        items = tuple(_value(one, tensors, made) for one in node.elts)
        return MISSING if any(item is MISSING for item in items) else items
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return MISSING


# --- tensors of C++ kernels, from the code of a graph that calls them: cpp_fused_add_0(arg0_1, buf0) ------
# A trace records no arguments of these kernels. Their parameters say what is read and written (``const float*
# in_ptr0``, ``float* in_out_ptr0``, ``float* out_ptr0``), the allocations and checks before the call have the
# shapes.

_FUNCTION = re.compile(r'extern "C"\s+(?:\w+\s+)*?void\s+\w+\(([^)]*)\)')
_PARAMETER = re.compile(r"(?:const )?([\w:]+)\s*\*\s*(?:__restrict__ )?(\w+)")
_CPP_DTYPES = {
    "float": "float32",
    "double": "float64",
    "bfloat16": "bfloat16",
    "at::BFloat16": "bfloat16",
    "half": "float16",
    "at::Half": "float16",
    "bool": "bool",
    "int64_t": "int64",
    "int32_t": "int32",
    "int16_t": "int16",
    "int8_t": "int8",
    "uint8_t": "uint8",
}


_Layout: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


class _Calls(ast.NodeVisitor):
    """Follows the buffers of a graph's code in its order."""

    def __init__(self, parameters: dict[str, list[tuple[str, str]]]) -> None:
        self._parameters = parameters
        self._shapes: dict[str, _Layout] = {}
        self._unwritten: set[str] = set()
        self.found: dict[str, Fragment] = {}

    def visit_Assign(self, node: ast.Assign) -> None:
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name):
            shape = self._shape(value)
            if shape is not None:
                self._shapes[target.id] = shape
            if isinstance(value, ast.Name) and value.id in self._unwritten:  # buf1 = buf0; del buf0
                self._unwritten.add(target.id)
            elif isinstance(value, ast.Call) and ast.unparse(value.func).startswith("empty_strided"):
                self._unwritten.add(target.id)
                return
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name, checked = ast.unparse(node.func), list[Sequence[ast.expr]]()
        if name == "assert_size_stride":
            checked = [node.args[:3]]
        elif name == "assert_size_stride_grouped":
            checked = list(
                zip(*(part.elts for part in node.args[:3] if isinstance(part, ast.Tuple)), strict=False)
            )
        else:
            if name in self._parameters:
                self._called(name, node.args)
            # Any other call may write its arguments.
            self._unwritten -= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        for target, *layout in checked:
            if isinstance(target, ast.Name) and (shape := _layout(layout)) is not None:
                self._shapes[target.id] = shape

    def _shape(self, node: ast.expr) -> _Layout | None:
        if isinstance(node, ast.Name):
            return self._shapes.get(node.id)
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name == "reinterpret_tensor":
                return _layout(node.args[1:3])
            if name.startswith("empty_strided"):
                return _layout(node.args[:2])
        return None

    def _called(self, name: str, args: list[ast.expr]) -> None:
        inputs, results = [], []
        pointers = self._parameters[name]
        if len(args) != len(pointers) or name in self.found:
            return
        for (kind, parameter), arg in zip(pointers, args, strict=True):
            shape = self._shape(arg)
            if shape is None or kind not in _CPP_DTYPES:
                return
            tensor = TensorArg(shape[0], _CPP_DTYPES[kind], shape[1])
            fresh = isinstance(arg, ast.Name) and arg.id in self._unwritten
            if parameter.startswith("in_ptr") or (parameter.startswith("in_out_ptr") and not fresh):
                inputs.append(tensor)
            if not parameter.startswith("in_ptr"):
                results.append(tensor)
        self.found[name] = Fragment(None, tuple(inputs), tuple(results))


def _layout(nodes: Sequence[ast.expr]) -> _Layout | None:
    """Sizes and strides, where both are tuples of integers."""
    try:
        sizes, strides = map(ast.literal_eval, nodes)
        whole = all(isinstance(number, int) for number in (*sizes, *strides))
    except (ValueError, TypeError, SyntaxError):
        return None
    return (sizes, strides) if whole else None


# Larger files are not what inductor writes.
_MOST_BYTES = 32 << 20
_ANY = re.compile(r"async_compile\.|@triton_heuristics\.")


@dataclass(frozen=True, slots=True)
class CachedKernel:
    """A kernel in the cache. ``source`` has the loads and stores of Triton code, ``fragment`` the operators
    of the kernel, None where the file has none. A C++ kernel has no source, and a fragment with its tensors
    alone."""

    name: str
    source: TritonSource | None
    fragment: Fragment | None


def read_cache(directory: Path | str) -> dict[str, tuple[CachedKernel, ...]]:
    """The kernels in ``directory`` by name, each with its variants; raises UsageError for a directory that
    does not exist."""
    root = Path(directory)
    if not root.is_dir():
        raise UsageError(
            f"no such directory: {str(directory)!r}.",
            hint="Give the TORCHINDUCTOR_CACHE_DIR of the recorded run.",
        )
    by_name: dict[str, dict[CachedKernel, None]] = {}
    for path in sorted(root.rglob("*.py")):
        try:
            kernels = list(_read_file(path))
        except RecursionError:  # nested deeper than inductor nests
            continue
        for kernel in kernels:
            by_name.setdefault(kernel.name, {})[kernel] = None
    # The code of one kernel says nothing that the code of its graph does not.
    whole = {
        name: {kernel.source for kernel in kernels if kernel.fragment is not None}
        for name, kernels in by_name.items()
    }
    return {
        name: tuple(
            kernel for kernel in kernels if kernel.fragment is not None or kernel.source not in whole[name]
        )
        for name, kernels in by_name.items()
    }


def _read_file(path: Path) -> Iterator[CachedKernel]:
    try:
        if path.is_symlink() or path.stat().st_size > _MOST_BYTES:
            return
        text = path.read_text(encoding="utf-8", errors="replace")
        if not _ANY.search(text):
            return
        tree = ast.parse(text)
    except (OSError, *_UNREADABLE):
        return
    lines = text.splitlines()
    cpp: dict[str, str] = {}
    for node in tree.body:
        if (call := _compilation(node)) is not None:
            name, language, code = call
            source = read_triton(code) if language == "triton" else None
            if source is not None:
                above = itertools.takewhile(
                    lambda line: line.startswith("#"), reversed(lines[: node.lineno - 1])
                )
                yield CachedKernel(
                    name, source, read_fragment([line.removeprefix("#").strip() for line in above][::-1])
                )
            elif language.startswith("cpp"):
                cpp[name] = code
        elif isinstance(node, ast.FunctionDef) and any(
            "triton_heuristics" in ast.dump(decorator) for decorator in node.decorator_list
        ):
            source = read_triton(ast.unparse(node))
            if source is not None:
                yield CachedKernel(source.name, source, None)
    # The tensors of every C++ kernel that the graph calls with known shapes.
    calls = _Calls(
        {
            name: _PARAMETER.findall(match[1])
            for name, code in cpp.items()
            if (match := _FUNCTION.search(code))
        }
    )
    for inner in ast.walk(tree):
        if isinstance(inner, ast.FunctionDef) and inner.name == "call":
            calls.visit(inner)
    for name, fragment in calls.found.items():
        yield CachedKernel(name, None, fragment)


def _compilation(node: ast.stmt) -> tuple[str, str, str] | None:
    """The name, the language and the code in ``name = async_compile.triton('name', '''code''', ...)``."""
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name), *_],
            value=ast.Call(func=ast.Attribute(value=ast.Name(id="async_compile"), attr=language), args=given),
        ):
            values = (argument.value for argument in given if isinstance(argument, ast.Constant))
            texts = [value for value in values if isinstance(value, str)]
            return (name, language, texts[-1]) if texts else None
    return None
