"""Values that a step makes itself are known although its tensors are fake; what it computes from its data is not."""

import functools

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException

import rooflines
from rooflines.profiler.calls.fakes import Building, fake_tensors
from rooflines.profiler.calls.recorder import record

DATA = torch.rand(4)


def asked(question):
    """What ``question()`` answers inside a recording on fake tensors."""
    answers = []
    record(lambda: answers.append(question()), fake_tensors())
    return answers[0]


@pytest.mark.parametrize(("question", "answer"), [
    (lambda: torch.linspace(0, 0.3, 4).tolist(), pytest.approx([0, 0.1, 0.2, 0.3])),
    (lambda: [x.item() for x in torch.linspace(0, 3, 4).split(1)], [0, 1, 2, 3]),
    (lambda: (torch.arange(6).view(2, 3) * 2 + 1).sum(1).tolist(), [9, 27]),
    (lambda: bool((torch.ones(3) == 1).all()), True),
    (lambda: torch.tensor([0, 3, 0, 5]).nonzero().shape, (2, 1)),
    (lambda: len(torch.tensor([3, 1, 3]).unique()), 2),
    (lambda: DATA[torch.tensor([True, False, True, True])].shape, (3,)),
    (lambda: DATA.view(2, 2)[torch.eye(2, dtype=torch.bool)].shape, (2,)),
])  # fmt: skip
def test_what_is_made_of_numbers_is_known(question, answer):
    assert asked(question) == answer


def test_values_follow_what_is_written():
    # Values follow what is written into them and their views.
    def written():
        x = torch.zeros(2, 3)
        row = x[1]
        row += 2
        x[0].fill_(5)
        torch.add(row, 1, out=x[0])
        return x.tolist()

    assert asked(written) == written()

    # A constant is written once.
    def written():
        x = torch.tensor(1.0)
        x.mul_(3)
        return x.item()

    assert asked(written) == 3

    # What data was written into is not known.
    def overwritten():
        x = torch.zeros(4)
        view = x[1:]
        view += DATA[1:]
        return x.tolist()

    with pytest.raises(DataDependentOutputException):
        asked(overwritten)


def test_which_values_are_known():
    # Memory that nobody wrote is not known.
    with pytest.raises(DataDependentOutputException):
        asked(lambda: torch.empty(2).tolist())
    # Integers that were given are known and floats are not.
    tokens, mask = torch.tensor([[4, 7, 0]]), torch.tensor([[1, 1, 0]])
    counted = rooflines.count(lambda tokens, mask: torch.rand(int(tokens.max()), 2)[: int(mask.sum())] * 2, tokens, mask)
    assert counted.tensors == "fake"
    assert counted.to_dataframe().set_index("name").loc["aten::mul", "flops"] == 2 * 2
    assert rooflines.count(lambda x: torch.ones(int(x.sum())) * 2, torch.tensor([1.0, 2.0])).tensors == "real"
    # Given integers are not written to.
    tokens = torch.tensor([1, 2])
    counted = rooflines.count(lambda x: torch.ones(int(x.add_(1).sum())) * 2, tokens)
    assert counted.tensors == "fake"
    assert tokens.tolist() == [1, 2]


def test_a_coin_is_tossed_without_moving_the_generator():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    sides = {asked(lambda: bool(torch.rand([]) < 0.5)) for _ in range(3)}
    assert sides <= {True, False}
    assert torch.equal(torch.get_rng_state(), before)


def test_tables_that_a_function_keeps_are_real_afterwards():
    @functools.lru_cache
    def table(extent):
        return {"rows": (torch.arange(extent).view(-1, 1) - torch.arange(extent),)}

    def step(x):
        return x * table(3)["rows"][0]

    x = torch.rand(3, 3)
    expected = x * torch.tensor([[0, -1, -2], [1, 0, -1], [2, 1, 0]])
    assert rooflines.count(step, x).tensors == "fake"
    assert torch.equal(step(x), expected)
    assert rooflines.count(lambda x: step(x)[x > 0.5], x).tensors == "real", "after a first try on fake tensors"
    assert torch.equal(step(x), expected)


def test_networks_are_built_without_data():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.rates = [rate.item() for rate in torch.linspace(0, 0.2, 3)]
            self.layer = nn.Linear(int(torch.tensor([3, 4]).prod()), 5)
            nn.init.trunc_normal_(self.layer.weight, std=0.02)

    initialize = torch.nn.init.trunc_normal_
    mode = fake_tensors()
    with mode, Building(mode):
        network = Network()
    assert network.rates == pytest.approx([0, 0.1, 0.2])
    assert network.layer.weight.shape == (5, 12)
    weight = torch.full((2, 2), 7.0)
    assert initialize(weight).max() < 7, "the initializer is as it was"


def test_grouped_products_of_any_precision():
    """torch's own rule refuses all but 16-bit numbers."""
    if not hasattr(torch.ops.aten, "_grouped_mm"):
        pytest.skip("this torch has no grouped products")
    a, b, ends = torch.rand(6, 8), torch.rand(2, 8, 4), torch.tensor([2, 6], dtype=torch.int32)
    counted = rooflines.count(torch.ops.aten._grouped_mm.default, a, b, ends)
    assert counted.tensors == "fake"
    assert counted.matrix_flops == 2 * 6 * 8 * 4


def test_a_gradient_of_a_norm_is_laid_out_as_its_kernel_does():
    norm, x = nn.LayerNorm(6), torch.rand(2, 4, 6)
    gradient = torch.rand(2, 6, 4).transpose(1, 2)

    def outputs(mode):
        found = record(lambda: norm(x).backward(gradient), mode).calls
        return [call.outputs for call in found if call.signature.name == "aten::native_layer_norm_backward"]

    assert outputs(fake_tensors()) == outputs(None)
    assert len(outputs(None)) == 1


def test_a_mask_that_masks_nothing_is_dropped_as_on_real_tensors():
    transformers = pytest.importorskip("transformers")
    network = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_embd=32, n_head=4, vocab_size=50, n_positions=16))
    tokens = torch.randint(0, 50, (2, 8))
    mask = torch.ones_like(tokens)
    padded = mask.clone()
    padded[0, :3] = 0
    with torch.no_grad():
        counts = [
            rooflines.count(network.eval(), input_ids=tokens, **given)
            for given in ({}, {"attention_mask": mask}, {"attention_mask": padded})
        ]
    assert all(counted.tensors == "fake" for counted in counts)
    causal, unmasked, padding = (counted.matrix_flops for counted in counts)
    assert causal == unmasked
    # 2 products of 2 x 4 heads x 8 wide: with the mask all 8 x 8 pairs, without it 8 x 9 / 2
    assert padding - causal == 2 * 2 * 2 * 4 * 8 * (8 * 8 - 8 * 9 // 2)
