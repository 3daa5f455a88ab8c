"""Operators of libraries that run without a GPU: a profile of a real call is counted, and the bytes are those of its tensors.

Skipped for each library that is not installed.
"""

from __future__ import annotations

import inspect

import pytest
import torch

from rooflines.roofline.count.formulas import count
from tests.roofline.formulas.helpers import nbytes
from tests.roofline.rooms import attributed, read


def traced(function, path):
    """Every event of the call, as the profiler writes it, and what the function returned."""
    with torch.profiler.profile(record_shapes=True) as profiler:
        results = function()
    profiler.export_chrome_trace(str(path))
    return read(path), results


def counted(trace, name):
    (signature,) = {
        trace.signatures[code] for code in trace.host.signature.tolist() if code >= 0 and trace.signatures[code].name == name
    }
    found = count(signature)
    assert found.kind == "counted", found.reason
    return found.work


def check(tmp_path, name, *args, flops=None, extra=0):
    """Call the operator; ``extra`` are bytes that it reads beyond its tensors."""
    namespace, _, operator = name.partition("::")
    trace, results = traced(lambda: getattr(getattr(torch.ops, namespace), operator)(*args), tmp_path / "trace.json")
    work = counted(trace, name)
    assert (work.bytes_read, work.bytes_written) == (nbytes(*args) + extra, nbytes(results))
    if flops is not None:
        assert work.matrix_flops == flops
    return work


def integers(*shape, low=-9, high=9, dtype=torch.int8):
    return torch.randint(low, high, shape, dtype=dtype)


# --- bitsandbytes ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def bitsandbytes():
    return pytest.importorskip("bitsandbytes")


def test_bitsandbytes_products(bitsandbytes, tmp_path):
    left, right = integers(5, 64), integers(24, 64)
    check(tmp_path, "bitsandbytes::int8_linear_matmul", left, right, flops=2 * 5 * 64 * 24)
    rows, columns = torch.rand(5), torch.rand(24)
    check(tmp_path, "bitsandbytes::int8_scaled_mm", left, right, rows, columns, None, torch.bfloat16, flops=2 * 5 * 64 * 24)


def test_bitsandbytes_quantization(bitsandbytes, tmp_path):
    values, code = torch.randn(6, 128), torch.linspace(-1, 1, 256)
    check(tmp_path, "bitsandbytes::int8_vectorwise_quant", values, 0.0)
    check(tmp_path, "bitsandbytes::quantize_blockwise", values, code, 64)
    narrow, scales = torch.ops.bitsandbytes.quantize_blockwise(values, code, 64)
    check(tmp_path, "bitsandbytes::dequantize_blockwise", narrow, scales, code, 64, torch.float32)
    check(tmp_path, "bitsandbytes::quantize_4bit", values, 64, "nf4", torch.uint8)
    packed, scales = torch.ops.bitsandbytes.quantize_4bit(values, 64, "nf4", torch.uint8)
    check(tmp_path, "bitsandbytes::dequantize_4bit", packed, scales, 64, "nf4", [6, 128], torch.float32)


# --- torchao -----------------------------------------------------------------------------------------------------------------------


def test_torchao_operators(tmp_path):
    """Their kernels are for GPUs: the calls are on tensors without data."""
    pytest.importorskip("torchao")
    import torchao.ops  # noqa: F401

    def empty(*shape, dtype=torch.float32):
        return torch.empty(shape, dtype=dtype, device="meta")

    narrow, byte = torch.float8_e4m3fn, torch.uint8
    left, right = empty(128, 256, dtype=narrow), empty(256, 64, dtype=narrow)
    check(tmp_path, "torchao::mx_fp8_bf16", left, right, empty(128, 8, dtype=byte), empty(64, 8, dtype=byte), flops=2 * 128 * 256 * 64)
    table, indices, offsets = empty(50, 128, dtype=torch.int8), empty(9, dtype=torch.int64), empty(3, dtype=torch.int64)
    check(tmp_path, "torchao::_scaled_embedding_bag", table, indices, offsets, empty(1), 1.0, 0, True, torch.float32,
          extra=(9 - 50) * 128)  # fmt: skip
    left, right = empty(32, 64, dtype=torch.int8), empty(64, 24, dtype=torch.int8)
    check(tmp_path, "torchao::int_scaled_matmul", left, right, empty(32, 1), flops=2 * 32 * 64 * 24)


# --- FBGEMM ------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def fbgemm():
    return pytest.importorskip("fbgemm_gpu")


def test_fbgemm_sparse_features(fbgemm, tmp_path):
    lengths, values = torch.tensor([[1, 2, 0], [3, 0, 1]]), torch.arange(7)
    permute = torch.tensor([1, 0], dtype=torch.int32)
    check(tmp_path, "fbgemm::permute_2D_sparse_data", permute, lengths, values, None, None)
    # A row again: more values than there were, each read once.
    check(tmp_path, "fbgemm::permute_2D_sparse_data", torch.tensor([1, 0, 1], dtype=torch.int32), lengths, values, None, 11)
    check(tmp_path, "fbgemm::asynchronous_complete_cumsum", torch.arange(9))
    check(tmp_path, "fbgemm::asynchronous_exclusive_cumsum", torch.arange(9))
    check(tmp_path, "fbgemm::block_bucketize_sparse_features", lengths.flatten(), values, False, True, torch.tensor([4, 4]), 3)


def test_fbgemm_quantization(fbgemm, tmp_path):
    values = torch.randn(6, 12)
    operators = torch.ops.fbgemm
    check(tmp_path, "fbgemm::FloatToFused8BitRowwiseQuantized", values)
    check(tmp_path, "fbgemm::Fused8BitRowwiseQuantizedToFloat", operators.FloatToFused8BitRowwiseQuantized(values))
    check(tmp_path, "fbgemm::FloatToFusedNBitRowwiseQuantizedSBHalf", values, 4)
    check(tmp_path, "fbgemm::FusedNBitRowwiseQuantizedSBHalfToFloat", operators.FloatToFusedNBitRowwiseQuantizedSBHalf(values, 4), 4)
    check(tmp_path, "fbgemm::FloatToBfloat16Quantized", values)


def test_fbgemm_jagged_tensors(fbgemm, tmp_path):
    values, offsets = torch.randn(6, 10), torch.tensor([0, 2, 2, 6])
    as_floats = 4 * 4 - 4 * 8  # traces do not record the dtype of a list
    check(tmp_path, "fbgemm::jagged_to_padded_dense", values, [offsets], [5], 0.0, extra=as_floats)
    check(tmp_path, "fbgemm::jagged_2d_to_dense", values, offsets, 5)
    check(tmp_path, "fbgemm::dense_to_jagged_forward", torch.randn(3, 5, 10), [offsets], 6, extra=as_floats - 9 * 10 * 4)
    check(tmp_path, "fbgemm::jagged_dense_bmm_forward", values, offsets, torch.randn(3, 10, 7), 5, flops=2 * 6 * 10 * 7)


def test_fbgemm_tables_and_their_optimizer(fbgemm, tmp_path):
    """Lookups and updates of a real layer: no bytes but the rows, what says which they are, and the results."""
    layers = pytest.importorskip("fbgemm_gpu.split_table_batched_embeddings_ops_training")
    kinds = pytest.importorskip("fbgemm_gpu.split_embedding_configs").EmbOptimType
    place, device = layers.EmbeddingLocation.HOST, layers.ComputeDevice.CPU
    for optimizer, state in {kinds.EXACT_ROWWISE_ADAGRAD: 4, kinds.EXACT_SGD: 0}.items():
        layer = layers.SplitTableBatchedEmbeddingBagsCodegen(
            [(101, 8, place, device), (53, 8, place, device)], optimizer=optimizer, learning_rate=0.1
        )
        offsets, indices = torch.tensor([0, 3, 3, 4, 9]), torch.randint(0, 53, (9,))
        trace, result = traced(lambda one=layer, rows=indices, bags=offsets: _step(one, rows, bags), tmp_path / "trace.json")
        told, rows = nbytes(indices, offsets), 9 * 8 * 4
        forward = counted(trace, "fbgemm::split_embedding_codegen_forward_cpu")
        assert (forward.bytes_read, forward.bytes_written, forward.other_flops) == (rows + told, nbytes(result), 9 * 8)
        name = next(name for name in trace.names if name.startswith("fbgemm::split_embedding_backward") and name.endswith("_cpu"))
        backward = counted(trace, name)
        assert (backward.bytes_read, backward.bytes_written) == (rows + told + nbytes(result) + 9 * state, rows + 9 * state)

    weights = torch.rand(9, requires_grad=True)
    trace, result = traced(lambda: _step(layer, indices, offsets, weights), tmp_path / "trace.json")
    of_weights = counted(trace, "fbgemm::split_embedding_codegen_grad_indice_weights_cpu")
    assert (of_weights.bytes_read, of_weights.bytes_written) == (rows + told + nbytes(result), nbytes(weights))
    assert of_weights.other_flops == 2 * 9 * 8


def _step(layer, indices, offsets, *weights):
    result = layer(indices, offsets, *weights)
    result.backward(torch.ones_like(result))
    return result.detach()


# --- Python's autograd functions ---------------------------------------------------------------------------------------------------


class LigerRMSNormFunction(torch.autograd.Function):
    """The name and the arguments of Liger's function, which needs a GPU."""

    @staticmethod
    def forward(ctx, inputs, weight, eps, offset, mode, in_place):
        ctx.save_for_backward(inputs, weight)
        return inputs * weight

    @staticmethod
    def backward(ctx, gradient):
        inputs, weight = ctx.saved_tensors
        return gradient * weight, (gradient * inputs).sum(0), None, None, None, None


def test_the_node_of_a_function_has_the_arguments_of_its_call(tmp_path):
    inputs, weight = torch.randn(15, 16, requires_grad=True), torch.randn(16, requires_grad=True)
    traced(lambda: _forward_and_backward(inputs, weight), tmp_path / "trace.json")
    rows = {row.signature.name: row.count.work for row in attributed(of=tmp_path / "trace.json").rows}
    forward, backward = rows["LigerRMSNormFunction"], rows["LigerRMSNormFunctionBackward"]
    assert (forward.flops, forward.bytes) == (4 * 240, 960 + 64 + 960 + 60)
    assert (backward.flops, backward.bytes) == (10 * 240, 2 * 960 + 64 + 60 + 960 + 64)


def _forward_and_backward(inputs, weight):
    result = LigerRMSNormFunction.apply(inputs, weight, 1e-6, 0.0, "llama", True)
    result.backward(torch.ones_like(result))


@pytest.mark.parametrize(
    ("name", "tensors"),
    [
        ("RMSNorm", "X W"), ("FusedAddRMSNorm", "X R W"), ("LayerNorm", "X W B"), ("SiLUMul", "a b"), ("Rope", "q k cos sin"),
        ("CrossEntropy", "_input target weight"), ("FusedLinearCrossEntropy", "_input weight target bias"),
        ("DyT", "x alpha gamma beta"),
    ],
)  # fmt: skip
def test_functions_of_liger_take_their_tensors_first_and_in_this_order(name, tensors):
    functions = pytest.importorskip("liger_kernel.ops")
    forward = inspect.unwrap(getattr(functions, f"Liger{name}Function").forward)
    assert list(inspect.signature(forward).parameters)[1:][: len(tensors.split())] == tensors.split()
