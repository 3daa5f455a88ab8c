"""Attention in wrappers: the inner operator is counted, and the backward of an autograd function takes the arguments of its forward."""

from __future__ import annotations

import pytest
import torch

from rooflines.profiler.tree.tree import tree
from rooflines.roofline.count.count import count as count_calls
from tests.roofline.formulas.traces import record_trace
from tests.roofline.rooms import read
from tests.traces import mm, op, trace


def counted(recorded):
    """Names of the events that are counted, with their counts."""
    counts = count_calls(tree(recorded))
    events = ((recorded.names[recorded.host.name[event]], counts.variants[code]) for event, code in enumerate(counts.of_event))
    return {name: variant for name, variant in events if variant.count.work is not None and variant.count.work.flops}


HALF = "c10::BFloat16"
Q, K = [2, 5, 6, 8], [2, 7, 3, 8]
FUNCTION = {
    "dims": [Q, K, K, *[[]] * 9],
    "types": [HALF] * 3 + ["Scalar", "", "Scalar", "", "Scalar", "", "Scalar", "Scalar", "Scalar"],
    "concrete": ["", "", "", "0.", "", "True", "", "0.", "", "False", "False", "True"],
}
INSIDE = {
    "dims": [Q, K, K, *[[]] * 8],
    "types": [HALF] * 3 + ["Scalar"] * 6 + ["", "Scalar"],
    "concrete": ["", "", "", "0.", "0.35", "True", "1", "0", "0.", "", "False"],
}


def test_attention_inside_attention_is_counted_once_where_its_window_is_recorded():
    """``FlashAttnFunc`` has no window, the operator inside has one of a key to the left: 5 * 2 pairs."""
    found = counted(trace(op("FlashAttnFunc", 0, 10, **FUNCTION), op("flash_attn::_flash_attn_forward", 1, 8, **INSIDE)))
    assert set(found) == {"flash_attn::_flash_attn_forward"}
    assert found["flash_attn::_flash_attn_forward"].count.work.matrix_flops == 4 * 8 * 2 * 6 * 10


def test_attention_around_other_operators_is_counted_itself():
    """As flash-attn before 2.7, whose kernels Python calls, with padding of the heads."""
    found = counted(trace(op("FlashAttnFunc", 0, 10, **FUNCTION), mm(1, 2, 3, 5, 7)))
    assert found["FlashAttnFunc"].count.work.matrix_flops == 4 * 8 * 2 * 6 * 25


def test_joining_partial_results_inside_does_not_make_a_wrapper():
    layer = {"dims": [[9, 4, 8]] * 4 + [[]] * 3, "types": [HALF] * 4 + [""] * 3, "concrete": [""] * 7}
    part, rows = [9, 4, 8], [4, 9]
    merge = {"dims": [part, rows, part, rows, part, rows, []], "types": [HALF, "float"] * 3 + [""], "concrete": [""] * 7}
    found = counted(trace(op("vllm::unified_attention_with_output", 0, 10, **layer), op("_C::merge_attn_states", 1, 8, **merge)))
    assert found["vllm::unified_attention_with_output"].count.work.matrix_flops == 4 * 8 * 4 * 45


def backward(*, seq, **more):
    return op("FlashAttnFuncBackward", 20, 10, seq=seq, dims=[Q], types=[HALF], concrete=[""], **more)


def test_a_backward_takes_the_arguments_of_the_forward_with_its_number():
    found = counted(trace(op("FlashAttnFunc", 0, 10, seq=4, **FUNCTION), backward(seq=4)))["FlashAttnFuncBackward"]
    assert found.count.work.matrix_flops == 5 * 2 * 8 * 2 * 6 * 25
    assert found.count.work.bytes_read == 2 * (3 * 2 * 5 * 6 * 8 + 2 * 2 * 7 * 3 * 8) + 4 * 2 * 5 * 6
    assert found.count.work.bytes_written == 2 * (2 * 5 * 6 * 8 + 2 * 2 * 7 * 3 * 8)
    assert found.inferred == "arguments from its forward call"


@pytest.mark.parametrize("numbers", [(3,), (), (4, 4)])
def test_a_backward_without_one_forward_of_its_number_is_not_counted(numbers):
    forwards = [op("FlashAttnFunc", 0, 10, tid=thread, seq=number, **FUNCTION) for thread, number in enumerate(numbers, 1)]
    assert "FlashAttnFuncBackward" not in counted(trace(*forwards, backward(seq=4)))


def test_the_profiler_records_an_autograd_function_as_the_formulas_expect(tmp_path):
    """A real call of a function with the arguments of flash-attn 2: None, a tuple and a string among them."""

    class FlashAttnFunc(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, dropout, scale, causal, window, softcap, slopes, deterministic, softmax, layout, grad):
            return q * 2

        @staticmethod
        def backward(ctx, grad):
            return (grad, *[None] * 12)

    q, k = torch.rand(2, 5, 6, 8, requires_grad=True), torch.rand(2, 7, 3, 8)

    def body():
        out = FlashAttnFunc.apply(q, k, k, 0.0, None, True, (-1, -1), 0.0, None, False, False, "bshd", True)
        out.backward(torch.rand(2, 5, 6, 8))

    found = counted(read(record_trace(body, tmp_path / "trace.json")))
    assert found["FlashAttnFunc"].count.work.matrix_flops == 4 * 8 * 2 * 6 * 25
    assert found["FlashAttnFuncBackward"].count.work.matrix_flops == 5 * 2 * 8 * 2 * 6 * 25
