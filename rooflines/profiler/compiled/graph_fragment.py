"""The operators of a kernel as inductor writes them in the comment above it: the part of the graph that the kernel computes.

``%add : Tensor "f32[8, 16][16, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%a, %b), kwargs = {})``
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any, Final

from rooflines.profiler.trace.signature import MISSING, Argument, Signature, TensorArg

_DTYPES: Final[dict[str, str]] = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "c64": "complex64", "c128": "complex128",
    "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "b8": "bool", "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz", "f8e8m0fnu": "float8_e8m0fnu",
}  # fmt: skip
_NODE: Final = re.compile(
    r'%(?P<name>\w+) : (?:Tensor )?(?:"(?P<dtype>\w+)\[(?P<shape>[\d, ]*)\](?:\[(?P<strides>[\d, ]*)\])?[^"]*")?'
    r"\s*(?:\[num_users=\d+\])? = "
    r"(?P<kind>\w+)\[target=(?P<target>[\w.]+)\](?:\(args = (?P<args>.*), kwargs = .*\))?\Z"
)
_RETURNS: Final = re.compile(r"return (?P<names>%\w+(?:,\s?%\w+)*)\Z")


@dataclass(frozen=True, slots=True)
class Fragment:
    """The operator calls of a kernel with their results, the tensors that it gets from outside and those that it returns.

    ``calls`` is None where the shapes of the nodes are not in the comment.
    """

    calls: tuple[tuple[Signature, tuple[TensorArg, ...]], ...] | None
    inputs: tuple[TensorArg, ...]
    results: tuple[TensorArg, ...]


def read_fragment(comment: list[str]) -> Fragment | None:
    """The fragment in the lines of a kernel's comment; None where there is none."""
    tensors: dict[str, TensorArg] = {}
    calls: list[tuple[str, str, str]] = []
    inputs: list[TensorArg] = []
    returned: list[str] = []
    for line in comment:
        if (found := _RETURNS.match(line)) is not None:
            returned = re.findall(r"%(\w+)", found["names"])
        elif (found := _NODE.match(line)) is not None:
            if found["dtype"] in _DTYPES:
                tensors[found["name"]] = _tensor(found["dtype"], found["shape"], found["strides"])
            if found["kind"] == "PlaceHolder" and found["name"] in tensors:
                inputs.append(tensors[found["name"]])
            elif found["kind"] == "call_function" and found["target"].startswith("torch.ops."):
                calls.append((found["name"], found["target"], found["args"] or "()"))
    if not calls and not inputs:
        return None
    # A call without a tensor returns several; they are used under the names of their parts, which are not listed.
    made = {name: (tensors[name],) if name in tensors else () for name, _, _ in calls}
    shaped = tuple((_signature(target, args, tensors, made[name]), made[name]) for name, target, args in calls)
    return Fragment(shaped if any(made.values()) else None, tuple(inputs), tuple(tensors[name] for name in returned if name in tensors))


def _tensor(dtype: str, shape: str, strides: str | None) -> TensorArg:
    sizes = tuple(int(size) for size in shape.split(",") if size.strip())
    steps = tuple(int(step) for step in strides.split(",") if step.strip()) if strides is not None else None
    return TensorArg(sizes, _DTYPES[dtype], steps)


def _signature(target: str, args: str, tensors: dict[str, TensorArg], made: tuple[TensorArg, ...]) -> Signature:
    """``torch.ops.aten.add.Tensor`` with its arguments as a call of ``aten::add``."""
    namespace, name = target.removeprefix("torch.ops.").split(".")[:2]
    try:
        tree: Any = ast.parse(re.sub(r"%(\w+)", r"T_\1", args), mode="eval").body
        values = tuple(_value(one, tensors, made) for one in tree.elts) if isinstance(tree, ast.Tuple) else ()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        values = ()
    return Signature(f"{namespace}::{name}", values)


def _value(node: ast.expr, tensors: dict[str, TensorArg], made: tuple[TensorArg, ...]) -> Argument:
    if isinstance(node, ast.Name) and node.id.startswith("T_"):
        name = node.id.removeprefix("T_")
        # A part of several results, such as the mean of ``var_mean``, has no shape of its own; it is broadcast to the result.
        return tensors.get(name, made[0] if made and name.startswith("getitem") else MISSING)
    if isinstance(node, (ast.List, ast.Tuple)):
        items = tuple(_value(one, tensors, made) for one in node.elts)
        return MISSING if any(item is MISSING for item in items) else items
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return MISSING
