"""Steps that generate text: latencies of tokens, phases on their own clocks, and what decode reads of a real model."""

import msgspec
import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch.profiler import ProfilerActivity, profile

import rooflines
from rooflines import generating
from rooflines.profiler.read.reader import read
from rooflines.profiler.records import Environment, GenerationSizes, Run, RunFile, StepTimes, Workload
from rooflines.profiler.tree.external_trace import run_of_trace
from rooflines.profiler.workloads.causal_models import generation_sizes
from rooflines.roofline.analyze import analyze
from rooflines.roofline.judge.judge import judge_times
from rooflines.roofline.judge.shapes import repeated
from rooflines.roofline.judge.step.generation import token_latency
from tests.roofline.rooms import analyzed
from tests.traces import kernel, launch, mm, span, trace

MS = 1_000_000
LAYERS, WIDTH, HEADS, VOCABULARY, POSITIONS = 2, 32, 2, 61, 40
BATCH, PROMPT, NEW = 2, 7, 6
FP32 = 4


def ready(*gaps_ms):
    """When tokens were ready whose gaps are these."""
    return np.cumsum(gaps_ms) / 1e3


def test_latencies_of_two_generations():
    latency = token_latency([ready(10, 2, 3, 4), ready(14, 2, 3, 10)], prompt_length=5)
    assert (latency.generations, latency.gaps) == (2, 6)
    assert latency.ttft_s == pytest.approx((10 + 14) / 2 / 1e3)
    # t(0.975, 1) = 12.706 times the standard error (14 - 10) / 2 around the median, and no time is negative.
    assert latency.ttft_ci95_s == pytest.approx((0.0, 12e-3 + 12.7062 * 2e-3))
    gaps = [2, 3, 4, 2, 3, 10]
    assert latency.itl_median_s == pytest.approx(np.percentile(gaps, 50) / 1e3)
    assert (latency.itl_p90_s, latency.itl_p99_s) == (None, None)
    # The generations take 19 and 29 ms, of which the first tokens are 10 and 14.
    assert (latency.whole_s, latency.prefill_share) == (pytest.approx(24e-3), pytest.approx(24 / 48))
    # The mean gap of a generation is (last - first) / (tokens - 1).
    assert latency.tpot_s == pytest.approx(((2 + 3 + 4) / 3 + (2 + 3 + 10) / 3) / 2 / 1e3)
    # The step after the prompt attends to it and to its own token.
    assert latency.context == (6, 7, 8)
    assert latency.median_s == pytest.approx((2e-3, 3e-3, 7e-3))
    assert latency.p25_s[2] == pytest.approx(np.percentile([4, 10], 25) / 1e3)
    assert latency.growth_s_per_token is None


@pytest.mark.parametrize(("number", "has_p90", "has_p99"), [(19, 0, 0), (20, 1, 0), (99, 1, 0), (100, 1, 1)])
def test_a_percentile_needs_gaps_above_it(number, has_p90, has_p99):
    gaps = np.arange(1.0, number + 1)
    latency = token_latency([ready(10, *gaps)], prompt_length=5)
    for found, share, is_known in ((latency.itl_p90_s, 90, has_p90), (latency.itl_p99_s, 99, has_p99)):
        assert found == (pytest.approx(np.percentile(gaps, share) / 1e3) if is_known else None)


def test_one_token_has_no_gaps_and_no_generation_no_latency():
    only = token_latency([ready(10)], prompt_length=5)
    assert (only.ttft_s, only.ttft_ci95_s, only.itl_median_s, only.tpot_s, only.context) == (0.01, None, None, None, ())
    assert token_latency([], prompt_length=5) is None


def test_growth_is_said_where_it_is_larger_than_the_noise():
    noise = np.random.default_rng(0).normal(0, 0.01, (6, 30))
    grows = [ready(10, *(2 + 0.05 * np.arange(30) + one)) for one in noise]
    latency = token_latency(grows, prompt_length=5)
    low, high = latency.growth_ci95_s
    assert low < 0.05e-3 < high
    assert low < latency.growth_s_per_token < high
    same = [ready(10, *(2 + one)) for one in noise]
    assert token_latency(same, prompt_length=5).growth_s_per_token is None
    # A gap that something delayed is no growth.
    delayed = [np.concatenate((same[0][:-1], [same[0][-1] + 1])), *same[1:]]
    assert token_latency(delayed, prompt_length=5).growth_s_per_token is None


def generated(at, number):
    """A step of 100 µs: prefill of 30 µs behind 10 µs of Python, and two decode steps of 20 µs with 10 µs before each."""
    return [
        span(f"ProfilerStep#{number}", at, 100),
        span("rooflines.prefill: requests=1&tokens=4&keys=4", at + 10, 30), mm(at + 15, 20, 4, 8, 8),
        span("rooflines.decode: requests=1&tokens=1&keys=5", at + 50, 20), mm(at + 55, 10, 1, 8, 8),
        span("rooflines.decode: requests=1&tokens=1&keys=6", at + 80, 20), mm(at + 85, 10, 1, 8, 8),
    ]  # fmt: skip


def run_of(directory, tokens_ns, *, steps=3, **facts):
    path = directory / "trace.json"
    events = [event for number in range(steps) for event in generated(100 * number, number)]
    path.write_text(msgspec.json.encode({"schemaVersion": 1, "traceEvents": events}).decode())
    times = StepTimes(timed_ns=(100_000,) * len(tokens_ns), traced_ns=(100_000,) * steps, timed_token_ns=tuple(tokens_ns))
    workload = Workload(name="m", mode="generate", batch_size=1, prompt_length=4, new_tokens=3)
    return Run(
        directory=directory,
        facts=RunFile(workload=workload, environment=Environment(rooflines="0", device="cpu", device_name="c"), steps=times,
                      trace=path.name, status="complete", **facts),
    )  # fmt: skip


def test_phases_are_on_the_clock_of_their_tokens(tmp_path):
    # As traced prefill takes 40 µs and a decode step 30; without the profiler they take 60 and 20.
    analysis = analyze(run_of(tmp_path, [(60_000, 80_000, 100_000)] * 5), ceilings=None).analysis
    prefill, decode = analysis.generation.phases
    assert (prefill.kind, prefill.steps, prefill.tokens, prefill.keys) == ("prefill", 3, 4, 4)
    assert (decode.kind, decode.steps, decode.tokens, decode.keys) == ("decode", 6, 1, 5.5)
    assert (prefill.step_s, decode.step_s) == (pytest.approx(60e-6), pytest.approx(20e-6))
    assert (prefill.busy_s, decode.busy_s) == (pytest.approx(20e-6 * 60 / 40), pytest.approx(10e-6 * 20 / 30))
    assert decode.tokens_per_s == pytest.approx(1 / 20e-6)
    # The parts are the step, and so are the phases.
    division = analysis.division
    assert division.prefill_s + division.decode_s + division.host_s == pytest.approx(division.step_s)
    assert (division.prefill_s, division.decode_s) == (pytest.approx(prefill.busy_s), pytest.approx(2 * decode.busy_s))
    assert prefill.step_s + 2 * decode.step_s == pytest.approx(division.step_s)
    assert sum(row.time_s for row in analysis.operators) == pytest.approx(division.prefill_s + division.decode_s)
    assert prefill.work.flops + 2 * decode.work.flops == analysis.totals.flops == 2 * 4 * 8 * 8 + 2 * (2 * 8 * 8)
    assert analysis.generation.tokens_per_s == pytest.approx(3 / 100e-6)


def test_phases_add_up_to_a_generation(tmp_path):
    # Of the medians, prefill is that of one generation and decode that of another one: 60 + 2 * 30 is none of 100, 80 and 140.
    ready_ns = [(60_000, 80_000, 100_000), (20_000, 50_000, 80_000), (80_000, 110_000, 140_000)]
    prefill, decode = analyze(run_of(tmp_path, ready_ns), ceilings=None).analysis.generation.phases
    assert prefill.step_s + 2 * decode.step_s == pytest.approx(100e-6)
    assert prefill.step_s == pytest.approx(100e-6 * (60 + 20 + 80) / (100 + 80 + 140))


def test_without_token_times_the_trace_tells(tmp_path):
    analysis = analyze(run_of(tmp_path, []), ceilings=None).analysis
    assert analysis.generation.latency is None
    prefill, decode = analysis.generation.phases
    assert (prefill.step_s, decode.step_s) == (pytest.approx(40e-6), pytest.approx(30e-6))


def test_a_run_without_a_trace_has_latencies_only(tmp_path):
    found = judge_times(run_of(tmp_path, [(60_000, 80_000, 100_000)] * 5), None).analysis.generation
    assert found.latency.ttft_s == pytest.approx(60e-6)
    assert found.phases == ()


def test_what_fits_into_memory(tmp_path):
    sizes = GenerationSizes(parameters=10, parameter_bytes=40, kv_bytes_per_token=8, kv_bytes=48)
    run = run_of(tmp_path, [(60_000, 80_000, 100_000)] * 5, generation_sizes=sizes)
    environment = replace(run.facts.environment, memory_bytes=1000)
    run = replace(run, facts=replace(run.facts, environment=environment))
    fits = analyze(run).analysis.generation.fits
    assert fits.requests == (1000 - 40) // (8 * (4 + 3 - 1))
    assert fits.context == (1000 - 40) // 8
    limited = replace(run.facts, generation_sizes=replace(sizes, longest_context=60))
    assert analyze(replace(run, facts=limited)).analysis.generation.fits == replace(fits, context=60)
    windows = replace(run.facts, generation_sizes=replace(sizes, kv_windows=((3, 6),)))
    fits = analyze(replace(run, facts=windows)).analysis.generation.fits
    # 2 bytes of every token, and 6 of three tokens
    assert (fits.requests, fits.context) == (960 // (2 * 6 + 6 * 3), (960 - 6 * 3) // 2)
    small = replace(environment, memory_bytes=30)
    run = replace(run, facts=replace(run.facts, environment=small))
    assert analyze(run).analysis.generation.fits is None


def test_a_call_of_a_phase_lasts_until_the_device_has_done_what_it_launched(tmp_path):
    events = [
        span("ProfilerStep#0", 0, 100),
        span("rooflines.prefill: requests=1&tokens=4&keys=4", 0, 20), mm(5, 5, 4, 8, 8), launch(6, 2, 1), kernel("gemm", 10, 30, 1),
        # The host launches decode while the device is at prefill.
        span("rooflines.decode: requests=1&tokens=1&keys=5", 20, 10), mm(22, 5, 1, 8, 8), launch(23, 2, 2), kernel("gemm", 40, 15, 2),
    ]  # fmt: skip
    prefill, decode = analyzed(tmp_path, *events).generation.phases
    assert (prefill.step_s, prefill.busy_s) == (pytest.approx(40e-6), pytest.approx(30e-6))
    assert (decode.step_s, decode.busy_s) == (pytest.approx(15e-6), pytest.approx(15e-6))


def test_without_steps_a_generation_begins_with_its_prefill(tmp_path):
    events = [event for number in (0, 1) for event in generated(1000 * number, number) if "ProfilerStep" not in event["name"]]
    prefill, decode = analyzed(tmp_path, mm(-500, 5, 4, 8, 8), *events).generation.phases
    assert (prefill.steps, prefill.step_s) == (2, pytest.approx(30e-6))
    assert (decode.steps, decode.step_s) == (4, pytest.approx(30e-6))


def test_traces_without_marks_have_no_generation(tmp_path):
    assert analyzed(tmp_path, span("ProfilerStep#0", 0, 100), mm(5, 20, 4, 8, 8)).generation is None
    assert trace(*generated(0, 0)).names  # marks are ranges and no operators
    assert not [row for row in analyzed(tmp_path, *generated(0, 0)).rows if row.name.startswith("rooflines.")]


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    """A small model of GPT-2's architecture, the trace of one generation of it, and its KV cache at the end."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"n_layer": LAYERS, "n_embd": WIDTH, "n_head": HEADS, "vocab_size": VOCABULARY, "n_positions": POSITIONS}
    config = transformers.GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config).eval()
    prompt = torch.randint(0, VOCABULARY, (BATCH, PROMPT))
    with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        with generating("prefill", requests=BATCH, tokens=BATCH * PROMPT, keys=BATCH * PROMPT):
            found = model(prompt, use_cache=True)
            token = found.logits[:, -1:].argmax(-1)
        for keys in range(PROMPT + 1, PROMPT + NEW):
            with generating("decode", requests=BATCH, tokens=BATCH, keys=BATCH * keys):
                found = model(token, past_key_values=found.past_key_values, use_cache=True)
                token = found.logits[:, -1:].argmax(-1)
    path = tmp_path_factory.mktemp("generation") / "trace.json"
    recorded.export_chrome_trace(str(path))
    return model, path, found.past_key_values


def test_decode_reads_the_parameters_and_the_kv_cache_to_the_byte(small_model):
    model, path, cache = small_model
    decode = rooflines.analyze(path).generation.of("decode")
    # All weights, of which the head's are those of the embedding, but for positions and norms, which no product reads.
    every = sum(parameter.nbytes for parameter in model.parameters())
    norms = (2 * LAYERS + 1) * 2 * WIDTH * FP32
    assert decode.reads.weight_bytes == every - POSITIONS * WIDTH * FP32 - norms
    per_token = 2 * LAYERS * WIDTH * FP32
    mean_keys = sum(range(PROMPT + 1, PROMPT + NEW)) / (NEW - 1)
    assert decode.reads.kv_cache_bytes == per_token * BATCH * mean_keys
    # The tensors themselves hold as much at the end.
    sizes = generation_sizes(model, cache)
    assert (sizes.parameter_bytes, sizes.kv_bytes_per_token) == (every, per_token)
    assert sizes.kv_bytes == per_token * BATCH * (PROMPT + NEW - 1)


def test_decode_reads_no_more_weights_than_there_are(small_model):
    """A product may read a copy of packed weights in a wider type."""
    _, path, _ = small_model
    run = run_of_trace(path, read(path))
    sizes = GenerationSizes(parameters=1, parameter_bytes=1000)
    packed = analyze(replace(run, facts=replace(run.facts, generation_sizes=sizes)), trace=read(path)).analysis
    assert packed.generation.of("decode").reads.weight_bytes == 1000


def test_phases_of_a_real_model_sum_to_the_whole(small_model):
    analysis = rooflines.analyze(small_model[1])
    found = analysis.generation
    assert (found.requests, found.prompt_length, found.new_tokens) == (BATCH, PROMPT, NEW)
    for figure in ("flops", "bytes", "time_s"):
        parts = sum(phase.steps * getattr(phase.work, figure) for phase in found.phases)
        assert parts == pytest.approx(sum(getattr(row, figure) for row in analysis.operators if row.phase in ("prefill", "decode")))
    # Causal attention computes the keys that a token sees: 2 FLOPs for each of two products.
    products = 2 * (12 * WIDTH**2 * LAYERS + WIDTH * VOCABULARY)
    assert found.of("decode").work.flops >= BATCH * products


def test_the_bound_of_decode_is_at_the_rate_of_the_memory(small_model):
    given = rooflines.analyze(small_model[1], ceilings="RTX 4090").generation.of("decode")
    reads = given.reads
    assert reads.lower_bound_s is not None
    assert reads.efficiency == pytest.approx(reads.lower_bound_s / given.step_s)


def test_calls_whose_tensors_grow_are_one_row_of_a_table(small_model):
    analysis = rooflines.analyze(small_model[1])
    every = [row for row in analysis.operators if row.phase == "decode" and "attention" in row.name]
    assert len({row.shapes for row in every}) == NEW - 1
    groups = repeated(every, analysis)
    assert [sum(row.calls for row in group) for group in groups] == [LAYERS * (NEW - 1) if any(row.module for row in every)
                                                                    else sum(row.calls for row in every)]  # fmt: skip


def test_only_sizes_that_grow_together_are_one_row(small_model):
    analysis = rooflines.analyze(small_model[1])
    row = next(row for row in analysis.operators if row.phase == "decode")

    def product(shapes):
        return replace(row, name="aten::bmm", module="h.0.attn", shapes=shapes, calls=1, flops=1, bytes=1)

    scores = [product(f"2x1x16, 2x16x{keys}") for keys in (8, 9, 10)]
    values = [product(f"2x1x{keys}, 2x{keys}x16") for keys in (8, 9, 10)]
    groups = repeated([*scores, *values], analysis)
    assert [[one.shapes for one in group] for group in groups] == [[one.shapes for one in each] for each in (scores, values)]
    # A product that every step makes is one of its own.
    whole = [replace(one, calls=NEW - 1) for one in scores]
    assert len(repeated(whole, analysis)) == 3
