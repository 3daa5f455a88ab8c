"""Whole networks under the profiler: matrix FLOPs against published GMACs, training against inference, coverage by time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
import torch
from torchvision.models import VisionTransformer, get_model, get_model_weights

from rooflines.profiler.trace.calls import build_calls
from rooflines.profiler.trace.reader import read_trace
from rooflines.roofline.attribution.attribute import attribute
from rooflines.roofline.formulas import Work
from tests.roofline.formulas.traces import record_trace

pytestmark = pytest.mark.slow


@dataclass
class Walk:
    """What the owners of a trace add up to, and the time of the rest by its name and reason."""

    work: Work = field(default_factory=Work)
    counted_ns: int = 0
    composite_ns: int = 0
    unknown_ns: Counter[tuple[str, str]] = field(default_factory=Counter)


def walk(body, path) -> Walk:
    found = Walk()
    trace = read_trace(record_trace(body, path / "trace.json"))
    attribution = attribute(trace, build_calls(trace))
    for row in attribution.rows:
        if row.count.work is None:
            found.composite_ns += row.time_ns
            continue
        found.counted_ns += row.time_ns
        for _ in range(row.calls):
            found.work += row.count.work
    for gap in attribution.gaps:
        found.unknown_ns[gap.name, gap.reason] += gap.time_ns
    return found


# One network of each family; the others differ in width and depth.
NETWORKS = (
    "alexnet", "vgg11_bn", "resnet18", "resnext50_32x4d", "densenet121", "googlenet", "inception_v3", "squeezenet1_1", "mobilenet_v2",
    "mobilenet_v3_large", "mnasnet1_0", "shufflenet_v2_x1_0", "efficientnet_b0", "regnet_y_400mf", "convnext_tiny", "vit_b_32",
    "swin_t", "swin_v2_t", "maxvit_t",
)  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.filterwarnings("ignore:The default weight initialization:FutureWarning")
def test_matrix_flops_are_twice_the_published_gmacs(name, tmp_path):
    weights = get_model_weights(name).DEFAULT
    size = weights.transforms().crop_size[0]
    model, images = get_model(name, weights=None).eval(), torch.rand(1, 3, size, size)
    with torch.inference_mode():
        found = walk(lambda: model(images), tmp_path)
    # published to three decimals of 10⁹ multiply-accumulates
    assert found.work.matrix_flops / 2e9 == pytest.approx(weights.meta["_ops"], abs=0.0006)
    assert not found.unknown_ns


@pytest.mark.alone
@pytest.mark.parametrize(("name", "first"), [("alexnet", "features.0"), ("resnet18", "conv1"), ("mobilenet_v3_small", "features.0.0")])
def test_training_is_three_times_the_forward_but_for_the_gradient_of_the_image(name, first, tmp_path):
    """Each product has two gradients; nobody asks for that of the network's input."""
    model, images, labels = get_model(name, weights=None), torch.rand(2, 3, 64, 64), torch.tensor([1, 2])
    first_outputs = model.get_submodule(first)(images).numel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def train() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    with torch.inference_mode():
        forward = walk(lambda: model(images), tmp_path)
    train()  # the first backward starts the autograd engine
    step = walk(train, tmp_path)
    weight = model.get_submodule(first).weight
    first_forward = 2 * first_outputs * weight[0].numel()
    assert step.work.matrix_flops == 3 * forward.work.matrix_flops - first_forward
    assert not step.unknown_ns
    assert step.counted_ns > 0.9 * (step.counted_ns + step.composite_ns)


def test_vit_training_adds_the_scores_that_flash_attention_computes_again(tmp_path):
    model = VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128)
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        forward = walk(lambda: model(images), tmp_path)
    step = walk(lambda: model(images).sum().backward(), tmp_path)
    # 2 layers, 2 images, 4 heads of 16 over 17 tokens
    scores = 2 * (2 * 2 * 4 * 17 * 17 * 16)
    patches = 2 * (2 * 64 * 16) * (3 * 8 * 8)
    assert step.work.matrix_flops == 3 * forward.work.matrix_flops + scores - patches
    assert not step.unknown_ns
