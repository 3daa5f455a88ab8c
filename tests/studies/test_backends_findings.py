"""What the backends study concludes from given numbers."""

import msgspec
import pytest

from rooflines.device_specs.records import Ceiling
from rooflines_studies.backends.page import convolution_efficiency, pace, paper_table, sentences
from rooflines_studies.from_scratch.page import libraries
from rooflines_studies.network_runs import bounded
from tests.studies.samples import CEILINGS, SOURCE, operator, result, through_loader


def test_what_the_paper_printed():
    paper = paper_table()
    assert set(paper) == {"numba-cpu", "numba-cuda", "torch-cpu", "torch-cuda", "torch-mps"}
    assert paper["numba-cuda"]["samples_per_s"] == 71_758
    assert paper["torch-cuda"]["max_gpu_memory_mb"] == pytest.approx(16.87)
    assert paper["numba-cuda"]["max_gpu_memory_mb"] is None, "the paper prints 0 for not measured"
    scratch = libraries()
    assert scratch["numpy"]["time_per_iteration"] == pytest.approx(84.6e-3)
    assert scratch["cupy"]["memory_framework_overhead"] == pytest.approx(158.6e6)
    # Without a result only the paper is spoken of.
    assert all("paper" in one for one in sentences([]))


def test_pace_divides_a_step():
    # 2 ms of arithmetic, 1 ms of memory traffic, a step of 4 ms, so 1 ms of host; 118 steps that wait 0.118 s in all
    operators = bounded((operator(time_s=2e-3), operator("relu", time_s=1e-3, flops=100_000, matrix_flops=0, size=5_000_000)), CEILINGS)
    found = pace(result(operators=operators, step_s=4e-3, input_s=0.118))
    assert found is not None
    assert found.parts == pytest.approx({"compute": 2e-3, "memory": 1e-3, "host": 1e-3, "input": 1e-3})
    assert next(iter(found.shares.items())) == ("compute", pytest.approx(2 / 5)), "the largest first"


def test_operators_against_their_roofs():
    # Convolutions are compared with the compute roof.
    # 500 µs at the roof in 1 ms, and 500 µs in 4 ms; the dense layer does not count
    operators = bounded((operator(time_s=1e-3), operator(layer="conv2", time_s=4e-3), operator("linear", "dense1")), CEILINGS)
    assert convolution_efficiency(result(operators=operators)) == pytest.approx(0.2)
    assert convolution_efficiency(result()) is None
    # A kernel is held to the flops that it executes.
    (whole,) = bounded((operator(),), CEILINGS)
    (half,) = bounded((msgspec.structs.replace(operator(), executed_flops=25_000_000),), CEILINGS)
    assert half.lower_bound_s == pytest.approx(whole.lower_bound_s / 2)
    # Work beyond the direct algorithms is not made products of.
    matrix = Ceiling(kind="compute", name="GEMM fp32", value=1e12, unit="FLOP/s", source=SOURCE, precision="fp32", engine="matrix")
    both = msgspec.structs.replace(CEILINGS, ceilings=(*CEILINGS.ceilings, matrix))
    update = operator("sgd", "", matrix_flops=0)
    (more,) = bounded((msgspec.structs.replace(update, executed_flops=3 * update.flops),), both)
    (plain,) = bounded((update,), both)
    assert more.lower_bound_s == pytest.approx(3 * plain.lower_bound_s)
    # Placing is the roofline.
    compute, memory, tiny = bounded((operator(), operator(flops=1_000, size=1_000_000), operator(flops=10, size=10)), CEILINGS)
    assert (compute.bound, compute.lower_bound_s, compute.efficiency) == ("compute", pytest.approx(5e-4), pytest.approx(0.5))
    assert (memory.bound, memory.lower_bound_s) == ("memory", pytest.approx(1e-4))
    assert (tiny.bound, tiny.lower_bound_s) == ("latency", pytest.approx(1e-6))
    assert operator().bound == "unknown"
    # Pace of operators that take longer alone has no host.
    found = pace(result(operators=bounded((operator(time_s=5e-3),), CEILINGS), step_s=4e-3, input_s=0.0))
    assert found is not None
    assert found.parts == {"compute": 5e-3}


def test_findings_name_the_fastest_and_why():
    slow = result("torch-cpu", epoch_s=6.0, loader=through_loader())
    fast = result(operators=bounded((operator(time_s=15e-3),), CEILINGS), input_s=0.0)
    said = list(sentences([slow, fast]))
    assert fast.rate.value == pytest.approx(30_208)
    assert said[0].startswith("numba-cpu trains 30,208 samples/s. ")
    assert said[1] == "numba-cpu trains 3.00 (2.72 to 3.31) times as many samples/s as torch-cpu."
    assert said[2] == "torch-cpu trains 1.89 (1.80 to 1.98) times as many samples/s as the paper's (5,340)."
    # 30,208 / 30,501 = 0.99 is within the 5 % to either side.
    assert said[3].startswith("The rounds do not decide: numba-cpu compared with the paper's (30,501).")
    assert "94 % of its step is bound by arithmetic (at 3 % of that roof)" in said[0]  # 15 of 16 ms; 0.5 of 15 ms
    loader = next(one for one in said if "with a loader" in one)
    assert "with a loader like the paper's (paper: 5,340), waiting for input 80 % of the time" in loader
    # 1 / (1 / 10,069 + 1 / 7,000)
    assert "loading and computing one after the other would give 4,129" in loader
    assert any("omit the gradients of the convolutions" in one for one in said)
    assert any("98.0 %" in one and "first epoch differ by 0e+00" in one for one in said)
