"""Advice on small traces as a whole, with what in them holds it back."""

import json

import pytest
import torch
from torch import nn

import rooflines
from tests.roofline.rooms import analyzed, printed, recorded, runtime
from tests.traces import kernel, launch, mm, op


@pytest.mark.parametrize(
    ("name", "part"), [("gemv2T_kernel_val<int, int, float, float, float>", 0.5), ("ampere_sgemm_128x64_nn", 0.875)]
)
def test_a_product_with_a_vector_saves_half_at_most_in_half_precision(tmp_path, name, part):
    devices = {"deviceProperties": [{"id": 0, "name": "Tesla T4"}]}
    events = [op("aten::mm", 0, 20), launch(5, 5, 1), kernel(name, 30, 1000, 1)]
    (tmp_path / "t4.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **devices}))
    (advice,) = rooflines.analyze(tmp_path / "t4.json").findings
    assert advice.most_s == pytest.approx(part * 1e-3, rel=0.01)


def test_without_roofs_products_in_fp32_are_named_and_nothing_is_promised(tmp_path):
    events = [mm(0, 20, 512, 512, 512), launch(5, 5, 1), kernel("ampere_sgemm_128x64_nn", 30, 500, 1)]
    (advice,) = (one for one in analyzed(tmp_path, *events).findings if one.title == "Run the matrix work in bf16")
    assert advice.saves_s is None
    assert "roofs of this device are not known" in advice.evidence


@pytest.mark.parametrize(("share", "remedy"), [(0.98, "larger batch"), (0.5, "larger graphs")])
def test_graphs_that_hold_all_cannot_be_larger(tmp_path, share, remedy):
    busy = [kernel(f"k{at}", 100 + 50 * at, 30 * share, 1) for at in range(20)]
    eager = [kernel("e", 1200 + 50 * at, 30 * (1 - share), 10 + at) for at in range(20)]
    calls = [runtime("cudaGraphLaunch", 50, 20, 1), *(launch(1190 + 50 * at, 5, 10 + at) for at in range(20))]
    found = analyzed(tmp_path, op("aten::relu", 0, 10), *calls, *busy, *eager)
    advice = next(one for one in found.findings if one.title == "Keep the device busy")
    assert remedy in advice.suggestion
    assert "TORCH_LOGS" not in advice.suggestion  # nothing was compiled


@pytest.mark.parametrize(("dtype", "compiles"), [("c10::complex<double>", False), ("float", True)])
def test_what_computes_on_complex_numbers_is_not_compiled(tmp_path, dtype, compiles):
    many = (op("aten::mul", 20 * at, 10, dims=[[8], [8]], types=[dtype, dtype]) for at in range(50))
    (advice,) = (one for one in analyzed(tmp_path, *many).findings if one.title == "Run less Python between the operators")
    assert ("torch.compile" in advice.suggestion) == compiles


@pytest.mark.parametrize("twice", [True, False])
def test_kernels_that_are_launched_once_do_not_show_what_recurs(tmp_path, twice):
    events = []
    for at in range(6):
        events += [launch(1000 * at, 5, at), kernel("a" if twice else f"a{at}", 1000 * at + 8, 10, at)]
    (advice,) = (one for one in analyzed(tmp_path, *events).findings if one.title == "Keep the device busy")
    assert ("graph" in advice.suggestion) == twice
    assert ("no kernel is launched twice" in advice.evidence) != twice


class Mixture(nn.Module):
    """Four experts of a token's scores; each computes all tokens, or those that chose it."""

    def __init__(self, dense, chooses=True):
        super().__init__()
        self.dense, self.chooses, self.gate = dense, chooses, nn.Linear(64, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(64, 256), nn.Linear(256, 64)) for _ in range(4))

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        if not self.chooses:
            return (torch.stack([expert(x) for expert in self.experts], 1) * scores[..., None]).sum(1)
        scores, chosen = scores.topk(1)
        if self.dense:
            results = torch.stack([expert(x) for expert in self.experts], 1)
            return scores * results[torch.arange(len(x)), chosen[:, 0]]
        result = torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            own = torch.arange(at, len(x), 4)  # as even as a router can be
            result.index_add_(0, own, expert(x[own]))
        return scores * result


@pytest.mark.parametrize(("chooses", "dense"), [(True, True), (True, False), (False, False)])
def test_experts_that_all_compute_all_tokens_are_told(tmp_path, chooses, dense):
    """Not where the scores weigh the results of all experts, which all of them are needed for."""
    model, x = Mixture(dense, chooses), torch.randn(512, 64)
    with torch.no_grad():
        model(x)
        analysis = recorded(tmp_path, lambda: model(x), record_shapes=True, with_stack=True)
    found = [finding for finding in analysis.findings if "experts" in finding.title]
    assert len(found) == dense
    if dense:
        assert "each of 4 experts computes all 512 tokens" in found[0].evidence
        products = sum(row.time_s for row in analysis.operators if "Sequential" in row.module and row.category == "matmul")
        assert found[0].saves_s == pytest.approx(0.75 * products, rel=1e-6)


def test_a_pass_in_training_mode_is_told_and_no_inference(tmp_path):
    dropped = op("aten::native_dropout", 0, 20), launch(5, 5, 1), kernel("fused_dropout_kernel_vec", 12, 10, 1)
    found = analyzed(tmp_path, *dropped)
    assert any(finding.title.startswith("Call model.eval()") for finding in found.findings)
    assert "forward only" in printed(found)
    backward = op("autograd::engine::evaluate_function: MulBackward0", 30, 20), op("aten::mul", 32, 10)
    trained = analyzed(tmp_path, *dropped, *backward)
    assert not any("eval()" in finding.title for finding in trained.findings)
    assert "training" in printed(trained)


@pytest.mark.parametrize("training", [True, False])
def test_batch_normalization_in_training_mode_is_told_on_a_processor(tmp_path, training):
    """A sum in floating point, as of a loss, is no count of batches."""
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).train(training)
    total = torch.zeros(())

    def work():
        total.add_(network(torch.randn(2, 3, 8, 8)).sum())

    with torch.no_grad():
        found = recorded(tmp_path, work, record_shapes=True)
    assert ("Call model.eval(), if this is inference" in [one.title for one in found.findings]) == training
