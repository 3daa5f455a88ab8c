"""``rooflines whatif`` and ``rooflines.what_if``: the step with changes that are named."""

import json
import shlex

import pytest

import rooflines
from rooflines.errors import TraceError, UsageError
from tests.commands import call
from tests.roofline.real import DATA
from tests.traces import add, kernel, launch, mm, span


@pytest.fixture
def late(tmp_path):
    """Three steps of 200 us on an H100, in which the host launches a product of 60 us, and after 100 us an addition of 10 us."""
    device = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
    events = []
    for number in range(3):
        at = 200 * number
        events += [
            span(f"ProfilerStep#{number}", at, 200),
            mm(at, 20, 1024, 1024, 1024), launch(at + 5, 5, 2 * number), kernel("ampere_sgemm_128x64_nn", at + 12, 60, 2 * number),
            add(at + 100, 20), launch(at + 105, 5, 2 * number + 1), kernel("add", at + 112, 10, 2 * number + 1),
        ]  # fmt: skip
    path = tmp_path / "late.json"
    path.write_text(json.dumps({"schemaVersion": 1, **device, "traceEvents": events}))
    return path


def test_faster_kernels_give_nothing_before_the_host_is_in_time(late):
    found = rooflines.what_if(late, gaps=False, scale={"aten::mm": 0.5})
    host, product = found.changes
    assert found.step_s == pytest.approx(200e-6, rel=0.01)
    assert host.step_s == pytest.approx(70e-6, abs=5e-6), "the two kernels one after another"
    assert product.alone_s == pytest.approx(0, abs=1e-6)
    assert host.step_s - product.step_s == pytest.approx(30e-6, abs=1e-6)
    assert found.replay.error < 0.01


def test_an_operator_that_goes_takes_its_launches_with_it(late):
    (with_launches,) = rooflines.what_if(late, without=["aten::add"]).changes
    (kernels_alone,) = rooflines.what_if(late, scale={"aten::add": 0}).changes
    assert with_launches.alone_s == pytest.approx(20e-6, abs=4e-6), "the operator on the host"
    assert kernels_alone.alone_s == pytest.approx(0, abs=1e-6)


def test_names_are_operators_patterns_categories_and_modules(late):
    by_name, by_pattern, by_category = (
        rooflines.what_if(late, gaps=False, scale={name: 0}).changes[-1].step_s for name in ("aten::mm", "*::m?", "matmul")
    )
    assert by_name == by_pattern == by_category
    with pytest.raises(UsageError, match="no operator or category matches 'aten::mm@decoder"):
        rooflines.what_if(late, without=["aten::mm@decoder.*"])
    with pytest.raises(UsageError, match="is negative"):
        rooflines.what_if(late, scale={"aten::mm": -1})
    (bounded,) = rooflines.what_if(late, at_bound=["matmul"]).changes
    assert bounded.alone_s >= 0


def test_a_processor_is_replayed_and_a_device_without_launches_is_not(tmp_path):
    (host,) = rooflines.what_if(DATA / "cpu_only.json.gz", gaps=False).changes
    assert 0 < host.step_s < host.alone_s
    path = tmp_path / "kernels.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [kernel("gemm", 0, 60, 1), kernel("gemm", 80, 60, 2)]}))
    with pytest.raises(TraceError, match="cannot be replayed"):
        rooflines.what_if(path, gaps=False)


def test_the_command_prints_a_table_and_json(capsys, monkeypatch, late):
    answer = call(capsys, monkeypatch, "whatif", late, "--no-gaps", "--scale", "aten::mm=0.5")
    assert answer.code == 0, answer
    said = " ".join(answer.out.split())
    assert "with these changes about" in said
    assert "the host never late" in said
    assert "reproduces the step within" in said
    plain = json.loads(call(capsys, monkeypatch, "whatif", late, "--no-waits", "--format", "json").out)
    assert plain["schema"] == "rooflines.whatif/1"
    assert plain["changes"][0]["change"] == "no waits of the host"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no change is given"),
        (("--scale", "aten::mm"), "is not NAME=FACTOR"),
        (("--at-bound", "x"), "no operator or category matches"),
    ],
)
def test_what_cannot_be_changed_is_one_line(capsys, monkeypatch, late, arguments, said):
    answer = call(capsys, monkeypatch, "whatif", late, *arguments)
    assert answer.code == 2
    assert said in answer.err


def test_the_curve_of_a_change_shows_where_something_else_limits_the_step(late):
    # The host launches 200 µs of work in 112 µs, then the device's 70 µs are the limit.
    (host,) = rooflines.what_if(late, gaps=False).changes
    assert host.curve_s[0] == pytest.approx(200e-6, rel=0.01)
    assert host.curve_s[-1] == host.step_s
    assert list(host.curve_s) == sorted(host.curve_s, reverse=True)
    (bounded,) = rooflines.what_if(late, scale={"aten::mm": 1.0}).changes
    assert bounded.enough is None, "it gives nothing"
    product = rooflines.what_if(late, gaps=False, scale={"aten::mm": 0}).changes[-1]
    assert product.enough == 1.0, "each part of it counts"


def test_options_of_profile_are_changes(late):
    host, low, graphs = rooflines.what_if(late, gaps=False, precision="bf16", graphs=True).changes
    assert low.change == "precision bf16"
    assert low.alone_s == pytest.approx(0, abs=1e-6), "the host is late"
    assert low.step_s < host.step_s - 20e-6
    assert graphs.alone_s > 100e-6
    assert graphs.step_s == pytest.approx(low.step_s, abs=1e-6), "the host is in time already"
    with pytest.raises(UsageError, match="the effect of precision int3 cannot be predicted"):
        rooflines.what_if(late, precision="int3")


def test_a_summary_has_the_changes(capsys, monkeypatch, late):
    answer = call(capsys, monkeypatch, "summary", late, "--whatif", "no-gaps", "--whatif", "scale=aten::mm=0.5", "--format", "json")
    found = json.loads(answer.out)
    assert [one["about"] for one in found["statements"]] == ["saving", "saving", "confidence"]
    assert found["statements"][0]["figures"]["/changes/0/alone_s"] == pytest.approx(130e-6, abs=5e-6)
    verify = shlex.split(found["statements"][1]["verify"])
    part = call(capsys, monkeypatch, *verify[1:])
    assert json.loads(part.out)["change"] == "aten::mm takes 0.5 of its time"
    asked = call(capsys, monkeypatch, "summary", late, "--whatif", "no-gaps", "--question", "idle")
    assert "--whatif cannot be used with --question" in asked.err
    wrong = call(capsys, monkeypatch, "summary", late, "--whatif", "faster")
    assert "'faster' is not a change of rooflines whatif" in wrong.err
