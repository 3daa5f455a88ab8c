"""Recurrent networks that run as one operator: LSTM, GRU and plain RNN of cuDNN, MIOpen, oneDNN and Metal, and their fused cells.

Every time step multiplies its input and its hidden state with the weights of each gate, whether the first hidden state is zero or
not. ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` themselves are decomposed: on a CPU an LSTM without projections is a ``mkldnn_rnn_layer``
for each layer and direction, the others are their linear layers and cells. What a library keeps for its backward in a format of its
own (``reserve``, ``workspace``) has a size that only it knows, and is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, every, size, size_of, written
from rooflines.roofline.formulas.costs import (
    GRU_CELL,
    GRU_CELL_BACKWARD,
    LSTM_CELL,
    LSTM_CELL_BACKWARD,
    QUANTIZE,
    RNN_CELL,
    RNN_CELL_BACKWARD,
)
from rooflines.roofline.formulas.low_precision import packed
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.registry import formula


@dataclass(frozen=True, slots=True)
class Cell:
    """A kind of network: its gates, FLOPs of one hidden unit without biases, and the sums that its bias gradients are."""

    gates: int
    forward: int
    backward: int
    bias_sums: int

    @property
    def has_cell_state(self) -> bool:
        """Whether a second state runs along the hidden one."""
        return self.gates == 4


RELU: Final = Cell(1, 2, 2, 1)
TANH: Final = Cell(1, RNN_CELL, RNN_CELL_BACKWARD, 1)
LSTM: Final = Cell(4, LSTM_CELL, LSTM_CELL_BACKWARD, 4)
GRU: Final = Cell(3, GRU_CELL, GRU_CELL_BACKWARD, 4)  # the two biases of the candidate have different gradients
MODES: Final = (RELU, TANH, LSTM, GRU)  # as the backends number them


@dataclass(frozen=True, slots=True)
class Network:
    """The sizes of one network. ``tokens`` is steps * batch, or their number where sequences are packed.

    ``outputs`` is the size of the hidden state: ``hidden``, or what it is projected to.
    """

    cell: Cell
    tokens: int
    batch: int
    inputs: int
    hidden: int
    outputs: int
    layers: int
    directions: int
    biases: bool

    def layer_inputs(self) -> list[int]:
        """The input of each layer's steps: for the first layer the input, for others both directions of the layer below."""
        return [self.inputs] + [self.outputs * self.directions for _ in every(self.layers - 1)]

    @property
    def projected(self) -> bool:
        """Whether the hidden state is multiplied once more, with [outputs, hidden]."""
        return self.outputs != self.hidden

    @property
    def flops(self) -> int:
        """One product for each weight: [tokens, in] @ [in, gates * hidden], [tokens, out] @ [out, gates * hidden], the projection."""
        width = self.cell.gates * self.hidden
        total = 0
        for inputs in self.layer_inputs():
            total += product_flops(1, self.tokens, inputs, width) + product_flops(1, self.tokens, self.outputs, width)
            if self.projected:
                total += product_flops(1, self.tokens, self.hidden, self.outputs)
        return total * self.directions

    @property
    def input_gradient_flops(self) -> int:
        """[tokens, gates * hidden] @ [gates * hidden, in] of the first layer: of the input itself."""
        return self.directions * product_flops(1, self.tokens, self.cell.gates * self.hidden, self.inputs)

    @property
    def units(self) -> int:
        """Hidden units, over all steps, layers and directions."""
        return self.tokens * self.hidden * self.layers * self.directions

    @property
    def weights(self) -> int:
        """Elements of all weight matrices."""
        width = self.cell.gates * self.hidden
        each = sum(width * (inputs + self.outputs) + self.projected * self.outputs * self.hidden for inputs in self.layer_inputs())
        return each * self.directions

    @property
    def bias_elements(self) -> int:
        """Elements of both biases of every layer and direction."""
        return 2 * self.cell.gates * self.hidden * self.layers * self.directions * self.biases

    @property
    def results(self) -> int:
        """Elements of the output: the last layer's hidden states, both directions."""
        return self.tokens * self.outputs * self.directions

    @property
    def states(self) -> int:
        """Elements of the hidden states, and the cell states, before the first or after the last step."""
        return self.batch * self.layers * self.directions * (self.outputs + self.hidden * self.cell.has_cell_state)

    @property
    def forward_other_flops(self) -> int:
        """The gates, and two biases for each."""
        return self.units * (self.cell.forward + 2 * self.cell.gates * self.biases)

    def backward_other_flops(self, of_weights: bool) -> int:
        """The gates' gradients, and the sums over all steps that are the biases' gradients."""
        return self.units * (self.cell.backward + self.cell.bias_sums * self.biases * of_weights)


def _forward(network: Network, dtype: str) -> Work:
    itemsize = size_of(dtype)
    return Work(
        matrix_flops=network.flops,
        other_flops=network.forward_other_flops,
        bytes_read=itemsize * (network.tokens * network.inputs + network.states + network.weights + network.bias_elements),
        bytes_written=itemsize * (network.results + network.states),
        precision=matrix_precision_of(dtype),
    )


def _backward(network: Network, dtype: str, mask: tuple[bool, ...], gradients: tuple[TensorArg | None, ...]) -> Work:
    """The gradient of every step's gates, through its hidden state to the step before: the forward's products again, less that of the
    input where it is not asked for. Those of the weights are as many once more."""
    of_input, of_hidden, of_cell, of_weights = mask
    asked = of_input or of_hidden or of_cell or of_weights
    itemsize = size_of(dtype)
    inputs = network.tokens * network.inputs
    hidden = network.batch * network.layers * network.directions * network.outputs
    through = network.flops - (0 if of_input else network.input_gradient_flops)
    return Work(
        matrix_flops=through * asked + network.flops * of_weights,
        other_flops=network.backward_other_flops(of_weights) * asked,
        # the input is needed for the first layer's weights alone, the output and the states for all
        bytes_read=(itemsize * (inputs * of_weights + network.weights + network.states + network.results) + size(*gradients)) * asked,
        bytes_written=itemsize
        * (
            inputs * of_input
            + hidden * of_hidden
            + (network.states - hidden) * of_cell
            + (network.weights + network.bias_elements) * of_weights
        ),
        precision=matrix_precision_of(dtype),
    )


# --- whole networks ----------------------------------------------------------------------------------------------------------------


def _cell(args: Arguments) -> Cell:
    mode = args.integer("mode")
    if not 0 <= mode < len(MODES):
        raise NotCounted(f"unknown mode {mode}")
    return MODES[mode]


_CUDNN: Final = "hidden_size proj_size layers batch_first dropout train bidirectional batch_sizes dropout_state"
_MIOPEN: Final = "hidden_size layers batch_first dropout train bidirectional batch_sizes dropout_state"


def _network(args: Arguments) -> Network:
    """The network that the arguments of cuDNN and MIOpen describe.

    The input is [t, b, in] or [b, t, in], or [tokens, in] where sequences are packed; the hidden state [layers * directions, b, out].
    With biases a layer has four weights in each direction, or five if projected.
    """
    inputs, hidden = args.tensor("self"), args.integer("hidden_size")
    return Network(
        cell=_cell(args),
        tokens=prod(inputs.shape[:-1]),
        batch=args.tensor("hx").shape[-2],
        inputs=inputs.shape[-1],
        hidden=hidden,
        outputs=args.integer("proj_size", absent=0) or hidden,
        layers=args.integer("layers"),
        directions=1 + args.flag("bidirectional"),
        biases=args.integer("weights_a_layer") >= 4,
    )


@formula("aten::_cudnn_rnn", "aten::miopen_rnn", category="matmul")
def _library(signature: Signature) -> Work:
    sizes = f"buffer hx cx mode {_CUDNN}" if signature.name == "aten::_cudnn_rnn" else f"hx cx mode {_MIOPEN}"
    args = Arguments(signature, f"self weight weights_a_layer {sizes}")
    return _forward(_network(args), args.tensor("self").dtype)


@formula("aten::_cudnn_rnn_backward", "aten::miopen_rnn_backward", category="matmul")
def _library_backward(signature: Signature) -> Work:
    sizes = _CUDNN if signature.name == "aten::_cudnn_rnn_backward" else _MIOPEN
    given = "self weight weights_a_layer buffer hx cx output grad_output grad_hy grad_cy mode"
    args = Arguments(signature, f"{given} {sizes} reserve output_mask")
    gradients = tuple(args.optional(name) for name in ("grad_output", "grad_hy", "grad_cy"))
    return _backward(_network(args), args.tensor("self").dtype, args.mask("output_mask", 4), gradients)


@formula("aten::_cudnn_rnn_flatten_weight", category="copy")
def _flatten_weight(signature: Signature) -> Work:
    """All weights into one buffer."""
    weights = Arguments(signature, "weights").tensors("weights")
    if not weights:
        raise NotCounted("shapes of 'weights' not recorded")
    return Work(bytes_read=size(*weights), bytes_written=written(*weights))


def _onednn_layer(args: Arguments) -> Network:
    """One layer in one direction: [t, b, in], states [b, hidden], weights [gates * hidden, in] and [gates * hidden, hidden]."""
    inputs, hidden = args.tensor("self"), args.integer("hidden_size")
    tokens, batch = prod(inputs.shape[:-1]), args.tensor("hx").shape[-2]
    return Network(_cell(args), tokens, batch, inputs.shape[-1], hidden, hidden, 1, 1, args.flag("has_biases"))


@formula("aten::mkldnn_rnn_layer", category="matmul")
def _onednn(signature: Signature) -> Work:
    args = Arguments(
        signature,
        "self weight_ih weight_hh bias_ih bias_hh hx cx reverse batch_sizes mode hidden_size layers has_biases bidirectional"
        " batch_first train",
    )
    return _forward(_onednn_layer(args), args.tensor("self").dtype)


@formula("aten::mkldnn_rnn_layer_backward", category="matmul")
def _onednn_backward(signature: Signature) -> Work:
    """It computes every gradient, requested or not, and also needs the last state of the cell."""
    args = Arguments(
        signature,
        "self weight_ih weight_hh bias_ih bias_hh hx cx output hy cy grad_output grad_hy grad_cy reverse mode hidden_size layers"
        " has_biases train bidirectional batch_sizes batch_first",
    )
    gradients = tuple(args.optional(name) for name in ("grad_output", "grad_hy", "grad_cy"))
    return _backward(_onednn_layer(args), args.tensor("self").dtype, (True,) * 4, (*gradients, args.optional("cy")))


_METAL: Final = "hx params has_biases layers dropout train bidirectional batch_first"


def _metal_network(args: Arguments, cell: Cell = LSTM) -> Network:
    """Hidden states [layers * directions, b, hidden] give the sizes; an LSTM has a list of two."""
    state = (*args.tensors("hx"), args.optional("hx"))[0]
    if state is None:
        raise NotCounted("shape of 'hx' not recorded")
    inputs, (_, batch, hidden) = args.tensor("self"), state.shape
    return Network(
        cell=cell,
        tokens=prod(inputs.shape[:-1]),
        batch=batch,
        inputs=inputs.shape[-1],
        hidden=hidden,
        outputs=hidden,
        layers=args.integer("layers"),
        directions=1 + args.flag("bidirectional"),
        biases=args.flag("has_biases"),
    )


@formula("aten::_lstm_mps", category="matmul")
def _metal(signature: Signature) -> Work:
    args = Arguments(signature, f"self {_METAL}")
    return _forward(_metal_network(args), args.tensor("self").dtype)


@formula("aten::lstm_mps_backward", category="matmul")
def _metal_backward(signature: Signature) -> Work:
    args = Arguments(signature, f"grad_output grad_hy grad_cy gates cells self layers_output {_METAL}")
    gradients = tuple(args.optional(name) for name in ("grad_output", "grad_hy", "grad_cy"))
    return _backward(_metal_network(args), args.tensor("self").dtype, (True,) * 4, gradients)


# --- quantized networks --------------------------------------------------------------------------------------------------------------


@formula("aten::quantized_lstm", "aten::quantized_gru", category="matmul")
def _quantized(signature: Signature) -> Work:
    """Weights of 8 bits, or of 16; with 8 the input and the hidden state of each step become int8.

    The weights are packed, but the sizes follow from the states. Packed sequences come with the batch of each step as a tensor.
    """
    lstm = signature.name.endswith("lstm")
    in_steps = isinstance(signature.arg(1), TensorArg) and signature.args[1].dtype == "int64"
    fields = "params has_biases layers dropout train bidirectional" + ("" if in_steps else " batch_first")
    args = Arguments(signature, f"self {'batch_sizes ' if in_steps else ''}hx {fields} dtype=None")
    network = _metal_network(args, LSTM if lstm else GRU)
    narrow = _packed_dtype(args, lstm)
    inputs = args.tensor("self")
    steps = network.directions * network.tokens * sum(extent + network.outputs for extent in network.layer_inputs())
    itemsize = size_of(inputs.dtype)
    return Work(
        matrix_flops=network.flops,
        other_flops=network.forward_other_flops + (steps * (QUANTIZE + 2) if narrow == "qint8" else 0),
        bytes_read=(
            itemsize * (inputs.numel + network.states) + network.weights * size_of(narrow) + 4 * network.bias_elements
        ),
        bytes_written=itemsize * (network.results + network.states),
        precision="int8" if narrow == "qint8" else precision_of(inputs.dtype),
    )  # fmt: skip


def _packed_dtype(args: Arguments, lstm: bool) -> str:
    """That of the weights: an argument of the LSTM, unknown of a GRU."""
    dtype = args.dtype("dtype", "") if lstm else ""
    if dtype not in ("qint8", "float16"):
        raise NotCounted("dtype of packed weights not recorded")
    return dtype


_CELLS: Final = {
    "quantized::quantized_lstm_cell_dynamic": LSTM, "quantized::quantized_gru_cell_dynamic": GRU,
    "quantized::quantized_rnn_relu_cell_dynamic": RELU, "quantized::quantized_rnn_tanh_cell_dynamic": TANH,
}  # fmt: skip


@formula(*_CELLS, category="matmul")
def _quantized_cell(signature: Signature) -> Work:
    """One step: [b, in] and [b, hidden] become int8, two products."""
    args = Arguments(signature, "self hx weight_ih weight_hh bias_ih bias_hh")
    cell = _CELLS[signature.name]
    inputs, states = args.tensor("self"), args.tensors("hx") or (args.tensor("hx"),)
    (weight_ih, bias_ih), (weight_hh, bias_hh) = packed(args, "weight_ih"), packed(args, "weight_hh")
    batch, hidden = states[0].shape
    network = Network(cell, batch, batch, inputs.shape[-1], hidden, hidden, 1, 1, bias_ih is not None)
    if weight_ih.dtype not in ("qint8", "int8"):
        raise NotCounted("dtype of packed weights not recorded")  # 16-bit ones are shown as 32
    return Work(
        matrix_flops=network.flops,
        other_flops=network.forward_other_flops + (inputs.numel + states[0].numel) * (QUANTIZE + 2),
        bytes_read=size(inputs, *states, weight_ih, weight_hh, bias_ih, bias_hh),
        bytes_written=written(*states),
        precision="int8",
    )


# --- fused cells: the gates, after their products ------------------------------------------------------------------------------------


def _cell_work(flops: int, dtype: str, read: int, elements: int) -> Work:
    return Work(other_flops=flops, bytes_read=read, bytes_written=elements * size_of(dtype), precision=precision_of(dtype))


@formula("aten::_thnn_fused_lstm_cell", category="element-wise")
def _lstm_cell(signature: Signature) -> Work:
    """Two products [b, 4h] and the cell [b, h] -> hidden, cell, and the gates [b, 4h] for the backward."""
    args = Arguments(signature, "input_gates hidden_gates cx bias_ih=None bias_hh=None")
    gates, hidden, cell = args.tensor("input_gates"), args.tensor("hidden_gates"), args.tensor("cx")
    biases = [args.optional("bias_ih"), args.optional("bias_hh")]
    flops = cell.numel * LSTM_CELL + gates.numel * sum(bias is not None for bias in biases)
    return _cell_work(flops, cell.dtype, size(gates, hidden, cell, *biases), 2 * cell.numel + gates.numel)


@formula("aten::_thnn_fused_lstm_cell_backward_impl", category="element-wise")
def _lstm_cell_backward(signature: Signature) -> Work:
    """Gradients of the gates [b, 4h] and the cell, and with biases their sum over the batch [4h]."""
    args = Arguments(signature, "grad_hy grad_cy cx cy gates has_bias")
    cell, gates, bias = args.tensor("cx"), args.tensor("gates"), args.flag("has_bias")
    read = size(args.optional("grad_hy"), args.optional("grad_cy"), cell, args.tensor("cy"), gates)
    flops = cell.numel * LSTM_CELL_BACKWARD + gates.numel * bias
    return _cell_work(flops, cell.dtype, read, gates.numel + cell.numel + gates.shape[-1] * bias)


@formula("aten::_thnn_fused_gru_cell", category="element-wise")
def _gru_cell(signature: Signature) -> Work:
    """Two products [b, 3h] and the hidden state [b, h] -> hidden state, and what the backward needs [b, 5h]."""
    args = Arguments(signature, "input_gates hidden_gates hx bias_ih=None bias_hh=None")
    gates, hidden, state = args.tensor("input_gates"), args.tensor("hidden_gates"), args.tensor("hx")
    biases = [args.optional("bias_ih"), args.optional("bias_hh")]
    flops = state.numel * GRU_CELL + gates.numel * sum(bias is not None for bias in biases)
    return _cell_work(flops, state.dtype, size(gates, hidden, state, *biases), 6 * state.numel)


@formula("aten::_thnn_fused_gru_cell_backward", category="element-wise")
def _gru_cell_backward(signature: Signature) -> Work:
    """Gradients of both products [b, 3h] and the hidden state, and with biases the sums over the batch, [3h] each."""
    args = Arguments(signature, "grad_hy workspace has_bias")
    grad, workspace, bias = args.tensor("grad_hy"), args.tensor("workspace"), args.flag("has_bias")
    hidden = grad.shape[-1]
    flops = grad.numel * (GRU_CELL_BACKWARD + GRU.bias_sums * bias)
    return _cell_work(flops, grad.dtype, size(grad, workspace), 7 * grad.numel + 6 * hidden * bias)


@formula("mkldnn::_reorder_mkldnn_rnn_layer_weight", category="copy")
def _reordered(signature: Signature) -> Work:
    args = Arguments(signature, "weight_ih weight_hh")
    weights = (args.tensor("weight_ih"), args.tensor("weight_hh"))
    return Work(bytes_read=size(*weights), bytes_written=written(*weights))
