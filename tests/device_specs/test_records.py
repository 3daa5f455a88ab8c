"""The laws of the lookups: which ceiling applies to which work."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.device_specs.laws import broken
from rooflines.device_specs.records import Ceiling, Ceilings, Source
from tests import samples

CEILINGS = Ceilings(device="laptop", kind="cpu", ceilings=samples.ceilings())
EMPTY = Ceilings(device="", kind="", ceilings=())


def test_compute_roofs():
    # Vector work has the vector roof.
    assert CEILINGS.compute("fp32", "vector").name == "FMA fp32"
    assert CEILINGS.compute("fp64", "vector").name == "FMA fp64"
    # Matrix work has the higher of both roofs.
    assert CEILINGS.compute("fp32", "matrix").name == "FMA fp32"
    assert CEILINGS.compute("bf16", "matrix").name == "GEMM bf16"
    gemm = msgspec.structs.replace(CEILINGS.ceilings[0], name="GEMM fp32", engine="matrix", value=500e9)
    more = msgspec.structs.replace(CEILINGS, ceilings=(*CEILINGS.ceilings, gemm))
    assert more.compute("fp32", "matrix").name == "GEMM fp32"
    assert more.compute("fp32", "vector").name == "FMA fp32"
    # Half precision vector work runs in fp32 registers.
    assert CEILINGS.compute("bf16", "vector").name == "FMA fp32"
    assert CEILINGS.compute("fp16", "matrix") is None
    # An emulated precision has the roofs of fp32, in which it computes.
    slow = msgspec.structs.replace(gemm, name="GEMM fp16", precision="fp16", variant="emulated", value=1e9)
    emulating = msgspec.structs.replace(more, ceilings=(*more.ceilings, slow))
    assert emulating.emulated("fp16") == slow
    assert emulating.emulated("fp32") is None
    assert emulating.compute("fp16", "matrix").name == "GEMM fp32"
    assert emulating.compute("fp16", "vector").name == "FMA fp32"


def test_memory_roofs_and_latency():
    # Memory levels are ordered from the core outwards.
    assert [ceiling.level for ceiling in CEILINGS.memory_levels()] == ["L2", "L3", "DRAM"]
    assert CEILINGS.outermost_memory().level == "DRAM"
    # Memory level gives its fastest access.
    copy = msgspec.structs.replace(CEILINGS.ceilings[3], name="L2 copy", access="copy", value=500e9)
    more = msgspec.structs.replace(CEILINGS, ceilings=(*CEILINGS.ceilings, copy))
    assert [ceiling.name for ceiling in more.memory_levels()] == ["L2 copy", "L3 read", "DRAM triad"]
    # Caches alone have no outermost memory.
    caches = tuple(ceiling for ceiling in CEILINGS.ceilings if ceiling.level != "DRAM")
    assert msgspec.structs.replace(CEILINGS, ceilings=caches).outermost_memory() is None
    # Latency is the shortest.
    launch = msgspec.structs.replace(CEILINGS.ceilings[-1], name="kernel launch", value=0.9e-6)
    more = msgspec.structs.replace(CEILINGS, ceilings=(*CEILINGS.ceilings, launch))
    assert CEILINGS.latency().name == "operator dispatch"
    assert more.latency().name == "kernel launch"
    # Nothing known is none.
    assert EMPTY.compute("fp32", "vector") is None
    assert EMPTY.compute("bf16", "vector") is None
    assert EMPTY.memory_levels() == ()
    assert EMPTY.outermost_memory() is None
    assert EMPTY.latency() is None


@given(st.permutations(samples.ceilings()))
def test_the_order_of_the_file_does_not_matter(shuffled):
    assert msgspec.structs.replace(CEILINGS, ceilings=tuple(shuffled)).memory_levels() == CEILINGS.memory_levels()


def further(index, **changes):
    """A ceiling of the sample, a thousand times as good, as something that judges no operator."""
    one = CEILINGS.ceilings[index]
    factor = 1e-3 if one.kind == "latency" else 1e3
    return msgspec.structs.replace(one, **{"value": one.value * factor, **changes})


def test_further_roofs_and_links_answer_no_question():
    more = (
        further(0, variant="1 thread"), further(2, variant="sustained"), further(3, variant="1 thread"), further(5, variant="1 thread"),
        further(6, variant="NumPy"), further(5, kind="link", level=None), further(5, kind="link", variant="pinned", level="PCIe"),
    )  # fmt: skip
    beside = msgspec.structs.replace(CEILINGS, ceilings=(*more, *CEILINGS.ceilings))
    for precision in ("fp32", "fp64", "bf16"):
        for engine in ("vector", "matrix"):
            assert beside.compute(precision, engine) == CEILINGS.compute(precision, engine)
    assert beside.memory_levels() == CEILINGS.memory_levels()
    assert beside.outermost_memory() == CEILINGS.outermost_memory()
    assert beside.latency() == CEILINGS.latency()
    alone = msgspec.structs.replace(CEILINGS, ceilings=more)
    assert (alone.compute("fp32", "vector"), alone.memory_levels(), alone.latency()) == (None, (), None)


def test_products_and_their_precision():
    # Products that accumulate in fp16 are no roof of torchs.
    tensor = msgspec.structs.replace(CEILINGS.ceilings[2], precision="fp16", accumulate="fp32", value=165e12)
    twice = msgspec.structs.replace(tensor, accumulate="fp16", value=330e12)
    vector = msgspec.structs.replace(twice, engine="vector", value=82e12)
    both = msgspec.structs.replace(CEILINGS, ceilings=(twice, tensor, vector))
    assert both.compute("fp16", "matrix") == tensor
    assert both.compute("fp16", "vector") == vector  # half-precision arithmetic on vector units has no other sum
    assert msgspec.structs.replace(CEILINGS, ceilings=(twice,)).compute("fp16", "matrix") == twice
    # Every precision has its own matrix roof in its own unit.
    precisions = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
    gemms = tuple(
        msgspec.structs.replace(CEILINGS.ceilings[2], name=f"GEMM {p}", precision=p, value=(n + 1) * 1e14,
                                unit="OP/s" if p == "int8" else "FLOP/s")
        for n, p in enumerate(precisions)
    )  # fmt: skip
    device = msgspec.structs.replace(CEILINGS, ceilings=(*CEILINGS.ceilings, *gemms))
    assert [device.compute(p, "matrix").name for p in precisions] == [f"GEMM {p}" for p in precisions]
    assert device.compute("int8", "matrix").unit == "OP/s"
    assert {p for p in precisions if device.compute(p, "vector").name != "FMA fp32"} == {"fp64"}


MIB = 1 << 20


def compute(name, value, variant="", threads=2, detail="kernel"):
    engine = "vector" if name.startswith("FMA") else "matrix"
    return Ceiling(kind="compute", name=name, value=value * 1e9, unit="FLOP/s", source=Source(kind="measured", detail=detail),
                   precision=name.split()[1], engine=engine, variant=variant,
                   threads=(1 if variant == "1 thread" else threads) if engine == "vector" else None)  # fmt: skip


def memory(level, access, value, capacity, variant="", threads=2, detail="kernel"):
    return Ceiling(kind="memory", name=f"{level} {access}", value=value * 1e9, unit="B/s", level=level, access=access,
                   source=Source(kind="measured", detail=detail), capacity_bytes=capacity, variant=variant,
                   threads=1 if variant == "1 thread" else threads)  # fmt: skip


# A two-core Xeon with AVX-512, as it was measured: every law must hold for it.
MACHINE = (
    compute("FMA fp32", 476), compute("FMA fp64", 239), compute("FMA fp32", 32.3, "scalar"), compute("FMA fp64", 32.4, "scalar"),
    compute("FMA fp32", 237, "no FMA"), compute("FMA fp64", 119, "no FMA"), compute("FMA fp32", 239, "1 thread"),
    compute("FMA fp64", 120, "1 thread"), compute("GEMM fp32", 415), compute("GEMM fp64", 202), compute("GEMM bf16", 2760),
    *(
        memory(level, access, value, capacity)
        for level, capacity, values in (
            ("L1", MIB // 8, (868, 514, 901, 1030)), ("L2", 4 * MIB, (350, 118, 230, 194)), ("L3", 480 * MIB, (58.7, 58.7, 117, 58.6)),
            ("DRAM", None, (34.7, 23.6, 61.2, 29.6)),
        )
        for access, value in zip(("read", "write", "update", "copy"), values, strict=True)
    ),
    *(
        memory(level, "read", value, capacity, "1 thread")
        for level, capacity, value in (("L1", MIB // 16, 432), ("L2", 2 * MIB, 175), ("L3", 480 * MIB, 29.5), ("DRAM", None, 17.6))
    ),
)  # fmt: skip


def suspects(ceilings, cores=None):
    return {(one.suspect[1], one.suspect[2]) for one in broken(ceilings, cores)}


def changed(name, factor, variant="", ceilings=MACHINE, **fields):
    return [
        msgspec.structs.replace(one, value=one.value * factor, **fields) if (one.name, one.variant) == (name, variant) else one
        for one in ceilings
    ]


def test_a_real_machine_breaks_no_law():
    assert broken(MACHINE) == ()
    assert broken(()) == ()


@pytest.mark.parametrize(("name", "variant"), [
    ("FMA fp32", ""), ("FMA fp64", ""), ("FMA fp32", "1 thread"), ("FMA fp64", "1 thread"), ("FMA fp32", "no FMA"),
    ("FMA fp64", "no FMA"), ("L1 read", ""), ("L1 read", "1 thread"), ("L2 read", ""), ("L2 read", "1 thread"),
    ("L3 read", "1 thread"), ("DRAM read", "1 thread"), ("L1 write", ""), ("L2 write", ""), ("L3 write", ""), ("DRAM write", ""),
])  # fmt: skip
def test_a_figure_at_half_its_rate_is_a_suspect(name, variant):
    assert (name, variant) in suspects(changed(name, 0.49, variant))


def test_laws_of_threads_clocks_and_products():
    # Laws of threads and clocks.
    # What many threads share is not slower than one.
    assert suspects(changed("DRAM read", 0.45)) == {("DRAM read", "")}
    # one thread may well take all of it
    assert suspects(changed("DRAM read", 1.6, "1 thread")) == set()
    # Hardware threads of one core do not add up.
    # GIVEN two threads on one core, together as fast as one
    together = [one for name in ("FMA fp32", "FMA fp64") for one in changed(name, 0.5) if one.name.startswith(name) and not one.variant]
    alone = [one for one in MACHINE if one.variant == "1 thread" and one.kind == "compute"]
    assert suspects([*together, *alone], cores=2) == {("FMA fp32", ""), ("FMA fp64", "")}
    assert suspects([*together, *alone], cores=1) == set()
    # A clock that falls with more cores is no broken law.
    both = [one for one in MACHINE if one.name == "FMA fp32" and one.variant in ("", "1 thread")]
    assert suspects(changed("FMA fp32", 0.65, ceilings=both)) == set()


def test_laws_of_products_and_levels():
    # Products are not faster than the vector units.
    vector = compute("FMA fp32", 100)
    assert suspects([vector, compute("GEMM fp32", 104)]) == set()
    assert suspects([vector, compute("GEMM fp32", 110)]) == {("FMA fp32", "")}
    assert suspects([vector, compute("GEMM fp32", 900, detail="torch.mm (Accelerate, 8 threads)")]) == set()  # another unit
    assert suspects([vector, compute("GEMM bf16", 900)]) == set()
    # A level is not slower than the next for the same kind of stores.
    inner = memory("L3", "copy", 25, MIB)
    assert suspects([inner, memory("DRAM", "copy", 30, None, detail="kernel, ordinary stores")]) == {("L3 copy", "")}
    assert suspects([inner, memory("DRAM", "copy", 50, None, detail="kernel, non-temporal stores")]) == set()
    assert suspects([inner, memory("DRAM", "copy", 30, None, "ordinary stores", detail="kernel, ordinary stores")]) == {("L3 copy", "")}
    assert suspects([inner, memory("DRAM", "read", 50, None)]) == set()
    # The law names both sides without a comma.
    (one,) = broken([compute("FMA fp32", 117), compute("FMA fp64", 117)])
    assert one.suspect == ("compute", "FMA fp32", "", 2)
    assert one.law == "50 % of 2 x FMA fp64 (117 GFLOP/s)"
    assert all("," not in found.law for name in ("L1 write", "FMA fp32", "L2 read") for found in broken(changed(name, 0.3)))

    def level(read, write, update, stores="ordinary"):
        values = {"read": read, "write": write, "update": update}
        return [memory("L2", access, value, MIB, detail=f"kernel, {stores} stores") for access, value in values.items()]

    # 8 bytes are read in 1 and written in 2 units: an update of 16 bytes takes from 2 to 3 of them
    assert suspects(level(8, 4, 16 / 2)) == suspects(level(8, 4, 16 / 3)) == set()
    assert suspects(level(8, 4, 16 / 4)) == {("L2 update", "")}
    assert suspects(level(8, 4, 16 / 1)) == {("L2 write", "")}
    assert suspects(level(4, 8, 16 / 1)) == {("L2 read", "")}
    assert suspects(level(8, 4, 16 / 4, "non-temporal")) == set()


def test_laws_of_a_gpu_and_what_breaks_none():
    # Laws of a gpu.
    burst, held = (compute("GEMM bf16", value, variant, threads=None) for value, variant in ((400, ""), (780, "sustained")))
    assert suspects([burst, held]) == {("GEMM bf16", "")}
    links = [
        Ceiling(
            kind="link", name="H2D", value=value, unit="B/s", source=Source(kind="measured", detail="x"), level="host", variant=variant
        )
        for value, variant in ((10e9, ""), (20e9, "pageable"))
    ]
    assert suspects(links) == {("H2D", "")}
    # fewer units for fp64, tensor cores for products
    rates = (("FMA fp32", 60), ("FMA fp64", 1), ("GEMM fp32", 60), ("GEMM fp64", 60))
    assert suspects([compute(name, value, threads=None) for name, value in rates]) == set()
    # No evidence breaks no law.
    # A disturbed figure is no evidence against another.
    # a rate per processor time may come out too high
    assert suspects(changed("L2 read", 1.2)) == {("L2 read", "1 thread")}
    disturbed = [one.noted(", disturbed: other processes") if one.name == "L2 read" and not one.variant else one for one in MACHINE]
    assert suspects(changed("L2 read", 1.2, ceilings=disturbed)) == set()
    # What was not measured breaks nothing.
    derived = Source(kind="derived", detail="multiprocessors x rate x clock")
    assert broken([msgspec.structs.replace(compute("FMA fp32", 1), source=derived), compute("FMA fp64", 100)]) == ()
