"""Copies, joins and new tensors: what a trace leaves out of them."""

from __future__ import annotations

import torch

from rooflines.profiler.calls.recorder import record
from rooflines.profiler.read.signature import MISSING, Signature, TensorArg
from rooflines.roofline.count.formulas import Work, count

HALF, SINGLE, LONG = (TensorArg((3, 4), dtype) for dtype in ("bfloat16", "float32", "int64"))


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
    times = torch.tensor([2, 0, 5])
    (call,) = record(lambda: torch.repeat_interleave(times), None).calls
    assert count(call.signature, outputs=call.outputs).work == Work(bytes_read=24, bytes_written=56)
    assert count(call.signature).reason == "output size not recorded"
    # seven is not how often each is repeated
    assert count(Signature("aten::repeat_interleave", (LONG, 7, None, None))).work.bytes_written == 7 * 96


def test_casts():
    assert count(Signature("aten::_to_copy", (HALF, MISSING))).kind == "composite"
    assert count(Signature("aten::copy", (SINGLE, HALF))).work == Work(bytes_read=24, bytes_written=48)


def test_a_default_dtype_of_the_user_s_is_in_the_result():
    made = Signature("aten::zeros", ((5,), None, None, None, None))
    assert count(made, outputs=(TensorArg((5,), "float64"),)).work == Work(bytes_written=40)
