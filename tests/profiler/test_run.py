"""The run directory: what it is called, when it may be written, that what is written loads again."""

import json

import pytest

from rooflines.device_specs.records import Ceilings
from rooflines.errors import OutputError, RunError
from rooflines.profiler.directory import JOURNAL_FILE, check_directory, create_directory, default_directory, file_stem, load, save
from rooflines.profiler.records import RUN_SCHEMA, Environment, RunFile, Settings, StepTimes, Workload
from rooflines.profiler.samplers.fields import Counter, DeviceSample
from rooflines.profiler.samplers.storage import JournalEntry, write_entry
from rooflines.profiler.tree.external_trace import run_of_trace
from tests.samples import ceilings
from tests.traces import add, kernel, launch, mm, op, parse_trace, trace

FACTS = RunFile(
    status="complete",
    created="2026-11-20T10:55:00+00:00",
    workload=Workload(name="resnet50", mode="training", batch_size=4, unit="images", image_size=224, optimizer="SGD"),
    environment=Environment(
        host="h", os="Linux", python="3.11", rooflines="0.1.0", torch="2.14.1", device="cpu", device_name="a CPU", threads=2
    ),
    settings=Settings(command="rooflines profile --model resnet50", steps=3, warmup=2, seed=7),
    steps=StepTimes(warmup_ns=(9, 8), timed_ns=(7, 6, 5), traced_ns=(8,), settled=True, rule="as asked"),
    ceilings=Ceilings(device="a CPU", kind="cpu", ceilings=ceilings()),
    trace="resnet50.pt.trace.json.gz",
    peak_memory_bytes=1 << 30,
    peak_memory_kind="resident set",
    notes=("one", "two"),
)
SAMPLES = tuple(DeviceSample(time_ns=i, source="psutil", process_rss_bytes=i << 20) for i in range(3))


def test_what_is_saved_loads_again_and_what_nobody_measured_is_absent(tmp_path):
    # What is saved loads again.
    saved = save(tmp_path, FACTS, SAMPLES)
    loaded = load(tmp_path)
    assert loaded == saved
    assert loaded.facts == FACTS
    assert loaded.samples == SAMPLES
    assert loaded.trace_path == tmp_path / "resnet50.pt.trace.json.gz"
    # What nobody measured is absent from the file.
    (tmp_path / "other").mkdir()
    save(tmp_path / "other", FACTS)
    plain = json.loads((tmp_path / "other" / "run.json").read_text())
    assert plain["schema"] == RUN_SCHEMA
    assert "driver" not in plain["environment"]
    assert "error" not in plain
    assert load(tmp_path / "other").samples == ()
    # The table counts where there is one.
    (tmp_path / JOURNAL_FILE).write_text("left behind\n")
    assert load(tmp_path).samples == SAMPLES


def test_runs_that_began_or_were_killed(tmp_path):
    # A run that has only begun loads.
    save(tmp_path, RunFile(workload=FACTS.workload, environment=FACTS.environment))
    loaded = load(tmp_path)
    assert loaded.facts.status == "running"
    assert loaded.trace_path is None
    # A run that was killed has the samples of its journal.
    counter = Counter(source="psutil", device="host", field="process_rss_bytes")
    save(tmp_path, RunFile(workload=FACTS.workload, environment=FACTS.environment, notes=("one",)))
    with (tmp_path / JOURNAL_FILE).open("wb") as file:
        for entry in (
            JournalEntry(problem="No GPU is sampled."),
            JournalEntry(counter=counter),
            *(JournalEntry(sample=sample) for sample in SAMPLES),
        ):
            write_entry(file, entry)
        file.write(b'{"sample":{"time_ns"')
    loaded = load(tmp_path)
    assert loaded.samples == SAMPLES
    assert loaded.facts.counters == (counter,)
    assert loaded.facts.notes == ("one", "device samples: No GPU is sampled.")


def test_other_schemas_and_newer_fields(tmp_path):
    # A newer field does not stop an older reader.
    save(tmp_path, FACTS)
    plain = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**plain, "invented_later": 1}))
    assert load(tmp_path).facts == FACTS
    # Another schema is named before its fields are read.
    (tmp_path / "run.json").write_text('{"schema": "rooflines.run/2", "workload": 3}')
    with pytest.raises(RunError, match=r"has schema 'rooflines\.run/2'; this version of rooflines reads 'rooflines\.run/1'"):
        load(tmp_path)


def test_writing_where_there_is_no_directory_is_our_error(tmp_path):
    with pytest.raises(OutputError, match="cannot write the run"):
        save(tmp_path / "gone", FACTS, SAMPLES)


@pytest.mark.parametrize(
    ("name", "stem"),
    [("resnet50", "resnet50"), ("hf:org/model", "hf-org-model"), ("../../etc/x.py:f", "etc-x.py-f"), ("...", "run"), ("ü" * 9, "run"),
     ("a" * 200, "a" * 80)],
)  # fmt: skip
def test_file_names_are_plain(name, stem):
    assert file_stem(name) == stem


def test_default_directories_never_collide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = []
    for _ in range(3):
        made.append(default_directory("net", "inference"))
        create_directory(made[-1])
    assert len(set(made)) == 3
    assert all(path.parts[0] == "runs" and path.name.startswith("net-inference-") for path in made)


def test_a_directory_is_used_only_when_empty_and_checking_leaves_nothing(tmp_path):
    # Checking leaves nothing behind.
    check_directory(tmp_path / "a" / "b")
    check_directory(tmp_path)
    assert list(tmp_path.iterdir()) == []
    # A directory is used only when empty.
    create_directory(tmp_path / "a" / "b")
    create_directory(tmp_path / "a" / "b")
    with pytest.raises(OutputError, match=r"is not empty \(1 entry\)"):
        create_directory(tmp_path / "a")


H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936, "computeMajor": 9, "computeMinor": 0, "numSms": 132}

MI300X = {
    "id": 0, "name": "AMD Instinct MI300X", "totalGlobalMem": 205571227648, "computeMajor": 9, "computeMinor": 4, "numSms": 304,
    "warpSize": 64,
}  # fmt: skip


def on_device(ordinal):
    return {**kernel("k", 2, 3, 1), "args": {"correlation": 1, "stream": 7, "device": ordinal}}


def facts(*events, **head):
    return run_of_trace("a/b/c.json.gz", parse_trace(json.dumps({**head, "traceEvents": list(events)}).encode())).facts


def test_the_device_of_a_trace():
    # A trace names its device and nothing else.
    found = facts(launch(0, 1, 1), kernel("k", 2, 3, 1), deviceProperties=[H100]).environment
    assert (found.device, found.device_name) == ("cuda:0", "NVIDIA H100 80GB HBM3")
    assert (found.device_memory_bytes, found.device_units) == (85018279936, 132)
    assert (found.host, found.os, found.torch) == (None, None, None)
    # The device is the one that worked.
    other = {**H100, "name": "NVIDIA L4", "id": 1}
    assert facts(on_device(1), deviceProperties=[other, H100]).environment.device_name == "NVIDIA L4"
    assert facts(on_device(0), deviceProperties=[other, H100]).environment.device_name == "NVIDIA H100 80GB HBM3"
    # As in traces of ROCm, whose kernels carry the number of an agent.
    for properties in ([MI300X], [MI300X, {**MI300X, "id": 1, "totalGlobalMem": 205571227648 - 4096}]):
        found = facts(on_device(9), deviceProperties=properties).environment
        assert (found.device, found.device_name, found.device_units) == ("cuda:9", "AMD Instinct MI300X", 304)


CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4"


@pytest.mark.parametrize(("kernels", "allowed"), [
    (["cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4", "ampere_sgemm_32x128_tn"], {"matmul": True, "convolution": False}),
    (["sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32"], {"matmul": True, "convolution": False}),
    ([CONVOLUTION, "ampere_sgemm_32x128_tn"], {"matmul": False, "convolution": True}),
    ([CONVOLUTION, "cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4"], {"matmul": True, "convolution": True}),
    (["ampere_sgemm_32x128_tn", "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nn"], None),
    (["ampere_bf16_s1688gemm_bf16_128x64_sliced1x2_ldg8_f2f_tn", "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_nn"], None),
])  # fmt: skip
def test_kernels_tell_where_tf32_was_allowed(kernels, allowed):
    assert facts(*(kernel(name, 2 + 2 * i, 1, i) for i, name in enumerate(kernels))).tf32 == allowed


def test_several_models_and_an_unknown_device_are_said():
    found = facts(on_device(9), deviceProperties=[MI300X, H100])
    assert found.environment.device_name == ""
    (note,) = found.notes
    assert "ran on device 9, which the trace does not describe" in note
    assert "several models: AMD Instinct MI300X, NVIDIA H100 80GB HBM3" in note


@pytest.mark.parametrize(("properties", "kernels", "name", "clue"), [
    ([{**H100, "name": ""}], "k", "NVIDIA H100 80GB HBM3", "compute capability 9.0, 132 units, 85.0 GB of memory"),
    ([{**MI300X, "name": ""}], "k", "AMD Instinct MI300X", "compute capability 9.4, 304 units, 206 GB of memory"),
    ([{**MI300X, "name": "AMD Radeon Graphics"}], "Cijk_Alik_Bljk_BBS_BH_ISA942_IU1", "AMD Instinct MI300X", "kernels of gfx942"),
    ([], "Cijk_Ailk_Bljk_HHS_BH_MI300X_GRVW8", "AMD Instinct MI300X", "kernels of MI300X"),
    ([], "triton_red_fused_gfx908", "AMD Instinct MI100", "kernels of gfx908"),
])  # fmt: skip
def test_a_name_that_is_missing_is_inferred_and_marked(properties, kernels, name, clue):
    found = facts(launch(0, 1, 1), kernel(kernels, 2, 3, 1), deviceProperties=properties)
    assert found.environment.device_name == name
    assert clue in found.environment.device_inferred
    assert f"treated as {name}, inferred from" in found.notes[-1]


def test_the_name_of_a_workload():
    # An H20 has the compute capability of an H100 and a seventh of its arithmetic.
    found = facts(kernel("sm90_xmma_gemm_bf16bf16_bf16f32_tn_n_tilesize128x128x64", 2, 3, 1))
    assert (found.environment.device_name, found.environment.device_inferred) == ("", None)
    assert all(name in found.notes[-1] for name in ("kernels of sm90 fit several", "H100 SXM5 80GB", "H20"))
    # A product for one market may be the same but for the rates that were cut.
    found = facts(kernel("k", 2, 3, 1), deviceProperties=[{**H100, "name": "NVIDIA H850"}])
    assert (found.environment.device_name, found.environment.device_inferred, found.notes) == ("NVIDIA H850", None, ())


@pytest.mark.parametrize(("category", "device"), [
    ("xpu_runtime", "xpu:0"), ("xpu_driver", "xpu:0"), ("mtia_runtime", "mtia:0"), ("cuda_runtime", "cuda:0"),
])  # fmt: skip
def test_the_platform_is_told_by_its_runtime(category, device):
    assert facts({**launch(0, 1, 1), "cat": category}, kernel("k", 2, 3, 1)).environment.device == device
    assert facts(add(0, 1), deviceProperties=[H100]).environment.device == "cpu", "without device events"


@pytest.mark.parametrize("name", [
    "autograd::engine::evaluate_function: MmBackward0", "MmBackward", "torch::autograd::AccumulateGrad", "Optimizer.step#SGD.step",
])  # fmt: skip
def test_what_differentiates_or_optimizes_is_training(name):
    assert facts(op(name, 0, 5), add(10, 5)).workload.mode == "training"
    assert facts(add(0, 5)).workload.mode == "inference"


def test_the_precision_is_that_of_most_elements():
    half = op("aten::mm", 0, 1, dims=[[64, 64], [64, 64]], types=["c10::BFloat16", "c10::BFloat16"])
    assert run_of_trace("t", trace(half, mm(2, 1, 8, 8, 8))).facts.workload.precision == "bf16"
    assert run_of_trace("t", trace(half, mm(2, 1, 512, 64, 512))).facts.workload.precision == "fp32"
    assert run_of_trace("t", trace(op("aten::mm", 0, 1))).facts.workload.precision == ""
