"""What only a GPU shows; run by ``make gpu-check``. Laws, not times."""

import json

import pytest

import rooflines
from tests.commands import write_ceilings

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _gpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")


def profiled(folder, model, **options):
    folder.mkdir(exist_ok=True)
    asked = {"steps": 3, "warmup": 2, "formats": ("json",), "ceilings": str(write_ceilings(folder)), **options}
    run = rooflines.profile(model, device="cuda", output=folder / "run", **asked)
    return run, json.loads((run.directory / "analysis.json").read_text())


def sums(analysis):
    timeline = analysis["timeline"]
    parts = sum(row["time_s"] for row in analysis["operators"]) + sum(item["time_s"] for item in analysis["coverage"]["unmodeled"])
    return parts + timeline["idle_s"] - timeline["overlap_s"], timeline["span_s"]


def slow(value):
    """What the GPU check shows in other parts, or another model does."""
    return pytest.param(value, marks=pytest.mark.slow)


@pytest.mark.parametrize("precision", [slow("fp32"), slow("tf32"), "bf16", "fp16", "amp-bf16", slow("amp-fp16")])
def test_inference_counts_do_not_depend_on_precision(tmp_path, precision):
    _, analysis = profiled(tmp_path, "resnet50", batch_size=4, precision=precision)
    assert analysis["totals"]["matrix_flops"] == 2 * 4 * 4_089_184_256
    assert analysis["coverage"]["modeled_time_fraction"] >= 0.97
    left, right = sums(analysis)
    assert left == pytest.approx(right, rel=1e-3)
    convolutions = {row["precision"] for row in analysis["operators"] if row["category"] == "convolution"}
    assert convolutions == {precision.removeprefix("amp-")}


@pytest.mark.parametrize("model", ["resnet50", "vit_b_16", slow("swin_t")])
def test_training_phases_and_modules(tmp_path, model):
    run, analysis = profiled(tmp_path, model, batch_size=4, mode="training", precision="amp-bf16")
    rows = analysis["operators"]
    assert {"forward", "backward", "optimizer"} <= {row["phase"] for row in rows if row["time_s"] > 0}
    forward = {row["module"] for row in rows if row["phase"] == "forward" and row["matrix_flops"]}
    backward = {row["module"] for row in rows if row["phase"] == "backward" and row["matrix_flops"]}
    assert backward == forward
    left, right = sums(analysis)
    assert left == pytest.approx(right, rel=1e-3)
    assert analysis["coverage"]["modeled_time_fraction"] >= 0.95
    assert run.facts.steps.clock == "cuda events"
    assert len(run.facts.steps.timed_ns) == 3
    assert run.facts.peak_memory_kind == "allocator"
    assert run.facts.peak_memory_bytes > 0


def test_samples_name_the_gpu_as_torch_does(tmp_path):
    run, _ = profiled(tmp_path, "resnet50", batch_size=32)
    assert "cuda:0" in {sample.device for sample in run.samples}


@pytest.mark.parametrize("mode", [slow("inference"), "training"])
def test_triton_kernels_have_the_work_of_their_graph(tmp_path, mode):
    _, eager = profiled(tmp_path / "eager", "resnet18", batch_size=4, mode=mode)
    _, compiled = profiled(tmp_path / "compiled", "resnet18", batch_size=4, mode=mode, compile=True)
    fused = [row for row in compiled["operators"] if row["name"].startswith("triton_")]
    assert fused
    assert all(row["bytes"] > 0 and row["time_s"] > 0 for row in fused)
    assert compiled["totals"]["matrix_flops"] == eager["totals"]["matrix_flops"]
    # fused code moves less, except where it changes the layout of weights for convolutions, which are copies of their own
    eager_bytes, compiled_bytes = (
        sum(row["bytes"] for row in one["operators"] if row["category"] != "copy") for one in (eager, compiled)
    )
    assert compiled_bytes < eager_bytes
    assert compiled["coverage"]["modeled_time_fraction"] >= 0.95
    products = [{row["path"]: row["matrix_flops"] for row in found["modules"] if row["matrix_flops"]} for found in (eager, compiled)]
    assert products[0] == products[1]
    left, right = sums(compiled)
    assert left == pytest.approx(right, rel=1e-3)


def test_a_loop_is_recorded_on_the_gpu_that_it_uses(tmp_path):
    """The last one, which is not the current one where there are several."""
    import torch

    device = torch.device("cuda", torch.cuda.device_count() - 1)
    network = torch.nn.Linear(1024, 1024, device=device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    with rooflines.record(tmp_path / "run", ceilings=str(write_ceilings(tmp_path)), formats=("json",)) as recording:
        for _ in range(40):
            network(torch.ones(1024, 1024, device=device)).sum().backward()
            optimizer.step()
            recording.step()
    facts = recording.run.facts
    assert facts.environment.device == str(device)
    assert facts.steps.clock == "cuda events"
    assert str(device) in {sample.device for sample in recording.run.samples}


def test_the_timed_pass_is_long_enough_for_the_energy_of_a_step(tmp_path):
    run, _ = profiled(tmp_path, "resnet18", steps=None, warmup=None)
    steps = run.facts.steps
    assert sum(steps.timed_ns) >= 2e9
    assert steps.clock == "cuda events"


def test_steps_on_two_streams_have_their_wall_time(tmp_path):
    import torch

    side = torch.cuda.Stream()
    matrix = torch.ones(4096, 4096, device="cuda")

    def step():
        with torch.cuda.stream(side):
            for _ in range(20):
                torch.mm(matrix, matrix)

    run, _ = profiled(tmp_path, step)
    assert run.facts.steps.clock == "wall clock"
