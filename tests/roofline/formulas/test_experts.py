"""Experts of PyTorch's grouped products: weights of those that are used, as measured, expected or at most."""

from __future__ import annotations

from itertools import combinations, product
from math import comb

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import rooflines
from rooflines.profiler.calls.recorder import record
from rooflines.roofline.count.formulas.experts import SPREAD, UNIFORM, experts_hit
from tests.roofline.formulas.by_hand import tensor, work

GROUPED = "aten::_grouped_mm"


@pytest.mark.parametrize(("experts", "chosen", "tokens"), [(4, 1, 3), (4, 2, 3), (5, 2, 2), (3, 3, 2), (6, 4, 1)])
def test_the_mean_over_all_ways_to_route(experts, chosen, tokens):
    ways = list(product(combinations(range(experts), chosen), repeat=tokens))
    assert len(ways) == comb(experts, chosen) ** tokens
    mean = sum(len(set().union(*way)) for way in ways) / len(ways)
    assert experts_hit(experts, chosen, tokens) == pytest.approx(mean)


@given(experts=st.integers(1, 300), chosen=st.integers(1, 300), tokens=st.integers(0, 200))
def test_more_tokens_use_more_experts_and_never_more_than_there_are(experts, chosen, tokens):
    chosen = min(chosen, experts)
    hit = experts_hit(experts, chosen, tokens)
    assert 0 <= hit <= min(experts, chosen * tokens) + 1e-9
    assert hit <= experts_hit(experts, chosen, tokens + 1) + 1e-9
    assert experts_hit(experts, chosen, 1) == pytest.approx(chosen)


@given(experts=st.integers(2, 64), tokens=st.integers(1, 64), chosen=st.integers(1, 8), k=st.integers(1, 9), n=st.integers(1, 9))
def test_bytes_of_the_experts_that_are_used(experts, tokens, chosen, k, n):
    chosen = min(chosen, experts)
    rows, expert = tokens * chosen, 4 * k * n
    arguments = tensor(rows, k), tensor(experts, k, n), tensor(experts, dtype="int32"), None, None
    besides = 4 * rows * k + 4 * experts
    used = min(experts, rows)
    measured, expected, most = (work(GROUPED, *arguments, *facts) for facts in ((used, chosen), (None, chosen), ()))
    assert measured.bytes_read == besides + used * expert
    assert expected.bytes_read == besides + round(experts * expert * experts_hit(experts, chosen, tokens) / experts)
    assert most.bytes_read == measured.bytes_read >= expected.bytes_read
    assert (measured.assumption, expected.assumption, most.assumption) == ("", UNIFORM, SPREAD)
    assert len({(one.flops, one.bytes_written) for one in (measured, expected, most)}) == 1


class Mixture(nn.Module):
    """Tokens [t, d] by the ``chosen`` of ``experts`` [e, d, d] that score highest."""

    def __init__(self, experts: int, chosen: int, width: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.gate = nn.Linear(width, experts, bias=False)
        self.weight = nn.Parameter(torch.rand(experts, width, width))

    def forward(self, x):
        ids = self.gate(x).topk(self.chosen, dim=-1).indices.flatten()
        order = ids.argsort()
        ends = torch.histc(ids.float(), len(self.weight), 0, len(self.weight) - 1).cumsum(0).to(torch.int32)
        return torch.ops.aten._grouped_mm.default(x[order // self.chosen], self.weight, ends)


@pytest.mark.ci
@settings(max_examples=20, deadline=None)
@given(experts=st.integers(2, 9), chosen=st.integers(1, 3), tokens=st.integers(1, 9), seed=st.integers(0, 99))
def test_measured_on_real_tensors_and_expected_on_fake_ones(experts, chosen, tokens, seed):
    torch.manual_seed(seed)
    chosen, width = min(chosen, experts), 4
    mixture, x = Mixture(experts, chosen, width), torch.randn(tokens, width)
    hit = mixture.gate(x).topk(chosen, dim=-1).indices.unique().numel()
    (real,) = [call.signature for call in record(lambda: mixture(x), None).calls if call.signature.name == GROUPED]
    assert real.args[-2:] == (hit, chosen)
    (row,) = [row for row in rooflines.count(mixture, x).operators if row.name == GROUPED]
    assert row.assumption == UNIFORM
    weights = row.bytes_read - 4 * tokens * chosen * width - 4 * experts
    assert weights == round(4 * width * width * experts_hit(experts, chosen, tokens))


@pytest.mark.skipif(not hasattr(torch.ops.aten, "_grouped_mm"), reason="this torch has no grouped products")
def test_a_step_of_a_run_stores_what_its_trace_lacks():
    mixture, x = Mixture(8, 2, 4), torch.rand(3, 4)
    stored = [call for call in record(lambda: mixture(x), None).lossy if call.signature.name == GROUPED]
    assert [call.signature.args[-1] for call in stored] == [2]
