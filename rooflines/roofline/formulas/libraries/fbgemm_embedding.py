"""FBGEMM's embedding bags: the lookup of many tables in one call, and its backward, which updates the rows with the optimizer.

A call looks up N indices in T tables; ``offsets`` cuts them into T * B bags. Which rows they are is data: each index is taken to select
another row, as far as the tables have rows. In tables of different widths it is data, too, how many indices go to which table. Sorting
the indices in the backward is the kernel's own way and is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.formulas.nodes import parts
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, formula
from rooflines.roofline.formulas.tables import table

_MEAN, _NO_BAG = 1, 2  # pooling modes
# FBGEMM's SparseType of a result.
_RESULTS: Final = {0: "float32", 1: "float16", 2: "uint8", 5: "bfloat16"}
_ROWS: Final = "each index selects another row"
_WIDTHS: Final = "indices spread evenly over tables of different widths"

# Optimizer -> FLOPs an element, elements of state for each element of a row, and for each row.
_OPTIMIZERS: Final[dict[str, tuple[int, int, int]]] = {
    "sgd": (costs.SGD, 0, 0),
    "lars_sgd": (costs.SGD_MOMENTUM + costs.SGD + 4, 1, 0),  # two norms
    "adagrad": (costs.ADAGRAD, 1, 0),
    "rowwise_adagrad": (costs.SGD + 2, 0, 1),  # the mean of the squares of a row
    "rowwise_adagrad_with_weight_decay": (costs.SGD + 2 + costs.WEIGHT_DECAY, 0, 1),
    "rowwise_adagrad_with_counter": (costs.SGD + 2 + costs.WEIGHT_DECAY, 0, 3),
    "rowwise_weighted_adagrad": (costs.SGD + 2, 0, 1),
    "adam": (costs.ADAM, 2, 0),
    "partial_rowwise_adam": (costs.ADAM, 1, 1),
    "lamb": (costs.ADAM + 5, 2, 0),  # two norms, the ratio
    "partial_rowwise_lamb": (costs.ADAM + 5, 1, 1),
}
for _exact in ("sgd", "rowwise_adagrad", "rowwise_adagrad_with_weight_decay", "rowwise_adagrad_with_counter"):
    _OPTIMIZERS[f"approx_{_exact}"] = _OPTIMIZERS[_exact]
_GRADIENT_ONLY: Final = ("dense", "none")  # these return a gradient and update nothing


@dataclass(frozen=True, slots=True)
class _Lookup:
    """N indices into tables: ``width`` elements a row on average, in ``exact`` or estimated figures; ``pooling`` is None where it was
    not recorded."""

    weights: tuple[TensorArg, ...]
    indices: TensorArg
    bags: int
    elements: int  # of all rows that are looked up
    pooling: int | None
    read: int  # bytes of everything but the tables
    weighted: bool
    assumption: str

    @property
    def row_bytes(self) -> int:
        """Bytes of the rows, at most those of the tables."""
        return min(self.elements * size_of(self.weights[0].dtype), size(*self.weights))


def _lookup(args: Arguments, result: TensorArg | None) -> _Lookup:
    """The sizes of a lookup; ``result`` is what it returned, or the gradient of that."""
    weights = tuple(found for name in ("host", "dev", "uvm") if (found := args.optional(name)) is not None and found.numel)
    indices, offsets = args.tensor("indices"), args.tensor("offsets")
    if not weights:
        raise NotCounted("shapes of the tables not recorded")
    tables = args.tensor("weights_offsets" if args.has("width") else "D_offsets").numel - (not args.has("width"))
    bags = (offsets.numel - 1) // tables if tables else 0
    count, mixed = indices.numel, False
    pooling = args.integer("pooling") if args.has("pooling") and args.recorded("pooling") else None
    if args.has("width"):
        pooling = _NO_BAG
        elements = count * (result.shape[-1] if result is not None else args.integer("width"))
    elif result is not None and len(result.shape) == 2 and (pooling == _NO_BAG or (pooling is None and result.shape[0] != bags)):
        pooling, elements = _NO_BAG, result.numel
    elif pooling == _NO_BAG:
        elements = count * args.integer("max_D")
    else:
        whole = result is not None and len(result.shape) == 2
        total = result.shape[1] if result is not None and whole else args.integer("total_D") if args.has("total_D") else 0
        if not total:
            raise NotCounted("width of the tables not recorded")
        widest = args.integer("max_D") if args.has("max_D") and args.recorded("max_D") else total
        mixed = tables > 1 and widest * tables != total
        elements = count * total // tables
    factors = args.optional("indice_weights")
    return _Lookup(
        weights=weights, indices=indices, bags=bags * tables, elements=elements, pooling=pooling,
        read=size(indices, offsets, factors, args.optional("locations")), weighted=factors is not None and factors.numel > 0,
        assumption=_ROWS + ("; " + _WIDTHS if mixed else ""),
    )  # fmt: skip


_TABLES: Final = "dev uvm cache placements"
_VBE: Final = "vbe_row_output_offsets vbe_b_t_map vbe_output_size"  # tables with batches of different sizes
_TAIL: Final = "total_D max_D hash_size_cumsum total_hash_size_bits indices offsets pooling indice_weights"
_LOOKUP: Final = f"placeholder {_TABLES} weights_offsets D_offsets {_TAIL} feature_requires_grad locations"


def forward(signature: Signature, hints: Hints, text: str) -> Work:
    """Rows read and added up by bags, or returned one by one."""
    args = Arguments(signature, text)
    result = hints.outputs[0] if hints.outputs else None
    found = _lookup(args, result)
    assumption = found.assumption
    if result is not None:
        results, dtype = result.numel, result.dtype
    else:
        results, dtype = _result_elements(args, found), "float32"
        if args.has("output"):
            dtype = _RESULTS.get(args.integer("output"), "")
        elif hints.output_bytes is None:
            assumption += "; results of float32"
    cost = 0 if found.pooling == _NO_BAG else 2 if found.weighted else 1
    return Work(
        other_flops=found.elements * cost + (results if found.pooling == _MEAN else 0),
        bytes_read=found.row_bytes + found.read,
        bytes_written=results * size_of(dtype),
        precision=precision_of(found.weights[0].dtype) if cost else None,
        assumption=assumption,
    )


def _result_elements(args: Arguments, found: _Lookup) -> int:
    if found.pooling == _NO_BAG:
        return found.elements
    if args.has("vbe_output_size"):
        return args.integer("vbe_output_size")
    return found.bags // (args.tensor("D_offsets").numel - 1) * args.integer("total_D")


def _update(args: Arguments, optimizer: str, grad: TensorArg) -> Work:
    """The gradient of each row that was looked up, summed, and the row and its state updated."""
    found = _lookup(args, grad)
    width = found.elements / max(found.indices.numel, 1)
    rows = int(found.row_bytes / (width * size_of(found.weights[0].dtype))) if width else 0
    cost, each, of_row = _OPTIMIZERS.get(optimizer, (0, 0, 0))
    updated = int(rows * width)
    if optimizer in _GRADIENT_ONLY:
        read, results = found.row_bytes if found.weighted else 0, size(*found.weights)
    else:
        read = found.row_bytes + 4 * (updated * each + rows * of_row)
        results = read + (4 * found.indices.numel if found.weighted else 0)
    # The sum, of weighted rows a product each as well, and these weights' gradients.
    return Work(
        other_flops=found.elements * (4 if found.weighted else 1) + updated * cost,
        bytes_read=size(grad) + found.read + read,
        bytes_written=results,
        precision=precision_of(grad.dtype),
        assumption=found.assumption,
    )


_NODE: Final = re.compile(r"torch::autograd::CppNode<(?:\(anonymous namespace\)::)?Split(?:NoBag)?LookupFunction_(\w+)_Op>")


def forward_of(node: str) -> str | None:
    """The operator whose backward is the autograd node of this name, None for a node of something else."""
    match = _NODE.fullmatch(node)
    if match is None:
        return None
    optimizer = match[1].lower()
    if optimizer == "dense":
        return "fbgemm::dense_embedding_codegen_lookup_function"
    return f"fbgemm::split_embedding_codegen_lookup_{optimizer}_function"


def _node(signature: Signature) -> Work:
    (grad, *_), forward = parts(signature)
    match = _NODE.fullmatch(signature.name)
    optimizer = match[1].lower() if match else ""
    schema = f"dev weights_offsets D_offsets {_TAIL}" if optimizer == "dense" else _LOOKUP
    return _update(Arguments(forward, schema), optimizer, grad)


formula(
    *(
        f"torch::autograd::CppNode<{space}Split{bag}LookupFunction_{optimizer}_Op>"
        for space in ("", "(anonymous namespace)::")
        for bag in ("", "NoBag")
        for optimizer in (*_OPTIMIZERS, "none", "Dense", "dense")
    ),
    category="embedding",
)(_node)


def backward(signature: Signature, _: Hints, text: str) -> Work:
    """The backward with an optimizer, whose name is in the operator's."""
    args, match = Arguments(signature, text), re.search(r"codegen_(\w+)_((un)?weighted(_vbe)?_exact_cuda|cpu)\Z", signature.name)
    return _update(args, match[1] if match else "", args.tensor("grad"))


def of_weights(signature: Signature, _: Hints, text: str) -> Work:
    """The gradients of the weights of indices: a dot product of a row and the gradient of its bag for each."""
    args = Arguments(signature, text)
    grad = args.tensor("grad")
    found = _lookup(args, grad)
    return Work(
        other_flops=2 * found.elements,
        bytes_read=size(grad) + found.row_bytes + found.read,
        bytes_written=found.indices.numel * size_of(grad.dtype),
        precision=precision_of(grad.dtype),
        assumption=found.assumption,
    )


def _each(*names: str, optimizers: Iterable[str] = (*_OPTIMIZERS, "none")) -> str:
    """These names with the name of each optimizer."""
    return " ".join(name.format(optimizer) for name in names for optimizer in optimizers)


_SIZES: Final = "hash_size_cumsum total_hash_size_bits indices offsets"
_END: Final = "locations uvm_cache_stats output"
_SPLIT: Final = f"{_TABLES} weights_offsets D_offsets total_D max_D indices offsets pooling"
_DENSE: Final = "dev weights_offsets D_offsets total_D max_D indices offsets pooling"
_SPLIT_BACK: Final = f"grad {_TABLES} weights_offsets D_offsets max_D mixed_D {_SIZES} pooling"
_DENSE_BACK: Final = f"grad dev weights_offsets D_offsets max_D mixed_D {_SIZES} pooling"
_NAME: Final = "split_embedding_backward_codegen_{}"
_NARROW: Final = {"max_int2": 2, "max_int4": 4, "max_int8": 8, "max_float16": 16, "max_float32": 32}


_TABLE: Final = f"""
[embedding fbgemm::]
# Rows of integers, each with a scale and an offset of 16 bits before it and of 16 bytes or a multiple on a GPU, widened and added up.
int_nbit_split_embedding_codegen_lookup_function int_nbit_split_embedding_uvm_caching_codegen_lookup_function: view dev?, view uvm?,
    placements, weights_offsets, weights_tys, view D_offsets, total_D, {", ".join(_NARROW)}, read indices, read offsets, pooling,
    read indice_weights?, output=1; tables = D_offsets.n - 1; kinds = {" + ".join(f"({name} > 0)" for name in _NARROW)};
    bits = {" + ".join((f"{bits} * ({name} > 0)" for name, bits in _NARROW.items()))}; widest = max({", ".join(_NARROW)});
    bags = 0 if pooling == {_NO_BAG} or not tables else (offsets.n - 1) // tables;
    width = widest if pooling == {_NO_BAG} or not tables else total_D // tables; found = indices.n * width;
    made = found if pooling == {_NO_BAG} else bags * total_D; packed_row = up(width * bits // 8 + (4 if bits < 16 else 0), 16) * 16;
    other = found * ((DEQUANTIZE if bits < 16 else 0) + (pooling != {_NO_BAG}) + bool(indice_weights)) + made * (pooling == {_MEAN});
    also = min(indices.n * packed_row, dev.size + uvm.size); writes = made * {{0: 4, 1: 2, 2: 1, 5: 2}}[output]; precision = fp32;
    fits = kinds == 1 and (pooling == {_NO_BAG} or widest * tables == total_D); assumption = {_ROWS}
    | ; fits = kinds == 1; assumption = {_ROWS}; {_WIDTHS}
[embedding fbgemm:: by=forward]
dense_embedding_codegen_lookup_function: dev weights_offsets D_offsets {_TAIL} feature_requires_grad output=0
split_embedding_codegen_forward_cpu: host weights_offsets D_offsets total_D hash_size_cumsum indices offsets pooling indice_weights
    output
split_embedding_nobag_codegen_forward_cpu: host weights_offsets width hash_size_cumsum indices offsets output
{_each("split_embedding_codegen_lookup_{}_function", optimizers=(*_OPTIMIZERS, *_GRADIENT_ONLY))}: {_LOOKUP}
split_embedding_nobag_codegen_forward_unweighted_cuda: {_TABLES} weights_offsets width indices offsets {_END}
split_embedding_codegen_forward_unweighted_cuda: {_SPLIT} {_END}
split_embedding_codegen_forward_unweighted_vbe_cuda: {_SPLIT} {_END} {_VBE}
split_embedding_codegen_forward_weighted_cuda: {_SPLIT} indice_weights {_END}
split_embedding_codegen_forward_weighted_vbe_cuda: {_SPLIT} indice_weights {_END} {_VBE}
dense_embedding_nobag_codegen_forward_unweighted_cuda: dev weights_offsets width indices offsets output
dense_embedding_codegen_forward_unweighted_cuda: {_DENSE} output
dense_embedding_codegen_forward_unweighted_vbe_cuda: {_DENSE} output {_VBE}
dense_embedding_codegen_forward_weighted_cuda: {_DENSE} indice_weights output
dense_embedding_codegen_forward_weighted_vbe_cuda: {_DENSE} indice_weights output {_VBE}
[embedding fbgemm:: by=backward]
{_each(_NAME + "_unweighted_exact_cuda", _NAME + "_unweighted_vbe_exact_cuda")}: {_SPLIT_BACK} locations
{_each(_NAME + "_weighted_exact_cuda", _NAME + "_weighted_vbe_exact_cuda")}: {_SPLIT_BACK} indice_weights locations
{_each(_NAME + "_cpu", optimizers=_OPTIMIZERS)}: grad host placements weights_offsets D_offsets max_D {_SIZES} pooling indice_weights
{_each("split_embedding_nobag_backward_codegen_{}_unweighted_exact_cuda")}: grad {_TABLES} weights_offsets width {_SIZES} locations
dense_embedding_backward_codegen_dense_unweighted_exact_cuda dense_embedding_backward_codegen_dense_unweighted_vbe_exact_cuda:
    {_DENSE_BACK}
dense_embedding_backward_codegen_dense_weighted_exact_cuda dense_embedding_backward_codegen_dense_weighted_vbe_exact_cuda:
    {_DENSE_BACK} indice_weights
dense_embedding_nobag_backward_codegen_dense_unweighted_exact_cuda: grad dev weights_offsets width {_SIZES}
[embedding fbgemm:: by=of_weights]
split_embedding_codegen_grad_indice_weights_cpu: grad host weights_offsets D_offsets indices offsets
split_embedding_codegen_grad_indice_weights_cuda split_embedding_codegen_grad_indice_weights_vbe_cuda: grad {_TABLES} weights_offsets
    D_offsets max_D indices offsets locations
dense_embedding_codegen_grad_indice_weights_cuda dense_embedding_codegen_grad_indice_weights_vbe_cuda: grad dev weights_offsets
    D_offsets max_D indices offsets
"""
table(_TABLE, forward=forward, backward=backward, of_weights=of_weights)
