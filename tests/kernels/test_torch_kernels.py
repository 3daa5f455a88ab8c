"""The kernels that are torch operators: their results, their counts, and the flags they put back."""

from __future__ import annotations

import pytest
import torch

from rooflines.kernels.micro import clock, dispatch, matmul, transfer

CPU = torch.device("cpu")
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


@pytest.mark.unit
def test_matmul_counts():
    assert matmul.flops((3, 4, 5)) == 2 * 3 * 4 * 5
    assert matmul.footprint_bytes((3, 4, 5), "bf16") == 2 * (3 * 5 + 5 * 4 + 3 * 4)


@pytest.mark.unit
@pytest.mark.parametrize("precision", ["fp32", "fp64", "bf16"])
def test_matmul_multiplies(precision):
    multiply = matmul.multiplication((8, 4, 16), precision, CPU)
    result = multiply()
    assert result.shape == (8, 4)
    assert result.dtype == matmul.DTYPES[precision]
    assert result.abs().sum() > 0
    assert torch.equal(result.clone(), multiply())


@pytest.mark.unit
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_float32_matmul_is_put_back(precision):
    before = torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32
    with pytest.raises(ZeroDivisionError), matmul.float32_matmul(precision):
        1 / 0  # noqa: B018
    assert (torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32) == before


@pytest.mark.unit
def test_transfers_move_what_they_count():
    first, second, target = transfer.operands(4096, CPU)
    _, size = transfer.read(first)
    assert size == 4096
    call, size = transfer.copy(second, target)
    call()
    assert size == 2 * 4096
    assert target.eq(2).all()
    call, size = transfer.triad(first, second, target)
    call()
    assert size == 3 * 4096
    assert target.eq(1 + 3 * 2).all()


@pytest.mark.unit
def test_repeated_read_reads_the_same_memory():
    source = torch.ones(1000)
    call, size = transfer.repeated_read(source, 4)
    assert size == 4 * 4000
    assert call().tolist() == [1000.0] * 4


@pytest.mark.unit
def test_timed_calls():
    calls = []
    timing = clock.timed(CPU, lambda: calls.append(1), 7)
    assert len(calls) == 7
    assert timing.seconds > 0
    assert 0 <= timing.busy <= 1


@pytest.mark.unit
@pytest.mark.parametrize("seconds", [dispatch.operator_seconds, dispatch.ufunc_seconds, dispatch.compiled_seconds])
def test_dispatch_is_a_time(seconds):
    sample = seconds(2000)
    assert sample.value >= 0
    assert 0 < sample.busy <= 1.01


@pytest.mark.gpu
@NEEDS_GPU
def test_launch_graph_launches_every_kernel():
    replay = dispatch.launch_graph(torch.device("cuda", 0), 10)
    assert clock.timed(torch.device("cuda", 0), replay, 3).seconds > 0


@pytest.mark.gpu
@NEEDS_GPU
def test_repeated_read_on_the_gpu():
    call, _ = transfer.repeated_read(torch.ones(1 << 20, device="cuda"), 64)
    assert call().tolist() == [float(1 << 20)] * 64
