"""int8 products: each operator gives the product it is counted for."""

import pytest
import torch

from rooflines.kernels.micro import matmul

SHAPE = (32, 16, 64)


def test_operands_are_the_same_number_signed_and_unsigned():
    left, right = matmul.int8_operands(SHAPE)
    assert (left.shape, right.shape) == ((32, 64), (64, 16))
    assert left.dtype == right.dtype == torch.int8
    assert left.min() >= 0
    assert right.min() < 0 < right.max()


@pytest.mark.parametrize("name", ["torch._int_mm", "onednn::qlinear_pointwise"])
def test_products_are_exact(name):
    found = matmul.int8_products(SHAPE)
    if name not in found:
        pytest.skip(f"this build of torch has no {name} for this CPU")
    left, right = matmul.int8_operands(SHAPE)
    exact = left.to(torch.int64) @ right.to(torch.int64)  # 64 products of at most 127 * 128: far from the ends of int32
    result = found[name]()
    if name == "torch._int_mm":
        assert result.dtype == torch.int32
        assert torch.equal(result.long(), exact)
    else:  # what does not fit into uint8 is cut off
        assert result.dtype == torch.uint8
        assert torch.equal(result.long(), exact.clamp(0, 255))


def test_some_operator_multiplies_on_every_cpu():
    assert matmul.int8_products(SHAPE)
