"""The laws of times from a data sheet and fitted coefficients."""

import math

import pytest
from msgspec.structs import replace

import rooflines
from rooflines.device_specs.catalog import ceilings_of, matching
from rooflines.roofline.judge.bounds import place_on_roofline
from rooflines.roofline.predict.calibrated import Calibrated, CodeShares, Coefficients, Share, coefficients, kernel_of, roof_seconds
from rooflines.roofline.predict.forecast import Operator

ROOFS = ceilings_of(matching("NVIDIA H100 80GB HBM3")[0].sheet)
PRODUCT = Operator(
    name="aten::mm", module="fc", modules=1, phase="forward", shapes="4096x4096, 4096x4096", category="matmul", part="other", calls=1,
    precision="bf16", flops=2 * 4096**3, matrix_flops=2 * 4096**3, bytes=6 * 4096**2, bytes_read=4 * 4096**2,
)  # fmt: skip
ADD = replace(PRODUCT, name="aten::add", category="element-wise", flops=10**9, matrix_flops=0, bytes=6 * 10**9)
KNOWN = Coefficients(
    ("a table",), {code: CodeShares({"matmul": Share(0.5, 0.8, 1e-6), "element-wise": Share(1.0, 2.0, 0.0)}, 1.5, "steps")
    for code in ("eager", "compiled", "served")},
)  # fmt: skip


def estimate(one, code="eager"):
    return Calibrated(ROOFS, code, KNOWN).estimate_of(one, place_on_roofline(one.work, ROOFS))


def test_the_time_is_the_root_of_the_squares_of_both_roofs_at_their_shares():
    compute_s, memory_s = 2 * 4096**3 / 989e12, 6 * 4096**2 / 3.35e12
    assert roof_seconds(PRODUCT, ROOFS) == pytest.approx((compute_s, memory_s), rel=1e-3)
    found = estimate(PRODUCT)
    assert found.time_s == pytest.approx(1e-6 + math.hypot(compute_s / 0.5, memory_s / 0.8), rel=1e-3)
    assert (found.low_s, found.high_s) == (found.lower_bound_s, None), "errors of steps tell nothing of one call"


def test_what_is_fused_may_take_less_than_its_own_traffic_and_eager_code_not():
    bound_s = 6 * 10**9 / 3.35e12
    assert estimate(ADD).time_s == pytest.approx(bound_s, rel=1e-3)
    assert estimate(ADD, "compiled").time_s == pytest.approx(bound_s / 2, rel=1e-3)


def test_a_total_is_the_sum_and_not_below_the_sum_of_the_bounds():
    one = estimate(PRODUCT)
    found = Calibrated(ROOFS, "eager", KNOWN).total([(one, 3), (estimate(ADD), 1)])
    assert found.time_s == pytest.approx(3 * one.time_s + estimate(ADD).time_s)
    assert found.high_s == pytest.approx(1.5 * found.time_s)
    assert found.low_s >= found.lower_bound_s == pytest.approx(3 * one.lower_bound_s + estimate(ADD).lower_bound_s)


@pytest.mark.parametrize(("name", "shapes", "kernel"), [
    ("aten::convolution", "8x64x56x56, 128x64x3x3", "convolution"),
    ("aten::convolution", "8x64x56x56, 64x1x3x3", "depthwise convolution"),
    ("aten::convolution", "8x64x56x56, 64x4x3x3", "grouped convolution"),
    ("aten::convolution_backward", "8x64x56x56, 8x64x56x56, 64x1x3x3", "depthwise convolution"),
])  # fmt: skip
def test_kinds_of_convolutions(name, shapes, kernel):
    assert kernel_of(replace(PRODUCT, name=name, category="convolution", shapes=shapes)) == kernel


def test_attention_of_prompts_is_another_kernel_than_of_tokens():
    attention = replace(PRODUCT, category="attention")
    assert [kernel_of(replace(attention, phase=phase)) for phase in ("prefill", "decode")] == ["prefill attention", "attention"]


def test_the_coefficients_are_whole_and_name_their_sources():
    known = coefficients()
    assert known.sources
    for code in ("eager", "compiled", "served"):
        own = known.codes[code]
        assert {"matmul", "attention", "element-wise"} <= {*own.shares}
        assert 1 < own.wide < 3
        assert all(0 < share.compute <= 1.3 and 0 < share.memory < 10 and 0 <= share.start_s < 1e-4 for share in own.shares.values())


@pytest.mark.ci
def test_compiled_code_is_predicted_faster_than_eager_code_and_not_below_the_bound():
    steps = [
        rooflines.predict(
            "resnet18", devices=["RTX 4090"], like="public", batch_size=[64], precision="amp-fp16", compile=compiled
        ).devices[0].steps[0]
        for compiled in (False, True)
    ]  # fmt: skip
    eager, compiled = (step.estimate for step in steps)
    assert steps[0].lower_bound_s < compiled.time_s < eager.time_s
    assert eager.time_s > steps[0].eager_bound_s
    assert "timm" in eager.basis
