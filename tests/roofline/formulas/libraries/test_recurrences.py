"""Linear attention and recurrences: closed forms by hand at odd shapes."""

from __future__ import annotations

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import count
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp32, int32, reason

# 2 sequences of 150 steps, 4 heads of keys of depth 16 and values of depth 24: chunks of 64, 64 and 22 steps.
Q, VALUES, GATE, BETA = bf16(2, 150, 4, 16), bf16(2, 150, 4, 24), fp32(2, 150, 4), bf16(2, 150, 4)
CHANNELS = bf16(2, 150, 4, 16)
PAIRS = 8 * (64 * 65 // 2 + 64 * 65 // 2 + 22 * 23 // 2)
INVERSES = 8 * (2 * (64 * 63 * 62 // 3) + 22 * 21 * 20 // 3)
STATE = 2 * 1200 * 16 * 24  # FLOPs of a product with the state
QKV = 2 * 1200 * (16 + 16 + 24)  # bytes
OUT = 2 * 1200 * 24


def test_gated_linear_attention():
    """Within a chunk q k^T and its product with v; k^T v into the state, q times the state."""
    products = 2 * PAIRS * (16 + 24) + 2 * STATE
    found = figures("ChunkSimpleGLAFunction", Q, Q, VALUES, GATE, None, 0.25, None, False, None)
    assert found == (products, 12 * PAIRS, QKV + 4 * 1200, OUT, "bf16")
    assert figures("ChunkGLAFunction", Q, Q, VALUES, CHANNELS, 0.25, None, False, None)[:2] == (products, 1200 * 16 * 22)
    assert figures("ChunkRetentionFunction", Q, Q, VALUES, 0.25, None, False, None)[0] == products


def test_the_gated_delta_rule():
    """Also k k^T, the inverse of its triangle times k and v, and what it takes back from the state."""
    args = (Q, Q, VALUES, GATE, BETA, 0.25, None, False, None, False)
    products = 2 * PAIRS * (3 * 16 + 2 * 24) + 3 * STATE + INVERSES
    found = figures("ChunkGatedDeltaRuleFunction", *args)
    assert found == (products, 24 * PAIRS, QKV + 4 * 1200 + 2 * 1200, OUT, "bf16")
    back = counted("ChunkGatedDeltaRuleFunctionBackward", (VALUES,), *args).work
    assert (back.matrix_flops, back.bytes_read, back.bytes_written) == (3 * products, OUT + found[2], found[2])
    assert figures("ChunkDeltaRuleFunction", Q, Q, VALUES, BETA, 0.25, None, False)[0] == products
    assert figures("ChunkKDAFunction", Q, Q, VALUES, CHANNELS, BETA, None, None, 0.25, None, False)[0] == products
    dplr = figures("ChunkDPLRDeltaRuleFunction", Q, Q, VALUES, Q, Q, CHANNELS, 1.0, None, False)
    assert dplr[0] == 2 * PAIRS * (5 * 16 + 3 * 24) + 4 * STATE + 2 * INVERSES


def test_the_last_argument_is_the_size_of_a_chunk():
    args = (Q, Q, VALUES, GATE, BETA, 0.25, None, False, False, None, None, None, False, False, None, None, False, False, None)
    pairs = 8 * (4 * (32 * 33 // 2) + 22 * 23 // 2)
    inverses = 8 * (4 * (32 * 31 * 30 // 3) + 22 * 21 * 20 // 3)
    assert figures("ChunkGatedDeltaRuleFunction", *args, 32)[0] == 2 * pairs * 96 + 3 * STATE + inverses


def test_a_last_state_that_is_asked_for():
    found = figures("ChunkGatedDeltaRuleFunction", Q, Q, VALUES, GATE, BETA, 0.25, None, True, None, False)
    assert found[3] == OUT + 4 * 2 * 4 * 16 * 24


def test_packed_sequences_and_heads_of_the_values():
    """3 sequences, 100 steps; 2 heads of keys and 4 of values."""
    keys, values, gate, beta = bf16(1, 100, 2, 16), bf16(1, 100, 4, 24), fp32(1, 100, 4), bf16(1, 100, 4)
    work = counted("ChunkGatedDeltaRuleFunction", keys, keys, values, gate, beta, 0.25, None, True, int32(4), True).work
    pairs, inverses = 4 * (64 * 65 // 2 + 36 * 37 // 2), 4 * (64 * 63 * 62 // 3 + 36 * 35 * 34 // 3)
    assert work.matrix_flops == 2 * pairs * 96 + 3 * (2 * 400 * 16 * 24) + inverses
    assert work.bytes_written == 2 * 400 * 24 + 4 * 3 * 4 * 16 * 24
    assert work.assumption == "packed sequences fill their chunks"


def test_heads_that_may_come_before_the_steps():
    heads_first = bf16(2, 4, 150, 16)
    assert "fewer steps than heads" in reason("ChunkGLAFunction", heads_first, heads_first, heads_first, heads_first, 0.25)
    assert reason("ChunkGLAFunction", bf16(4, 16)) == "shapes not recorded"


def test_a_node_without_its_forward_call():
    assert count(Signature("ChunkKDAFunctionBackward", (VALUES,))).reason == "its forward call is not in the trace"
