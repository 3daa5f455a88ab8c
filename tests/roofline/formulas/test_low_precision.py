"""Products of 8- and 4-bit numbers: what the real operators multiply, read and write on small tensors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rooflines
from rooflines.profiler.calls.signatures import call_signature, tensor_arg
from rooflines.profiler.read.signature import MISSING, Signature
from rooflines.roofline.count.formulas import Work, count
from rooflines.roofline.count.formulas.costs import DEQUANTIZE, GELU, QUANTIZE
from tests.roofline.formulas.by_hand import tensor, work
from tests.roofline.formulas.helpers import nbytes

pytestmark = [
    # torch 2.14 announces the end of quantized tensors and of torch.ao.quantization
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor, torch.quantize_per_channel and other:UserWarning"),
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning"),
]
aten = torch.ops.aten


def ran(func, *args, **kwargs):
    """The work of a call as a recording shows it, and what it returned."""
    result = func(*args, **kwargs)
    outcome = count(call_signature(func, args, kwargs), outputs=(tensor_arg(result),))
    assert outcome.kind == "counted", outcome
    return outcome.work, result


some = st.integers(1, 9)


# --- int8 and fp8 ------------------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(some, some, some)
def test_int_mm_multiplies_int8_and_writes_int32(m, k, n):
    left, right = torch.ones(m, k, dtype=torch.int8), torch.ones(k, n, dtype=torch.int8)
    found, result = ran(aten._int_mm.default, left, right)
    assert result.dtype == torch.int32
    assert found == Work(2 * int(result.sum()), 0, m * k + k * n, 4 * m * n, "int8")


EIGHTHS = tensor(16, 32, dtype="float8_e4m3fn"), tensor(32, 8, dtype="float8_e4m3fn")


def test_scaled_mm_writes_the_dtype_asked_for():
    found = work("aten::_scaled_mm", *EIGHTHS, tensor(), tensor(), None, None, 15, False)
    assert (found.precision, found.matrix_flops, found.bytes_read) == ("fp8", 2 * 16 * 32 * 8, 16 * 32 + 32 * 8 + 2 * 4)
    assert found.bytes_written == 2 * 16 * 8  # 15 is bfloat16


def test_scaled_mm_costs_its_scale_and_its_bias_a_result():
    plain = work("aten::_scaled_mm", *EIGHTHS, tensor(16, 1), tensor(1, 8), None, None, 15, False)
    biased = work("aten::_scaled_mm", *EIGHTHS, tensor(16, 1), tensor(1, 8), tensor(8, dtype="bfloat16"), None, 15, False)
    assert (plain.other_flops, biased.other_flops) == (16 * 8, 2 * 16 * 8)
    assert plain.bytes_read == 16 * 32 + 32 * 8 + 4 * (16 + 8)
    assert biased.bytes_read - plain.bytes_read == 2 * 8


def test_scaled_mm_with_lists_of_scales():
    scales = (tensor(16, 1),), (1,), (0,), (tensor(1, 8),), (1,), (0,)
    found = work("aten::_scaled_mm_v2", *EIGHTHS, *scales, None, 15, (), False)
    assert found == work("aten::_scaled_mm", *EIGHTHS, tensor(16, 1), tensor(1, 8), None, None, 15, False)
    other = count(Signature("aten::_scaled_mm_v2", (*EIGHTHS, *scales, None, 15, (0, 0), False)))
    assert other.reason == "product over dimensions other than the last and the first"


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), some, some)
def test_scaled_grouped_products_are_those_of_the_groups(lengths, k, n):
    total, groups = sum(lengths), len(lengths)
    left, right = tensor(total, k, dtype="float8_e4m3fn"), tensor(groups, k, n, dtype="float8_e4m3fn")
    scales = tensor(total), tensor(groups, n)
    found = work("aten::_scaled_grouped_mm", left, right, *scales, tensor(groups, dtype="int32"), None, None, 15, False)
    assert (found.matrix_flops, found.bytes_written) == (sum(2 * length * k * n for length in lengths), 2 * total * n)
    used = min(groups, total)  # groups that have a row, at most
    assert found.bytes_read == total * k + used * k * n + 4 * (total + groups * n) + 4 * groups
    listed = (scales[:1], (1,), (0,), scales[1:], (1,), (0,))
    assert work("aten::_scaled_grouped_mm_v2", left, right, *listed, tensor(groups, dtype="int32"), None, 15, (), False) == found


# --- narrow weights ----------------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(some, st.sampled_from([32, 64]), st.sampled_from([16, 32]))  # the kernel reads whole registers
def test_an_int8_weight_is_widened_to_the_precision_of_the_activations(m, k, n):
    inputs, weight = torch.ones(m, k, dtype=torch.bfloat16), torch.ones(n, k, dtype=torch.int8)
    scales = torch.ones(n, dtype=torch.bfloat16)
    found, result = ran(aten._weight_int8pack_mm.default, inputs, weight, scales)
    assert found == Work(2 * int(result.float().sum()), m * n, nbytes(inputs, weight, scales), 2 * m * n, "bf16")


@pytest.mark.parametrize("group", [32, 64])
def test_an_int4_weight_has_two_elements_a_byte_and_a_scale_a_group(group):
    m, k, n = 3, 128, 64
    weight = torch.randint(0, 16, (n, k), dtype=torch.int32)
    packed = aten._convert_weight_to_int4pack_for_cpu.default(weight, 1)
    scales = torch.rand(k // group, n, 2, dtype=torch.bfloat16)
    inputs = torch.rand(m, k, dtype=torch.bfloat16)
    found, result = ran(aten._weight_int4pack_mm_for_cpu.default, inputs, packed, group, scales)
    assert tuple(result.shape) == (m, n)
    assert nbytes(packed) == n * k // 2
    assert found == Work(2 * m * k * n, DEQUANTIZE * k * n, nbytes(inputs, packed, scales), 2 * m * n, "bf16")
    # the packing of a GPU has another shape: [n / 8, k / (16 * inner), 32, inner / 2] of int32
    gpu = (tensor(m, k, dtype="bfloat16"), tensor(n // 8, k // 128, 32, 4, dtype="int32"), group, tensor_arg(scales))
    assert work("aten::_weight_int4pack_mm", *gpu) == found
    parts = (
        *gpu[:1],
        tensor(n, k // 8, dtype="int32"),
        group,
        tensor(k // group, n, dtype="bfloat16"),
        tensor(k // group, n, dtype="bfloat16"),
    )
    assert work("aten::_weight_int4pack_mm_with_scales_and_zeros", *parts) == found


def test_a_dynamic_int4_product_quantizes_its_input():
    packed = tensor(5000, dtype="uint8")
    found = work("aten::_dyn_quant_matmul_4bit", tensor(3, 128), packed, 32, 128, 64)
    assert (found.matrix_flops, found.precision) == (2 * 3 * 128 * 64, "int8")
    assert found.other_flops == 3 * 128 * (2 + QUANTIZE) + 2 * 3 * 64
    assert (found.bytes_read, found.bytes_written) == (4 * 3 * 128 + 5000, 4 * 3 * 64)


def test_a_linear_layer_of_mixed_dtypes():
    half = tensor(3, 64, dtype="float16")
    found = work("aten::_mixed_dtypes_linear", half, tensor(64, 16, dtype="uint8"), tensor(32, dtype="float16"),
                 tensor(32, dtype="float16"), "relu")  # fmt: skip
    assert found.matrix_flops == 2 * 3 * 64 * 32
    assert found.other_flops == 3 * 32 * (1 + 1 + 1)  # scale, bias, activation
    assert found.precision == "fp16"


# --- packed layers -------------------------------------------------------------------------------------------------------------------


def quantized(*shape):
    return torch.quantize_per_tensor(torch.rand(*shape), 0.1, 3, torch.quint8)


def weight_of(*shape):
    return torch.quantize_per_tensor(torch.rand(*shape), 0.1, 0, torch.qint8)


@pytest.fixture(autouse=True)
def engine():
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    yield
    torch.backends.quantized.engine = before


@pytest.mark.parametrize(("name", "fused"), [("linear", 0), ("linear_relu", 1), ("linear_leaky_relu", 2)])
def test_a_quantized_linear_layer(name, fused):
    packed = torch.ops.quantized.linear_prepack(weight_of(4, 5), torch.rand(4))
    inputs = quantized(2, 3, 5)
    extra = (0.1,) if "leaky" in name else ()
    if "leaky" in name:  # fbgemm has none
        torch.backends.quantized.engine = "onednn"
        packed = torch.ops.quantized.linear_prepack(weight_of(4, 5), torch.rand(4))
    found, result = ran(getattr(torch.ops.quantized, name).default, inputs, packed, 0.2, 0, *extra)
    results = 2 * 3 * 4
    assert found == Work(2 * results * 5, results * (QUANTIZE + 1 + fused), nbytes(inputs) + 4 * 5 + 4 * 4, nbytes(result), "int8")


@pytest.mark.parametrize(("name", "fused"), [("linear_dynamic", 0), ("linear_relu_dynamic", 1)])
def test_a_dynamic_linear_layer_quantizes_its_input(name, fused):
    packed = torch.ops.quantized.linear_prepack(weight_of(4, 5), torch.rand(4))
    inputs = torch.rand(2, 3, 5)
    found, result = ran(getattr(torch.ops.quantized, name).default, inputs, packed)
    results = 2 * 3 * 4
    other = 2 * 3 * 5 * (QUANTIZE + 2) + results * (1 + 1 + fused)
    assert found == Work(2 * results * 5, other, nbytes(inputs) + 4 * 5 + 4 * 4, nbytes(result), "int8")


def test_a_float16_weight_is_read_as_such():
    packed = torch.ops.quantized.linear_prepack_fp16(torch.rand(4, 5), torch.rand(4))
    inputs = torch.rand(2, 3, 5)
    found, result = ran(torch.ops.quantized.linear_dynamic_fp16.default, inputs, packed)
    assert found == Work(2 * 24 * 5, 24, nbytes(inputs) + 2 * 4 * 5 + 4 * 4, nbytes(result), "fp32")


@pytest.mark.parametrize(("rank", "stride", "padding", "groups", "relu"), [(1, 1, 0, 1, ""), (2, 2, 1, 2, "_relu"), (3, 1, 1, 1, "")])
def test_a_quantized_convolution(rank, stride, padding, groups, relu):
    ops, many = torch.ops.quantized, ([stride] * rank, [padding] * rank, [1] * rank)
    weight, bias = weight_of(6, 4 // groups, *[3] * rank), torch.rand(6)
    packed = getattr(ops, f"conv{rank}d_prepack")(weight, bias, *many, groups)
    inputs = quantized(2, 4, *[9, 8, 7][:rank])
    packet = getattr(ops, f"conv{rank}d{relu}")
    found, result = ran(packet.default if rank == 1 else packet.new, inputs, packed, 0.2, 0)
    products = result.numel() * (4 // groups) * 3**rank
    other = result.numel() * (QUANTIZE + 1 + bool(relu))
    assert found == Work(2 * products, other, nbytes(inputs, weight, bias), nbytes(result), "int8")


def test_a_dynamic_and_a_transposed_convolution():
    weight = weight_of(6, 4, 3, 3)
    packed = torch.ops.quantized.conv2d_prepack(weight, None, [1, 1], [0, 0], [1, 1], 1)
    inputs = torch.rand(1, 4, 8, 8)
    found, result = ran(torch.ops.quantized.conv2d_dynamic.default, inputs, packed)
    assert found == Work(2 * 6 * 36 * 36, 4 * 64 * (QUANTIZE + 2) + 6 * 36, nbytes(inputs, weight), nbytes(result), "int8")
    turned = weight_of(4, 6, 3, 3)
    packed = torch.ops.quantized.conv_transpose2d_prepack(turned, None, [2, 2], [1, 1], [1, 1], [1, 1], 1)
    inputs = quantized(1, 4, 8, 8)
    found, result = ran(torch.ops.quantized.conv_transpose2d.default, inputs, packed, 0.2, 0)
    assert found == Work(2 * 4 * 64 * 6 * 9, QUANTIZE * result.numel(), nbytes(inputs, turned), nbytes(result), "int8")


@pytest.mark.parametrize(
    "name", ["quantized::linear", "quantized::linear_dynamic", "quantized::conv2d", "quantized::linear_dynamic_fp16"]
)
@pytest.mark.parametrize("packed", [None, MISSING])
def test_packed_weights_are_not_in_traces(name, packed):
    outcome = count(Signature(name, (tensor(2, 5), packed, 0.1, 0)))
    assert outcome.reason == "packed weights not recorded in traces"


def test_a_quantized_network_is_counted_from_its_recording():
    """A dynamically quantized network: the FLOPs of the one it was made from."""
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    inputs = torch.rand(3, 8)
    narrow = torch.ao.quantization.quantize_dynamic(network, {torch.nn.Linear})
    found = rooflines.count(narrow, inputs)
    assert found.matrix_flops == rooflines.count(network, inputs).matrix_flops == 2 * 3 * 8 * 16 + 2 * 3 * 16 * 4
    assert set(found.to_dataframe().query("matrix_flops > 0")["precision"]) == {"int8"}


def test_prepacking_is_a_copy():
    weight, bias = weight_of(4, 5), torch.rand(4)
    found = count(call_signature(torch.ops.quantized.linear_prepack.default, (weight, bias), {})).work
    assert found == Work(bytes_read=20 + 16, bytes_written=20 + 16)
    half = count(call_signature(torch.ops.quantized.linear_prepack_fp16.default, (torch.rand(4, 5), bias), {})).work
    assert half == Work(bytes_read=80 + 16, bytes_written=40 + 16)


# --- oneDNN ------------------------------------------------------------------------------------------------------------------------

SCALES = tensor(4), tensor(4, dtype="int32")


@pytest.mark.parametrize(("out", "cost"), [(0, QUANTIZE), (6, 1)])  # 0 is uint8, 6 is float32
def test_onednn_linear_layers(out, cost):
    inputs, weight, bias = tensor(3, 5, dtype="uint8"), tensor(5, 4, dtype="int8"), tensor(4)
    unary = work("onednn::qlinear_pointwise", inputs, 0.1, 0, weight, *SCALES, bias, 0.2, 0, out, "gelu", (), "none")
    assert (unary.matrix_flops, unary.other_flops) == (2 * 3 * 5 * 4, 12 * (cost + 1 + GELU))
    assert (unary.bytes_read, unary.bytes_written) == (15 + 20 + 4 * 4 * 3, 12 * (1 if out == 0 else 4))
    other = tensor(3, 4, dtype="uint8")
    tail = (0.2, 0, out, 0.1, 0, "add", 1.0, "relu", (), "")
    binary = work("onednn::qlinear_pointwise", inputs, 0.1, 0, weight, *SCALES, other, bias, *tail)
    assert (binary.matrix_flops, binary.other_flops) == (unary.matrix_flops, 12 * (cost + 1 + DEQUANTIZE + 1 + 1))
    assert binary.bytes_read == unary.bytes_read + 12


def test_onednn_convolutions():
    inputs, weight, bias = tensor(1, 4, 8, 8, dtype="uint8"), tensor(6, 4, 3, 3, dtype="int8"), tensor(6)
    scales = tensor(6), tensor(6, dtype="int32")
    window = ((1, 1), (1, 1), (1, 1), 1)
    unary = work("onednn::qconv2d_pointwise", inputs, 0.1, 0, weight, *scales, bias, *window, 0.2, 0, 0, "relu", (), "")
    assert unary == Work(2 * 6 * 64 * 36, 6 * 64 * (QUANTIZE + 1 + 1), 256 + 216 + 3 * 24, 6 * 64, "int8")
    accumulated = tensor(1, 6, 8, 8, dtype="uint8")
    tail = (0.2, 0, 0, 0.1, 0, "sum", None, "relu", (), "")
    binary = work("onednn::qconv2d_pointwise", inputs, 0.1, 0, weight, *scales, accumulated, bias, *window, *tail)
    assert (binary.matrix_flops, binary.bytes_read) == (unary.matrix_flops, unary.bytes_read + 6 * 64)


def test_onednn_schemas_are_those_of_torch():
    """The forms with a second operand are told from the others by their number of arguments."""
    for name, unary, binary in (("qlinear_pointwise", 13, 18), ("qconv2d_pointwise", 17, 22)):
        packet = getattr(torch.ops.onednn, name)
        assert len(packet.default._schema.arguments) == unary
        assert len(packet.binary._schema.arguments) == binary
    assert len(torch.ops.mkldnn._linear_pointwise.default._schema.arguments) == 6
    assert len(torch.ops.mkldnn._linear_pointwise.binary._schema.arguments) == 5
    assert len(torch.ops.mkldnn._convolution_pointwise.default._schema.arguments) == 10
    assert len(torch.ops.mkldnn._convolution_pointwise.binary._schema.arguments) == 13


def test_a_product_of_quantized_matrices():
    left, right = quantized(3, 5), quantized(5, 4)
    found, result = ran(torch.ops.quantized.matmul.default, left, right, 0.5, 0)
    assert found == Work(2 * 3 * 5 * 4, QUANTIZE * 12, nbytes(left, right), nbytes(result), "int8")
