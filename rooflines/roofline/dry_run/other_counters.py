"""Compare the count with other counters and explain differences: ``rooflines count --against
torch,fvcore,profiler``.

Each difference is explained by a reason that reproduces the other counter's figure to the integer (it counts
a multiply-add as one, it does not divide by the groups, it counts masked pairs, it has no formula); what no
reason reproduces is said to be unexplained. The differences add up to the difference of the totals.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from rooflines.arguments import arg
from rooflines.errors import UsageError, first_line
from rooflines.profiler.options import PointOptions
from rooflines.profiler.read.signature import Signature
from rooflines.roofline.count.formulas import Work
from rooflines.roofline.count.formulas import count as count_call
from rooflines.roofline.dry_run.count import Count, NetworkRecording, record_network, summarize

if TYPE_CHECKING:
    import torch

    from rooflines.profiler.calls.recorder import StepCalls
    from rooflines.profiler.records import Workload

COUNTERS = ("torch", "fvcore", "profiler")
NOT_EXPLAINED = "not explained"
_MAC = "counts a multiply-add as one"
_PARTS = "counts the operators inside a fused one"
_RENAMED = "sees the same products as calls of other operators"
_NO_FORMULA = "has no formula"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Operators for which two counters differ for one reason: FLOPs as we count them and as the other one
    does, in its own unit."""

    operators: tuple[str, ...]
    ours: int
    theirs: int
    reason: str


class OtherCount(msgspec.Struct, frozen=True, kw_only=True):
    """Another counter's total in its own unit (FLOP, or MAC), and what makes it differ from ours; ``absent``
    says why there is none."""

    counter: str
    unit: str = "FLOP"
    total: int | None = None
    differences: tuple[Difference, ...] = ()
    absent: str | None = None


def count_against(
    name: str, options: PointOptions, counters: Iterable[str], *, memory: bool = False
) -> tuple[Workload, Count, tuple[OtherCount, ...]]:
    """Our count of one step of a named network, and each of the other counters' (``COUNTERS``).

    ``torch`` is ``torch.utils.flop_counter`` on the same fake tensors; ``fvcore`` traces one forward and
    ``profiler`` runs the step with ``with_flops``, both on real tensors. Raises UsageError for a counter that
    is unknown or not installed.
    """
    wanted = check_counters(counters)
    ours = record_network(name, options, memory=memory)
    against = {"torch": _torch, "fvcore": _fvcore, "profiler": _profiler}
    found = tuple(against[counter](ours, name, options) for counter in wanted)
    return ours.prepared.facts, summarize(ours.recording), found


def check_counters(names: Iterable[str]) -> tuple[str, ...]:
    """The names, each once; raises UsageError for an unknown one and for a package that is not installed."""
    wanted = tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
    for name in wanted:
        if name not in COUNTERS:
            raise UsageError(f"unknown counter {name!r}.", hint=f"Choose from {', '.join(COUNTERS)}.")
    if "fvcore" in wanted:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore"
                )  # it scripts functions when it is imported, which torch says is out of date
                import fvcore.nn  # noqa: F401
        except ImportError:
            raise UsageError(
                f"{arg('against', 'fvcore')} requires the package 'fvcore'.",
                hint="pip install 'rooflines[fvcore]'",
            ) from None
    return wanted


# --- torch.utils.flop_counter -----------------------------------------------------------------------------


def _torch(ours: NetworkRecording, name: str, options: PointOptions) -> OtherCount:
    from torch.utils.flop_counter import FlopCounterMode

    try:
        with (
            ours.prepared.flags(),
            ours.mode or contextlib.nullcontext(),
            FlopCounterMode(display=False) as counter,
        ):
            ours.prepared.step()
    except (
        Exception
    ) as error:  # its module hooks fail in inference mode where a module is given a view of a parameter
        return OtherCount(counter="torch", absent=f"fails on this step: {first_line(error)}")
    theirs = {
        f"aten::{packet.__name__}": int(flops) for packet, flops in counter.flop_counts["Global"].items()
    }
    return _explained(ours.recording, theirs)


def _matrix_flops(signature: Signature) -> int:
    work = count_call(signature).work
    return work.matrix_flops if work else 0


def _full_pairs(signature: Signature) -> int:
    """Every query with every key: the flags of the call that mask some are switched off."""
    return _matrix_flops(
        replace(signature, args=tuple(False if argument is True else argument for argument in signature.args))
    )


def _undivided_weight_gradient(signature: Signature) -> int:
    """The gradient of the weight as that of a convolution of one group."""
    if not signature.name.endswith("convolution_backward"):
        return _matrix_flops(signature)
    groups = signature.arg(9)
    mask = signature.arg(10)
    whole = _matrix_flops(signature)
    if not (isinstance(groups, int) and isinstance(mask, tuple)):
        return whole
    each = whole // max(sum(map(bool, mask[:2])), 1)
    return each * bool(mask[0]) + each * groups * bool(mask[1])


# By reason the operators, our FLOPs and theirs.
_Grouped = defaultdict[str, list[tuple[str, int, int]]]
# A reason why a counter's figure for an operator is not our matrix FLOPs, and the arithmetic that gives its
# figure for one call.
_Reason = tuple[str, Callable[[Signature], int]]
_TORCH_REASONS: tuple[_Reason, ...] = (
    ("does not divide the weight's gradient by the groups", _undivided_weight_gradient),
    ("counts pairs excluded by a causal mask", _full_pairs),
)


def _explained(recording: StepCalls, theirs: dict[str, int]) -> OtherCount:
    """The differences operator by operator: first the arithmetic that is not matrix products, then the
    products."""
    calls: dict[str, list[tuple[Signature, int]]] = defaultdict(list)
    ours = Counter[str]()
    others = Counter[str]()
    for call, number in recording.calls.items():
        work = count_call(call.signature, outputs=call.outputs).work
        if work is not None:
            calls[call.signature.name].append((call.signature, number))
            ours[call.signature.name] += work.matrix_flops * number
            others[call.signature.name] += work.other_flops * number
    grouped = _Grouped(list)
    renamed = _renamed(ours, theirs)
    fused = _fused(ours, theirs) if not renamed else set()
    for name in sorted({*ours, *theirs}):
        mine = ours[name]
        found = theirs.get(name, 0)
        if others[name]:
            grouped[
                "counts no bias, softmax or activation" if mine else "counts matrix products only"
            ].append((name, others[name], 0))
        if name in fused or name in renamed:
            grouped[_PARTS if name in fused else _RENAMED].append((name, mine, found))
        elif mine != found:
            grouped[_why(calls[name], mine, found) if name in theirs else _NO_FORMULA].append(
                (name, mine, found)
            )
    return OtherCount(counter="torch", total=sum(theirs.values()), differences=_collected(grouped))


def _renamed(ours: Counter[str], theirs: dict[str, int]) -> set[str]:
    """Products that are ``mm`` for one and ``bmm`` for the other, and as many: ``matmul`` decides by whether
    a view of a weight requires a gradient, which it does not inside a mode that decomposes operators in
    inference mode."""
    products = {f"aten::{name}" for name in _PRODUCTS}
    names = {name for name in products if ours[name] != theirs.get(name, 0)}
    return names if sum(ours[name] for name in names) == sum(theirs.get(name, 0) for name in names) else set()


def _fused(ours: Counter[str], theirs: dict[str, int]) -> set[str]:
    """Operators that are one call for us and several for the other: what it has no formula for is what it
    counts too much elsewhere."""
    missing = {name for name, flops in ours.items() if flops and name not in theirs}
    surplus = {name for name, flops in theirs.items() if flops > ours[name]}
    whole = sum(ours[name] for name in missing)
    parts = sum(theirs[name] - ours[name] for name in surplus)
    return missing | surplus if whole and whole == parts else set()


def _why(calls: list[tuple[Signature, int]], mine: int, found: int) -> str:
    for reason, predicted in _TORCH_REASONS:
        if sum(predicted(signature) * number for signature, number in calls) == found:
            return reason
    return _MAC if 2 * found == mine else NOT_EXPLAINED


def _collected(grouped: _Grouped) -> tuple[Difference, ...]:
    """One difference a reason, the largest first."""
    found = [
        Difference(
            operators=tuple(name for name, mine, _ in sorted(rows, key=lambda row: -abs(row[1] - row[2]))),
            ours=sum(mine for _, mine, _ in rows),
            theirs=sum(other for _, _, other in rows),
            reason=reason,
        )
        for reason, rows in grouped.items()
    ]
    return tuple(sorted(found, key=lambda one: -abs(one.ours - one.theirs)))


# --- fvcore -----------------------------------------------------------------------------------------------

# Its kinds of operator -> ours, and how it counts one element where that is not a multiply-add.
_PRODUCTS = ("addmm", "mm", "bmm", "baddbmm", "mv", "addmv", "dot", "_addmm_activation")
_FVCORE_KINDS: dict[str, tuple[str, ...]] = {
    "conv": ("convolution",),
    **dict.fromkeys(("linear", "matmul", "mm", "addmm", "bmm", "einsum"), _PRODUCTS),
    **dict.fromkeys(
        ("batch_norm", "instance_norm"), ("native_batch_norm", "_native_batch_norm_legit", "batch_norm")
    ),
    "layer_norm": ("native_layer_norm",),
    "group_norm": ("native_group_norm",),
    "adaptive_avg_pool2d": ("mean", "_adaptive_avg_pool2d"),
    "upsample_nearest2d": ("upsample_nearest2d",),
    "upsample_bilinear2d": ("upsample_bilinear2d",),
    "grid_sampler": ("grid_sampler_2d",),
}


def _fvcore(ours: NetworkRecording, name: str, options: PointOptions) -> OtherCount:
    import torch
    from fvcore.nn import FlopCountAnalysis

    if options.mode == "training":
        return OtherCount(counter="fvcore", unit="MAC", absent="traces the forward pass only")
    network, inputs = _module_and_inputs(name, options)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        analysis = FlopCountAnalysis(network, inputs)
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
        try:
            theirs = {kind: round(flops) for kind, flops in analysis.by_operator().items()}
            missed = sorted(analysis.unsupported_ops())
        except Exception as error:  # torch.jit.trace and its handlers raise many kinds
            return OtherCount(
                counter="fvcore", unit="MAC", absent=f"cannot trace {name}: {first_line(error)}"
            )
    differences = _fvcore_differences(ours.recording, theirs, missed)
    return OtherCount(counter="fvcore", unit="MAC", total=sum(theirs.values()), differences=differences)


def _fvcore_differences(
    recording: StepCalls, theirs: dict[str, int], missed: list[str]
) -> tuple[Difference, ...]:
    ours = Counter[str]()
    others = Counter[str]()
    for row in summarize(recording).operators:
        ours[row.name.removeprefix("aten::")] += row.matrix_flops or 0
        others[row.name.removeprefix("aten::")] += (row.flops or 0) - (row.matrix_flops or 0)
    grouped = _Grouped(list)
    seen = set[str]()
    for names in dict.fromkeys(_FVCORE_KINDS[kind] for kind in theirs if kind in _FVCORE_KINDS):
        found = sum(flops for kind, flops in theirs.items() if _FVCORE_KINDS.get(kind) == names)
        matrix = sum(ours[name] for name in names)
        rest = sum(others[name] for name in names)
        here = [name for name in names if ours[name] or others[name]]
        seen.update(here)
        label = ", ".join(here)
        if not matrix:
            grouped["uses another cost per element of a norm or a window"].append((label, rest, found))
            continue
        grouped[_MAC if 2 * found == matrix else NOT_EXPLAINED].append((label, matrix, found))
        if rest:
            grouped["counts no bias"].append((label, rest, 0))
    for kind in theirs:
        if kind not in _FVCORE_KINDS:
            grouped[NOT_EXPLAINED].append((kind, 0, theirs[kind]))
    unsupported = {name.removeprefix("aten::") for name in missed}
    for name in {*ours, *others}:
        total = ours[name] + others[name]
        if name not in seen and total:
            listed = name in unsupported or "scaled_dot_product" in name
            grouped[_NO_FORMULA if listed or ours[name] else f"{_NO_FORMULA} and does not report it"].append(
                (name, total, 0)
            )
    return _collected(grouped)


def _module_and_inputs(name: str, options: PointOptions) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    import torch

    from rooflines.profiler.workloads.prepare import module_and_inputs

    network, inputs, keywords = module_and_inputs(name, options)

    class Positional(torch.nn.Module):
        """torch.jit.trace takes no keywords."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *given: Any) -> Any:
            output = self.network(
                *given[: len(inputs)], **dict(zip(keywords, given[len(inputs) :], strict=True))
            )
            return tuple(output.values()) if isinstance(output, dict) else output

    if not keywords:
        return network.eval(), inputs
    return Positional().eval(), (*inputs, *keywords.values())


# --- torch.profiler(with_flops=True) ----------------------------------------------------------------------


def _profiler(ours: NetworkRecording, name: str, options: PointOptions) -> OtherCount:
    from torch.profiler import ProfilerActivity, profile

    from rooflines.profiler.workloads.prepare import prepare

    prepared = prepare(name, options)
    with prepared.flags(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profile(activities=[ProfilerActivity.CPU], with_flops=True) as profiler:
            prepared.step()
    theirs: Counter[str] = Counter()
    for event in profiler.key_averages():
        if event.flops:
            theirs[_COMPOSED.get(event.key, event.key)] += int(event.flops)
    return _explained_with_elements(ours.recording, theirs)


# It counts where the operator is called; the product is one level below.
_COMPOSED = {"aten::conv2d": "aten::convolution"}


def _explained_with_elements(recording: StepCalls, theirs: Counter[str]) -> OtherCount:
    """Like ``_explained``, for a counter that knows additions and multiplications of elements as well as
    products."""
    both: dict[str, Work] = {}
    forward: Counter[str] = Counter()
    for row in summarize(recording).operators:
        matrix = row.matrix_flops or 0
        flops = row.flops or 0
        both[row.name] = both.get(row.name, Work()) + Work(matrix, flops - matrix)
        forward[row.name] += flops if row.phase == "forward" else 0
    grouped = _Grouped(list)
    for name in sorted({*both, *theirs}):
        mine = both.get(name, Work())
        found = theirs[name]
        figures = {
            forward[name]: "counts this operator in the forward only",
            mine.matrix_flops: "counts no bias",
            0: _NO_FORMULA,
        }
        if mine.flops != found:
            grouped[figures.get(found, NOT_EXPLAINED)].append((name, mine.flops, found))
    return OtherCount(counter="profiler", total=sum(theirs.values()), differences=_collected(grouped))
