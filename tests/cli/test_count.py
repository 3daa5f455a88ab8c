"""``rooflines count``: its three formats say the same, and it refuses as the other commands do."""

import csv
import io
import json

import msgspec
import pytest

from rooflines.roofline.dry_run.count import ModuleCount, OperatorCount
from tests.commands import call

FACTORIES = """
import torch
from torch import nn

def mlp(batch_size):
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.randn(batch_size, 8)

def picks(batch_size):
    class Picks(nn.Module):
        def forward(self, x):
            return x[x > 0]
    return Picks(), torch.randn(batch_size, 4096)  # more than the values that fake tensors keep

def raises():
    raise ValueError("no weights here")

def fails():
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("no\\ngood input")
    return Fails(), torch.randn(2)

class Tokens(nn.Module):
    vocab_size = 16

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 16, bias=False)

    def prefill(self, tokens):
        return self.head(torch.nn.functional.one_hot(tokens, 16).float())

    decode = prefill

def tokens():
    return Tokens()
"""
FORWARD = 2 * 3 * (8 * 16 + 16 * 4)


@pytest.fixture
def count(tmp_path, capsys, monkeypatch):
    (tmp_path / "models.py").write_text(FACTORIES)
    monkeypatch.setenv("COLUMNS", "80")

    def counted(*arguments, factory="mlp"):
        return call(capsys, monkeypatch, "count", f"{tmp_path / 'models.py'}:{factory}", "--batch-size", 3, *arguments)

    return counted


def test_the_phases_of_a_generation_are_apart_in_each_format(count):
    of_a_token = 2 * 3 * 16 * 16
    asked = ("--mode", "generate", "--prompt-length", 5, "--new-tokens", 4)
    text = " ".join(count(*asked, factory="tokens").out.split())
    assert "models.py:tokens: 4 tokens after a prompt of 5, batch 3, fp32" in text
    assert "Prefill: 5 of 5 tokens of each sequence" in text
    assert "Decode: 1 of 7 tokens of each sequence" in text
    found = json.loads(count(*asked, "--format", "json", factory="tokens").out)
    assert found["schema"] == "rooflines.generation-count/1"
    assert [(phase["phase"], phase["calls"]) for phase in found["phases"]] == [("prefill", 1), ("decode", 3)]
    assert [phase["count"]["matrix_flops"] for phase in found["phases"]] == [5 * of_a_token, of_a_token]
    rows = list(csv.DictReader(io.StringIO(count(*asked, "--format", "csv", factory="tokens").out)))
    assert {row["phase"] for row in rows} == {"prefill", "decode"}
    assert "does not apply to --mode generate" in count(*asked, "--against", "torch", factory="tokens").err
    assert "--prompt-length requires --mode generate" in count("--prompt-length", 5).err


def test_a_table_of_80_columns_and_the_same_as_json(count):
    # The table fits 80 columns and has the totals.
    answer = count()
    assert answer.code == 0
    assert all(len(line) <= 80 for line in answer.out.splitlines())
    title, _, totals = answer.out.split("\n", 2)
    assert title == "models.py:mlp: one step of inference, batch 3, fp32"
    assert f"{FORWARD / 1e3:.2f} kFLOP in matrix products" in " ".join(answer.out.split())
    assert "MAC" in totals.partition("Operators")[0]
    assert "addmm" in answer.out
    assert "Every operator call has a formula." in answer.out
    # Json has everything.
    found = json.loads(count("--format", "json").out)
    assert (found["schema"], found["workload"]["name"], found["matrix_flops"]) == ("rooflines.count/1", "models.py:mlp", FORWARD)
    assert sum(row["flops"] for row in found["operators"]) == found["flops"]
    assert [module["type"] for module in found["modules"]] == ["Sequential", "Linear", "ReLU", "Linear"]
    # By module and fewer rows.
    answer = count("--by", "module", "--rows", 2)
    assert "0 (Linear)" in answer.out
    assert "and 2 more (--rows 4 shows all)" in answer.out


@pytest.mark.parametrize(("by", "record"), [("operator", OperatorCount), ("module", ModuleCount)])
def test_csv_has_the_fields_of_the_record(count, by, record):
    rows = list(csv.DictReader(io.StringIO(count("--format", "csv", "--by", by).out)))
    assert list(rows[0]) == [field.name for field in msgspec.structs.fields(record)]
    whole = {"operator": rows, "module": rows[:1]}[by]
    assert sum(int(row["matrix_flops"]) for row in whole) == FORWARD


def test_a_training_step_counts_backward_and_optimizer(count):
    found = json.loads(count("--mode", "training", "--format", "json").out)
    assert found["matrix_flops"] == 3 * FORWARD - 2 * 3 * 8 * 16  # nobody asks for the gradient of the input
    assert {row["phase"] for row in found["operators"]} == {"forward", "backward", "optimizer"}


def test_memory_of_a_step_after_the_first(count):
    weights, biases = 8 * 16 + 16 * 4, 16 + 4
    found = json.loads(count("--mode", "training", "--memory", "--format", "json").out)["memory"]
    assert found["at_peak"]["parameters"] == found["at_peak"]["optimizer"] == 4 * (weights + biases)
    assert found["at_peak"]["inputs"] == 4 * 3 * 8
    assert sum(found["at_peak"].values()) == found["peak_bytes"]
    answer = count("--mode", "training", "--memory")
    assert all(len(line) <= 80 for line in answer.out.splitlines())
    assert f"{found['peak_bytes'] / 1e3:.2f} kB of memory at the peak, first reached by {found['operator']}" in " ".join(
        answer.out.split()
    )
    lines = [line.split() for line in answer.out.splitlines()]
    assert [line[0] for line in lines if line and line[0] in found["at_peak"]] == list(found["at_peak"])
    assert ["overhead", "–", "–"] in lines
    assert "memory" not in json.loads(count("--format", "json").out)


def test_what_needs_data_is_run_and_says_so(count):
    answer = count(factory="picks")
    assert answer.code == 0
    assert "Run on real tensors because fake tensors were not enough" in answer.out


def test_what_fails_on_real_tensors_too_is_one_line_with_its_place(count, tmp_path):
    answer, path = count(factory="fails"), tmp_path / "models.py"
    line = path.read_text().splitlines().index('            raise ValueError("no\\ngood input")') + 1
    assert (answer.code, answer.err.splitlines()) == (2, [f"rooflines: {path}:fails raised ValueError: no (models.py:{line})."])


@pytest.mark.ci
def test_a_transformer_given_by_its_config_without_its_memory(tmp_path, capsys, monkeypatch):
    """70 billion parameters: 280 GB, if they were there."""
    config = {
        "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8,
        "num_hidden_layers": 80, "vocab_size": 32000,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    answer = call(capsys, monkeypatch, "count", "--model", f"hf:{tmp_path}", "--sequence-length", 64, "--format", "json")
    tokens, wide, head = 64, 8192, 8192 // 64
    projections = 2 * tokens * wide * (wide + 2 * 8 * head + wide + 3 * 28672)  # query, key and value, output; gate, up, down
    attention = 2 * 64 * (tokens * (tokens + 1) // 2) * 2 * head  # 64 heads, causal
    found = json.loads(answer.out)
    assert found["matrix_flops"] == 80 * (projections + attention) + 2 * tokens * wide * 32000
    assert (found["tensors"], found["coverage"]) == ("fake", 1.0)


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "exactly one model is required"),
    (["resnet50", "--model", "resnet18"], "exactly one model is required"),
    (["resnet5"], "unknown model 'resnet5'"),
    (["train.py"], "a model was expected, and 'train.py' is a script."),
    (["resnet50", "--batch-size", "0"], "--batch-size must be at least 1, got 0"),
    (["resnet50", "--by", "kernel"], "invalid value for '--by'"),
    (["resnet50", "--rows", "0"], "invalid value for '--rows'"),
    (["resnet50", "--memory", "--format", "csv"], "--memory cannot be written as csv"),
])  # fmt: skip
def test_what_is_refused(arguments, message, capsys, monkeypatch):
    answer = call(capsys, monkeypatch, "count", *arguments)
    assert answer.code == 2
    assert message in answer.complaint[0].lower()
    assert answer.out == ""


def test_a_factory_that_raises_is_named(count):
    answer = count(factory="raises")
    assert answer.code == 2
    assert "the factory models.py:raises raised: ValueError: no weights here" in answer.complaint[0]


def test_a_page_and_a_file_in_the_format_of_its_suffix(count, tmp_path):
    # The page is written in the formats asked for.
    assert count("--memory", "--formats", "html,markdown,json", "--output", str(tmp_path / "out")).code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.html", "report.md", "report.json"}
    # A file is written in the format of its suffix.
    for name, start in (("out.html", b"<!doctype html>"), ("out.json", b"{"), ("out.csv", b'"name",')):
        assert count("-o", str(tmp_path / name)).out == ""
        assert (tmp_path / name).read_bytes().lower().startswith(start)
    answer = count("-o", "out.doc")
    assert answer.complaint == [
        "rooflines: --output 'out.doc': unknown file type.",
        "  Use one of .html, .pdf, .md, .txt, .json, .csv.",
    ]


@pytest.mark.ci
def test_a_precision_that_the_processor_emulates_is_told_at_once(capsys, monkeypatch):
    import torch

    from rooflines.device_specs.measure_torch import emulation
    from rooflines.profiler.options import find_device

    answer = call(capsys, monkeypatch, "count", "--model", "alexnet", "--precision", "amp-bf16", "--format", "json")
    told = emulation(find_device("auto"), "amp-bf16")
    assert json.loads(answer.out)["workload"]["precision"] == "amp-bf16"
    assert answer.err.startswith("rooflines: this processor emulates bf16") == (told is not None)
    assert emulation(torch.device("cpu"), "fp32") is None
