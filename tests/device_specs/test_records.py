"""The laws of the lookups: which ceiling applies to which work."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rooflines.device_specs.records import Ceilings
from tests import samples

CEILINGS = Ceilings(device="laptop", kind="cpu", ceilings=samples.ceilings())
EMPTY = Ceilings(device="", kind="", ceilings=())


def test_vector_work_has_the_vector_roof():
    assert CEILINGS.compute("fp32", "vector").name == "FMA fp32"
    assert CEILINGS.compute("fp64", "vector").name == "FMA fp64"


def test_matrix_work_has_the_higher_of_both_roofs():
    assert CEILINGS.compute("fp32", "matrix").name == "FMA fp32"
    assert CEILINGS.compute("bf16", "matrix").name == "GEMM bf16"
    gemm = msgspec.structs.replace(CEILINGS.ceilings[0], name="GEMM fp32", engine="matrix", value=500e9)
    more = msgspec.structs.replace(CEILINGS, ceilings=(*CEILINGS.ceilings, gemm))
    assert more.compute("fp32", "matrix").name == "GEMM fp32"
    assert more.compute("fp32", "vector").name == "FMA fp32"


def test_half_precision_vector_work_runs_in_fp32_registers():
    assert CEILINGS.compute("bf16", "vector").name == "FMA fp32"
    assert CEILINGS.compute("fp16", "matrix") is None


def test_memory_levels_are_ordered_from_the_core_outwards():
    assert [ceiling.level for ceiling in CEILINGS.memory_levels()] == ["L2", "L3", "DRAM"]
    assert CEILINGS.outermost_memory().level == "DRAM"


def test_memory_level_gives_its_fastest_access():
    copy = msgspec.structs.replace(CEILINGS.ceilings[3], name="L2 copy", access="copy", value=500e9)
    more = msgspec.structs.replace(CEILINGS, ceilings=(*CEILINGS.ceilings, copy))
    assert [ceiling.name for ceiling in more.memory_levels()] == ["L2 copy", "L3 read", "DRAM triad"]


@given(st.permutations(samples.ceilings()))
def test_the_order_of_the_file_does_not_matter(shuffled):
    assert msgspec.structs.replace(CEILINGS, ceilings=tuple(shuffled)).memory_levels() == CEILINGS.memory_levels()


def test_caches_alone_have_no_outermost_memory():
    caches = tuple(ceiling for ceiling in CEILINGS.ceilings if ceiling.level != "DRAM")
    assert msgspec.structs.replace(CEILINGS, ceilings=caches).outermost_memory() is None


def test_latency_is_the_shortest():
    launch = msgspec.structs.replace(CEILINGS.ceilings[-1], name="kernel launch", value=0.9e-6)
    more = msgspec.structs.replace(CEILINGS, ceilings=(*CEILINGS.ceilings, launch))
    assert CEILINGS.latency().name == "operator dispatch"
    assert more.latency().name == "kernel launch"


def test_nothing_known_is_none():
    assert EMPTY.compute("fp32", "vector") is None
    assert EMPTY.compute("bf16", "vector") is None
    assert EMPTY.memory_levels() == ()
    assert EMPTY.outermost_memory() is None
    assert EMPTY.latency() is None


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


def test_products_that_accumulate_in_fp16_are_no_roof_of_torchs():
    tensor = msgspec.structs.replace(CEILINGS.ceilings[2], precision="fp16", accumulate="fp32", value=165e12)
    twice = msgspec.structs.replace(tensor, accumulate="fp16", value=330e12)
    vector = msgspec.structs.replace(twice, engine="vector", value=82e12)
    both = msgspec.structs.replace(CEILINGS, ceilings=(twice, tensor, vector))
    assert both.compute("fp16", "matrix") == tensor
    assert both.compute("fp16", "vector") == vector  # half-precision arithmetic on vector units has no other sum
    assert msgspec.structs.replace(CEILINGS, ceilings=(twice,)).compute("fp16", "matrix") == twice


def test_every_precision_has_its_own_matrix_roof_in_its_own_unit():
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
