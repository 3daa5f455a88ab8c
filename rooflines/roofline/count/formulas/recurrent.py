"""Recurrent networks that run as one operator: LSTM, GRU and plain RNN of cuDNN, MIOpen, oneDNN and Metal,
and their fused cells.

Every time step multiplies its input and its hidden state with the weights of each gate, whether the first
hidden state is zero or not. ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` themselves are decomposed: on a CPU an
LSTM without projections is a ``mkldnn_rnn_layer`` for each layer and direction, the others are their linear
layers and cells. What a library keeps for its backward in a format of its own (``reserve``, ``workspace``)
has a size that only it knows, and is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas.arguments import (
    Arguments,
    NotCounted,
    known,
    size,
    size_of,
    written,
)
from rooflines.roofline.count.formulas.costs import (
    GRU_CELL,
    GRU_CELL_BACKWARD,
    LSTM_CELL,
    LSTM_CELL_BACKWARD,
    QUANTIZE,
    RNN_CELL,
    RNN_CELL_BACKWARD,
)
from rooflines.roofline.count.formulas.low_precision import opened
from rooflines.roofline.count.formulas.record import Work, matrix_precision_of, precision_of


@dataclass(frozen=True, slots=True)
class RecurrentCell:
    """A kind of network: its gates, FLOPs of one hidden unit without biases, and the sums that its bias
    gradients are."""

    gates: int
    forward: int
    backward: int
    bias_sums: int


RELU = RecurrentCell(1, 2, 2, 1)
TANH = RecurrentCell(1, RNN_CELL, RNN_CELL_BACKWARD, 1)
LSTM = RecurrentCell(4, LSTM_CELL, LSTM_CELL_BACKWARD, 4)
GRU = RecurrentCell(
    3, GRU_CELL, GRU_CELL_BACKWARD, 4
)  # the two biases of the candidate have different gradients
MODES = (RELU, TANH, LSTM, GRU)  # as the backends number them


@dataclass(frozen=True, slots=True)
class RecurrentNetwork:
    """The sizes of one network. ``tokens`` is steps * batch, or their number where sequences are packed.

    ``outputs`` is the size of the hidden state: ``hidden``, or what it is projected to. A weight multiplies
    every token once.
    """

    cell: RecurrentCell
    tokens: int
    batch: int
    inputs: int
    hidden: int
    outputs: int
    layers: int
    directions: int
    biases: bool

    @property
    def steps_in(self) -> int:
        """Numbers that enter all layers in one direction in a step: into the first the input, into the others
        both directions of the layer below."""
        return self.inputs + (self.layers - 1) * self.outputs * self.directions

    @property
    def weights(self) -> int:
        """Elements of all weight matrices: [gates * hidden, in], [gates * hidden, out], and a projection
        [out, hidden]."""
        gates = self.cell.gates * self.hidden * (self.steps_in + self.layers * self.outputs)
        projections = self.layers * self.outputs * self.hidden if self.outputs != self.hidden else 0
        return self.directions * (gates + projections)

    @property
    def flops(self) -> int:
        """The products with all weights."""
        return 2 * self.tokens * self.weights

    @property
    def units(self) -> int:
        """Hidden units, over all steps, layers and directions."""
        return self.tokens * self.hidden * self.layers * self.directions

    @property
    def bias_elements(self) -> int:
        """Elements of both biases of every layer and direction."""
        return 2 * self.cell.gates * self.hidden * self.layers * self.directions * self.biases

    @property
    def results(self) -> int:
        """Elements of the output: the last layer's hidden states, both directions."""
        return self.tokens * self.outputs * self.directions

    @property
    def hidden_states(self) -> int:
        """Elements of the hidden states before the first or after the last step."""
        return self.batch * self.layers * self.directions * self.outputs

    @property
    def cell_states(self) -> int:
        """Elements of the cell states before the first or after the last step, which only an LSTM has."""
        return self.batch * self.layers * self.directions * self.hidden * (self.cell is LSTM)

    @property
    def states(self) -> int:
        """Elements of all states."""
        return self.hidden_states + self.cell_states

    @property
    def forward_other_flops(self) -> int:
        """The gates, and two biases for each."""
        return self.units * (self.cell.forward + 2 * self.cell.gates * self.biases)


def _network(args: Arguments, cell: RecurrentCell) -> RecurrentNetwork:
    """The network that the arguments describe.

    The input is [t, b, in] or [b, t, in], or [tokens, in] where sequences are packed; the hidden state
    [layers * directions, b, out], and an LSTM may have a list of two. Where there is a list of weights, with
    biases a layer has four in each direction, or five if projected.
    """
    inputs = args.tensor("self")
    state = known((*args.tensors("hx"), args.optional("hx"))[0], "shape of 'hx' not recorded")
    if args.has("mode"):
        mode = args.integer("mode")
        if not 0 <= mode < len(MODES):
            raise NotCounted(f"unknown mode {mode}")
        cell = MODES[mode]
    hidden = args.integer("hidden_size", absent=state.shape[-1])
    return RecurrentNetwork(
        cell=cell,
        tokens=prod(inputs.shape[:-1]),
        batch=state.shape[-2],
        inputs=inputs.shape[-1],
        hidden=hidden,
        outputs=args.integer("proj_size", absent=0) or hidden,
        layers=args.integer("layers", absent=1),
        directions=1 + args.flag("bidirectional", absent=False),
        biases=args.integer("weights_a_layer") >= 4
        if args.has("weights_a_layer")
        else args.flag("has_biases"),
    )


# --- whole networks ---------------------------------------------------------------------------------------


def forward(signature: Signature, schema: str) -> Work:
    args = Arguments(signature, schema)
    network = _network(args, LSTM)
    dtype = args.tensor("self").dtype
    itemsize = size_of(dtype)
    return Work(
        matrix_flops=network.flops,
        other_flops=network.forward_other_flops,
        bytes_read=itemsize
        * (network.tokens * network.inputs + network.states + network.weights + network.bias_elements),
        bytes_written=itemsize * (network.results + network.states),
        precision=matrix_precision_of(dtype),
    )


def backward(signature: Signature, schema: str) -> Work:
    """The gradient of every step's gates, through its hidden state to the step before: the forward's products
    again, less that of the input where it is not asked for. Those of the weights are as many once more, and
    the biases' gradients are sums over all steps."""
    args = Arguments(signature, schema)
    network = _network(args, LSTM)
    dtype = args.tensor("self").dtype
    of_input, of_hidden, of_cell, of_weights = args.mask("output_mask", 4)
    gradients = args.optionals("grad_output", "grad_hy", "grad_cy", "cy")
    cell = network.cell
    inputs = network.tokens * network.inputs
    first_layer = 2 * inputs * network.directions * cell.gates * network.hidden
    # the input is needed for the first layer's weights alone, the output and the states for all
    read = inputs * of_weights + network.weights + network.states + network.results
    made = inputs * of_input + network.hidden_states * of_hidden + network.cell_states * of_cell
    asked = of_input or of_hidden or of_cell or of_weights
    return Work(
        matrix_flops=(network.flops - (0 if of_input else first_layer)) * asked + network.flops * of_weights,
        other_flops=network.units * (cell.backward + cell.bias_sums * network.biases * of_weights) * asked,
        bytes_read=(size_of(dtype) * read + size(*gradients)) * asked,
        bytes_written=size_of(dtype) * (made + (network.weights + network.bias_elements) * of_weights),
        precision=matrix_precision_of(dtype),
    )


# --- quantized networks -----------------------------------------------------------------------------------


def quantized(signature: Signature) -> Work:
    """Weights of 8 bits, or of 16; with 8 the input and the hidden state of each step become int8.

    The weights are packed, but the sizes follow from the states. Packed sequences come with the batch of each
    step as a tensor.
    """
    lstm = signature.name.endswith("lstm")
    in_steps = isinstance(signature.arg(1), TensorArg) and signature.args[1].dtype == "int64"
    fields = "params has_biases layers dropout train bidirectional" + ("" if in_steps else " batch_first")
    args = Arguments(signature, f"self {'batch_sizes ' if in_steps else ''}hx {fields} dtype=None")
    network = _network(args, LSTM if lstm else GRU)
    inputs = args.tensor("self")
    narrow = args.dtype("dtype", "") if lstm else ""  # of a GRU it is unknown
    if narrow not in ("qint8", "float16"):
        raise NotCounted("dtype of packed weights not recorded")
    numbers = network.directions * network.tokens * (network.steps_in + network.layers * network.outputs)
    itemsize = size_of(inputs.dtype)
    return Work(
        matrix_flops=network.flops,
        other_flops=network.forward_other_flops + (numbers * (QUANTIZE + 2) if narrow == "qint8" else 0),
        bytes_read=itemsize * (inputs.numel + network.states)
        + network.weights * size_of(narrow)
        + 4 * network.bias_elements,
        bytes_written=itemsize * (network.results + network.states),
        precision="int8" if narrow == "qint8" else precision_of(inputs.dtype),
    )


_CELLS = {
    "quantized::quantized_lstm_cell_dynamic": LSTM,
    "quantized::quantized_gru_cell_dynamic": GRU,
    "quantized::quantized_rnn_relu_cell_dynamic": RELU,
    "quantized::quantized_rnn_tanh_cell_dynamic": TANH,
}


def quantized_cell(signature: Signature) -> Work:
    """One step: [b, in] and [b, hidden] become int8, two products."""
    cell = _CELLS[signature.name]
    states = "hx cx" if isinstance(signature.arg(1), tuple) else "hx"  # a list is opened, too
    args = Arguments(opened(signature), f"self {states} weight_ih bias_ih weight_hh bias_hh")
    inputs, state, weight = args.operands("self", "hx", "weight_ih")
    bias = args.optional("bias_ih")
    kept = (state, args.optional("cx"))
    batch, hidden = state.shape
    network = RecurrentNetwork(cell, batch, batch, inputs.shape[-1], hidden, hidden, 1, 1, bias is not None)
    if weight.dtype not in ("qint8", "int8"):
        raise NotCounted("dtype of packed weights not recorded")  # 16-bit ones are shown as 32
    return Work(
        matrix_flops=network.flops,
        other_flops=network.forward_other_flops + (inputs.numel + state.numel) * (QUANTIZE + 2),
        bytes_read=size(inputs, *kept, weight, bias, args.tensor("weight_hh"), args.optional("bias_hh")),
        bytes_written=written(*kept),
        precision="int8",
    )
