"""Mixtures of experts of vLLM, SGLang, AITER and flashinfer."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import TensorArg, from_kineto
from rooflines.roofline.formulas import count
from rooflines.roofline.formulas.experts import LOCAL, SPREAD
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp8, fp32, int32, int64, reason, uint8

E, TOP, K, INNER = 6, 2, 20, 12  # experts, of them for a token, width, width between the products
FLAGS = (None, False, False, False, False, False, False)  # activation, weight on the input, fp8, int8, int8 weights, int4, per channel


def layer(tokens, weight=bf16, experts=E):
    return (bf16(tokens, K), weight(experts, 2 * INNER, K), weight(experts, K, INNER), fp32(tokens, TOP), int32(tokens, TOP))


def flops(rows):
    return 2 * rows * (K * 2 * INNER + INNER * K)


@pytest.mark.parametrize("name", ["vllm::inplace_fused_experts", "vllm::outplace_fused_experts", "sglang::outplace_fused_experts"])
def test_a_layer_multiplies_tokens_times_experts_per_token(name):
    tokens = 7
    rows = tokens * TOP  # 14 rows may reach all 6 experts
    weights = 2 * E * 3 * INNER * K
    assert figures(name, *layer(tokens), *FLAGS) == (
        flops(rows), 15 * rows * INNER + 2 * rows * K, 2 * tokens * K + 8 * tokens * TOP + weights, 2 * tokens * K, "bf16",
    )  # fmt: skip
    assert counted(name, *layer(tokens), *FLAGS).category == "moe"


def test_bytes_of_weights_grow_with_the_batch_up_to_all_experts():
    def weights(tokens):
        return counted("vllm::inplace_fused_experts", *layer(tokens), *FLAGS).work.bytes_read - 2 * tokens * K - 8 * tokens * TOP

    assert [weights(tokens) // (2 * 3 * INNER * K) for tokens in (1, 2, 3, 4, 40)] == [2, 4, 6, 6, 6]


def test_fp8_weights_mean_fp8_activations():
    scales = (fp32(E), fp32(E), None, None)
    flags = (None, False, True, False, False, False, False, -1, None, *scales)
    rows = 14
    assert figures("vllm::inplace_fused_experts", *layer(7, fp8), *flags) == (
        flops(rows), 15 * rows * INNER + 2 * rows * K + 7 * (7 * K + rows * INNER),
        2 * 7 * K + 8 * rows + E * 3 * INNER * K + 2 * 4 * E, 2 * 7 * K, "fp8",
    )  # fmt: skip


def test_the_flags_say_whether_int8_weights_meet_int8_activations():
    def of(*flags):
        return counted("sglang::inplace_fused_experts", *layer(7, lambda *shape: TensorArg(shape, "int8")), *flags).work.precision

    assert of(None, False, False, True, False, False, False) == "int8"  # vLLM, and SGLang at first
    assert of(None, False, False, False, True, False, False) == "bf16"
    assert of(None, None, 0, True, False, False, True, False, False) == "int8"  # SGLang: two biases, a number, a flag for the gate
    assert of(None, None, 0, True, False, False, False, True, False) == "bf16"
    assert "not recorded" in reason("sglang::inplace_fused_experts", *layer(7, lambda *shape: TensorArg(shape, "int8")))


def test_weights_of_4_bits_are_packed_along_their_last_dimension():
    args = (bf16(7, K), uint8(E, 2 * INNER, K // 2), uint8(E, K, INNER // 2), fp32(7, TOP), int32(7, TOP))
    work = counted("vllm::outplace_fused_experts", *args, *FLAGS).work
    assert (work.matrix_flops, work.precision) == (flops(14), "bf16")
    assert work.bytes_read == 2 * 7 * K + 8 * 14 + E * 3 * INNER * K // 2


def test_of_experts_on_several_ranks_each_gets_its_part_of_the_rows():
    flags = (*FLAGS, 4 * E, int32(4 * E))  # 24 experts on 4 ranks
    work = counted("vllm::inplace_fused_experts", *layer(20), *flags).work
    assert work.matrix_flops == flops(40 // 4)
    assert work.assumption == "all experts that the rows can reach are used; tokens are spread evenly over the ranks"


def test_flashinfer_layers_have_the_routing_inside():
    blocks = (
        fp32(7, E),
        fp32(E),
        bf16(7, K),
        fp8(E, 2 * INNER, K),
        fp32(E, 2, 1),
        fp8(E, K, INNER),
        fp32(E, 1, 2),
        E,
        TOP,
        1,
        1,
        INNER,
        0,
        E,
    )
    work = counted("vllm::flashinfer_fused_moe_blockscale_fp8", *blocks).work
    assert (work.matrix_flops, work.precision) == (flops(14), "fp8")
    assert work.bytes_read == 4 * 7 * E + 4 * E + 2 * 7 * K + E * 3 * INNER * K + 4 * 4 * E
    assert work.bytes_written == 2 * 7 * K


def test_rows_of_experts_on_other_ranks_may_be_among_those_without_a_map():
    assert counted("sglang::inplace_fused_experts", *layer(7), *FLAGS).work.assumption == f"{SPREAD}; {LOCAL}"
    assert counted("vllm::inplace_fused_experts", *layer(7), *FLAGS).work.assumption == SPREAD
    grouped = (bf16(4, 24), fp8(4, K), fp8(E, K, 24), fp32(4, 1), fp32(E, 24, 1), int32(E), int32(E, 3), int64(E), int64(E), int64(E))
    assert counted("_C::cutlass_moe_mm", *grouped).work.assumption == f"{SPREAD}; {LOCAL}"


def test_aiter_layer_of_activations_that_are_fp8_already():
    args = (
        fp8(7, K),
        fp8(E, 2 * INNER, K),
        fp8(E, K, INNER),
        fp32(7, TOP),
        int32(7, TOP),
        None,
        0,
        4,
        False,
        None,
        None,
        fp32(7, 1),
        None,
    )
    work = counted("aiter::fused_moe_", *args, 32, None, 0, 15).work
    assert (work.bytes_written, work.precision) == (2 * 7 * K, "fp8")
    assert work.other_flops == 15 * 14 * INNER + 2 * 14 * K, "the conversion was another operator's"
    assert reason("aiter::fused_moe_", *args) == "dtype of the result not recorded"


def test_aiter_layer_with_scales_of_32_may_run_in_fp4():
    args = (bf16(7, K), uint8(E, 2 * INNER, K // 2), uint8(E, K, INNER // 2), fp32(7, TOP), int32(7, TOP), None, 0)
    assert counted("aiter::fused_moe_", *args, 3, False).work.precision == "fp4"
    assert counted("aiter::fused_moe_", *args, 0, False).work.precision == "bf16"
    assert counted("aiter::fused_moe_", *args, 3, False).work.matrix_flops == flops(14)


def test_aiter_kernels_for_the_whole_layer_or_one_product():
    ids = (int32(99), fp32(99), int32(9), int32(1), TOP)
    whole = counted(
        "aiter::fmoe_g1u1", bf16(7, K), fp8(7, K), fp8(E, 2 * INNER, K), fp8(E, K, INNER), *ids, fp32(7, 1), fp32(E, 24), fp32(E, K)
    )
    assert (whole.work.matrix_flops, whole.work.precision, whole.work.bytes_written) == (flops(14), "fp8", 2 * 7 * K)
    first, second = fp8(E, 2 * INNER, K), fp8(E, K, INNER)
    up = counted("aiter::ck_moe_stage1", fp8(7, K), first, second, int32(99), int32(9), int32(1), bf16(7, TOP, INNER), TOP).work
    down = counted("aiter::ck_moe_stage2", fp8(7, TOP, INNER), first, second, int32(99), int32(9), int32(1), bf16(7, K), TOP).work
    assert up.matrix_flops + down.matrix_flops == flops(14)
    assert (up.bytes_read, up.bytes_written) == (7 * K + E * 2 * INNER * K, 2 * 14 * INNER)
    assert (down.bytes_read, down.bytes_written) == (14 * INNER + E * K * INNER, 2 * 7 * K)
    tile = counted(
        "aiter::moe_cktile2stages_gemm1_ck", bf16(7, K), bf16(E, 2 * INNER, K), bf16(7, TOP, INNER), int32(9), int32(9), int32(1), TOP
    )
    assert tile.work.matrix_flops == up.matrix_flops


# --- products of sorted rows ---------------------------------------------------------------------------------------------------------


def test_grouped_products_of_sorted_rows():
    rows = 4
    offsets = (int32(E), int32(E, 3), int64(E), int64(E), int64(E), True, True)
    args = (bf16(rows, 2 * INNER), fp8(rows, K), fp8(E, K, 2 * INNER), fp32(rows, 1), fp32(E, 2 * INNER, 1), *offsets)
    work = counted("_C::cutlass_moe_mm", *args).work
    assert work.matrix_flops == 2 * rows * K * 2 * INNER
    assert work.bytes_read == rows * K + 4 * rows + 4 * (K * 2 * INNER + 4 * 2 * INNER)
    assert work.bytes_written == 2 * rows * 2 * INNER
    pointers = (int64(E),) * 5
    same = counted("sgl_kernel::fp8_blockwise_scaled_grouped_mm", args[0], *pointers, *args[1:5], *offsets[2:5]).work
    assert same == work


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


def test_a_shape_that_no_layer_has_is_not_counted():
    assert reason("vllm::inplace_fused_experts", bf16(7, K), bf16(E, K), bf16(E, K), fp32(7, 2), int32(7, 2)) == (
        "shapes of the experts not understood"
    )


T, E, TOP, KA, MID = 7, 6, 2, 64, 24
ROWS = T * TOP


def test_products():
    weights = E * 2 * MID * KA
    first = (fp8(T, KA), fp8(E, 2 * MID, KA), fp8(E, KA, MID), int32(99), int32(9), int32(2), bf16(T, TOP, MID), MID, None, 32, 0,
             0, 2, fp32(T, 1), fp32(E, 1))  # fmt: skip
    made = figures("aiter::moe_stage1_g1u1", *first)
    assert made == (2 * ROWS * 2 * MID * KA, 15 * ROWS * MID, T * KA + weights + 4 * E + 4 * T, 2 * ROWS * MID, "fp8")
    assert "experts of a token" in reason("aiter::moe_stage1_g1u1", *first[:6], bf16(ROWS, MID), *first[7:])
    opus = (fp8(T, KA), uint8(E, 2 * MID, KA // 2), uint8(T, 2), uint8(E, 2 * MID, 2), None, int32(99), int32(9), int32(2),
            fp8(T, TOP, MID), uint8(99), TOP, 32, None, 0, 0, 0.0, 1.0, 1.0)  # fmt: skip
    work = counted("aiter::_opus_moe_stage1_a8w4_fwd_raw", *opus).work
    assert (work.matrix_flops, work.other_flops) == (2 * ROWS * 2 * MID * KA, 15 * ROWS * MID)
    assert work.bytes_read == T * KA + weights // 2 + 2 * T + E * 2 * MID * 2
    assert (work.bytes_written, work.assumption) == (ROWS * MID, SPREAD)
    second = (fp8(ROWS, MID), uint8(E, KA, MID // 2), uint8(ROWS, 1), uint8(E, KA, 1), int32(99), fp32(99), int32(9), int32(2),
              bf16(T, KA), T, TOP, 32, 0, 0)  # fmt: skip
    work = counted("aiter::_opus_moe_stage2_a8w4_decode_fwd_raw", *second).work
    assert (work.matrix_flops, work.other_flops) == (2 * ROWS * MID * KA, 0)
    assert work.bytes_read == ROWS * MID + E * KA * MID // 2 + ROWS + E * KA


def test_atoms_layer_is_aiters():
    args = (bf16(T, KA), bf16(E, 2 * MID, KA), bf16(E, KA, MID), fp32(T, TOP), int32(T, TOP), None, 0, 0)
    outcome = counted("aiter::rocm_aiter_fused_moe", *args)
    assert outcome.decomposes
    assert outcome.work == counted("aiter::fused_moe_", *args).work
    assert outcome.work.matrix_flops == 2 * ROWS * 3 * MID * KA
