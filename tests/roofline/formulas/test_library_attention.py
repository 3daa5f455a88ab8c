"""Attention of xformers, vLLM, SGLang, AITER, FlashMLA and TransformerEngine: calls as traces record them, and closed forms by hand."""

from __future__ import annotations

import pytest

from rooflines.profiler.read.signature import Signature, from_kineto
from rooflines.roofline.count.formulas import Work, count
from rooflines.roofline.count.formulas.costs import SOFTMAX
from rooflines.roofline.count.formulas.packed_attention import DECODES, LONGEST, NEW_ONLY, ONE, SERVED
from tests.roofline.formulas.by_hand import tensor
from tests.roofline.formulas.test_packed_attention import ends, sums, work

HALF = "bfloat16"


def recorded(name, dims, types, values, sequences=None):
    """The work of an event with these fields."""
    args = {"Input Dims": dims, "Input type": types, "Concrete Inputs": values}
    found = count(from_kineto(name, args), sequences=sequences)
    assert found.work is not None, found.reason
    return found.work


# --- AITER -------------------------------------------------------------------------------------------------------------------------

BF16 = "c10::BFloat16"


def batch_prefill(sequences=None, longest="1024", pages=15616):
    """Qwen3-8B in SGLang on MI300X: its mark is execute_15360_context_15(sq15360sk15360sqsq15728640sqsk15728640)."""
    dims = [[15360, 32, 128], [835874, 8, 128], [835874, 8, 128], [16], [16], [pages], *[[]] * 24]
    types = [BF16, BF16, BF16, "int", "int", "int", *["Scalar"] * 12, *[""] * 12]
    values = [
        *[""] * 6, longest, longest, "0.", "0.088388347648318447", "0.", "False", "True", "-1", "-1", "0", "False", "False", *[""] * 12,
    ]  # fmt: skip
    return recorded("aiter::mha_batch_prefill", dims, types, values, sequences)


def test_a_prefill_in_sglang_is_exact_without_and_with_its_mark():
    """15 prompts of 1024 tokens; the list of pages has room for 256 more."""
    meeting = 32 * 15 * (1024 * 1025 // 2)
    expected = Work(
        matrix_flops=4 * 128 * meeting,
        other_flops=meeting * (1 + SOFTMAX),
        bytes_read=2 * (15360 * 32 * 128 + 2 * 15360 * 8 * 128) + 4 * 16,
        bytes_written=2 * 15360 * 32 * 128,
        precision="bf16",
    )
    assert batch_prefill() == expected
    assert batch_prefill(sums(*[(1024, 1024)] * 15)) == expected


def test_a_prefill_of_prompts_with_a_prefix_needs_the_mark():
    """15 prompts of 1024 tokens, each after 3072; the list of pages has room for 256 more."""
    assert batch_prefill(longest="4096", pages=15 * 4096 + 256).assumption == LONGEST
    known = batch_prefill(sums(*[(1024, 4096)] * 15), longest="4096", pages=15 * 4096 + 256)
    assert known.matrix_flops == 4 * 128 * 32 * 15 * (1024 * 3072 + 1024 * 1025 // 2)
    assert (known.bytes_read, known.assumption) == (2 * (15360 * 32 * 128 + 2 * 15 * 4096 * 8 * 128) + 4 * 16, "")


def test_a_decode_in_a_captured_graph_has_its_buffers_only():
    """SGLang's profiler makes an operator of the function, whose numbers are not recorded."""
    dims = [[32, 32, 128], [10905190400], [32, 32, 128], *[[835874, 1, 8, 128]] * 2, [33], [20971520], [4096], [], [1], [1], []]
    types = [BF16, "unsigned char", BF16, BF16, BF16, "int", "int", "int", "", "float", "float", ""]
    name = "sglang_profiler::attention_paged_attention_ragged_100"
    alone = recorded(name, dims, types, [""] * 12)
    assert (alone.matrix_flops, alone.assumption) == (4 * 128 * 32 * 32, NEW_ONLY)
    known = recorded(name, dims, types, [""] * 12, sums(*[(1, 700)] * 31, (1, 33)))
    keys = 31 * 700 + 33
    assert (known.matrix_flops, known.bytes_read) == (4 * 128 * 32 * keys, 2 * (32 * 32 * 128 + 2 * keys * 8 * 128) + 2 * 4)
    assert (known.bytes_written, known.assumption) == (2 * 32 * 32 * 128, "")


def test_the_wrapper_of_a_counted_operator_is_not_counted():
    name = "sglang_profiler::mha__mha_batch_prefill_167"
    assert count(Signature(name, (tensor(15360, 32, 128),))).work is None


def test_attention_of_a_diffusion_model():
    """FLUX.1 in xDiT on MI300X: 768 tokens, no mask, the rows' sums returned."""
    q = [1, 768, 24, 128]
    values = ["", "", "", "0.", "0.088388347648318447", "False", "-1", "-1", "True", "False", "2", *[""] * 7]
    found = recorded("aiter::fmha_v3_fwd", [q, q, q, *[[]] * 15], [BF16] * 3 + ["Scalar"] * 8 + [""] * 7, values)
    assert (found.matrix_flops, found.bytes) == (4 * 128 * 24 * 768 * 768, 4 * 2 * 768 * 24 * 128 + 4 * 24 * 768)


def test_sage_attention_multiplies_in_8_bits():
    """The same model; the kernel is inductor's, and its arguments are those of the kernel: pointers, then strides."""
    q, scales, out = (
        tensor(1, 24, 768, 128, dtype="int8"),
        (tensor(1, 24, 3), tensor(1, 24, 6), tensor(1, 24, 128)),
        tensor(1, 24, 768, 128),
    )
    value = tensor(1, 24, 768, 128, dtype="float8_e4m3fnuz")
    found = work("sage_fwd_1", q, q, value, -1, *scales, 72, 3, 1, 144, 6, 1, 3072, 128, -1, out, -1, -1)
    assert (found.matrix_flops, found.bytes_read) == (4 * 128 * 24 * 768 * 768, 3 * 24 * 768 * 128 + 4 * 24 * (3 + 6 + 128))
    assert found.precision == "int8"
    turned = [tensor(1, 768, 24, 128, dtype=one.dtype) for one in (q, q, value)]
    assert work("sage_fwd_0", *turned, -1, *scales, *[0] * 8, -1, out).matrix_flops == found.matrix_flops


def test_sage_attention_converts_its_inputs_in_one_kernel():
    half, eighth, value = (tensor(1, 24, 768, 128, dtype=dtype) for dtype in (HALF, "int8", "float8_e4m3fnuz"))
    scales = tensor(1, 24, 3), tensor(1, 24, 6), tensor(1, 24, 128)
    found = count(Signature("sage_quant_kernel_0", (half, eighth, scales[0], half, eighth, scales[1], half, value, scales[2], 2359296)))
    numbers = 24 * 768 * 128
    assert found.work == Work(
        other_flops=(8 + 7 + 5) * numbers,
        bytes_read=3 * 2 * numbers + 4 * 24 * 128,
        bytes_written=3 * numbers + 4 * 24 * 9,
        precision="fp32",
    )


FIXED = (0.0, 0.3, True, -1, -1)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("aiter::mha_fwd", (*FIXED, False, False, None, None, None, None)),  # 2025
        ("aiter::mha_fwd", (*FIXED, 0, False, False, None, None, None, None)),  # with the size of a sink
        ("aiter::fmha_v3_fwd", (*FIXED, False, False, 2, None)),
    ],
)
def test_every_version_of_a_fixed_forward(name, options):
    q, k = tensor(2, 5, 6, 8, dtype=HALF), tensor(2, 7, 3, 8, dtype=HALF)
    found = work(name, q, k, k, *options)
    assert (found.matrix_flops, found.bytes_written) == (4 * 8 * 2 * 6 * (3 + 4 + 5 + 6 + 7), 2 * 2 * 5 * 6 * 8)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("aiter::mha_varlen_fwd", (0.0, 0.3, False, True, -1, -1, False, False, None, None)),  # April 2025
        ("aiter::mha_varlen_fwd", (0, 0.0, 0.3, 0.0, False, True, -1, -1, False, False, None, None)),
        ("aiter::mha_varlen_fwd", (0, 0.0, 0.3, 0.0, False, True, -1, -1, 0, False, False, None, None)),
        ("aiter::fmha_v3_varlen_fwd", (0, 0.0, 0.3, 0.0, False, True, -1, -1, False, False, 1, None, None)),
    ],
)
def test_every_version_of_a_packed_forward(name, options):
    q, k = tensor(15, 4, 8, dtype=HALF), tensor(21, 2, 8, dtype=HALF)
    found = work(name, q, k, k, ends(3), ends(3), 5, 7, *options)
    assert (found.matrix_flops, found.assumption) == (4 * 8 * 4 * 3 * 25, "")


@pytest.mark.parametrize("name", ["aiter::mha_bwd", "aiter::fmha_v3_bwd", "aiter::mha_varlen_bwd", "aiter::fmha_v3_varlen_bwd"])
def test_a_backward_is_five_products(name):
    packed = "varlen" in name
    q, k = (tensor(15, 4, 8), tensor(21, 2, 8)) if packed else (tensor(3, 5, 4, 8), tensor(3, 7, 2, 8))
    lengths = (ends(3), ends(3), 5, 7, 0.0, 0.3, False) if packed else (0.0, 0.3)
    found = work(name, q, q, k, k, q, tensor(3, 4, 5), *lengths, True, -1, -1, False, True, 1)
    assert found.matrix_flops == 5 * 2 * 8 * 4 * 3 * 25


@pytest.mark.parametrize(
    "options",
    [
        (1, 0.1, tensor(2, 3, 16, 512)),  # 2025
        (None, None, None, None, 1, 0.1, tensor(2, 3, 16, 512), tensor(2, 3, 16, 1), tensor(2, 16, 512, dtype=HALF)),
        (None, None, None, None, 1, 1, 1, 0.1, tensor(2, 3, 16, 512), tensor(2, 3, 16, 1), tensor(2, 16, 512, dtype=HALF)),
    ],
)
def test_every_version_of_latent_decoding_reads_the_cache_once(options):
    """Values are the first 512 of the 576 of a key."""
    pages = (ends(2), ends(2), tensor(40, dtype="int32"), tensor(2, dtype="int32"))
    q, cache = tensor(2, 16, 576, dtype=HALF), tensor(90, 1, 1, 576, dtype=HALF)
    found = work("aiter::mla_decode_stage1_asm_fwd", q, cache, *pages, *options, sequences=sums((1, 9), (1, 14)))
    assert (found.matrix_flops, found.bytes_read) == (2 * (576 + 512) * 16 * 23, 2 * 2 * 16 * 576 + 2 * 23 * 576 + 4 * 3)


# --- vLLM --------------------------------------------------------------------------------------------------------------------------


def layer(tokens, last=(), kind=BF16, sequences=None):
    """gpt-oss in vLLM on MI300X, where the cache is written before, and with 7 arguments on B200, where it is written inside."""
    dims = [[tokens, 64, 64], [tokens, 8, 64], [tokens, 8, 64], [tokens, 64, 64], [], [], [], *([[0]] if last else [])]
    types = [kind, BF16, BF16, BF16, "", "", "", *last]
    return recorded("vllm::unified_attention_with_output", dims, types, [""] * len(types), sequences)


KEY = 2 * 2 * 8 * 64  # bytes of a token's keys and values


def test_a_layer_with_the_lengths_of_its_step():
    """46 requests in a batch padded to 48: the mark has the tokens."""
    found = layer(48, last=(BF16,), sequences=sums(*[(1, 500)] * 45, (1, 21)))
    keys = 45 * 500 + 21
    assert (found.matrix_flops, found.bytes_read) == (4 * 64 * 64 * keys, 2 * 46 * 64 * 64 + keys * KEY)
    assert (found.bytes_written, found.assumption) == (2 * 46 * 64 * 64, SERVED)


def test_a_layer_that_also_writes_the_cache():
    found = layer(48, sequences=sums(*[(1, 500)] * 45, (1, 21)))
    assert found.bytes_read == 2 * 46 * 64 * 64 + (45 * 500 + 21) * KEY
    assert found.bytes_written == 2 * 46 * 64 * 64 + 46 * KEY


def test_queries_in_8_bits_have_a_cache_in_8_bits():
    found = layer(30, kind="c10::Float8_e4m3fn", sequences=sums((30, 100)))
    assert (found.precision, found.bytes_read) == ("fp8", 30 * 64 * 64 + 30 * KEY + 70 * KEY // 2)
    assert found.bytes_written == 2 * 30 * 64 * 64 + 30 * KEY // 2


def test_a_layer_without_a_mark_is_one_prompt():
    """Two marks of other steps: more tokens than there are."""
    for known in (None, sums((31, 31))):
        found = layer(30, last=(BF16,), sequences=known)
        assert (found.matrix_flops, found.assumption) == (4 * 64 * 64 * (30 * 31 // 2), f"{ONE}; {SERVED}")
    assert work("vllm::unified_attention", *[tensor(30, 4, 8)] * 3, None).matrix_flops == 4 * 8 * 4 * (30 * 31 // 2)


def test_layers_of_latent_attention_only_dispatch():
    arguments = (tensor(30, 16, 192), tensor(30, 512), tensor(30, 1, 64), tensor(30, 2048), None)
    assert count(Signature("vllm::unified_mla_attention_with_output", arguments)).kind == "composite"


def test_latent_decoding_through_vllm_is_that_of_aiter():
    """An outer operator, counted where the inner one is not recorded."""
    q, cache, out = tensor(2, 16, 576, dtype=HALF), tensor(90, 1, 576, dtype=HALF), tensor(2, 16, 512, dtype=HALF)
    pages, known = (ends(2), tensor(40, dtype="int32"), tensor(2, dtype="int32")), sums((1, 9), (1, 14))
    found = work("vllm::rocm_aiter_mla_decode_fwd", q, cache, out, ends(2), 1, *pages, 0.1, 0.0, sequences=known)
    assert (found.matrix_flops, found.bytes) == (2 * (576 + 512) * 16 * 23, 2 * 2 * 16 * (576 + 512) + 2 * 23 * 576 + 4 * 3)


def paged(name, more, extra=()):
    """[pages, heads, depth / 8, page, 8] and [pages, heads, depth, page]."""
    keys, values = tensor(100, 2, 4, 16, 8, dtype=HALF), tensor(100, 2, 32, 16, dtype=HALF)
    q, table = tensor(3, 6, 32, dtype=HALF), tensor(3, 10, dtype="int32")
    args = (q, *more, q, keys, values, 2, 0.1, table, tensor(3, dtype="int32"), *extra, 16, 90, None, None, tensor(1), tensor(1))
    return lambda sequences: work(name, *args, sequences=sequences)


@pytest.mark.parametrize(
    "call",
    [
        paged("_C::paged_attention_v1", ()),
        paged("_C::paged_attention_v2", (tensor(3, 6, 2), tensor(3, 6, 2), tensor(3, 6, 2, 32))),
        paged("_rocm_C::paged_attention", (tensor(3, 6, 2), tensor(3, 6, 2), tensor(3, 6, 2, 32))),
        paged("_rocm_C::paged_attention", (tensor(3, 6, 2), tensor(3, 6, 2), tensor(3, 6, 2, 32)), extra=(None,)),
    ],
)
def test_paged_attention_reads_the_tokens_of_its_sequences(call):
    found = call(sums((1, 33), (1, 90), (1, 5)))
    assert found.matrix_flops == 4 * 32 * 6 * 128
    read = found.bytes_read - 2 * 3 * 6 * 32 - 128 * 2 * 2 * 2 * 32
    assert read in (3 * 4, 3 * 4 + 2 * 4)  # the lengths, and the scales where the cache has some
    assert found.bytes_written == 2 * 3 * 6 * 32
    assert (call(None).matrix_flops, call(None).assumption) == (4 * 32 * 6 * 270, LONGEST)


def rocm_paged(sequences=None):
    """A prefill of 100 tokens and two decodes; the kernel is told where queries start, and serves the decodes only."""
    keys, values = tensor(1000, 2, 8, 16, 8, dtype=HALF), tensor(1000, 2, 64, 16, dtype=HALF)
    q, one = tensor(102, 8, 64, dtype=HALF), tensor(1)
    parts = (tensor(3, 8, 2), tensor(3, 8, 2), tensor(3, 8, 2, 64))
    return work(
        "_rocm_C::paged_attention", q, *parts, q, keys, values, 2, 0.125, tensor(3, 64, dtype="int32"), tensor(3, dtype="int32"),
        ends(3), 16, 500, None, None, one, one, sequences=sequences,
    )  # fmt: skip


def test_paged_attention_on_rocm_counts_the_decodes_of_a_mixed_step():
    decodes = rocm_paged(sums((1, 500), (1, 500)))
    assert (decodes.matrix_flops, decodes.assumption, decodes.bytes_written) == (4 * 8 * 64 * 1000, "", 2 * 2 * 8 * 64)
    mixed = rocm_paged(sums((100, 100), (1, 500), (1, 500)))
    assert mixed == rocm_paged(), "the sums of the whole step do not tell those of the decodes"
    assert (mixed.matrix_flops, mixed.assumption) == (4 * 8 * 64 * 3 * 500, f"{LONGEST}; {DECODES}")


# --- partial results, latent attention ---------------------------------------------------------------------------------------------


def test_joining_two_partial_results_reads_both():
    part, rows = tensor(7, 4, 32, dtype=HALF), tensor(4, 7)
    vllm = work("_C::merge_attn_states", part, rows, part, rows, part, rows, None)
    sglang = work("sgl_kernel::merge_state_v2", part, rows, part, rows, part, rows)
    assert vllm == sglang
    assert (vllm.bytes_read, vllm.bytes_written) == (2 * (2 * 7 * 4 * 32 + 4 * 28), 2 * 7 * 4 * 32 + 4 * 28)
    assert vllm.matrix_flops == 0


@pytest.mark.parametrize(("name", "more"), [("_C::sm100_cutlass_mla_decode", (tensor(3, 16),)), ("sgl_kernel::cutlass_mla_decode", ())])
def test_cutlass_decodes_latent_attention_from_two_parts_of_the_query(name, more):
    out, rest, cache = tensor(3, 16, 512, dtype=HALF), tensor(3, 16, 64, dtype=HALF), tensor(20, 128, 576, dtype=HALF)
    args = (out, *more, out, rest, cache, tensor(3, dtype="int32"), tensor(3, 4, dtype="int32"), tensor(1 << 20, dtype="uint8"), 0.1, 1)
    found = work(name, *args, sequences=sums((1, 33), (1, 90), (1, 5)))
    assert (found.matrix_flops, found.bytes_read) == (2 * (576 + 512) * 16 * 128, 2 * 3 * 16 * 576 + 2 * 128 * 576 + 3 * 4)


def flash_mla(name, *more, sequences=None):
    q, cache = tensor(3, 2, 16, 576, dtype=HALF), tensor(20, 64, 1, 576, dtype=HALF)
    lengths, table, schedule = tensor(3, dtype="int32"), tensor(3, 5, dtype="int32"), tensor(9, 8, dtype="int32")
    return work(name, q, cache, 512, lengths, table, 0.1, True, schedule, ends(3), *more, sequences=sequences)


@pytest.mark.parametrize("name", ["_flashmla_C::dense_decode_fwd", "sgl_kernel::dense_decode_fwd"])
def test_flash_mla_with_two_tokens_a_sequence(name):
    found = flash_mla(name, sequences=sums((2, 33), (2, 90), (2, 5)))
    assert found.matrix_flops == 2 * (576 + 512) * 16 * (32 + 33 + 89 + 90 + 4 + 5)
    assert found.bytes_read == 2 * 6 * 16 * 576 + 2 * 128 * 576 + 3 * 4
    assert flash_mla(name).assumption == LONGEST


def test_sglangs_layer_has_its_heads_in_one_dimension():
    """And says itself whether it writes the cache."""
    q, k, known = tensor(30, 32 * 128, dtype=HALF), tensor(30, 8, 128, dtype=HALF), sums((10, 50), (20, 20))
    writes = work("sglang::unified_attention_with_output", q, k, k, q, True, 5, sequences=known)
    assert writes.matrix_flops == 4 * 128 * 32 * (10 * 40 + 55 + 210)
    assert writes.bytes_read == 2 * 30 * 32 * 128 + 70 * 2 * 2 * 8 * 128
    reads = work("sglang::unified_attention_with_output", q, k, k, q, False, 5, sequences=known)
    assert writes.bytes_written - reads.bytes_written == 30 * 2 * 2 * 8 * 128


# --- xformers ----------------------------------------------------------------------------------------------------------------------


def test_flash_attention_in_xformers():
    q, k = tensor(15, 4, 8, dtype=HALF), tensor(21, 2, 8, dtype=HALF)
    packed = (ends(3), ends(3))
    two = work("xformers_flash::flash_fwd", q, k, k, *packed, None, 5, 7, 0.0, 0.3, True, -1, -1, False, None)
    third = work("xformers_flash3::flash_fwd", q, k, k, *packed, None, None, 5, 7, 0.0, 0.3, True)
    assert two == third
    assert two.matrix_flops == 4 * 8 * 4 * 3 * 25
    log_sum = tensor(4, 15)
    back = work(
        "xformers_flash::flash_bwd", False, q, q, k, k, q, log_sum, *packed, 5, 7, 0.0, 0.3, True, -1, -1, tensor(2, dtype="int64")
    )
    third_back = work("xformers_flash3::flash_bwd", False, q, q, k, k, q, log_sum, *packed, 5, 7, 0.3, True, -1, -1)
    assert back == third_back
    assert back.matrix_flops == 5 * 2 * 8 * 4 * 3 * 25


def test_memory_efficient_attention_in_xformers_is_that_of_torch():
    """Masks: 0 none, 1 causal from the upper left, 2 from the lower right."""
    q, k = tensor(2, 5, 4, 8, dtype=HALF), tensor(2, 7, 4, 8, dtype=HALF)
    for kind, meeting in ((0, 35), (1, 15), (2, 25)):
        cutlass = work("xformers::efficient_attention_forward_cutlass", q, k, k, None, None, None, None, None, 0.0, kind, True)
        ck = work(
            "xformers::efficient_attention_forward_ck", q, k, k, None, None, None, None, 0.0, True, kind, 0.3, None, None, None, None
        )
        assert cutlass == ck
        assert cutlass.matrix_flops == 4 * 8 * 2 * 4 * meeting
    torch = count(Signature("aten::_efficient_attention_forward", (q, k, k, None, None, None, None, None, 0.0, 2, True)))
    assert torch.work is not None
    assert torch.work.flops == cutlass.flops
    packed = tensor(1, 15, 4, 8, dtype=HALF)
    found = work("xformers::efficient_attention_forward_ck", *[packed] * 3, None, ends(3), ends(3), 5, 0.0, False, 2, 0.3, None, None)
    assert found.matrix_flops == 4 * 8 * 4 * 3 * 15


def test_backward_of_memory_efficient_attention_in_xformers():
    q, k, log_sum = tensor(2, 5, 4, 8, dtype=HALF), tensor(2, 7, 4, 8, dtype=HALF), tensor(2, 4, 32)
    one = work(
        "xformers::efficient_attention_backward_cutlass", q, q, k, k, None, q, None, None, 5, 7, log_sum, 0.0, None, None, 2, False
    )
    other = work(
        "xformers::efficient_attention_backward_ck", q, q, k, k, None, None, None, None, None, None, log_sum, q, 0.0, 1, 0, 2, 0.3, None
    )
    assert one == other
    assert one.matrix_flops == 5 * 2 * 8 * 2 * 4 * 25


# --- TransformerEngine -------------------------------------------------------------------------------------------------------------
