"""Optimizer steps over lists of tensors: fused (one pass over everything) and foreach (one operation over a list)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Argument, Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.formulas.elementwise import RULES, adjusted, real, rule_work
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula, words
from rooflines.roofline.formulas.rows import Row, named, register


@named
def positive(value: Argument) -> bool:
    """Whether a hyper-parameter is on; a learning rate or decay held in a tensor is."""
    return value > 0 if isinstance(value, int | float) else isinstance(value, TensorArg)


def _step(state: str, numbers: str, cost: str, first: str = "") -> tuple[Row, Row]:
    """The rows of a step in place and of its functional form, which returns new copies of everything, with the gradients.

    Parameters, gradients, ``state`` and the few scalars are read, parameters and state written; with a gradient scale the unscaled
    gradients are, too. ``first`` is a state that the first step does not read.
    """
    row = Row(
        f"update self+, read grads+, {state}, {numbers}, read grad_scale?, read found_inf?", per="self", precision="self",
        other=f"self.n * ({cost} + WEIGHT_DECAY * positive(known('weight_decay')) + bool(grad_scale))",
        also=f"{first}.size * (not is_first_step)" if first else "", writes="grads.full * bool(grad_scale)",
    )  # fmt: skip
    return row, replace(row, writes="grads.full")


_SGD: Final = "weight_decay, momentum, read lr?, dampening, nesterov, maximize, is_first_step"
_MOMENTUM: Final = _step("write buffers+", _SGD, "SGD + SGD_MOMENTUM + SGD_NESTEROV * nesterov", first="buffers")
_PLAIN: Final = _step("buffers", _SGD, "SGD")
_ADAM: Final = "read state_steps*, read lr?, beta1, beta2, weight_decay, eps, amsgrad, maximize"
_MOMENTS: Final = "update exp_avgs+, update exp_avg_sqs+"
_WITH_LARGEST: Final = _step(f"{_MOMENTS}, update max_exp_avg_sqs+", _ADAM, "ADAM + AMSGRAD")
_WITHOUT: Final = _step(f"{_MOMENTS}, max_exp_avg_sqs", _ADAM, "ADAM")
_ADAGRAD: Final = _step("update state_sums+", "read state_steps*, read lr?, lr_decay, weight_decay, eps, maximize", "ADAGRAD")
for _form, _end in enumerate(("_", "")):
    register({
        f"_fused_sgd{_end}": (replace(_MOMENTUM[_form], fits="known('momentum')"), _PLAIN[_form]),
        f"_fused_adam{_end} _fused_adamw{_end}": (
            replace(_WITH_LARGEST[_form], fits="amsgrad"), replace(_WITHOUT[_form], fits="not amsgrad"),
        ),
        f"_fused_adagrad{_end}": _ADAGRAD[_form],
        # Multiplies every gradient by one number and looks for infinities, which another one notes; the functional form copies it.
        f"_amp_foreach_non_finite_check_and_unscale{_end}": Row(
            f"update self+, {'write' if _end else 'update'} found_inf?, read scale?", costs.UNSCALE, per="self"
        ),
    }, "optimizer", namespace="aten::")  # fmt: skip


register({
    # the scale and the steps since it grew, by whether infinities were found: a handful of scalars
    "aten::_amp_update_scale_ aten::_amp_update_scale": Row(
        "update self?, update growth?, read found_inf?", other="1", precision="=fp32"
    ),
}, "optimizer")  # fmt: skip


# aten::_foreach_<name>: an element-wise operation on every tensor of a list, each with its number or its part of other lists.
_FOREACH_NAMES: Final = words(
    "abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min cos cosh div erf erfc exp expm1 floor frac lerp lgamma log log10"
    " log1p log2 maximum minimum mul neg pow reciprocal round rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc"
)


def _counts_steps(signature: Signature) -> bool:
    """Whether this adds one to a list: what Adam does to its step counters, which are a number a tensor and not a parameter each."""
    numbers = [arg for arg in signature.args[1:] if isinstance(arg, int | float)]
    lists = [arg for arg in signature.args if isinstance(arg, tuple)]
    return signature.name.startswith("aten::_foreach_add") and len(lists) == 1 and numbers[:1] in ([1], [1.0])


def _whole(signature: Signature, hints: Hints) -> Signature:
    """The call with the lists that the trace left out, as long as the parameters, unless they are step counters."""
    if _counts_steps(signature):
        return signature
    return replace(signature, args=tuple(hints.left_out() if arg == () else arg for arg in signature.args))


def _each(signature: Signature, name: str) -> list[Signature]:
    """The calls of the operator ``name`` that equal a call over lists; a tensor that all of them share is only in the first."""
    lengths = [len(arg) for arg in signature.args if isinstance(arg, tuple) and any(isinstance(item, TensorArg) for item in arg)]
    if not lengths:
        raise NotCounted("shapes of 'self' not recorded")  # traces leave out lists of more than 30 tensors
    return [
        Signature(name, tuple(arg[index] if isinstance(arg, tuple) else arg for arg in signature.args)) for index in range(lengths[0])
    ]


def _foreach(signature: Signature, hints: Hints, name: str) -> Work:
    signature = _whole(signature, hints)
    in_place = signature.name.endswith("_")
    listed = [index for index, arg in enumerate(signature.args[: RULES[name].operands]) if isinstance(arg, tuple)]
    # a tensor outside the lists belongs to each call, and is read once
    work = Work(bytes_read=size(*(arg for arg in signature.args if isinstance(arg, TensorArg))))
    for call, times in Counter(_each(signature, f"aten::{name}")).items():  # most tensors of a network have few shapes
        one = rule_work(call, adjusted(name, call), in_place)
        read = size(*(call.args[index] for index in listed if isinstance(call.args[index], TensorArg)))
        work += Work(0, times * one.other_flops, times * read, times * one.bytes_written, one.precision)
    return work


for _name in _FOREACH_NAMES:
    for _suffix in ("", "_"):
        hinted_formula(f"aten::_foreach_{_name}{_suffix}", category="optimizer")(partial(_foreach, name=_name))


# Zeros, another list's elements, broadcast over those of this one, or these, over every tensor or as a list of new ones.
register({
    "_foreach_zero_ _foreach_zero": Row("write self+"),
    "_foreach_copy_ _foreach_copy": Row("write self+, read source+"),
    "_foreach_clone": Row("update self+"),
}, "optimizer", namespace="aten::")  # fmt: skip


@formula("aten::_foreach_norm", "aten::_foreach_max", "aten::_foreach_powsum", category="optimizer")
def _foreach_reduce(signature: Signature) -> Work:
    """One number for each tensor: its norm, its largest element, or the sum of powers in a norm."""
    largest = signature.name == "aten::_foreach_max"
    args = Arguments(signature, "self" if largest else "self ord=2 dtype=None")
    work, tensors = Work(), args.tensors("self")
    if not tensors:
        raise NotCounted("shapes of 'self' not recorded")  # traces leave out lists of more than 30 tensors
    for tensor in tensors:
        cost = 1 if largest else costs.norm_cost(args.value("ord"), tensor.dtype.startswith("complex"))
        dtype = tensor.dtype if largest else args.dtype("dtype", tensor.dtype)
        work += Work(0, tensor.numel * cost, size(tensor), size_of(real(dtype)), precision_of(tensor.dtype))
    return work


register({
    # each tensor cut into chunks, padded to equal sizes, and the first, second, ... chunks of all joined: what sharding does
    "aten::_chunk_cat": Row("read self+", writes="results().full"),
}, "copy")  # fmt: skip
