"""The table of the options that change what a step computes or how it runs. All lists of options are made
from it.

A row says what an option is called, where it applies, what to try, what that would gain, which facts of a
workload tell its value, and whether another value gives another result. What to try stands here, what it
gains in ``change.py``.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from ctypes.util import find_library
from pathlib import Path
from typing import Any, NamedTuple

from rooflines.profiler.records import Workload
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.predict import change as gains
from rooflines.roofline.predict.change import HUGE_PAGES, Change, Gain, PageCosts, PredictedStep, Prediction
from rooflines.roofline.replay.replays import Replays
from rooflines.units import counted

# Memory that the C library returns to the system only when 8 GB of it are free.
_KEPT = {"MALLOC_TRIM_THRESHOLD_": "8000000000", "MALLOC_MMAP_THRESHOLD_": "8000000000"}
LARGER_BATCH = "a larger batch"
_ALLOCATORS = ("jemalloc", "tcmalloc", "tcmalloc_minimal")
# The label of each change and the value that it gives to the option; several options, or variables, as a
# dict.
Values = Iterable[tuple[str, Any]]


class Repeatable(NamedTuple):
    """A run that can be repeated with other options: its analysis, and the options it was given."""

    analysis: Analysis
    given: dict[str, Any]

    @property
    def is_of_model(self) -> bool:
        """Whether the options make the model; else the program does."""
        return "model" in self.given


class WorkloadFact(NamedTuple):
    """A field of ``Workload`` that tells the value of an option."""

    field: str
    #: What comparisons call it, and its line on the page of a run, which it may share.
    name: str
    label: str
    #: What the page says where it is set, if not its value, and whether a comparison says yes or no.
    word: str = ""
    flag: bool = False
    #: Whether another value has a baseline of its own.
    in_baseline: bool = True

    def value(self, workload: Workload) -> Any:
        """``yes`` or ``no`` of a flag, else the value; None where it does not apply."""
        found = getattr(workload, self.field)
        return ("yes" if found else "no") if self.flag else found


class RunOption(NamedTuple):
    """An option of ``profile``, or ``allocator``, which stands for variables of the environment."""

    name: str
    #: The values to try with a run, and what one of these changes would gain; None of an option that is not
    #: tried.
    values: Callable[[Repeatable], Values] | None = None
    gain: Callable[[Change, PredictedStep], Gain | None] | None = None
    #: Where to try it: the kind of device, the mode, and an option that the run must have been given.
    device: str = ""
    mode: str = ""
    with_option: str = ""
    #: The equivalent change in the user's code, for a script or loop, and whether it can be made there for a
    #: trial.
    in_code: str = ""
    tried_in_code: bool = False
    #: What of a workload tells its value.
    facts: tuple[WorkloadFact, ...] = ()
    #: Whether another value may give another result, so that a reference in fp32 leaves it out.
    alters: bool = False
    #: Whether the times of two runs with other values are comparable.
    comparable: bool = True
    #: The field of ``Change`` that holds it.
    sets: str = "options"

    @property
    def kind(self) -> str:
        """What its changes are called."""
        return self.name.replace("_", "-")

    def changes(self, run: Repeatable) -> Iterator[Change]:
        """The changes of it to try with ``run``."""
        applies = (
            (run.is_of_model or self.tried_in_code)
            and run.analysis.environment.device.startswith(self.device)
            and self.mode in ("", run.analysis.workload.mode)
            and self.with_option in ("", *run.given)
        )
        for label, value in self.values(run) if self.values is not None and applies else ():
            values = value if isinstance(value, dict) else {self.name: value}
            yield Change(kind=self.kind, label=label, **{self.sets: values})


# --- what to try ------------------------------------------------------------------------------------------


def _precisions(run: Repeatable) -> Values:
    if run.analysis.roofs.emulated("bf16") is not None:
        return []
    names = ("amp-bf16", "bf16") if run.is_of_model else ("amp-bf16",)
    return [(name, name) for name in names if run.analysis.workload.precision in ("fp32", "tf32")]


def _channels_last(run: Repeatable) -> Values:
    convolves = any(row.category == "convolution" for row in run.analysis.operators)
    return [("channels last", True)] if convolves and not run.analysis.workload.channels_last else []


def _compiled(run: Repeatable) -> Values:
    if run.analysis.compiled or run.analysis.workload.compiled:
        return []
    ways = [("compiled", "on")]
    if _on_cuda(run) and run.is_of_model:
        ways.append(("compiled (reduce-overhead)", "reduce-overhead"))
    # A cache that grows would give each token other shapes.
    cache = {"kv_cache": "static"} if run.analysis.workload.kv_cache is not None else {}
    return [(label, {"compile": way, **cache}) for label, way in ways]


def _threads(run: Repeatable) -> Values:
    now = run.analysis.environment.threads
    cores = run.analysis.environment.cpu_cores or 1
    number = cores if now != cores else cores // 2
    return [(counted(number, "thread"), number)] if now and cores > 1 else []


def _optimizers(run: Repeatable) -> Values:
    if not run.is_of_model:
        return [("fused optimizer", "fused")]
    name = str(run.given.get("optimizer", "sgd"))
    ways = [] if "," in name else ["fused", "foreach"] if _on_cuda(run) else ["fused"]
    return [(f"{name}, {how}", f"{name},{how}") for how in ways]


def _workers(run: Repeatable) -> Values:
    """As many workers as deliver the batches as fast as the step takes them, and processors left for them."""
    workers, threads = gains.best_split(PredictedStep(run.analysis))
    found = {"data_workers": workers} if threads is None else {"data_workers": workers, "threads": threads}
    now = {"data_workers": int(run.given.get("data_workers", 0)), "threads": run.analysis.environment.threads}
    names = ("loader worker", "thread")
    label = " · ".join(counted(number, name) for number, name in zip(found.values(), names, strict=False))
    return [(label, found)] if found.items() - now.items() else []


def _allocators(run: Repeatable) -> Values:
    if _on_cuda(run):
        return [("expandable segments", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})]
    return allocators() if run.analysis.environment.device.startswith("cpu") else []


def allocators() -> Values:
    """The C library's allocator with other settings, huge pages, other allocators that are installed
    (Linux)."""
    if platform.system() != "Linux":
        return
    if platform.libc_ver()[0] == "glibc":
        yield "glibc keeps memory", _KEPT
    switch = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if switch.is_file() and "[madvise]" in switch.read_text():
        yield "huge pages", {HUGE_PAGES: "1"}
    for name in _ALLOCATORS:
        if path := find_library(name):
            yield name, {"LD_PRELOAD": path}


def _on_cuda(run: Repeatable) -> bool:
    return run.analysis.environment.device.startswith("cuda")


# --- the table --------------------------------------------------------------------------------------------

OPTIONS = (
    RunOption(
        "precision",
        _precisions,
        gains.lower_precision,
        alters=True,
        in_code="in the code: run the step under torch.autocast",
        tried_in_code=True,
    ),
    RunOption(
        "channels_last",
        _channels_last,
        gains.channels_last,
        alters=True,
        in_code="in the code: memory_format=torch.channels_last for the model and its images",
        facts=(WorkloadFact("channels_last", "channels last", "memory format", "channels last", flag=True),),
        tried_in_code=True,
    ),
    RunOption(
        "compile",
        _compiled,
        gains.compiled,
        alters=True,
        in_code="in the code: torch.compile the model",
        facts=(
            WorkloadFact("compiled", "compiled", "compiled", "torch.compile", flag=True),
            WorkloadFact("compile_mode", "compile mode", "compiled"),
        ),
        tried_in_code=True,
    ),
    RunOption(
        "quantize",
        alters=True,
        facts=(WorkloadFact("quantized", "quantized", "quantized", in_baseline=False),),
    ),
    RunOption(
        "checkpointing",
        alters=True,
        facts=(WorkloadFact("checkpointing", "checkpointing", "activations", "checkpointed", flag=True),),
    ),
    RunOption(
        "cuda_graphs",
        lambda run: [] if run.analysis.workload.cuda_graph else [("CUDA graph", True)],
        gains.graphed,
        device="cuda",
        alters=True,
        facts=(WorkloadFact("cuda_graph", "CUDA graph", "CUDA graph", "one per step", flag=True),),
    ),
    RunOption(
        "parallel", alters=True, facts=(WorkloadFact("parallel", "parallel", "several GPUs", "DataParallel"),)
    ),
    RunOption("threads", _threads, gains.threads_changed, device="cpu", comparable=False, tried_in_code=True),
    RunOption(
        "batch_size",
        lambda run: (
            [(f"batch {2 * now}", 2 * now)] if (now := run.analysis.workload.batch_size) is not None else []
        ),
        gains.larger_batch,
        in_code=LARGER_BATCH,
    ),
    RunOption(
        "optimizer",
        _optimizers,
        gains.fused_optimizer,
        mode="training",
        facts=(WorkloadFact("optimizer", "optimizer", "optimizer"),),
        tried_in_code=True,
    ),
    RunOption("data", facts=(WorkloadFact("data", "data", "data", in_baseline=False),)),
    RunOption("data_workers", _workers, gains.workers, with_option="data"),
    RunOption(
        "pin_memory",
        lambda run: [] if run.given.get("pin_memory") else [("pinned memory", True)],
        gains.pinned,
        device="cuda",
        with_option="data",
    ),
    RunOption("allocator", _allocators, gains.allocator, sets="environment", tried_in_code=True),
)
BY_NAME = {option.name: option for option in OPTIONS}
FACTS = tuple(fact for option in OPTIONS for fact in option.facts)


def predict(
    change: Change, analysis: Analysis, costs: PageCosts | None = None, replays: Replays | None = None
) -> Prediction | None:
    """Return what ``change`` gains for the run of ``analysis``; None where nothing in the analysis tells.

    ``costs`` are those of new memory on this machine; without them a page costs what it did in the run. What
    goes of a step goes in its ``replays``; without them, the step is as much shorter.
    """
    step = PredictedStep(analysis, costs)
    gain = gain_of(change, step)
    if gain is None:
        return None
    edit = replays.edit(gain.of, launches=False) if replays is not None else None
    if replays is None or edit is None:
        return Prediction(speedup=gain.speedup, reason=gain.reason)
    return Prediction(speedup=step.saved(replays.gains_s([edit])[0]), reason=gain.reason)


def gain_of(change: Change, step: PredictedStep) -> Gain | None:
    """What ``change`` takes out of a step; None where nothing tells."""
    option = BY_NAME.get(change.kind.replace("-", "_"))
    return option.gain(change, step) if step.whole_s and option and option.gain else None
