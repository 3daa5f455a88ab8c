"""The machine-readable forecast: a step that was not run, as work, and on each device its lower bound and the
memory that it needs.

Units are SI base units, given in the field names. A field that is None is not known and is left out of the
JSON. A lower bound is the least time that the roofs of a device allow, never a prediction; an ``Estimate`` is
one, from measured runs, with its interval. That of a phase, a step and a layout is the sum over products,
convolutions and attention, into which code may fuse all other operators, and of an optimizer the time to move
what it updates; ``eager_bound_s`` is the sum over all operators, as PyTorch calls them one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from rooflines._version import __version__
from rooflines.device_specs.records import Ceiling, Ceilings
from rooflines.profiler.records import Workload
from rooflines.roofline.analysis import Bound
from rooflines.roofline.count.formulas import Work
from rooflines.roofline.judge.network_parts import Part
from rooflines.roofline.predict.efficiencies import Estimate
from rooflines.shown import Shown

if TYPE_CHECKING:
    import pandas as pd

FORECAST_SCHEMA = "rooflines.prediction/1"


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one call of a phase; a step has ``calls`` of them.

    ``tokens`` are computed for each sequence in a call, and ``context`` is the number of tokens that the last
    of them attends to. ``flops_per_token`` counts every sequence. ``coverage`` is the share of the operator
    calls that have a formula.
    """

    name: str
    calls: int = 1
    tokens: int | None = None
    context: int | None = None
    flops: int
    matrix_flops: int
    bytes: int
    intensity_flop_per_byte: float | None = None
    flops_per_token: float | None = None
    coverage: float = 1.0


class MemoryNeed(msgspec.Struct, frozen=True, kw_only=True):
    """The most memory that a step needs, and what it is: activations are all that is neither of the
    others."""

    total_bytes: int
    parameters_bytes: int
    gradients_bytes: int = 0
    optimizer_bytes: int = 0
    kv_cache_bytes: int = 0
    activations_bytes: int = 0
    kv_cache_bytes_per_token: float | None = None

    @property
    def updated_bytes(self) -> int:
        """What an optimizer moves at least: gradients, as large as the parameters, read; parameters and its
        state read and written."""
        return 3 * self.parameters_bytes + 2 * self.optimizer_bytes


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step of one batch size and length, which makes ``produced`` units (``Forecast.unit``).

    A step of generate mode is a whole generation. ``memory`` is absent where the tensors of a step were not
    followed.
    """

    batch_size: int | None = None
    sequence_length: int | None = None
    prompt_length: int | None = None
    new_tokens: int | None = None
    produced: int
    phases: tuple[Phase, ...]
    memory: MemoryNeed | None = None


class OperatorBound(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of an operator in one call of its phase on one device; without ``lower_bound_s`` no roof
    applies.

    ``estimate`` is that of one of the calls.
    """

    bound: Bound = "unknown"
    lower_bound_s: float | None = None
    memory_level: str | None = None
    engine: str | None = None
    estimate: Estimate | None = None


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of an operator with the same work in one call of its phase, repeated layers as one with a
    star in ``module``.

    ``modules`` is the number of modules, ``part`` that of a language model, ``precision`` that of its
    arithmetic on a device, ``assumption`` what the work was estimated with; ``bounds`` are in the order of
    ``Forecast.devices``.
    """

    name: str
    module: str
    modules: int
    phase: str
    shapes: str
    category: str
    part: Part
    calls: int
    precision: str | None = None
    flops: int
    matrix_flops: int
    bytes: int
    bytes_read: int
    assumption: str | None = None
    bounds: tuple[OperatorBound, ...] = ()

    @property
    def work(self) -> Work:
        """The work of one of the calls, which are all alike."""
        matrix, flops, read, size = (
            of // self.calls for of in (self.matrix_flops, self.flops, self.bytes_read, self.bytes)
        )
        return Work(matrix, flops - matrix, read, size - read, self.precision)


class PhaseBound(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a phase on a device, and the part of each roof in its lower bound, the largest first.

    ``ridge_flop_per_byte`` is the intensity from which on the device's arithmetic bounds the precision with
    most of the FLOPs.
    """

    name: str
    lower_bound_s: float
    eager_bound_s: float
    by_roof_s: dict[str, float]
    ridge_flop_per_byte: float | None = None
    estimate: Estimate | None = None


class StepBound(msgspec.Struct, frozen=True, kw_only=True):
    """A step on a device, in the order of ``Forecast.steps``.

    ``units_per_s`` is at the bound, so at most reached; ``cost_per_million`` (units, in the currency of the
    price) and ``energy_per_unit_j`` (at ``DeviceFacts.power_w``) are those of the bound too. A step without
    products has an eager bound only; ``missing`` says why there is none at all. The memory of
    ``least_devices`` together holds the step. Where one is too small, times are as if it fitted, and there is
    no rate, cost or energy. ``largest_batch`` and ``largest_context`` (tokens in the KV cache of a sequence,
    at this batch size) fit into the memory; 0 where none does. ``estimate`` is the time in operators, and
    ``outside_s`` that between them on a host like that of the runs.
    """

    phases: tuple[PhaseBound, ...] = ()
    lower_bound_s: float | None = None
    eager_bound_s: float | None = None
    by_roof_s: dict[str, float] = {}
    units_per_s: float | None = None
    cost_per_million: float | None = None
    energy_per_unit_j: float | None = None
    fits: bool | None = None
    least_devices: int | None = None
    largest_batch: int | None = None
    largest_context: int | None = None
    estimate: Estimate | None = None
    outside_s: float | None = None
    missing: str | None = None


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A device that nothing ran on: its roofs and what else is known of it.

    ``peer_link`` leads to other devices of its kind, in one direction. ``memory_bytes`` is the size it is
    sold by, of which drivers reserve a part; ``cache_bytes`` is that of a last cache whose rate is not known
    (0: none, or its rate is among the ceilings); ``power_source`` says whether ``power_w`` was given or is
    the data sheet's limit.
    """

    name: str
    kind: str
    ceilings: tuple[Ceiling, ...]
    source: Literal["data sheet", "measured", "file"] = "data sheet"
    peer_link: Ceiling | None = None
    memory_bytes: int | None = None
    cache_bytes: int = 0
    power_w: float | None = None
    power_source: Literal["given", "TDP"] | None = None
    price_per_hour: float | None = None

    @property
    def roofs(self) -> Ceilings:
        """Its ceilings as a record that bounds are computed from."""
        return Ceilings(device=self.name, kind=self.kind, ceilings=self.ceilings)


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How many ways a network is cut: ``devices`` is the product of tensor, pipeline and data. Experts are
    spread over ``expert``: one; all replicas, each cut as the tensors are; or whole ones over all devices of
    a stage."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        if min(self.tensor, self.pipeline, self.data) < 1:
            raise ValueError("sizes of a layout must be at least 1")
        if self.expert not in (1, self.data, self.data * self.tensor):
            raise ValueError("the layout spreads experts over one, dp, or tp times dp devices")

    @property
    def devices(self) -> int:
        return self.tensor * self.pipeline * self.data

    def __str__(self) -> str:
        sizes = msgspec.structs.asdict(self).items()
        return " x ".join(f"{name} {size}" for name, size in sizes if size > 1) or "one device"


class LayoutPhase(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a phase for all sequences.

    ``computed_s`` is the bound of the operators of a device, over the stages of a pipeline, and
    ``sent_bytes`` what a device sends: the sizes of collectives times their bus factors. ``exposed_s`` is the
    part of ``communication_s`` that nothing hides. ``lower_bound_s`` is when the last sequence is ready, and
    ``estimate_s`` when it is predicted to be.
    """

    name: str
    computed_s: float
    sent_bytes: float
    communication_s: float
    exposed_s: float
    lower_bound_s: float
    estimate_s: float | None = None

    @property
    def expected_s(self) -> float:
        """The prediction; without one, the bound."""
        return self.lower_bound_s if self.estimate_s is None else self.estimate_s


class LayoutBound(msgspec.Struct, frozen=True, kw_only=True):
    """A generation in a layout: the memory of the device that needs most, and the least times.

    ``tokens_per_s`` is of all sequences in decode, at most reached, and ``estimate_tokens_per_s`` predicted;
    ``sustained_tokens_per_s`` is predicted (without a prediction, at most) where a new sequence takes the
    place of each that ends, so that prefill has its part of the time. All are absent where the layout does
    not fit. ``fits`` is absent where the size of the memory is not known.
    ``misses`` are the names of the ``Targets`` that it does not reach.
    """

    layout: Layout
    weights_bytes: int
    kv_cache_bytes: int
    activations_bytes: int
    phases: tuple[LayoutPhase, ...]
    tokens_per_s: float | None = None
    estimate_tokens_per_s: float | None = None
    sustained_tokens_per_s: float | None = None
    fits: bool | None = None
    misses: tuple[str, ...] = ()

    @property
    def expected_tokens_per_s(self) -> float | None:
        """The predicted rate; without one, the one at the bound."""
        return self.tokens_per_s if self.estimate_tokens_per_s is None else self.estimate_tokens_per_s

    @property
    def memory_bytes(self) -> int:
        """What one device holds."""
        return self.weights_bytes + self.kv_cache_bytes + self.activations_bytes


class TrainingBound(msgspec.Struct, frozen=True, kw_only=True):
    """A training step of each of ``devices`` replicas: the memory of one at its fullest moment, what it
    sends, and the least time of the step, with the units of all of them.

    ``way`` says what is cut among them (``training_layouts.py``), and ``accumulate`` how many batches each
    has for a step of the optimizer. ``communication_s`` may be hidden.
    ``units_per_s`` is at the bound, so at most reached; rates are absent where the step does not fit.
    """

    way: str
    devices: int
    accumulate: int = 1
    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    sent_bytes: float
    communication_s: float
    lower_bound_s: float
    estimate_s: float | None = None
    units_per_s: float | None = None
    estimate_units_per_s: float | None = None
    fits: bool | None = None

    @property
    def name(self) -> str:
        """What is cut, and the number of batches: ``fsdp, 4 batches``."""
        return f"{self.way}, {self.accumulate} batches" if self.accumulate > 1 else self.way

    @property
    def expected_s(self) -> float:
        """The prediction; without one, the bound."""
        return self.lower_bound_s if self.estimate_s is None else self.estimate_s

    @property
    def memory_bytes(self) -> int:
        """What one device holds."""
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes + self.activations_bytes


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """What a generation has to reach: the time to the first token, the time of each other one, and the tokens
    of all sequences per second in decode."""

    ttft_s: float | None = None
    itl_s: float | None = None
    tokens_per_s: float | None = None


class DeviceForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The steps on one device, and the first of them on several in parallel ``layouts``, of a training step
    in ``training``."""

    device: DeviceFacts
    steps: tuple[StepBound, ...]
    layouts: tuple[LayoutBound, ...] = ()
    training: tuple[TrainingBound, ...] = ()


class Forecast(Shown, frozen=True, kw_only=True):
    """A workload on devices where it was not run.

    ``unit`` is what a step makes (tokens, images). ``operators`` are those of the first of ``steps``;
    ``unknown`` are operators without a formula, which are in no bound. ``like`` are the runs that estimates
    are made from, ``targets`` what the layouts have to reach, where that was asked for.
    """

    schema: str = FORECAST_SCHEMA
    rooflines: str = __version__
    workload: Workload
    unit: str
    steps: tuple[Step, ...]
    devices: tuple[DeviceForecast, ...]
    operators: tuple[Operator, ...] = ()
    unknown: tuple[str, ...] = ()
    like: tuple[str, ...] = ()
    targets: Targets | None = None
    notes: tuple[str, ...] = ()
    command: str = ""

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each device and step, with the columns of ``forecast_rows``."""
        import pandas as pd

        return pd.DataFrame(forecast_rows(self))


def forecast_rows(forecast: Forecast) -> list[dict[str, Any]]:
    """A row for each device and step: batch, length, bound, bound of each phase, rate, memory, and the
    estimate where there is one."""
    return [
        {
            "device": one.device.name,
            **{
                name: getattr(step, name)
                for name in ("batch_size", "sequence_length", "prompt_length", "new_tokens")
            },
            **{f"{phase.name}_bound_s": phase.lower_bound_s for phase in on.phases},
            **{
                name: getattr(on, name)
                for name in ("lower_bound_s", "eager_bound_s", "units_per_s", "fits", "largest_batch")
            },
            "memory_bytes": step.memory.total_bytes if step.memory else None,
            **{
                f"estimate_{of}s": getattr(on.estimate, f"{of or 'time_'}s", None)
                for of in ("", "low_", "high_")
            },
            **{
                name: getattr(on, name)
                for name in ("least_devices", "cost_per_million", "energy_per_unit_j", "missing")
            },
        }
        for one in forecast.devices
        for step, on in zip(forecast.steps, one.steps, strict=True)
    ]
