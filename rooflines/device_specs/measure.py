"""Ceilings measured on this machine: runs the micro-benchmarks of ``rooflines.kernels.micro`` and remembers what they found.

Every figure is the median of repeats after the clock has settled, with their coefficient of variation as its spread; its source says
which kernel, how many threads and how many repeats. Measuring takes seconds, so the result is kept in the user's cache directory
under a fingerprint of everything that could change it.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from rooflines.device_specs import detect
from rooflines.device_specs.records import Ceiling, Ceilings, Precision, Source
from rooflines.errors import DataError, DeviceError
from rooflines.serial import from_plain, read_json, to_plain, write_json
from rooflines.units import binary_bytes, si

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from rooflines.kernels.micro.repeats import Repeats, Sample, Timing
    from rooflines.kernels.micro.team import Team

Access = Literal["read", "copy", "triad"]
Progress = Callable[[str], None]

# Part of the fingerprint: raise it when a kernel or the way it is timed changes, so that older cached figures are measured again.
METHOD = 1
BUDGET_S = 12.0

# A measurement that other processes disturbed serves the session it was made in; after this it is made anew.
_DISTURBED = "disturbed"
_DISTURBED_AGE = datetime.timedelta(hours=1)

_SAMPLE_S = 0.02  # one sample lasts long enough for the threads' start and the clock's resolution not to matter
_SMALLEST_DRAM = 256 << 20
_CACHES_PER_DRAM = 4  # STREAM's rule: each array at least four times the last cache
_SLOWEST_GEMM = 1 / 20  # of fp32, for the half precisions on a CPU; slower means emulated element by element
_LONGEST_CALLS = 2  # shares of the budget: a shape whose product would take longer is not tried

# FP32 FLOP per multiprocessor and cycle, FMA = 2, by compute capability: CUDA C++ Best Practices Guide, "Throughput of Native
# Arithmetic Instructions" (results per cycle, times 2).
_FP32_PER_SM_CYCLE = {
    (5, 0): 256, (5, 2): 256, (5, 3): 256, (6, 0): 128, (6, 1): 256, (6, 2): 256, (7, 0): 128, (7, 2): 128, (7, 5): 128, (8, 0): 128,
    (8, 6): 256, (8, 7): 256, (8, 9): 256, (9, 0): 256, (10, 0): 256, (10, 3): 256, (12, 0): 256, (12, 1): 256,
}  # fmt: skip


def measure(
    device: str = "cpu",
    *,
    threads: int | None = None,
    remeasure: bool = False,
    progress: Progress | None = None,
    budget_s: float = BUDGET_S,
) -> Ceilings:
    """Ceilings of ``device`` (``cpu``, ``cuda:0``, ``mps``), from the user's cache where it has them, else measured now and cached.

    The cache is asked for the same device, driver, thread count (``threads``, on a CPU; torch's own by default), packages and
    ``budget_s``, the seconds that repeats may take in all. ``progress`` is told each figure as it is found. Raises DeviceError for a
    device that is not there.
    """
    import torch

    progress = progress or _silent
    target = _device(device)
    threads = max(1, threads or torch.get_num_threads()) if target.type == "cpu" else None
    facts = _facts(target, threads, budget_s)
    fingerprint = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    path = _cache_directory() / f"{target.type}-{fingerprint}.json"
    if not remeasure:
        known = _cached(path, fingerprint)
        if known is not None:
            return known
    found: list[Ceiling] = []
    meter = _Meter(budget_s, found, progress)
    with torch.no_grad():
        if target.type == "cpu":
            _measure_cpu(meter, threads or 1)
        elif target.type == "cuda":
            _measure_cuda(meter, target)
        else:
            _measure_mps(meter, target)
    ceilings = Ceilings(
        device=facts["name"],
        kind=target.type,
        ceilings=tuple(found),
        fingerprint=fingerprint,
        measured_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, ceilings)
    except OSError as error:
        progress(f"ceilings not cached: {error}")
    return ceilings


def load_file(path: Path) -> Ceilings:
    """Ceilings from a JSON file: a stored ``Ceilings`` record, or anything with a list ``ceilings`` of them, such as analysis.json.

    Raises DataError, naming the field, where the file is neither.
    """
    hint = "Write one with `rooflines ceilings --format json`, or see docs/ceilings.md for the fields."
    try:
        plain = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise DataError(f'cannot read the ceilings file "{path}": {error.strerror or error}.', hint=hint) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f'the ceilings file "{path}" is not JSON: {error}.', hint=hint) from None
    if not isinstance(plain, dict) or not isinstance(plain.get("ceilings"), (list, dict)):
        raise DataError(f'the ceilings file "{path}" has no list "ceilings".', hint=hint)
    if isinstance(plain["ceilings"], dict):  # run.json keeps the whole record
        plain = plain["ceilings"]
    environment = plain.get("environment")
    environment = environment if isinstance(environment, dict) else {}
    whole = {
        "device": environment.get("device_name", path.stem),
        "kind": str(environment.get("device", "")).split(":")[0],
        **plain,
    }
    try:
        ceilings = from_plain(whole, Ceilings)
    except msgspec.ValidationError as error:
        raise DataError(f'the ceilings file "{path}" does not hold ceilings: {error}.', hint=hint) from None
    if not ceilings.ceilings:
        raise DataError(f'the ceilings file "{path}" holds no ceiling.', hint=hint)
    for ceiling in ceilings.ceilings:
        if not (math.isfinite(ceiling.value) and ceiling.value > 0):
            raise DataError(f'the ceilings file "{path}" gives "{ceiling.name}" as {ceiling.value}, not a positive number.', hint=hint)
    return ceilings


def age(ceilings: Ceilings) -> datetime.timedelta | None:
    """How long ago ``ceilings`` were measured, or None where they do not say."""
    try:
        then = datetime.datetime.fromisoformat(ceilings.measured_at)
    except ValueError:
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=datetime.timezone.utc)
    return datetime.datetime.now(datetime.timezone.utc) - then


class _Meter:
    """Takes one figure after the other, each with its share of the budget, and appends it to ``found`` as a ceiling."""

    def __init__(self, budget_s: float, found: list[Ceiling], progress: Progress) -> None:
        self.share_s = budget_s / 24  # figures of one device; most settle long before their share is spent
        self.sample_s = min(_SAMPLE_S, self.share_s / 10)
        self.found = found
        self.progress = progress
        # on a machine that is never quiet every figure would spend all it may, twice
        self._deadline = time.perf_counter() + budget_s
        self._date = datetime.date.today().isoformat()

    def settle(self, sample: Callable[[], Sample]) -> Repeats:
        """Repeats of ``sample`` within its share of the budget; once the whole budget is spent, in a hurry."""
        from rooflines.kernels.micro.repeats import settle

        hurry = time.perf_counter() > self._deadline
        return settle(sample, 0.0 if hurry else self.share_s, again=not hurry)

    def rate(self, work: float, run: Callable[[int], Timing], *, private: bool = False) -> Repeats:
        """Repeats of a rate: ``work`` (FLOP or bytes) per call over the time that ``run(calls)`` returns.

        Where each thread uses nothing but its own core (``private``), the rate is per processor time, the share of the core that the
        thread had: on a machine that is never quiet, this is still what the core does.
        """
        from rooflines.kernels.micro.repeats import Sample, calls_for

        calls = calls_for(self.sample_s, run)

        def sample() -> Sample:
            seconds, busy = run(calls)
            return Sample(work * calls / (seconds * busy)) if private else Sample(work * calls / seconds, busy)

        return self.settle(sample)

    def latency(self, calls: int, run: Callable[[int], Timing]) -> Repeats:
        """Repeats of the time per call, over ``calls`` calls."""
        from rooflines.kernels.micro.repeats import Sample

        def sample() -> Sample:
            seconds, busy = run(calls)
            return Sample(seconds / calls, busy)

        return self.settle(sample)

    def add(self, repeats: Repeats, detail: str, **fields: Any) -> Ceiling:
        """Keep ``repeats`` as the ceiling with ``fields``; ``detail`` says how it was measured."""
        from rooflines.kernels.micro.repeats import REPEATS

        detail = f"{detail}, median of the last {REPEATS} of {repeats.taken} repeats"
        if repeats.disturbed:
            detail += f", {_DISTURBED}: other processes used the same cores"
        if repeats.unstable:
            detail += ", unstable"
        source = Source(kind="measured", detail=detail, date=self._date)
        return self.keep(Ceiling(value=repeats.median, spread=repeats.spread, source=source, **fields))

    def derive(self, detail: str, **fields: Any) -> Ceiling:
        """Keep a figure that was computed, not measured."""
        return self.keep(Ceiling(source=Source(kind="derived", detail=detail, date=self._date), **fields))

    def keep(self, ceiling: Ceiling) -> Ceiling:
        self.found.append(ceiling)
        self.progress(f"{ceiling.name}: {si(ceiling.value, ceiling.unit)}")
        return ceiling


# --- CPU ---------------------------------------------------------------------------------------------------------------------------


def _measure_cpu(meter: _Meter, threads: int) -> None:
    import torch

    from rooflines.kernels.micro.team import Team

    device = torch.device("cpu")
    with Team(threads) as team:
        for precision in ("fp32", "fp64"):
            _fma(meter, team, precision)
        _cpu_memory(meter, team)
    with _torch_threads(threads):
        sides = ((1024, 1024, 1024), (2048, 2048, 2048), (3136, 256, 2304))  # the last: a 3x3 convolution of ResNet-50 as a product
        precisions: tuple[Precision, ...] = ("fp32", "fp64", "bf16", "fp16")
        for precision in precisions:
            library = "oneDNN" if precision in ("bf16", "fp16") else _blas()
            _gemm(meter, device, precision, sides, 256, f"{library}, {_threads(threads)}")
    _operator_dispatch(meter)


def _fma(meter: _Meter, team: Team, precision: Literal["fp32", "fp64"]) -> None:
    import numpy as np

    from rooflines.kernels.micro import fma, vectors

    dtype = {"fp32": np.float32, "fp64": np.float64}[precision]
    # a page for each thread's values: stores of one thread never touch another thread's cache lines
    values = [np.ones(max(fma.lanes(dtype), 4096), dtype=dtype)[: fma.lanes(dtype)] for _ in range(team.size)]
    scale, shift = dtype(0.5), dtype(1.0)

    def run(thousands: int) -> Timing:
        return team.run([partial(fma.recur, own, scale, shift, 1000 * thousands) for own in values])

    run(1)  # compiles
    repeats = meter.rate(fma.flops(dtype, 1000) * team.size, run, private=True)
    recurrences = f"{fma.ACCUMULATORS} independent {vectors.vector_bytes() * 8}-bit FMA recurrences (Numba)"
    detail = f"{recurrences}, {_threads(team.size)}, per processor time"
    meter.add(repeats, detail, kind="compute", name=f"FMA {precision}", unit="FLOP/s", precision=precision, engine="vector",
              accumulate=precision)  # fmt: skip


def _cpu_memory(meter: _Meter, team: Team) -> None:
    """Bandwidth of every level, outermost first, so that a cache slower than what lies behind it is noticed and measured again."""
    caches = detect.cpu().caches
    outside: dict[Access, Ceiling] = {}
    last_cache_bytes = max((cache.size_bytes * cache.instances for cache in caches), default=0)
    available = detect.memory_available_bytes()
    wanted = max(_SMALLEST_DRAM, _CACHES_PER_DRAM * last_cache_bytes)
    array_bytes = min(wanted, available // 4 // 3)  # three arrays in at most a quarter of what is free
    detail = f"arrays of {binary_bytes(array_bytes)}"
    if array_bytes < wanted:
        detail += f" (memory is short: {binary_bytes(wanted)} would be needed)"
    arrays = _arrays(team, array_bytes)
    for access in ("read", "copy", "triad"):
        outside[access] = _bandwidth(meter, team, arrays, access, "DRAM", None, detail, None, False)
    del arrays
    for cache in reversed(caches):
        capacity = cache.capacity_bytes(team.size)
        accesses: tuple[Access, ...] = ("read", "copy", "triad")
        for access in accesses:
            count = {"read": 1, "copy": 2, "triad": 3}[access]
            arrays = _arrays(team, capacity // 2 // count, count)
            detail = f"working set {binary_bytes(capacity // 2)}"
            private = cache.instances >= team.size
            outside[access] = _bandwidth(meter, team, arrays, access, cache.level, capacity, detail, outside[access], private)


def _arrays(team: Team, size_bytes: int, count: int = 3) -> list[list[NDArray[Any]]]:
    """``count`` arrays of about ``size_bytes``, each cut into one slice per thread that only this thread has written.

    Memory lies on the NUMA node of the thread that first writes it. Each thread's slices are cut to whole vectors for the kernels.
    """
    from rooflines.kernels.micro import stream

    step = stream.granule()
    elements = max(step, size_bytes // 8 // team.size // step * step)
    slices = [[stream.aligned(elements) for _ in range(team.size)] for _ in range(count)]
    for array in slices:
        team.run([partial(own.fill, 1.0) for own in array])
    return slices


def _bandwidth(
    meter: _Meter,
    team: Team,
    arrays: list[list[NDArray[Any]]],
    access: Access,
    level: str,
    capacity: int | None,
    detail: str,
    outside: Ceiling | None,
    private: bool,
) -> Ceiling:
    """Measure ``access`` on each thread's slices of ``arrays``.

    ``outside`` is the same access of the next level outwards; ``private`` says that no two threads share an instance of this level.
    """
    import numpy as np

    from rooflines.kernels.micro import stream

    count = {"read": 1, "copy": 2, "triad": 3}[access]
    slices = list(zip(*arrays[:count], strict=True))  # one tuple of arrays per thread
    work = sum(array.nbytes for array in arrays[0]) * count

    def job(own: tuple[NDArray[Any], ...], passes: int) -> Callable[[], object]:
        if access == "read":
            return partial(stream.read, own[0].view(np.int64), passes)
        if access == "copy":
            return partial(stream.copy, own[0], own[1], passes)
        return partial(stream.triad, own[0], own[1], own[2], 3.0, passes)

    def run(passes: int) -> Timing:
        return team.run([job(own, passes) for own in slices])

    if private:
        detail += ", per processor time"
    run(1)  # compiles, and brings the slices into the cache
    repeats = meter.rate(work, run, private=private)
    if outside is not None and repeats.median < outside.value:
        again = meter.rate(work, run, private=private)
        repeats = max(repeats, again, key=lambda one: (not one.disturbed, one.median))
        if repeats.median < outside.value:
            detail += f", slower than {outside.level}"
    return meter.add(repeats, f"{access} kernel (Numba), {detail}, {_threads(team.size)}", kind="memory", name=f"{level} {access}",
                     unit="B/s", level=level, access=access, capacity_bytes=capacity)  # fmt: skip


def _operator_dispatch(meter: _Meter) -> None:
    from rooflines.kernels.micro import dispatch

    calls = max(100, int(meter.sample_s / 0.4e-6))
    repeats = meter.settle(partial(dispatch.operator_seconds, calls))
    if repeats.median > 0:
        meter.add(repeats, f"aten::zero_ on one element less the Python call around it, {calls} calls, processor time", kind="latency",
                  name="operator dispatch", unit="s")  # fmt: skip


# --- any torch device --------------------------------------------------------------------------------------------------------------


def _gemm(
    meter: _Meter,
    device: torch.device,
    precision: Precision,
    shapes: tuple[tuple[int, int, int], ...],
    trial_side: int,
    detail: str,
) -> None:
    """The fastest matrix product of ``precision`` among ``shapes`` [m, n, k] that fit the memory and the time.

    A product of ``trial_side`` cubed tells first whether the device has the precision at all; it is measured where no other fits.
    """
    import torch

    from rooflines.kernels.micro import clock, matmul

    def trial(shape: tuple[int, int, int]) -> float:
        multiply = matmul.multiplication(shape, precision, device)
        multiply()  # the first call chooses a kernel and allocates its workspace
        best, deadline = math.inf, time.perf_counter() + meter.share_s / 2
        for _ in range(3):
            best = min(best, clock.timed(device, multiply, 1).seconds)
            if time.perf_counter() > deadline:
                break
        return best

    with matmul.float32_matmul(precision):
        try:
            small = (trial_side,) * 3
            if device.type == "cpu":
                # alone: a thread that is kept from its core would make all others wait at the end of so short a product
                threads = torch.get_num_threads()
                with _torch_threads(1):
                    rate = matmul.flops(small) / trial(small) * threads
            else:
                rate = matmul.flops(small) / trial(small)
        except (RuntimeError, TypeError) as error:  # no such product on this device: the message is torch's
            meter.progress(f"GEMM {precision}: not available ({str(error).splitlines()[0]})")
            return
        fp32 = max((one.value for one in meter.found if one.kind == "compute" and one.precision == "fp32"), default=0.0)
        if device.type == "cpu" and precision in ("bf16", "fp16") and rate < fp32 * _SLOWEST_GEMM:
            meter.progress(f"GEMM {precision}: skipped, emulated at {si(rate, 'FLOP/s')}")
            return
        free = _free_bytes(device)
        rates: dict[tuple[int, int, int], float] = {}
        for shape in shapes:
            fits = matmul.footprint_bytes(shape, "fp32") * 2 < free / 2  # operands are made in fp32
            if fits and matmul.flops(shape) / max(rate, *rates.values(), 0.0) < _LONGEST_CALLS * meter.share_s:
                rates[shape] = matmul.flops(shape) / trial(shape)
        best = max(rates, key=lambda shape: rates[shape], default=small)
        multiply = matmul.multiplication(best, precision, device)
        repeats = meter.rate(matmul.flops(best), partial(clock.timed, device, multiply))
    m, n, k = best
    meter.add(repeats, f"torch.mm [{m}, {k}] @ [{k}, {n}] ({detail})", kind="compute", name=f"GEMM {precision}", unit="FLOP/s",
              precision=precision, engine="matrix", accumulate="fp64" if precision == "fp64" else "fp32")  # fmt: skip


def _free_bytes(device: torch.device) -> int:
    import torch

    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return detect.memory_available_bytes()


def _transfers(meter: _Meter, device: torch.device, level: str, size_bytes: int, accesses: tuple[Access, ...]) -> None:
    """Bandwidth of the device's outermost memory by torch operators on float32 tensors of ``size_bytes``."""
    from rooflines.kernels.micro import clock, transfer

    first, second, target = transfer.operands(size_bytes, device)
    calls = {
        "read": lambda: transfer.read(first),
        "copy": lambda: transfer.copy(first, target),
        "triad": lambda: transfer.triad(first, second, target),
    }
    operator = {"read": "torch.sum", "copy": "Tensor.copy_", "triad": "torch.add(alpha=)"}
    for access in accesses:
        call, work = calls[access]()
        call()
        repeats = meter.rate(work, partial(clock.timed, device, call))
        meter.add(repeats, f"{operator[access]} on tensors of {binary_bytes(size_bytes)}", kind="memory", name=f"{level} {access}",
                  unit="B/s", level=level, access=access)  # fmt: skip


# --- CUDA --------------------------------------------------------------------------------------------------------------------------


def _measure_cuda(meter: _Meter, device: torch.device) -> None:
    import torch

    facts = detect.gpu(device.index)
    nvidia = torch.version.hip is None
    with torch.cuda.device(device):
        try:
            if nvidia:
                _derived_fp32(meter, facts)
            capability = facts.compute_capability
            precisions: list[Precision] = ["fp32", "fp64", "fp16"]
            if not nvidia or capability >= (8, 0):
                precisions += ["bf16"]
            if nvidia and capability >= (8, 0):
                precisions += ["tf32"]
            for precision in precisions:
                sides = (4096, 8192, 16384)
                with _enough_memory(meter, f"GEMM {precision}"):
                    _gemm(meter, device, precision, tuple((side,) * 3 for side in sides), 1024, "cuBLAS" if nvidia else "hipBLAS")
                torch.cuda.empty_cache()
            with _enough_memory(meter, "memory"):
                size = max(min(1 << 30, _free_bytes(device) // 8), 1 << 20)
                _transfers(meter, device, "HBM", size, ("read", "copy", "triad"))
            torch.cuda.empty_cache()
            if facts.l2_bytes:
                with _enough_memory(meter, "L2 read"):
                    _gpu_l2(meter, device, facts.l2_bytes)
            _kernel_launch(meter, device)
        finally:
            torch.cuda.empty_cache()


@contextlib.contextmanager
def _enough_memory(meter: _Meter, what: str) -> Iterator[None]:
    """Leave a figure out, and say so, where the device has no room for it: another process may hold the memory."""
    import torch

    try:
        yield
    except torch.cuda.OutOfMemoryError:
        meter.progress(f"{what}: not enough free memory on the device")


def _derived_fp32(meter: _Meter, gpu: detect.Gpu) -> None:
    """Vector FP32 as multiprocessors x rate x highest clock, where all three are known exactly.

    Not for the H20, whose advertised rate does not follow from its multiprocessors and clock.
    """
    rate = _FP32_PER_SM_CYCLE.get(gpu.compute_capability)
    if rate is None or gpu.sm_clock_hz is None or re.search(r"\bH20\b", gpu.name):
        return
    major, minor = gpu.compute_capability
    detail = (
        f"{gpu.multiprocessors} multiprocessors x {rate} FLOP per cycle (compute capability {major}.{minor}) x"
        f" {si(gpu.sm_clock_hz, 'Hz', 4)}, the driver's highest clock"
    )
    meter.derive(detail, kind="compute", name="FMA fp32", value=gpu.multiprocessors * rate * gpu.sm_clock_hz, unit="FLOP/s",
                 precision="fp32", engine="vector", accumulate="fp32")  # fmt: skip


def _gpu_l2(meter: _Meter, device: torch.device, l2_bytes: int) -> None:
    """Read bandwidth of the L2 cache; left out where it does not come out above the memory behind it."""
    import torch

    from rooflines.kernels.micro import clock, transfer

    source = torch.ones(l2_bytes // 2 // 4, device=device)
    call, work = transfer.repeated_read(source, 64)
    call()
    repeats = meter.rate(work, partial(clock.timed, device, call))
    behind = max((one.value for one in meter.found if one.level == "HBM"), default=0.0)
    if repeats.median <= behind:
        meter.progress(f"L2 read: left out, {si(repeats.median, 'B/s')} is not above the device memory")
        return
    meter.add(repeats, f"torch.sum 64 times over {binary_bytes(source.nbytes)} in one kernel", kind="memory", name="L2 read",
              unit="B/s", level="L2", access="read", capacity_bytes=l2_bytes)  # fmt: skip


def _kernel_launch(meter: _Meter, device: torch.device) -> None:
    """Two latencies: of a kernel among kernels already queued on the device, and of an eager operator sent by the host.

    The first is the lower bound of a kernel's duration, the second the pace at which Python can feed the device.
    """
    import torch

    from rooflines.kernels.micro import clock, dispatch

    launches = 1000
    replay = dispatch.launch_graph(device, launches)
    replay()
    repeats = meter.latency(5, partial(clock.timed, device, replay))
    repeats = repeats._replace(median=repeats.median / launches)
    meter.add(repeats, f"aten::add_ on one element, {launches} times in a CUDA graph", kind="latency", name="kernel launch", unit="s")
    with torch.inference_mode():
        tensor = dispatch.smallest_kernel(device)
        clock.timed(device, tensor.zero_, 100)
        repeats = meter.latency(launches, partial(clock.timed, device, tensor.zero_))
    meter.add(repeats, f"aten::zero_ on one element, {launches} times in a row", kind="latency", name="operator dispatch", unit="s")


# --- MPS ---------------------------------------------------------------------------------------------------------------------------


def _measure_mps(meter: _Meter, device: torch.device) -> None:
    import torch

    from rooflines.kernels.micro import clock, dispatch

    for precision in ("fp32", "fp16"):
        _gemm(meter, device, precision, ((2048,) * 3, (4096,) * 3), 512, "Metal")
    size = max(min(_SMALLEST_DRAM, detect.memory_available_bytes() // 8), 1 << 20)
    _transfers(meter, device, "DRAM", size, ("copy", "triad"))
    with torch.inference_mode():
        tensor = dispatch.smallest_kernel(device)
        clock.timed(device, tensor.zero_, 100)
        repeats = meter.latency(1000, partial(clock.timed, device, tensor.zero_))
    meter.add(repeats, "aten::zero_ on one element, 1000 times in a row", kind="latency", name="operator dispatch", unit="s")


# --- devices, threads, the cache ---------------------------------------------------------------------------------------------------


def _device(name: str) -> torch.device:
    """``name`` as a torch device with its index; DeviceError where it is not on this machine."""
    import torch

    kinds = "Use cpu, cuda:0 or mps."
    try:
        device = torch.device(name)
    except RuntimeError:
        raise DeviceError(f'"{name}" is not a device.', hint=kinds) from None
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            raise DeviceError(
                f'"{name}" was asked for, but torch {torch.__version__} sees no GPU.',
                hint="Use --device cpu, or install a CUDA build of torch and check that nvidia-smi lists the GPU.",
            )
        index = torch.cuda.current_device() if device.index is None else device.index
        if index >= count:
            raise DeviceError(f'"{name}" was asked for, but the last GPU is cuda:{count - 1}.', hint=f"torch sees {count}.")
        return torch.device("cuda", index)
    if device.type == "mps":
        if not torch.backends.mps.is_available():
            raise DeviceError(f'"{name}" was asked for, but torch sees no Apple GPU.', hint="Use --device cpu.")
        return torch.device("mps")
    raise DeviceError(f'"{name}" is a device that rooflines cannot measure.', hint=kinds)


def _facts(device: torch.device, threads: int | None, budget_s: float) -> dict[str, Any]:
    """Everything that could change a measured figure; its hash is the fingerprint. ``name`` is the device's."""
    from importlib.metadata import version

    import torch

    packages = {name: version(name) for name in ("torch", "numba", "llvmlite", "numpy")}
    facts: dict[str, Any] = {"method": METHOD, "kind": device.type, "packages": packages, "budget_s": budget_s}
    cpu = detect.cpu()
    if device.type == "cuda":
        gpu = detect.gpu(device.index)
        return facts | {"name": gpu.name, "gpu": to_plain(gpu), "cuda": torch.version.cuda, "hip": torch.version.hip}
    return facts | {"name": cpu.name, "cpu": to_plain(cpu), "threads": threads, "cpus": len(detect.usable_cpus())}


@contextlib.contextmanager
def _torch_threads(threads: int) -> Iterator[None]:
    """Inside, torch's operators use ``threads`` threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _blas() -> str:
    """The library behind torch's float32 and float64 products on this CPU."""
    import torch

    if torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return "MKL"
    return "Accelerate" if detect.cpu().machine == "arm64" else "BLAS"


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _cache_directory() -> Path:
    import platformdirs

    return Path(os.environ.get("ROOFLINES_CACHE_DIR") or platformdirs.user_cache_dir("rooflines")) / "ceilings"


def _cached(path: Path, fingerprint: str) -> Ceilings | None:
    """The ceilings stored at ``path``, or None where there are none that can be read and belong to ``fingerprint``."""
    try:
        ceilings = read_json(path, Ceilings)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if ceilings.fingerprint != fingerprint or not ceilings.ceilings:
        return None
    disturbed = any(_DISTURBED in ceiling.source.detail for ceiling in ceilings.ceilings)
    since = age(ceilings)
    return None if disturbed and (since is None or since > _DISTURBED_AGE) else ceilings


def _silent(_: str) -> None:
    """Progress that nobody listens to."""
