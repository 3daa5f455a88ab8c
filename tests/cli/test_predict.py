"""``rooflines predict``: its formats say the same, fit 80 columns, and it refuses as the other commands do."""

import csv
import io
import json

import pytest

from rooflines.roofline.predict.forecast import Forecast
from rooflines.serial import from_plain
from tests.commands import call

FACTORIES = """
import torch
from torch import nn

def mlp(batch_size):
    return nn.Sequential(nn.Linear(80, 160), nn.ReLU(), nn.Linear(160, 40)), torch.randn(batch_size, 80)
"""
DEVICES = ("--device", "NVIDIA H200", "--device", "Tesla T4")


@pytest.fixture
def predict(tmp_path, capsys, monkeypatch):
    (tmp_path / "models.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *arguments: call(capsys, monkeypatch, "predict", "models.py:mlp", *arguments)


@pytest.mark.ci
def test_a_table_of_80_columns_and_the_same_as_json_and_csv(predict):
    asked = (*DEVICES, "--batch-size", "1,8", "--precision", "fp16", "--price", "NVIDIA H200=3.5")
    answer = predict(*asked)
    assert answer.code == 0, answer.err
    assert all(len(line) <= 80 for line in answer.out.splitlines())
    assert answer.out.startswith("models.py:mlp: prediction of inference, batch 1, fp16")
    for words in ("at least", "at most", "H200 SXM5", "Tesla T4", "batch 8", "cost of a million", "Lower bounds"):
        assert words in answer.out, words
    assert "predicted" not in answer.out  # nothing was measured that a prediction could be made from
    found = json.loads(predict(*asked, "--format", "json").out)
    assert found["schema"] == "rooflines.prediction/1"
    forecast = from_plain(found, Forecast)
    assert [one.device.name for one in forecast.devices] == ["H200 SXM5", "Tesla T4"]
    assert [len(one.steps) for one in forecast.devices] == [2, 2]
    assert forecast.command.startswith("rooflines predict models.py:mlp")
    rows = list(csv.DictReader(io.StringIO(predict(*asked, "--format", "csv").out)))
    assert [(row["device"], row["batch_size"]) for row in rows] == [
        (name, batch) for name in ("H200 SXM5", "Tesla T4") for batch in ("1", "8")
    ]
    for row, on in zip(rows, (on for one in forecast.devices for on in one.steps), strict=True):
        assert float(row["lower_bound_s"]) == on.lower_bound_s


@pytest.mark.ci
def test_a_page_has_a_roofline_for_each_device_and_no_prediction_without_a_run(predict, tmp_path):
    asked = (*DEVICES, "--device", "RTX 4090", "--batch-size", "1,64", "--precision", "tf32", "--format", "html,markdown", "-o", "page")
    assert predict(*asked).code == 0
    page = (tmp_path / "page" / "report.html").read_text()
    assert page.count("<figure") == 3  # two rooflines and a curve: no bound on the T4
    titles = [page.index(f">{title}<") for title in ("Devices", "Rooflines", "Phases", "Memory", "Operators", "Method")]
    assert titles == sorted(titles)
    text = (tmp_path / "page" / "report.md").read_text()
    assert "Tesla T4 has no rate for products in tf32" in text
    assert "90 % interval" not in text


def test_a_part_of_the_json(predict):
    found = json.loads(predict(*DEVICES, "--format", "json", "--at", "/devices/0/steps/0").out)
    assert found["units_per_s"] == pytest.approx(1 / found["lower_bound_s"])


@pytest.mark.parametrize(("arguments", "message", "hint"), [
    ((), "no device was given", "NVIDIA H200, or this"),
    (("--device", "H2000"), "no data sheet for 'H2000'", "H200"),
    ((*DEVICES, "--batch-size", "1;2"), "--batch-size '1;2' is not an integer", "1,2,4"),
    ((*DEVICES, "--batch-size", "0"), "--batch-size must be at least 1, got 0", "--batch-size 8"),
    ((*DEVICES, "--price", "3"), "--price '3' is not NAME=NUMBER", "NVIDIA H200=3.5"),
    ((*DEVICES, "--power", "A100=400"), "--power names 'A100', which is not one of the devices", "Tesla T4"),
    ((*DEVICES, "--like", "none.json"), "no such run or trace: 'none.json'", "run directory"),
    ((*DEVICES, "--new-tokens", "4"), "--new-tokens requires --mode generate", ""),
    ((*DEVICES, "--at", "/devices"), "--at is a part of the JSON", "--format json"),
], ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")  # fmt: skip
def test_what_is_refused(predict, arguments, message, hint):
    answer = predict(*arguments)
    assert answer.code == 2
    assert message in answer.complaint[0]
    assert hint in " ".join(answer.complaint[1:])
    assert answer.out == ""


@pytest.mark.ci
def test_bounds_are_said_to_hold_for_fused_code_only_where_attention_is_one_kernel(capsys, monkeypatch, tmp_path):
    pytest.importorskip("transformers")
    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
             "vocab_size": 128}  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for config, fused in (
        ({"model_type": "mistral", "sliding_window": None}, True),
        ({"model_type": "mistral", "sliding_window": 8}, True),
        ({"model_type": "llama4_text", "attention_chunk_size": 8}, False),  # the mask of a prompt longer than a chunk is not known
    ):
        (tmp_path / "config.json").write_text(json.dumps({**config, **small}))
        asked = ("--model", "hf:config.json", "--mode", "generate", "--prompt-length", "32", "--device", "H200")
        text = " ".join(call(capsys, monkeypatch, "predict", *asked).out.split())
        assert ("also for fused code" in text) is fused
        assert ("kernels that skip them may beat this bound" in text) is not fused
