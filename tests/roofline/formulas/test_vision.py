"""torchvision's operators by hand and on real calls, forward and backward."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision import ops

from rooflines.profiler.calls.recorder import record
from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import Work, count
from tests.roofline.formulas.traces import operator_events
from tests.traces import trace

POINT = 2 * (4 + 3) + 4  # position 4, floor and two distances for each coordinate; four weights


def recorded(name, step):
    """The one recorded call of this operator, and its count with what it returned."""
    (call,) = [call for call in record(step, None).calls if call.signature.name == f"torchvision::{name}"]
    return call, count(call.signature, outputs=call.outputs)


def test_suppression_compares_what_it_must():
    """Three boxes kept are compared with each other, three times; two dropped once each. Five scores sorted in 5 * 3 compares."""
    boxes = torch.tensor([[0, 0, 2, 2], [0, 0, 2, 2.1], [5, 5, 6, 6], [5, 5, 6, 6.1], [8, 8, 9, 9]])
    scores = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.5])
    call, found = recorded("nms", lambda: ops.nms(boxes, scores, 0.5))
    assert call.outputs[0].shape == (3,)
    assert found.work == Work(0, 5 * 3 + 5 * 3 + (3 + 2) * 13, 5 * 16 + 5 * 4, 3 * 8, "fp32")
    assert count(call.signature).reason == "number of boxes kept not recorded"
    assert count(call.signature, output_bytes=24).work == found.work


@given(boxes=st.integers(0, 60), seed=st.integers(0, 99), threshold=st.sampled_from([0.1, 0.5, 0.9]))
@settings(deadline=None, max_examples=30)
def test_suppression_does_at_least_the_sort_and_at_most_every_pair(boxes, seed, threshold):
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(boxes, 2, generator=generator)
    found = recorded("nms", lambda: ops.nms(torch.cat((corners, corners + 0.3), 1), torch.rand(boxes), threshold))[1]
    overlaps = (found.work.other_flops - boxes * (3 + max(boxes - 1, 0).bit_length())) / 13
    assert max(boxes - 1, 0) <= overlaps <= boxes * (boxes - 1) / 2 or boxes < 2


def regions(count_of, batch=2):
    """Boxes inside an image of 16 by 16, with the number of their image."""
    corners = torch.rand(count_of, 2) * 7
    return torch.cat((torch.randint(batch, (count_of, 1)).float(), corners, corners + 1 + torch.rand(count_of, 2) * 7), 1)


@pytest.mark.parametrize("ratio", [-1, 0, 1, 2, 3])
@given(channels=st.integers(1, 4), boxes=st.integers(1, 3), height=st.integers(1, 4), width=st.integers(1, 4))
@settings(max_examples=10, deadline=None)
def test_roi_align(ratio, channels, boxes, height, width):
    """A result is the mean of ratio² bilinear samples; with an adaptive ratio one sample is certain."""
    image, rois = torch.rand(2, channels, 16, 16, requires_grad=True), regions(boxes)

    def step():
        result = ops.roi_align(image, rois, (height, width), sampling_ratio=ratio)
        result.backward(torch.ones_like(result))

    samples = max(ratio, 1) ** 2
    bins = boxes * height * width
    results = bins * channels
    flops = results * (8 * samples + 1) + bins * samples * POINT
    read = 4 * min(4 * samples * results, image.numel()) + 4 * rois.numel()
    assert recorded("roi_align", step)[1].work == Work(0, flops, read, 4 * results, "fp32")
    back = recorded("_roi_align_backward", step)[1].work
    assert back == Work(0, flops, 4 * results + 4 * rois.numel(), 4 * image.numel(), "fp32")


def test_pooled_regions():
    """One pixel of each bin is certain. Results and, as int32, where each came from; dealt out to the bins, 12 channels are 2."""
    image, rois = torch.rand(2, 12, 16, 16, requires_grad=True), regions(3)
    bins = 3 * 2 * 3

    def step(call):
        def forward_and_backward():
            result = call(image, rois, (2, 3))
            result.backward(torch.ones_like(result))

        return forward_and_backward

    for name, call, channels in (("roi_pool", ops.roi_pool, 12), ("ps_roi_pool", ops.ps_roi_pool, 2)):
        results = bins * channels
        found = recorded(name, step(call))[1].work
        assert found == Work(0, results, 4 * results + 60, 8 * results, "fp32")
        back = recorded(f"_{name}_backward", step(call))[1].work
        assert back == Work(0, results, 8 * results + 60, 4 * image.numel(), "fp32")

    def aligned():
        result = ops.ps_roi_align(image, rois, (2, 3), sampling_ratio=2)
        result.backward(torch.ones_like(result))

    results = bins * 2
    flops = results * (8 * 4 + 1) + bins * 4 * POINT
    found = recorded("ps_roi_align", aligned)[1].work
    assert found == Work(0, flops, 4 * 16 * results + 60, 8 * results, "fp32")
    back = recorded("_ps_roi_align_backward", aligned)[1].work
    assert back == Work(0, flops, 8 * results + 60, 4 * image.numel(), "fp32")


def test_regions_in_bf16_and_none_at_all():
    image = TensorArg((1, 8, 10, 10), "bfloat16")
    found = count(Signature("torchvision::roi_align", (image, TensorArg((5, 5), "bfloat16"), 1.0, 7, 7, 2, False))).work
    assert (found.bytes_written, found.precision) == (2 * 5 * 8 * 49, "bf16")
    nothing = count(Signature("torchvision::roi_align", (image, TensorArg((0, 5), "bfloat16"), 1.0, 7, 7, 2, False)))
    assert nothing.work == Work()


@pytest.mark.parametrize("masked", [False, True])
@given(
    groups=st.integers(1, 2), offset_groups=st.integers(1, 2), channels=st.integers(1, 3), out=st.integers(1, 3),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)), stride=st.integers(1, 2), dilation=st.integers(1, 2), bias=st.booleans(),
)  # fmt: skip
@settings(max_examples=12, deadline=None)
def test_deformable_convolution(masked, groups, offset_groups, channels, out, kernel, stride, dilation, bias):
    """Matrix FLOPs are those of a plain convolution of these shapes. torchvision adds a bias of zeros where there is none."""
    image = torch.rand(2, channels * groups * offset_groups, 9, 8, requires_grad=True)
    weight = torch.rand(out * groups, image.shape[1] // groups, *kernel, requires_grad=True)
    plain = torch.nn.functional.conv2d(image, weight, None, stride, 1, dilation, groups)
    batch, _, height, width = plain.shape
    taps = kernel[0] * kernel[1]
    offset = torch.rand(batch, 2 * offset_groups * taps, height, width, requires_grad=True)
    mask = torch.rand(batch, offset_groups * taps, height, width, requires_grad=True) if masked else None
    added = torch.rand(weight.shape[0], requires_grad=True) if bias else None

    def step():
        result = ops.deform_conv2d(image, offset, weight, added, stride, 1, dilation, mask)
        result.backward(torch.ones_like(result))

    products = 2 * plain.numel() * weight[0].numel()
    points = offset.numel() // 2
    samples = points // offset_groups * image.shape[1]
    given_bytes = 4 * (image.numel() + weight.numel() + offset.numel() + (mask.numel() if masked else 0))
    bias_bytes = 4 * weight.shape[0]
    flops = samples * (8 + masked) + points * (2 * (1 + 3) + 4) + plain.numel()
    found = recorded("deform_conv2d", step)[1]
    assert found.work == Work(products, flops, given_bytes + bias_bytes, 4 * plain.numel(), "fp32")
    # the samples again 8, their gradient to four corners 8, that of the offsets 4 * 5, that of the mask 2
    flops = samples * (8 + 8 + 20 + 4 * masked) + points * (2 * (1 + 3) + 4) + plain.numel()
    call, back = recorded("_deform_conv2d_backward", step)
    written = sum(output.nbytes for output in call.outputs)
    assert back.work == Work(2 * products, flops, given_bytes + 4 * plain.numel(), written, "fp32")


def test_a_trace_and_a_recording_agree(tmp_path):
    image, rois = torch.rand(1, 4, 16, 16), regions(3, batch=1)
    offset, weight = torch.rand(1, 18, 16, 16), torch.rand(5, 4, 3, 3)

    def step():
        ops.roi_align(image, rois, 7, sampling_ratio=2)
        ops.ps_roi_align(image, rois, 2, sampling_ratio=2)
        ops.deform_conv2d(image, offset, weight, padding=1)

    calls = [call for call in record(step, None).calls if call.signature.name.startswith("torchvision")]
    traced = [one for one in trace(*operator_events(step, tmp_path / "t.json")).signatures if one.name.startswith("torchvision")]
    expected = {count(call.signature, outputs=call.outputs).work for call in calls}
    assert {count(one).work for one in traced} == expected
    assert len(expected) == 3
    assert None not in expected
