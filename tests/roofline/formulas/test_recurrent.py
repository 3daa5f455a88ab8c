"""Recurrent networks: every weight meets every token, forward and backward, whichever operators PyTorch runs them as."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence

import rooflines
from rooflines.profiler.calls.signatures import call_signature, tensor_arg
from rooflines.profiler.read.signature import Signature
from rooflines.roofline.count.formulas import Work, count
from rooflines.roofline.count.formulas.costs import GRU_CELL, GRU_CELL_BACKWARD, LSTM_CELL, LSTM_CELL_BACKWARD, QUANTIZE, RNN_CELL
from tests.roofline.formulas.by_hand import tensor, work
from tests.roofline.formulas.helpers import meta, nbytes, work_of_trace

pytestmark = [
    # projections have no oneDNN kernel, and torch says so
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning"),
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor, torch.quantize_per_channel and other:UserWarning"),
    pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk:UserWarning"),
]
aten = torch.ops.aten


def products(network, batch_of_step):
    """FLOPs of one pass, step by step: in each the weights of every layer and direction meet the sequences that are still running."""
    total = 0
    for running in batch_of_step:
        for name, weight in network.named_parameters():
            if "weight" in name:
                total += 2 * running * weight.shape[0] * weight.shape[1]
    return total


# --- what PyTorch runs on a CPU ----------------------------------------------------------------------------------------------------

networks = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["LSTM", "GRU", "RNN"]), "steps": st.integers(1, 4), "batch": st.integers(1, 3),
        "inputs": st.integers(1, 5), "hidden": st.integers(2, 5), "layers": st.integers(1, 2), "bidirectional": st.booleans(),
        "bias": st.booleans(), "projected": st.booleans(),
    }
)  # fmt: skip


def build(drawn):
    extra = {"proj_size": 1} if drawn["projected"] and drawn["kind"] == "LSTM" else {}
    return getattr(torch.nn, drawn["kind"])(
        drawn["inputs"], drawn["hidden"], drawn["layers"], bias=drawn["bias"], bidirectional=drawn["bidirectional"], **extra
    )


@settings(deadline=None, max_examples=12)
@given(networks)
def test_forward_and_backward_closed_form(drawn):
    network = build(drawn)
    inputs = torch.rand(drawn["steps"], drawn["batch"], drawn["inputs"], requires_grad=True)
    directions = drawn["layers"] * (1 + drawn["bidirectional"])
    outputs = 1 if drawn["projected"] and drawn["kind"] == "LSTM" else drawn["hidden"]
    state = torch.rand(directions, drawn["batch"], outputs, requires_grad=True)
    states = (state, torch.rand(directions, drawn["batch"], drawn["hidden"], requires_grad=True)) if drawn["kind"] == "LSTM" else state
    forward = products(network, [drawn["batch"]] * drawn["steps"])
    with torch.no_grad():
        assert rooflines.count(network.eval(), inputs, states).matrix_flops == forward
    # a product for the gradient of everything that a weight met, one for that of the weight
    assert rooflines.count(network.train(), inputs, states, backward=True).matrix_flops == 3 * forward


@settings(deadline=None, max_examples=10)
@given(st.sampled_from(["LSTM", "GRU", "RNN"]), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_packed_sequences_are_counted_as_long_as_they_are(kind, lengths):
    network, lengths = getattr(torch.nn, kind)(3, 4), sorted(lengths, reverse=True)
    packed = pack_padded_sequence(torch.rand(lengths[0], len(lengths), 3), lengths)
    running = [sum(length > step for length in lengths) for step in range(lengths[0])]
    with torch.no_grad():
        assert rooflines.count(lambda: network(packed)).matrix_flops == products(network, running)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_traces_and_recordings_agree(kind, tmp_path):
    network, inputs = getattr(torch.nn, kind)(6, 8, 2, bidirectional=True), torch.rand(5, 3, 6, requires_grad=True)
    with torch.no_grad():
        inference, recorded = work_of_trace(lambda: network(inputs), tmp_path), rooflines.count(network, inputs)
    assert (inference.matrix_flops, inference.flops, inference.bytes) == (recorded.matrix_flops, recorded.flops, recorded.bytes)
    training = work_of_trace(lambda: network(inputs)[0].sum().backward(), tmp_path)
    assert training.matrix_flops == rooflines.count(lambda: network(inputs)[0], backward=True).matrix_flops


def test_bytes_of_a_onednn_layer():
    inputs, state = torch.rand(5, 3, 8), torch.rand(3, 16)
    weights = [torch.rand(64, 8), torch.rand(64, 16), torch.rand(64), torch.rand(64)]
    args = (inputs, *weights, state, state, False, [], 2, 16, 1, True, False, False, True)
    found = count(call_signature(aten.mkldnn_rnn_layer.default, args, {})).work
    output, hy, cy, workspace = aten.mkldnn_rnn_layer.default(*args)
    assert (found.matrix_flops, found.other_flops) == (2 * 15 * 64 * (8 + 16), 15 * 16 * (LSTM_CELL + 2 * 4))
    assert found.bytes_read == nbytes(inputs, *weights, state, state)
    assert found.bytes_written == nbytes(output, hy, cy)  # the workspace is the library's own
    grads = (output, output, hy, cy)
    tail = (False, 2, 16, 1, True, True, False, [], False, workspace)
    args = (inputs, *weights, state, state, output, hy, cy, grads[1], None, None, *tail)
    backward = count(call_signature(aten.mkldnn_rnn_layer_backward.default, args, {})).work
    results = aten.mkldnn_rnn_layer_backward.default(*args)
    assert (backward.matrix_flops, backward.other_flops) == (2 * found.matrix_flops, 15 * 16 * (LSTM_CELL_BACKWARD + 4))
    assert backward.bytes_read == nbytes(inputs, *weights[:2], state, state, output, cy, grads[1])
    assert backward.bytes_written == nbytes(*results)


# --- the networks of other devices -------------------------------------------------------------------------------------------------

CELLS = {0: (1, 2), 1: (1, RNN_CELL), 2: (4, LSTM_CELL), 3: (3, GRU_CELL)}  # mode: gates, FLOPs a hidden unit


@st.composite
def described(draw):
    """A network as cuDNN is told of it."""
    mode = draw(st.sampled_from([0, 1, 2, 3]))
    return {
        "mode": mode, "steps": draw(st.integers(1, 4)), "batch": draw(st.integers(1, 4)), "inputs": draw(st.integers(1, 5)),
        "hidden": draw(st.integers(2, 6)), "projection": draw(st.integers(0, 1)) if mode == 2 else 0,
        "layers": draw(st.integers(1, 3)), "directions": draw(st.integers(1, 2)), "bias": draw(st.booleans()),
        "batch_first": draw(st.booleans()), "packed": draw(st.booleans()),
    }  # fmt: skip


def cudnn(net):
    """Arguments of ``_cudnn_rnn``, its weights, and FLOPs and hidden units counted weight by weight."""
    gates, out, both = CELLS[net["mode"]][0], net["projection"] or net["hidden"], net["layers"] * net["directions"]
    weights, flops = [], 0
    tokens = net["steps"] * net["batch"]
    for layer in range(net["layers"]):
        for _ in range(net["directions"]):
            inputs = net["inputs"] if layer == 0 else out * net["directions"]
            matrices = [meta(gates * net["hidden"], inputs), meta(gates * net["hidden"], out)]
            biases = [meta(gates * net["hidden"])] * (2 * net["bias"])
            projection = [meta(out, net["hidden"])] * bool(net["projection"])
            weights += [*matrices, *biases, *projection]
            flops += sum(2 * tokens * weight.numel() for weight in (*matrices, *projection))
    if net["packed"]:
        inputs, sizes = meta(tokens, net["inputs"]), [net["batch"]] * net["steps"]
    else:
        shape = (net["batch"], net["steps"]) if net["batch_first"] else (net["steps"], net["batch"])
        inputs, sizes = meta(*shape, net["inputs"]), []
    hx = meta(both, net["batch"], out)
    cx = meta(both, net["batch"], net["hidden"]) if net["mode"] == 2 else None
    stride = len(weights) // both
    buffer = meta(sum(weight.numel() for weight in weights))
    before = (inputs, weights, stride, buffer, hx, cx)
    sizes_of = (net["hidden"], net["projection"], net["layers"], net["batch_first"], 0.0, True, net["directions"] == 2, sizes, None)
    return before, sizes_of, flops, tokens * net["hidden"] * both


@settings(deadline=None, max_examples=30)
@given(described())
def test_cudnn_forward(net):
    (inputs, weights, stride, buffer, hx, cx), sizes, flops, units = cudnn(net)
    args = (inputs, weights, stride, buffer, hx, cx, net["mode"], *sizes)
    found = count(call_signature(aten._cudnn_rnn.default, args, {})).work
    output, hy, cy, _, _ = aten._cudnn_rnn.default(*args)
    gates, cost = CELLS[net["mode"]]
    assert (found.matrix_flops, found.other_flops) == (flops, units * (cost + 2 * gates * net["bias"]))
    assert found.bytes_read == nbytes(inputs, *weights, hx, *([cx] if cx is not None else []))
    assert found.bytes_written == nbytes(output, hy, cy)


@settings(deadline=None, max_examples=30)
@given(described(), st.tuples(*[st.booleans()] * 4))
def test_cudnn_backward(net, mask):
    (inputs, weights, stride, buffer, hx, cx), sizes, flops, _ = cudnn(net)
    output = aten._cudnn_rnn.default(inputs, weights, stride, buffer, hx, cx, net["mode"], *sizes)[0]
    args = (
        inputs,
        weights,
        stride,
        buffer,
        hx,
        cx,
        output,
        output,
        None,
        None,
        net["mode"],
        *sizes,
        meta(0, dtype=torch.uint8),
        list(mask),
    )
    found = count(call_signature(aten._cudnn_rnn_backward.default, args, {})).work
    of_input, of_hidden, of_cell, of_weights = mask
    first = sum(2 * (inputs.numel() // inputs.shape[-1]) * weight.numel() for weight in weights[: net["directions"] * stride : stride])
    through = flops - first * (not of_input)
    assert found.matrix_flops == through * any(mask) + flops * of_weights
    states = [cx] if cx is not None else []
    assert found.bytes_written == (
        nbytes(inputs) * of_input + nbytes(hx) * of_hidden + nbytes(*states) * of_cell + nbytes(*weights) * of_weights
    )
    matrices = [weight for weight in weights if weight.dim() == 2]
    assert found.bytes_read == any(mask) * (nbytes(inputs) * of_weights + nbytes(*matrices, hx, *states) + 2 * nbytes(output))


@settings(max_examples=30)
@given(described())
def test_miopen_is_the_same_network_without_projections(net):
    net = net | {"projection": 0}
    (inputs, weights, stride, buffer, hx, cx), sizes, flops, _ = cudnn(net)
    without = (sizes[0], *sizes[2:])
    forward = count(call_signature(aten.miopen_rnn.default, (inputs, weights, stride, hx, cx, net["mode"], *without), {})).work
    assert (
        forward
        == count(call_signature(aten._cudnn_rnn.default, (inputs, weights, stride, buffer, hx, cx, net["mode"], *sizes), {})).work
    )
    tail = (meta(0, dtype=torch.uint8), [True] * 4)
    given_to = (inputs, weights, stride, buffer, hx, cx, inputs, inputs, None, None, net["mode"])
    backward = count(call_signature(aten.miopen_rnn_backward.default, (*given_to, *without, *tail), {})).work
    assert backward.matrix_flops == 2 * forward.matrix_flops == 2 * flops


def test_a_list_of_weights_that_a_trace_left_out_is_not_needed():
    inputs, state = tensor(5, 3, 8), tensor(2, 3, 16)
    args = (inputs, (), 4, None, state, state, 2, 16, 0, 2, False, 0.0, False, False, (), None)
    assert work("aten::_cudnn_rnn", *args).matrix_flops == 2 * 15 * 64 * ((8 + 16) + (16 + 16))


def test_metal_lstm():
    inputs, state = tensor(5, 3, 8), tensor(4, 3, 16)
    tail = ((state, state), (), True, 2, 0.0, True, True, False)
    forward = work("aten::_lstm_mps", inputs, *tail)
    assert forward.matrix_flops == 2 * 15 * 64 * 2 * ((8 + 16) + (32 + 16))
    assert forward.bytes_written == 4 * (15 * 32 + 2 * 4 * 3 * 16)
    output = tensor(5, 3, 32)
    backward = work("aten::lstm_mps_backward", output, None, None, tensor(), tensor(), inputs, tensor(), *tail)
    assert backward.matrix_flops == 2 * forward.matrix_flops


# --- fused cells ---------------------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_the_fused_lstm_cell(batch, hidden, bias):
    gates, cell, vector = meta(batch, 4 * hidden), meta(batch, hidden), [meta(4 * hidden)] * (2 * bias)
    found = count(call_signature(aten._thnn_fused_lstm_cell.default, (gates, gates, cell, *vector), {})).work
    results = (cell, cell, gates)  # hidden state, cell state, and the gates for the backward
    assert not bias or [r.shape for r in aten._thnn_fused_lstm_cell.default(gates, gates, cell, *vector)] == [r.shape for r in results]
    assert found == Work(
        0, batch * hidden * (LSTM_CELL + 8 * bias), nbytes(gates, gates, cell, *vector), nbytes(*results), "fp32"
    )  # fmt: skip
    func, args = aten._thnn_fused_lstm_cell_backward_impl.default, (cell, None, cell, cell, gates, bias)
    backward, gradients = count(call_signature(func, args, {})).work, func(*args)
    assert backward.other_flops == batch * hidden * (LSTM_CELL_BACKWARD + 4 * bias)
    assert backward.bytes_read == nbytes(cell, cell, cell, gates)
    assert backward.bytes_written == nbytes(*(gradient for gradient in gradients if gradient is not None))


@given(st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_the_fused_gru_cell(batch, hidden, bias):
    gates, state, vector = meta(batch, 3 * hidden), meta(batch, hidden), [meta(3 * hidden)] * (2 * bias)
    found = count(call_signature(aten._thnn_fused_gru_cell.default, (gates, gates, state, *vector), {})).work
    elements = batch * hidden
    # the new state and what its backward needs: two gates, the candidate, the old state, the candidate's product
    assert found == Work(0, elements * (GRU_CELL + 6 * bias), nbytes(gates, gates, state, *vector), 4 * (1 + 5) * elements, "fp32")
    backward = count(call_signature(aten._thnn_fused_gru_cell_backward.default, (state, meta(batch, 5 * hidden), bias), {})).work
    assert (backward.other_flops, backward.bytes_read) == (elements * (GRU_CELL_BACKWARD + 4 * bias), 4 * 6 * elements)
    assert backward.bytes_written == 4 * ((3 + 3 + 1) * elements + 2 * 3 * hidden * bias)


# --- quantized -----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def engine():
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    yield
    torch.backends.quantized.engine = before


@pytest.mark.parametrize(("dtype", "itemsize", "precision"), [(torch.qint8, 1, "int8"), (torch.float16, 2, "fp32")])
def test_a_quantized_lstm_in_a_trace_and_in_a_recording(dtype, itemsize, precision, tmp_path):
    network = torch.nn.Sequential(torch.nn.LSTM(8, 16, 2, bidirectional=True))
    narrow, inputs = torch.ao.quantization.quantize_dynamic(network, {torch.nn.LSTM}, dtype=dtype), torch.rand(5, 3, 8)
    with torch.no_grad():
        recorded = rooflines.count(narrow, inputs)
        found = work_of_trace(lambda: narrow(inputs), tmp_path)
    truth = products(network, [3] * 5)
    assert recorded.matrix_flops == found.matrix_flops == truth
    assert found.precision == precision
    weights = sum(weight.numel() for name, weight in network.named_parameters() if "weight" in name)
    (row,) = [row for row in recorded.operators if row.name == "aten::quantized_lstm"]
    biases, states = 4 * (2 * 4 * 64), 4 * (2 * 4 * 3 * 16)  # two vectors of 4 gates, four times; two states
    assert row.bytes_read == 4 * 15 * 8 + states + itemsize * weights + biases
    units = 15 * 16 * 4 * (LSTM_CELL + 8)
    quantized = 15 * 2 * ((8 + 16) + (32 + 16)) * (QUANTIZE + 2) if precision == "int8" else 0
    assert row.flops == truth + units + quantized


def test_a_quantized_gru_does_not_say_how_wide_its_weights_are():
    outcome = count(Signature("aten::quantized_gru", (tensor(5, 3, 8), tensor(1, 3, 16), None, True, 1, 0.0, False, False, False)))
    assert outcome.reason == "dtype of packed weights not recorded"


@pytest.mark.parametrize(("name", "gates"), [("lstm", 4), ("gru", 3), ("rnn_tanh", 1)])
def test_a_quantized_cell(name, gates):
    def prepacked(columns):
        weight = torch.quantize_per_tensor(torch.rand(gates * 4, columns), 0.1, 0, torch.qint8)
        return torch.ops.quantized.linear_prepack(weight, torch.rand(gates * 4))

    inputs, state, bias = torch.rand(3, 5), torch.rand(3, 4), torch.rand(gates * 4)
    func = getattr(torch.ops.quantized, f"quantized_{name}_cell_dynamic").default
    args = (inputs, [state, state] if name == "lstm" else state, prepacked(5), prepacked(4), bias, bias)
    found = count(call_signature(func, args, {})).work
    results = func(*args)
    results = results if isinstance(results, tuple) else (results,)
    assert (found.matrix_flops, found.precision) == (2 * 3 * (gates * 4) * (5 + 4), "int8")
    assert found.bytes_read == nbytes(inputs) + len(results) * nbytes(state) + gates * 4 * (5 + 4) + 2 * nbytes(bias)
    assert found.bytes_written == nbytes(*results)
    assert tensor_arg(results[0]).shape == (3, 4)
