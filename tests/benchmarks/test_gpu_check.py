"""What ``make gpu-check`` does with what a GPU gave it: the parts that need none."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_check.py"


@pytest.fixture(scope="module")
def gpu_check():
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ceiling(name, value, **fields):
    kind = fields.pop("kind", "compute")
    unit = "B/s" if kind in ("memory", "link") else "FLOP/s"
    return {"kind": kind, "name": name, "value": value, "unit": unit, "source": {"kind": "measured", "detail": "kernel"}, **fields}


MEASURED = [
    ceiling("GEMM bf16", 791e12, precision="bf16", engine="matrix", accumulate="fp32", spread=0.004,
            conditions={"clock_hz": 1.75e9, "power_w": 690.0, "temperature_c": 55.0, "throttled": ["software power cap"]}),
    ceiling("GEMM bf16", 700e12, precision="bf16", engine="matrix", accumulate="fp32", spread=0.01, variant="sustained"),
    ceiling("FMA fp32", 59e12, precision="fp32", engine="vector", accumulate="fp32", spread=0.001),
    ceiling("HBM copy", 4.2e12, kind="memory", level="HBM", access="copy", spread=0.002),
    ceiling("L2 read", 6e12, kind="memory", level="L2", access="read", capacity_bytes=60 << 20, spread=0.002),
    ceiling("H2D", 55e9, kind="link", level="host", spread=0.002),
]  # fmt: skip
SHEET = [
    ceiling("bf16 matrix", 989e12, precision="bf16", engine="matrix", accumulate="fp32"),
    ceiling("fp16 matrix", 989e12, precision="fp16", engine="matrix", accumulate="fp32"),
    ceiling("fp32 vector", 67e12, precision="fp32", engine="vector", accumulate="fp32"),
    ceiling("HBM3e", 4.8e12, kind="memory", level="HBM"),
]

# As `ncu --csv --page details --print-units base` lays it out; two kernels, one metric that the chip does not have.
NCU = """==PROF== Connected to process 4711 (/usr/bin/python3.12)
==PROF== Profiling "vectorized_elementwise_kernel" - 0: 0%....50%....100% - 3 passes
{"our_bytes": 1, "our_flops": 1}
==PROF== Disconnected from process 4711
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name",\
"Metric Name","Metric Unit","Metric Value"
"0","4711","python3.12","127.0.0.1","mul, kernel","1","7","(128, 1, 1)","(65536, 1, 1)","0","9.0","Command line profiler metrics",\
"dram__bytes.sum","byte","3,100,000,000"
"0","4711","python3.12","127.0.0.1","mul, kernel","1","7","(128, 1, 1)","(65536, 1, 1)","0","9.0","Command line profiler metrics",\
"smsp__sass_thread_inst_executed_op_fadd_pred_on.sum","inst","10"
"0","4711","python3.12","127.0.0.1","mul, kernel","1","7","(128, 1, 1)","(65536, 1, 1)","0","9.0","Command line profiler metrics",\
"smsp__sass_thread_inst_executed_op_fmul_pred_on.sum","inst","268435456"
"0","4711","python3.12","127.0.0.1","mul, kernel","1","7","(128, 1, 1)","(65536, 1, 1)","0","9.0","Command line profiler metrics",\
"smsp__sass_thread_inst_executed_op_ffma_pred_on.sum","inst","5"
"1","4711","python3.12","127.0.0.1","reduce","1","7","(128, 1, 1)","(1, 1, 1)","0","9.0","Command line profiler metrics",\
"dram__bytes.sum","byte","100"
"1","4711","python3.12","127.0.0.1","reduce","1","7","(128, 1, 1)","(1, 1, 1)","0","9.0","Command line profiler metrics",\
"smsp__sass_thread_inst_executed_op_fmul_pred_on.sum","inst","n/a"
"""


def test_measured_ceilings_stand_beside_their_sheet(gpu_check):
    rows = {row["name"]: row for row in gpu_check.compared(MEASURED, SHEET)}
    assert rows["GEMM bf16"]["fraction"] == pytest.approx(791 / 989)
    assert rows["GEMM bf16 (sustained)"]["fraction"] == pytest.approx(700 / 989)
    assert rows["FMA fp32"]["fraction"] == pytest.approx(59 / 67)
    assert rows["HBM copy"]["fraction"] == pytest.approx(4.2 / 4.8)
    assert rows["L2 read"]["fraction"] is None
    assert rows["H2D"]["fraction"] is None
    table = gpu_check.ceilings_table(rows.values())
    line = next(line for line in table.splitlines() if line.startswith("GEMM bf16  "))
    for words in ("791 TFLOP/s", "989 TFLOP/s", "80 %", "0.4 %", "1.75 GHz", "690 W", "55 C", "software power cap"):
        assert words in line
    assert all(row["fraction"] is None for row in gpu_check.compared(MEASURED, []))


def test_targets_are_those_of_the_device(gpu_check):
    rows = gpu_check.compared(MEASURED, SHEET)
    checks = []
    gpu_check.check_ceilings("NVIDIA H200", rows, checks)
    assert {check["what"]: check["ok"] for check in checks} == {
        "HBM copy >= 4.10 TB/s": True,
        "FMA fp32 >= 60.0 TFLOP/s": False,
        "GEMM bf16 >= 780 TFLOP/s": True,
        "GEMM fp8 >= 1.40 PFLOP/s": False,
        "no ceiling above 1.2 x its data sheet": True,
    }
    assert [check["found"] for check in checks if "fp8" in check["what"]] == ["not measured"]
    for other in ("NVIDIA H200 NVL", "NVIDIA H100 80GB HBM3"):
        checks = []
        gpu_check.check_ceilings(other, rows, checks)
        assert len(checks) == 1


def test_a_ceiling_far_above_its_sheet_is_an_error_of_ours(gpu_check):
    checks = []
    gpu_check.check_ceilings("x", gpu_check.compared([ceiling("HBM copy", 9.6e12, kind="memory", level="HBM")], SHEET), checks)
    assert [(check["ok"], check["found"]) for check in checks] == [(False, "2.00 by HBM copy")]


def test_counters_are_added_up_over_kernels(gpu_check):
    counted = gpu_check.parse_counters(NCU)
    assert counted[gpu_check.DRAM_BYTES] == 3_100_000_100
    found = gpu_check.beside(counted, {"our_bytes": 3 << 30, "our_flops": 1 << 28})
    assert found["flops"] == 10 + 268_435_456 + 2 * 5
    assert found["bytes_ratio"] == pytest.approx(3_100_000_100 / (3 << 30))
    assert found["flops_ratio"] == pytest.approx(1, rel=1e-6)
    assert gpu_check.parse_counters("==ERROR== nothing was profiled") == {}
    assert "flops" not in gpu_check.beside({gpu_check.DRAM_BYTES: 5.0}, {"our_bytes": 0, "our_flops": 0})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
            "only administrators",
        ),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "LibraryNotLoaded"),
        (NCU, ""),
    ],
)
def test_counters_that_may_not_be_read_are_left_out(gpu_check, text, words):
    found = gpu_check.counters_refused(text)
    assert words in found
    assert bool(found) == bool(words)


def test_a_part_that_fails_is_written_and_stops_nothing(gpu_check, tmp_path, capsys):
    output, result = tmp_path / "new" / "out.json", {"checks": []}
    gpu_check.do_part("first", lambda: 1 / 0, output, result)
    assert "ZeroDivisionError" in json.loads(output.read_text())["first"]["error"]
    gpu_check.do_part("second", lambda: {"figure": 1}, output, result)
    written = json.loads(output.read_text())
    assert written["second"] == {"figure": 1}
    assert [(check["what"], check["ok"]) for check in written["checks"]] == [("first: ran", False)]
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_operators_are_far_larger_than_any_cache(gpu_check):
    import rooflines

    class Small:
        """torch, but with tensors of a few elements: the counts are checked where they are made."""

        def __getattr__(self, name):
            return getattr(torch, name)

        def rand(self, *sizes, device, **options):
            return torch.rand(*[min(size, 64) for size in sizes], **options)

    for name, operator in gpu_check.operators().items():
        function, inputs = operator.make(Small())
        if "layer_norm" in name:
            inputs = (inputs[0], (64,))
        count = rooflines.count(function, *inputs)
        assert count.bytes > 0, name
        assert operator.flops_within is None or count.flops > 0, name
