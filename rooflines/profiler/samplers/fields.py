"""The registry of sampled fields: what each one is, its unit, how it is summed up, and where reports show it,
stated once.

The annotations of ``DeviceSample`` are the registry. What stores samples, sums them up, draws them or prints
them reads it, so a new sensor is one line here and one in its sampler. Fields of samplers from other packages
are declared in the same form (``Field``).
"""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

import msgspec

Summary = Literal["mean", "median", "lowest", "highest", "end", "difference", "integral"]
Place = Literal["chart", "table"]

# The unit of a quantity multiplied by seconds.
_INTEGRATED = {"W": "J", "B/s": "B", "1": "s", "cores": "s", "Hz": ""}


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """One sampled quantity.

    ``label`` heads its columns and names its curve. ``unit`` is an SI unit (``rooflines.units.UNITS``),
    ``"1"`` for a share and ``""`` for a number of things; any other text is printed as it is. ``summary``
    lists the figures that summarize the field over a window: ``"difference"`` makes it a counter, which only
    grows, the others sum up a gauge; ``"integral"`` multiplies its mean by the time. Fields of one ``group``
    (the label, unless given) and unit share a row of the timeline; of two with the same label the later one
    replaces the earlier one where a device has both. ``program`` marks what belongs to the watched processes,
    not to the whole machine. ``shown`` is where reports show the field; files, TensorBoard and the analysis
    always have it.
    """

    label: str
    unit: str
    summary: tuple[Summary, ...] = ("mean", "highest")
    group: str = ""
    program: bool = False
    shown: tuple[Place, ...] = ("chart", "table")

    @property
    def is_counter(self) -> bool:
        """Whether it only grows, so that the difference of two readings is what happened between them."""
        return "difference" in self.summary

    def unit_of(self, summary: Summary) -> str:
        """The unit of one of its figures: that of the field, or of its integral over time."""
        return _INTEGRATED.get(self.unit, f"{self.unit}·s") if summary == "integral" else self.unit


_CHART: tuple[Place, ...] = ("chart",)
_DIFFERENCE: tuple[Summary, ...] = ("difference",)
# A reading; None where it is not supported.
_Figure: TypeAlias = float | None
_Count: TypeAlias = int | None


class DeviceSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reading of the machine or of one device. A field that is not supported is absent; what each is
    stands in its annotation. Utilizations are fractions of one.
    """

    #: When it was read (epoch, the clock of the trace).
    time_ns: int
    #: The sampler.
    source: str
    #: The device, or ``host``.
    device: str = "host"
    # power
    #: The device's average over the window that its ``Counter`` names.
    power_w: Annotated[_Figure, Field("power", "W", ("mean", "integral"), shown=_CHART)] = None
    #: Power of the moment.
    power_instant_w: Annotated[_Figure, Field("power", "W", ("highest", "integral"), shown=_CHART)] = None
    power_limit_w: Annotated[_Figure, Field("power limit", "W", ("end",), "power", shown=_CHART)] = None
    energy_j: Annotated[_Figure, Field("energy", "J", _DIFFERENCE, shown=())] = None
    # load
    cpu_utilization: Annotated[_Figure, Field("busy", "1", ("mean",))] = None
    gpu_utilization: Annotated[_Figure, Field("busy", "1", ("mean",))] = None
    #: Busy cores: 2.0 is two cores busy.
    process_cpu_utilization: Annotated[_Figure, Field("busy", "cores", ("mean",), program=True)] = None
    core_utilization: Annotated[tuple[float, ...] | None, Field("core busy", "1", ("mean",), shown=())] = None
    gpu_memory_utilization: Annotated[_Figure, Field("memory busy", "1", ("mean",), shown=())] = None
    process_threads: Annotated[_Count, Field("threads", "", program=True, shown=())] = None
    process_count: Annotated[_Count, Field("processes", "", program=True, shown=())] = None
    # memory
    memory_used_bytes: Annotated[_Count, Field("memory", "B", ("highest",))] = None
    memory_total_bytes: Annotated[_Count, Field("memory size", "B", ("end",), shown=())] = None
    process_rss_bytes: Annotated[_Count, Field("memory", "B", ("highest",), program=True)] = None
    #: What the watched processes hold of the device's memory.
    process_memory_bytes: Annotated[_Count, Field("memory", "B", ("highest",), program=True)] = None
    process_uss_bytes: Annotated[
        _Count, Field("unique memory", "B", ("highest",), program=True, shown=())
    ] = None
    process_minor_faults: Annotated[_Count, Field("page faults", "", _DIFFERENCE, program=True, shown=())] = (
        None
    )
    process_major_faults: Annotated[
        _Count, Field("page faults from disk", "", _DIFFERENCE, program=True, shown=())
    ] = None
    # temperature
    temperature_c: Annotated[_Figure, Field("temperature", "°C", ("highest",))] = None
    memory_temperature_c: Annotated[_Figure, Field("memory temperature", "°C", ("highest",), shown=())] = None
    # clocks
    cpu_frequency_hz: Annotated[_Figure, Field("clock", "Hz", ("median", "lowest"))] = None
    sm_clock_hz: Annotated[_Figure, Field("clock", "Hz", ("median", "lowest"))] = None
    memory_clock_hz: Annotated[_Figure, Field("memory clock", "Hz", ("median", "lowest"), shown=())] = None
    #: Names of what holds the clocks down, separated by commas; empty when nothing does.
    throttle_reasons: Annotated[str | None, Field("throttled", "1", ("mean",), shown=())] = None
    # traffic
    process_read_bytes: Annotated[
        _Count, Field("read from disk", "B", _DIFFERENCE, program=True, shown=())
    ] = None
    process_written_bytes: Annotated[
        _Count, Field("written to disk", "B", _DIFFERENCE, program=True, shown=())
    ] = None
    pcie_tx_bytes_per_s: Annotated[_Figure, Field("PCIe out", "B/s", shown=())] = None
    pcie_rx_bytes_per_s: Annotated[_Figure, Field("PCIe in", "B/s", shown=())] = None
    nvlink_tx_bytes: Annotated[_Count, Field("NVLink out", "B", _DIFFERENCE, shown=())] = None
    nvlink_rx_bytes: Annotated[_Count, Field("NVLink in", "B", _DIFFERENCE, shown=())] = None
    # memory errors
    ecc_corrected: Annotated[_Count, Field("corrected memory errors", "", _DIFFERENCE, shown=())] = None
    ecc_uncorrected: Annotated[_Count, Field("uncorrected memory errors", "", _DIFFERENCE, shown=())] = None
    #: The fields that another package's sampler declares, by their keys.
    more: dict[str, float | None] = {}

    def columns(self) -> dict[str, Any]:
        """Every field by its key, declared ones among them, as a row of a table has them."""
        return {key: getattr(self, key) for key in COLUMNS} | self.more

    def numbers(self) -> dict[str, float]:
        """The fields that were read and are single numbers, by their keys."""
        values = {key: getattr(self, key) for key in NUMBERS} | self.more
        return {key: value for key, value in values.items() if value is not None}


class Counter(msgspec.Struct, frozen=True, kw_only=True):
    """The resolution of ``field`` in the samples of ``source`` and ``device``."""

    source: str
    device: str
    field: str
    #: Seconds between two new values, measured; absent when it never changed while it was watched.
    update_s: float | None = None
    #: Step in which the value changes.
    resolution: float | None = None
    #: Seconds before a value over which it is the average; 0 when it is of the moment, or a count.
    window_s: float = 0.0


_HINTS = get_type_hints(DeviceSample)
_ANNOTATED = get_type_hints(DeviceSample, include_extras=True)
# The type of each column of a table of samples, without None.
COLUMNS: dict[str, Any] = {
    key: hint.__args__[0] if isinstance(hint, UnionType) else hint
    for key, hint in _HINTS.items()
    if key != "more"
}
# The registry, in the order of tables and charts.
FIELDS: dict[str, Field] = {
    key: hint.__metadata__[0] for key, hint in _ANNOTATED.items() if hasattr(hint, "__metadata__")
}
# Those whose readings are single numbers.
NUMBERS = tuple(key for key in FIELDS if COLUMNS[key] in (int, float))
