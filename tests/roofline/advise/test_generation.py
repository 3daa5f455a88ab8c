"""Advice on decode: weights that are read in most of its time, and a host that launches too slowly."""

import pytest
from msgspec.structs import replace

from rooflines.profiler.records import Workload
from rooflines.roofline.advise import generation, host, small_kernels
from rooflines.roofline.analysis import Basis, Coverage
from rooflines.roofline.served_steps import DecodeReads, Generation, ServedSteps
from tests.roofline.advise.cases import case, row

READS = DecodeReads(weight_bytes=15e9, kv_cache_bytes=1e9, lower_bound_s=0.002, efficiency=0.8)
DECODE = ServedSteps(
    kind="decode", steps=60, requests=1, tokens=1, step_s=0.0025, busy_s=0.0015, category_breakdown={"idle": 0.001}, reads=READS
)
BF16 = Workload(name="m", mode="generate", precision="bf16")


def of(*, reads=READS, decode=DECODE, workload=BF16, idle=None, **more):
    found = Generation(requests=1, prompt_length=4, new_tokens=21, phases=(replace(decode, reads=reads),))
    product = row("aten::mm", 0.04, category="matmul", phase="decode")
    return case(product, idle=idle or {"host_bound": 0.01}, generation=found, workload=workload, basis=Basis(steps=3), **more)


def test_weights_that_take_the_time_of_decode_are_made_smaller():
    found = generation.read_weights(of())
    # 20 steps read 15 of 16 GB; int8 has half the bytes of bf16.
    assert found.saves_s == pytest.approx(20 * 0.002 * 15 / 16 * (1 - 1 / 2))
    assert (found.suggestion, list(found.of.values())) == (generation.SMALLER_WEIGHTS, [0.04])
    assert "80 % of the bound" in found.evidence


@pytest.mark.parametrize(
    "change",
    [
        {"reads": None},
        {"reads": replace(READS, efficiency=0.3)},
        {"reads": replace(READS, kv_cache_bytes=16e9)},
        {"reads": replace(READS, assumption="all experts")},
        {"workload": replace(BF16, quantized="int8-weight")},
        {"device": "cpu"},
    ],
)
def test_other_decode_steps_keep_their_weights(change):
    assert generation.read_weights(of(**change)) is None


def test_decode_steps_that_wait_for_the_host_are_replayed():
    found = host.eager_decode(of(idle={"host_bound": 0.04}))
    assert found.saves_s == pytest.approx(20 * 0.001)
    assert (found.suggestion, found.of["host_bound"]) == (small_kernels.GENERATION_GRAPHS, found.saves_s)
    graphs = Coverage(modeled_time_fraction=1.0, graph_launch_time_s=0.02)
    assert host.eager_decode(of(idle={"host_bound": 0.04}, coverage=graphs)) is None
    assert host.eager_decode(of(idle={"host_bound": 0.001})) is None
    assert host.eager_decode(of(idle={"host_bound": 0.04}, device="cpu")) is None
