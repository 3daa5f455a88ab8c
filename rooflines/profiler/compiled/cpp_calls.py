"""The tensors of C++ kernels, from the code of a graph that calls them: ``cpp_fused_add_0(arg0_1, buf0)``.

A trace records no arguments of these kernels. Their parameters say what is read and written (``const float* in_ptr0``,
``float* in_out_ptr0``, ``float* out_ptr0``), the allocations and checks before the call have the shapes.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Final

from rooflines.profiler.compiled.graph_fragment import Fragment
from rooflines.profiler.trace.signature import TensorArg

_FUNCTION: Final = re.compile(r'extern "C"\s+(?:\w+\s+)*?void\s+\w+\(([^)]*)\)')
_PARAMETER: Final = re.compile(r"(?:const )?([\w:]+)\s*\*\s*(?:__restrict__ )?(\w+)")
_DTYPES: Final[dict[str, str]] = {
    "float": "float32", "double": "float64", "bfloat16": "bfloat16", "at::BFloat16": "bfloat16", "half": "float16",
    "at::Half": "float16", "bool": "bool", "int64_t": "int64", "int32_t": "int32", "int16_t": "int16", "int8_t": "int8",
    "uint8_t": "uint8",
}  # fmt: skip


def read_cpp_calls(tree: ast.Module, codes: dict[str, str]) -> dict[str, Fragment]:
    """The tensors of every kernel in ``codes``, its C++ code by name, that the module ``tree`` calls with known shapes."""
    reader = _Calls({name: _PARAMETER.findall(found[1]) for name, code in codes.items() if (found := _FUNCTION.search(code))})
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "call":
            reader.visit(node)
    return reader.found


class _Calls(ast.NodeVisitor):
    """Follows the buffers of a graph's code in its order."""

    def __init__(self, parameters: dict[str, list[tuple[str, str]]]) -> None:
        self._parameters = parameters
        self._shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
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
        name = ast.unparse(node.func)
        if name == "assert_size_stride" and len(node.args) >= 3:
            self._note(node.args[:1], node.args[1:2], node.args[2:3])
        elif name == "assert_size_stride_grouped" and all(isinstance(one, ast.Tuple) for one in node.args[:3]):
            names, shapes, strides = (one.elts for one in node.args[:3] if isinstance(one, ast.Tuple))
            self._note(names, shapes, strides)
        else:
            if name in self._parameters:
                self._called(name, node.args)
            # Any other call may write its arguments.
            self._unwritten -= {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}

    def _note(self, names: list[ast.expr], shapes: list[ast.expr], strides: list[ast.expr]) -> None:
        for name, shape, stride in zip(names, shapes, strides, strict=False):
            sizes, steps = _integers(shape), _integers(stride)
            if isinstance(name, ast.Name) and sizes is not None and steps is not None:
                self._shapes[name.id] = sizes, steps

    def _shape(self, node: ast.expr) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        if isinstance(node, ast.Name):
            return self._shapes.get(node.id)
        if not isinstance(node, ast.Call):
            return None
        name = ast.unparse(node.func)
        places = (0, 1) if name.startswith("empty_strided") else (1, 2) if name == "reinterpret_tensor" else None
        if places is None or len(node.args) <= places[1]:
            return None
        sizes, steps = (_integers(node.args[place]) for place in places)
        return None if sizes is None or steps is None else (sizes, steps)

    def _called(self, name: str, args: list[ast.expr]) -> None:
        inputs, results = [], []
        pointers = self._parameters[name]
        if len(args) != len(pointers) or name in self.found:
            return
        for (kind, parameter), arg in zip(pointers, args, strict=True):
            shape = self._shape(arg)
            if shape is None or kind not in _DTYPES:
                return
            tensor = TensorArg(shape[0], _DTYPES[kind], shape[1])
            fresh = isinstance(arg, ast.Name) and arg.id in self._unwritten
            if parameter.startswith("in_ptr") or (parameter.startswith("in_out_ptr") and not fresh):
                inputs.append(tensor)
            if not parameter.startswith("in_ptr"):
                results.append(tensor)
        self.found[name] = Fragment(None, tuple(inputs), tuple(results))


def _integers(node: ast.expr) -> tuple[int, ...] | None:
    try:
        found: Any = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None
    return found if isinstance(found, tuple) and all(isinstance(one, int) for one in found) else None
