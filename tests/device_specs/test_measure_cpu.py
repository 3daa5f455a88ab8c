"""The full set of a CPU's ceilings, and how a level's working set is chosen; no test asserts how fast this machine is."""

import os

import numpy as np
import pytest
import torch

from rooflines.device_specs import detect, measure_cpu
from rooflines.device_specs.detect import Cache
from rooflines.device_specs.history import best_of
from rooflines.device_specs.plan import Plan
from rooflines.device_specs.records import Ceilings, marks_of
from rooflines.device_specs.rounds import Way, ready
from rooflines.kernels.micro import ladder, stream
from rooflines.kernels.micro.repeats import Timing
from rooflines.kernels.micro.team import Team

MIB = 1 << 20
LEVELS = [cache.level for cache in detect.cpu().caches] + ["DRAM"]


@pytest.mark.slow
def test_the_full_set_has_every_further_roof():
    plan = Plan(0.05, lambda _: None, 2)
    threads_before = torch.get_num_threads()
    affinity_before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    with torch.no_grad():
        measure_cpu.measure_cpu(plan, 2, full=True)
    found = Ceilings(device="", kind="cpu", ceilings=best_of([plan.session(full=True, seconds=1.0)]))
    keys = {(one.name, one.variant) for one in found.ceilings}
    assert len(keys) == len({one.key for one in found.ceilings}) == len(found.ceilings)
    for precision in ("fp32", "fp64"):
        assert {(f"FMA {precision}", variant) for variant in ("", "scalar", "no FMA", "1 thread")} <= keys
    for level in LEVELS:
        for access in ("read", "write", "update", "copy", "triad"):
            assert {(f"{level} {access}", ""), (f"{level} {access}", "1 thread")} <= keys
    for access in ("write", "copy", "triad"):
        (other,) = {"ordinary stores", "non-temporal stores"} & {one.variant for one in found.ceilings if one.name == f"DRAM {access}"}
        (main,) = (one for one in found.main("memory") if one.name == f"DRAM {access}")
        assert other not in main.source.detail
    assert {("operator dispatch", variant) for variant in ("", "NumPy", "Numba")} <= keys
    for one in found.ceilings:
        assert one.value > 0
        assert one.spread is not None
        assert one.unit == ("OP/s" if one.precision == "int8" else {"compute": "FLOP/s", "memory": "B/s", "latency": "s"}[one.kind])
        if one.kind == "memory":
            assert one.threads == (1 if one.variant == "1 thread" else 2)
        # a disturbed round that is better than every quiet one counts, and no quiet one agrees with it
        assert (0 if "disturbed" in marks_of(one) else 1) <= one.agreeing <= one.rounds
    assert plan.clock_hz is None or plan.clock_hz > 0
    assert found.latency().name == "operator dispatch"
    assert found.latency().variant == ""
    # SIMD is what a scalar kernel lacks: one lane instead of four or more
    assert found.compute("fp32", "vector").value > next(
        one.value for one in found.ceilings if (one.name, one.variant) == ("FMA fp32", "scalar")
    )
    assert torch.get_num_threads() == threads_before
    if affinity_before is not None:
        assert os.sched_getaffinity(0) == affinity_before


@pytest.fixture
def machine(monkeypatch):
    """Pretend that this machine has private caches of these sizes."""

    def pretend(*sizes):
        caches = tuple(Cache(level=f"L{number}", size_bytes=size, instances=1) for number, size in enumerate(sizes, start=1))
        monkeypatch.setattr(detect, "cpu", lambda: detect.Cpu(name="", machine="x86_64", caches=caches))

    return pretend


@pytest.mark.parametrize(("sizes", "working_sets"), [
    ((1 * MIB, 32 * MIB), (16 * MIB, 3 * MIB)),  # half of it, and three times L1, which is there even if strangers share the rest
    ((1 * MIB, 4 * MIB), (2 * MIB,)),  # too small to leave room for a choice
    ((4 * MIB,), (2 * MIB,)),
], ids=["large", "small", "only one"])  # fmt: skip
def test_working_sets_of_the_last_cache(machine, sizes, working_sets):
    machine(*sizes)
    assert measure_cpu.working_sets(len(sizes) - 1, 1) == working_sets
    assert measure_cpu.working_sets(0, 1) == (sizes[0] // 2,)


@pytest.fixture
def arrays(machine, monkeypatch):
    """The memory of two threads on a small machine, and what the kernels were called with: positions in 8-byte elements."""
    machine(32 << 10, 1 * MIB)
    monkeypatch.setattr(measure_cpu, "_SMALLEST_DRAM", 4 * MIB)
    with Team(2) as team:
        yield measure_cpu._Memory(team), team


def starts(monkeypatch, slices, run, calls):
    """Where in their slice the operands of each kernel call of the first thread started."""
    seen = []
    first = slices[0].ctypes.data

    def kernel(*arguments):
        operands = [one.ctypes.data for one in arguments if hasattr(one, "ctypes")]
        if first <= operands[0] < first + slices[0].nbytes:
            seen.append([(one - first) // 8 for one in operands])

    for name in ("read", "copy", "triad"):
        monkeypatch.setattr(stream, name, kernel)
    run()(calls)
    return seen


def test_memory_is_walked_by_segments_and_none_twice_before_all_others(arrays, monkeypatch):
    memory, team = arrays
    place = memory.of(team, [[0], [1]])
    segment = len(memory.slices[0]) // measure_cpu._SEGMENTS
    reads = starts(monkeypatch, memory.slices, lambda: place.segments("read", False)[0], 30)
    triads = starts(monkeypatch, memory.slices, lambda: place.segments("triad", False)[0], 8)
    used = [start // segment for call in (*reads, *triads) for start in call]
    assert used == [number % measure_cpu._SEGMENTS for number in range(30 + 24)]
    # 8 bytes an element and thread; a triad moves three arrays
    assert place.segments("read", False)[1] == 8 * segment * 2
    assert place.segments("triad", False)[1] == 3 * 8 * segment * 2


@pytest.mark.parametrize("past_caches", [False, True])
@pytest.mark.parametrize("access", ["read", "write", "update", "copy", "triad"])
def test_the_bytes_of_a_pass_are_those_that_the_kernel_reads_and_writes(arrays, access, past_caches):
    """Which arrays it reads and which it writes is found out by running it: other values change the result, or they are changed."""
    if past_caches and access in ("read", "update"):
        pytest.skip("has no such kernel")
    memory, team = arrays
    kernel = getattr(stream, f"{access}_past_caches" if past_caches else access)
    scalars = (3.0,) if access == "triad" else ()
    count, length = {"copy": 2, "triad": 3}.get(access, 1), 8 * stream.granule()

    def ran(changed=None):
        """The arrays before and after a pass, and what it returned; one array may start with other values."""
        before = [np.random.default_rng(number + 7 * (number == changed)).random(length) for number in range(count)]
        given = [stream.aligned_array(length) for _ in before]
        for array, values in zip(given, before, strict=True):
            array[:] = values
        returned = kernel(*(array.view("int64") if access == "read" else array for array in given), *scalars, 1)
        return before, [array.copy() for array in given], returned

    before, after, returned = ran()
    written = [number for number in range(count) if (after[number] != before[number]).any()]
    read = []
    for number in range(count):
        _, other, other_returned = ran(number)
        if other_returned != returned or any((other[one] != after[one]).any() for one in written):
            read.append(number)
    moved = len(read) + len(written)
    place = memory.of(team, [[0], [1]])
    segment = len(memory.slices[0]) // measure_cpu._SEGMENTS
    assert place.segments(access, past_caches)[1] == 8 * segment * 2 * moved
    window = place.window(access, 64 << 10)[1]
    assert window == pytest.approx((64 << 10) / count * moved, rel=0.05), "rounded to whole vectors"


def test_one_thread_alone_walks_the_slices_of_its_node_by_turns(arrays):
    memory, _ = arrays
    with Team(1) as alone:
        run, moved = memory.of(alone, [[0, 1]]).segments("copy", False)
        assert run(4).seconds > 0
    assert memory.next == 2 * 2  # two turns of two slices, each of two segments
    assert moved == 2 * 8 * (len(memory.slices[0]) // measure_cpu._SEGMENTS)


def test_a_cache_is_measured_in_another_place_after_memory_was(arrays, monkeypatch):
    memory, team = arrays
    place = memory.of(team, [[0], [1]])
    assert place.window("copy", 64 << 10)[1] == 64 << 10  # half of it read and half written
    found = []
    for _ in range(3):
        found += starts(monkeypatch, memory.slices, lambda: place.window("copy", 64 << 10)[0], 1)
        memory.next += 7
    assert len({call[0] for call in found}) == 3
    assert all(second - first == (64 << 10) // 8 // 2 // 2 for first, second in found)
    memory.next = measure_cpu._SEGMENTS - 1  # the last place has room for all of it
    assert place.window("copy", 4 * MIB)[0](1).seconds > 0


def test_a_cache_that_ends_elsewhere_is_said_to(machine, monkeypatch):
    machine(32 << 10, 64 * MIB)
    said = []
    plan = Plan(0.0, said.append)
    sizes = [round((8 << 10) * 2 ** (number / 2)) for number in range(30)]
    points = [ladder.LadderPoint(size, 400e9 if size <= 32 << 10 else 40e9 if size <= 8 * MIB else 10e9) for size in sizes]
    monkeypatch.setattr(ladder, "curve", lambda team, largest: points)
    with Team(1) as team:
        measure_cpu._check_caches(plan, team)
    for level in ("L1", "L2", "DRAM"):
        plan.figure(Way("kernel", ready(lambda calls: Timing(1.0), 1.0)), kind="memory", name=f"{level} read", unit="B/s", level=level)
    plan.measure()
    found = best_of([plan.session(full=True, seconds=1.0)])
    noted = {one.level: one.source.detail for one in found if "slow down beyond" in one.source.detail}
    assert noted == {"L2": "kernel, but reads slow down beyond 8.00 MiB, not 64.0 MiB as stated"}
    assert said[0] == "L2, but reads slow down beyond 8.00 MiB, not 64.0 MiB as stated"
