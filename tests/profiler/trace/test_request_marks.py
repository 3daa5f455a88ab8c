"""Marks of servers: what each form says, what is no mark, and which marks are steps."""

from dataclasses import replace

import pytest

from rooflines.profiler.trace.reader import whole_part
from rooflines.profiler.trace.request_marks import RequestMark, request_mark
from rooflines.profiler.trace.tree import tree
from tests.traces import add, kernel, launch, span, trace

DECODE = "execute_3_context_0(sq0sk0sqsq0sqsk0)_generation_3(sq3sk60sqsq3sqsk60)"
PREFILL = "execute_10_context_2(sq10sk10sqsq52sqsk52)_generation_0(sq0sk0sqsq0sqsk0)"  # prompts of 4 and 6 tokens: 16 + 36


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("execute_context_0(0)_generation_8(8)", RequestMark("decode", 8, 8, decode_requests=8, decode_tokens=8)),
        ("execute_context_2(700)_generation_0(0)", RequestMark("prefill", 2, 700, prefill_tokens=700)),
        ("execute_context_1(888_788544)_generation_0(0)", RequestMark("prefill", 1, 888, prefill_tokens=888)),
        ("execute_context_1(512)_generation_8(8)",
         RequestMark("mixed", 9, 520, prefill_tokens=512, decode_requests=8, decode_tokens=8)),
        ("execute_context_0(0)_generation_8(24)", RequestMark("decode", 8, 24, decode_requests=8, decode_tokens=24, is_draft=True)),
        (DECODE, RequestMark("decode", 3, 3, 60, 3, 60, decode_requests=3, decode_tokens=3)),
        ("execute_13_context_2(sq10sk10sqsq52sqsk52)_generation_3(sq3sk60sqsq3sqsk60)",
         RequestMark("mixed", 5, 13, 70, 55, 112, 10, 3, 3, parts=((2, 10, 10, 52, 52), (3, 3, 60, 3, 60)))),
        ("step[DECODE bs=32]", RequestMark("decode", 32, 32, decode_requests=32, decode_tokens=32)),
        ("step[DECODE bs=3 g_sq=3 g_sqsq=3 g_sqsk=60 g_sk=60]",
         RequestMark("decode", 3, 3, 60, 3, 60, decode_requests=3, decode_tokens=3)),
        ("step[EXTEND bs=2 toks=10]", RequestMark("prefill", 2, 10, prefill_tokens=10)),
        ("step[EXTEND bs=2 toks=10 c_sq=10 c_sqsq=52 c_sqsk=52 c_sk=10]", RequestMark("prefill", 2, 10, 10, 52, 52, prefill_tokens=10)),
        ("step[MIXED bs=5]", RequestMark("mixed", 5)),
        ("step[MIXED bs=5 c=2 g=3 c_sq=10 c_sk=10 c_sqsq=52 c_sqsk=52 g_sq=3 g_sk=60 g_sqsq=3 g_sqsk=60]",
         RequestMark("mixed", 5, 13, 70, 55, 112, 10, 3, 3, parts=((2, 10, 10, 52, 52), (3, 3, 60, 3, 60)))),
        ("step[TARGET_VERIFY bs=2 c_sq=8 c_sqsq=32 c_sqsk=400 c_sk=100]",
         RequestMark("decode", 2, 8, 100, 32, 400, decode_requests=2, decode_tokens=8, is_draft=True)),
        ("prefill[bs=2 tok=10 ctx=[4, 6] sqsq=52 sqsk=52 sk=10]", RequestMark("prefill", 2, 10, 10, 52, 52, prefill_tokens=10)),
        ("decode[bs=117/128 tok=117 d=117]", RequestMark("decode", 117, 117, decode_requests=117, decode_tokens=117)),
        ("decode[bs=5 tok=13 p=2 d=3 sqsq=55 sqsk=112 sk=70]", RequestMark("mixed", 5, 13, 70, 55, 112, decode_requests=3)),
        ("[Executor] _forward_step 12: 1 ctx reqs, 512 ctx tokens, 31 gen reqs",
         RequestMark("mixed", 32, prefill_tokens=512, decode_requests=31)),
        ("[Executor] _forward_step 12: 0 ctx reqs, 31 gen reqs", RequestMark("decode", 31, decode_requests=31)),
    ],
)  # fmt: skip
def test_a_mark_says_what_its_name_says(name, expected):
    assert request_mark(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "execute_context_0(0)_generation_0(0)",  # nothing runs
        "step[IDLE bs=0]",
        "step[DECODE bs=0]",
        "step[DECODE]",
        "step[EXTEND bs=x toks=10]",
        "execute_context_2(1)_generation_0(0)",  # two requests with one token
        "execute_context_0(5)_generation_8(8)",  # tokens without a request
        "execute_3_context_0(sq0sk0sqsq0sqsk0)_generation_3(sq3sk2sqsq3sqsk2)",  # fewer keys than tokens
        "execute_10_context_2(sq10sk10sqsq40sqsk52)_generation_0(sq0sk0sqsq0sqsk0)",  # 10² / 2 = 50 at least
        "execute_10_context_2(sq10sk10sqsq101sqsk101)_generation_0(sq0sk0sqsq0sqsk0)",  # 10² at most
        "execute_10_context_2(sq10sk12sqsq52sqsk51)_generation_0(sq0sk0sqsq0sqsk0)",  # fewer pairs than squares
        f"execute_context_1({10**17})_generation_0(0)",
        f"execute_context_1({'9' * 4000})_generation_0(0)",
        "execute_context_1(512)_generation_8(8)_more",
        "prefill[image]",
        "execute_model",
        "step[1]",
    ],
)
def test_numbers_that_no_batch_has_are_no_mark(name):
    assert request_mark(name) is None


def steps(*events):
    calls = tree(trace(*events))
    return list(zip(calls.step_names, calls.steps.tolist(), calls.batches or [None] * len(calls.steps), strict=True))


def test_marks_are_steps_and_work_after_a_mark_is_of_its_step():
    found = steps(span(PREFILL, 0, 100), add(10, 50), add(130, 10), span(DECODE, 200, 100), add(210, 50), add(320, 30))
    assert [(name, bounds) for name, bounds, _ in found] == [(PREFILL, [0, 140_000]), (DECODE, [200_000, 340_000])]
    assert [batch.kind for *_, batch in found] == ["prefill", "decode"], "the last one grows by no more than another"


def test_a_single_step_has_all_that_follows():
    ((_, bounds, _),) = steps(span(DECODE, 0, 100), add(10, 50), add(130, 10))
    assert bounds == [0, 140_000]


def test_marks_in_one_another_are_one_step_that_has_what_both_say():
    plain, sums = "step[DECODE bs=3]", DECODE
    ((name, bounds, batch),) = steps(span(plain, 0, 100), span(sums, 10, 50), add(20, 10))
    assert (name, bounds) == (plain, [0, 100_000])
    assert batch == request_mark(sums)
    ((_, _, batch),) = steps(span(plain, 0, 100), span("step[DECODE bs=4]", 10, 50), add(20, 10))
    assert batch == request_mark(plain), "two batches are not mixed"


def test_steps_of_the_profiler_count_where_they_enclose_more():
    training = [span("ProfilerStep#1", 0, 300), add(10, 100), add(210, 80)]
    ((name, _, _),) = steps(*training, span(DECODE, 100, 20), add(105, 10), add(150, 20))
    assert name == "ProfilerStep#1"
    ((name, _, _),) = steps(span("ProfilerStep#1", 0, 300), span(DECODE, 5, 290), add(10, 100))
    assert name == DECODE


def test_no_step_of_a_trace_that_is_cut_off_counts():
    """Device events of a step may be missing."""
    events = trace(span(DECODE, 0, 100), add(10, 50), launch(20, 5, 1), kernel("k", 60, 5, 1))
    assert len(tree(events).steps) == 1
    assert not len(tree(whole_part(replace(events, cut_ns=100_000))).steps)


def test_marks_of_the_device_and_marks_without_work_are_no_steps():
    on_device = {**span(DECODE, 0, 50), "cat": "gpu_user_annotation"}
    ((_, bounds, _),) = steps(span(DECODE, 0, 100), on_device, launch(10, 5, 1), span(DECODE, 200, 50))
    assert bounds[0] == 0
