"""The first sentences of every report: what bounds the step, by the partition of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rooflines.roofline.advise.verdict import verdict
from rooflines.roofline.analysis import Basis, Coverage, Finding, Kernel, OtherPrograms, PageFaults, Steps
from rooflines.roofline.judge.step.interference import with_pages
from tests.samples import analysis as sample


def said(breakdown, categories=None, **more):
    """The verdict on a step of a device with these classes, without its speed and findings."""
    whole = sum(breakdown.values())
    timeline = replace(sample().timeline, span_s=whole, busy_s=whole, idle_s=0.0)
    unjudged = replace(sample().operators[0], category="other", lower_bound_s=None, efficiency=None)
    changes = {"idle_breakdown": {}, "findings": (), "steps": None, "operators": (unjudged,), "timeline": timeline, **more}
    return verdict(replace(sample(), bound_breakdown=breakdown, category_breakdown=categories or {}, **changes))


@pytest.mark.parametrize(
    ("name", "opening"),
    [
        ("compute", "Compute-bound for 90 % of the step."),
        ("memory", "Memory-bound for 90 % of the step."),
        ("inefficient", "Inefficient for 90 % of the step: operators that are too small, badly shaped or on a slow kernel."),
        ("latency", "Launch-bound: operators too small for the device, and calls that only dispatch, take 90 % of the step."),
        ("transfer", "Transfer-bound: copies between host and device take 90 % of the step."),
        ("communication", "Communication-bound: communication that no computation hides takes 90 % of the step."),
        ("unknown", "Bound unknown: 90 % of the step is in operators without a work model."),
    ],
)
def test_what_takes_the_most_of_the_step_is_its_bound(name, opening):
    assert said({name: 0.9, "host": 0.1}) == opening


def test_a_step_without_a_large_class_has_no_single_bound():
    assert said({"memory": 0.22, "communication": 0.2, "host": 0.19, "compute": 0.15, "inefficient": 0.12, "latency": 0.12}) == (
        "No single bound: memory-bound operators take 22 % of the step, communication 20 % and idle time caused by the host 19 %."
    )


def test_a_class_must_lead_by_a_tenth():
    assert said({"memory": 0.35, "compute": 0.33, "inefficient": 0.32}, {"matmul": 0.35}) == (
        "No single bound: memory-bound operators take 35 % of the step, compute-bound operators 33 % and inefficient operators 32 %."
    )
    two = {"compute": 0.33, "memory": 0.35, "inefficient": 0.2, "host": 0.12}
    both = "Memory- and compute-bound for 35 and 33 % of the step"
    assert said(two, {"matmul": 0.35}) == f"{both}; matrix products take 35 % of the step."
    assert said({"communication": 0.38, "host": 0.37, "memory": 0.25}) == (
        "No single bound: communication takes 38 % of the step and idle time caused by the host 37 %."
    )
    assert said({"memory": 0.4, "compute": 0.35, "inefficient": 0.25}) == "Memory-bound for 40 % of the step."


def test_what_others_delayed_is_not_called_inefficient_alone():
    others = OtherPrograms(busy=1.5, threads=2, judged=False)
    assert said({"inefficient": 0.9, "host": 0.1}, other_programs=others).startswith(
        "Inefficient or delayed for 90 % of the step: other programs delayed"
    )
    assert said({"memory": 0.35, "compute": 0.33, "inefficient": 0.32}, other_programs=others).startswith(
        "No single bound: memory-bound operators take at least 35 % of the step, compute-bound operators at least 33 % and "
        "inefficient or delayed operators 32 %."
    )


def test_beside_other_programs_shares_are_ranges():
    ends = {"host": (0.47, 0.6), "inefficient": (0.4, 0.53)}
    others = OtherPrograms(busy=0.5, threads=2, shares=ends)
    either = "idle time caused by the host takes 47 to 60 % of the step and inefficient operators 40 to 53 %."
    assert said({"host": 0.51, "inefficient": 0.49}, other_programs=others).startswith(f"Host-bound or inefficient: {either}")
    # Where the ranges meet, either may lead.
    found = said({"host": 0.55, "inefficient": 0.45}, limited_by="host", other_programs=others, idle_breakdown=None)
    assert found.startswith(f"Host-bound or inefficient: {either}")
    apart = replace(others, shares={"host": (0.54, 0.6), "inefficient": (0.4, 0.46)})
    assert said({"host": 0.55, "memory": 0.45}, limited_by="host", other_programs=apart, idle_breakdown=None).startswith(
        "Host-bound: for 54 to 60 % of the step no operator runs."
    )
    delayed = replace(others, judged=False, shares={"compute": (0.6, 0.7)})
    assert said({"compute": 0.65, "host": 0.1}, other_programs=delayed).startswith("Compute-bound for at least 60 % of the step.")


CLASSES = ("compute", "memory", "inefficient", "latency", "host", "unknown", "transfer")


@pytest.mark.ci
@given(
    shares=st.dictionaries(st.sampled_from(CLASSES), st.floats(0, 1), min_size=1),
    ends=st.dictionaries(st.sampled_from(CLASSES), st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted).map(tuple)),
    judged=st.booleans(),
)
def test_ranges_of_any_classes_leave_a_sentence(shares, ends, judged):
    """A class may have a range although it has nothing of the step in the median."""
    whole = sum(shares.values())
    if whole < 0.01:
        return
    others = OtherPrograms(busy=0.5, threads=2, judged=judged, shares=ends)
    assert said({name: share / whole for name, share in shares.items()}, other_programs=others)


def test_a_class_without_a_share_may_still_lead_beside_other_programs():
    others = OtherPrograms(busy=0.5, threads=2, shares={"inefficient": (0.3, 1.0), "compute": (0.0, 0.4)})
    assert said({"inefficient": 0.9, "host": 0.1}, other_programs=others).startswith(
        "Inefficient or compute-bound: inefficient operators take 30 to 100 % of the step and compute-bound operators 0 to 40 %."
    )
    # In delayed steps too, where what is inefficient may only be delayed.
    delayed = replace(others, judged=False, shares={"inefficient": (0.0, 1.0), "compute": (0.0, 0.4)})
    assert said({"inefficient": 0.6, "compute": 0.4}, other_programs=delayed).startswith(
        "Inefficient or delayed or compute-bound: inefficient or delayed operators take 0 to 100 % of the step and "
        "compute-bound operators at least 0 %."
    )


def test_traced_steps_that_others_prolonged_tell_nothing_of_the_step():
    others = OtherPrograms(busy=1.5, threads=2, judged=False)
    steps = Steps(count=5, median_s=1e-3, p10_s=9e-4, p90_s=2e-3, warmup_count=1, profiler_dilation=200.0)
    on = {device: replace(sample().environment, device=device) for device in ("cpu", "cuda:0")}
    text = said({"inefficient": 0.9, "host": 0.1}, other_programs=others, steps=steps, environment=on["cpu"])
    assert "the traced steps took 200 times as long as the timed ones, so they do not tell what the step is spent on" in text
    assert "Inefficient" not in text
    assert "90 %" not in text
    # Without other programs it is the profiler, and on a GPU the times are the device's.
    alone = said({"inefficient": 0.9, "host": 0.1}, steps=steps, environment=on["cpu"])
    of_gpu = said({"inefficient": 0.9, "host": 0.1}, other_programs=others, steps=steps, environment=on["cuda:0"])
    assert "90 %" in alone
    assert "90 %" in of_gpu


def test_the_time_for_new_pages_may_be_in_another_class_or_gone():
    steps = Steps(count=5, median_s=1e-3, p10_s=9e-4, p90_s=2e-3, warmup_count=1)
    ends = {"inefficient": (0.6, 0.7), "compute": (0.05, 0.1), "host": (0.2, 0.3), "latency": (0.01, 0.02)}
    others = OtherPrograms(busy=0.5, threads=2, shares=ends)
    # 0.2 of the step, which two busy threads share, but no more than there is in the other classes of operators.
    known = replace(sample(), steps=steps, other_programs=others, usage=None, page_faults=PageFaults(timed=200, page_s=1e-6))
    found = with_pages(known).other_programs.shares
    assert found["inefficient"] == pytest.approx((0.4, 0.8))
    assert found["compute"] == pytest.approx((0.0, 0.3))
    assert found["host"] == pytest.approx((0.16, 0.375))
    assert found["latency"] == pytest.approx((0.008, 0.025))
    assert with_pages(replace(known, page_faults=PageFaults(timed=70, page_s=1e-6))).other_programs.shares == ends


def test_a_host_that_takes_the_most_is_the_bound():
    assert said({"host": 0.6, "memory": 0.4}, limited_by="host") == (
        "Host-bound: for 60 % of the step, the device waits for the host to launch work."
    )
    assert said({"host": 0.6, "memory": 0.4}, limited_by="host", idle_breakdown=None) == (
        "Host-bound: for 60 % of the step no operator runs."
    )


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("outside_s", "mostly although work had been launched: the trace does not show what it waits for"),
        ("graph_s", "mostly before work of CUDA or HIP graphs that had been launched: they wait, or kernels of them were not recorded"),
        ("kernel_wait_s", "mostly between a launch and the start of its work"),
        ("unknown_s", "mostly before work whose launch is not in the trace"),
    ],
)
def test_other_idle_time_has_its_main_cause(cause, words):
    idle = {"outside_s": 0.01, "kernel_wait_s": 0.01, "unknown_s": 0.01, cause: 0.5}
    assert said({"idle": 0.6, "memory": 0.4}, idle_breakdown=idle) == f"The device is idle for 60 % of the step, {words}."


def test_the_largest_category_is_a_share_of_the_same_step():
    breakdown, categories = {"communication": 0.6, "memory": 0.4}, {"communication": 0.6, "matmul": 0.3, "copy": 0.1}
    assert said(breakdown, categories) == (
        "Communication-bound: communication that no computation hides takes 60 % of the step; matrix products take 30 % of the step."
    )
    assert "copies" not in said({"memory": 1.0}, {"copy": 0.005}), "what is not worth its words"


def test_graphs_without_a_capture_are_named_and_small_categories_beside_them_are_not():
    known = Coverage(modeled_time_fraction=0.1, graph_launch_time_s=0.8, graph_matched_time_s=0.1)
    assert said({"unknown": 0.9, "host": 0.1}, {"copy": 0.05}, coverage=known) == (
        "Bound unknown: 70 % of the step is in CUDA or HIP graphs without a capture trace (--capture)."
    )
    matched = replace(known, graph_matched_time_s=0.7)
    assert said({"unknown": 0.8, "host": 0.2}, {"matmul": 0.15}, coverage=matched) == (
        "Bound unknown: 80 % of the step is in operators without a work model; matrix products take 15 % of the step."
    )


def test_beside_much_unknown_time_the_kernels_are_named_and_no_gain():
    kernels = tuple(Kernel(name=f"kernel_{name}", calls=1, time_s=time_s) for name, time_s in (("a", 0.2), ("b", 0.05), ("c", 0.04)))
    unjudged = replace(sample().operators[0], category="other", lower_bound_s=None, efficiency=None, kernels=kernels)
    gain = Finding(title="Keep it", saves_s=0.1016, evidence="", suggestion="")
    changes = {"operators": (unjudged,), "findings": (gain,)}
    assert said({"host": 0.7, "unknown": 0.3}, coverage=None, **changes) == (
        "Host-bound: for 70 % of the step, the device waits for the host to launch work. "
        "Computing kernels that take the most time of the step: "
        "kernel_a (200 ms), kernel_b (50.0 ms) and kernel_c (40.0 ms)."
    )
    assert said({"host": 0.8, "unknown": 0.2}, coverage=None, **changes).endswith(
        "Largest possible gain: keep it, which saves up to 102 ms of 1.00 s a step."
    )


def test_without_ceilings_only_the_category_is_said():
    assert said({"unknown": 0.9, "host": 0.1}, {"convolution": 0.7}, ceilings=()) == "Convolutions take 70 % of the step."


def test_a_trace_without_steps_is_the_trace():
    assert said({"memory": 1.0}, {"matmul": 0.5}, basis=Basis(per="trace")) == (
        "Memory-bound for 100 % of the trace; matrix products take 50 % of the trace."
    )


def test_new_pages_are_said_and_are_no_property_of_the_operators():
    steps = replace(sample().steps, median_s=0.02)
    text = said({"inefficient": 0.9, "host": 0.1}, steps=steps, page_faults=PageFaults(timed=4000, page_s=1e-6))
    assert "About 20 % of the step goes into new pages of memory; which operators wait for them differs from run to run." in text
    assert text.endswith("Inefficient for 90 % of the step. Unsteady times: the median step is not known.")
    for few in (PageFaults(timed=1000, page_s=1e-6), PageFaults(timed=4000)):  # a page that was not timed has no cost
        assert "pages" not in said({"inefficient": 0.9, "host": 0.1}, steps=steps, page_faults=few)
