"""Facts of a run as they are stored: frozen, with the unit in every field name, absent when not measured.

They are msgspec structs: frozen like a dataclass, written to and read from JSON with their types checked, and a field that is None is
left out of the file.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from rooflines.device_specs.records import Ceilings
from rooflines.profiler.options import KVCache, Mode, OptionValue
from rooflines.profiler.samplers.fields import Counter, DeviceSample, Field
from rooflines.profiler.trace.signature import StoredCall
from rooflines.serial import from_plain, to_plain
from rooflines.shown import Shown

if TYPE_CHECKING:
    import pandas as pd

    from rooflines.roofline.analysis import Analysis

# Analyses of runs lie above their records (docs/design.md, "Records show themselves through a name").
_READING: Final = "rooflines.pipeline.reading"
# The clock of steps whose events do not see all of their work: the time of all steps divided by their number.
WALL_CLOCK = "wall clock"
RUN_SCHEMA = "rooflines.run/1"
# What to do about a loss that is not finite.
FINDS_THE_OPERATOR: Final = "torch.autograd.set_detect_anomaly(True) finds the operator."
Status = Literal["running", "complete", "interrupted", "failed"]


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The workload of a run. ``batch_size`` counts ``unit`` per step; it is absent when the workload does not say.

    ``prompt_length``, ``new_tokens`` (tokens of a sequence) and ``kv_cache`` are those of a generation, which is one step.
    ``compile_mode`` is that of ``torch.compile`` if it is not the default, ``quantized`` how the network was quantized, ``data`` says
    what images a loader feeds the steps with.
    ``source`` says who owns the code that runs: a ``model`` by name or module is ours to convert and compile; of the user's own
    ``step``, ``loop`` or ``script`` the mode, batch size and precision are only what the user called them, and of a foreign ``trace``
    what can be told from it; a precision that cannot is empty.
    """

    name: str
    mode: Mode
    precision: str = "fp32"
    batch_size: int | None = None
    unit: str = "samples"
    image_size: int | None = None
    prompt_length: int | None = None
    new_tokens: int | None = None
    kv_cache: KVCache | None = None
    channels_last: bool = False
    compiled: bool = False
    compile_mode: str | None = None
    quantized: str | None = None
    optimizer: str | None = None
    checkpointing: bool | None = None
    cuda_graph: bool | None = None
    parallel: str | None = None
    data: str | None = None
    source: Literal["model", "step", "loop", "script", "trace"] = "model"


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The machine of a run. ``device`` is torch's name (``cpu``, ``cuda:0``), ``device_name`` the driver's, empty where a trace has
    none.

    ``cpu_cores`` are physical cores, ``cpu_threads`` the hardware threads that the system schedules on, ``threads`` those of torch,
    ``device_units`` the multiprocessors of a GPU, of a slice its own. ``device_inferred`` says what the name was inferred from, where
    a trace does not tell it.
    """

    rooflines: str
    device: str
    device_name: str
    host: str | None = None
    os: str | None = None
    python: str | None = None
    torch: str | None = None
    cpu: str | None = None
    cpu_cores: int | None = None
    cpu_threads: int | None = None
    cpu_isa: str | None = None
    memory_bytes: int | None = None
    threads: int | None = None
    torchvision: str | None = None
    driver: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    device_memory_bytes: int | None = None
    device_units: int | None = None
    device_inferred: str | None = None
    git_commit: str | None = None


class TimedStretch(msgspec.Struct, frozen=True, kw_only=True):
    """Timed steps that follow each other without a gap: when they began and ended (epoch), and how many there are."""

    began_ns: int
    ended_ns: int
    steps: int


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Every step's duration, in the order run: warm-up, then timed with the profiler off, then under the profiler.

    ``settled`` says whether the warm-up ended because step times had settled and ``rule`` how that was decided. ``clock`` names what
    timed the steps (``perf_counter`` after a synchronize, ``cuda events``, or ``wall clock``: all of them together, so that each has
    their mean). ``timed_page_faults`` and ``traced_page_faults`` are the pages that the process took from the system in each pass, all
    steps together (Linux, macOS), ``traced_step_faults`` those of each traced step; ``page_ns`` is what a new page took between the
    passes. ``timed_began_ns`` is when the timed pass began
    (epoch, the clock of the device samples); its steps follow each other without a gap, except where ``timed_stretch`` names the
    longest of several stretches between which the program evaluated its model. ``traced`` says what the trace holds: the steps of the
    traced pass, one ``early`` step (before the timed ones) of a program that ended before that pass, or the ``program`` from its start
    to the end of its first step (to its own end where it made none). The first of ``warmup_ns`` then begins with the program.
    ``timed_token_ns`` are the times since the begin of each timed step, a generation, at which its tokens were ready (of all sequences
    together); empty where steps are no generations.
    ``timed_queue_ns`` and ``traced_queue_ns`` are how long, in each step, threads of the process could run and waited for a processor,
    all together; empty where the system does not count it. ``range_ns`` is what writing the range of one module into the trace took the
    host. ``slowed_by`` names what of the program's own was on in the timed steps and is in their times: its profiler, a debugger.
    ``served`` says that other threads than the main one, or a process that waits for connections, call the model: what lies between
    may be waiting for requests.
    """

    warmup_ns: tuple[int, ...] = ()
    timed_ns: tuple[int, ...] = ()
    traced_ns: tuple[int, ...] = ()
    settled: bool | None = None
    rule: str = ""
    clock: str = "perf_counter"
    timed_page_faults: int | None = None
    traced_page_faults: int | None = None
    traced_step_faults: tuple[int, ...] = ()
    page_ns: float | None = None
    timed_began_ns: int | None = None
    timed_stretch: TimedStretch | None = None
    range_ns: float | None = None
    timed_token_ns: tuple[tuple[int, ...], ...] = ()
    timed_queue_ns: tuple[int, ...] = ()
    traced_queue_ns: tuple[int, ...] = ()
    traced: Literal["steps", "early", "program"] = "steps"
    slowed_by: str | None = None
    served: bool = False


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run, enough to repeat it. ``command`` is its shell command.

    Of a model by name, ``options`` are the keyword arguments of ``profile`` that differ from their defaults, and the ``model``.
    """

    command: str = ""
    steps: int | None = None
    warmup: int | None = None
    wait_quiet: bool = False
    seed: int = 0
    ceilings: str = "measured"
    options: dict[str, OptionValue] = {}


class MemoryAtPeak(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes held at a peak by what they are; docs/counting.md defines each. Their sum is the peak."""

    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    inputs: int = 0
    workspace: int = 0
    overhead: int = 0


class HeldTensor(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that is held at the peak; ``category`` is a field of ``MemoryAtPeak``.

    ``operator`` made it in ``module``; of what existed before the step ``operator`` is empty and ``module`` the owner of a parameter.
    ``shape`` is absent where the tensor is a part of its storage.
    """

    bytes: int
    category: str
    dtype: str
    shape: tuple[int, ...] | None = None
    operator: str = ""
    module: str = ""


class MemoryCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes held over a step, thinned to the extremes of equal parts: ``parts`` by category, in a trace only what was ``allocated``.

    ``at`` is the number of operator calls made before each point, or in a trace the seconds since the step began (``unit``). The parts
    sum to what is held.
    """

    unit: Literal["calls", "s"]
    at: tuple[float, ...]
    parts: dict[str, tuple[int, ...]]


class ResultError(msgspec.Struct, frozen=True, kw_only=True):
    """The difference of the first step's result from that of the same step in fp32, eager, on the same device.

    ``relative`` is ``|y - y32| / |y32|`` (Euclidean norms) over all floating-point tensors of the result, in training of the loss.
    ``same_class`` is the share of samples whose highest score is that of the same class, where the workload is known to return
    scores [N, classes]: an image classifier by name.
    """

    relative: float
    same_class: float | None = None


class StepMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The most memory that the tensors of a step hold on ``device``, what they are, and the operator whose results made it the most.

    ``operator`` is empty where nothing that the step allocates adds to what existed before it, ``module`` where no module was running.
    ``unknown`` names operators that hold memory whose size only their library knows (packed weights, what an RNN saves for its
    backward): it is in no figure. ``curve`` is what is held over the step, with ``peak_bytes`` as its maximum, and ``largest`` are the
    largest tensors at the peak. Both are absent in older runs.
    """

    device: str
    peak_bytes: int
    at_peak: MemoryAtPeak
    operator: str = ""
    module: str = ""
    phase: str = ""
    unknown: tuple[str, ...] = ()
    curve: MemoryCurve | None = None
    largest: tuple[HeldTensor, ...] = ()


class LoaderAlone(msgspec.Struct, frozen=True, kw_only=True):
    """A loader iterated alone: the time of each batch after the previous one, and its number of samples.

    ``samples`` is empty where the batches do not tell.
    """

    batch_ns: tuple[int, ...]
    samples: tuple[int, ...] = ()


class Loading(msgspec.Struct, frozen=True, kw_only=True):
    """Data loading of a program, as recorded.

    ``timed_wait_ns`` and ``traced_wait_ns`` are how long the program waited for its batches in each step of these passes; a wait
    belongs to the step that it ends in. ``timed_samples`` are the samples that came in each timed step, empty where the batches do not
    tell. ``loader`` is the type of what was waited for longest, with its ``workers``, ``batch_size`` and ``pin_memory`` where it is
    torch's; as many as ``prefetched`` batches may have been ready when a pass began. ``workers_cpu_s`` is the processor time of all
    workers over the timed pass. ``alone`` is the same loader without the step, ``resident_ns`` are steps that were given their last
    batch again and so did not wait.
    """

    loader: str = ""
    timed_wait_ns: tuple[int, ...] = ()
    timed_batches: tuple[int, ...] = ()
    timed_samples: tuple[int, ...] = ()
    traced_wait_ns: tuple[int, ...] = ()
    workers: int | None = None
    prefetched: int = 0
    batch_size: int | None = None
    pin_memory: bool | None = None
    workers_cpu_s: float | None = None
    alone: LoaderAlone | None = None
    resident_ns: tuple[int, ...] = ()


class GenerationSizes(msgspec.Struct, frozen=True, kw_only=True):
    """What generates holds: its ``parameters`` and their bytes as they are stored, and its KV cache.

    ``kv_bytes_per_token`` is what a token of one sequence adds to the KV cache while no window is full, ``kv_bytes`` what it holds of
    all sequences at the end; both are absent where the model keeps its cache by itself, or none. ``kv_windows`` are pairs of a window
    and those of the bytes per token that are in layers with it, which hold no more tokens. ``longest_context`` is the most tokens of a
    sequence, absent where the model has no limit.
    """

    parameters: int
    parameter_bytes: int
    kv_bytes_per_token: int | None = None
    kv_bytes: int | None = None
    kv_windows: tuple[tuple[int, int], ...] = ()
    longest_context: int | None = None

    def cache_bytes(self, context: int) -> int:
        """Bytes of the KV cache of one sequence with ``context`` tokens."""
        return (self.kv_bytes_per_token or 0) * context - sum(each * max(0, context - window) for window, each in self.kv_windows)

    def largest_context(self, free_bytes: int, requests: int) -> int | None:
        """The most tokens of each of ``requests`` sequences whose KV cache fits into ``free_bytes``, and that the model allows.

        None without a KV cache, and where windows are all that it has and the model has no limit.
        """
        contexts = range(1, self.longest_context + 1 if self.longest_context else sys.maxsize)
        fitting = bisect_right(contexts, free_bytes // requests, key=self.cache_bytes)
        return fitting if self.kv_bytes_per_token and (self.longest_context or fitting < len(contexts)) else None


class RunFile(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of ``run.json``: written first with status ``running`` and completed last, so a killed run can be recognized.

    ``peak_memory_bytes`` is the device allocator's peak on a GPU and the process's peak resident set on a CPU
    (``peak_memory_kind`` says which). ``parameter_elements`` is how many elements of parameters one traced step updated: traces leave
    out the long lists that optimizers work on. ``noted_calls`` are the calls of one step whose arguments traces leave out, in order.
    ``step_memory`` is what the tensors of a step hold at their peak, followed on fake tensors of a workload that is ours.
    ``compiled_code`` is the file that says what ``torch.compile`` made while the run was recorded, absent where nothing was compiled.
    ``output_error`` is how far the result is from that of fp32, absent for fp32 in eager mode. ``compile_s`` is the time that
    ``torch.compile`` took, which is part of the first step. ``loss_finite`` says whether the losses of the first and last step
    of a training that is ours were finite.
    ``tf32`` says whether float32 ``matmul``, ``convolution`` and ``rnn`` (cuDNN's; absent in older runs) were allowed TF32 (CUDA).
    ``counters`` say how well each field of the device samples can be read, ``fields`` what those are that other packages' samplers
    declare. ``loading`` is how the program was fed with data,
    absent where no loader was seen. ``other_processes`` are the programs that took processors from the timed pass to the traced one,
    with the number that each kept busy. ``generation_sizes`` are of the network that generates text.
    ``notes`` are sentences for the reader about what was limited or left out, ``unrecorded`` those about operators that ran, or may
    have, and were not recorded.
    """

    schema: str = RUN_SCHEMA
    status: Status = "running"
    created: str = ""
    workload: Workload
    environment: Environment
    settings: Settings = Settings()
    steps: StepTimes | None = None
    ceilings: Ceilings | None = None
    trace: str | None = None
    peak_memory_bytes: int | None = None
    peak_memory_kind: str | None = None
    parameter_elements: int | None = None
    noted_calls: tuple[StoredCall, ...] = ()
    step_memory: StepMemory | None = None
    compiled_code: str | None = None
    output_error: ResultError | None = None
    loss_finite: bool | None = None
    compile_s: float | None = None
    tf32: dict[str, bool] | None = None
    counters: tuple[Counter, ...] = ()
    fields: dict[str, Field] = msgspec.field(default_factory=dict)
    loading: Loading | None = None
    generation_sizes: GenerationSizes | None = None
    other_processes: dict[str, float] = {}
    notes: tuple[str, ...] = ()
    unrecorded: tuple[str, ...] = ()
    error: str | None = None


class Run(Shown, frozen=True, kw_only=True):
    """A run directory in memory: where it is, its facts, and its device samples."""

    directory: Path
    facts: RunFile
    samples: tuple[DeviceSample, ...] = ()

    @property
    def trace_path(self) -> Path | None:
        """The Kineto trace of the traced pass, or None when the run ended before it."""
        return self.directory / self.facts.trace if self.facts.trace else None

    @property
    def compiled_path(self) -> Path | None:
        """The code compiled while the run was recorded, or None."""
        return self.directory / Path(self.facts.compiled_code).name if self.facts.compiled_code else None

    @property
    def analysis(self) -> Analysis:
        """Its analysis, derived from the stored files with the formulas of this version; ``rooflines.analyze`` has options."""
        found: Analysis = import_module(_READING).analyze(self)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the directory and the facts in ``run.json`` as plain Python containers."""
        return {"directory": str(self.directory), **to_plain(self.facts)}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Run:
        """Return the run that ``to_dict`` gave, without its samples."""
        facts = {name: value for name, value in plain.items() if name != "directory"}
        return cls(directory=Path(plain["directory"]), facts=from_plain(facts, RunFile))

    def to_dataframe(self) -> pd.DataFrame:
        """Return the device samples, a row each, a column for each field."""
        import pandas as pd

        return pd.DataFrame([sample.columns() for sample in self.samples])
