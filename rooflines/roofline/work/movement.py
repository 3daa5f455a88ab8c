"""Operators that move data and compute little: copies, fills, gathers, padding, resampling, and views, which move nothing."""

from __future__ import annotations

from functools import partial
from math import ceil, prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.work.arguments import Arguments, Dispatches, NotCounted, distinct, size, size_of
from rooflines.roofline.work.record import Work, precision_of
from rooflines.roofline.work.table import Hints, aten, composite, formula, hinted_formula

# Zero on purpose: another view of the same storage, an allocation, or a question about a tensor.
VIEWS: Final = aten(
    "view view_as view_as_real view_as_complex _unsafe_view _reshape_alias reshape_alias t t_ transpose transpose_ permute movedim"
    " moveaxis swapaxes swapdims numpy_T matrix_H mT mH adjoint expand expand_as broadcast_to broadcast_tensors as_strided as_strided_"
    " slice select narrow unsqueeze unsqueeze_ squeeze squeeze_ detach detach_ alias split split_with_sizes unsafe_split"
    " unsafe_split_with_sizes chunk unsafe_chunk tensor_split hsplit vsplit dsplit unbind diagonal unfold unflatten positive real imag"
    " _conj conj _neg_view resolve_conj resolve_neg atleast_1d atleast_2d atleast_3d meshgrid lift_fresh lift lift_fresh_copy"
)
ALLOCATIONS: Final = aten(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize_ resize_as_ set_ _efficientzerotensor"
    " _resize_output_ record_stream"
)
METADATA: Final = aten(
    "item _local_scalar_dense is_nonzero is_same_size is_pinned result_type can_cast size stride sym_size sym_stride sym_numel numel"
    " dim is_floating_point is_complex is_contiguous is_leaf output_nr requires_grad_ retain_grad _version set_data is_set_to"
    " _has_compatible_shallow_copy_type cudnn_is_acceptable _nnpack_available _fused_sdp_choice _use_cudnn_ctc_loss"
    " _assert_async _assert_tensor_metadata _debug_has_internal_overlap is_inference is_conj is_neg _has_same_storage_numel"
    " _is_zerotensor _fw_primal _make_dual is_coalesced"
)


@formula(*VIEWS, *ALLOCATIONS, *METADATA, "detach", "detach_", category="other")
def _nothing(signature: Signature) -> Work:
    return Work()


# They copy, cast or fill only when needed, through operators that are counted; or they are views of what such an operator made.
composite(
    *aten(
        "to type_as contiguous reshape reshape_as flatten ravel float double half bfloat16 cpu"
        " cuda _autocast_to_reduced_precision _autocast_to_full_precision pin_memory expand_copy tile pad _pad_enum _pad_circular"
        " embedding_bag embedding_backward index_select_backward gather_backward masked_select_backward rot90 fliplr flipud"
        " unsafe_index _unsafe_index_put column_stack dstack cartesian_prod combinations one_hot channel_shuffle take_along_dim"
        " embedding_renorm_ stft istft block_diag interpolate grid_sampler _index_put_impl upsample"
        " max_unpool1d affine_grid_generator affine_grid_generator_backward argwhere unique_consecutive"
        " flatten_dense_tensors unflatten_dense_tensors"
        " normal rand randn randint"
        " rand_like randn_like randint_like randperm bernoulli"
    )
)


def _written(tensor: TensorArg) -> int:
    return tensor.numel * size_of(tensor.dtype)


def _move(read: int, written: int) -> Work:
    return Work(bytes_read=read, bytes_written=written)


@formula("aten::copy_", "aten::_copy_from", "aten::_copy_from_and_resize", category="copy")
def _copy(signature: Signature) -> Work:
    """Reads the source, writes the destination; ``_copy_from`` has them the other way round."""
    args = Arguments(signature, "self src" if signature.name == "aten::copy_" else "src self")
    return _move(size(args.tensor("src")), _written(args.tensor("self")))


@formula("aten::clone", "aten::roll", "aten::flip", "aten::tril", "aten::triu", "aten::tril_", "aten::triu_", "aten::pixel_shuffle",
         "aten::pixel_unshuffle", "aten::native_channel_shuffle", "aten::_pin_memory",
         "aten::to_mkldnn", "aten::to_dense", "aten::_conj_physical", "aten::conj_physical",
         category="copy")  # fmt: skip
def _rearrange(signature: Signature) -> Work:
    """As many elements out as in, each once, elsewhere."""
    inputs = Arguments(signature, "self").tensor("self")
    return _move(size(inputs), _written(inputs))


@formula("aten::_to_copy", category="copy")
def _cast(signature: Signature) -> Work:
    """A copy to another dtype, device or layout."""
    args = Arguments(signature, "self dtype=None")
    if not args.recorded("dtype"):
        raise Dispatches  # traces without values: the copy inside has both tensors
    inputs = args.tensor("self")
    return _move(size(inputs), inputs.numel * size_of(args.dtype("dtype", inputs.dtype)))


@formula("aten::fill_", "aten::zero_", category="copy")
def _fill(signature: Signature) -> Work:
    """Writes and does not read."""
    return _move(0, _written(Arguments(signature, "self").tensor("self")))


# New tensors with a value: operator -> schema. ``size`` or ``self`` gives the shape.
_FACTORIES: Final[dict[str, str]] = {
    "aten::zeros": "size dtype=None", "aten::ones": "size dtype=None", "aten::full": "size value dtype=None",
    "aten::zeros_like": "self dtype=None", "aten::ones_like": "self dtype=None", "aten::full_like": "self value dtype=None",
    "aten::new_zeros": "self size dtype=None", "aten::new_ones": "self size dtype=None", "aten::new_full": "self size value dtype=None",
}  # fmt: skip


@formula(*_FACTORIES, category="copy")
def _factory(signature: Signature) -> Work:
    schema = _FACTORIES[signature.name]
    args = Arguments(signature, schema)
    pattern = args.optional("self")
    if "size" in schema and not args.recorded("size"):
        raise Dispatches  # traces without values: the fill inside has the shape
    shape = args.sizes("size") if "size" in schema else args.tensor("self").shape
    return _move(0, prod(shape) * size_of(args.dtype("dtype", pattern.dtype if pattern else "float32")))


@formula("aten::scalar_tensor", category="copy")
def _scalar(signature: Signature) -> Work:
    return _move(0, size_of(Arguments(signature, "value dtype=None").dtype("dtype", "float32")))


@formula("aten::arange", category="copy")
def _arange(signature: Signature) -> Work:
    """(end, dtype, layout, device, pin), (start, end, ...) or (start, end, step, ...); or a tensor to write to."""
    out = next((arg for arg in signature.args if isinstance(arg, TensorArg)), None)
    if out is not None:
        return _move(0, _written(out))
    numbers = len(signature.args) - 4
    if numbers not in (1, 2, 3):
        raise NotCounted("argument 'end' not recorded")
    schema = {1: "end dtype", 2: "start end dtype", 3: "start end step dtype"}[numbers]
    args = Arguments(signature, schema)
    start, end, step = args.value("start", absent=0), args.value("end"), args.value("step", absent=1)
    dtype = args.dtype("dtype", "float32" if any(isinstance(number, float) for number in (start, end, step)) else "int64")
    return _move(0, ceil((end - start) / step) * size_of(dtype))


_ROUNDED_ELEMENTS = 1 << 20  # elements from which a rounding by a megabyte cannot double the size


def _item_size(tensors: tuple[TensorArg, ...], output_bytes: int | None) -> int:
    """Bytes of an element of a list, whose dtype traces do not record: what was allocated tells it, float32 where nothing was.

    A GPU's allocator rounds up (to 512 bytes, and large blocks by up to a megabyte), so the largest size that fits counts; of a list so
    short that the rounding could hide its size nothing is concluded.
    """
    total = sum(tensor.numel for tensor in tensors)
    if output_bytes is not None and total:
        exact, rest = divmod(output_bytes, total)
        if rest == 0 and exact in (1, 2, 4, 8, 16):
            return exact
        if total >= _ROUNDED_ELEMENTS:
            fitting = [item for item in (1, 2, 4, 8) if total * item <= output_bytes < 2 * total * item]
            if fitting:
                return fitting[-1]
    return size_of(tensors[0].dtype)


def _allocated(hints: Hints, reason: str) -> int:
    """Bytes of a result whose size the recorded arguments do not determine; ``reason`` says why they do not."""
    if hints.output_bytes is None:
        raise NotCounted(reason)
    return hints.output_bytes


@hinted_formula("aten::cat", "aten::concat", "aten::concatenate", "aten::_cat", "aten::stack", "aten::_stack", "aten::hstack",
               "aten::vstack", category="copy")  # fmt: skip
def _join(signature: Signature, hints: Hints) -> Work:
    listed = signature.arg(0)
    tensors = tuple(item for item in listed if isinstance(item, TensorArg)) if isinstance(listed, tuple) else ()
    if not tensors:
        moved = _allocated(hints, "tensors of the list not recorded")  # traces leave out lists of more than 30
        return _move(moved, moved)
    itemsize = _item_size(tensors, hints.output_bytes)
    return _move(sum(map(distinct, tensors)) * itemsize, sum(tensor.numel for tensor in tensors) * itemsize)


@formula("aten::repeat", category="copy")
def _repeat(signature: Signature) -> Work:
    args = Arguments(signature, "self repeats")
    inputs = args.tensor("self")
    return _move(size(inputs), _written(inputs) * prod(args.sizes("repeats")))


def _padded(tensor: TensorArg, padding: tuple[int, ...]) -> tuple[int, int]:
    """Elements kept of a tensor and elements of the result; ``padding`` is (left, right) from the last dimension on."""
    if len(padding) % 2 or len(padding) > 2 * len(tensor.shape):
        raise NotCounted("argument 'pad' not recorded")
    kept, result = 1, 1
    for axis, extent in enumerate(reversed(tensor.shape)):
        left, right = padding[2 * axis : 2 * axis + 2] or (0, 0)
        kept *= max(extent + min(left, 0) + min(right, 0), 0)
        result *= max(extent + left + right, 0)
    return kept, result


_PADDINGS: Final = tuple(f"{kind}_pad{rank}d" for kind in ("reflection", "replication") for rank in (1, 2, 3))


@formula("aten::constant_pad_nd", *(f"aten::{name}" for name in _PADDINGS), category="copy")
def _pad(signature: Signature) -> Work:
    args = Arguments(signature, "self padding")
    inputs = args.tensor("self")
    kept, result = _padded(inputs, args.sizes("padding"))
    itemsize = size_of(inputs.dtype)
    return _move(min(kept, distinct(inputs)) * itemsize, result * itemsize)


@formula(*(f"aten::{name}_backward" for name in _PADDINGS), category="copy")
def _pad_backward(signature: Signature) -> Work:
    """Every gradient is added to the element it was copied from."""
    args = Arguments(signature, "grad self")
    grad, inputs = args.tensor("grad"), args.tensor("self")
    return Work(0, grad.numel, size(grad), _written(inputs), precision_of(grad.dtype))


@formula("aten::select_backward", "aten::slice_backward", "aten::diagonal_backward", "aten::unfold_backward", category="copy")
def _view_backward(signature: Signature) -> Work:
    """The gradient of a view: a tensor of zeros with the gradient in its place."""
    args = Arguments(signature, "grad sizes")
    grad = args.tensor("grad")
    return _move(size(grad), prod(args.sizes("sizes")) * size_of(grad.dtype))


@formula("aten::select_scatter", "aten::slice_scatter", "aten::diagonal_scatter", "aten::as_strided_scatter", category="copy")
def _view_scatter(signature: Signature) -> Work:
    """A copy of ``self`` with ``src`` in place of a part."""
    args = Arguments(signature, "self src")
    inputs, src = args.tensor("self"), args.tensor("src")
    return _move(size(src) + max(inputs.numel - src.numel, 0) * size_of(inputs.dtype), _written(inputs))


# Gathers read the elements they select, each distinct one once, and the indices.


def _selected(source: TensorArg, elements: int) -> int:
    return min(elements, distinct(source)) * size_of(source.dtype)


@formula("aten::index_select", category="copy")
def _index_select(signature: Signature) -> Work:
    args = Arguments(signature, "self dim index")
    inputs, index = args.tensor("self"), args.tensor("index")
    extent = inputs.shape[args.integer("dim")] if inputs.shape else 1
    results = inputs.numel // extent * index.numel if extent else 0
    return _move(_selected(inputs, results) + size(index), results * size_of(inputs.dtype))


@formula("aten::gather", "aten::take", category="copy")
def _gather(signature: Signature) -> Work:
    args = Arguments(signature, "self dim index" if signature.name == "aten::gather" else "self index")
    inputs, index = args.tensor("self"), args.tensor("index")
    return _move(_selected(inputs, index.numel) + size(index), index.numel * size_of(inputs.dtype))


@formula("aten::embedding", category="copy")
def _embedding(signature: Signature) -> Work:
    args = Arguments(signature, "weight indices")
    weight, indices = args.tensor("weight"), args.tensor("indices")
    results = indices.numel * prod(weight.shape[1:])
    return _move(_selected(weight, results) + size(indices), results * size_of(weight.dtype))


@formula("aten::embedding_dense_backward", category="copy")
def _embedding_backward(signature: Signature) -> Work:
    """Adds each row of the gradient to its row of a table of zeros."""
    args = Arguments(signature, "grad indices num_weights")
    grad, indices = args.tensor("grad"), args.tensor("indices")
    depth = grad.shape[-1] if grad.shape else 1
    return Work(
        other_flops=grad.numel,
        bytes_read=size(grad, indices),
        bytes_written=args.integer("num_weights") * depth * size_of(grad.dtype),
        precision=precision_of(grad.dtype),
    )


@formula("aten::_embedding_bag", "aten::_embedding_bag_forward_only", category="copy")
def _embedding_bag(signature: Signature) -> Work:
    args = Arguments(signature, "weight indices offsets scale=False mode=0 sparse=False per_sample=None include_last=False")
    weight, indices, offsets = args.tensor("weight"), args.tensor("indices"), args.tensor("offsets")
    depth = prod(weight.shape[1:])
    bags = offsets.numel - args.flag("include_last")
    return Work(
        other_flops=indices.numel * depth,
        bytes_read=_selected(weight, indices.numel * depth) + size(indices, offsets, args.optional("per_sample")),
        bytes_written=bags * depth * size_of(weight.dtype),
        precision=precision_of(weight.dtype),
    )


# Operator -> FLOPs an element scattered. In place: the elements hit are written, and read where something is added to them.
_SCATTERS: Final[dict[str, tuple[int, str]]] = {
    "scatter": (0, "self dim index src"), "scatter_add": (1, "self dim index src"), "scatter_reduce": (1, "self dim index src"),
    "index_add": (1, "self dim index src"), "index_copy": (0, "self dim index src"), "index_reduce": (1, "self dim index src"),
}  # fmt: skip


def _scatter(signature: Signature, cost: int, schema: str, in_place: bool) -> Work:
    args = Arguments(signature, schema)
    target, index, src = args.tensor("self"), args.tensor("index"), args.optional("src")
    moved = src.numel if src is not None and "index_" in signature.name else index.numel
    hit = _selected(target, moved)
    source = min(size(src), moved * size_of(src.dtype)) if src is not None else 0
    return Work(
        other_flops=cost * moved,
        bytes_read=source + size(index) + ((hit if cost else 0) if in_place else size(target)),
        bytes_written=hit if in_place else _written(target),
        precision=precision_of(target.dtype) if cost else None,
    )


for _name, (_cost, _schema) in _SCATTERS.items():
    formula(f"aten::{_name}", category="copy")(partial(_scatter, cost=_cost, schema=_schema, in_place=False))
    formula(f"aten::{_name}_", category="copy")(partial(_scatter, cost=_cost, schema=_schema, in_place=True))


@formula("aten::index_fill_", category="copy")
def _index_fill(signature: Signature) -> Work:
    args = Arguments(signature, "self dim index")
    target, index = args.tensor("self"), args.tensor("index")
    extent = target.shape[args.integer("dim")] if target.shape else 1
    return _move(size(index), _selected(target, target.numel // extent * index.numel if extent else 0))


_NO_INDEX: Final = "index shapes not recorded"


@hinted_formula("aten::index", "aten::_unsafe_index", category="copy")
def _index(signature: Signature, hints: Hints) -> Work:
    """The elements selected, read (each distinct one once) and written. Traces do not record the indices: their bytes are left out."""
    source = Arguments(signature, "self").tensor("self")
    written = _allocated(hints, _NO_INDEX)
    return _move(min(size(source), written), written)


@formula("aten::index_put_", "aten::_index_put_impl_", category="copy")
def _index_put(signature: Signature) -> Work:
    """Writes ``values`` over, or adds them to, as many elements of ``self``; one value for all of them leaves their number unknown."""
    args = Arguments(signature, "self indices values accumulate=False")
    target, values, accumulate = args.tensor("self"), args.tensor("values"), args.flag("accumulate")
    if values.numel == 1:
        raise NotCounted(_NO_INDEX)
    hit = _selected(target, values.numel)
    return Work(
        other_flops=values.numel if accumulate else 0,
        bytes_read=size(values) + (hit if accumulate else 0),
        bytes_written=hit,
        precision=precision_of(target.dtype) if accumulate else None,
    )


@formula("aten::index_put", category="copy")
def _index_put_copy(signature: Signature) -> Work:
    args = Arguments(signature, "self indices values accumulate=False")
    target, values = args.tensor("self"), args.tensor("values")
    cost = values.numel if args.flag("accumulate") else 0
    return Work(0, cost, size(target, values), _written(target), precision_of(target.dtype) if cost else None)


@hinted_formula("aten::masked_select", "aten::nonzero", "aten::_unique", "aten::_unique2", "aten::unique_dim", category="copy")
def _data_dependent(signature: Signature, hints: Hints) -> Work:
    """Reads every operand to decide what the result is."""
    return _move(size(*signature.tensors), _allocated(hints, "output size not recorded"))


@hinted_formula("aten::repeat_interleave", category="copy")
def _repeat_interleave(signature: Signature, hints: Hints) -> Work:
    args = Arguments(signature, "self repeats=None")
    inputs, repeats = args.tensor("self"), args.value("repeats")
    if isinstance(repeats, int):
        return _move(size(inputs), _written(inputs) * repeats)
    return _move(size(inputs, args.optional("repeats")), _allocated(hints, "output size not recorded"))


@formula("aten::masked_scatter_", category="copy")
def _masked_scatter(signature: Signature) -> Work:
    """At most ``source`` elements are written, at most one for each of ``self``."""
    args = Arguments(signature, "self mask source")
    target, mask, source = args.tensor("self"), args.tensor("mask"), args.tensor("source")
    moved = min(target.numel, source.numel)
    return _move(size(mask) + moved * size_of(source.dtype), moved * size_of(target.dtype))


# Windows and resampling.


@formula("aten::im2col", category="copy")
def _im2col(signature: Signature) -> Work:
    """[n, c, h, w] -> [n, c * k * k, windows]."""
    args = Arguments(signature, "self kernel dilation padding stride")
    inputs = args.tensor("self")
    kernel, stride = args.integers("kernel", 2), args.integers("stride", 2)
    padding, dilation = args.integers("padding", 2), args.integers("dilation", 2)
    windows = [
        max((extent + 2 * pad - step * (taps - 1) - 1) // stride_ + 1, 0)
        for extent, taps, step, pad, stride_ in zip(inputs.shape[-2:], kernel, dilation, padding, stride, strict=True)
    ]
    results = prod(inputs.shape[:-2]) * prod(kernel) * prod(windows)
    return _move(size(inputs), results * size_of(inputs.dtype))


@formula("aten::col2im", category="copy")
def _col2im(signature: Signature) -> Work:
    """[n, c * k * k, windows] -> [n, c, h, w], overlapping windows added."""
    args = Arguments(signature, "self output_size kernel")
    inputs = args.tensor("self")
    planes = prod(inputs.shape[:-1]) // prod(args.integers("kernel", 2))
    results = planes * prod(args.integers("output_size", 2))
    return Work(0, inputs.numel, size(inputs), results * size_of(inputs.dtype), precision_of(inputs.dtype))


# Interpolation -> FLOPs a result: a multiply-add for each neighbour, weights shared along rows.
_RESAMPLING: Final[dict[str, int]] = {
    "upsample_nearest1d": 0, "upsample_nearest2d": 0, "upsample_nearest3d": 0, "_upsample_nearest_exact1d": 0,
    "_upsample_nearest_exact2d": 0, "_upsample_nearest_exact3d": 0, "upsample_linear1d": 2 * 2, "upsample_bilinear2d": 2 * 4,
    "upsample_trilinear3d": 2 * 8, "upsample_bicubic2d": 2 * 16, "_upsample_bilinear2d_aa": 2 * 4, "_upsample_bicubic2d_aa": 2 * 16,
}  # fmt: skip


def _resampled_shape(inputs: TensorArg, args: Arguments) -> tuple[int, ...]:
    """The new spatial sizes, given as such or as factors in the argument after them."""
    spatial = inputs.shape[2:]
    given = args.value("output_size")
    if given is None:
        factors = args.value("factors")
        if not isinstance(factors, tuple) or len(factors) != len(spatial):
            raise NotCounted("argument 'scale_factors' not recorded")
        return tuple(int(extent * factor) for extent, factor in zip(spatial, factors, strict=True))
    return args.integers("output_size", len(spatial))


def _resample(signature: Signature, cost: int) -> Work:
    schema = "self output_size factors" if "nearest" in signature.name else "self output_size align_corners factors"
    args = Arguments(signature, schema)
    inputs = args.tensor("self")
    spatial = _resampled_shape(inputs, args)
    results = prod(inputs.shape[:2]) * prod(spatial)
    read = prod(inputs.shape[:2]) * prod(map(min, inputs.shape[2:], spatial)) if cost == 0 else inputs.numel
    return Work(
        other_flops=cost * results,
        bytes_read=min(read, distinct(inputs)) * size_of(inputs.dtype),
        bytes_written=results * size_of(inputs.dtype),
        precision=precision_of(inputs.dtype) if cost else None,
    )


def _resample_backward(signature: Signature, cost: int) -> Work:
    args = Arguments(signature, "grad output_size input_size")
    grad = args.tensor("grad")
    itemsize = size_of(grad.dtype)
    return Work(0, max(cost, 1) * grad.numel, size(grad), prod(args.sizes("input_size")) * itemsize, precision_of(grad.dtype))


for _name, _cost in _RESAMPLING.items():
    formula(f"aten::{_name}", category="copy")(partial(_resample, cost=_cost))
    formula(f"aten::{_name}_backward", category="copy")(partial(_resample_backward, cost=_cost))


@formula("aten::grid_sampler_2d", "aten::cudnn_grid_sampler", category="copy")
def _grid_sample(signature: Signature) -> Work:
    """[n, c, h, w] sampled at [n, ho, wo, 2]: four neighbours, a multiply-add each."""
    args = Arguments(signature, "self grid")
    inputs, grid = args.tensor("self"), args.tensor("grid")
    results = inputs.shape[1] * (grid.numel // 2)
    return Work(
        other_flops=8 * results,
        bytes_read=_selected(inputs, 4 * results) + size(grid),
        bytes_written=results * size_of(inputs.dtype),
        precision=precision_of(inputs.dtype),
    )


@formula("aten::bincount", category="copy")
def _bincount(signature: Signature) -> Work:
    """Reads the values; the bins are as many as the largest value, which traces do not record."""
    inputs = Arguments(signature, "self").tensor("self")
    return Work(0, inputs.numel, size(inputs), 0)
