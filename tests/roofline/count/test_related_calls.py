"""What a trace leaves out of a call and other calls tell, on traces written by hand; and what stays untold where two answers fit."""

from __future__ import annotations

import pytest

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import count
from tests.roofline.rooms import attributed
from tests.traces import op, span

IMAGES, FILTERS, MAPS = [8, 16, 28, 28], [32, 16, 3, 3], [8, 32, 14, 14]
FLOPS = 2 * 8 * 32 * 14 * 14 * 16 * 9


def old(name, ts, dur, *shapes, dtype="float", **more):
    """An operator as traces of 2021 have it: the shapes of its tensors; None is another argument, whose value nobody wrote down."""
    types = [dtype if shape is not None else "Int" for shape in shapes]
    return op(name, ts, dur, dims=[shape or [] for shape in shapes], types=types, **more)


def convolution(ts, dur, images=IMAGES, filters=FILTERS, **more):
    """conv2d around convolution, as autograd numbers them."""
    shapes = (images, filters, None, None, None, None)
    return old("aten::conv2d", ts, dur, *shapes, None, **more), old(
        "aten::convolution", ts + 1, dur - 2, *shapes, None, None, None, **more
    )


def node(name, ts, dur, *shapes, seq):
    return old(name, ts, dur, *shapes, seq=seq, fwd=1, tid=2)


def rows(*events):
    return {row.signature.name: row for row in attributed(*events).rows}


def reasons(*events):
    return {gap.name: gap.reason for gap in attributed(*events).gaps}


# --- results -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ConvolutionBackward0", "autograd::engine::evaluate_function: ConvolutionBackward0"])
def test_the_backward_call_tells_the_shape_of_the_result(name):
    row = rows(*convolution(0, 10, seq=5), node(name, 20, 5, MAPS, seq=5))["aten::convolution"]
    assert (row.count.work.matrix_flops, row.count.work.bytes_written) == (FLOPS, 4 * 8 * 32 * 14 * 14)
    assert row.inferred.startswith("output from its backward call")


@pytest.mark.parametrize(
    "others",
    [
        (node("ConvolutionBackward0", 20, 5, MAPS, seq=6),),  # another call's
        (node("AddBackward0", 20, 5, MAPS, seq=5),),  # another operator's
        (node("ConvolutionBackward0", 20, 5, MAPS, MAPS, seq=5),),  # of more than one result
        (node("ConvolutionBackward0", 20, 5, MAPS, seq=5), node("ConvolutionBackward0", 30, 5, [8, 32, 28, 28], seq=5)),
        (node("ConvolutionBackward0", 20, 5, [8, 33, 14, 14], seq=5),),  # no result of these filters
        (node("ConvolutionBackward0", -20, 5, MAPS, seq=5),),  # before the call
        # numbers are counted by each thread for itself
        (*convolution(0, 10, seq=5, tid=3), node("ConvolutionBackward0", 20, 5, MAPS, seq=5)),
    ],
)
def test_what_does_not_fit_or_contradicts_itself_tells_nothing(others):
    assert "aten::convolution" in reasons(*convolution(0, 10, seq=5), *others)


def test_of_two_calls_of_one_number_the_last_made_the_node():
    """The first recorded no gradient, so its number is the next one's as well."""
    first, second = ([8, 16, 56, 56], FILTERS), (IMAGES, FILTERS)
    backward = node("ConvolutionBackward0", 30, 5, MAPS, seq=5)
    events = (*convolution(0, 10, *first, seq=5), *convolution(12, 10, *second, seq=5), backward)
    assert reasons(*events)["aten::convolution"].endswith("not recorded")
    assert rows(*events)["aten::convolution"].signature.tensors[0].shape == tuple(IMAGES)


def test_the_next_operator_takes_the_result():
    counter = old("aten::add_", 11, 1, [], None, dtype="long int")
    norm = old("aten::batch_norm", 13, 2, MAPS, [32], [32], [32], [32], None, None, None, None)
    row = rows(*convolution(0, 10), counter, norm)["aten::convolution"]
    assert row.count.work.matrix_flops == FLOPS
    assert row.inferred.startswith("output from its consumer aten::batch_norm")


@pytest.mark.parametrize(
    "consumer",
    [
        old("aten::relu", 13, 2, [4, 32, 14, 14]),  # another batch
        old("aten::relu", 13, 2, [8, 31, 14, 14]),  # other channels
        old("aten::relu", 13, 2, [8, 32, 14, 14], tid=2),  # another thread
        old("aten::mul", 13, 2, MAPS, MAPS),  # no operator that only ever takes one result
    ],
)
def test_an_operator_that_takes_something_else_tells_nothing(consumer):
    assert "aten::convolution" in reasons(*convolution(0, 10), consumer)


@pytest.mark.parametrize(("consumer", "is_told"), [("net.block.norm", True), ("net.block", True), ("net.other.norm", False)])
def test_the_next_operator_is_one_of_the_same_module(consumer, is_told):
    path = "nn.Module: net.block.conv (Conv2d)"
    following = span(f"nn.Module: {consumer} (Norm)", 20, 10), old("aten::relu", 22, 2, MAPS)
    found = rows(span(path, -1, 15), *convolution(0, 10), *following)
    assert ("aten::convolution" in found) is is_told


def test_what_looks_like_the_input_may_be_the_input():
    same = (IMAGES, [16, 16, 3, 3])
    assert "aten::convolution" in reasons(*convolution(0, 10, *same), old("aten::relu", 13, 2, IMAGES))
    norm = old("aten::batch_norm", 13, 2, IMAGES, [16], [16], [16], [16], None, None, None, None)
    assert rows(*convolution(0, 10, *same), norm)["aten::convolution"].count.work.matrix_flops == 2 * 8 * 16 * 28 * 28 * 16 * 9


def test_a_transposed_convolution_is_told_by_the_name_around_it():
    """Filters [16, 16, 3, 3] fit both ways; transposed every input element meets them, not every output element."""
    shapes = ([8, 16, 14, 14], [16, 16, 3, 3])
    outer, inner = convolution(0, 10, *shapes, seq=5)
    backward = node("ConvolutionBackward0", 20, 5, [8, 16, 28, 28], seq=5)
    assert "aten::convolution" in reasons(inner, backward)
    flops = 2 * 16 * 16 * 9 * 8
    assert rows(outer, inner, backward)["aten::convolution"].count.work.matrix_flops == flops * 28 * 28
    outer["name"] = "aten::conv_transpose2d"
    assert rows(outer, inner, backward)["aten::convolution"].count.work.matrix_flops == flops * 14 * 14


def test_what_an_operator_does_inside_shows_its_result():
    total = old("aten::sum", 0, 10, [64, 128], None, None, None), old("aten::as_strided", 2, 1, [64], None, None, None)
    row = rows(*total)["aten::sum"]
    assert (row.count.work.other_flops, row.count.work.bytes_written) == (64 * 128, 64 * 4)
    joined = old("aten::cat", 0, 10, None, None), old("aten::narrow", 2, 1, [96, 8], None, None, None)
    joined[0]["args"]["Input type"][0] = "TensorList"
    row = rows(*joined)["aten::cat"]
    assert (row.count.work.bytes_read, row.count.work.bytes_written) == (96 * 8 * 4, 96 * 8 * 4)
    assert row.inferred == "output from aten::narrow inside it"


def test_the_gradient_of_a_broadcast_operand_has_its_shape():
    forward = old("aten::addmm", 0, 5, [100], [32, 64], [64, 100], None, None, seq=7)
    backward = node("AddmmBackward0", 10, 20, [32, 100], seq=7), old("aten::sum", 20, 5, [32, 100], None, None, None, tid=2)
    row = rows(forward, *backward)["aten::sum"]
    assert (row.count.work.bytes_written, row.inferred) == (100 * 4, "output from the operand of aten::addmm")
    both = old("aten::mul", 0, 5, [32, 1], [1, 100], seq=7), node("MulBackward0", 10, 20, [32, 100], seq=7), backward[1]
    assert reasons(*both)["aten::sum"] == "argument 'dim' not recorded"


def test_the_gradient_of_a_split_joins_what_its_node_is_given():
    joined = old("aten::cat", 12, 5, None, None, tid=2)
    joined["args"]["Input type"][0] = "TensorList"
    row = rows(node("SplitBackward0", 10, 10, [32, 8], [32, 24], seq=3), joined)["aten::cat"]
    assert (row.count.work.bytes_written, row.inferred) == (32 * 32 * 4, "its list from the node around it")


# --- arguments -----------------------------------------------------------------------------------------------------------------------


def norm(ts, name="aten::cudnn_batch_norm", **more):
    return old(name, ts, 5, MAPS, [32], [32], [32], [32], None, None, None, **more)


def normed(training):
    """The work of the call with its mode."""
    return count(Signature("aten::cudnn_batch_norm", (TensorArg(tuple(MAPS)), *(TensorArg((32,)),) * 4, training))).work


def test_a_norm_is_in_training_when_its_module_counts_batches_or_its_backward_says_so():
    training, inference = normed(True), normed(False)
    assert training != inference
    counter = old("aten::add_", 0, 1, [], None, dtype="long int")
    assert rows(counter, norm(5))["aten::cudnn_batch_norm"].count.work == training
    backward = node("CudnnBatchNormBackward0", 20, 9, MAPS, seq=4)
    inside = old("aten::cudnn_batch_norm_backward", 22, 5, MAPS, MAPS, [32], [32], [32], [32], [32], None, tid=2)
    assert rows(norm(5, seq=4), backward, inside)["aten::cudnn_batch_norm"].count.work == training
    frozen = old("aten::native_batch_norm_backward", 22, 5, MAPS, MAPS, [32], [32], [32], [32], [32], None, None, None, tid=2)
    assert rows(norm(5, seq=4), backward, frozen)["aten::cudnn_batch_norm"].count.work == inference
    assert "aten::cudnn_batch_norm" in reasons(norm(5, seq=4), backward)


def test_without_any_backward_and_without_a_count_of_batches_a_norm_is_in_inference():
    row = rows(norm(5))["aten::cudnn_batch_norm"]
    assert row.count.work == normed(False)
    assert row.inferred.startswith("inference")
    without_statistics = old("aten::cudnn_batch_norm", 5, 5, MAPS, [32], [32], None, None, None, None, None)
    assert "aten::cudnn_batch_norm" in reasons(without_statistics)


def test_the_operator_around_a_gradient_has_the_tensor_whose_size_it_lacks():
    around = old("aten::cudnn_convolution_backward", 0, 20, IMAGES, MAPS, FILTERS, *(None,) * 8)
    of_input = old("aten::cudnn_convolution_backward_input", 2, 5, None, MAPS, FILTERS, *(None,) * 7)
    of_weight = old("aten::cudnn_convolution_backward_weight", 10, 5, None, MAPS, IMAGES, *(None,) * 7)
    found = rows(around, of_input, of_weight)
    images, maps, filters = 4 * 8 * 16 * 28 * 28, 4 * 8 * 32 * 14 * 14, 4 * 32 * 16 * 9
    for name, read, made in (("input", maps + filters, images), ("weight", maps + images, filters)):
        work = found[f"aten::cudnn_convolution_backward_{name}"].count.work
        assert (work.matrix_flops, work.bytes_read, work.bytes_written) == (FLOPS, read, made)
    other = old("aten::cudnn_convolution_backward", 0, 20, IMAGES, [8, 32, 28, 28], FILTERS, *(None,) * 8)
    assert "aten::cudnn_convolution_backward_input" in reasons(other, of_input)


def test_the_gradient_of_a_selection_adds():
    selected = old("aten::index", 0, 5, [16, 27, 27], None, seq=9)
    put = old("aten::_index_put_impl_", 12, 5, [16, 27, 27], None, [16, 351], None, None, tid=2)
    found = rows(selected, node("IndexBackward0", 10, 10, [16, 351], seq=9), put)
    assert found["aten::_index_put_impl_"].count.work.other_flops == 16 * 351
    assert found["aten::index"].count.work.bytes_written == 16 * 351 * 4
    assert reasons(put)["aten::_index_put_impl_"] == "argument 'accumulate' not recorded"


def test_the_forward_has_the_size_that_a_gradient_of_a_view_lacks():
    forward = old("aten::slice", 0, 5, [64, 100], None, None, None, None, seq=2)
    backward = node("SliceBackward0", 10, 9, [16, 100], seq=2), old("aten::slice_backward", 12, 5, [16, 100], *(None,) * 5, tid=2)
    assert rows(forward, *backward)["aten::slice_backward"].count.work.bytes_written == 64 * 100 * 4
    table = old("aten::embedding", 0, 5, [5000, 64], [8, 10], None, None, None, seq=2)
    indices = old("aten::embedding_dense_backward", 12, 5, [8, 10, 64], [8, 10], None, None, None, tid=2)
    work = rows(table, node("EmbeddingBackward0", 10, 9, [8, 10, 64], seq=2), indices)["aten::embedding_dense_backward"].count.work
    assert work.bytes_written == 5000 * 64 * 4


def test_what_a_call_recorded_itself_is_never_replaced():
    """A window of one element at every second place: the recorded stride tells that a quarter of the input is read."""
    recorded = op(
        "aten::cudnn_convolution", 0, 5, dims=[IMAGES, [32, 16, 1, 1], [], [], [], []],
        types=["float", "float", "ScalarList", "ScalarList", "ScalarList", "Scalar"],
        concrete=["", "", "[0, 0]", "[4, 4]", "[1, 1]", "1"], seq=5,
    )  # fmt: skip
    row = rows(recorded, node("CudnnConvolutionBackward0", 20, 5, MAPS, seq=5))["aten::cudnn_convolution"]
    assert row.inferred is None
    assert row.count.work.matrix_flops == 2 * 8 * 32 * 7 * 7 * 16
