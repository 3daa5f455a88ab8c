"""The section of a generation: one row for each phase, sentences for what is known, and nothing for what is not."""

import pytest
from msgspec.structs import replace

from rooflines.profiler.records import GenerationSizes
from rooflines.reports.document import texts
from rooflines.reports.page import comparison, generation, run, serving
from rooflines.roofline.advise.verdict import verdict
from rooflines.roofline.compare.compare import compare
from rooflines.roofline.served_steps import DecodeReads, Generation, MemoryFit, ServedSteps, ServedWork, TokenLatency
from tests.printing import in_terminal
from tests.samples import analysis

LATENCY = TokenLatency(
    generations=9, ttft_s=0.126, ttft_ci95_s=(0.124, 0.128), whole_s=1.087, prefill_share=0.116, gaps=279,
    itl_median_s=0.0305, itl_p90_s=0.0322, itl_p99_s=0.0354,
    tpot_s=0.031, growth_s_per_token=20e-6, growth_ci95_s=(10e-6, 30e-6), context=(65, 66, 67), median_s=(0.030, 0.031, 0.032),
    p25_s=(0.029, 0.030, 0.031), p75_s=(0.031, 0.032, 0.033),
)  # fmt: skip
WORK = ServedWork(time_s=0.02, flops=4e9, bytes=1e9, lower_bound_s=0.002, efficiency=0.1)
READS = DecodeReads(weight_bytes=494e6, kv_cache_bytes=6e6, lower_bound_s=0.004, efficiency=0.13)
PREFILL = ServedSteps(
    kind="prefill", steps=2, requests=1, tokens=64, keys=64, step_s=0.126, busy_s=0.12, tokens_per_s=508,
    category_breakdown={"matmul": 0.12, "idle": 0.006}, work=WORK,
)  # fmt: skip
DECODE = ServedSteps(
    kind="decode", steps=62, requests=1, tokens=1, generated=1, keys=80, step_s=0.031, busy_s=0.027, tokens_per_s=32.3,
    category_breakdown={"matmul": 0.027, "idle": 0.004}, work=WORK, reads=READS, parts={"MLP": WORK, "attention": WORK},
)  # fmt: skip
SIZES = GenerationSizes(parameters=124_000_000, parameter_bytes=498_000_000, kv_bytes_per_token=73_728, kv_bytes=7_004_160)
FULL = Generation(
    requests=1, prompt_length=64, new_tokens=32, sizes=SIZES, latency=LATENCY, tokens_per_s=29.8, tokens_per_j=0.5,
    fits=MemoryFit(memory_bytes=24 << 30, requests=3537, context=336_083), phases=(PREFILL, DECODE),
)  # fmt: skip
NOTHING = Generation(requests=2, prompt_length=64, new_tokens=32)


def generated(found):
    return replace(analysis(), generation=found)


def table_of(found, name):
    blocks = generation.generation_section(generated(found)).blocks
    return next((block for block in blocks if getattr(block, "name", "") == name), None)


def test_a_phase_is_a_row_with_the_larger_of_its_bounds():
    found = texts(table_of(FULL, "generation-steps"))
    assert [row[0] for row in found.rows] == ["prefill", "decode"]
    # Each with its own prefix, because prefill and decode lie far apart.
    shown = [dict(zip(found.titles(), row, strict=True)) for row in found.rows]
    assert [(row["time"], row["tokens/s"], row["bound"]) for row in shown] == [
        ("126 ms", "508", "2.00 ms"), ("31.0 ms", "32.3", "4.00 ms")
    ]  # fmt: skip
    # Two generations: 2 calls of 126 ms and 62 of 31 ms.
    assert [row["share %"] for row in shown] == ["11.6", "88.4"]
    # Decode must read for 4 ms, which is more than the 2 ms of its operators.
    assert serving.bound_of(DECODE) == 0.004
    assert serving.bound_of(PREFILL) == 0.002
    assumed = replace(READS, assumption="all experts")
    assert serving.bound_of(replace(DECODE, reads=assumed)) == 0.002


def test_what_is_known_is_said():
    text = " ".join(generation.generation_sentences(generated(FULL)))
    for words in (
        "Time to first token: 126 ms (median of 9 generations", "median 30.5 ms, 90 % below 32.2 ms, 99 % below 35.4 ms (279 gaps)",
        "A token of context adds 20.0 µs", "29.8 tokens/s, 0.500 tokens/J", "494 MB of weights and 6.00 MB of KV cache",
        "73.7 kB per token of a sequence and 7.00 MB at the end", "3,537 such sequences", "336,083 tokens",
    ):  # fmt: skip
        assert words in text
    shown = in_terminal(run.page(generated(FULL)))
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "Parts of the network" in shown


def test_what_is_absent_is_not_said():
    found = generated(NOTHING)
    assert generation.generation_sentences(found) == []
    shown = in_terminal(run.page(found))
    assert "Token times are not available" in shown
    for words in ("tokens/s", "tokens/J", "KV cache", "Parts of the network", "None"):
        assert words not in shown.partition("Recommendations")[0]
    assert table_of(NOTHING, "generation-steps") is None
    few = replace(LATENCY, gaps=15, itl_p90_s=None, itl_p99_s=None)
    text = " ".join(generation.generation_sentences(generated(replace(FULL, latency=few))))
    assert "Inter-token latency: median 30.5 ms (15 gaps)." in text
    flat = replace(LATENCY, growth_s_per_token=None, growth_ci95_s=None)
    text = " ".join(generation.generation_sentences(generated(replace(FULL, latency=flat, tokens_per_j=None))))
    assert "A token of context" not in text
    assert "tokens/J" not in text
    assert generation.generation_section(analysis()) is None


def test_the_verdict_says_how_fast_text_is_generated():
    text = verdict(generated(FULL))
    assert "First token after 126 ms, then 30.5 ms per token (median): 29.8 tokens/s" in text
    assert "Decode reaches 13 % of the bound of reading weights and KV cache." in text
    assert "First token" not in verdict(generated(NOTHING))


def test_a_comparison_shows_latencies_where_both_sides_have_them():
    faster = replace(FULL, latency=replace(LATENCY, ttft_s=0.063))
    compared = compare(generated(FULL), generated(faster), ("a", "b"))
    assert compared.b.generated["ttft_s"] / compared.a.generated["ttft_s"] == pytest.approx(0.5)
    assert "time to first token" in in_terminal(comparison.page([compared]))
    without = compare(generated(FULL), generated(NOTHING), ("a", "b"))
    assert "time to first token" not in in_terminal(comparison.page([without]))
