"""The laws between figures: what holds on real machines breaks none, a figure at half its rate breaks one and is the suspect."""

import msgspec
import pytest

from rooflines.device_specs.laws import broken
from rooflines.device_specs.records import Ceiling, Source

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


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("FMA fp32", ""), ("FMA fp64", ""), ("FMA fp32", "1 thread"), ("FMA fp64", "1 thread"), ("FMA fp32", "no FMA"),
        ("FMA fp64", "no FMA"), ("L1 read", ""), ("L1 read", "1 thread"), ("L2 read", ""), ("L2 read", "1 thread"),
        ("L3 read", "1 thread"), ("DRAM read", "1 thread"), ("L1 write", ""), ("L2 write", ""), ("L3 write", ""), ("DRAM write", ""),
    ],
)  # fmt: skip
def test_a_figure_at_half_its_rate_is_a_suspect(name, variant):
    assert (name, variant) in suspects(changed(name, 0.49, variant))


def test_what_many_threads_share_is_not_slower_than_one():
    assert suspects(changed("DRAM read", 0.45)) == {("DRAM read", "")}
    # one thread may well take all of it
    assert suspects(changed("DRAM read", 1.6, "1 thread")) == set()


def test_hardware_threads_of_one_core_do_not_add_up():
    # GIVEN two threads on one core, together as fast as one
    together = [one for name in ("FMA fp32", "FMA fp64") for one in changed(name, 0.5) if one.name.startswith(name) and not one.variant]
    alone = [one for one in MACHINE if one.variant == "1 thread" and one.kind == "compute"]
    assert suspects([*together, *alone], cores=2) == {("FMA fp32", ""), ("FMA fp64", "")}
    assert suspects([*together, *alone], cores=1) == set()


def test_a_clock_that_falls_with_more_cores_is_no_broken_law():
    both = [one for one in MACHINE if one.name == "FMA fp32" and one.variant in ("", "1 thread")]
    assert suspects(changed("FMA fp32", 0.65, ceilings=both)) == set()


def test_the_law_names_both_sides_without_a_comma():
    (one,) = broken([compute("FMA fp32", 117), compute("FMA fp64", 117)])
    assert one.suspect == ("compute", "FMA fp32", "", 2)
    assert one.law == "50 % of 2 x FMA fp64 (117 GFLOP/s)"
    assert all("," not in found.law for name in ("L1 write", "FMA fp32", "L2 read") for found in broken(changed(name, 0.3)))


def test_products_are_not_faster_than_the_vector_units():
    vector = compute("FMA fp32", 100)
    assert suspects([vector, compute("GEMM fp32", 104)]) == set()
    assert suspects([vector, compute("GEMM fp32", 110)]) == {("FMA fp32", "")}
    assert suspects([vector, compute("GEMM fp32", 900, detail="torch.mm (Accelerate, 8 threads)")]) == set()  # another unit
    assert suspects([vector, compute("GEMM bf16", 900)]) == set()


def test_a_level_is_not_slower_than_the_next_for_the_same_kind_of_stores():
    inner = memory("L3", "copy", 25, MIB)
    assert suspects([inner, memory("DRAM", "copy", 30, None, detail="kernel, ordinary stores")]) == {("L3 copy", "")}
    assert suspects([inner, memory("DRAM", "copy", 50, None, detail="kernel, non-temporal stores")]) == set()
    assert suspects([inner, memory("DRAM", "copy", 30, None, "ordinary stores", detail="kernel, ordinary stores")]) == {("L3 copy", "")}
    assert suspects([inner, memory("DRAM", "read", 50, None)]) == set()


def test_an_update_takes_as_long_as_a_read_at_least_and_as_both_in_turn_at_most():
    def level(read, write, update, stores="ordinary"):
        values = {"read": read, "write": write, "update": update}
        return [memory("L2", access, value, MIB, detail=f"kernel, {stores} stores") for access, value in values.items()]

    # 8 bytes are read in 1 and written in 2 units: an update of 16 bytes takes from 2 to 3 of them
    assert suspects(level(8, 4, 16 / 2)) == suspects(level(8, 4, 16 / 3)) == set()
    assert suspects(level(8, 4, 16 / 4)) == {("L2 update", "")}
    assert suspects(level(8, 4, 16 / 1)) == {("L2 write", "")}
    assert suspects(level(4, 8, 16 / 1)) == {("L2 read", "")}
    assert suspects(level(8, 4, 16 / 4, "non-temporal")) == set()


def test_laws_of_a_gpu():
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


def test_a_disturbed_figure_is_no_evidence_against_another():
    # a rate per processor time may come out too high
    assert suspects(changed("L2 read", 1.2)) == {("L2 read", "1 thread")}
    disturbed = [one.noted(", disturbed: other processes") if one.name == "L2 read" and not one.variant else one for one in MACHINE]
    assert suspects(changed("L2 read", 1.2, ceilings=disturbed)) == set()


def test_what_was_not_measured_breaks_nothing():
    derived = Source(kind="derived", detail="multiprocessors x rate x clock")
    assert broken([msgspec.structs.replace(compute("FMA fp32", 1), source=derived), compute("FMA fp64", 100)]) == ()
