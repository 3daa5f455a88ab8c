"""The counters part: our count of its operators against closed forms, ncu's table by operator, and what keeps it from counting."""

import pytest

from rooflines.profiler.records import Environment
from tests.gpu import test_counters as counters
from tests.gpu.operators import ELEMENTS, OPERATORS, count_operators
from tests.gpu.parts import Device, Ended, Recorder
from tests.gpu.test_counters import BYTES_WITHIN

GPU = Device(environment=Environment(rooflines="0", device="cuda:0", device_name="NVIDIA H200"))
FADD, FMUL, FFMA = counters.FP32_INSTRUCTIONS


def closed_form(name, n):
    """The compulsory bytes of an operator of ``n`` elements of 4 bytes: inputs once, the result once."""
    return {
        "add fp32": 3 * 4 * n,
        "sum fp32": 4 * 2 * n + 4,
        "relu bf16": 2 * 2 * 2 * n,
        "fp32 to bf16": (4 + 2) * 2 * n,
        "layer_norm fp32": 2 * 4 * n + 2 * 4 * (n // 1024),  # and the mean and the deviation of each row
        "softmax fp32": 2 * 4 * n,
        "depthwise conv fp32": 2 * 4 * n + 4 * 64 * 9,
        "embedding fp32": 2 * 4 * n + 8 * (n // 1024),  # and the indices
        "mm fp32": 2 * 4 * n + 4 * 64 * 64,
        "mm bf16": 2 * 2 * 2 * n + 2 * 64 * 64,
    }[name]


def test_our_count_of_every_operator_is_its_closed_form():
    n = ELEMENTS["cpu"]
    found = {one["operator"]: one for one in count_operators("cpu")}
    assert list(found) == list(OPERATORS)
    assert len(found) == 10
    assert {name: one["our_bytes"] for name, one in found.items()} == {name: closed_form(name, n) for name in OPERATORS}
    assert found["mm fp32"]["our_flops"] == 2 * (n // 64) * 64 * 64
    assert found["sum fp32"]["our_flops"] == 2 * n


@pytest.mark.parametrize("name", OPERATORS)
def test_on_a_gpu_the_bytes_are_far_more_than_a_cache_keeps(name):
    """The largest L2 cache has 126 MB (B200): what it keeps is less than the tolerance of the bytes."""
    assert closed_form(name, ELEMENTS["cuda"]) >= 2 << 30
    assert 126e6 / closed_form(name, ELEMENTS["cuda"]) < 0.06 < BYTES_WITHIN


# --- ncu's table: lines of the program and of ncu, then a line for each metric of each kernel, with the ranges around its launch

HEADER = (
    '"ID","Process ID","Process Name","Host Name",'
    '"thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",'
    '"Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",'
    '"Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value",'
    '"Rule Name","Rule Type","Rule Description"'
)
BEFORE = """==PROF== Connected to process 4711 (/usr/bin/python3.12)
==PROF== Profiling "vectorized_elementwise_kernel" - 0: 0%....50%....100% - 3 passes
{"operator": "add fp32", "our_bytes": 1, "our_flops": 1}
==PROF== Disconnected from process 4711
"""


def pushed(*ranges):
    return "4711  " + " ".join(f'""{domain}:{name}:none:none:none:none:none:none""' for domain, name in ranges) + " "


def lines(number, kernel, ranges, **metrics):
    fixed = f'"{number}","4711","python3.12","127.0.0.1","{ranges}","","{kernel}","1","7","(128, 1, 1)","(65536, 1, 1)","0","9.0"'
    return [
        f'{fixed},"Command line profiler metrics","{metric}","inst","{value}","","",""'
        for metric, value in (metrics.items() if isinstance(metrics, dict) else metrics)
    ]


def table(*rows):
    return BEFORE + "\n".join([HEADER, *(line for row in rows for line in row)]) + "\n"


def kernel(number, name, ranges, dram, fadd="0", fmul="0", ffma="0"):
    return lines(number, name, ranges, **{counters.DRAM_BYTES: dram, FADD: fadd, FMUL: fmul, FFMA: ffma})


ADD = pushed(("<default domain>", "add fp32"))
SUM = pushed(("<default domain>", "sum fp32"), ("CCCL", "cub::DeviceReduce::Reduce"))


def test_metrics_are_added_up_over_the_kernels_of_an_operator():
    text = table(
        kernel(0, "add, vectorized", ADD, "3,100,000,000", ffma="268,435,456"),
        kernel(1, "reduce", SUM, "2,000,000,000", fadd="500"),
        kernel(2, "reduce, the rest", SUM, "100", fadd="12"),
        kernel(3, "fill", "", "7"),  # outside of any range
        kernel(4, "other", pushed(("<default domain>", "something else")), "9"),
    )
    counted = counters.parse_counters(text)
    assert set(counted) == {"add fp32", "sum fp32"}
    assert counted["add fp32"] == {counters.DRAM_BYTES: 3.1e9, FADD: 0, FMUL: 0, FFMA: 1 << 28}
    assert counted["sum fp32"][counters.DRAM_BYTES] == 2_000_000_100
    found = counters.beside(counted["sum fp32"], {"our_bytes": 2 << 30, "our_flops": 512})
    assert found["bytes_ratio"] == pytest.approx(2_000_000_100 / (2 << 30))
    assert found["flops_ratio"] == 1
    # a fused multiply-add is two
    assert counters.beside(counted["add fp32"], {"our_bytes": 1, "our_flops": 1 << 28})["flops_ratio"] == 2


def test_a_table_of_ncu_that_says_little():
    # A counter that a chip does not have is absent.
    counted = counters.parse_counters(table(kernel(0, "add", ADD, "3", fmul="n/a")))
    assert FMUL not in counted["add fp32"]
    assert set(counters.beside(counted["add fp32"], {"our_bytes": 0, "our_flops": 5})) == {"bytes"}
    # A table without ranges belongs to no operator.
    text = table(kernel(0, "add", ADD, "3")).replace(
        '"thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"', '"x"'
    )
    assert counters.parse_counters(text) == {}
    # Counts are found among lines of ncu.
    assert counters.parse_counts(BEFORE) == {"add fp32": {"our_bytes": 1, "our_flops": 1}}


@pytest.mark.parametrize("text", ["", "==ERROR== nothing was profiled", BEFORE])
def test_without_a_table_there_is_nothing(text):
    assert counters.parse_counters(text) == {}


@pytest.mark.parametrize(("text", "words"), [
    ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters", "administrators"),
    ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "LibraryNotLoaded"),
    (BEFORE, ""),
])  # fmt: skip
def test_counters_that_may_not_be_read_say_why(text, words):
    found = counters.counters_refused(text)
    assert words in found
    assert bool(found) == bool(words)


# --- the part


@pytest.fixture
def part(tmp_path, monkeypatch):
    """Runs the part with an ncu that does what it is told, and returns its recorder and the outcome of each law that was judged."""

    def run(out="", csv=None, code=0):
        def launch(command, log, seconds):
            if csv is not None:
                (tmp_path / "ncu.csv").write_text(csv)
            return Ended(code, f"stopped after {seconds:.0f} s" if code is None else f"exit code {code}", out, "")

        monkeypatch.setattr(counters, "find_ncu", lambda: "ncu")
        monkeypatch.setattr(counters, "run_logged", launch)
        recorder = Recorder(tmp_path, GPU, 600.0)
        counters.run_commands(recorder)
        return recorder

    return run


def outcomes(found):
    """The outcome and the figure or reason of each law."""
    judged = {param.id: param.values[0](found, GPU) for param in counters.LAWS}
    return {name: ("left out", known) if isinstance(known, str) else known for name, known in judged.items()}


def printed(**counts):
    return "\n".join(f'{{"operator": "{name}", "our_bytes": {bytes_}, "our_flops": 512}}' for name, bytes_ in counts.items()) + "\n"


BYTES, FLOPS = "bytes by hardware counters within 10 % of ours", "FLOPs by hardware counters within 5 % of ours"


def test_operators_are_compared_one_by_one(part):
    csv = table(kernel(0, "add", ADD, "95"), kernel(1, "reduce", SUM, "120", fadd="512"))
    recorder = part(printed(**{"add fp32": 100, "sum fp32": 100}), csv)
    found = outcomes(recorder.findings)
    assert recorder.error == ""
    assert found["hardware counters: ncu counts"] == (True, "2 operators")
    assert found[f"add fp32: {BYTES}"] == (True, "0.9500")
    assert found[f"sum fp32: {BYTES}"] == (False, "1.2000")
    assert found[f"sum fp32: {FLOPS}"] == (True, "1.0000")
    assert found[f"mm bf16: {BYTES}"] == ("left out", "the process ended before it")


@pytest.mark.parametrize(("bytes_", "outcome"), [("109", True), ("89", False), ("111", False), ("n/a", "left out")])
def test_bytes_agree_within_a_tenth(part, bytes_, outcome):
    found = part(printed(**{"add fp32": 100}), table(kernel(0, "add", ADD, bytes_))).findings
    assert outcomes(found)[f"add fp32: {BYTES}"][0] == outcome


def test_a_part_that_cannot_count(part, tmp_path, monkeypatch):
    # An operator without a kernel is no success.
    found = part(printed(**{"add fp32": 100}), table(kernel(1, "reduce", SUM, "120"))).findings
    assert outcomes(found)[f"add fp32: {BYTES}"] == (False, "no kernel in its range")
    # Too little memory leaves an operator out.
    full = '{"operator": "add fp32", "left_out": "not enough free memory on the device"}\n'
    found = part(full, table(kernel(1, "reduce", SUM, "1"))).findings
    assert outcomes(found)[f"add fp32: {BYTES}"] == ("left out", "not enough free memory on the device")
    # Refused counters leave the part out.
    found = part(csv="==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", code=1).findings
    assert found.figures == {}
    assert "administrators" in found.left_out[0].reason
    # An ncu that fails or hangs is a failure.
    failed = part(csv="", code=3)
    assert failed.error == "ncu: exit code 3"
    assert outcomes(failed.findings)["hardware counters: ncu counts"] == (False, "0 operators")
    assert part(code=None).error == "ncu: stopped after 90 s"
    # Without ncu the part is left out.
    monkeypatch.setattr(counters, "find_ncu", lambda: None)
    recorder = Recorder(tmp_path, GPU, 600.0)
    counters.run_commands(recorder)
    assert [one.reason for one in recorder.findings.left_out] == ["ncu (Nsight Compute) is not installed"]
