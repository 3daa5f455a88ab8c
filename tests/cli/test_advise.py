"""``rooflines advise``: what it prints, tries and refuses."""

import pytest
import torch

import rooflines
from rooflines.device_specs.measure_torch import emulation
from rooflines.roofline.predict.trials import outcome, read_trials
from tests.commands import call, quick, run

MODELS = """
import torch

def mlp():
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)), torch.randn(4, 64)
"""
SCRIPT = """
import torch

model = torch.nn.Linear(8, 8)
with torch.no_grad():
    for _ in range(20):
        model(torch.randn(2, 8))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_advice_is_predicted_tried_and_reported(place, capsys, monkeypatch):
    def ask(*arguments):
        return call(capsys, monkeypatch, *arguments)

    assert ask("profile", "--model", "models.py:mlp", *quick(place), "-o", "run").code == 0
    told = ask("advise", "run")
    assert told.code == 0
    assert "Recommendations" in told.out
    assert "Changes that can be tried" in told.out
    tried = ask("advise", "run", "--try", "--only", "precision,threads", "--rounds", "1", "-o", "tried", "--formats", "json")
    assert tried.code == 0, tried.err
    assert "Advice tried" in tried.out
    made = read_trials(place / "run")
    labels = {one.change.label for one in made.trials}
    assert labels >= {"amp-bf16", "bf16"}
    emulates = emulation(torch.device("cpu"), "bf16") is not None
    assert {one.change.label for one in made.trials if one.speedup is None} == ({"amp-bf16", "bf16"} if emulates else set())
    tried = [one for one in made.trials if one.speedup is not None]
    assert tried
    for one in tried:
        assert one.speedup.value > 0
        assert one.output_error is None or 0 <= one.output_error.relative < 0.1
        assert outcome(one) == "unclear"  # one round has no interval
    # The report has it, and so has one in another directory.
    assert ask("report", "run", "--formats", "html", "-o", "elsewhere").code == 0
    assert "Advice tried" in (place / "elsewhere" / "report.html").read_text()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The directory of a run of a script, in ``run``."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "script.py").write_text(SCRIPT)
    assert run("profile", "script.py", *quick(folder), "-o", "run", cwd=folder).code == 0
    return folder


def test_a_run_that_cannot_be_repeated_is_refused_and_its_advice_is_printed(recorded, capsys, monkeypatch):
    monkeypatch.chdir(recorded)
    rooflines.profile(
        torch.nn.Linear(8, 8),
        torch.randn(2, 8),
        output="of_a_module",
        formats=(),
        steps=2,
        warmup=1,
        device="cpu",
        ceilings=str(recorded / "ceilings.json"),
    )
    answer = call(capsys, monkeypatch, "advise", "of_a_module", "--try")
    assert answer.code == 2
    assert answer.complaint == [
        "rooflines: the advice for 'of_a_module' cannot be tried: it is a run of a module, which rooflines cannot repeat.",
        "  Runs of a script, a named model or a factory can: rooflines profile train.py",
    ]
    told = call(capsys, monkeypatch, "advise", "of_a_module")
    assert told.code == 0
    assert "Recommendations" in told.out
    assert "Changes that can be tried" not in told.out


@pytest.mark.parametrize(("arguments", "message"), [
    (["nowhere"], "no such run: 'nowhere'."),
    (["run", "--only", "speed"], "unknown kind of change 'speed'."),
    (["run", "--try", "--formats", "papyrus"], "unknown report format"),
])  # fmt: skip
def test_what_cannot_be_advised(recorded, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(recorded)
    answer = call(capsys, monkeypatch, "advise", *arguments)
    assert answer.code == 2
    assert message in answer.complaint[0]
