"""Optimizer steps over lists of tensors: fused (one pass over everything) and foreach (one operation over a list)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.work import costs
from rooflines.roofline.work.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.work.elementwise import RULES, Rule, scaled
from rooflines.roofline.work.record import Work, precision_of
from rooflines.roofline.work.table import Hints, formula, hinted_formula, words


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
    """The signature with lists that the trace left out, as long as the parameters that the call updates together."""
    if hints.parameter_elements is None or signature.arg(0) != ():
        return signature
    whole = (TensorArg((hints.parameter_elements,), hints.parameter_dtype),)
    return replace(signature, args=tuple(whole if index in lists else arg for index, arg in enumerate(signature.args)))


def _step(args: Arguments, cost: int, state: tuple[str, ...], read_state: bool = True) -> Work:
    """Parameters, gradients and state read; parameters and state written; with a gradient scale, the unscaled gradients too."""
    parameters, gradients = _list(args, "self"), _list(args, "grads")
    states = [tensor for name in state for tensor in args.tensors(name)]
    unscale = args.optional("grad_scale") is not None
    return Work(
        other_flops=_numel(parameters) * (cost + (1 if unscale else 0)),
        bytes_read=size(*parameters, *gradients, *(states if read_state else ())),
        bytes_written=size(*parameters, *states, *(gradients if unscale else ())),
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
        return _step(args, cost, ())
    cost += costs.SGD_MOMENTUM + costs.SGD_NESTEROV * args.flag("nesterov")
    return _step(args, cost, ("momentum_buffers",), read_state=not args.flag("is_first_step"))


@hinted_formula("aten::_fused_adam_", "aten::_fused_adamw_", "aten::_fused_adam", "aten::_fused_adamw", category="optimizer")
def _fused_adam(signature: Signature, hints: Hints) -> Work:
    args = Arguments(
        _restored(signature, (0, 1, 2, 3, 4) if signature.arg(11) is True else (0, 1, 2, 3), hints),
        "self grads exp_avgs exp_avg_sqs max_exp_avg_sqs state_steps lr beta1 beta2 weight_decay eps amsgrad maximize"
        " grad_scale=None found_inf=None",
    )
    cost = costs.ADAM + costs.WEIGHT_DECAY * _positive(args, "weight_decay") + costs.AMSGRAD * args.flag("amsgrad")
    return _step(args, cost, ("exp_avgs", "exp_avg_sqs", *(("max_exp_avg_sqs",) if args.flag("amsgrad") else ())))


@hinted_formula("aten::_fused_adagrad_", "aten::_fused_adagrad", category="optimizer")
def _fused_adagrad(signature: Signature, hints: Hints) -> Work:
    args = Arguments(
        _restored(signature, (0, 1, 2), hints),
        "self grads state_sums state_steps lr lr_decay weight_decay eps maximize grad_scale=None found_inf=None",
    )
    return _step(args, costs.ADAGRAD + costs.WEIGHT_DECAY * _positive(args, "weight_decay"), ("state_sums",))


@hinted_formula("aten::_amp_foreach_non_finite_check_and_unscale_", category="optimizer")
def _unscale(signature: Signature, hints: Hints) -> Work:
    """Multiplies every gradient in place and looks for infinities."""
    args = Arguments(_restored(signature, (0,), hints), "self found_inf scale")
    gradients = _list(args, "self")
    return Work(
        other_flops=_numel(gradients) * costs.UNSCALE,
        bytes_read=size(*gradients),
        bytes_written=size(*gradients),
        precision=precision_of(gradients[0].dtype),
    )


@formula("aten::_amp_update_scale_", category="optimizer")
def _update_scale(signature: Signature) -> Work:
    """A handful of scalars."""
    args = Arguments(signature, "self growth found_inf")
    scalars = [args.optional("self"), args.optional("growth")]
    return Work(0, 1, size(*scalars, args.optional("found_inf")), size(*scalars), "fp32")


# aten::_foreach_<name>: every element-wise operation, with its cost; ``lerp``, ``addcmul`` and ``addcdiv`` take three lists.
_FOREACH_NAMES: Final = words(
    "abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min cos cosh div erf erfc exp expm1 floor frac lerp lgamma log log10"
    " log1p log2 maximum minimum mul neg pow reciprocal round rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc"
)


def _counts_steps(signature: Signature) -> bool:
    """Whether this adds one to a list: what Adam does to its step counters, which are a number a tensor and not a parameter each."""
    numbers = [arg for arg in signature.args[1:] if isinstance(arg, int | float)]
    lists = [arg for arg in signature.args if isinstance(arg, tuple)]
    return signature.name.startswith("aten::_foreach_add") and len(lists) == 1 and numbers[:1] in ([1], [1.0])


def _foreach(signature: Signature, hints: Hints, cost: int, reads: bool = True) -> Work:
    if not _counts_steps(signature):
        elided = tuple(index for index, arg in enumerate(signature.args) if arg == ())
        signature = _restored(signature, elided, hints)
    args = Arguments(signature, "self")
    targets = _list(args, "self")
    others = signature.tensors[len(targets) :]
    if "pow" in signature.name and signature.arg(1) in (2, 2.0):
        cost = costs.BASIC
    if signature.name.rstrip("_").endswith(("_add", "_sub")) and scaled(signature):
        cost += costs.BASIC
    results = _numel(targets)
    return Work(
        other_flops=cost * results,
        bytes_read=size(*(targets if reads else ()), *others),
        bytes_written=results * size_of(targets[0].dtype),
        precision=precision_of(targets[0].dtype) if cost else None,
    )


for _name in _FOREACH_NAMES:
    _rule: Rule = RULES[_name]
    for _suffix in ("", "_"):
        hinted_formula(f"aten::_foreach_{_name}{_suffix}", category="optimizer")(partial(_foreach, cost=_rule.cost))


@hinted_formula("aten::_foreach_zero_", "aten::_foreach_copy_", category="optimizer")
def _foreach_write(signature: Signature, hints: Hints) -> Work:
    """Zeros, or another list's elements, written over this one."""
    return _foreach(signature, hints, 0, reads=False)


@hinted_formula("aten::_foreach_clone", category="optimizer")
def _foreach_clone(signature: Signature, hints: Hints) -> Work:
    return _foreach(signature, hints, 0)


@formula("aten::_foreach_norm", "aten::_foreach_max", "aten::_foreach_powsum", category="optimizer")
def _foreach_reduce(signature: Signature) -> Work:
    """One number for each tensor: multiply and add, or a compare."""
    tensors = _list(Arguments(signature, "self"), "self")
    cost = 1 if signature.name == "aten::_foreach_max" else 2
    return Work(
        other_flops=cost * _numel(tensors),
        bytes_read=size(*tensors),
        bytes_written=len(tensors) * size_of(tensors[0].dtype),
        precision=precision_of(tensors[0].dtype),
    )
