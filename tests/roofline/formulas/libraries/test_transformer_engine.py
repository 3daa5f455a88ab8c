"""TransformerEngine's operators, routing and permutation of tokens: closed forms by hand at odd shapes."""

from __future__ import annotations

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import count
from tests.roofline.formulas.libraries.calls import bf16, counted, fp32


def test_packed_queries_keys_and_values_rotate():
    packed, angles = bf16(7, 2, 3, 6 * 16), fp32(7, 1, 1, 16)
    sizes = 7 * 2 * 3 * 16
    alone = counted("FusedQKVRoPEFunc", packed, angles, angles, "sbhd", False).work
    assert (alone.flops, alone.bytes_read, alone.bytes_written) == (18 * sizes + 40 * 7 * 16, 12 * sizes + 8 * 7 * 16, 12 * sizes)
    assert "values rotate" in alone.assumption
    gradients = (bf16(7, 2, 12, 16), bf16(7, 2, 3, 16), bf16(7, 2, 3, 16))
    back = counted("FusedQKVRoPEFuncBackward", gradients, packed, angles, angles).work
    assert (back.flops, back.bytes_read) == (15 * sizes + 40 * 7 * 16, 12 * sizes + 8 * 7 * 16)
    known = count(Signature("FusedQKVRoPEFunc", (packed, angles, angles)), outputs=gradients).work
    assert (known.flops, known.assumption) == (back.flops, "")


def test_the_loss_leaves_its_gradient():
    assert count(Signature("CrossEntropyFunctionBackward", (fp32(),))).kind == "composite"
