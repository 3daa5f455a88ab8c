"""The main job on real networks: counts against torchvision's own figures, times that add up, names where they belong.

Ceilings come from a file except where an efficiency is judged: counting and attribution need no measurement of this machine.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

import rooflines
from rooflines import serial
from tests.samples import ceilings

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ceilings_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("ceilings") / "ceilings.json"
    path.write_text(json.dumps({"ceilings": serial.to_plain(list(ceilings()))}))
    return str(path)


def profiled(tmp_path, ceilings_file, model, **options):
    run = rooflines.profile(
        model, device="cpu", steps=1, warmup=1, ceilings=ceilings_file, formats=("json",), output=tmp_path / "run", **options
    )
    return json.loads((run.directory / "analysis.json").read_text())


def check_sums(analysis):
    """Operators + unmodelled + idle = span, and every total is the sum of its rows."""
    operators, timeline = analysis["operators"], analysis["timeline"]
    parts = sum(row["time_s"] for row in operators) + sum(item["time_s"] for item in analysis["coverage"]["unmodelled"])
    assert math.isclose(parts + timeline["idle_s"] - timeline["overlap_s"], timeline["span_s"], rel_tol=1e-3)
    for field in ("flops", "matrix_flops", "bytes"):
        assert sum(row[field] for row in operators) == analysis["totals"][field]


def published_macs(model):
    """GMAC of one image as torchvision's weights state them."""
    import torchvision

    return torchvision.models.get_model_weights(model).DEFAULT.meta["_ops"] * 1e9


# The models that the toolkit promises, and one of each family beside them: depth-wise, grouped, inception, plain, shuffled.
@pytest.mark.parametrize("model", [
    "resnet50", "mobilenet_v2", "densenet121", "vit_b_16", "swin_t", "convnext_tiny", "efficientnet_b0",
    "alexnet", "squeezenet1_1", "googlenet", "shufflenet_v2_x1_0", "mnasnet0_5", "mobilenet_v3_small", "regnet_x_400mf", "swin_v2_t",
])  # fmt: skip
def test_inference_counts_what_torchvision_publishes(tmp_path, ceilings_file, model):
    analysis = profiled(tmp_path, ceilings_file, model, batch_size=2)
    assert analysis["totals"]["matrix_flops"] == pytest.approx(2 * 2 * published_macs(model), rel=2e-3, abs=2e6)
    assert analysis["coverage"]["modelled_time_fraction"] >= 0.97
    check_sums(analysis)


def test_vision_transformer_s_fused_attention_is_counted(tmp_path, ceilings_file):
    analysis = profiled(tmp_path, ceilings_file, "vit_b_16", batch_size=1)
    # torch's own counter misses `_native_multi_head_attention` and says 11.27 GMAC.
    assert analysis["totals"]["matrix_flops"] / 2e9 == pytest.approx(17.564, abs=5e-4)
    fused = [row for row in analysis["operators"] if row["name"] == "aten::_native_multi_head_attention"]
    assert {row["module"] for row in fused} == {f"encoder.layers.encoder_layer_{i}.self_attention" for i in range(12)}


# First convolution of each network: multiply-adds of its input gradient for one image, which training does not need.
@pytest.mark.parametrize(("model", "first"), [
    ("resnet50", 64 * 3 * 7 * 7 * 112 * 112), ("mobilenet_v2", 32 * 3 * 3 * 3 * 112 * 112), ("densenet121", 64 * 3 * 7 * 7 * 112 * 112),
    ("efficientnet_b0", 32 * 3 * 3 * 3 * 112 * 112), ("vit_b_16", 768 * 3 * 16 * 16 * 14 * 14),
    ("convnext_tiny", 96 * 3 * 4 * 4 * 56 * 56),
])  # fmt: skip
def test_training_is_three_times_forward_less_the_first_input_gradient(tmp_path, ceilings_file, model, first):
    analysis = profiled(tmp_path, ceilings_file, model, batch_size=2, mode="training")
    rows = analysis["operators"]
    forward = sum(row["matrix_flops"] for row in rows if row["phase"] == "forward")
    backward = sum(row["matrix_flops"] for row in rows if row["phase"] == "backward")
    assert forward + backward == analysis["totals"]["matrix_flops"]
    recomputed = backward - (2 * forward - 2 * 2 * first)
    if model == "vit_b_16":  # the fused attention's backward computes the scores anew: one product of Q and K a layer
        recomputed -= 12 * 2 * 12 * 2 * 197 * 197 * 64
    assert abs(recomputed) <= 1e-3 * backward
    assert {"forward", "backward", "optimizer"} <= {row["phase"] for row in rows}
    assert analysis["coverage"]["modelled_time_fraction"] >= 0.95
    check_sums(analysis)


def test_backward_rows_carry_the_module_of_their_forward(tmp_path, ceilings_file):
    rows = profiled(tmp_path, ceilings_file, "resnet50", batch_size=2, image_size=64, mode="training")["operators"]
    convolutions = {phase: {row["module"] for row in rows if row["category"] == "convolution" and row["phase"] == phase}
                    for phase in ("forward", "backward")}  # fmt: skip
    assert "layer1.0.conv2" in convolutions["forward"]
    assert convolutions["forward"] == convolutions["backward"]
    assert len(convolutions["forward"]) == 53


@pytest.mark.alone
def test_main_job_end_to_end(tmp_path):
    """What a newcomer types, with this machine's own ceilings: every report is there and no operator beats its bound."""
    output = tmp_path / "run"
    command = [sys.executable, "-m", "rooflines", "profile", "--model", "resnet50", "--device", "cpu", "--batch-size", "4"]
    done = subprocess.run([*command, "--output", str(output)], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    analysis = json.loads((output / "analysis.json").read_text())
    assert analysis["totals"]["matrix_flops"] == pytest.approx(2 * 4.089e9 * 4, rel=1e-3)
    assert analysis["coverage"]["modelled_time_fraction"] >= 0.97
    assert max(row.get("efficiency", 0) for row in analysis["operators"]) <= 1.1
    assert any(row["module"] == "layer1.0.conv2" for row in analysis["operators"] if row["category"] == "convolution")
    check_sums(analysis)
    for name in ("run.json", "samples.parquet", "operators.parquet", "operators.csv", "report.html", "report.pdf"):
        assert (output / name).stat().st_size > 0, name
    assert list(output.glob("*.pt.trace.json.gz"))
    assert list(output.glob("events.out.tfevents.*"))
    assert analysis["steps"]["profiler_dilation"] > 0
    assert "profiler" in done.stdout
    assert str(output / "report.html") in done.stdout


def test_analyze_and_report_derive_the_same_from_the_raw_files(tmp_path, ceilings_file):
    before = profiled(tmp_path, ceilings_file, "squeezenet1_1", image_size=64)
    run = rooflines.load(tmp_path / "run")
    assert json.loads(json.dumps(rooflines.analyze(run).to_dict())) == before
    (Path(run.directory) / "analysis.json").unlink()
    assert json.loads(json.dumps(rooflines.analyze(run.directory).to_dict())) == before


def test_under_autocast_convolutions_are_bf16_and_the_products_the_same(tmp_path, ceilings_file):
    analysis = profiled(tmp_path, ceilings_file, "resnet50", batch_size=2, image_size=64, precision="amp-bf16")
    convolutions = [row for row in analysis["operators"] if row["category"] == "convolution"]
    assert {row["precision"] for row in convolutions} == {"bf16"}
    assert sum(row["calls"] for row in convolutions) == 53
    assert analysis["totals"]["matrix_flops"] == pytest.approx(2 * 2 * published_macs("resnet50") * (64 / 224) ** 2, rel=0.02)
    check_sums(analysis)
