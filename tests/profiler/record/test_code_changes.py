"""Changes around a program: they are there inside, its objects stay its own, and its first results are noted."""

import json

import msgspec
import pytest
import torch

from rooflines.profiler.record.code_changes import VARIABLE, CodeChanges, code_changes


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Ask for changes by the environment; gives the file of the results."""

    def ask(**options):
        changes = CodeChanges(options=options, results=str(tmp_path / "results.json"))
        monkeypatch.setenv(VARIABLE, msgspec.json.encode(changes).decode())
        return tmp_path / "results.json"

    return ask


def network():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(2))


def train(model, optimizer=torch.optim.Adam):
    model(torch.ones(1, 3, 8, 8))
    steps = optimizer(model.parameters(), lr=1e-2)
    for _ in range(4):
        steps.zero_grad()
        model(torch.rand(2, 3, 8, 8)).square().mean().backward()
        steps.step()
    return steps


def test_without_a_request_nothing_changes(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    backward, make = torch.Tensor.backward, torch.optim.Adam.__init__
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    with code_changes():
        assert (torch.Tensor.backward, torch.optim.Adam.__init__) == (backward, make)
        assert torch.rand(1) == expected


def test_the_first_losses_are_noted_and_start_from_the_same_seed(asked):
    found = []
    for options in ({}, {"optimizer": "fused"}):
        results = asked(**options)
        with code_changes():
            steps = train(network())
        found.append(json.loads(results.read_text()))
        assert steps.param_groups[0]["fused"] is (True if options else None)
        with code_changes():
            asked_for = torch.optim.SGD(network()[:1].parameters(), lr=0.1, foreach=True).param_groups[0]
        assert asked_for["foreach"] is (None if options else True), "the two exclude each other"
    assert len(found[0]) == 3
    assert found[0] == pytest.approx(found[1], rel=1e-4)
    assert train(network()).param_groups[0]["fused"] is None, "only inside"


def test_a_program_without_training_has_its_results_noted(asked):
    results = asked(precision="amp-bf16")
    model = network().eval()
    model(torch.ones(1, 3, 8, 8))
    with code_changes(), torch.no_grad():
        found = model(torch.ones(1, 3, 8, 8))
        assert found.dtype == torch.bfloat16
    assert json.loads(results.read_text()) == [pytest.approx(float(found.float().norm()))]
    assert not torch.is_autocast_enabled("cpu")


def test_the_outermost_module_is_compiled_and_in_channels_last(asked):
    asked(compile="on", channels_last=True)
    model, loss = network(), torch.nn.MSELoss()
    with code_changes():
        assert model(torch.ones(1, 3, 8, 8)).shape == (1, 2)
        assert model._compiled_call_impl is None, "its parameters had no sizes yet"
        output = model(torch.ones(1, 3, 8, 8))  # compiled code begins with the next call
        loss(output, torch.zeros_like(output))
    assert model._compiled_call_impl is not None
    assert all(module._compiled_call_impl is None for module in [*model, loss])
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
