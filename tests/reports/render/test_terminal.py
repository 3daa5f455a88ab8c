"""The terminal report: what it says, that it fits its width, and that names cannot change how it looks."""

import re

import pytest
from msgspec.structs import replace

from rooflines.reports.page import run as view
from rooflines.reports.words import sentences
from rooflines.roofline.analysis import Analysis, Coverage, Unmodeled
from tests import samples
from tests.printing import in_terminal


def shown(analysis: Analysis, width: int = 80, **console: object) -> str:
    return in_terminal(view.page(analysis), width, **console)


def flat(text: str) -> str:
    """Without line breaks, so that a sentence is found wherever it was wrapped."""
    return " ".join(text.split())


def named(name: str, module: str = "layer1") -> Analysis:
    sample = samples.analysis()
    return replace(sample, operators=(replace(sample.operators[0], name=name, module=module), *sample.operators[1:]))


def test_a_timed_pass_that_something_slowed_is_told():
    """What else the page of the sample says is in tests/golden.json."""
    sample = samples.analysis()
    faster = replace(sample, steps=replace(sample.steps, profiler_dilation=0.5))
    assert "something slowed the timed steps" in flat(shown(faster))


def test_coverage_is_never_rounded_up_to_everything():
    item = Unmodeled(name="a", calls=1, time_s=1e-9, reason="no formula")
    breakdown = {"compute": 0.1, "unknown": 1e-9}
    coverage = Coverage(modeled_time_fraction=0.99999, unmodeled=(item,))
    analysis = replace(samples.analysis(), coverage=coverage, category_breakdown=breakdown)
    assert sentences.coverage_sentence(analysis) == "Operators without a work model take <1 % of the step: a (1.00 ns, no formula)."


def test_the_last_lines_are_the_recommendations_and_the_verdict():
    tail = flat("\n".join(shown(samples.analysis()).splitlines()[-20:]))
    assert tail.endswith(flat(samples.analysis().verdict))
    assert all(finding.title in tail for finding in samples.analysis().findings[:3])
    # A class is never cut.
    assert not re.search(r"inefficient \([a-z]*…", shown(samples.analysis()))


@pytest.mark.parametrize("width", [60, 66, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_console(width):
    analysis = named("_scaled_dot_product_flash_attention_for_cpu_backward", "model.encoder.layers.11.attention.self.output.dense")
    assert max(len(line) for line in shown(analysis, width).splitlines()) <= width


@pytest.mark.ci
def test_columns_and_lines_fit_the_console():
    # A wide console shows more columns.
    assert "FLOP/B" not in shown(samples.analysis(), 80)
    assert "FLOP/B" in shown(samples.analysis(), 120)
    # A module path longer than a line is cut at a dot.
    path = ".".join(f"Block_{number}" for number in range(40))
    lines = shown(replace(samples.analysis(), notes=(f"slow in {path}",)), 60).splitlines()
    assert any(re.fullmatch(r"\s+…Block_\d+(\.Block_\d+)*", line) for line in lines)
    # A number stays on the line of its unit.
    for width in range(60, 120):
        broken = [line for line in shown(samples.analysis(), width).splitlines() if re.match(r"\s*(%|ms|GFLOP/s)[.,)]* ?[a-z(]", line)]
        assert not broken


def test_consoles_without_color_or_unicode():
    # A pipe gets no control codes and a terminal only ours.
    assert "\x1b" in shown(samples.analysis(), force_terminal=True, color_system="standard")
    assert "\x1b" not in shown(named("evil\x1b[31m\x07\rname"))
    # A console without unicode gets ascii.
    assert "# compute 66 %" in shown(named("算子"), encoding="ascii")


@pytest.mark.parametrize("name", ["[red]x[/red]", "[/]", "<script>", "#let x", "=cmd()", "$x$", "[link=http://a]b[/link]"])
def test_a_name_is_shown_as_it_is(name):
    assert name in shown(named(name), 200)


def test_without_a_trace_or_ceilings_it_says_so():
    # Without a trace it says so.
    analysis = replace(
        samples.analysis(), operators=(), modules=(), timeline=None, bound_breakdown=None, coverage=None, totals=None, findings=()
    )
    text = flat(shown(analysis))
    assert "No operators: this run has no trace" in text
    assert "84.0 ms a step" in text
    assert "No advice" in text
    # Without ceilings it says so and orders by time.
    rows = tuple(
        replace(row, lower_bound_s=None, efficiency=None, headroom_s=None, attainable_flop_per_s=None, bound="unknown", flag=None)
        for row in samples.analysis().operators
    )
    text = flat(shown(replace(samples.analysis(), operators=rows, ceilings=(), findings=())))
    assert "No ceilings are known for this device" in text
    assert "longest first" in text
    assert text.index("41.2 convolution_b") < text.index("conv2d layer1") < text.index("max_pool2d")
    assert "No advice: possible savings need operators and ceilings" in text


def test_an_interrupted_run_and_a_whole_trace_say_so():
    sample = samples.analysis()
    text = flat(shown(replace(sample, status="interrupted", steps=None, verdict="")))
    assert "No verdict: this run has no step times." in text
    assert "This run was interrupted" in text
    assert "Step times are not available" in text
    text = flat(shown(replace(sample, basis=replace(sample.basis, per="trace"))))
    assert "Time in the trace" in text
    assert "up to 21.0 ms in the trace" in text
