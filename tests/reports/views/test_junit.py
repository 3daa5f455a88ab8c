"""A comparison as JUnit XML: what fails, what is skipped, and names that XML cannot hold."""

from __future__ import annotations

from xml.etree import ElementTree as xml

import msgspec

from rooflines.reports.views.comparison import junit
from rooflines.roofline.comparison.compare import compare
from tests.reports.views.test_comparison import changed
from tests.roofline.comparison.steps import with_steps
from tests.samples import analysis as sample


def suite(comparison, by="operator", above=0.05):
    (found,) = xml.fromstring(junit([comparison], by, above))
    return found


def slower(factor=2.0):
    """The sample with its first operator slower, and its steps with it."""
    whole = sample()
    first, *rest = whole.operators
    more_s = first.time_s * (factor - 1)
    steps = whole.steps
    steps = msgspec.structs.replace(
        steps, median_s=steps.median_s + more_s, durations_s=tuple(one + more_s for one in steps.durations_s)
    )
    timeline = msgspec.structs.replace(whole.timeline, span_s=whole.timeline.span_s + more_s, busy_s=whole.timeline.busy_s + more_s)
    first = msgspec.structs.replace(first, time_s=first.time_s * factor)
    return msgspec.structs.replace(whole, operators=(first, *rest), timeline=timeline, steps=steps)


def test_a_regression_fails_the_step_and_the_operator_behind_it():
    found = suite(compare(with_steps(sample(), 1), with_steps(slower(), 2)))
    assert int(found.get("tests")) == len(found.findall("testcase"))
    failed = {case.get("name"): case.find("failure").get("message") for case in found if case.find("failure") is not None}
    assert int(found.get("failures")) == len(failed) == 2
    assert failed["step"].startswith("Slower by 1")
    ((name, message),) = [item for item in failed.items() if item[0] != "step"]
    assert name.startswith("conv2d of layer1.0.conv2 (forward, 4x64x56x56")
    assert message.startswith("Slower: 24.2 ms instead of 12.1 ms (ratio 1.99, 95 % interval 1.9")


def test_below_the_limit_nothing_fails():
    found = suite(compare(with_steps(sample(), 1), with_steps(slower(), 2)), above=0.5)
    assert found.get("failures") == "0"
    assert any("Slower: 24.2 ms" in (case.findtext("system-out") or "") for case in found)


def test_what_is_not_known_is_skipped():
    found = suite(compare(sample(), changed()))
    assert int(found.get("skipped")) == 2
    assert {case.find("skipped").get("message") for case in found if case.find("skipped") is not None} == {"The noise is not known."}
    few = [msgspec.structs.replace(one, steps=msgspec.structs.replace(one.steps, durations_s=(0.1,))) for one in (sample(), slower())]
    step = suite(compare(*few)).find("testcase")
    assert step.get("name") == "step"
    assert step.find("skipped").get("message").startswith("Not judged: ")


def test_modules_are_tests_too():
    found = suite(compare(with_steps(sample(), 1), with_steps(slower(), 2)), by="module")
    assert {case.get("name") for case in found} == {"step", "(all)", "layer1", "layer1.0", "fc"}


def test_a_name_may_hold_what_xml_cannot():
    found = suite(compare(sample(), changed("<a&b>\x1b[2J\x00 größe")))
    assert any("<a&b>\ufffd[2J\ufffd größe" in case.get("name") for case in found)
