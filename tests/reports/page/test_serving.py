"""The section of a server's trace: one row for each kind, what decode must read in words, and what is missing."""

import pytest
from msgspec.structs import replace

from rooflines.reports.document import texts
from rooflines.reports.page import run, serving
from rooflines.roofline.served_steps import DecodeReads, ServedSteps, ServedWork, Serving
from tests.samples import analysis

READS = DecodeReads(weight_bytes=15_000_000_000, kv_cache_bytes=5_000_000_000, lower_bound_s=0.004, efficiency=0.4)
DECODE = ServedSteps(
    kind="decode", steps=8, requests=32, tokens=32, generated=32, keys=32_800, step_s=0.010, busy_s=0.009, tokens_per_s=3200,
    generated_per_s=3200, category_breakdown={"matmul": 0.006, "attention": 0.003, "idle": 0.001}, reads=READS,
    modeled_time_fraction=8 / 9,
    attention=ServedWork(time_s=0.002, flops=4e9, bytes=1e9, intensity_flop_per_byte=4.0, flop_per_s=2e12, attainable_flop_per_s=4e12,
                         lower_bound_s=0.001, efficiency=0.5, assumption="no window"),
)  # fmt: skip
PREFILL = ServedSteps(
    kind="prefill", steps=2, requests=15, tokens=15_360, step_s=0.5, busy_s=0.4, category_breakdown={"matmul": 0.4, "idle": 0.1}
)


def served(*kinds, generated_per_s=None):
    """The sample as a trace of a server."""
    return replace(analysis(), serving=Serving(kinds=kinds or (PREFILL, DECODE), generated_per_s=generated_per_s))


def words(found):
    return " ".join(block.text for block in serving.serving_section(found).blocks if hasattr(block, "text"))


def test_rows_and_sentences_of_serving():
    # A kind is a row.
    table = next(block for block in serving.serving_section(served()).blocks if getattr(block, "name", "") == "serving-steps")
    found = texts(table)
    shown = [dict(zip(found.titles(), row, strict=True)) for row in found.rows]
    assert [[row[name] for name in ("kind", "steps", "requests", "tokens", "keys", "time", "idle %")] for row in shown] == [
        ["prefill", "2", "15", "15360", "–", "500 ms", "20.0"], ["decode", "8", "32", "32", "1025", "10.0 ms", "10.0"]
    ]  # fmt: skip
    # The steps take 1 s and 80 ms; the bound of decode is what it must read.
    assert [row["share %"] for row in shown] == ["92.6", "7.4"]
    assert [row["bound"] for row in shown] == ["–", "4.00 ms"]
    assert "FLOPs" not in shown[0]  # a column without a value is not there
    # What decode must read is a sentence.
    text = words(served(DECODE))
    assert "15.0 GB of weights and 5.00 GB of KV cache" in text
    assert "at least 4.00 ms" in text
    assert "40 % of the step's time" in text
    assumed = replace(DECODE, reads=replace(READS, assumption="all experts"))
    assert "(assumed: all experts)" in words(served(assumed))
    roofless = replace(READS, lower_bound_s=None, efficiency=None)
    assert "at least" not in words(served(replace(DECODE, reads=roofless)))


def test_what_is_unknown_or_assumed_is_said():
    # What is not known is said.
    text = words(served(replace(DECODE, reads=None)))
    assert "not available: 11 % of the busy time is in operators without a work model" in text
    assert "--capture" in text
    assert "must read" not in words(served(PREFILL)), "of prefill nothing is said"
    # Attention is marked where its work is assumed.
    table = next(block for block in serving.serving_section(served()).blocks if getattr(block, "name", "") == "serving-parts")
    rows = [row[:3] for row in texts(table).rows]
    assert ("decode", "attention *", "20.0") in rows
    # The network does not show its parts: the categories of its operators stand for them.
    assert ("decode", "matrix products", "60.0") in rows
    assert ("prefill", "idle", "20.0") in rows


@pytest.mark.parametrize(("kinds", "said"), [((PREFILL, DECODE), True), ((DECODE,), False)])
def test_the_rate_of_all_steps_is_said_of_several_kinds(kinds, said):
    assert ("All steps together: 250 generated tokens per second" in words(served(*kinds, generated_per_s=250.0))) is said


def test_other_pages_have_no_such_section():
    assert serving.serving_section(analysis()) is None
    assert "serving" not in [section.name for section in run.page(analysis()).sections]
    assert "serving" in [section.name for section in run.page(served()).sections]
