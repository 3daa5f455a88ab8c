"""Facts of a run as they are stored: frozen, with the unit in every field name, absent when not measured.

They are msgspec structs: frozen like a dataclass, written to and read from JSON with their types checked, and
a field that is None is left out of the file.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from rooflines.device_specs.records import Ceilings
from rooflines.profiler.options import KVCache, Mode, OptionValue
from rooflines.profiler.read.signature import StoredCall
from rooflines.profiler.samplers.fields import Counter, DeviceSample, Field
from rooflines.serial import from_plain, to_plain
from rooflines.shown import Shown

if TYPE_CHECKING:
    import pandas as pd


# Analyses of runs lie above their records (docs/design.md, "Records show themselves through a name").
_READING = "rooflines.pipeline.reading"
# The clock of steps whose events do not see all of their work: the time of all steps divided by their number.
WALL_CLOCK = "wall clock"
RUN_SCHEMA = "rooflines.run/1"
# What to do about a loss that is not finite.
FINDS_THE_OPERATOR = "torch.autograd.set_detect_anomaly(True) finds the operator."
Status = Literal["running", "complete", "interrupted", "failed"]
# A whole number for each step, or for each of what else a field names.
Numbers: TypeAlias = tuple[int, ...]


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The workload of a run. Of what we did not make (a step, a loop, a script, a trace) the mode, batch
    size and precision are only what the user called them or what the trace tells.
    """

    name: str
    #: What a step does.
    mode: Mode
    #: Number format of the step; empty where it cannot be told from a trace.
    precision: str = "fp32"
    #: Number of ``unit`` per step; absent when the workload does not say.
    batch_size: int | None = None
    #: What ``batch_size`` counts.
    unit: str = "samples"
    #: Height and width of the images in pixels.
    image_size: int | None = None
    #: Tokens of a prompt of a generation, which is one step.
    prompt_length: int | None = None
    #: Tokens that a generation adds to a sequence.
    new_tokens: int | None = None
    #: Kind of KV cache of a generation.
    kv_cache: KVCache | None = None
    #: Whether images and weights of convolutions are stored with their channels last.
    channels_last: bool = False
    #: Whether ``torch.compile`` compiled the network.
    compiled: bool = False
    #: Mode of ``torch.compile`` if it is not the default.
    compile_mode: str | None = None
    #: How the network was quantized.
    quantized: str | None = None
    #: Optimizer and its implementation.
    optimizer: str | None = None
    #: Whether blocks compute their activations again in the backward pass.
    checkpointing: bool | None = None
    #: Whether a step is one CUDA graph.
    cuda_graph: bool | None = None
    #: How several GPUs share the step.
    parallel: str | None = None
    #: What images a loader feeds the steps with; absent for inputs that stay in memory.
    data: str | None = None
    #: Who owns the code that runs: a ``model`` by name or module is ours to convert and compile, a
    #: ``step``, ``loop`` or ``script`` is the user's, a ``trace`` is anybody's.
    source: Literal["model", "step", "loop", "script", "trace"] = "model"


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The machine of a run."""

    #: Version of rooflines.
    rooflines: str
    #: torch's name of the device: ``cpu``, ``cuda:0``.
    device: str
    #: The driver's name of the device; empty where a trace has none.
    device_name: str
    #: Name of the machine.
    host: str | None = None
    #: Operating system with its version.
    os: str | None = None
    #: Version of Python.
    python: str | None = None
    #: Version of PyTorch.
    torch: str | None = None
    #: Name of the processor.
    cpu: str | None = None
    #: Physical cores.
    cpu_cores: int | None = None
    #: Hardware threads that the system schedules on.
    cpu_threads: int | None = None
    #: Instruction set that torch's kernels use; where torch names none, those that the CPU has.
    cpu_isa: str | None = None
    #: Memory of the machine.
    memory_bytes: int | None = None
    #: Threads of torch.
    threads: int | None = None
    #: Version of torchvision.
    torchvision: str | None = None
    #: Version of the NVIDIA driver.
    driver: str | None = None
    #: Version of CUDA that torch is built for.
    cuda: str | None = None
    #: Version of cuDNN.
    cudnn: str | None = None
    #: Memory of the GPU.
    device_memory_bytes: int | None = None
    #: Multiprocessors of the GPU; of a slice its own.
    device_units: int | None = None
    #: What the name of the device was inferred from, where a trace does not tell it.
    device_inferred: str | None = None
    #: Commit of the working directory, ``-dirty`` when a tracked file differs from it.
    git_commit: str | None = None


class TimedStretch(msgspec.Struct, frozen=True, kw_only=True):
    """Timed steps that follow each other without a gap: when they began and ended (epoch), and how many there
    are."""

    began_ns: int
    ended_ns: int
    steps: int


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Every step's duration, in the order run: warm-up, then timed with the profiler off, then under the
    profiler."""

    #: Steps of the warm-up; where ``traced`` is ``program``, the first one begins with the program.
    warmup_ns: Numbers = ()
    #: Steps with the profiler off.
    timed_ns: Numbers = ()
    #: Steps under the profiler.
    traced_ns: Numbers = ()
    #: Whether the warm-up ended because step times had settled; absent if that was not tested.
    settled: bool | None = None
    #: How the end of the warm-up was decided.
    rule: str = ""
    #: What timed the steps: ``perf_counter`` after a synchronize, ``cuda events``, or ``wall clock``
    #: (all of them together, so that each has their mean).
    clock: str = "perf_counter"
    #: Pages that the process took from the system in the timed steps, all together (Linux, macOS).
    timed_page_faults: int | None = None
    #: The same of the traced steps.
    traced_page_faults: int | None = None
    #: The same of each traced step.
    traced_step_faults: Numbers = ()
    #: Time that a new page took between the passes.
    page_ns: float | None = None
    #: Begin of the timed pass (epoch, the clock of the device samples). Its steps follow each other
    #: without a gap, except where there is a ``timed_stretch``.
    timed_began_ns: int | None = None
    #: The longest of several stretches of timed steps between which the program evaluated its model.
    timed_stretch: TimedStretch | None = None
    #: Time that writing the range of one module into the trace took the host.
    range_ns: float | None = None
    #: Of generations: times since the begin of each timed step at which its tokens were ready, of all
    #: sequences together.
    timed_token_ns: tuple[Numbers, ...] = ()
    #: How long in each timed step threads of the process could run and waited for a processor, all
    #: together; empty where the system does not count it.
    timed_queue_ns: Numbers = ()
    #: The same of each traced step.
    traced_queue_ns: Numbers = ()
    #: What the trace holds: the steps of the traced pass, one ``early`` step (before the timed ones) of
    #: a program that ended before that pass, or the ``program`` from its start to the end of its first
    #: step (to its own end where it made none).
    traced: Literal["steps", "early", "program"] = "steps"
    #: What of the program's own was on in the timed steps and is in their times: its profiler, a
    #: debugger.
    slowed_by: str | None = None
    #: Whether other threads than the main one, or a process that waits for connections, call the model:
    #: what lies between steps may be waiting for requests.
    served: bool = False


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run, enough to repeat it. ``command`` is its shell command.

    Of a model by name, ``options`` are the keyword arguments of ``profile`` that differ from their defaults,
    and the ``model``.
    """

    command: str = ""
    steps: int | None = None
    warmup: int | None = None
    wait_quiet: bool = False
    #: what the recorded steps may take
    budget_s: float = 120.0
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

    ``operator`` made it in ``module``; of what existed before the step ``operator`` is empty and ``module``
    the owner of a parameter. ``shape`` is absent where the tensor is a part of its storage.
    """

    bytes: int
    category: str
    dtype: str
    shape: tuple[int, ...] | None = None
    operator: str = ""
    module: str = ""


class MemoryCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes held over a step, thinned to the extremes of equal parts: ``parts`` by category, in a trace only
    what was ``allocated``.

    ``at`` is the number of operator calls made before each point, or in a trace the seconds since the step
    began (``unit``). The parts sum to what is held.
    """

    unit: Literal["calls", "s"]
    at: tuple[float, ...]
    parts: dict[str, Numbers]


class ResultError(msgspec.Struct, frozen=True, kw_only=True):
    """The difference of the first step's result from that of the same step in fp32, eager, on the same
    device.

    ``relative`` is ``|y - y32| / |y32|`` (Euclidean norms) over all floating-point tensors of the result, in
    training of the loss. ``same_class`` is the share of samples whose highest score is that of the same
    class, where the workload is known to return scores [N, classes]: an image classifier by name.
    """

    relative: float
    same_class: float | None = None


class StepMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The most memory that the tensors of a step hold on ``device``, what they are, and the operator whose
    results made it the most."""

    #: Device that holds the most; any accelerator comes before the host.
    device: str
    #: The most bytes held at a time.
    peak_bytes: int
    #: What they are.
    at_peak: MemoryAtPeak
    #: Operator that made it the most; empty where nothing that the step allocates adds to what existed
    #: before it.
    operator: str = ""
    #: Module of that operator; empty where no module was running.
    module: str = ""
    #: Phase of that operator.
    phase: str = ""
    #: Operators that hold memory whose size only their library knows (packed weights, what an RNN saves
    #: for its backward): it is in no figure.
    unknown: tuple[str, ...] = ()
    #: What is held over the step, with ``peak_bytes`` as its maximum; absent in older runs.
    curve: MemoryCurve | None = None
    #: The largest tensors at the peak; absent in older runs.
    largest: tuple[HeldTensor, ...] = ()


class LoaderAlone(msgspec.Struct, frozen=True, kw_only=True):
    """A loader iterated alone: the time of each batch after the previous one, and its number of samples.

    ``samples`` is empty where the batches do not tell.
    """

    batch_ns: Numbers
    samples: Numbers = ()


class Loading(msgspec.Struct, frozen=True, kw_only=True):
    """Data loading of a program, as recorded. A wait belongs to the step that it ends in."""

    #: Type of the loader that was waited for longest.
    loader: str = ""
    #: How long the program waited for its batches in each timed step.
    timed_wait_ns: Numbers = ()
    #: Batches that came in each timed step.
    timed_batches: Numbers = ()
    #: Samples that came in each timed step; empty where the batches do not tell.
    timed_samples: Numbers = ()
    #: How long the program waited for its batches in each traced step.
    traced_wait_ns: Numbers = ()
    #: Workers of the loader, where it is torch's.
    workers: int | None = None
    #: Batches that may have been ready when a pass began.
    prefetched: int = 0
    #: Batch size of the loader.
    batch_size: int | None = None
    #: Whether the loader pins its batches.
    pin_memory: bool | None = None
    #: Processor time of all workers over the timed pass.
    workers_cpu_s: float | None = None
    #: The same loader without the step.
    alone: LoaderAlone | None = None
    #: Steps that were given their last batch again and so did not wait.
    resident_ns: Numbers = ()


class GenerationSizes(msgspec.Struct, frozen=True, kw_only=True):
    """What generates holds: its ``parameters`` and their bytes as they are stored, and its KV cache.

    ``kv_bytes_per_token`` is what a token of one sequence adds to the KV cache while no window is full,
    ``kv_bytes`` what it holds of all sequences at the end; both are absent where the model keeps its cache by
    itself, or none. ``kv_windows`` are pairs of a window and those of the bytes per token that are in layers
    with it, which hold no more tokens. ``longest_context`` is the most tokens of a sequence, absent where the
    model has no limit.
    """

    parameters: int
    parameter_bytes: int
    kv_bytes_per_token: int | None = None
    kv_bytes: int | None = None
    kv_windows: tuple[tuple[int, int], ...] = ()
    longest_context: int | None = None

    def cache_bytes(self, context: int) -> int:
        """Bytes of the KV cache of one sequence with ``context`` tokens."""
        return (self.kv_bytes_per_token or 0) * context - sum(
            each * max(0, context - window) for window, each in self.kv_windows
        )

    def largest_context(self, free_bytes: int, requests: int) -> int | None:
        """The most tokens of each of ``requests`` sequences whose KV cache fits into ``free_bytes``, and that
        the model allows.

        None without a KV cache, and where windows are all that it has and the model has no limit.
        """
        contexts = range(1, self.longest_context + 1 if self.longest_context else sys.maxsize)
        fitting = bisect_right(contexts, free_bytes // requests, key=self.cache_bytes)
        return (
            fitting if self.kv_bytes_per_token and (self.longest_context or fitting < len(contexts)) else None
        )


class ProgramLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the program that ran."""

    #: Its file, absolute.
    path: str
    #: Its number, from 1.
    line: int
    #: The function that it is in, ``<module>`` outside of all.
    function: str = ""
    #: What it said when it ran.
    text: str = ""


class RunFile(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of ``run.json``: written first with status ``running`` and completed last, so a killed run
    can be recognized."""

    #: Format of the file.
    schema: str = RUN_SCHEMA
    #: How the run ended, if it has.
    status: Status = "running"
    #: When it began (ISO 8601).
    created: str = ""
    #: What ran.
    workload: Workload
    #: Where it ran.
    environment: Environment
    #: The options it ran with.
    settings: Settings = Settings()
    #: Times of the steps.
    steps: StepTimes | None = None
    #: What the device can do.
    ceilings: Ceilings | None = None
    #: File of the Kineto trace.
    trace: str | None = None
    #: File of the trace of one more step, in which marks say what ran for which of ``lines``.
    line_trace: str | None = None
    #: The lines of the program in that step.
    lines: tuple[ProgramLine, ...] = ()
    #: Peak of the device allocator on a GPU, of the process's resident set on a CPU.
    peak_memory_bytes: int | None = None
    #: Which of the two that is.
    peak_memory_kind: str | None = None
    #: Elements of parameters that one traced step updated: traces leave out the long lists that
    #: optimizers work on.
    parameter_elements: int | None = None
    #: The calls of one step whose arguments traces leave out, in order.
    noted_calls: tuple[StoredCall, ...] = ()
    #: What the tensors of a step hold at their peak, followed on fake tensors of a workload that is
    #: ours.
    step_memory: StepMemory | None = None
    #: File that says what ``torch.compile`` made while the run was recorded; absent where nothing was
    #: compiled.
    compiled_code: str | None = None
    #: Difference of the result from that in fp32; absent for fp32 in eager mode.
    output_error: ResultError | None = None
    #: Whether the losses of the first and last step of a training that is ours were finite.
    loss_finite: bool | None = None
    #: Time that ``torch.compile`` took, which is part of the first step.
    compile_s: float | None = None
    #: Whether float32 ``matmul``, ``convolution`` and ``rnn`` (cuDNN's; absent in older runs) were
    #: allowed TF32 (CUDA).
    tf32: dict[str, bool] | None = None
    #: How well each field of the device samples can be read.
    counters: tuple[Counter, ...] = ()
    #: Fields that other packages' samplers declare.
    fields: dict[str, Field] = {}
    #: How the program was fed with data; absent where no loader was seen.
    loading: Loading | None = None
    #: Bytes of the network that generates text.
    generation_sizes: GenerationSizes | None = None
    #: Programs that took processors from the timed pass to the traced one, with the number that each
    #: kept busy.
    other_processes: dict[str, float] = {}
    #: Sentences for the reader about what was limited or left out.
    notes: tuple[str, ...] = ()
    #: Sentences about operators that ran, or may have, and were not recorded.
    unrecorded: tuple[str, ...] = ()
    #: What ended a run that failed.
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
    def line_path(self) -> Path | None:
        """The trace of the step whose lines are marked, where there is one."""
        path = self.directory / (self.facts.line_trace or "")
        return path if path.is_file() else None

    @property
    def compiled_path(self) -> Path | None:
        """The code compiled while the run was recorded, or None."""
        return self.directory / Path(self.facts.compiled_code).name if self.facts.compiled_code else None

    @property
    def analysis(self) -> Any:
        """Its ``Analysis``, derived from the stored files with the formulas of this version;
        ``rooflines.analyze`` has options."""
        return import_module(_READING).analyze(self)

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
