"""The result of a variant compared with that of fp32, and losses that are not finite."""

import copy

import pytest
import torch
from torch import nn

import rooflines
from rooflines.pipeline.options import ProfileOptions
from rooflines.pipeline.result_checks import output_error, reference_options
from tests.commands import write_ceilings


def test_the_error_is_the_norm_of_the_difference_over_that_of_the_reference():
    reference, found = torch.tensor([[3.0, 4.0], [0.0, 12.0]]), torch.tensor([[3.0, 4.0], [5.0, 0.0]])
    error = output_error([found], [reference], classifies=True)
    assert error.relative == pytest.approx(13 / 13)
    assert error.same_class == 0.5
    assert output_error([found], [reference], classifies=False).same_class is None, "an embedding has no classes"
    assert output_error([reference], [reference], classifies=True).relative == 0
    assert output_error([found], [reference[:1]], classifies=True) is None
    assert output_error([found], [torch.zeros(2, 2)], classifies=True) is None
    assert output_error([found * torch.inf], [reference], classifies=True) is None
    assert output_error([torch.tensor(2.0)], [torch.tensor(1.0)], classifies=True).same_class is None


def test_fp32_in_eager_mode_is_the_reference_itself():
    assert reference_options(ProfileOptions(batch_size=4, threads=1)) is None
    assert reference_options(ProfileOptions(precision="bf16", compile="on")) == ProfileOptions()


@pytest.mark.ci
def test_a_run_in_bf16_says_how_far_its_output_is_from_fp32(tmp_path):
    torch.manual_seed(0)
    network, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), torch.randn(16, 64)
    with torch.no_grad():
        expected = network(x)
        found = copy.deepcopy(network).bfloat16()(x.bfloat16()).float()
    norm = float((found - expected).norm() / expected.norm())
    common = {"precision": "bf16", "device": "cpu", "steps": 2, "warmup": 1, "formats": (), "ceilings": str(write_ceilings(tmp_path))}
    run = rooflines.profile(network, x, output=tmp_path / "run", **common)
    assert run.facts.output_error.relative == pytest.approx(norm, rel=0.2)
    assert run.facts.output_error.same_class is None, "rooflines does not know what a module returns"
    analysis = rooflines.analyze(run)
    assert analysis.output_error == run.facts.output_error
    assert analysis.steps.first_s == run.facts.steps.warmup_ns[0] / 1e9
    timed = rooflines.profile(network, x, output=tmp_path / "timed", trace=False, **common)
    assert (timed.facts.trace, timed.facts.ceilings, timed.facts.output_error) == (None, None, None)
    assert len(timed.facts.steps.timed_ns) == 2


@pytest.mark.ci
def test_only_a_classifier_by_name_returns_scores_of_classes(tmp_path):
    options = {"precision": "bf16", "device": "cpu", "batch_size": 2, "image_size": 64, "steps": 1, "warmup": 1, "formats": ()}
    known = rooflines.profile("squeezenet1_1", output=tmp_path / "known", ceilings=str(write_ceilings(tmp_path)), **options)
    assert 0 <= known.facts.output_error.same_class <= 1


def profiled(network, x, directory, **options):
    return rooflines.profile(
        network, x, mode="training", device="cpu", steps=3, warmup=2, trace=False, formats=("json",), output=directory, **options
    )


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        yield


@pytest.mark.ci
@pytest.mark.parametrize(("weight", "which"), [(1e10, "first"), (300.0, "last")])
def test_a_loss_that_is_not_finite_is_noted_with_its_step(tmp_path, weight, which):
    class Fourth(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([weight]))

        def forward(self, x):
            return (self.weight * x).pow(4)

    run = profiled(Fourth(), torch.ones(2, 1), tmp_path / "run")
    assert run.facts.loss_finite is False
    note = f"the loss of the {which} step is not finite; torch.autograd.set_detect_anomaly(True) finds the operator."
    assert note in rooflines.load(run.directory).facts.notes
    assert note in rooflines.analyze(run).notes


@pytest.mark.ci
def test_a_loss_that_stays_finite_has_no_note(tmp_path):
    run = profiled(nn.Sequential(nn.Linear(8, 4), nn.Tanh()), torch.rand(4, 8), tmp_path / "run")
    assert run.facts.loss_finite is True
    assert not any("finite" in note for note in run.facts.notes)
    run = rooflines.profile(
        nn.Linear(8, 4), torch.rand(4, 8), device="cpu", steps=1, trace=False, formats=(), output=tmp_path / "other"
    )
    assert run.facts.loss_finite is None
