"""Operators that make one pass over their tensors, at a fixed cost for each element of one of them.

Their schema says what happens to each argument: ``"write out, read input, read weight, eps"``. ``update`` reads and writes, a ``?``
marks a tensor that may be absent, and an argument without a verb is no tensor or its values are not needed. Libraries for inference
consist mostly of such operators: norms, activations, conversions and their fusions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, size, written
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.table import formula

_VERBS: Final = ("read", "write", "update")


@dataclass(frozen=True, slots=True)
class Pass:
    """``cost`` FLOPs for each element of the arguments ``per``. ``result`` names the arguments whose shape and dtype returned tensors
    have; empty where all results are arguments. ``precision`` names the arguments of which the first with numbers of a precision says
    in which it computes; empty for the first that is read. ``assumption`` is that of ``Work``."""

    schema: str
    cost: int
    per: str = "input"
    result: str = ""
    precision: str = ""
    assumption: str = ""


@cache
def parse(schema: str) -> tuple[str, dict[str, tuple[str, bool]]]:
    """The schema as ``Arguments`` reads it, and of each tensor the verb and whether it may be absent."""
    names, tensors = [], {}
    for field in schema.split(","):
        verb, _, name = field.strip().partition(" ")
        name = name or verb
        if verb in _VERBS:
            tensors[name.rstrip("?")] = (verb, name.endswith("?"))
        names.append(name.rstrip("?"))
    return " ".join(names), tensors


def pass_work(signature: Signature, one: Pass) -> Work:
    """The work of a call; raises NotCounted where a tensor was not recorded."""
    schema, verbs = parse(one.schema)
    args = Arguments(signature, schema)
    tensors: dict[str, TensorArg | None] = {
        name: args.optional(name) if absent else args.tensor(name) for name, (_, absent) in verbs.items()
    }
    results = [args.tensor(name) for name in one.result.split()]
    computing = one.precision or next((name for name, (verb, _) in verbs.items() if verb != "write"), "")
    found = (precision_of(source.dtype) for name in computing.split() if (source := tensors.get(name)) is not None)
    return Work(
        other_flops=sum(args.tensor(name).numel for name in one.per.split()) * one.cost,
        bytes_read=size(*(tensors[name] for name, (verb, _) in verbs.items() if verb != "write")),
        bytes_written=written(*(tensors[name] for name, (verb, _) in verbs.items() if verb != "read"), *results),
        precision=next(filter(None, found), None) if one.cost else None,
        assumption=one.assumption,
    )


def register(passes: Mapping[str, Pass], category: str, wraps: bool = False) -> None:
    """Register the formulas of ``passes``, operators by their names."""
    for name, one in passes.items():
        formula(name, category=category, wraps=wraps)(partial(pass_work, one=one))
