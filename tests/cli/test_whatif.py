"""``rooflines whatif`` and ``rooflines.what_if``: the step with changes that are named."""

import json

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
