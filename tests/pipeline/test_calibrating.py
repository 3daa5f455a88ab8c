"""``rooflines calibrate``: what it measures, and that predictions can be made from it."""

import pytest

import rooflines
from rooflines.roofline.judge.step.interference import is_delayed
from tests.commands import call, write_ceilings


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrated")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("rooflines.profiler.workloads.kernel_sweep._LARGEST", {"cpu": 2**12})
        options = {"device": "cpu", "threads": 1, "ceilings": str(write_ceilings(folder)), "steps": 3, "warmup": 1, "formats": ()}
        rooflines.calibrate(**options, output=folder / "mine")
    return folder


def test_both_modes_measure_the_usual_operators_at_several_sizes(place):
    for mode in ("inference", "training"):
        analysis = rooflines.analyze(place / "mine" / mode)
        assert analysis.workload.mode == mode
        assert {"convolution", "matmul", "attention", "element-wise", "normalization", "reduction", "copy"} <= {
            row.category for row in analysis.operators
        }
        sizes = {row.flops for row in analysis.operators if row.name == "aten::addmm"}
        assert len(sizes) >= 4
    assert any(row.phase == "backward" and row.category == "convolution" for row in analysis.operators)
    assert any(row.phase == "optimizer" for row in analysis.rows)


def test_networks_are_predicted_from_it(place):
    like = [str(place / "mine" / mode) for mode in ("inference", "training")]
    if all(is_delayed(rooflines.analyze(run)) for run in like):
        pytest.skip("other programs delayed the sweep in nearly every step")
    found = rooflines.predict("resnet18", mode="training", devices=[str(place / "ceilings.json")], like=like)
    (step,) = found.devices[0].steps
    assert step.lower_bound_s < step.estimate.time_s
    assert step.estimate.high_s is None  # the file of ceilings is that of another processor
    bases = {one.estimate.basis for row in found.operators for one in row.bounds if one.estimate is not None}
    assert any(basis.startswith("aten::convolution_backward, compute bound") for basis in bases)


def test_the_command_says_how_to_use_them(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rooflines.profiler.workloads.kernel_sweep._LARGEST", {"cpu": 2**12})
    answer = call(
        capsys, monkeypatch, "calibrate", "--device", "cpu", "--threads", "1", "--ceilings", write_ceilings(tmp_path), "-o", "mine"
    )
    if answer.code:  # on a busy machine
        assert "other programs delayed nearly every step" in answer.complaint[0]
        return
    *modes, last = answer.out.strip().splitlines()
    assert [line.partition(":")[0] for line in modes] == ["inference", "training"]
    assert last == "predict with them: rooflines predict --model resnet50 --device this --like mine/inference --like mine/training"
