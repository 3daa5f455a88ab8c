"""An oracle for bytes that knows no formula: it runs an operator on small real tensors, again and again, and watches.

``capture`` records the operator calls of a function with their real arguments. ``measure`` finds what one call must move. What it
*writes* are the distinct storage bytes of its new outputs and of the arguments that it changes. What it *reads* are the distinct
storage bytes of each argument whose values matter: other values are put in (random ones, NaN, other integers), the operator runs
again, and an argument that never changes a result was not read. For the operators in ``PARTS`` the same is done element by element.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rooflines.profiler.calls.signatures import call_signature, tensor_arg
from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import count
from rooflines.roofline.count.formulas.registry import CallCount

# Arguments that an operator reads only in part, by operator (overload and trailing underscore dropped) and argument name: decided
# element by element. Everywhere else one element that matters makes the whole argument read, because which elements matter depends on
# values that no signature holds (``where``, ``max``).
_PARTS: Final = """
self: index _unsafe_index index_select gather take nll_loss_forward nll_loss2d_forward
self: index_put _index_put_impl index_add index_copy index_fill index_reduce put masked_select
self src: scatter scatter_add scatter_reduce
self: select_scatter slice_scatter diagonal_scatter as_strided_scatter embedding_renorm
weight: embedding _embedding_bag _embedding_bag_forward_only
source: masked_scatter
log_probs targets: _ctc_loss
scale zero_point: _fused_moving_avg_obs_fq_helper _fused_moving_avg_obs_fq_helper_functional
input: _pack_padded_sequence convolution_backward roi_align roi_pool ps_roi_align ps_roi_pool
dense: _padded_dense_to_jagged_forward
boundaries sorted_sequence: bucketize searchsorted
grad_output: select_backward slice_backward diagonal_backward unfold_backward embedding_dense_backward
seeds: inductor_lookup_seed
weight: embedding_bag_byte_rowwise_offsets embedding_bag_4bit_rowwise_offsets embedding_bag_2bit_rowwise_offsets
self input: convolution _convolution mkldnn_convolution _slow_conv2d_forward slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d
self input: _conv_depthwise2d conv_depthwise3d avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices im2col
self: upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d
self: upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
self: _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
self: upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d
self: constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
input: linalg_householder_product ormqr fractional_max_pool2d fractional_max_pool3d
self: fractional_max_pool2d fractional_max_pool3d linalg_cholesky_ex cholesky_inverse linalg_ldl_factor_ex linalg_matrix_sqrth
A: _cholesky_solve_helper _linalg_eigh triangular_solve linalg_solve_triangular
LD: linalg_ldl_solve
input2 self: cholesky_solve ormqr
self: linalg_solve_triangular
self: tril triu trace diagonal_copy select_copy slice_copy narrow_copy as_strided_copy unfold_copy
"""
PARTS: Final[dict[str, set[str]]] = {}
for _line in _PARTS.strip().splitlines():
    _arguments, _, _operators = _line.partition(": ")
    for _operator in _operators.split():
        PARTS.setdefault(_operator, set()).update(_arguments.split())

# In-place operators that write only some elements of what they change: found element by element too.
PARTLY_WRITTEN: Final = frozenset(
    """index_put _index_put_impl index_add index_copy index_fill index_reduce put scatter scatter_add scatter_reduce fill_diagonal
    embedding_renorm _amp_foreach_non_finite_check_and_unscale""".split()  # noqa: SIM905
)

# Which elements these touch depends on a mask, on a binary search, on random windows or on boxes, or an observer that is on: of the
# arguments in ``PARTS`` the formula may count anything between nothing and all. So it may for other operators of ``PARTS`` where
# indices repeat or are a mask, because a formula takes indices to be different.
MASKED: Final = frozenset(
    """masked_select bucketize searchsorted fractional_max_pool2d fractional_max_pool3d roi_align roi_pool ps_roi_align ps_roi_pool
    _fused_moving_avg_obs_fq_helper _fused_moving_avg_obs_fq_helper_functional""".split()  # noqa: SIM905
)

# Their outputs hold whatever was in memory: nothing is read or written.
UNDEFINED: Final = frozenset(
    """empty empty_like empty_strided empty_permuted new_empty new_empty_strided _efficientzerotensor resize resize_as set
    _resize_output empty_quantized _empty_affine_quantized _empty_per_channel_affine_quantized _make_dual""".split()  # noqa: SIM905
)

MAX_ELEMENTS: Final = 3000  # of all arguments of a sample: each of them is run dozens of times
SAMPLES_AN_OPERATOR: Final = 8  # distinct signatures of one overload that are looked at


@dataclass(frozen=True, slots=True)
class Bytes:
    """What a call moves, and where that depends on values, what it moves at most."""

    read: int
    written: int
    most_read: int
    most_written: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call without its tensors: the operator with its overload, the types in its schema, the signature, and what made the call."""

    overload: str
    kinds: tuple[str, ...]
    signature: Signature
    source: str

    @property
    def name(self) -> str:
        """``aten::add``, without overload."""
        return self.overload.partition(".")[0]


@dataclass(slots=True)
class Sample:
    """One operator call with the arguments it was given, copied before it ran."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    signature: Signature
    source: str
    engine: str = field(default_factory=lambda: str(torch.backends.quantized.engine))

    @property
    def name(self) -> str:
        """``aten::add``, without overload."""
        return str(self.func._schema.name)

    @property
    def call(self) -> Call:
        """What was called, without the tensors."""
        return Call(self.func.name(), tuple(str(one.type) for one in self.func._schema.arguments), self.signature, self.source)


# --- storage -----------------------------------------------------------------------------------------------------------------------


def places(tensor: Tensor) -> Tensor:
    """The different element positions in storage that this tensor shows, found by walking its strides."""
    return _places(tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))


@cache
def _places(offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    found = torch.full((1,), offset, dtype=torch.long)
    for extent, stride in zip(shape, strides, strict=True):
        found = (found[:, None] + torch.arange(extent) * stride).reshape(-1)
    return found.unique()


def storage(*tensors: Tensor | None) -> int:
    """Bytes of the different storage elements of each of these tensors."""
    return sum(places(tensor).numel() * tensor.element_size() for tensor in tensors if tensor is not None)


# dtypes that torch computes little with, and those with the same bytes that it does
_RAW: Final = {
    torch.quint8: torch.uint8,
    torch.qint8: torch.int8,
    torch.qint32: torch.int32,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e5m2: torch.uint8,
    torch.uint64: torch.int64,
    torch.uint32: torch.int32,
    torch.uint16: torch.int16,
}


def _elements(tensor: Tensor) -> Tensor:
    """All elements of the tensor's storage, in a row."""
    dtype = _RAW.get(tensor.dtype, tensor.dtype)
    return torch.empty(0, dtype=dtype).set_(tensor.untyped_storage())


def _raw(tensor: Tensor) -> Tensor:
    """The bytes that the tensor shows, one row for each element."""
    found = _elements(tensor)[places(tensor)]
    if found.numel() == 0:
        return torch.empty(0, 1, dtype=torch.uint8)
    if found.is_floating_point():
        found[found != found] = float("nan")  # whichever of its bits are set
    return found.view(torch.uint8).reshape(found.numel(), -1)


def copy_of(tensor: Tensor) -> Tensor:
    """The same tensor on a storage of its own: shape, strides, offset and all elements of the storage kept."""
    if tensor.is_quantized:
        copied = tensor.clone()
        if copied.stride() != tensor.stride():
            raise ValueError("a quantized tensor with gaps")
        return copied
    base = tensor
    if tensor.is_conj():
        base = torch._conj(tensor)
    if base.is_neg():
        base = torch._neg_view(base)
    copied = torch.empty(0, dtype=tensor.dtype).set_(
        tensor.untyped_storage().clone(), tensor.storage_offset(), tensor.shape, tensor.stride()
    )
    if tensor.is_conj():
        copied = torch._conj(copied)
    if tensor.is_neg():
        copied = torch._neg_view(copied)
    return copied


def mapped(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """The nest of lists with each tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(item, change) for item in value) if type(value) in (list, tuple) else value
    return value


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors in a nest of lists, in order."""
    if isinstance(value, Tensor):
        return [value]
    return [tensor for item in value for tensor in tensors_of(item)] if isinstance(value, (list, tuple)) else []


def packed_in(value: Any) -> list[Tensor]:
    """The weights and biases inside the packed parameters in a nest of lists."""
    if isinstance(value, torch.ScriptObject):
        return tensors_of(list(value.unpack()))
    return [tensor for item in value for tensor in packed_in(item)] if isinstance(value, (list, tuple)) else []


# --- recording samples -------------------------------------------------------------------------------------------------------------


class _Capture(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the operator calls with copies of their arguments."""

    def __init__(self, keep: Callable[[Any, Signature], bool], source: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.samples: list[Sample] = []
        self._keep = keep
        self._source = source

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload) or func.namespace in ("prim", "profiler"):
            return func(*args, **kwargs)
        if func._can_decompose() and not torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CPU"):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        given = tensors_of([*args, *kwargs.values()])
        sizes = [tensor.numel() for tensor in given]
        plain = all(type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout is torch.strided for tensor in given)
        counted = sum(tensor.numel() for tensor in given if tensor.dtype != torch.uint8)  # workspaces are large
        if not plain or counted > MAX_ELEMENTS:
            return func(*args, **kwargs)
        signature = call_signature(func, args, kwargs)
        try:
            copies = mapped(args, copy_of), {name: mapped(value, copy_of) for name, value in kwargs.items()}
        except (RuntimeError, ValueError):  # 4-bit numbers, or quantized ones with gaps between them, cannot be copied as they are
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        results = [tensor.numel() for tensor in tensors_of(result)]
        # Nothing to see in calls that compute nothing, nor where all there is is one element, which argmax need not look at.
        small = max([0, *sizes, *results]) <= 1 and bool(sizes) and "_amp_" not in signature.name
        telling = not small and (not results or max(results) > 0)
        if telling and not _empty(func, args, kwargs) and not degenerate(func, args, kwargs) and self._keep(func, signature):
            self.samples.append(Sample(func, *copies, signature, self._source))
        return result


def _empty(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operand has no elements; outputs to be made larger, and the reserves of kernels that keep none, may."""
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    written = {argument.name for argument in func._schema.arguments if argument.alias_info is not None and argument.alias_info.is_write}
    return any(
        tensor.numel() == 0 and tensor.dtype != torch.uint8
        for name, value in given.items()
        if name not in written or name == "self"
        for tensor in tensors_of(value)
    )


_WITHOUT_FRACTION: Final = frozenset({"isinf", "isposinf", "isneginf", "ceil", "floor", "round", "trunc", "frac", "nan_to_num"})
_OF_BOOLEANS: Final = frozenset({"signbit", "angle", "sign", "sgn"})


def degenerate(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether these values make the operator ignore what it is for: infinity among integers, a threshold that nothing passes.

    The compulsory bytes are then none, which no formula should care about.
    """
    name = plain_name(func._schema.name)
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    first = next(iter(tensors_of([*given.values()])), None)
    if first is None:
        return False
    whole = not (first.is_floating_point() or first.is_complex())
    if whole:
        fractions = any(isinstance(given.get(key), float) for key in ("alpha", "beta"))  # cut off to 0
        return fractions or name in _WITHOUT_FRACTION or (first.dtype == torch.bool and name in _OF_BOOLEANS)
    if name == "hardtanh_backward":
        return bool(given["min_val"] >= given["max_val"])
    if name == "pow" and given.get("exponent") == 1:
        return True
    zero = any(isinstance(given.get(key), (int, float)) and given[key] == 0 for key in ("alpha", "momentum", "scale"))
    return (
        zero
        or bool(name == "hardshrink_backward" and given.get("lambd", 0.5) < 0)
        or bool(name == "logit_backward" and (given.get("eps") or 0) >= 0.5)
    )


@dataclass(slots=True)
class Collection:
    """Samples by overload, each signature once and at most ``limit`` of one overload from each source."""

    limit: int = SAMPLES_AN_OPERATOR
    seen: dict[str, set[str]] = field(default_factory=dict)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def capture(self, source: str, body: Callable[[], object], limit: int | None = None) -> None:
        """Run ``body`` and keep the calls that are new; what it raises passes through, after what it called was kept."""
        bound = self.limit if limit is None else limit

        def keep(func: Any, signature: Signature) -> bool:
            known = self.seen.setdefault(func.name(), set())
            if len(known) >= bound or repr(signature) in known:
                return False
            known.add(repr(signature))
            return True

        mode = _Capture(keep, source)
        try:
            with mode:
                body()
        finally:
            for sample in mode.samples:
                self.samples.setdefault(sample.name, []).append(sample)

    def attempt(self, source: str, body: Callable[[], object]) -> None:
        """As ``capture`` without a limit; what this torch or this processor does not have is noted in ``failed``."""
        try:
            self.capture(source, body, limit=1000)
        except (RuntimeError, AttributeError, NotImplementedError) as error:
            self.failed[source] = f"{type(error).__name__}: {error}"


# --- the experiment ----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    """The tensors before and after one run, and what it returned; ``error`` where it refused its arguments."""

    leaves: list[Tensor]
    before: list[Tensor]
    outputs: list[Tensor]
    values: str
    error: str = ""


_VALUES: Final = frozenset({"self", "src", "source", "values", "value", "fill_value"})


# Where things lie: kernels believe any value, and would write anywhere. Zeros are harmless.
_LAYOUTS: Final = frozenset(
    """offs crow_indices rois offsets lengths offset2bag bag_size maximum_indices batch_sizes cum_seq_q cum_seq_k cu_seqlens_q
    cu_seqlens_k""".split()  # noqa: SIM905
)


@contextlib.contextmanager
def quantized_engine(name: str) -> Iterator[None]:
    """Prepare and run with this library for quantized numbers."""
    before = torch.backends.quantized.engine
    if before != name:
        torch.backends.quantized.engine = name
    try:
        yield
    finally:
        if before != name:
            torch.backends.quantized.engine = before


class Experiment:
    """Runs of one call with changed arguments."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.schema = sample.func._schema
        names = [argument.name for argument in self.schema.arguments]
        writes = [argument.alias_info is not None and argument.alias_info.is_write for argument in self.schema.arguments]
        numbered = [(names[index], writes[index], value) for index, value in enumerate(sample.args)]
        numbered += [(name, writes[names.index(name)], value) for name, value in sample.kwargs.items()]
        self.owners = [(name, write) for name, write, value in numbered for _ in tensors_of(value)]
        self.given = tensors_of([value for _, _, value in numbered])
        self.packed = packed_in([value for _, _, value in numbered])
        self.numbers = [value for _, _, value in numbered if type(value) in (int, float)][:2]
        baselines = [self.run(), self.run(poison=17), self.run(poison=201)]
        self.base = baselines[0]
        if self.base.error:
            raise ValueError(self.base.error)
        # bytes of results that differ between equal runs were in memory before
        self.base_results = self.results(self.base)
        others = [self.results(run) for run in baselines[1:]]
        self.steady = [_same(base, *(other[index] for other in others)) for index, base in enumerate(self.base_results)]
        self.plain = plain_name(sample.name)
        self.by_values = self.depends_on_values()
        self.changed = self.changed_rows()

    def run(self, changed: dict[int, Tensor] | None = None, poison: int = 90) -> _Run:
        """Run once; ``changed`` are other tensors for some of the arguments."""
        leaves = [copy_of((changed or {}).get(index, tensor)) for index, tensor in enumerate(self.given)]
        supply = iter(leaves)
        args = mapped(self.sample.args, lambda _: next(supply))
        kwargs = {name: mapped(value, lambda _: next(supply)) for name, value in self.sample.kwargs.items()}
        before = [_raw(leaf) for leaf in leaves]
        for size in {before_one.numel() for before_one in before} | {64, 256}:
            torch.full((size,), poison, dtype=torch.uint8)
        torch.default_generator.manual_seed(0)
        try:
            with torch.no_grad(), warnings.catch_warnings(), quantized_engine(self.sample.engine):
                warnings.simplefilter("ignore")
                result = self.sample.func(*args, **kwargs)
        except Exception as error:  # an operator refuses in its own ways; that it looked at the values is what matters
            return _Run(leaves, before, [], "", f"{type(error).__name__}: {error}"[:200] or "refused")
        outputs = [*tensors_of(result), *packed_in(result)]
        return _Run(leaves, before, outputs, "" if outputs or isinstance(result, (list, tuple)) else repr(result))

    def new_outputs(self, run: _Run) -> list[Tensor]:
        """What it returned on storage that is not an argument's."""
        old = {leaf.untyped_storage().data_ptr() for leaf in run.leaves if leaf.untyped_storage().nbytes()}
        return [tensor for tensor in run.outputs if tensor.layout is torch.strided and tensor.untyped_storage().data_ptr() not in old]

    def results(self, run: _Run) -> list[Tensor]:
        """The bytes of all that it may have written: new outputs, then every argument as it is afterwards."""
        return [_raw(tensor) for tensor in self.new_outputs(run)] + [_raw(leaf) for leaf in run.leaves]

    def matters(self, index: int, replacement: Tensor, context: dict[int, Tensor], base: _Run) -> bool:
        """Whether other values of argument ``index`` give another result than ``base``, the run with ``context``."""
        run = self.run({**context, index: replacement})
        if run.error or run.values != base.values:
            return True
        found, expected = self.results(run), self.results(base)
        if [rows.shape for rows in found] != [rows.shape for rows in expected]:
            return True
        own = len(found) - len(self.given) + index
        for number, (rows, other, steady) in enumerate(zip(found, expected, self.steady, strict=True)):
            differs = rows != other
            if steady.shape == differs.shape:
                differs &= steady
            differs = differs.any(1)
            if number == own and (self.plain in PARTLY_WRITTEN or not bool(self.changed[index].any())):
                # what merely kept its value was not written
                differs &= ~((rows == run.before[index]).all(1) & (other == base.before[index]).all(1))
            if bool(differs.any()):
                return True
        return False

    def other_contexts(self, index: int, values_only: bool = False) -> Iterator[tuple[dict[int, Tensor], _Run]]:
        """The call as it is, then with other values in all arguments but this one: what an ``and`` or ``where`` ignores beside some.

        ``values_only`` leaves indices as they are.
        """
        yield {}, self.base
        choices = {
            other: list(itertools.islice(self.replacements(other), 5))
            for other, tensor in enumerate(self.given)
            if other != index and (not values_only or tensor.is_floating_point() or self.owners[other][0] in _VALUES)
        }
        for number in range(5):
            context = {other: found[number] for other, found in choices.items() if number < len(found)}
            if context:
                run = self.run(context)
                if not run.error:
                    yield context, run

    def replacements(self, index: int, where: Tensor | None = None) -> Iterator[Tensor]:
        """Other values for an argument; not what LAPACK or an index that nobody checks would not survive."""
        if self.owners[index][0] in _LAYOUTS:
            return iter([torch.zeros_like(self.given[index])] if where is None else [])
        harmless = (
            "zero_point" in self.owners[index][0]
            or takes_numbers(self.plain)
            or ("pool" in self.plain and "backward" not in self.plain)
        )
        cautious = "linalg" in self.plain if self.given[index].is_floating_point() else not harmless
        return replacements(self.given[index], where, cautious, [] if cautious else self.numbers)

    def read(self, index: int) -> tuple[int, int]:
        """Bytes of argument ``index`` that must be read, and that may be."""
        tensor = self.given[index]
        if tensor.numel() == 0 or self.is_number(index) or self.owners[index][0] == "workspace":  # of whatever size a library likes
            return 0, 0
        partly = self.owners[index][0] in PARTS.get(self.plain, ())
        if partly and self.by_values:
            return 0, storage(tensor)
        if not any(
            self.matters(index, other, context, base)
            for context, base in self.other_contexts(index)
            for other in self.replacements(index)
        ):
            return 0, 0
        most = storage(tensor)
        if not partly:
            return most, most
        return self.elements_read(index) * tensor.element_size(), most

    def elements_read(self, index: int) -> int:
        """How many of its elements matter. Those that two other values do not show are tried at once, then if need be one by one."""
        contexts = list(itertools.islice(self.other_contexts(index, values_only=True), 3))

        def matter(where: Tensor, tries: int | None = None) -> bool:
            return any(
                self.matters(index, other, context, base)
                for context, base in (contexts if tries is None else contexts[:1])
                for other in itertools.islice(self.replacements(index, where), tries)
            )

        elements = places(self.given[index]).split(1)
        rest = [where for where in elements if not matter(where, tries=2)]
        if rest and matter(torch.cat(rest)):
            rest = [where for where in rest if not matter(where)]
        return len(elements) - len(rest)

    def is_number(self, index: int) -> bool:
        """A 0-dimensional float64, int64 or bool tensor beside others with dimensions is what a trace makes of a Python number."""
        tensor = self.given[index]
        numeric = tensor.dim() == 0 and tensor.dtype in (torch.float64, torch.int64, torch.bool)
        name, written = self.owners[index]
        return (
            numeric
            and not written
            and name not in ("condition", "mask")
            and any(other.dim() for other in self.given)
            and takes_numbers(self.plain)
        )

    def written(self) -> tuple[int, int]:
        """Bytes that must be written, and that may be: of new outputs, and of arguments that some run changes."""
        spans: dict[int, set[int]] = {}
        for tensor in self.new_outputs(self.base):
            starts = places(tensor) * tensor.element_size()
            held = spans.setdefault(tensor.untyped_storage().data_ptr(), set())
            for offset in range(tensor.element_size()):
                held.update((starts + offset).tolist())
        least = most = sum(map(len, spans.values()))
        for leaf, rows, (name, declared) in zip(self.base.leaves, self.changed, self.owners, strict=True):
            if name == "workspace":
                continue
            if bool(rows.any()):
                least += int(rows.sum()) * leaf.element_size() if self.plain in PARTLY_WRITTEN else storage(leaf)
            if bool(rows.any()) or (declared and self.by_values):  # a mask may select nothing
                most += storage(leaf)
        return (0 if self.by_values and self.plain in PARTLY_WRITTEN else least), most

    def changed_rows(self) -> list[Tensor]:
        """For each argument the elements that differ afterwards, in any of the runs."""
        found = [torch.zeros(len(rows), dtype=torch.bool) for rows in self.base.before]
        for run in itertools.chain([self.base], self.changed_runs()):
            if run.error:
                continue
            for index, (leaf, before) in enumerate(zip(run.leaves, run.before, strict=True)):
                after = _raw(leaf)
                if after.shape != before.shape:  # an out= tensor that was made larger
                    found[index] = torch.ones(len(after), dtype=torch.bool)
                elif len(found[index]) == len(before):
                    found[index] |= (after != before).any(1)
            undecided = self.plain in PARTLY_WRITTEN or any(
                written and not bool(rows.any()) for (_, written), rows in zip(self.owners, found, strict=True)
            )
            if not undecided and run is not self.base:
                break
        return found

    def changed_runs(self) -> Iterator[_Run]:
        """Runs with other values in each of the arguments, then in all at once. Indices stay: they say which elements are written."""
        choices = {
            index: list(self.replacements(index))
            for index in range(len(self.given))
            if self.plain not in PARTLY_WRITTEN or self.owners[index][0] in _VALUES
        }
        for number in range(max([0, *map(len, choices.values())])):
            for index, found in choices.items():
                if number < len(found):
                    yield self.run({index: found[number]})
            yield self.run({index: found[number] for index, found in choices.items() if number < len(found)})

    def named(self) -> Iterator[tuple[Tensor, tuple[str, bool]]]:
        """The tensors, each with the name of its argument and whether the schema says that it changes."""
        return zip(self.given, self.owners, strict=True)

    def depends_on_values(self) -> bool:
        """Whether what it touches depends on the values of a mask, or on whether indices repeat."""
        if self.plain in MASKED:
            return True
        if self.plain not in PARTS:
            return False
        if "index_put" in self.plain and any(name == "indices" and tensor.dtype is torch.bool for tensor, (name, _) in self.named()):
            return True
        indices = [tensor for tensor, (name, _) in zip(self.given, self.owners, strict=True) if name not in _VALUES]
        return any(
            tensor.dtype == torch.bool or (tensor.dtype in (torch.int64, torch.int32) and len(tensor.unique()) < tensor.numel())
            for tensor in indices
        )

    def bytes(self) -> Bytes:
        """What the call must read and write."""
        found = [self.read(index) for index in range(len(self.given))]
        written, most_written = self.written()
        found.append((storage(*self.packed),) * 2)  # nothing else can be done with packed parameters than to read them
        read, most_read = (sum(values) for values in zip(*found, strict=True))
        return Bytes(read, written, most_read, most_written) if self.by_values else Bytes(read, written, read, written)


@cache
def takes_numbers(name: str) -> bool:
    """Whether it works element by element, so that a Python number may stand for a tensor."""
    packet = getattr(torch.ops.aten, name, None)
    return name in ("masked_fill", "floor_divide") or (
        packet is not None and any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads())
    )


def _same(base: Tensor, *others: Tensor) -> Tensor:
    steady = torch.ones(base.shape, dtype=torch.bool)
    for other in others:
        steady &= (other == base) if other.shape == base.shape else False
    return steady


def plain_name(name: str) -> str:
    """``aten::add_`` -> ``add``."""
    return name.partition("::")[2].rstrip("_")


def replacements(
    tensor: Tensor, where: Tensor | None = None, cautious: bool = False, numbers: Iterable[float] = ()
) -> Iterator[Tensor]:
    """Copies of the tensor with other values, in all its elements or in those at ``where`` in its storage.

    ``numbers`` are tried too: the operator compares with them.
    ``cautious``: no infinities and no integers far from those that are there, which may be indices that the operator does not check.
    """
    where = places(tensor) if where is None else where
    generator = torch.Generator().manual_seed(1)
    old = _elements(tensor)[where]
    count_of = len(where)
    if count_of == 0:
        return
    candidates: list[Tensor]
    if old.dtype == torch.bool:
        candidates = [~old, torch.ones_like(old), torch.zeros_like(old)]
    elif not (old.is_floating_point() or old.is_complex()):
        # Values that are there first: an index must stay in range.
        everything = _elements(tensor)[places(tensor)]
        low, high = everything.min(), everything.max()
        candidates = [low + high - old if low != high else old, old.flip(0), old[torch.randperm(count_of, generator=generator)]]
        candidates += [torch.full_like(old, int(low)), torch.full_like(old, int(high)), torch.zeros_like(old)]
        candidates += [torch.where(old > 0, old - 1, old + 1)]
        if not cautious:
            candidates += [torch.full_like(old, 100), torch.zeros_like(old) if old.dtype == torch.uint8 else -old - 1]
    else:
        draw = torch.rand(count_of, generator=generator, dtype=torch.float32)
        candidates = [draw.to(old.dtype), torch.zeros_like(old), (3 * draw - 5).to(old.dtype), (3 * draw + 1.5).to(old.dtype)]
        candidates += [torch.full_like(old, value) for value in (1e4, -1e4)]
        candidates += [torch.ones_like(old)]
        if not cautious:
            candidates += [torch.full_like(old, value) for value in numbers]
            candidates += [torch.full_like(old, value) for value in (float("inf"), -float("inf"), float("nan"))]
    for candidate in candidates:
        if torch.equal(candidate, old):
            continue
        changed = copy_of(tensor)
        _elements(changed)[where] = candidate
        yield changed


# --- comparison --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """One sample's bytes by the formula and by the oracle, and the tensors that it returned."""

    call: Call
    ours: CallCount
    oracle: Bytes | None
    reason: str = ""  # why the oracle has no answer
    outputs: tuple[TensorArg, ...] | None = None

    @property
    def state(self) -> str:
        """agrees, mismatch, unknown (no formula), or untested (the oracle could not run it)."""
        if self.oracle is None:
            return "untested"
        if self.ours.work is None:
            return "unknown"
        read, written, oracle = self.ours.work.bytes_read, self.ours.work.bytes_written, self.oracle
        agrees = oracle.read <= read <= oracle.most_read and oracle.written <= written <= oracle.most_written
        return "agrees" if agrees else "mismatch"


def judge(sample: Sample) -> Verdict:
    """Run the experiment and ask the table."""
    if plain_name(sample.name) in UNDEFINED or torch.Tag.inplace_view in sample.func.tags:  # only the tensor's shape changes
        return Verdict(sample.call, count(sample.signature), Bytes(0, 0, 0, 0))
    try:
        with torch.random.fork_rng(devices=[]):
            experiment = Experiment(sample)
            found = experiment.bytes()
    except (ValueError, RuntimeError, NotImplementedError) as error:
        return Verdict(sample.call, count(sample.signature), None, str(error)[:120])
    outputs = tuple(tensor_arg(tensor) for tensor in experiment.base.outputs)
    return Verdict(sample.call, count(sample.signature, outputs=outputs), found, outputs=outputs)


def describe(verdict: Verdict) -> str:
    """One line: which call, ours and the oracle's."""
    ours = verdict.ours.work
    mine = "-" if ours is None else f"read {ours.bytes_read} written {ours.bytes_written}"
    theirs = "-" if verdict.oracle is None else _bytes_text(verdict.oracle)
    arguments = ", ".join(_short(arg) for arg in verdict.call.signature.args)
    reason = verdict.reason or verdict.ours.reason
    return f"{verdict.call.overload}({arguments})  ours: {mine}  oracle: {theirs}  {reason}  [{verdict.call.source}]"


def _bytes_text(found: Bytes) -> str:
    read = str(found.read) if found.read == found.most_read else f"{found.read}..{found.most_read}"
    written = str(found.written) if found.written == found.most_written else f"{found.written}..{found.most_written}"
    return f"read {read} written {written}"


def _short(value: Any) -> str:
    if hasattr(value, "shape"):
        shape = "x".join(map(str, value.shape)) or "()"
        dense, size = [], 1
        for extent in reversed(value.shape):
            dense.insert(0, size)
            size *= extent
        strides = "" if value.strides == tuple(dense) else f"/{','.join(map(str, value.strides or ()))}"
        return f"{value.dtype}[{shape}{strides}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(_short, value))})"
    return str(value)
