"""Losses by hand: what is gathered, what a reduction writes, what a gradient does not read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflines.roofline.count.formulas import Work, costs
from tests.roofline.formulas.by_hand import tensor, work

LOGITS = tensor(5, 10)
CLASSES = tensor(5, dtype="int64")
SCALAR = tensor()
NONE, MEAN, SUM = 0, 1, 2


@given(st.integers(1, 9), st.integers(1, 9))
def test_nll_picks_one_number_a_sample(samples, classes):
    logits, target = tensor(samples, classes), tensor(samples, dtype="int64")
    found = work("nll_loss_forward", logits, target, None, MEAN, -100)
    assert found == Work(0, 2 * samples, 12 * samples, 8, "fp32")  # a log-probability and a label; the loss and the sum of weights
    each = work("nll_loss_forward", logits, target, tensor(classes), NONE, -100)
    assert each == Work(0, 4 * samples, 12 * samples + 4 * classes, 4 * samples + 4, "fp32")


def test_the_sum_of_weights_divides_a_mean_only():
    mean = work("nll_loss_backward", SCALAR, LOGITS, CLASSES, None, MEAN, -100, SCALAR)
    assert mean == Work(0, 5, 4 + 40 + 4, 200, "fp32")
    assert work("nll_loss_backward", SCALAR, LOGITS, CLASSES, None, SUM, -100, SCALAR).bytes_read == 44


@pytest.mark.parametrize(("reduction", "losses"), [(NONE, 50), (MEAN, 1), (SUM, 1)])
def test_element_wise_losses(reduction, losses):
    assert work("mse_loss", LOGITS, LOGITS, reduction) == Work(0, 150, 400, 4 * losses, "fp32")
    assert work("huber_loss", LOGITS, LOGITS, reduction, 1.0).other_flops == 250
    assert work("binary_cross_entropy", LOGITS, LOGITS, None, reduction).other_flops == 50 * (2 * costs.TRANSCENDENTAL + 6)
    assert work("smooth_l1_loss_backward", SCALAR, LOGITS, LOGITS, reduction, 1.0) == Work(0, 200, 404, 200, "fp32")


def test_margins():
    assert work("multi_margin_loss", LOGITS, CLASSES, 1, 1.0, None, MEAN) == Work(0, 200, 240, 4, "fp32")
    assert work("multi_margin_loss", LOGITS, CLASSES, 2, 1.0, tensor(10), NONE) == Work(0, 300, 280, 20, "fp32")
    assert work("multi_margin_loss_backward", SCALAR, LOGITS, CLASSES, 1, 1.0, None, MEAN) == Work(0, 200, 244, 200, "fp32")
    labels = tensor(5, 10, dtype="int64")
    assert work("multilabel_margin_loss_forward", LOGITS, labels, MEAN) == Work(0, 200, 600, 4 + 200, "fp32")
    assert work("multilabel_margin_loss_backward", SCALAR, LOGITS, labels, MEAN, LOGITS) == Work(0, 200, 804, 200, "fp32")


@settings(deadline=None)  # the first call imports torch
@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 5)), min_size=1, max_size=4))
def test_ctc_counts_the_states_of_each_sample(lengths):
    """2 l + 1 states at each of t steps; of the probabilities of a step those of the labels and of the blank."""
    times, labels = tuple(time for time, _ in lengths), tuple(count for _, count in lengths)
    samples, steps, longest = len(lengths), max(times), max(labels)
    log_probs, targets = tensor(steps, samples, 20), tensor(samples, longest, dtype="int64")
    states = sum(time * (2 * count + 1) for time, count in lengths)
    kept = (tensor(samples), tensor(samples, steps, 2 * longest + 1))
    found = work("_ctc_loss", log_probs, targets, times, labels, 0, False, outputs=kept)
    assert found.other_flops == 49 * states
    assert found.bytes_read == 4 * sum(time * (count + 1) for time, count in lengths) + 8 * targets.numel
    assert found.bytes_written == 4 * (samples + kept[1].numel)
    assert work("_ctc_loss", log_probs, targets, times, labels, 0, False) == found  # the same without having seen the results
    back = work("_ctc_loss_backward", tensor(samples), log_probs, targets, times, labels, *kept, 0, False)
    assert (back.other_flops, back.bytes_written) == ((49 + 24 + 1) * states + 24 * log_probs.numel, 4 * log_probs.numel)


def test_ctc_with_lengths_in_tensors_takes_every_sample_as_long_as_its_row():
    lengths = tensor(2, dtype="int64")
    found = work("_cudnn_ctc_loss", tensor(7, 2, 20), tensor(2, 3, dtype="int64"), lengths, lengths, 0, False, False)
    assert (found.other_flops, found.bytes_written) == ((2 * 49 + 25) * 7 * 7 * 2 + 24 * 280, 4 * (280 + 2))


def test_a_linear_layer_and_its_loss_at_once():
    inputs, weight, target = tensor(8, 16), tensor(100, 16), tensor(8, dtype="int64")
    rest = ("mean", -100, 0.0, 4, "compact", 6, True)

    def loss(*gradients):
        return work("torch_nn::_linear_cross_entropy_batch_chunked", inputs, weight, target, None, None, *rest, *gradients)

    product = 2 * 8 * 100 * 16
    assert loss(False, False, False) == Work(product, 14 * 800 + 16, 512 + 6400 + 64, 4, "fp32")
    assert loss(True, True, False) == Work(3 * product, 16 * 800 + 16, 512 + 6400 + 64, 4 + 512 + 6400, "fp32")
