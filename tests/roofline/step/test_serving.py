"""The steps of a server by kind: rates, the lengths of marked sequences, what decode must read, and graphs."""

import json

import pytest

from rooflines.profiler.read.signature import TensorArg
from rooflines.roofline.count.formulas import Work
from rooflines.roofline.count.formulas.registry import enter
from tests.roofline import rooms
from tests.roofline.rooms import runtime
from tests.traces import kernel, launch, mm, op, span

ATTENTION = "servertest::attention"
HEADS, DEPTH, FP32 = 2, 8, 4
DECODE = "execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq4sk90sqsq4sqsk90)"
LONGER = "execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq4sk94sqsq4sqsk94)"
PREFILL = "execute_10_context_2(sq10sk10sqsq52sqsk52)_generation_0(sq0sk0sqsq0sqsk0)"


def attention(signature, hints):
    query, known = signature.tensors[0], hints.sequences
    assert isinstance(query, TensorArg)
    if known is None or known.queries > query.shape[0]:
        return Work(query.numel, 0, query.nbytes, 0, "fp32", assumption="lengths not recorded")
    pairs, row = known.causal_pairs, HEADS * DEPTH * FP32
    return Work(4 * HEADS * DEPTH * pairs, 0, known.queries * row + 2 * known.keys * DEPTH * FP32, 0, "fp32")


enter((ATTENTION,), "attention", attention, False, "user")


def attend(ts, tokens):
    cache = [100, 1, DEPTH]
    return op(ATTENTION, ts, 10, dims=[[tokens, HEADS, DEPTH], cache, cache], types=["float"] * 3)


def step(mark, at, tokens, number, *, lasts=40, plain=False):
    """A mark with a product and attention over ``tokens`` padded ones: two kernels of ``lasts`` µs."""
    return [
        span(mark, at, 60),
        mm(at + 5, 10, tokens, 16, 32), launch(at + 6, 2, number), kernel("gemm", at + 20, lasts, number),
        *([] if plain else [attend(at + 20, tokens)]), launch(at + 21, 2, number + 1),
        kernel("attention", at + 20 + lasts, lasts, number + 1),
    ]  # fmt: skip


def analyzed(tmp_path, *events):
    listed = [event for one in events for event in (one if isinstance(one, list) else [one])]
    return rooms.analyzed(tmp_path, *listed, ceilings="MI300X")


def test_rates_are_over_the_time_of_the_device(tmp_path):
    analysis = analyzed(tmp_path, step(DECODE, 0, 8, 1), step(LONGER, 100, 8, 3), step(PREFILL, 200, 10, 5, lasts=100))
    prefill, decode = analysis.serving.kinds
    assert (prefill.kind, prefill.steps, prefill.requests, prefill.tokens, prefill.keys) == ("prefill", 1, 2, 10, 10)
    assert (decode.kind, decode.steps, decode.requests, decode.tokens, decode.keys) == ("decode", 2, 4, 4, 92)
    # A decode step lasts from its mark, or the end of the work before, to the end of its second kernel.
    assert (decode.step_s, decode.busy_s) == (pytest.approx(100e-6), pytest.approx(80e-6))
    assert decode.tokens_per_s == decode.generated_per_s == pytest.approx(4 / 100e-6)
    assert prefill.step_s == pytest.approx(220e-6)
    assert prefill.generated is None
    assert analysis.serving.generated_per_s == pytest.approx(8 / 420e-6)
    for one in analysis.serving.kinds:
        assert sum(one.category_breakdown.values()) == pytest.approx(one.step_s)
    assert decode.category_breakdown["attention"] == pytest.approx(40e-6)
    assert (analysis.basis.per, analysis.basis.steps) == ("step", 3)


def test_a_mark_with_work_of_another_step_in_it_gives_no_rate(tmp_path):
    """Each mark begins when the first kernel of the step before has run, as with an overlapped scheduler."""
    analysis = analyzed(tmp_path, *(step(DECODE, 60 * i, 8, 2 * i + 1) for i in range(4)))
    (decode,) = analysis.serving.kinds
    assert (decode.steps, decode.tokens_per_s, decode.rate_doubt) == (4, None, "marks overlap the work of other steps")
    assert decode.tokens_per_s_range == pytest.approx((4 / decode.step_s, 4 / decode.busy_s))
    assert analysis.serving.generated_per_s is None


def test_attention_has_the_lengths_of_its_own_step(tmp_path):
    analysis = analyzed(tmp_path, step(DECODE, 0, 8, 1), step(LONGER, 100, 8, 3), step(PREFILL, 200, 10, 5))
    rows = {row.flops: row for row in analysis.operators if row.name == ATTENTION}
    # Decode: one pair for each key. Prompts of 4 and 6 tokens: 10 + 21 pairs. Rows are per step, the mean over three, and of one kind.
    assert set(rows) == {4 * HEADS * DEPTH * pairs / 3 for pairs in (90 + 94, 31)}
    assert all(row.inferred and row.assumption is None for row in rows.values())
    prefill, decode = analysis.serving.kinds
    assert prefill.attention.flops == 4 * HEADS * DEPTH * 31
    assert decode.attention.flops == 4 * HEADS * DEPTH * 92
    assert decode.attention.intensity_flop_per_byte == pytest.approx(decode.attention.flops / decode.attention.bytes)
    assert decode.attention.lower_bound_s == pytest.approx(decode.attention.efficiency * decode.attention.time_s)


def test_rows_do_not_grow_with_the_steps(tmp_path):
    """Each decode step has longer sequences than the one before."""
    marks = [f"execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq4sk{keys}sqsq4sqsk{keys})" for keys in range(10, 40)]
    analysis = analyzed(tmp_path, *(step(mark, 100 * number, 8, 2 * number + 1) for number, mark in enumerate(marks)))
    (row,) = [row for row in analysis.operators if row.name == ATTENTION]
    assert (row.calls, row.flops) == (1, pytest.approx(4 * HEADS * DEPTH * 24.5, abs=1))
    assert analysis.serving.kinds[0].keys == 24.5


def test_calls_for_a_part_of_a_mixed_batch_have_the_lengths_of_that_part(tmp_path):
    """Many backends compute the prompts and the requests in decode of a mixed step in two calls."""
    mixed = "execute_14_context_2(sq10sk10sqsq52sqsk52)_generation_4(sq4sk90sqsq4sqsk90)"
    events = [span(mixed, 0, 90), mm(5, 5, 14, 16, 32), launch(6, 2, 1), kernel("gemm", 20, 9, 1)]
    for number, tokens in enumerate((10, 4), 2):
        events += [attend(10 * number, tokens), launch(10 * number + 1, 2, number), kernel("attention", 20 * number, 9, number)]
    analysis = analyzed(tmp_path, events)
    flops = {row.shapes.split(",")[0]: row.flops for row in analysis.operators if row.name == ATTENTION}
    assert flops == {"10x2x8": 4 * HEADS * DEPTH * 31, "4x2x8": 4 * HEADS * DEPTH * 90}
    (step_of,) = analysis.serving.kinds
    assert (step_of.kind, step_of.tokens, step_of.generated) == ("mixed", 14, 4)


def counted_call(tmp_path, mark, name, dims, types, values):
    """The FLOPs of one call in the step with this mark."""
    call = op(name, 20, 10, dims=dims, types=types, concrete=values)
    (row,) = analyzed(tmp_path, span(mark, 0, 90), call, launch(21, 2, 2), kernel("attention", 40, 9, 2)).operators
    return row.flops


def test_paged_attention_on_rocm_has_the_decodes_of_a_mixed_step(tmp_path):
    """It is called with all tokens, told where queries start, and leaves the prefill of 100 tokens to another kernel."""
    mixed = "execute_102_context_1(sq100sk100sqsq10000sqsk10000)_generation_2(sq2sk1000sqsq2sqsk1000)"
    half, partial = [102, 8, 64], [[3, 8, 2], [3, 8, 2], [3, 8, 2, 64]]
    dims = [half, *partial, half, [1000, 2, 8, 16, 8], [1000, 2, 64, 16], [], [], [3, 64], [3], [4], [], [], [], [], [1], [1]]
    brain, scalar = "c10::BFloat16", "Scalar"
    types = [brain, "float", "float", *[brain] * 4, scalar, scalar, "int", "int", "int", scalar, scalar, "", "", "float", "float"]
    values = [*[""] * 7, "2", "0.125", "", "", "", "16", "500", "", "", "", ""]
    assert counted_call(tmp_path, mixed, "_rocm_C::paged_attention", dims, types, values) == 8 * 1000 * (4 * 64 + 15)


@pytest.mark.parametrize(("sequences", "longest", "pairs"), [(8, ("1", "900"), 7200), (8, ("", ""), 7200), (1, ("8", "8"), 36)])
def test_parts_of_as_many_tokens_are_told_by_their_sequences(tmp_path, sequences, longest, pairs):
    """A prompt of 8 tokens, and 8 requests in decode with 7200 keys."""
    mixed = "execute_16_context_1(sq8sk8sqsq64sqsk64)_generation_8(sq8sk7200sqsq8sqsk7200)"
    cache = [1000, 16, 2, 64]
    dims = [[8, 8, 64], cache, cache, [], [sequences + 1], [], [sequences], [], [sequences, 60], *[[]] * 13]
    types = [*["c10::BFloat16"] * 3, "", "int", "", "int", "", "int", "", *["Scalar"] * 10, "", ""]
    values = [*[""] * 10, *longest, "0.", "0.125", "False", "True", "-1", "-1", "0.", "False", "", ""]
    flops = counted_call(tmp_path, mixed, "_vllm_fa2_C::varlen_fwd", dims, types, values)
    assert flops == 8 * pairs * (4 * 64 + 15)


def test_what_a_decode_step_must_read(tmp_path):
    analysis = analyzed(tmp_path, step(DECODE, 0, 8, 1), step(LONGER, 100, 8, 3), step(PREFILL, 200, 10, 5))
    prefill, decode = analysis.serving.kinds
    assert prefill.reads is None
    assert decode.reads.weight_bytes == 16 * 32 * FP32
    assert decode.reads.kv_cache_bytes == 2 * 92 * DEPTH * FP32, "without the queries, of which 4 of 8 are padding"
    memory = next(one for one in analysis.ceilings if one.kind == "memory" and one.capacity_bytes is None)
    assert decode.reads.lower_bound_s == pytest.approx((16 * 32 * FP32 + 2 * 92 * DEPTH * FP32) / memory.value)
    assert decode.reads.efficiency == pytest.approx(decode.reads.lower_bound_s / decode.step_s)


def test_reads_are_absent_without_lengths_or_with_products_that_are_not_counted(tmp_path):
    short = analyzed(tmp_path, step("step[DECODE bs=4]", 0, 8, 1))
    assert short.serving.kinds[0].reads is None, "the lengths are not marked"
    assert short.serving.kinds[0].attention.assumption == "lengths not recorded"
    graph = runtime("cudaGraphLaunch", 30, 2, 9)
    replayed = analyzed(tmp_path, step(DECODE, 0, 8, 1), graph, kernel("nvjet_hsh_64x8", 110, 50, 9))
    assert replayed.serving.kinds[0].reads is None
    assert replayed.serving.kinds[0].category_breakdown["matmul"] == pytest.approx(40e-6 + 50e-6), "by the kernel's name"
    assert replayed.serving.kinds[0].modeled_time_fraction == pytest.approx(1 - 50 / 130)
    small = analyzed(tmp_path, step(DECODE, 0, 8, 1), graph, kernel("sampling_kernel", 110, 50, 9))
    assert small.serving.kinds[0].reads is not None, "it reads neither weights nor the KV cache"


def test_drafts_leave_the_generated_tokens_unknown(tmp_path):
    analysis = analyzed(tmp_path, step("step[DECODE bs=4]", 0, 8, 1), step("step[TARGET_VERIFY bs=4]", 100, 8, 3))
    (decode,) = analysis.serving.kinds
    assert decode.generated is None
    assert decode.generated_per_s is None
    assert analysis.serving.generated_per_s is None


def test_a_step_waits_for_nothing_that_was_not_recorded(tmp_path):
    late = [{**one, "ts": one["ts"] + 5_000} if one["cat"] == "kernel" else one for one in step(DECODE, 0, 8, 1)]
    before = [op("aten::zero_", 1, 2, dims=[[8]], types=["float"]), launch(2, 1, 7), kernel("fill", 4, 1, 7)]
    (decode,) = analyzed(tmp_path, late, before).serving.kinds
    # The work was launched after 6 µs and began after 5,020: until then the device ran what the trace does not have.
    assert (decode.step_s, decode.busy_s) == (pytest.approx(80e-6), pytest.approx(80e-6))


def test_the_verdict_names_the_kind(tmp_path):
    analysis = analyzed(tmp_path, step(DECODE, 0, 8, 1))
    assert analysis.serving.kinds[0].padded_to == 8
    assert analysis.verdict.startswith(
        "Decode step (4 requests, padded to 8 tokens): 100 µs, of "
        "which the device is busy for 80.0 µs, 40,000 to 50,000 tokens/s (one step)."
    )
    both = analyzed(tmp_path, step(DECODE, 0, 8, 1), step(LONGER, 100, 8, 3), step(PREFILL, 200, 10, 5))
    assert "100,000 to 125,000 tokens/s (one step); 2 decode steps (4 requests, padded to 8 tokens): 100 µs a step" in both.verdict
    assert "the mean over these steps" in both.verdict


def test_a_trace_without_marks_has_no_section(tmp_path):
    analysis = analyzed(tmp_path, step("forward", 0, 8, 1))
    assert analysis.serving is None
    assert analysis.basis.per == "trace"
    row = next(row for row in analysis.operators if row.name == ATTENTION)
    assert (row.assumption, row.inferred) == ("lengths not recorded", None)


def test_eager_decode_is_advised_to_replay_graphs(tmp_path):
    slow = [{**one, "ts": one["ts"] + 700} if number > 3 else one for number, one in enumerate(step(DECODE, 0, 8, 1))]
    slow[0] = span(DECODE, 0, 900)
    found = {one.title: one for one in analyzed(tmp_path, slow).findings}
    assert "no kernel was launched by a graph" in found["Replay decode steps as graphs"].evidence
    assert "of the bound of its weights and KV cache" in found["Replay decode steps as graphs"].evidence
    graph = runtime("cudaGraphLaunch", 880, 2, 9)
    assert "Replay decode steps as graphs" not in {
        one.title for one in analyzed(tmp_path, slow, graph, kernel("k", 890, 5, 9)).findings
    }


def test_replayed_attention_has_the_lengths_of_the_replay(tmp_path):
    """A capture runs with lengths of its own, which are not those of the steps that replay it."""
    capture = [
        runtime("cudaStreamBeginCapture", 0, 2, 90), mm(5, 10, 8, 16, 32), launch(6, 2, 91), attend(20, 8), launch(21, 2, 92),
        runtime("cudaStreamEndCapture", 40, 2, 93),
    ]  # fmt: skip
    (tmp_path / "capture.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": capture}))
    events = []
    for number, mark in enumerate((DECODE, LONGER)):
        at = 100 * number
        replayed = [kernel("gemm", at + 20, 40, 9 + number), kernel("attention", at + 60, 40, 9 + number)]
        events += [span(mark, at, 60), runtime("cudaGraphLaunch", at + 5, 2, 9 + number), *replayed]
    analysis = rooms.analyzed(tmp_path, *events, ceilings="MI300X", capture=tmp_path / "capture.json")
    assert [row.flops for row in analysis.operators if row.name == ATTENTION] == [4 * HEADS * DEPTH * 92]
    (decode,) = analysis.serving.kinds
    assert decode.attention.flops == 4 * HEADS * DEPTH * 92
    assert (decode.reads.weight_bytes, decode.reads.kv_cache_bytes) == (16 * 32 * FP32, 2 * 92 * DEPTH * FP32)
    assert analysis.coverage.modeled_time_fraction == pytest.approx(1.0)
