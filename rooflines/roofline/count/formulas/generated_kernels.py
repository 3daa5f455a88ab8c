"""Triton kernels that inductor generated, from their names and arguments alone:
``triton_poi_fused_addmm_gelu_view_15``.

The name has the kind of the kernel (``poi`` pointwise, ``red`` and ``per`` reductions, ``tem`` a template)
and each operator fused into it once, in alphabetical order, by the names before decomposition
(``get_fused_kernel_name`` in torch/_inductor/utils.py, torch 2.1 to 2.14). The call passes buffers that are
updated in place, then those read, then those written, then sizes of dynamic shapes and the number of
iterations along each axis (``KernelArgs.python_argdefs`` in torch/_inductor/codegen/common.py,
``TritonKernel.call_kernel`` in torch/_inductor/codegen/triton.py).

Bytes: each argument once, an argument updated in place twice. Which of the arguments these are follows from
the sizes where only one answer is possible. FLOPs are those of the operators in the name, one of each, on
every point of the iteration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import prod
from operator import mul

from rooflines.profiler.read.signature import Signature
from rooflines.roofline.count.formulas import costs
from rooflines.roofline.count.formulas.arguments import (
    NotCounted,
    TensorArgs,
    distinct,
    floating,
    known,
    size_of,
)
from rooflines.roofline.count.formulas.families import texts
from rooflines.roofline.count.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.count.formulas.registry import words
from rooflines.roofline.count.formulas.tables import said_of

NAME = re.compile(r"(?:triton_(?P<kind>[a-z]+)|(?:graph_\d+_)?cpp)_fused_?(?P<operators>\w*?)_?\d*\Z")
_REDUCED = frozenset({"red", "per", "cpp"})

_NORMS = words(
    "native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit"
    " _native_batch_norm_legit_functional _native_batch_norm_legit_no_training cudnn_batch_norm "
    "layer_norm group_norm batch_norm"
)
_PRODUCTS = words("mm addmm bmm baddbmm _scaled_mm")
# FLOPs on each point of the iteration. Of products and convolutions a fused kernel has the addition of the
# bias; a square is what nearly every ``pow`` in a network is.
_IN_PLACE_FORM = re.compile(r"[^_]_\Z")
_REDUCTIONS = {name.removeprefix("aten::"): said_of(name)["cost"] for name in texts("reduction.reduce")}
_COSTS: dict[str, int] = {
    **{
        name.removeprefix("aten::"): said_of(name)["cost"]
        for name in texts("elementwise.ruled")
        if not _IN_PLACE_FORM.search(name)
    },
    **_REDUCTIONS,
    **dict.fromkeys(words("addmm baddbmm convolution linear"), costs.BASIC),
    "pow": costs.BASIC,
    **dict.fromkeys(_NORMS, costs.MEAN_AND_VARIANCE + costs.SCALE_AND_SHIFT),
    **dict.fromkeys(
        words("native_layer_norm_backward native_group_norm_backward"), costs.LAYER_NORM_BACKWARD
    ),
    **dict.fromkeys(words("native_batch_norm_backward cudnn_batch_norm_backward"), costs.BATCH_NORM_BACKWARD),
    **dict.fromkeys(words("rms_norm _fused_rms_norm"), costs.RMS_NORM),
    "_fused_rms_norm_backward": costs.RMS_NORM_BACKWARD,
    **dict.fromkeys(words("_softmax _safe_softmax softmax _log_softmax log_softmax"), costs.SOFTMAX),
    "_softmax_backward_data": costs.SOFTMAX_BACKWARD,
    "_log_softmax_backward_data": costs.LOG_SOFTMAX_BACKWARD,
    **dict.fromkeys(words("native_dropout glu glu_backward"), 2 * costs.BASIC),
    **dict.fromkeys(
        words("mse_loss cumsum index_add scatter_add index_put embedding_dense_backward linalg_vector_norm"),
        costs.BASIC,
    ),
}
# Operators that compute nothing and contain the name of one that does.
_ZERO = frozenset(
    (
        *(name.removeprefix("aten::") for name in texts("views.nothing")),
        *words(
            "mm bmm _scaled_mm _to_copy _unsafe_view clone copy copy_ cat stack constant_pad_nd "
            "embedding index index_select gather"
            " _unsafe_index select_scatter slice_scatter full full_like zeros zeros_like ones "
            "ones_like new_zeros new_full"
            " new_ones arange iota repeat flip roll fill expand_copy permute_copy slice_backward "
            "select_backward"
            " max_pool2d_with_indices max_pool2d_with_indices_backward "
            "scaled_dot_product_attention convolution_backward"
            " _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
            "_scaled_dot_product_cudnn_attention"
            " _scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward"
        ),
    )
)
_KNOWN = frozenset({*_COSTS, *_ZERO})
_LONGEST = max(map(len, _KNOWN))
_STATISTICS = costs.MEAN_AND_VARIANCE  # of a norm: made by a reduction, and only used in a pointwise kernel
# Operators that write where an index says, into a buffer of any size.
_SCATTERS = frozenset(
    words("index_put _unsafe_index_put scatter scatter_add scatter_reduce index_add embedding_dense_backward")
)
# Operators that read nothing.
_FACTORIES = frozenset(
    words("full full_like zeros zeros_like ones ones_like new_zeros new_full new_ones arange iota fill")
)
_POOLS = frozenset(words("max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d"))
_GATES = frozenset(words("silu gelu sigmoid relu tanh glu"))
_RENAMED = frozenset(words("view _unsafe_view"))

ONE_EACH = "FLOPs of the operators in the kernel's name, one of each"
_NOT_IN_PLACE = "no argument is updated in place"
_IN_PLACE = "the first argument is updated in place"
_NOT_READ = "the argument updated in place is not read before"
_ONE_READ = "one element of each larger argument is read per result"
_LAST_WRITTEN = "only the last argument is written"
_SCATTERED = "every index names another element"


@dataclass(frozen=True, slots=True)
class GeneratedName:
    """The kind of a generated kernel (``poi``; ``cpp`` for any in C++) and the operators fused into it, as
    far as they are known."""

    kind: str
    operators: tuple[str, ...]

    @property
    def reduces(self) -> bool:
        """Whether it is a reduction."""
        return self.kind in _REDUCED


@lru_cache(maxsize=4096)
def parse_name(name: str) -> GeneratedName | None:
    """The parts of a generated kernel's name; None for another name. Operators' names contain the ``_`` that
    separates them."""
    found = NAME.match(name)
    if found is None:
        return None
    rest = found["operators"]
    operators = []
    while rest:
        # The longest known name; else a word of one that is not known, such as an operator of another
        # library.
        ends = [
            at
            for at in range(min(len(rest), _LONGEST), 0, -1)
            if (at == len(rest) or rest[at] == "_") and rest[:at] in _KNOWN
        ]
        end = ends[0] if ends else rest.find("_", 1) if "_" in rest[1:] else len(rest)
        if ends:
            operators.append(rest[:end])
        rest = rest[end + 1 :]
    return GeneratedName(found["kind"] or "cpp", tuple(operators))


def category_of(name: str) -> str:
    """The category of a generated kernel: that of its most telling operator."""
    parsed = parse_name(name)
    if parsed is None:
        return "other"
    if parsed.kind == "tem":
        return "matmul"
    if any("norm" in operator for operator in parsed.operators if operator in _COSTS):
        return "normalization"
    if parsed.kind in ("red", "per") or any(
        name in _REDUCTIONS or "softmax" in name for name in parsed.operators
    ):
        return "reduction"
    return "element-wise" if flops_per_point(parsed) else "copy"


def flops_per_point(parsed: GeneratedName) -> int:
    """FLOPs on one point of the iteration, each operator in the name applied once."""
    total = sum(_COSTS.get(operator, 0) for operator in parsed.operators)
    if not parsed.reduces:
        total -= _STATISTICS * sum(operator in _NORMS for operator in parsed.operators)
        total -= sum(_REDUCTIONS[operator] for operator in parsed.operators if operator in _REDUCTIONS)
    return total


def work_of(signature: Signature) -> Work:
    """The work of a call of a generated Triton kernel; NotCounted, with the reason, where its arguments do
    not determine it."""
    parsed = known(parse_name(signature.name), "a generated kernel whose name has no operators")
    tensors = signature.tensors
    sizes = [arg for arg in signature.args if isinstance(arg, int) and not isinstance(arg, bool)]
    if not signature.args or not tensors:
        raise NotCounted(
            "a generated kernel without recorded arguments; use --inductor-cache, or record with "
            "rooflines profile"
        )
    if parsed.kind == "tem":
        return _template(parsed, tensors)
    if parsed.kind not in ("poi", "red", "per") or not sizes:
        raise NotCounted("several kernels combined in one; their sizes are not recorded")
    axes = _axes(sizes, tensors)
    return _looped(parsed, tensors, axes)


def _axes(sizes: list[int], tensors: TensorArgs) -> list[int]:
    """The iterations along each axis: the last of ``sizes``, which begin with the sizes of dynamic shapes, if
    there are any."""
    elements = {tensor.numel for tensor in tensors}
    for start in range(len(sizes)):
        if prod(sizes[start:]) in elements:
            return sizes[start:]
    if len(sizes) > 3:
        raise NotCounted("sizes of a generated kernel with dynamic shapes are ambiguous")
    return sizes


def _looped(parsed: GeneratedName, tensors: TensorArgs, axes: list[int]) -> Work:
    points = prod(axes)
    # What a kernel can write: an element for each point, of a reduction also one for each point of the outer
    # axes.
    whole = set(accumulate(axes, mul)) if parsed.reduces else {points}
    assumed = [ONE_EACH] if flops_per_point(parsed) else []
    scatters = len(tensors) > 1 and not _SCATTERS.isdisjoint(parsed.operators)
    first = tensors[0].numel in whole
    last = tensors[-1].numel in whole
    several = sum(tensor.numel in whole for tensor in tensors) > 1
    touched = []
    for tensor in tensors:
        elements = distinct(tensor)
        if elements > points and not _reads_all(parsed, elements, points):
            elements = points
            assumed.append(_ONE_READ)
        touched.append(elements * size_of(tensor.dtype))
    read, written = sum(touched), touched[-1]
    if scatters:
        assumed.append(_SCATTERED)
    elif not last:
        if not first:
            raise NotCounted("the arguments that the kernel writes are not determined by their sizes")
        # No buffer of its own for the result: it takes the place of the first argument.
        written = touched[0]
        if parsed.kind == "red" and several:
            # A reduction in several loops also keeps a new result there, from one loop to the next.
            read -= touched[0]
            assumed.append(_NOT_READ)
    elif len(tensors) == 1 and not set(parsed.operators) <= _FACTORIES | _SCATTERS:
        pass  # what the kernel reads is there as well
    elif first and len(tensors) > 1 and _is_operand(parsed, tensors):
        written = touched[0]
        assumed.append(_IN_PLACE)
    else:
        read -= touched[-1]
        if first and len(tensors) > 1:
            assumed.append(_NOT_IN_PLACE)
        elif several:
            assumed.append(_LAST_WRITTEN)
    dtype = next(
        (tensor.dtype for tensor in (tensors[-1], *tensors) if floating(tensor.dtype)), tensors[-1].dtype
    )
    flops = points * flops_per_point(parsed)
    return Work(
        other_flops=flops,
        bytes_read=read,
        bytes_written=written,
        precision=precision_of(dtype) if flops else None,
        assumption="; ".join(dict.fromkeys(assumed)),
    )


def _reads_all(parsed: GeneratedName, elements: int, points: int) -> bool:
    """Whether a kernel reads an argument with more elements than points: the windows of a pooling, the two
    halves of a gate."""
    gated = elements == 2 * points and "mul" in parsed.operators and not _GATES.isdisjoint(parsed.operators)
    return gated or not _POOLS.isdisjoint(parsed.operators)


def _is_operand(parsed: GeneratedName, tensors: TensorArgs) -> bool:
    """Whether the last argument is read: a bias, or the result of a matrix product, a matrix where the kernel
    works on the view of it that the first argument has."""
    first = tensors[0]
    last = tensors[-1]
    if len(last.shape) == 1 < len(first.shape):
        return not parsed.reduces
    viewed = (
        len(last.shape) == 2 < len(first.shape)
        and last.shape[-1] == first.shape[-1]
        and last.dtype == first.dtype
    )
    return viewed and not _RENAMED.isdisjoint(parsed.operators)


def _template(parsed: GeneratedName, tensors: TensorArgs) -> Work:
    """A matrix product from a template, [.., m, k] and [.., k, n] first and [.., m, n] last, with what is
    fused behind it."""
    if not set(_PRODUCTS) & set(parsed.operators) or len(tensors) < 3:
        raise NotCounted("a kernel from a template other than that of matrix products")
    a = tensors[0]
    b = tensors[1]
    result = tensors[-1]
    if not (len(a.shape) == len(b.shape) >= 2 and a.shape[-1] == b.shape[-2]):
        raise NotCounted("cannot tell which arguments are the operands of the matrix product")
    product = (*a.shape[:-1], b.shape[-1])
    if prod(product) != result.numel:
        raise NotCounted("cannot tell which argument is the result of the matrix product")
    after = GeneratedName(parsed.kind, tuple(name for name in parsed.operators if name not in _PRODUCTS))
    biases = sum(_COSTS.get(name, 0) for name in parsed.operators if name in _PRODUCTS)
    other = result.numel * (flops_per_point(after) + biases)
    return Work(
        matrix_flops=2 * result.numel * a.shape[-1],
        other_flops=other,
        bytes_read=sum(distinct(tensor) * size_of(tensor.dtype) for tensor in tensors[:-1]),
        bytes_written=result.numel * size_of(result.dtype),
        precision=matrix_precision_of(a.dtype),
        assumption=ONE_EACH if other else "",
    )
