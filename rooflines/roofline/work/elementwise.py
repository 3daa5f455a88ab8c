"""Element-wise operators: one table from name to cost, operands and result type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Final, Literal

from rooflines.profiler.trace.signature import Argument, Signature, TensorArg
from rooflines.roofline.work import costs
from rooflines.roofline.work.arguments import Arguments, NotCounted, broadcast, floating, promote, size, size_of
from rooflines.roofline.work.record import Work, precision_of
from rooflines.roofline.work.table import aten, composite, formula, words


@dataclass(frozen=True, slots=True)
class Rule:
    """``cost`` FLOPs a result; the first ``operands`` arguments are read; a tensor beyond ``arguments`` is the ``out`` one.

    ``result``: ``same`` promotes the operands, ``float`` does too and makes integers float32, ``bool`` is a predicate.
    """

    cost: int
    operands: int = 1
    result: Literal["same", "float", "bool"] = "same"


def _rules(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(words(names), rule)


# Names without ``aten::``; each has an in-place form with a trailing underscore, and both have ``out`` forms of the same name.
RULES: Final[dict[str, Rule]] = {
    # one basic operation
    **_rules("abs absolute neg negative sign sgn ceil floor round trunc fix frac square relu clamp_max clamp_min"
             " threshold bitwise_not nan_to_num", Rule(costs.BASIC)),
    **_rules("clamp clip", Rule(2 * costs.BASIC, operands=3)),
    **_rules("hardtanh relu6", Rule(2 * costs.BASIC)),
    **_rules("sqrt rsqrt reciprocal deg2rad rad2deg", Rule(costs.BASIC, result="float")),
    **_rules("logical_not isnan isinf isfinite isposinf isneginf signbit", Rule(costs.BASIC, result="bool")),
    **_rules("add sub subtract rsub mul multiply maximum minimum fmax fmin floor_divide remainder fmod copysign bitwise_and"
             " bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__ __rshift__ __iand__"
             " __ior__ __ixor__ heaviside _prelu_kernel gcd lcm", Rule(costs.BASIC, operands=2)),
    **_rules("div divide true_divide", Rule(costs.BASIC, operands=2, result="float")),
    **_rules("eq ne lt le gt ge not_equal less less_equal greater greater_equal logical_and logical_or logical_xor isclose",
             Rule(costs.BASIC, operands=2, result="bool")),
    **_rules("where masked_fill", Rule(costs.BASIC, operands=3)),
    **_rules("lerp addcmul addcdiv", Rule(3 * costs.BASIC, operands=3)),
    # transcendental and what is written with them
    **_rules("exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh asinh acosh atanh sinc lgamma digamma"
             " erfinv i0 special_expit special_entr", Rule(costs.TRANSCENDENTAL, result="float")),
    **_rules("atan2 arctan2 hypot logaddexp logaddexp2 xlogy special_xlogy",
             Rule(2 * costs.TRANSCENDENTAL, operands=2, result="float")),
    **_rules("erf erfc special_erf special_erfc", Rule(costs.ERF, result="float")),
    "pow": Rule(costs.POW, operands=2),
    "float_power": Rule(costs.POW, operands=2, result="float"),
    "sigmoid": Rule(costs.SIGMOID, result="float"),
    "logit": Rule(costs.TRANSCENDENTAL + 2, result="float"),  # log(x / (1 - x))
    "tanh": Rule(costs.TANH, result="float"),
    "tanhshrink": Rule(costs.TANH + 1, result="float"),
    "gelu": Rule(costs.GELU),
    "silu": Rule(costs.SILU),
    "mish": Rule(costs.MISH),
    "hardsigmoid": Rule(costs.HARDSIGMOID),
    "hardswish": Rule(costs.HARDSWISH),
    "softplus": Rule(costs.SOFTPLUS),
    "log_sigmoid": Rule(costs.SOFTPLUS + 1),
    **_rules("elu celu selu", Rule(costs.TRANSCENDENTAL + 3)),  # compare, exp, subtract, multiply
    **_rules("leaky_relu hardshrink softshrink rrelu rrelu_with_noise", Rule(2 * costs.BASIC)),  # compare, multiply or add
    # gradients: ``grad`` and what the forward saved
    **_rules("threshold_backward hardtanh_backward native_dropout_backward", Rule(costs.BASIC, operands=2)),
    **_rules("leaky_relu_backward hardshrink_backward softshrink_backward hardsigmoid_backward",
             Rule(2 * costs.BASIC, operands=2)),
    **_rules("sigmoid_backward tanh_backward", Rule(3 * costs.BASIC, operands=2)),  # g * (1 - y) * y, g * (1 - y * y)
    "hardswish_backward": Rule(4 * costs.BASIC, operands=2),  # two compares, g * (x / 3 + 0.5)
    "gelu_backward": Rule(costs.ERF + costs.TRANSCENDENTAL + 7, operands=2),  # g * (cdf(x) + x * pdf(x))
    "silu_backward": Rule(costs.SIGMOID + 5, operands=2),  # s * (1 + x * (1 - s)) * g
    "mish_backward": Rule(costs.MISH + costs.SIGMOID + 6, operands=2),
    "softplus_backward": Rule(costs.SIGMOID + 1, operands=2),
    "logit_backward": Rule(3 * costs.BASIC, operands=2),
    "log_sigmoid_backward": Rule(costs.SIGMOID + 1, operands=2),
    "elu_backward": Rule(costs.TRANSCENDENTAL + 3, operands=6),
}  # fmt: skip


def _operands(args: Iterable[Argument]) -> list[TensorArg]:
    return [arg for arg in args if isinstance(arg, TensorArg)]


def _rule_work(signature: Signature, rule: Rule, in_place: bool, mask: int | None = None) -> Work:
    """The work under ``rule``; the operand at position ``mask`` is read and has no say in the result's dtype."""
    operands = signature.args[: rule.operands]
    read = _operands(operands)
    if not read:
        raise NotCounted("shapes not recorded")
    shape = broadcast(tensor.shape for tensor in read)
    dtype = promote(arg for index, arg in enumerate(operands) if index != mask)
    if rule.result == "float" and not floating(dtype):
        dtype = "float32"
    written = "bool" if rule.result == "bool" else dtype
    given = _operands(signature.args[rule.operands :])
    if in_place:
        written = read[0].dtype
    elif given and given[-1].shape == shape:
        written = given[-1].dtype  # aten::add.out and its like: the last tensor is where the result goes
    results = prod(shape)
    return Work(
        other_flops=results * rule.cost,
        bytes_read=size(*read),
        bytes_written=results * size_of(written),
        precision=precision_of(dtype),
    )


def scaled(signature: Signature) -> bool:
    """Whether ``add(self, other, alpha)`` multiplies first."""
    alpha = signature.arg(2, default=1)
    return isinstance(alpha, int | float) and alpha != 1


def _register(name: str, rule: Rule, in_place: bool) -> None:
    plain = name.rstrip("_")
    mask = {"where": 0, "masked_fill": 1}.get(plain)

    @formula(f"aten::{name}", category="element-wise")
    def _formula(signature: Signature) -> Work:
        if plain == "where" and len(signature.args) == 1:
            raise NotCounted("output size not recorded")  # where(condition) is nonzero
        if plain == "pow" and Arguments(signature, "self exponent").value("exponent") == 2:
            return _rule_work(signature, replace(rule, cost=costs.BASIC), in_place)
        if plain in ("add", "sub") and scaled(signature):
            return _rule_work(signature, replace(rule, cost=rule.cost + costs.BASIC), in_place)
        return _rule_work(signature, rule, in_place, mask)


for _name, _rule in RULES.items():
    _register(_name, _rule, in_place=_name.startswith("__i"))
    if not _name.startswith("__"):
        _register(f"{_name}_", _rule, in_place=True)


@formula("aten::dropout", "aten::dropout_", "aten::feature_dropout", "aten::feature_dropout_", category="element-wise")
def _dropout(signature: Signature) -> Work:
    """Multiply by the mask and by 1 / (1 - p); nothing at all in inference or with p = 0."""
    args = Arguments(signature, "self p train")
    inputs = args.tensor("self")
    if not args.flag("train") or args.value("p") == 0:
        return Work()
    return Work(
        other_flops=2 * inputs.numel,
        bytes_read=size(inputs),
        bytes_written=inputs.numel * size_of(inputs.dtype),
        precision=precision_of(inputs.dtype),
    )


@formula("aten::native_dropout", "aten::_fused_dropout", category="element-wise")
def _native_dropout(signature: Signature) -> Work:
    """Dropout that also returns its mask, one byte an element."""
    args = Arguments(signature, "self")
    inputs = args.tensor("self")
    return Work(
        other_flops=2 * inputs.numel,
        bytes_read=size(inputs),
        bytes_written=inputs.numel * (size_of(inputs.dtype) + 1),
        precision=precision_of(inputs.dtype),
    )


# Random numbers, written and not read. The generator's integer arithmetic is not counted: it differs between devices.
RANDOM: Final[dict[str, int]] = {
    "bernoulli": costs.BASIC, "uniform": 2 * costs.BASIC, "random": costs.BASIC, "exponential": costs.TRANSCENDENTAL + 1,
    "normal": 2 * costs.TRANSCENDENTAL + 2, "log_normal": 3 * costs.TRANSCENDENTAL + 2, "geometric": costs.TRANSCENDENTAL + 1,
    "cauchy": costs.TRANSCENDENTAL + 3,
}  # fmt: skip


def _random(signature: Signature, cost: int) -> Work:
    target = Arguments(signature, "self").tensor("self")
    return Work(
        other_flops=cost * target.numel,
        bytes_read=size(*_operands(signature.args[1:])),
        bytes_written=target.numel * size_of(target.dtype),
        precision=precision_of(target.dtype),
    )


for _name, _cost in RANDOM.items():
    formula(f"aten::{_name}_", category="element-wise")(partial(_random, cost=_cost))


@formula("aten::glu", category="element-wise")
def _glu(signature: Signature) -> Work:
    """[.., 2c, ..] -> [.., c, ..]: one half times the sigmoid of the other."""
    inputs = Arguments(signature, "self").tensor("self")
    results = inputs.numel // 2
    return Work(
        other_flops=results * (costs.SIGMOID + 1),
        bytes_read=size(inputs),
        bytes_written=results * size_of(inputs.dtype),
        precision=precision_of(inputs.dtype),
    )


@formula("aten::glu_backward", category="element-wise")
def _glu_backward(signature: Signature) -> Work:
    args = Arguments(signature, "grad self")
    grad, inputs = args.tensor("grad"), args.tensor("self")
    return Work(
        other_flops=grad.numel * (costs.SIGMOID + 4),
        bytes_read=size(grad, inputs),
        bytes_written=inputs.numel * size_of(inputs.dtype),
        precision=precision_of(inputs.dtype),
    )


composite(*aten("prelu logsigmoid alpha_dropout softmin cosine_similarity pairwise_distance cdist softsign allclose gradient diff"))
