"""The trainer of Hugging Face Transformers as a program, and our callback."""

import functools
import textwrap

import pytest

from tests.integrations.reports import calls, check_report, profile, steps_taken

pytestmark = pytest.mark.filterwarnings("ignore")

SOURCE = """
    import torch
    from torch.utils.data import Dataset
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    class Sentences(Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            ids = torch.randint(0, 50, (16,))
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": index % 2}

    def trainer(folder, callbacks=(), **options):
        config = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=4, eval_strategy="steps", save_strategy="no", use_cpu=True, report_to="none",
            disable_tqdm=True, **options,
        )
        model = BertForSequenceClassification(config)
        return Trainer(model, arguments, train_dataset=Sentences(), eval_dataset=Sentences(), callbacks=list(callbacks))
"""
# Six linear layers in each of two blocks, the pooler and the classifier; each has two products in its backward.
LINEAR = 6 * 2 + 2


@pytest.mark.slow
def test_the_trainer_is_a_program_like_any_other(tmp_path):
    run = profile(tmp_path, SOURCE + '\n    trainer("trained", max_steps=80, eval_steps=20).train()\n')
    analysis = check_report(run, 80)
    assert (calls(analysis)["aten::addmm"], calls(analysis)["aten::mm"]) == (LINEAR, 2 * LINEAR)
    rows = {row.path: row.type for row in analysis.modules}
    assert (rows[""], rows["bert.encoder.layer.1"]) == ("BertForSequenceClassification", "BertLayer")
    assert any(note.startswith("the program evaluated its model") for note in run.facts.notes)


@pytest.fixture(scope="module")
def trainer():
    names = {}
    exec(textwrap.dedent(SOURCE), names)
    return names["trainer"]


@pytest.fixture
def callback(recorder_of):
    from rooflines.integrations.transformers import RooflinesCallback

    return functools.partial(recorder_of, RooflinesCallback)


@pytest.mark.ci
def test_the_callback_records_updates_and_stops_the_training(trainer, callback, tmp_path):
    recorder = callback(steps=5, warmup=3, stop=True)
    training = trainer(tmp_path / "trained", [recorder], max_steps=400, gradient_accumulation_steps=2, eval_steps=5)
    training.train()
    assert training.state.global_step < 400
    analysis = check_report(recorder.run, training.state.global_step)
    assert recorder.run.facts.workload.name == "BertForSequenceClassification"
    assert calls(analysis)["aten::addmm"] == 2 * LINEAR, "two batches an update"
    # The fifth update is the first timed one. The sixth follows an evaluation: it has lost its beginning and is not timed.
    assert len(recorder.run.facts.steps.timed_ns) == 4


@pytest.mark.ci
def test_a_training_that_ends_early_has_a_report(trainer, callback, tmp_path, capsys):
    recorder = callback()
    trainer(tmp_path / "trained", [recorder], max_steps=3, eval_steps=50).train()
    assert steps_taken(recorder.run) == 3
    check_report(recorder.run, 3)
    assert capsys.readouterr().out.splitlines().count(f"report    {recorder.run.directory / 'analysis.json'}") == 1


@pytest.mark.ci
def test_a_recording_can_be_closed_after_an_exception(trainer, callback, tmp_path):
    recorder = callback()
    training = trainer(tmp_path / "trained", [recorder], max_steps=3, eval_steps=1)
    training.eval_dataset = [{}]
    with pytest.raises(Exception):  # noqa: B017, PT011 (whatever the trainer makes of it)
        training.train()
    recorder.close()
    check_report(recorder.run, 1)
