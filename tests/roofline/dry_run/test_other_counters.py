"""Other counters beside ours: a difference has a reason that reproduces their figure, and together they are the whole difference."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from rooflines.errors import UsageError
from rooflines.profiler.options import PointOptions
from rooflines.roofline.dry_run.other_counters import NOT_EXPLAINED, check_counters, count_against

NOT_MATRIX, ROUND_PRODUCTS = "counts matrix products only", "counts no bias, softmax or activation"

FACTORIES = """
import torch
from torch import nn
from torch.nn import functional

class Causal(nn.Module):
    def forward(self, q):
        return functional.scaled_dot_product_attention(q, q, q, is_causal=True)

class Integers(nn.Module):
    def forward(self, a, b):
        return torch._int_mm(a, b)

def depthwise():
    return nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False), torch.randn(1, 64, 14, 14, requires_grad=True)
def causal(): return Causal(), torch.randn(1, 4, 64, 16)
def lstm(): return nn.LSTM(8, 16), torch.randn(5, 2, 8)
def encoder(): return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), torch.randn(2, 7, 32)
def integers(): return Integers(), (torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 8, dtype=torch.int8))
def mlp(): return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)), torch.randn(3, 8)
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "models.py"
    path.write_text(FACTORIES)
    return path


def compared(models, name, counter, **options):
    _, ours, (other,) = count_against(f"{models}:{name}", PointOptions(device="cpu", **options), [counter])
    if other.total is not None:
        assert ours.flops - other.total == sum(one.ours - one.theirs for one in other.differences)
    return ours, other


def reasons(other):
    return {one.reason: (one.ours, one.theirs) for one in other.differences}


def test_a_depthwise_weight_gradient_is_not_divided_by_the_groups(models):
    """torch: forward 1, gradient of the input 1, of the weight 64; true: 1, 1, 1."""
    ours, torchs = compared(models, "depthwise", "torch", mode="training")
    forward = 2 * 64 * 14 * 14 * 9
    assert ours.matrix_flops == 3 * forward
    assert torchs.total == 66 * forward  # 22 times
    assert reasons(torchs)["does not divide the weight's gradient by the groups"] == (2 * forward, 65 * forward)
    assert NOT_EXPLAINED not in reasons(torchs)


@pytest.mark.parametrize(
    ("name", "matrix"),
    [("causal", 2 * 2 * 4 * 16 * (64 * 65 // 2)), ("lstm", 2 * 5 * 2 * 4 * 16 * (8 + 16)), ("integers", 2 * 32 * 16 * 8)],
)
def test_operators_that_torch_has_no_formula_for(models, name, matrix):
    """CPU attention, LSTM and integers count as 0 there, without a word."""
    ours, torchs = compared(models, name, "torch")
    assert ours.matrix_flops == matrix
    assert torchs.total == 0
    assert reasons(torchs)["has no formula"] == (matrix, 0)
    assert NOT_EXPLAINED not in reasons(torchs)


def test_a_fused_encoder_layer_is_one_call_here_and_many_there(models):
    """In inference mode; under no_grad torch counts it as 0."""
    ours, torchs = compared(models, "encoder", "torch")
    matrix = 2 * 2 * 7 * 32 * (4 * 32 + 2 * 64) + 2 * 2 * 2 * 7 * 7 * 32
    assert ours.matrix_flops == matrix
    assert torchs.total in (0, matrix)
    assert NOT_EXPLAINED not in reasons(torchs)


def test_fvcore_counts_multiply_adds(models):
    ours, fvcores = compared(models, "mlp", "fvcore")
    assert (fvcores.unit, fvcores.total) == ("MAC", ours.matrix_flops // 2 + 5 * 3 * 16)  # and 5 for each element of the norm
    found = reasons(fvcores)
    assert found["counts a multiply-add as one"] == (ours.matrix_flops, ours.matrix_flops // 2)
    assert found["counts no bias"] == (3 * (16 + 4), 0)
    assert NOT_EXPLAINED not in found


def test_fvcore_says_what_it_cannot_do(models):
    _, fvcores = compared(models, "mlp", "fvcore", mode="training")
    assert fvcores.total is None
    assert "forward pass only" in fvcores.absent


def test_the_profilers_own_flops(models):
    ours, profilers = compared(models, "mlp", "profiler", mode="training")
    found = reasons(profilers)
    assert profilers.total > 0
    assert "has no formula" in found
    assert found["counts no bias"][1] == 2 * 3 * (8 * 16 + 16 * 4)
    assert profilers.total < ours.flops


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "mode"), [("resnet18", "inference"), ("mobilenet_v3_small", "training"), ("timm:vit_tiny_patch16_224", "training")]
)
def test_every_difference_from_torch_on_a_network_is_explained(name, mode):
    _, ours, (torchs,) = count_against(name, PointOptions(device="cpu", mode=mode, image_size=64, batch_size=2), ["torch"])
    assert ours.flops - torchs.total == sum(one.ours - one.theirs for one in torchs.differences)
    assert NOT_EXPLAINED not in reasons(torchs)


# Grouped and transposed convolutions, windows, class attention, products of products; each is one call for some and many for others.
OTHERS = (
    "fcn_resnet50", "raft_small", "r2plus1d_18", "swin_v2_t", "maxvit_t", "efficientnet_v2_s", "regnet_y_400mf", "densenet121",
    "timm:convit_tiny", "timm:crossvit_tiny_240", "timm:davit_tiny", "timm:eca_nfnet_l0", "timm:hrnet_w18_small", "timm:levit_128s",
    "timm:mixer_s32_224", "timm:nextvit_small", "timm:twins_svt_small", "timm:volo_d1_224", "timm:xcit_nano_12_p8_224",
)  # fmt: skip
QUICK = {("fcn_resnet50", "inference"), ("r2plus1d_18", "training"), ("timm:davit_tiny", "training")}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(name, mode, marks=() if (name, mode) in QUICK else pytest.mark.slow)
        for name in OTHERS
        for mode in ("inference", "training")
    ],
)
def test_every_difference_from_torch_on_other_networks_is_explained(name, mode):
    if name.startswith("timm:"):
        pytest.importorskip("timm")
    _, ours, (torchs,) = count_against(name, PointOptions(device="cpu", mode=mode, batch_size=2), ["torch"])
    assert ours.matrix_flops - torchs.total == sum(
        one.ours - one.theirs for one in torchs.differences if one.reason not in (NOT_MATRIX, ROUND_PRODUCTS)
    )
    assert {one.reason for one in torchs.differences} <= {
        NOT_MATRIX, ROUND_PRODUCTS, "has no formula", "does not divide the weight's gradient by the groups",
        "sees the same products as calls of other operators", "counts the operators inside a fused one",
    }  # fmt: skip


@pytest.mark.ci
def test_where_torchs_counter_fails_it_is_absent():
    """In inference mode its hooks fail where a module is given a view of a parameter: here the class token."""
    pytest.importorskip("timm")
    _, ours, (torchs,) = count_against("timm:pit_ti_224", PointOptions(device="cpu"), ["torch"])
    assert ours.matrix_flops > 0
    assert torchs.total is None
    assert "fails" in torchs.absent


def test_unknown_and_missing_counters(monkeypatch):
    assert check_counters([" torch", "torch", ""]) == ("torch",)
    with pytest.raises(UsageError, match="unknown counter 'thop'"):
        check_counters(["thop"])
    monkeypatch.setitem(__import__("sys").modules, "fvcore.nn", None)
    with pytest.raises(UsageError, match="requires the package 'fvcore'"):
        check_counters(["fvcore"])


def test_a_step_function_has_no_module_to_trace(tmp_path):
    (tmp_path / "steps.py").write_text("import torch\ndef step():\n    return lambda: torch.ones(2, 2) @ torch.ones(2, 2)\n")
    from rooflines.errors import WorkloadError

    with pytest.raises(WorkloadError, match="returns a step function, not a module"):
        count_against(f"{tmp_path / 'steps.py'}:step", PointOptions(device="cpu"), ["fvcore"])
    _, ours, (torchs,) = count_against(f"{tmp_path / 'steps.py'}:step", PointOptions(device="cpu"), ["torch"])
    assert ours.matrix_flops == torchs.total == 16


def test_what_torch_counts_is_what_we_say_it_counts():
    """The reason is about torch's own formula: with groups in its weight gradient it would be ours."""
    from torch.utils.flop_counter import FlopCounterMode

    layer, image = nn.Conv2d(8, 8, 3, groups=4, bias=False), torch.rand(1, 8, 6, 6, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        functional.relu(layer(image)).sum().backward()
    one = 2 * 8 * 2 * 4 * 4 * 9
    assert counter.get_total_flops() in (one * (1 + 1 + 4), 3 * one)  # releases in which it is mended may come
