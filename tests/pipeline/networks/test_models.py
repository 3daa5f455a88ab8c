"""The main job on real networks: counts against torchvision's own figures, times that add up, names where they belong.

Ceilings come from a file except where an efficiency is judged: counting and attribution need no measurement of this machine.
"""

import json

import pytest

import rooflines
from tests.commands import write_ceilings
from tests.pipeline.networks import recordings as networks
from tests.pipeline.networks.recordings import BATCH, CASES, check_sums


def profiled(tmp_path, model, **options):
    asked = {"steps": 1, "warmup": 1, "formats": ("json",), "ceilings": str(write_ceilings(tmp_path)), **options}
    run = rooflines.profile(model, device="cpu", output=tmp_path / "run", **asked)
    return json.loads((run.directory / "analysis.json").read_text())


def published_macs(model):
    """GMAC of one image as torchvision's weights state them."""
    import torchvision

    return torchvision.models.get_model_weights(model).DEFAULT.meta["_ops"] * 1e9


# The models that the toolkit promises, and one of each family beside them. In `make test` two other laws say the same of most: the
# trace of a small input agrees with its count (test_parity), and the count of a full one with what is published (test_published).
FULL_SIZE = (
    "resnet50", "mobilenet_v2", "densenet121", "vit_b_16", "swin_t", "convnext_tiny", "efficientnet_b0", "alexnet", "squeezenet1_1",
    "googlenet", "shufflenet_v2_x1_0", "mnasnet0_5", "mobilenet_v3_small", "regnet_x_400mf", "swin_v2_t", "vgg11_bn", "resnet18",
    "resnext50_32x4d", "inception_v3", "vit_b_32", "maxvit_t",
)  # fmt: skip
QUICK = ("mobilenet_v3_small",)


@pytest.mark.ci
@pytest.mark.parametrize("model", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FULL_SIZE])
def test_inference_counts_what_torchvision_publishes(tmp_path, model):
    # One image: Swin v2 computes the biases of positions once for a batch, so that the work of two is less than twice that of one.
    analysis = profiled(tmp_path, model, batch_size=1)
    # published to three decimals of 10⁹ multiply-accumulates
    assert analysis["totals"]["matrix_flops"] / 2e9 == pytest.approx(published_macs(model) / 1e9, abs=0.0006)
    assert analysis["coverage"]["modeled_time_fraction"] >= 0.97
    check_sums(analysis)


@pytest.mark.ci
@pytest.mark.parametrize(("name", "mode"), CASES)
def test_times_and_figures_add_up(recordings, name, mode):
    check_sums(recordings.analysis(name, mode).to_dict())


@pytest.mark.slow
def test_vision_transformer_s_fused_attention_is_counted(tmp_path):
    """torch's own counter misses ``_native_multi_head_attention``."""
    analysis = profiled(tmp_path, "vit_b_16", batch_size=1, image_size=64)
    tokens, width = 1 + 4 * 4, 768
    # Queries, keys, values and the output; scores and what they weigh; two layers of four times the width.
    layer = 4 * tokens * width**2 + 2 * tokens**2 * width + 2 * tokens * 4 * width**2
    assert analysis["totals"]["matrix_flops"] == 2 * (12 * layer + 16 * width * 3 * 16**2 + width * 1000)
    fused = [row for row in analysis["operators"] if row["name"] == "aten::_native_multi_head_attention"]
    assert {row["module"] for row in fused} == {f"encoder.layers.encoder_layer_{i}.self_attention" for i in range(12)}


# First convolution of each network: multiply-adds of its input gradient for one image of 64 x 64, which training does not need.
FIRST = {
    "resnet50": 64 * 3 * 7 * 7 * 32 * 32, "mobilenet_v2": 32 * 3 * 3 * 3 * 32 * 32, "densenet121": 64 * 3 * 7 * 7 * 32 * 32,
    "mobilenet_v3_small": 16 * 3 * 3 * 3 * 32 * 32, "efficientnet_b0": 32 * 3 * 3 * 3 * 32 * 32, "vit_b_16": 768 * 3 * 16 * 16 * 4 * 4,
    "convnext_tiny": 96 * 3 * 4 * 4 * 16 * 16, "swin_t": 96 * 3 * 4 * 4 * 16 * 16,
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if (one, "training") in networks.QUICK else pytest.mark.slow) for one in FIRST]
)
def test_training_is_three_times_forward_less_the_first_input_gradient(recordings, name):
    rows = recordings.analysis(name, "training").operators
    forward = sum(row.matrix_flops for row in rows if row.phase == "forward")
    backward = sum(row.matrix_flops for row in rows if row.phase == "backward")
    assert forward + backward == sum(row.matrix_flops for row in rows)
    # the fused attention's backward computes the scores again: one product of Q and K a layer, head and image
    again = 12 * 12 * BATCH * 2 * 17 * 17 * 64 if name == "vit_b_16" else 0
    assert backward == 2 * forward - BATCH * 2 * FIRST[name] + again
    assert {"forward", "backward", "optimizer"} <= {row.phase for row in rows}


def test_backward_rows_carry_the_module_of_their_forward(recordings):
    rows = recordings.analysis("mobilenet_v2", "training").operators
    convolutions = {phase: {row.module for row in rows if row.category == "convolution" and row.phase == phase}
                    for phase in ("forward", "backward")}  # fmt: skip
    assert "features.2.conv.1.0" in convolutions["forward"]
    assert convolutions["forward"] == convolutions["backward"]
    assert len(convolutions["forward"]) == 52


@pytest.mark.slow
def test_under_autocast_convolutions_are_bf16_and_the_products_the_same(tmp_path):
    analysis = profiled(tmp_path, "resnet50", batch_size=2, image_size=64, precision="amp-bf16")
    convolutions = [row for row in analysis["operators"] if row["category"] == "convolution"]
    assert {row["precision"] for row in convolutions} == {"bf16"}
    assert sum(row["calls"] for row in convolutions) == 53
    assert analysis["totals"]["matrix_flops"] == pytest.approx(2 * 2 * published_macs("resnet50") * (64 / 224) ** 2, rel=0.02)
    check_sums(analysis)
