"""Rules that infer facts about one call of a trace from another; each takes a pair of signatures.

A rule returns ``Evidence``, or None where the two signatures show nothing or leave more than one possibility.
The pairs come from ``related_calls.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from rooflines.profiler.read.signature import MISSING, Argument, Signature, TensorArg
from rooflines.roofline.count.formulas.arguments import Ints
from rooflines.roofline.count.formulas.convolution import (
    BACKWARD,
    BACKWARD_TRANSPOSED,
    FORWARD,
    TRANSPOSED,
    fits_weight,
)
from rooflines.roofline.count.formulas.normalization import BATCH_NORM
from rooflines.roofline.count.formulas.registry import aten

JOINS = frozenset(aten("cat _cat concat stack _stack"))
REDUCTIONS = frozenset(
    aten(
        "sum nansum mean nanmean prod amax amin logsumexp norm linalg_vector_norm frobenius_norm "
        "var std all any"
    )
)
# Operators whose result's length depends on values: on a CPU they view it once it is known.
SELECTIONS = frozenset(aten("nonzero masked_select"))
# What takes a convolution's result as it is, first among its arguments.
NORMS = frozenset(BATCH_NORM)
_CONSUMERS = NORMS | frozenset(
    aten(
        "relu relu_ relu6 relu6_ leaky_relu leaky_relu_ gelu silu silu_ sigmoid sigmoid_ tanh "
        "tanh_ hardtanh hardtanh_ hardswish"
        " hardswish_ clamp clamp_ clamp_min clamp_min_ elu elu_ mish mish_ prelu add add_ "
        "group_norm native_group_norm instance_norm"
    )
)
_VIEWS = frozenset(aten("view reshape squeeze squeeze_ unsqueeze unsqueeze_ expand expand_as flatten"))
BATCH_NORM_GRADIENT = frozenset(aten("native_batch_norm_backward"))
# Backward operator -> its argument that is the shape of the forward's first operand, or (embedding) the
# length of its table.
FORWARD_SIZES = dict.fromkeys(aten("select_backward slice_backward diagonal_backward unfold_backward"), 1)
TABLE_ROWS = dict.fromkeys(aten("embedding_dense_backward"), 2)
_NODE_PREFIX = "autograd::engine::evaluate_function: "
_BROADCASTING = frozenset(aten("add add_ sub sub_ rsub mul mul_ div div_ addmm baddbmm expand"))
_SCHEMAS = FORWARD | TRANSPOSED | BACKWARD | BACKWARD_TRANSPOSED


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts about a call inferred from other calls: an argument by its position, or the returned tensors;
    ``source`` in words."""

    source: str
    position: int = -1
    value: Argument = MISSING
    outputs: tuple[TensorArg, ...] | None = None

    def fill(self, signature: Signature) -> Signature:
        """The signature with the argument in its place."""
        if self.position < 0:
            return signature
        args = (*signature.args, *(MISSING,) * (self.position + 1 - len(signature.args)))
        return replace(signature, args=(*args[: self.position], self.value, *args[self.position + 1 :]))


def stem(name: str) -> str:
    """An operator's name as the names of autograd's nodes have it: ``_adaptive_avg_pool2d`` is
    ``adaptiveavgpool2d``."""
    return name.removeprefix("aten::").replace("_", "").lower()


def node_stem(name: str) -> str:
    """The ``stem`` of the forward operator that made a node of this name."""
    return stem(name.removeprefix(_NODE_PREFIX).removeprefix("torch::autograd::").rpartition("Backward")[0])


def _output(result: Argument, source: str) -> Evidence | None:
    """That the call returned a tensor like ``result``; None where that is none."""
    return (
        Evidence(source, outputs=(TensorArg(result.shape, result.dtype),))
        if isinstance(result, TensorArg)
        else None
    )


def gradient(call: Signature, node: Signature) -> Evidence | None:
    """The shape of a result from its node, which is given the gradient of it and nothing else."""
    return _output(node.args[0], "output from its backward call") if len(node.args) == 1 else None


def written_inside(call: Signature, inner: Signature) -> Evidence | None:
    """A joined list from the part of it that is filled inside the call, the result of a reduction or
    selection from the view inside."""
    result = inner.arg(0)
    operand = call.arg(0)
    if inner.name == "aten::narrow" and call.name not in SELECTIONS:
        fits = call.name in JOINS
    elif not isinstance(result, TensorArg) or not isinstance(operand, TensorArg):
        return None
    elif call.name == "aten::nonzero":
        fits = (
            inner.name == "aten::as_strided_"
            and result.dtype == "int64"
            and result.shape[1:] == (len(operand.shape),)
        )
    elif call.name in SELECTIONS:
        fits = inner.name == "aten::as_strided" and len(result.shape) == 1 and result.dtype == operand.dtype
    else:
        fits = call.name in REDUCTIONS and _reduces(operand.shape, result.shape)
    return _output(result, f"output from {inner.name} inside it") if fits else None


def taken(call: Signature, consumer: Signature) -> Evidence | None:
    """The operand of a norm or an activation that fits the convolution. One that looks like the convolution's
    own input may be that, unless it is a norm's: it follows what it normalizes."""
    inputs = call.arg(0)
    weight = call.arg(1)
    result = consumer.arg(0)
    if consumer.name not in _CONSUMERS or not all(
        isinstance(one, TensorArg) for one in (inputs, weight, result)
    ):
        return None
    rank = len(weight.shape) - 2
    if rank < 1 or not rank < len(inputs.shape) == len(result.shape) or inputs.dtype != result.dtype:
        return None
    if inputs.shape[: -rank - 1] != result.shape[: -rank - 1]:
        return None
    if not fits_weight(weight, inputs.shape[-rank - 1], result.shape[-rank - 1], call.name in TRANSPOSED):
        return None
    if result.shape == inputs.shape and consumer.name not in NORMS:
        return None
    return _output(result, f"output from its consumer {consumer.name}")


def viewed(call: Signature, view: Signature) -> Evidence | None:
    """A reduction's result from the view that is made of it."""
    operand = call.arg(0)
    result = view.arg(0)
    if view.name not in _VIEWS or not isinstance(operand, TensorArg) or not isinstance(result, TensorArg):
        return None
    if (
        len(operand.shape) != len(result.shape)
        or not _reduces(operand.shape, result.shape)
        or result.numel == operand.numel
    ):
        return None
    return _output(result, f"output from its consumer {view.name}")


def broadcast_operand(call: Signature, forward: Signature) -> Evidence | None:
    """The result of a sum in a backward call: the operand of the forward operator that was stretched to the
    gradient's shape."""
    grad = call.arg(0)
    if forward.name not in _BROADCASTING or not isinstance(grad, TensorArg):
        return None
    smaller = {
        tensor.shape
        for tensor in forward.tensors
        if tensor.numel < grad.numel and len(tensor.shape) <= len(grad.shape)
    }
    # Those that were stretched to the shape of the gradient.
    shapes = {
        shape
        for shape in smaller
        if all(own in (1, size) for own, size in zip(shape[::-1], grad.shape[::-1], strict=False))
    }
    if len({prod(shape) for shape in shapes}) != 1:
        return None
    return Evidence(
        f"output from the operand of {forward.name}", outputs=(TensorArg(min(shapes), grad.dtype),)
    )


def _reduces(operand: Ints, result: Ints) -> bool:
    """Whether ``result`` is ``operand`` with some dimensions reduced, which are 1 then or gone."""
    if len(operand) == len(result):
        return all(after in (before, 1) for before, after in zip(operand, result, strict=True))
    rest = iter(operand)
    return len(result) < len(operand) and all(extent in rest for extent in result)


def filled(call: Signature, other: Signature, position: int, value: Argument, source: str) -> Evidence | None:
    """The argument, where the call did not record its own."""
    return Evidence(source, position, value) if call.arg(position) is MISSING else None


def mode(call: Signature, other: Signature, value: bool, source: str) -> Evidence | None:
    """A batch norm's mode. Without running statistics there is but one."""
    if call.name in BATCH_NORM_GRADIENT:
        return filled(call, other, 7, value, source)
    if "training" not in BATCH_NORM[call.name].split() or (
        not value and not isinstance(call.arg(3), TensorArg)
    ):
        return None
    return filled(call, other, 5, value, source)


def counts_batches(signature: Signature) -> bool:
    """``num_batches_tracked += 1``."""
    counter = signature.arg(0)
    return signature.name in ("aten::add_", "aten::add") and counter == TensorArg(
        (), "int64", getattr(counter, "strides", None)
    )


def operand_size(call: Signature, other: Signature) -> Evidence | None:
    """``self_size`` and ``weight_size`` from an operator that has the tensors."""
    ours = _SCHEMAS[call.name].split()
    theirs = _SCHEMAS.get(other.name, "").split()
    theirs = [field.partition("=")[0] for field in theirs]
    name = ours[0].removesuffix("_size")
    for shared in ("grad", "self", "weight"):
        if shared in ours and shared in theirs:
            one = call.arg(ours.index(shared))
            two = other.arg(theirs.index(shared))
            if not isinstance(one, TensorArg) or not isinstance(two, TensorArg) or one.shape != two.shape:
                return None
    tensor = other.arg(theirs.index(name)) if name in theirs else MISSING
    if not isinstance(tensor, TensorArg):
        return None
    return filled(call, other, 0, tensor.shape, f"'{ours[0]}' from {other.name}")


def forward_size(call: Signature, forward: Signature) -> Evidence | None:
    """The size of the forward's operand, which backward operators of selections and embeddings are given as a
    number."""
    grad = call.arg(0)
    operand = forward.arg(0)
    if (
        not isinstance(grad, TensorArg)
        or not isinstance(operand, TensorArg)
        or not forward.name.startswith("aten::")
    ):
        return None
    source = f"the size of its result from {forward.name}"
    if call.name in TABLE_ROWS:
        fits = (
            len(operand.shape) == 2
            and operand.shape[-1:] == grad.shape[-1:]
            and forward.name == "aten::embedding"
        )
        return filled(call, forward, TABLE_ROWS[call.name], operand.shape[0], source) if fits else None
    fits = stem(call.name).removesuffix("backward") == stem(forward.name)
    return filled(call, forward, FORWARD_SIZES[call.name], operand.shape, source) if fits else None


def adds(call: Signature, forward: Signature) -> Evidence | None:
    """That an ``index_put_`` accumulates, where it is the gradient of a selection."""
    selects = forward.name in ("aten::index", "aten::_unsafe_index")
    return (
        filled(call, forward, 3, True, f"that it adds from {forward.name}, whose gradient it is")
        if selects
        else None
    )


def parts(call: Signature, node: Signature) -> Evidence | None:
    """The list that a split's backward joins, from the gradients that its node is given."""
    if call.arg(0, ()) != () or not node.args or not all(isinstance(one, TensorArg) for one in node.args):
        return None
    return Evidence("its list from the node around it", 0, node.args)
