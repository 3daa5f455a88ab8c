"""PyTorch Lightning: its trainer as a program, and our callback."""

import functools
import textwrap

import pytest

import rooflines
from tests.integrations.reports import calls, check_report, profile, steps_taken

pytestmark = pytest.mark.filterwarnings("ignore")

SOURCE = """
    import lightning.pytorch as pl
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    class Classifier(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

        def training_step(self, batch, index):
            inputs, target = batch
            loss = nn.functional.cross_entropy(self.net(inputs), target)
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, index):
            inputs, target = batch
            self.log("validation", nn.functional.cross_entropy(self.net(inputs), target))

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    def loader(size):
        return DataLoader(TensorDataset(torch.randn(size, 8), torch.randint(0, 2, (size,))), batch_size=4)

    def fit(**options):
        quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
        trainer = pl.Trainer(max_epochs=-1, accelerator="cpu", **quiet, **options)
        trainer.fit(Classifier(), loader(80), loader(8))
        return trainer
"""
IMPORTS = ["lightning.pytorch", "pytorch_lightning"]


@pytest.mark.ci
@pytest.mark.parametrize("package", [IMPORTS[0], pytest.param(IMPORTS[1], marks=pytest.mark.slow)])
def test_the_trainer_is_a_program_like_any_other(tmp_path, package):
    run = profile(tmp_path, SOURCE.replace("lightning.pytorch", package) + "\n    fit(max_steps=100)\n")
    analysis = check_report(run, 100)
    assert (calls(analysis)["aten::addmm"], calls(analysis)["aten::mm"]) == (2, 3)
    assert any(note.startswith("the program evaluated its model") for note in run.facts.notes)
    assert any(note.startswith("not counted: 2 steps before") for note in run.facts.notes), "the sanity check"


@pytest.fixture(params=IMPORTS)
def fit(request):
    pytest.importorskip(request.param)
    names = {}
    exec(textwrap.dedent(SOURCE).replace("lightning.pytorch", request.param), names)
    return names["fit"]


@pytest.fixture
def callback(recorder_of):
    from rooflines.integrations.lightning import RooflinesCallback

    return functools.partial(recorder_of, RooflinesCallback)


@pytest.mark.ci
def test_the_callback_records_updates_and_stops_the_training(fit, callback):
    recorder = callback(steps=5, warmup=3, stop=True)
    trainer = fit(max_steps=600, accumulate_grad_batches=2, callbacks=[recorder])
    assert trainer.global_step < 600
    analysis = check_report(recorder.run, trainer.global_step)
    facts = recorder.run.facts
    assert (len(facts.steps.warmup_ns), len(facts.steps.timed_ns), facts.steps.traced) == (3, 5, "steps")
    assert facts.workload.name == "Classifier"
    assert (calls(analysis)["aten::addmm"], calls(analysis)["aten::mm"]) == (4, 6), "two batches an update"


@pytest.mark.ci
def test_a_training_that_ends_early_has_a_report(fit, callback, capsys):
    recorder = callback()
    trainer = fit(max_steps=3, callbacks=[recorder])
    assert trainer.global_step == steps_taken(recorder.run) == 3
    check_report(recorder.run, 3)
    assert capsys.readouterr().out.splitlines().count(f"report    {recorder.run.directory / 'analysis.json'}") == 1
    assert (recorder.run.directory / "analysis.json").exists()


def test_an_exception_closes_the_recording(callback, fit, capsys):
    import lightning.pytorch

    class Fails(lightning.pytorch.Callback):
        def on_train_batch_end(self, trainer, *_):
            assert trainer.global_step < 2, "no more"

    recorder = callback()
    with pytest.raises(AssertionError, match="no more"):
        fit(max_steps=10, callbacks=[recorder, Fails()])
    assert recorder.run.facts.status == "failed"
    assert "no more" in rooflines.load(recorder.run.directory).facts.error
    assert f"run       {recorder.run.directory}" in capsys.readouterr().out.splitlines(), "there is no report of it"
