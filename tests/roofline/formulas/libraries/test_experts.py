"""The routing of mixtures of experts, as a trace records it."""

from __future__ import annotations

from rooflines.profiler.read.signature import TensorArg, from_kineto
from rooflines.roofline.count.formulas import count
from tests.roofline.formulas.libraries.calls import bf16, figures, reason

E, TOP, K, INNER = 6, 2, 20, 12  # experts, of them for a token, width, width between the products


# --- routing -------------------------------------------------------------------------------------------------------------------------


def test_routing_of_triton_kernels():
    """vLLM's capture on an MI300X, gpt-oss with 32 experts, 4 for a token: TraceLens, tests/traces/inference/vllm_decode_full."""
    top = {
        "Input Dims": [[32, 32], [], [], [], [], [], []], "Input type": ["c10::BFloat16", *["Scalar"] * 4, "", ""],
        "Concrete Inputs": ["", "4", "True", "1", "True", "", ""],
    }  # fmt: skip
    work = count(from_kineto("TopK", top)).work
    assert (work.other_flops, work.bytes_read, work.bytes_written) == (32 * 32 + 14 * 32 * 4, 2 * 32 * 32, 32 * (4 * 4 + 4))
    assert figures("SortTokens", bf16(32, 4), TensorArg((32, 4), "int16"), 32) == (0, 0, 4 * 128, 128 * 10 + 4 * 32, None)
    assert reason("TopK", bf16(3, 4, 5), 2, True, 1) == "arguments of another version of this operator"


# --- wrappers ------------------------------------------------------------------------------------------------------------------------


T, E, TOP, KA, MID = 7, 6, 2, 64, 24
