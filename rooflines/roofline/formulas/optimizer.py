"""Optimizer steps over lists of tensors: fused (one pass over everything) and foreach (one operation over a list)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.elementwise import RULES, adjusted, real, rule_work
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, aten, formula, hinted_formula, words
from rooflines.roofline.formulas.rows import Row, register


def _list(args: Arguments, name: str) -> tuple[TensorArg, ...]:
    tensors = args.tensors(name)
    if not tensors:
        raise NotCounted(f"shapes of '{name}' not recorded")  # traces leave out lists of more than 30 tensors
    return tensors


def _numel(tensors: tuple[TensorArg, ...]) -> int:
    return sum(tensor.numel for tensor in tensors)


def _positive(args: Arguments, name: str) -> bool:
    """Whether a hyper-parameter is on; a learning rate or decay held in a tensor is."""
    value = args.value(name)
    return value > 0 if isinstance(value, int | float) else isinstance(value, TensorArg)


def _restored(signature: Signature, lists: tuple[int, ...], hints: Hints) -> Signature:
    """The signature with lists that the trace left out, as long as the parameters that the call updates together.

    How many tensors these are is not known: the step counters of a fused optimizer, a number for each, stay out.
    """
    if hints.parameter_elements is None or signature.arg(0) != ():
        return signature
    whole = (TensorArg((hints.parameter_elements,), hints.parameter_dtype),)
    return replace(signature, args=tuple(whole if index in lists else arg for index, arg in enumerate(signature.args)))


def _step(signature: Signature, args: Arguments, cost: int, state: tuple[str, ...], read_state: bool = True) -> Work:
    """Parameters, gradients, state and the few scalars read; parameters and state written; with a gradient scale, the unscaled
    gradients too. The functional form returns new copies of everything, with the gradients.
    """
    parameters, gradients = _list(args, "self"), _list(args, "grads")
    states = [tensor for name in state for tensor in args.tensors(name)]
    scalars = [*args.tensors("state_steps"), *(args.optional(name) for name in ("lr", "grad_scale", "found_inf"))]
    functional = not signature.name.endswith("_")
    unscale = args.optional("grad_scale") is not None
    return Work(
        other_flops=_numel(parameters) * (cost + (1 if unscale else 0)),
        bytes_read=size(*parameters, *gradients, *(states if read_state else ()), *scalars),
        bytes_written=written(*parameters, *states, *(gradients if unscale or functional else ())),
        precision=precision_of(parameters[0].dtype),
    )


@hinted_formula("aten::_fused_sgd_", "aten::_fused_sgd", category="optimizer")
def _fused_sgd(signature: Signature, hints: Hints) -> Work:
    args = Arguments(
        _restored(signature, (0, 1, 2) if signature.arg(4) else (0, 1), hints),
        "self grads momentum_buffers weight_decay momentum lr dampening nesterov maximize is_first_step grad_scale=None found_inf=None",
    )
    cost = costs.SGD + costs.WEIGHT_DECAY * _positive(args, "weight_decay")
    if not args.tensors("momentum_buffers"):
        return _step(signature, args, cost, ())
    cost += costs.SGD_MOMENTUM + costs.SGD_NESTEROV * args.flag("nesterov")
    return _step(signature, args, cost, ("momentum_buffers",), read_state=not args.flag("is_first_step"))


@hinted_formula("aten::_fused_adam_", "aten::_fused_adamw_", "aten::_fused_adam", "aten::_fused_adamw", category="optimizer")
def _fused_adam(signature: Signature, hints: Hints) -> Work:
    args = Arguments(
        _restored(signature, (0, 1, 2, 3, 4) if signature.arg(11) is True else (0, 1, 2, 3), hints),
        "self grads exp_avgs exp_avg_sqs max_exp_avg_sqs state_steps lr beta1 beta2 weight_decay eps amsgrad maximize"
        " grad_scale=None found_inf=None",
    )
    cost = costs.ADAM + costs.WEIGHT_DECAY * _positive(args, "weight_decay") + costs.AMSGRAD * args.flag("amsgrad")
    return _step(signature, args, cost, ("exp_avgs", "exp_avg_sqs", *(("max_exp_avg_sqs",) if args.flag("amsgrad") else ())))


@hinted_formula("aten::_fused_adagrad_", "aten::_fused_adagrad", category="optimizer")
def _fused_adagrad(signature: Signature, hints: Hints) -> Work:
    args = Arguments(
        _restored(signature, (0, 1, 2), hints),
        "self grads state_sums state_steps lr lr_decay weight_decay eps maximize grad_scale=None found_inf=None",
    )
    return _step(signature, args, costs.ADAGRAD + costs.WEIGHT_DECAY * _positive(args, "weight_decay"), ("state_sums",))


@hinted_formula(
    "aten::_amp_foreach_non_finite_check_and_unscale_", "aten::_amp_foreach_non_finite_check_and_unscale", category="optimizer"
)
def _unscale(signature: Signature, hints: Hints) -> Work:
    """Multiplies every gradient by one number and looks for infinities, which another one notes; the functional form copies it."""
    args = Arguments(_restored(signature, (0,), hints), "self found_inf scale")
    gradients = _list(args, "self")
    copied = None if signature.name.endswith("_") else args.optional("found_inf")
    return Work(
        other_flops=_numel(gradients) * costs.UNSCALE,
        bytes_read=size(*gradients, args.optional("scale"), copied),
        bytes_written=written(*gradients, args.optional("found_inf")),
        precision=precision_of(gradients[0].dtype),
    )


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
    """The call with the lists that the trace left out, unless they are step counters."""
    if _counts_steps(signature):
        return signature
    return _restored(signature, tuple(index for index, arg in enumerate(signature.args) if arg == ()), hints)


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


@hinted_formula(*aten("_foreach_zero_ _foreach_zero _foreach_copy_ _foreach_copy _foreach_clone"), category="optimizer")
def _foreach_write(signature: Signature, hints: Hints) -> Work:
    """Zeros, another list's elements, broadcast over those of this one, or these, over every tensor or as a list of new ones."""
    args = Arguments(_whole(signature, hints), "self source")
    tensors = _list(args, "self")
    source = () if "zero" in signature.name else _list(args, "source") if "copy" in signature.name else tensors
    return Work(bytes_read=size(*source), bytes_written=written(*tensors))


@formula("aten::_foreach_norm", "aten::_foreach_max", "aten::_foreach_powsum", category="optimizer")
def _foreach_reduce(signature: Signature) -> Work:
    """One number for each tensor: its norm, its largest element, or the sum of powers in a norm."""
    largest = signature.name == "aten::_foreach_max"
    args = Arguments(signature, "self" if largest else "self ord=2 dtype=None")
    work = Work()
    for tensor in _list(args, "self"):
        cost = 1 if largest else costs.norm_cost(args.value("ord"), tensor.dtype.startswith("complex"))
        dtype = tensor.dtype if largest else args.dtype("dtype", tensor.dtype)
        work += Work(0, tensor.numel * cost, size(tensor), size_of(real(dtype)), precision_of(tensor.dtype))
    return work


register({
    # each tensor cut into chunks, padded to equal sizes, and the first, second, ... chunks of all joined: what sharding does
    "aten::_chunk_cat": Row("read self+", writes="results().full"),
}, "copy")  # fmt: skip
