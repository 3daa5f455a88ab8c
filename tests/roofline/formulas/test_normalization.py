"""Norms, forward and backward: statistics are kept, and each gradient reads and computes what it needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.read.signature import Signature
from rooflines.roofline.count.formulas import Work, count
from tests.roofline.formulas.by_hand import reason, tensor, work

X = tensor(2, 6, 4, 5)
COUNT = 240
BYTES = 4 * COUNT
C = tensor(6)
CHANNELS = 24  # bytes of one number a channel

sizes = st.integers(1, 6)


@given(sizes, sizes, sizes)
def test_batch_norm(samples, channels, extent):
    inputs, channel = tensor(samples, channels, extent), tensor(channels)
    count, small = inputs.numel, 4 * channels
    training = work("native_batch_norm", inputs, channel, channel, channel, channel, True, 0.1, 1e-5)
    # running statistics and the batch's own are written
    assert training == Work(0, 6 * count, 4 * count + 4 * small, 4 * count + 2 * small + 2 * small, "fp32")
    evaluation = work("native_batch_norm", inputs, channel, channel, channel, channel, False, 0.1, 1e-5)
    assert evaluation == Work(0, 2 * count, 4 * count + 4 * small, 4 * count, "fp32")


def test_batch_norm_in_its_other_forms():
    plain = work("native_batch_norm", X, C, C, C, C, True, 0.1, 1e-5)
    assert work("_native_batch_norm_legit", X, C, C, C, C, True, 0.1, 1e-5) == plain
    assert work("_batch_norm_with_update", X, C, C, C, C, 0.1, 1e-5) == plain
    assert work("cudnn_batch_norm", X, C, C, C, C, True, 0.1, 1e-5) == plain
    # without running statistics, and with new ones instead of updated ones
    assert work("_native_batch_norm_legit", X, C, C, True, 0.1, 1e-5) == Work(0, 6 * COUNT, BYTES + 48, BYTES + 48, "fp32")
    assert work("_native_batch_norm_legit_functional", X, C, C, C, C, True, 0.1, 1e-5) == plain
    assert work("_batch_norm_no_update", X, C, C, C, C, 0.1, 1e-5) == work("native_batch_norm", X, C, C, C, C, False, 0.1, 1e-5)
    # the composite form keeps nothing
    assert work("batch_norm", X, C, C, C, C, True, 0.1, 1e-5, True).bytes_written == plain.bytes_written - 48


def test_what_is_kept_has_the_dtype_that_was_seen():
    half, channel = tensor(2, 6, 4, 5, dtype="bfloat16"), tensor(6, dtype="bfloat16")
    args = (half, channel, channel, None, None, True, 0.1, 1e-5)
    assert work("native_batch_norm", *args).bytes_written == 2 * COUNT + 48  # a GPU's
    assert work("native_batch_norm", *args, outputs=(half, channel, channel)).bytes_written == 2 * COUNT + 24  # a CPU's
    # a trace with memory shows it too, unless an allocator rounded it up
    signature = Signature("aten::native_batch_norm", args)
    assert count(signature, output_bytes=2 * COUNT + 24).work.bytes_written == 2 * COUNT + 24
    assert count(signature, output_bytes=1536).work.bytes_written == 2 * COUNT + 48


@pytest.mark.parametrize(
    ("mask", "flops", "read", "written"),
    [
        ((True, True, True), 9, 2 * BYTES + 3 * CHANNELS, BYTES + 2 * CHANNELS),
        ((True, False, False), 9, 2 * BYTES + 3 * CHANNELS, BYTES),
        ((False, True, False), 3, 2 * BYTES + 2 * CHANNELS, CHANNELS),  # not the weight
        ((False, False, True), 1, BYTES, CHANNELS),  # not even the input
    ],
)
def test_gradients_of_batch_norm_in_training(mask, flops, read, written):
    found = work("native_batch_norm_backward", X, X, C, C, C, C, C, True, 1e-5, mask)
    assert found == Work(0, flops * COUNT, read, written, "fp32")


@pytest.mark.parametrize(
    ("mask", "flops", "read"),
    [
        ((True, True, True), 5, 2 * BYTES + 3 * CHANNELS),
        ((True, False, False), 1, BYTES + 2 * CHANNELS),  # g * weight / deviation: not the input, not the mean
        ((False, True, False), 3, 2 * BYTES + 2 * CHANNELS),
        ((False, False, True), 1, BYTES),
    ],
)
def test_gradients_of_batch_norm_in_inference(mask, flops, read):
    found = work("native_batch_norm_backward", X, X, C, C, C, None, None, False, 1e-5, mask)
    assert (found.other_flops, found.bytes_read) == (flops * COUNT, read)


@given(sizes, sizes, sizes)
def test_layer_norm_keeps_a_mean_and_a_deviation_a_row(batch, rows, width):
    inputs, weight = tensor(batch, rows, width), tensor(width)
    count, kept = inputs.numel, 4 * batch * rows
    found = work("native_layer_norm", inputs, (width,), weight, weight, 1e-5)
    assert found == Work(0, 8 * count, 4 * count + 8 * width, 4 * count + 2 * kept, "fp32")
    assert work("layer_norm", inputs, (width,), weight, weight, 1e-5, True).bytes_written == 4 * count
    row = tensor(batch, rows, 1)
    back = work("native_layer_norm_backward", inputs, inputs, (width,), row, row, weight, weight, (True, True, True))
    assert back == Work(0, 14 * count, 8 * count + 2 * kept + 4 * width, 4 * count + 8 * width, "fp32")


def test_gradients_of_layer_norm_one_by_one():
    row, weight = tensor(2, 6, 4, 1), tensor(5)

    def gradient(*mask):
        return work("native_layer_norm_backward", X, X, (5,), row, row, weight, weight, mask)

    rows = 4 * 48
    assert gradient(True, False, False) == Work(0, 11 * COUNT, 2 * BYTES + 2 * rows + 20, BYTES, "fp32")
    assert gradient(False, True, False) == Work(0, 4 * COUNT, 2 * BYTES + 2 * rows, 20, "fp32")
    assert gradient(False, False, True) == Work(0, COUNT, BYTES, 20, "fp32")


def test_group_norm_keeps_a_mean_and_a_deviation_a_group():
    found = work("native_group_norm", X, C, C, 2, 6, 20, 3, 1e-5)
    assert found == Work(0, 8 * COUNT, BYTES + 48, BYTES + 2 * 4 * 2 * 3, "fp32")
    groups = tensor(2, 3)
    back = work("native_group_norm_backward", X, X, groups, groups, C, 2, 6, 20, 3, (True, True, True))
    assert back == Work(0, 14 * COUNT, 2 * BYTES + 2 * 24 + 24, BYTES + 48, "fp32")


def test_rms_norm():
    weight, row = tensor(5), tensor(2, 6, 4, 1)
    assert work("_fused_rms_norm", X, (5,), weight, 1e-5) == Work(0, 4 * COUNT, BYTES + 20, BYTES + 4 * 48, "fp32")
    assert work("rms_norm", X, (5,), weight, 1e-5).bytes_written == BYTES
    back = work("_fused_rms_norm_backward", X, X, (5,), row, weight, (True, True))
    assert back == Work(0, 10 * COUNT, 2 * BYTES + 4 * 48 + 20, BYTES + 20, "fp32")
    assert work("_fused_rms_norm_backward", X, X, (5,), row, weight, (False, True)).other_flops == 3 * COUNT


def test_the_steps_of_batch_norm_over_devices():
    gathered, counts = tensor(8, 6), tensor(8)  # of eight devices
    assert work("batch_norm_stats", X, 1e-5) == Work(0, 4 * COUNT, BYTES, 48, "fp32")
    joined = work("batch_norm_gather_stats_with_counts", X, gathered, gathered, C, C, 0.1, 1e-5, counts)
    assert joined == Work(0, 10 * 48, 2 * 192 + 48 + 32, 48 + 48, "fp32")  # the input is not read
    assert work("batch_norm_elemt", X, C, C, C, C, 1e-5) == Work(0, 2 * COUNT, BYTES + 96, BYTES, "fp32")
    reduced = work("batch_norm_backward_reduce", X, X, C, C, C, True, True, True)
    assert reduced == Work(0, 4 * COUNT, 2 * BYTES + 48, 4 * 24, "fp32")
    last = work("batch_norm_backward_elemt", X, X, C, C, C, C, C, tensor(8, dtype="int32"))
    assert last == Work(0, 5 * COUNT, 2 * BYTES + 5 * 24 + 32, BYTES, "fp32")
    # together they are one device's backward
    assert reduced.other_flops + last.other_flops == 9 * COUNT


def test_weight_norm():
    weight, length = tensor(8, 3, 3), tensor(8, 1, 1)
    assert work("_weight_norm_interface", weight, length, 0) == Work(0, 3 * 72, 288 + 32, 288 + 32, "fp32")
    back = work("_weight_norm_interface_backward", weight, weight, length, tensor(8, 1, 1), 0)
    assert back == Work(0, 5 * 72, 2 * 288 + 64, 288 + 32, "fp32")
    assert reason("_weight_norm_interface", weight, length, 1) == "a weight norm along dimension 1"
