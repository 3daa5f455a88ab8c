"""Copies, joins, paddings, new tensors: their bytes against what a real call was given and gave back, by numbering elements."""

from __future__ import annotations

import pytest
import torch
from torch.ops import aten

from rooflines.profiler.calls.recorder import record
from rooflines.profiler.read.signature import MISSING, Signature, TensorArg
from rooflines.roofline.count.formulas import Work, count
from tests.roofline.formulas.helpers import nbytes

HALF, SINGLE, LONG = (TensorArg((3, 4), dtype) for dtype in ("bfloat16", "float32", "int64"))
CUBE = torch.arange(2 * 3 * 4, dtype=torch.float32).reshape(2, 3, 4)


def work_of(step):
    """The work of the one call that moves something, the same with and without its recorded results."""
    found = [(call, count(call.signature, outputs=call.outputs)) for call in record(step, None).calls]
    ((call, outcome),) = [(call, outcome) for call, outcome in found if outcome.work != Work()]
    assert outcome.kind == "counted", outcome
    assert count(call.signature).work == outcome.work
    return outcome.work


def test_a_trace_s_list_has_the_dtype_that_was_allocated():
    """Traces say float32, or the network's precision, for every list; a recording's results leave nothing to conclude."""
    listed = Signature("aten::stack", ((SINGLE, SINGLE), 0))
    assert count(listed).work == Work(bytes_read=96, bytes_written=96)
    assert count(listed, output_bytes=48).work == Work(bytes_read=48, bytes_written=48)
    assert count(listed, outputs=(TensorArg((2, 3, 4)),)).work == Work(bytes_read=96, bytes_written=96)
    mixed = Signature("aten::stack", ((HALF, SINGLE), 0))
    assert count(mixed, output_bytes=96).work == count(mixed).work == Work(bytes_read=24 + 48, bytes_written=96)
    left_out = Signature("aten::cat", ((), 0))
    assert count(left_out).kind == "unknown"
    assert count(left_out, output_bytes=400).work == Work(bytes_read=400, bytes_written=400)


def test_repeats():
    assert work_of(lambda: CUBE.repeat(2, 1, 3)) == Work(bytes_read=96, bytes_written=576)
    times = torch.tensor([2, 0, 5])
    (call,) = record(lambda: torch.repeat_interleave(times), None).calls
    found = count(call.signature, outputs=call.outputs)
    assert found.work == Work(bytes_read=24, bytes_written=56)
    assert count(call.signature).reason == "output size not recorded"
    # seven is not how often each is repeated
    assert count(Signature("aten::repeat_interleave", (LONG, 7, None, None))).work.bytes_written == 7 * 96


def test_casts():
    assert work_of(lambda: CUBE.to(torch.float64)) == Work(bytes_read=96, bytes_written=192)
    assert count(Signature("aten::_to_copy", (HALF, MISSING))).kind == "composite"
    assert count(Signature("aten::copy", (SINGLE, HALF))).work == Work(bytes_read=24, bytes_written=48)


# New tensors: call, FLOPs an element.
NEW = {
    "zeros": (lambda: torch.zeros(3, 4), 0), "full of integers": (lambda: torch.full((3, 4), 7), 0),
    "full of booleans": (lambda: torch.full((3, 4), True), 0), "full_like": (lambda: torch.full_like(CUBE, 2, dtype=torch.int8), 0),
    "full of complex": (lambda: torch.full((3,), 1j), 0), "new_ones": (lambda: CUBE.new_ones(5), 0), "eye": (lambda: torch.eye(3), 0),
    "eye wide": (lambda: torch.eye(3, 5, dtype=torch.bool), 0), "scalar": (lambda: torch.scalar_tensor(2), 0),
    "arange": (lambda: torch.arange(7), 2), "arange from": (lambda: torch.arange(2, 7.5), 2),
    "arange step": (lambda: torch.arange(7, 1, -2, dtype=torch.int32), 2), "linspace": (lambda: torch.linspace(0, 1, 9), 2),
    "linspace wide": (lambda: torch.linspace(0, 1, 9, dtype=torch.float64), 2), "logspace": (lambda: torch.logspace(0, 1, 9), 23),
    "range": (lambda: aten.range(1, 4, 0.5), 2), "tril_indices": (lambda: torch.tril_indices(4, 3, 1), 0),
    "triu_indices": (lambda: torch.triu_indices(4, 6, -1), 0),
    "triu_indices int32": (lambda: torch.triu_indices(3, 3, 1, dtype=torch.int32), 0),
    "bartlett": (lambda: torch.bartlett_window(8), 4), "hann": (lambda: torch.hann_window(8), 13),
    "hann periodic": (lambda: torch.hann_window(8, False), 13), "hamming": (lambda: torch.hamming_window(8, True, 0.5, 0.5), 13),
    "blackman": (lambda: torch.blackman_window(8), 26), "kaiser": (lambda: torch.kaiser_window(8, dtype=torch.float64), 47),
}  # fmt: skip


@pytest.mark.parametrize("name", NEW)
def test_new_tensors_are_written(name):
    call, cost = NEW[name]
    result = call()
    found = work_of(call)
    assert (found.bytes_read, found.bytes_written, found.other_flops) == (0, nbytes(result), cost * result.numel())


def test_a_default_dtype_of_the_user_s_is_in_the_result():
    made = Signature("aten::zeros", ((5,), None, None, None, None))
    assert count(made, outputs=(TensorArg((5,), "float64"),)).work == Work(bytes_written=40)


def test_ends_given_as_tensors_are_read():
    low, high = torch.tensor(0.0), torch.tensor(1.0)
    assert work_of(lambda: torch.linspace(low, high, 9)) == Work(0, 18, 8, 36, "fp32")
