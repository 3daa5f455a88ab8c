"""The page of a GPU check, from a record as an H200 might leave it."""

import msgspec
import pytest

from rooflines.device_specs.compare import References, compare
from rooflines.device_specs.records import Ceiling, Ceilings, Conditions, Source
from rooflines.gpu_check.page import page
from rooflines.gpu_check.records import Check, Device, Findings, GpuCheck, LeftOut, Part, Target
from rooflines.pipeline.ceilings import sheet_of
from rooflines.profiler.records import Environment
from rooflines.reports.render import html
from rooflines.serial import to_plain
from tests.printing import in_terminal

H200 = Environment(rooflines="0.1", device="cuda:0", device_name="NVIDIA H200", device_units=132, device_memory_bytes=150_000_000_000,
                   driver="570.124.06", torch="2.14.1+cu130")  # fmt: skip


def part(name, outcome, findings, reason=""):
    return Part(name=name, outcome=outcome, reason=reason, wall_s=61.0, limit_s=130.0, findings=findings)


@pytest.fixture(scope="module")
def record():
    product = Ceiling(
        kind="compute", name="GEMM bf16", value=791e12, unit="FLOP/s", precision="bf16", engine="matrix", accumulate="fp32",
        spread=0.004, source=Source(kind="measured", detail="torch.mm"),
        conditions=Conditions(clock_hz=1.75e9, power_w=690.0, temperature_c=55.0),
    )  # fmt: skip
    measured = Ceilings(device="NVIDIA H200", kind="cuda", ceilings=(product,))
    sheet, _ = sheet_of(H200)
    target = Target(ceiling="GEMM bf16", unit="FLOP/s", least=780e12, goal=800e12, basis="set for the H200 SXM5", measured=791e12)
    figures = to_plain({"measured": measured, "compared": compare(measured, References(spec=sheet)), "targets": (target,)})
    ok = Check(law="GEMM bf16 >= 780 TFLOP/s", subject="ceilings", outcome="ok", found="791 TFLOP/s; goal 800 TFLOP/s")
    bad = Check(law="no efficiency above 1.05", subject="resnet50 training fp32", outcome="failed", found="1.310 by aten::relu_ layer1")
    out = Check(law="integrated power = energy counter within 3 %", subject="resnet50 training", outcome="left out", found="too short")
    run = {"verdict": "Compute bound.", "steps": {"median_s": 0.031}, "coverage": {"modelled_time_fraction": 0.991}}
    runs = {"resnet50 training fp32": run, "lstm fp32": {"error": "exit 2"}}
    absent = LeftOut(what="hardware counters", reason="ncu is not installed")
    return GpuCheck(
        created="2026-11-23T18:00:00+00:00", device=Device(environment=H200, max_clock_hz=1.98e9), evidence="gpu_check_nvidia-h200-1",
        parts=(
            part("ceilings", "ok", Findings(figures=figures, checks=[ok])),
            part("profiles", "failed", Findings(figures={"runs": runs}, checks=[bad, out]), "1 of 2 checks failed"),
            part("energy", "failed", Findings(figures={"held": {}}), "stopped after 35 s"),
            part("counters", "left out", Findings(left_out=[absent]), absent.reason),
        ),
    )  # fmt: skip


def printed(record):
    return in_terminal(page(record), 140, color_system=None)


def test_verdict_and_terminal(record):
    # The verdict counts checks and names parts that did not complete.
    assert page(record).verdict == "GPU check failed: 1 of 2 checks failed; part not completed: energy. 1 check left out."
    assert record.failed
    # The terminal shows failures parts targets ceilings and omissions.
    shown = printed(record)
    for words in ("NVIDIA H200", "driver 570.124.06", "1.310 by aten::relu_ layer1", "stopped after 35 s", "not reached", "791 TFLOP/s",
                  "989 TFLOP/s", "80 %", "31.0 ms", "99.1 %", "ncu is not installed", "Targets: set for the H200 SXM5"):  # fmt: skip
        assert words in shown, words
    assert "goal 800 TFLOP/s" not in shown  # checks that passed are on the page only


def test_the_page_has_every_check_and_no_section_without_figures(record):
    # The page has every check.
    shown = html.render(page(record))
    for words in ("goal 800 TFLOP/s", "too short", "1.310 by aten::relu_ layer1", "690"):
        assert words in shown, words
    # Sections without figures are not there.
    only = msgspec.structs.replace(record, parts=record.parts[-1:])
    assert [section.name for section in page(only).sections] == ["parts", "left_out"]
    assert not only.failed
