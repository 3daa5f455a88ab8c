"""Element-wise operators by the rules of ``elementwise.rows``: cost, operands and result type."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import prod
from typing import Any, Literal, NamedTuple

from rooflines.profiler.read.signature import Argument, Signature, TensorArg
from rooflines.roofline.count.formulas import costs
from rooflines.roofline.count.formulas.arguments import (
    Arguments,
    Dispatches,
    NotCounted,
    broadcast,
    floating,
    listed,
    promote,
    size,
    size_of,
    written,
)
from rooflines.roofline.count.formulas.record import Work, precision_of
from rooflines.roofline.count.formulas.registry import Hints
from rooflines.roofline.count.formulas.tables import said_of


class Rule(NamedTuple):
    """What ``elementwise.rows`` says of an operator."""

    cost: int
    operands: int = 1
    result: Literal["same", "float", "bool", "real", "real and float"] = "same"
    complex_cost: int | None = None
    mask: int | None = None


@cache
def rule_of(name: str) -> Rule:
    """The rule of an operator, without ``aten::``."""
    return Rule(**said_of(f"aten::{name}"))


def complex_cost(rule: Rule) -> int:
    """FLOPs of one complex result: every transcendental in the cost becomes a complex one and every other
    operation a product."""
    if rule.complex_cost is not None:
        return rule.complex_cost
    transcendentals, basics = divmod(rule.cost, costs.TRANSCENDENTAL)
    return transcendentals * costs.COMPLEX_TRANSCENDENTAL + basics * costs.COMPLEX_MULTIPLY


_TYPES: dict[type, str] = {float: "float64", int: "int64", complex: "complex128", bool: "bool"}
_NUMBERS = frozenset(_TYPES.values())


def read_operands(operands: tuple[Argument, ...], mask: int | None) -> int:
    """Bytes of the operands of one element-wise call.

    A 0-dimensional operand of a Python number's dtype next to another operand is a number, passed with the
    call: a trace shows ``x + 2.0`` as it shows an addition of a tensor. Of operands that are all
    0-dimensional the first is a tensor, and so is the one at position ``mask`` in any case.
    """
    first = next((index for index, operand in enumerate(operands) if isinstance(operand, TensorArg)), None)
    if any(tensor.shape for tensor in listed(operands)):
        first = None
    return size(
        *(
            operand
            for index, operand in enumerate(operands)
            if isinstance(operand, TensorArg)
            and (operand.shape or index in (mask, first) or operand.dtype not in _NUMBERS)
        )
    )


def real(dtype: str) -> str:
    """The dtype of the parts of a complex number; other dtypes as they are."""
    return {"complex128": "float64", "complex64": "float32", "complex32": "float16"}.get(dtype, dtype)


def rule_work(signature: Signature, rule: Rule, in_place: bool = False) -> Work:
    """The work under ``rule``; the operand at the position of its mask is read and has no say in the result's
    dtype."""
    operands = signature.args[: rule.operands]
    if operands and all(
        type(operand) in _TYPES for operand in operands
    ):  # torch.div(7, 2): a trace shows tensors without dimensions
        operands = tuple(TensorArg((), _TYPES[type(operand)]) for operand in operands)
    read = listed(operands)
    if not read:
        raise NotCounted("shapes not recorded")
    shape = broadcast(tensor.shape for tensor in read)
    dtype = promote(arg for index, arg in enumerate(operands) if index != rule.mask)
    if rule.result.endswith("float") and not floating(dtype):
        dtype = "float32"
    written = "bool" if rule.result == "bool" else real(dtype) if rule.result.startswith("real") else dtype
    given = listed(signature.args[rule.operands :])
    if in_place:
        written = read[0].dtype
    elif given and given[-1].shape == shape:
        written = given[-1].dtype  # aten::add.out and its like: the last tensor is where the result goes
    results = prod(shape)
    return Work(
        other_flops=results * (complex_cost(rule) if dtype.startswith("complex") else rule.cost),
        bytes_read=read_operands(operands, rule.mask),
        bytes_written=results * size_of(written),
        precision=precision_of(dtype),
    )


# Exponents for which torch has no logarithm: square roots, products, reciprocals.
_EASY_POWERS = {0.5: 1, 2.0: 1, 3.0: 2, -0.5: 1, -1.0: 1, -2.0: 2}


def adjusted(name: str, signature: Signature) -> Rule:
    """The rule of operator ``name`` (without ``aten::`` and underscore) under the values that this call
    has."""
    rule = rule_of(name)
    if name == "pow":
        exponent = Arguments(signature, "self exponent").value("exponent")
        easy = _EASY_POWERS.get(exponent) if isinstance(exponent, int | float) else None
        return rule if easy is None else Rule(easy * costs.BASIC, operands=2)
    alpha = signature.arg(2, default=1)
    if name in ("add", "sub", "subtract", "rsub") and isinstance(alpha, int | float | complex) and alpha != 1:
        return rule._replace(
            cost=rule.cost + costs.BASIC, complex_cost=costs.COMPLEX_ADD + costs.COMPLEX_MULTIPLY
        )
    if name in ("div", "divide") and len(signature.args) > 2 and not isinstance(signature.args[2], TensorArg):
        return Rule(
            2 * costs.BASIC, operands=2
        )  # div(self, other, rounding_mode) rounds, and integers stay integers
    return rule


def ruled(signature: Signature, **_: Any) -> Work:
    """The work under the rule of the operator; ``__iand__`` and ``add_`` write into their first operand."""
    name = signature.name.removeprefix("aten::")
    if name == "where" and len(signature.args) == 1:
        raise Dispatches  # where(condition) calls nonzero
    dunder = name.startswith("__")
    in_place = name.startswith("__i") if dunder else name.endswith("_")
    return rule_work(signature, adjusted(name if dunder else name.rstrip("_"), signature), in_place)


def as_aten(signature: Signature) -> Work:
    """The work of a primitive: that of PyTorch's operator of the same name."""
    return ruled(replace(signature, name=signature.name.replace("prims::", "aten::")))


def add_relu(signature: Signature) -> Work:
    rule = adjusted("add", signature)
    return rule_work(
        signature, rule._replace(cost=rule.cost + costs.BASIC), in_place=signature.name.endswith("_")
    )


def conjugate(signature: Signature) -> Work:
    """Negates the imaginary part; of real numbers there is nothing to do but to copy them where they go
    elsewhere."""
    inputs = Arguments(signature, "self").tensor("self")
    in_place = signature.name == "aten::conj_physical_"
    copies = signature.name == "aten::_conj_physical" or len(signature.args) > 1  # into ``out``
    if not inputs.dtype.startswith("complex") and not copies:
        return Work()
    return rule_work(signature, Rule(0, complex_cost=costs.BASIC), in_place)


def log_sigmoid(signature: Signature, hints: Hints) -> Work:
    """min(x, 0) - log(1 + exp(-|x|)); a CPU keeps exp(-|x|) as a second result, a GPU does not."""
    inputs = Arguments(signature, "self").tensor("self")
    each = inputs.numel * size_of(inputs.dtype)
    kept = hints.output_bytes is None or hints.output_bytes >= 2 * each
    return Work(
        other_flops=(costs.SOFTPLUS + 1) * inputs.numel,
        bytes_read=size(inputs),
        bytes_written=written(*hints.outputs) if hints.outputs is not None else each * (2 if kept else 1),
        precision=precision_of(inputs.dtype),
    )
