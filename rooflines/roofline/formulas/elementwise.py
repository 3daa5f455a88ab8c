"""Element-wise operators: one table from name to cost, operands and result type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Final, Literal

from rooflines.profiler.trace.signature import Argument, Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import (
    Arguments,
    Dispatches,
    NotCounted,
    broadcast,
    floating,
    promote,
    size,
    size_of,
    written,
)
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula, words
from rooflines.roofline.formulas.rows import Row, register


@dataclass(frozen=True, slots=True)
class Rule:
    """``cost`` FLOPs a result; the first ``operands`` arguments are read; a tensor beyond them is the ``out`` one.

    ``result``: ``same`` promotes the operands, ``float`` does too and makes integers float32, ``bool`` is a predicate, ``real`` is the
    floating-point type of a complex number's parts, and ``real and float`` makes integers float32 too. ``complex_cost`` is the cost on
    complex numbers, by the general rule where None.
    """

    cost: int
    operands: int = 1
    result: Literal["same", "float", "bool", "real", "real and float"] = "same"
    complex_cost: int | None = None


def _rules(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(words(names), rule)


def complex_cost(rule: Rule) -> int:
    """FLOPs of one complex result: every transcendental in the cost becomes a complex one and every other operation a product."""
    if rule.complex_cost is not None:
        return rule.complex_cost
    transcendentals, basics = divmod(rule.cost, costs.TRANSCENDENTAL)
    return transcendentals * costs.COMPLEX_TRANSCENDENTAL + basics * costs.COMPLEX_MULTIPLY


# Names without ``aten::``; those in ``_IN_PLACE`` have a form with a trailing underscore; both have ``out`` forms of the same name.
_IN_PLACE: Final[dict[str, Rule]] = {
    # one basic operation
    **_rules("sgn ceil floor round trunc fix frac square relu threshold bitwise_not nan_to_num", Rule(costs.BASIC)),
    **_rules("abs absolute", Rule(costs.BASIC, result="real", complex_cost=costs.COMPLEX_ABS)),
    **_rules("neg negative", Rule(costs.BASIC, complex_cost=costs.COMPLEX_ADD)),
    "sign": Rule(costs.BASIC),
    **_rules("clamp_max clamp_min", Rule(costs.BASIC, operands=2)),
    **_rules("clamp clip", Rule(2 * costs.BASIC, operands=3)),
    **_rules("hardtanh relu6", Rule(2 * costs.BASIC)),
    **_rules("sqrt", Rule(costs.BASIC, result="float", complex_cost=costs.COMPLEX_SQRT)),
    **_rules("rsqrt", Rule(costs.BASIC, result="float", complex_cost=costs.COMPLEX_SQRT + costs.COMPLEX_MULTIPLY)),
    **_rules("reciprocal deg2rad rad2deg", Rule(costs.BASIC, result="float")),
    **_rules("logical_not", Rule(costs.BASIC, result="bool", complex_cost=2 * costs.BASIC)),
    **_rules("add sub subtract rsub", Rule(costs.BASIC, operands=2, complex_cost=costs.COMPLEX_ADD)),
    **_rules("mul multiply maximum minimum fmax fmin floor_divide remainder fmod copysign nextafter bitwise_and bitwise_or bitwise_xor"
             " bitwise_left_shift bitwise_right_shift heaviside gcd lcm", Rule(costs.BASIC, operands=2)),
    **_rules("div divide true_divide", Rule(costs.BASIC, operands=2, result="float", complex_cost=costs.COMPLEX_DIVIDE)),
    **_rules("eq ne lt le gt ge not_equal less less_equal greater greater_equal logical_and logical_or logical_xor",
             Rule(costs.BASIC, operands=2, result="bool", complex_cost=3 * costs.BASIC)),
    "masked_fill": Rule(costs.BASIC, operands=3, complex_cost=costs.BASIC),
    "lerp": Rule(3 * costs.BASIC, operands=3, complex_cost=2 * costs.COMPLEX_ADD + costs.COMPLEX_MULTIPLY),
    "addcmul": Rule(3 * costs.BASIC, operands=3, complex_cost=2 * costs.COMPLEX_MULTIPLY + costs.COMPLEX_ADD),
    "addcdiv": Rule(3 * costs.BASIC, operands=3, complex_cost=costs.COMPLEX_MULTIPLY + costs.COMPLEX_DIVIDE + costs.COMPLEX_ADD),
    # transcendental and what is written with them
    **_rules("exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh asinh acosh atanh sinc",
             Rule(costs.TRANSCENDENTAL, result="float")),
    **_rules("lgamma digamma erfinv i0", Rule(costs.SPECIAL, result="float")),
    **_rules("igamma igammac", Rule(costs.INCOMPLETE_GAMMA, operands=2, result="float")),
    **_rules("atan2 arctan2", Rule(costs.ARCTANGENT, operands=2, result="float")),
    "hypot": Rule(4 * costs.BASIC, operands=2),  # sqrt(x * x + y * y)
    "xlogy": Rule(costs.TRANSCENDENTAL + 1, operands=2, result="float"),
    "ldexp": Rule(costs.TRANSCENDENTAL + 1, operands=2, result="float"),  # x * 2**y
    **_rules("erf erfc", Rule(costs.ERF, result="float")),
    "pow": Rule(costs.POW, operands=2),
    "float_power": Rule(costs.POW, operands=2, result="float"),
    "sigmoid": Rule(costs.SIGMOID, result="float"),
    "logit": Rule(costs.TRANSCENDENTAL + 2, result="float"),  # log(x / (1 - x))
    "tanh": Rule(costs.TANH, result="float"),
    "gelu": Rule(costs.GELU),
    "silu": Rule(costs.SILU),
    "mish": Rule(costs.MISH),
    "hardsigmoid": Rule(costs.HARDSIGMOID),
    "hardswish": Rule(costs.HARDSWISH),
    **_rules("elu celu selu", Rule(costs.TRANSCENDENTAL + 3)),  # compare, exp, subtract, multiply
    **_rules("leaky_relu rrelu", Rule(2 * costs.BASIC)),  # compare, multiply
}  # fmt: skip
RULES: Final[dict[str, Rule]] = {
    **_IN_PLACE,
    **_rules("isnan isinf isfinite isposinf isneginf signbit", Rule(costs.BASIC, result="bool", complex_cost=3 * costs.BASIC)),
    "isclose": Rule(6 * costs.BASIC, operands=2, result="bool"),  # |a - b| <= atol + rtol * |b|
    **_rules("__and__ __or__ __xor__ __lshift__ __rshift__", Rule(costs.BASIC, operands=2)),
    "where": Rule(costs.BASIC, operands=3, complex_cost=costs.BASIC),
    **_rules("logaddexp logaddexp2", Rule(costs.LOG_ADD, operands=2)),
    **_rules("special_entr special_expit", Rule(costs.TRANSCENDENTAL, result="float")),
    **_rules("special_xlogy special_xlog1py", Rule(costs.TRANSCENDENTAL + 1, operands=2, result="float")),
    **_rules("special_erf special_erfc", Rule(costs.ERF, result="float")),
    **_rules("special_i0e special_i1 special_i1e special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0"
             " special_bessel_y1 special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0"
             " special_modified_bessel_k1 special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1"
             " special_spherical_bessel_j0 special_erfcx special_ndtri", Rule(costs.SPECIAL, result="float")),
    "special_log_ndtr": Rule(costs.ERF + costs.TRANSCENDENTAL + 3, result="float"),  # log(erfc(-x * 0.707) / 2)
    **_rules("special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v"
             " special_chebyshev_polynomial_w special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u"
             " special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w special_hermite_polynomial_h"
             " special_hermite_polynomial_he special_laguerre_polynomial_l special_legendre_polynomial_p",
             Rule(costs.ORTHOGONAL_POLYNOMIAL, operands=2, result="float")),
    "special_zeta": Rule(costs.ZETA, operands=2, result="float"),
    "angle": Rule(costs.BASIC, result="real and float", complex_cost=costs.ARCTANGENT),  # 0 or pi of a real number
    "tanhshrink": Rule(costs.TANH + 1, result="float"),
    "softplus": Rule(costs.SOFTPLUS),
    "log_sigmoid": Rule(costs.SOFTPLUS + 1),
    **_rules("hardshrink softshrink", Rule(2 * costs.BASIC)),  # compare, multiply or add
    "_prelu_kernel": Rule(2 * costs.BASIC, operands=2),
    "_masked_scale": Rule(2 * costs.BASIC, operands=2),
    # gradients: ``grad`` and what the forward saved
    **_rules("threshold_backward hardtanh_backward", Rule(costs.BASIC, operands=2)),
    "native_dropout_backward": Rule(2 * costs.BASIC, operands=2, result="float"),  # g * mask * scale
    **_rules("leaky_relu_backward hardshrink_backward softshrink_backward hardsigmoid_backward",
             Rule(2 * costs.BASIC, operands=2)),
    **_rules("sigmoid_backward tanh_backward", Rule(3 * costs.BASIC, operands=2)),  # g * (1 - y) * y, g * (1 - y * y)
    "hardswish_backward": Rule(4 * costs.BASIC, operands=2),  # two compares, g * (x / 3 + 0.5)
    "gelu_backward": Rule(costs.ERF + costs.TRANSCENDENTAL + 7, operands=2),  # g * (cdf(x) + x * pdf(x))
    "silu_backward": Rule(costs.SIGMOID + 5, operands=2),  # s * (1 + x * (1 - s)) * g
    "mish_backward": Rule(costs.MISH + costs.SIGMOID + 6, operands=2),
    "softplus_backward": Rule(costs.SIGMOID + 1, operands=2),
    "logit_backward": Rule(3 * costs.BASIC, operands=2),
    "elu_backward": Rule(costs.TRANSCENDENTAL + 3, operands=6),
}  # fmt: skip


def _operands(args: Iterable[Argument]) -> list[TensorArg]:
    return [arg for arg in args if isinstance(arg, TensorArg)]


_TYPES: Final[dict[type, str]] = {float: "float64", int: "int64", complex: "complex128", bool: "bool"}
_NUMBERS: Final = frozenset(_TYPES.values())


def read_operands(operands: Iterable[Argument], mask: int | None = None) -> int:
    """Bytes of the operands of one element-wise call.

    A 0-dimensional operand of a Python number's dtype next to another operand is a number, passed with the call: a trace shows
    ``x + 2.0`` as it shows an addition of a tensor. Of operands that are all 0-dimensional the first is a tensor, and so is the one at
    position ``mask`` in any case.
    """
    operands = list(operands)
    first = next((index for index, operand in enumerate(operands) if isinstance(operand, TensorArg)), None)
    if any(tensor.shape for tensor in _operands(operands)):
        first = None
    return size(
        *(
            operand
            for index, operand in enumerate(operands)
            if isinstance(operand, TensorArg) and (operand.shape or index in (mask, first) or operand.dtype not in _NUMBERS)
        )
    )


def real(dtype: str) -> str:
    """The dtype of the parts of a complex number; other dtypes as they are."""
    return {"complex128": "float64", "complex64": "float32", "complex32": "float16"}.get(dtype, dtype)


def rule_work(signature: Signature, rule: Rule, in_place: bool = False, mask: int | None = None) -> Work:
    """The work under ``rule``; the operand at position ``mask`` is read and has no say in the result's dtype."""
    operands = signature.args[: rule.operands]
    if operands and all(type(operand) in _TYPES for operand in operands):  # torch.div(7, 2): a trace shows tensors without dimensions
        operands = tuple(TensorArg((), _TYPES[type(operand)]) for operand in operands)
    read = _operands(operands)
    if not read:
        raise NotCounted("shapes not recorded")
    shape = broadcast(tensor.shape for tensor in read)
    dtype = promote(arg for index, arg in enumerate(operands) if index != mask)
    if rule.result.endswith("float") and not floating(dtype):
        dtype = "float32"
    written = "bool" if rule.result == "bool" else real(dtype) if rule.result.startswith("real") else dtype
    given = _operands(signature.args[rule.operands :])
    if in_place:
        written = read[0].dtype
    elif given and given[-1].shape == shape:
        written = given[-1].dtype  # aten::add.out and its like: the last tensor is where the result goes
    results = prod(shape)
    return Work(
        other_flops=results * (complex_cost(rule) if dtype.startswith("complex") else rule.cost),
        bytes_read=read_operands(operands, mask),
        bytes_written=results * size_of(written),
        precision=precision_of(dtype),
    )


# Exponents for which torch has no logarithm: square roots, products, reciprocals.
_EASY_POWERS: Final = {0.5: 1, 2.0: 1, 3.0: 2, -0.5: 1, -1.0: 1, -2.0: 2}


def adjusted(name: str, signature: Signature) -> Rule:
    """The rule of operator ``name`` (without ``aten::`` and underscore) under the values that this call has."""
    rule = RULES[name]
    if name == "pow":
        exponent = Arguments(signature, "self exponent").value("exponent")
        easy = _EASY_POWERS.get(exponent) if isinstance(exponent, int | float) else None
        return rule if easy is None else Rule(easy * costs.BASIC, operands=2)
    alpha = signature.arg(2, default=1)
    if name in ("add", "sub", "subtract", "rsub") and isinstance(alpha, int | float | complex) and alpha != 1:
        return replace(rule, cost=rule.cost + costs.BASIC, complex_cost=costs.COMPLEX_ADD + costs.COMPLEX_MULTIPLY)
    if name in ("div", "divide") and len(signature.args) > 2 and not isinstance(signature.args[2], TensorArg):
        return Rule(2 * costs.BASIC, operands=2)  # div(self, other, rounding_mode) rounds, and integers stay integers
    return rule


_MASKS: Final = {"where": 0, "masked_fill": 1, "_masked_scale": 1, "native_dropout_backward": 1}


def _register(name: str, plain: str, in_place: bool) -> None:
    mask = _MASKS.get(plain)

    @formula(name, category="element-wise")
    def _formula(signature: Signature) -> Work:
        if plain == "where" and len(signature.args) == 1:
            raise Dispatches  # where(condition) calls nonzero
        return rule_work(signature, adjusted(plain, signature), in_place, mask)


for _name in RULES:
    _register(f"aten::{_name}", _name, in_place=False)
for _name in _IN_PLACE:
    _register(f"aten::{_name}_", _name, in_place=True)
for _name in ("and", "or", "xor", "lshift", "rshift"):
    _register(f"aten::__i{_name}__", f"__{_name}__", in_place=True)
# What decompositions written in Python call, such as those of forward-mode derivatives.
for _name in words(
    "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil cos cosh digamma div eq"
    " erf erfc exp exp2 expm1 floor fmax fmin fmod gcd ge gt hypot igamma igammac isfinite le lgamma log log10 log1p log2 lt"
    " maximum minimum mul ne neg nextafter pow reciprocal remainder round rsqrt sign signbit sin sinh sqrt sub tan tanh trunc where"
):
    _register(f"prims::{_name}", _name, in_place=False)


@formula("aten::_add_relu", "aten::_add_relu_", category="element-wise")
def _add_relu(signature: Signature) -> Work:
    rule = adjusted("add", signature)
    return rule_work(signature, replace(rule, cost=rule.cost + costs.BASIC), in_place=signature.name.endswith("_"))


@formula("aten::conj_physical_", "aten::conj_physical", "aten::_conj_physical", category="element-wise")
def _conjugate(signature: Signature) -> Work:
    """Negates the imaginary part; of real numbers there is nothing to do but to copy them where they go elsewhere."""
    inputs, in_place = Arguments(signature, "self").tensor("self"), signature.name == "aten::conj_physical_"
    copies = signature.name == "aten::_conj_physical" or len(signature.args) > 1  # into ``out``
    if not inputs.dtype.startswith("complex") and not copies:
        return Work()
    return rule_work(signature, Rule(0, complex_cost=costs.BASIC), in_place)


@formula("aten::polygamma", "aten::polygamma_", "aten::mvlgamma", "aten::mvlgamma_", category="element-wise")
def _of_order(signature: Signature) -> Work:
    """The digamma function and its derivative are series of their own, the others (-1)^(n + 1) * n! * zeta(n + 1, x). The multivariate
    log-gamma function is the sum of n log-gammas, shifted by halves, and a constant."""
    args = Arguments(signature, "n self" if signature.name == "aten::polygamma" else "self n")
    n = args.integer("n")
    cost = costs.SPECIAL if n <= 1 else costs.ZETA + costs.SPECIAL + 2
    if "mvlgamma" in signature.name:
        cost = n * (costs.SPECIAL + 2)
    call = Signature(signature.name, (args.tensor("self"), *signature.args[2:]))
    return rule_work(call, Rule(cost, result="float"), signature.name.endswith("_"))


@hinted_formula("aten::log_sigmoid_forward", category="element-wise")
def _log_sigmoid(signature: Signature, hints: Hints) -> Work:
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


# In training a random slope for each negative number, kept in ``noise``, whose old values are not read; else a leaky ReLU: compare,
# multiply; a uniform number between two bounds.
_RRELU: Final = Row(
    "read self, view noise?, lower=0.125, upper=0.333, training=False",
    other="self.n * (4 if training else 2)", result="self", writes="noise.full if training else 0",
)  # fmt: skip
_PASSES: Final[dict[str, Row]] = {
    # two real numbers into a complex one: side by side, or ``abs * (cos(angle), sin(angle))``
    "complex": Row("read real, read imag", writes="2 * joined(real, imag) * real.item"),
    "polar": Row("read r, read angle", other="joined(r, angle) * (2 * TRANSCENDENTAL + 2)", writes="2 * joined(r, angle) * r.item"),
    # a mantissa and an int32 exponent, each cut out of the number's bits
    "frexp": Row("read self", 2 * costs.BASIC, per="self", result="self", writes="4 * self.n"),
    # gradients of the input and of the weight stretched over it: compare, g * w, g * x
    "_prelu_kernel_backward": Row(
        "read grad, read self, read weight", where="made = joined(grad, self, weight)",
        other="3 * made", writes="2 * made * self.item", precision="self",
    ),
    "rrelu_with_noise rrelu_with_noise_": _RRELU,
    # the functional form returns the noise, unchanged or new
    "rrelu_with_noise_functional": replace(_RRELU, also="0 if training else noise.size", writes="noise.full"),
    # the gradient times the slopes drawn; without training that of a leaky ReLU
    "rrelu_with_noise_backward": Row(
        "read grad, view self, view noise, lower, upper, training", result="grad",
        other="grad.n * (1 if training else 2)", also="(noise if training else self).size",
    ),
    # multiply by the mask and by 1 / (1 - p); nothing at all in inference or with p = 0
    "dropout dropout_ feature_dropout feature_dropout_": Row(
        "view self, p, train", where="drops = train and known('p') != 0", precision="self",
        other="2 * self.n * drops", reads="self.size * drops", writes="self.full * drops",
    ),
    # dropout that also returns its mask, one byte an element
    "native_dropout _fused_dropout": Row("read self", 2 * costs.BASIC, per="self", result="self", writes="self.n"),
    # [.., 2c, ..] -> [.., c, ..]: one half times the sigmoid of the other
    "glu": Row("read self", where="made = self.n // 2", other="made * (SIGMOID + 1)", writes="made * self.item"),
    # g * sigmoid(-x), where the forward may have kept a part of it
    "log_sigmoid_backward": Row(
        "read grad, read self, read buffer?", costs.SIGMOID + 1, per="self", result="self", precision="self"
    ),
    "glu_backward": Row("read grad, read self", costs.SIGMOID + 4, per="grad", result="self", precision="self"),
    # the derivative along ``dx``: s * da + y * (1 - s) * db, with s the sigmoid of b
    "glu_jvp": Row("read glu, read x, read dx", costs.SIGMOID + 5, per="glu", result="glu"),
    # the derivative of ``glu_backward``: two products of three factors, each with its three derivatives; ``grad_glu`` is not read
    "glu_backward_jvp": Row(
        "read grad_x, grad_glu, read x, read dgrad_glu, read dx", costs.SIGMOID + 20, per="grad_glu", result="grad_x"
    ),
}  # fmt: skip
register(_PASSES, "element-wise", namespace="aten::")
