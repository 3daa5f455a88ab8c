"""FBGEMM's embedding bags: the lookup of many tables in one call, and its backward, which updates the rows
with the optimizer.

A call looks up N indices in T tables; ``offsets`` cuts them into T * B bags. Which rows they are is data:
each index is taken to select another row, as far as the tables have rows. In tables of different widths it is
data, too, how many indices go to which table. Sorting the indices in the backward is the kernel's own way and
is not counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import costs
from rooflines.roofline.count.formulas.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.count.formulas.nodes import parts
from rooflines.roofline.count.formulas.record import Work, precision_of
from rooflines.roofline.count.formulas.registry import Hints

_MEAN, _NO_BAG = 1, 2  # pooling modes
# FBGEMM's SparseType of a result.
_RESULTS = {0: "float32", 1: "float16", 2: "uint8", 5: "bfloat16"}
_ROWS = "each index selects another row"
_WIDTHS = "indices spread evenly over tables of different widths"

# Optimizer -> FLOPs an element, elements of state for each element of a row, and for each row.
_OPTIMIZERS: dict[str, tuple[int, int, int]] = {
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
_GRADIENT_ONLY = ("dense", "none")  # these return a gradient and update nothing


@dataclass(frozen=True, slots=True)
class _Lookup:
    """N indices into tables: ``width`` elements a row on average, in ``exact`` or estimated figures;
    ``pooling`` is None where it was not recorded."""

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
    weights = tuple(
        found for found in args.optionals("host", "dev", "uvm") if found is not None and found.numel
    )
    indices, offsets = args.operands("indices", "offsets")
    if not weights:
        raise NotCounted("shapes of the tables not recorded")
    tables = args.tensor("weights_offsets" if args.has("width") else "D_offsets").numel - (
        not args.has("width")
    )
    bags = (offsets.numel - 1) // tables if tables else 0
    count, mixed = indices.numel, False
    pooling = args.integer("pooling") if args.told("pooling") else None
    if args.has("width"):
        pooling = _NO_BAG
        elements = count * (result.shape[-1] if result is not None else args.integer("width"))
    elif (
        result is not None
        and len(result.shape) == 2
        and (pooling == _NO_BAG or (pooling is None and result.shape[0] != bags))
    ):
        pooling, elements = _NO_BAG, result.numel
    elif pooling == _NO_BAG:
        elements = count * args.integer("max_D")
    else:
        whole = result is not None and len(result.shape) == 2
        total = (
            result.shape[1]
            if result is not None and whole
            else args.integer("total_D")
            if args.has("total_D")
            else 0
        )
        if not total:
            raise NotCounted("width of the tables not recorded")
        widest = args.integer("max_D") if args.told("max_D") else total
        mixed = tables > 1 and widest * tables != total
        elements = count * total // tables
    factors = args.optional("indice_weights")
    return _Lookup(
        weights=weights,
        indices=indices,
        bags=bags * tables,
        elements=elements,
        pooling=pooling,
        read=size(indices, offsets, factors, args.optional("locations")),
        weighted=factors is not None and factors.numel > 0,
        assumption=_ROWS + ("; " + _WIDTHS if mixed else ""),
    )


def forward(signature: Signature, hints: Hints, schema: str) -> Work:
    """Rows read and added up by bags, or returned one by one."""
    args = Arguments(signature, schema)
    result = hints.outputs[0] if hints.outputs else None
    found = _lookup(args, result)
    assumption = found.assumption
    if result is not None:
        results, dtype = result.numel, result.dtype
    else:
        results = _result_elements(args, found)
        dtype = "float32"
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
        read = found.row_bytes if found.weighted else 0
        results = size(*found.weights)
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


_NODE = re.compile(
    r"torch::autograd::CppNode<(?:\(anonymous namespace\)::)?Split(?:NoBag)?LookupFunction_(\w+)_Op>"
)


def forward_of(node: str) -> str | None:
    """The operator whose backward is the autograd node of this name, None for a node of something else."""
    match = _NODE.fullmatch(node)
    if match is None:
        return None
    optimizer = match[1].lower()
    if optimizer == "dense":
        return "fbgemm::dense_embedding_codegen_lookup_function"
    return f"fbgemm::split_embedding_codegen_lookup_{optimizer}_function"


def node(signature: Signature, schema: str) -> Work:
    """An autograd node, whose name has the optimizer."""
    (grad, *_), forward = parts(signature)
    match = _NODE.fullmatch(signature.name)
    return _update(Arguments(forward, schema), match[1].lower() if match else "", grad)


def backward(signature: Signature, schema: str) -> Work:
    """The backward with an optimizer, whose name is in the operator's."""
    args = Arguments(signature, schema)
    match = re.search(r"codegen_(\w+)_((un)?weighted(_vbe)?_exact_cuda|cpu)\Z", signature.name)
    return _update(args, match[1] if match else "", args.tensor("grad"))


def of_weights(signature: Signature, schema: str) -> Work:
    """The gradients of the weights of indices: a dot product of a row and the gradient of its bag for
    each."""
    args = Arguments(signature, schema)
    grad = args.tensor("grad")
    found = _lookup(args, grad)
    return Work(
        other_flops=2 * found.elements,
        bytes_read=size(grad) + found.row_bytes + found.read,
        bytes_written=found.indices.numel * size_of(grad.dtype),
        precision=precision_of(grad.dtype),
        assumption=found.assumption,
    )
