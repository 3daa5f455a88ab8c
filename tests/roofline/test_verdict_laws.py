"""Laws that every report keeps, checked on every real trace at hand: one step, one sum, one figure for a quantity."""

import functools
import io
import json
import re
from html import unescape
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from rich.console import Console

from rooflines.profiler.read.communication_kernels import communicates
from rooflines.profiler.read.reader import read
from rooflines.profiler.read.records import RUNTIME
from rooflines.profiler.tree.tree import tree
from rooflines.reports.page import run as view
from rooflines.reports.render.html import render
from rooflines.reports.render.terminal import print_page
from rooflines.roofline.advise.verdict import plural
from rooflines.roofline.analysis import PARTS, Analysis
from rooflines.serial import to_json
from tests.roofline.real import TRACES, analysis_of, every_trace

# Parts add up to the whole within this share of it.
SUM = 1e-3
# A share that is printed in whole percent is right to half a point.
ROUNDED = 0.0051
SHARE = r"(<?\d+(?:\.\d+)?) %"
TIME = r"(\d+(?:\.\d+)?) (min|s|ms|µs|ns)\b"
WHOLE = r"(?:a|the)(?: traced| timed)? (?:step|trace|time)"
SECONDS = {"min": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


@functools.cache
def terminal_of(path: Path) -> str:
    file = io.StringIO()
    print_page(view.page(analysis_of(path)), Console(file=file, width=100))
    return file.getvalue()


@functools.cache
def page_of(path: Path) -> str:
    """The HTML page without scripts and styles, and without the section that explains the words."""
    with mock.patch("rooflines.reports.render.html.page_svg", return_value=""):  # drawing takes long
        text = re.sub(r"<(script|style)\b.*?</\1>", "", render(view.page(analysis_of(path))), flags=re.DOTALL)
    text = re.sub(r"<nav.*?</nav>", "", text, flags=re.DOTALL)
    return re.sub(r'<section id="method".*?</section>', "", text, flags=re.DOTALL)


def sentences_of(path: Path) -> str:
    """What both reports say, without line breaks and tags."""
    page = unescape(re.sub(r"<[^>]*>", " ", page_of(path)))
    return " ".join(f"{terminal_of(path)}\n{page}".split())


def share(text: str) -> float:
    """A printed share as a fraction; ``<1`` is half of it."""
    return float(text.removeprefix("<")) / (200 if text.startswith("<") else 100)


def timed(number: str, unit: str) -> float:
    return float(number) * SECONDS[unit]


def whole_of(analysis: Analysis) -> float:
    return analysis.timeline.span_s if analysis.timeline else 0.0


def parts_of(analysis: Analysis) -> dict[str, float]:
    found = {part: getattr(analysis.division, f"{part}_s") for part in PARTS}
    return {part: time_s for part, time_s in found.items() if time_s is not None}


# --- the analysis ------------------------------------------------------------------------------------------------------------------


@every_trace
def test_every_division_of_the_step_adds_up_to_it(path):
    analysis = analysis_of(path)
    timeline = analysis.timeline
    step = timeline.span_s
    near = functools.partial(pytest.approx, abs=SUM * step)
    assert timeline.compute_s + timeline.exposed_memcpy_s + timeline.exposed_communication_s == near(timeline.busy_s)
    assert timeline.busy_s + timeline.idle_s == near(step)
    assert analysis.division.step_s == near(step)
    assert sum(parts_of(analysis).values()) == near(step)
    assert sum(analysis.bound_breakdown.values()) == near(step)
    assert sum(analysis.category_breakdown.values()) + timeline.idle_s == near(step)
    if analysis.idle_breakdown is not None:
        assert sum(analysis.idle_breakdown.values()) == near(timeline.idle_s)
    if analysis.step_breakdown is not None:
        assert sum(analysis.step_breakdown.values()) == near(step)


@every_trace
def test_no_part_is_negative_or_longer_than_the_step(path):
    analysis = analysis_of(path)
    step = whole_of(analysis)
    found = {**parts_of(analysis), **(analysis.bound_breakdown or {}), **(analysis.category_breakdown or {})}
    assert {name: time_s for name, time_s in found.items() if not 0 <= time_s <= step * (1 + SUM)} == {}


@every_trace
def test_communication_and_copies_are_the_same_in_every_division(path):
    """Exposed communication and copies of the timeline are those of the division by bound and of the parts."""
    analysis = analysis_of(path)
    timeline, bounds, parts = analysis.timeline, analysis.bound_breakdown, parts_of(analysis)
    near = functools.partial(pytest.approx, abs=SUM * timeline.span_s)
    assert parts.get("communication", 0.0) == near(bounds.get("communication", 0.0))
    if analysis.idle_breakdown is not None:
        assert bounds.get("communication", 0.0) == near(timeline.exposed_communication_s)
        assert analysis.category_breakdown.get("communication", 0.0) == near(timeline.exposed_communication_s)
    assert bounds.get("transfer", 0.0) <= timeline.exposed_memcpy_s + SUM * timeline.span_s
    assert timeline.exposed_memcpy_s <= timeline.memcpy_s + SUM * timeline.span_s
    assert timeline.exposed_communication_s <= timeline.communication_s + SUM * timeline.span_s


@every_trace
def test_bound_headroom_and_unjudged_add_up_to_the_operators(path):
    analysis = analysis_of(path)
    totals, timeline = analysis.totals, analysis.timeline
    near = functools.partial(pytest.approx, abs=SUM * timeline.span_s)
    time_s = totals.time_s or 0.0  # nothing where nothing has a count
    assert (totals.lower_bound_s or 0.0) + (totals.headroom_s or 0.0) + totals.unjudged_s == near(time_s)
    assert sum(row.time_s for row in analysis.operators) == near(time_s)
    unmodeled = sum(one.time_s for one in analysis.coverage.unmodeled)
    assert time_s + unmodeled + timeline.idle_s - timeline.overlap_s == near(timeline.span_s)


@every_trace
def test_a_step_of_which_more_than_a_fifth_is_unknown_has_no_bound_and_no_largest_gain(path):
    """The figures are absent in every format, and the headline names kernels, where there are any."""
    analysis = analysis_of(path)
    unknown = (analysis.bound_breakdown or {}).get("unknown", 0.0)
    if unknown > 0.2 * analysis.timeline.busy_s:
        totals = analysis.totals
        assert (totals.lower_bound_s, totals.headroom_s, totals.efficiency) == (None, None, None)
        assert {row.lower_bound_s for row in analysis.modules} <= {None}
        assert not {"lower_bound_s", "headroom_s", "efficiency"} & json.loads(to_json(analysis))["totals"].keys()
        totals_of = [
            dict(zip((column.label for column in table.columns), table.total, strict=True))
            for table in view.page(analysis).tables()
            if table.name == "operators" and table.total
        ]
        assert all(total["headroom"] is None and total["eff."] is None for total in totals_of)
    if unknown > 0.2 * whole_of(analysis):
        assert "Largest possible gain" not in analysis.verdict
        assert "Largest gain" not in analysis.verdict
        every = (kernel.name for row in (*analysis.operators, *analysis.coverage.unmodeled) for kernel in row.kernels)
        kernels = any(not name.startswith("Mem") and not communicates(name) for name in every)
        assert ("Computing kernels that take the most time of" in analysis.verdict) == kernels
    else:
        assert "Computing kernels that take the most time of" not in analysis.verdict


@every_trace
def test_no_rate_from_one_step_or_beside_stacks_and_overhead(path):
    """There is a range in its place, in the verdict, the table and the JSON."""
    analysis = analysis_of(path)
    for one in analysis.serving.kinds if analysis.serving is not None else ():
        if one.steps == 1 or analysis.basis.stacks:
            assert (one.tokens_per_s, one.generated_per_s) == (None, None)
            assert one.rate_doubt
        for rate, between in ((one.tokens_per_s, one.tokens_per_s_range), (one.generated_per_s, one.generated_per_s_range)):
            assert rate is None or between is None
            if between is not None:
                assert between == pytest.approx((between[0], between[0] * one.step_s / one.busy_s))
    assert re.search(r"\d samples/s|\d images/s", analysis.verdict) is None or analysis.steps is not None


@every_trace
def test_steps_that_differ_have_no_mean_in_the_verdict(path):
    analysis = analysis_of(path)
    lengths = [one.duration_s for one in analysis.traced_steps]
    kinds = analysis.serving.kinds if analysis.serving is not None else ()
    differ = len(lengths) > 1 and max(lengths) > 1.5 * min(lengths) and len(kinds) < 2
    assert ("steps differ: " in analysis.verdict) == differ


@every_trace
def test_assumptions_and_confidence_stand_below_the_verdict(path):
    """On the first screen of the terminal and in the head of the page; stacks and assumptions of a part of the time are named."""
    analysis = analysis_of(path)
    whole = sum(row.time_s for row in analysis.operators)
    assumed = sum(row.time_s for row in analysis.operators if row.assumption) > 0.05 * whole
    inferred = sum(row.time_s for row in analysis.operators if row.inferred) > 0.05 * whole
    caveats = " ".join(analysis.caveats)
    assert ("stacks recorded" in caveats) == analysis.basis.stacks
    assert ("assum" in caveats) >= assumed
    assert ("inferred" in caveats) >= inferred
    if analysis.caveats:
        heading = "Time per step" if analysis.basis.per == "step" else "Time in"
        page = " ".join(unescape(page_of(path)).split())
        assert page.index("Assumptions and confidence: ") < page.index(heading)
        terminal = " ".join(terminal_of(path).split())
        assert terminal.index("Assumptions and confidence: ") > terminal.index(heading), "it ends with the verdict"


@every_trace
def test_no_operator_above_three_times_the_shortest_kernel_is_bound_by_latency(path):
    """On a device, where kernels have a least time."""
    analysis = analysis_of(path)
    floor = min((roof.value for roof in analysis.ceilings if roof.kind == "latency"), default=5e-6)
    kernels = [row for row in analysis.operators if row.bound == "latency" and row.kernels]
    assert [row.name for row in kernels if row.time_s / row.calls > 3 * floor * (1 + SUM)] == []


@every_trace
def test_near_a_roof_means_a_third_of_it(path):
    for row in analysis_of(path).operators:
        assert row.nearest_roof is None or row.bound == "inefficient"
        assert row.headroom_s is None or row.headroom_s <= row.time_s
        if row.bound in ("compute", "memory", "latency", "inefficient") and row.efficiency is not None:
            assert (row.efficiency < 1 / 3) == (row.bound == "inefficient")


@every_trace
def test_a_class_that_is_named_alone_leads_by_a_tenth(path):
    analysis = analysis_of(path)
    parts = dict(analysis.bound_breakdown or {})
    if analysis.idle_breakdown is not None:
        parts["idle"] = sum(parts.pop(name, 0.0) for name in ("host", "idle", "input"))
    bounds = sorted(parts.values(), reverse=True)
    alone = r"\b(?:Compute|Memory|Host|Launch|Transfer|Communication)-bound(?: for|:)|Inefficient for|The device is idle for"
    if analysis.limited_by != "input" and re.search(alone, analysis.verdict) and len(bounds) > 1:
        assert bounds[1] < 0.9 * bounds[0]


@every_trace
def test_steps_neither_overlap_nor_leave_work_of_another(path):
    """The mean of the traced steps is the step, and earlier work is in none of them."""
    analysis = analysis_of(path)
    if analysis.basis.per == "step":
        mean = sum(step.duration_s for step in analysis.traced_steps) / len(analysis.traced_steps)
        assert mean == pytest.approx(whole_of(analysis), rel=SUM)


@every_trace
def test_no_advice_saves_more_than_the_time_that_it_names(path):
    """A sentence that names two times, ``209 µs, and the device waits 250 µs``, may save both."""
    analysis = analysis_of(path)
    for finding in analysis.findings:
        text = f"{finding.title}: {finding.evidence}"
        named = [timed(*found) for found in re.findall(TIME, text)]
        most = sum(named) if re.search(rf"{TIME}[^.;:]* and [^.;:]*{TIME}", text) else max(named, default=0.0)
        assert finding.most_s <= whole_of(analysis) * (1 + SUM), text
        assert finding.most_s <= most * 1.01, text


@every_trace
def test_waiting_for_work_outside_the_trace_saves_nothing(path):
    analysis = analysis_of(path)
    idle = analysis.idle_breakdown or {}
    for finding in analysis.findings:
        text = f"{finding.title} {finding.evidence}"
        if "idle" in text or "ran nothing" in text:
            assert finding.most_s <= (sum(idle.values()) or whole_of(analysis)) - idle.get("outside_s", 0.0) - idle.get(
                "graph_s", 0.0
            ) + SUM * whole_of(analysis), text


# --- what the reports say ----------------------------------------------------------------------------------------------------------


def paragraph(text: str, *titles: str) -> list[str]:
    """The lines of a terminal report below the first of these headings that is there, up to the next empty line."""
    lines = text.splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith(titles)), len(lines))
    below = lines[first + 1 :]
    return below[: below.index("")] if "" in below else below


def bars(path: Path) -> list[tuple[str, dict[str, float]]]:
    """The lists of shares that both reports show, by where they stand."""
    terminal, page = terminal_of(path), page_of(path)
    legend = "\n".join(paragraph(terminal, "Time per step ", "Time in the trace "))
    parts = "\n".join(paragraph(terminal, "Time per step by part", "Time in the trace by part"))
    found = [
        ("terminal, bounds", re.findall(rf"((?:other )?[a-z]+) {SHARE}", legend)),
        ("terminal, parts", [(name, number) for number, name in re.findall(r"^\s*(<?[\d.]+)  ([a-z ]+?)  ", parts, re.MULTILINE)]),
    ]
    for label, drawn in re.findall(r'class="stack" role="img" aria-label="([^:"]*): ([^"]*)"', page):
        found.append((f"page, {label}", re.findall(rf"([a-z ]+) {SHARE}", unescape(drawn))))
    return [(where, {name.strip(): share(value) for name, value in shares}) for where, shares in found if shares]


@every_trace
def test_shares_in_a_list_are_those_of_the_whole(path):
    analysis = analysis_of(path)
    found = bars(path)
    assert {where for where, _ in found} >= {"terminal, bounds", "page, Time by what bounds it"}
    for where, shares in found:
        assert sum(shares.values()) == pytest.approx(1, abs=ROUNDED * (len(shares) + 1)), (where, shares)
    classes = (analysis.bound_breakdown or {}).items()
    expected = {{"idle": "other idle"}.get(name, name): time_s / whole_of(analysis) for name, time_s in classes if time_s > 0}
    for where in ("terminal, bounds", "page, Time by what bounds it"):
        assert dict(found)[where] == pytest.approx(expected, abs=ROUNDED), where


# A share of something else than the whole.
OF_ANOTHER = r" (?:efficiency|of (?:its|the) (?:bound|link|roof)|slower|the count)"


@every_trace
def test_no_share_exceeds_the_whole(path):
    """Only an efficiency may, where it says that it is one."""
    text = sentences_of(path)
    above = [
        text[max(0, found.start() - 60) : found.end() + 30]
        for found in re.finditer(SHARE, text)
        if share(found[1]) > 1 and not re.match(OF_ANOTHER, text[found.end() :])
    ]
    assert above == []
    total = re.search(r"^ +(\d+\.\d) +all \d+", terminal_of(path), re.MULTILINE)
    assert total is None or float(total[1]) <= 100.1, "operators take more than the step"


def stated(analysis: Analysis) -> list[tuple[str, str, float]]:
    """What is stated, the pattern of sentences that state its share, and the share that the analysis has for it."""
    whole = whole_of(analysis)
    bounds = {name: time_s / whole for name, time_s in (analysis.bound_breakdown or {}).items()}
    if analysis.idle_breakdown is not None:
        bounds["idle"] = sum(bounds.get(name, 0.0) for name in ("host", "idle", "input"))
    categories = {name: time_s / whole for name, time_s in (analysis.category_breakdown or {}).items()}
    if analysis.coverage is not None and analysis.coverage.modeled_time_fraction is not None and analysis.timeline is not None:
        bounds["uncounted"] = (1 - analysis.coverage.modeled_time_fraction) * analysis.timeline.busy_s / whole
    take = rf"takes? {SHARE} of {WHOLE}"
    patterns = [
        *((name, rf"\b{name}-bound for {SHARE} of", name) for name in ("compute", "memory", "latency")),
        ("inefficient", rf"inefficient for {SHARE} of", "inefficient"),
        ("memory", rf"memory- and compute-bound for {SHARE.removesuffix(' %')} and", "memory"),
        ("compute", rf"memory- and compute-bound for \d+ and {SHARE} of", "compute"),
        ("latency", rf"launch-bound: [^:.;]*, {take}", "latency"),
        ("transfer", rf"transfer-bound: [^:.;]* {take}", "transfer"),
        ("communication", rf"communication that no computation hides {take}", "communication"),
        ("host", rf"host-bound: for {SHARE} of {WHOLE}", "host"),
        ("host", rf"host-bound: the device is idle [^.]*, for {SHARE} because", "host"),
        ("idle", rf"the device is idle for {SHARE} of {WHOLE}(?=, (?:mostly|for))", "idle"),
        ("idle", rf"the device is idle for {SHARE} of {WHOLE}(?= \([^)]*\)[^:]*: the host has not launched)", "idle"),
        ("unmodeled", rf"operators without a work model {take}", "uncounted"),
        ("unmodeled", rf"{SHARE} of {WHOLE} is in operators without a work model", "unknown"),
        ("input", rf"{SHARE} of {WHOLE} is waiting for data", "input"),
        ("input", rf"the device waits for data for {SHARE} of", "input"),
        ("input", rf"idle for {SHARE} of {WHOLE}[^.]{{0,30}}while the host (?:waits for|is in) the data loader", "input"),
    ]
    found = [(what, pattern, bounds.get(name, 0.0)) for what, pattern, name in patterns]
    found += [
        ("category", rf"\b(?:{name}|{plural(name)}) {take}", fraction) for name, fraction in categories.items() if name != "unknown"
    ]
    idle = analysis.timeline.idle_s / whole if analysis.timeline else 0.0
    return [*found, ("busy", rf"\bbusy (?:\S+ \S+ )?{SHARE}", 1 - idle)]


@every_trace
def test_no_two_sentences_give_different_figures_for_one_quantity(path):
    """Each sentence states what the analysis holds, so that all of them state the same."""
    analysis = analysis_of(path)
    text = sentences_of(path).lower()
    for _, pattern, expected in stated(analysis):
        for found in re.finditer(pattern, text):
            assert share(found[1]) == pytest.approx(expected, abs=ROUNDED), found[0]


def test_the_sentences_are_found():
    """A pattern that no sentence of any report has would hold for ever."""
    found = {
        what for path in TRACES for what, pattern, _ in stated(analysis_of(path)) if re.search(pattern, sentences_of(path).lower())
    }
    assert found >= {"category", "communication", "host", "idle", "input", "unmodeled", "busy"}


@every_trace
def test_a_share_beside_a_time_is_that_time_over_the_step(path):
    """``up to 223 ms a step (58 %)``, ``58 % of the step (223 ms)``."""
    analysis = analysis_of(path)
    text = sentences_of(path)
    found = [
        (share(p), timed(t, unit), f"{t} {unit}, {p} %")
        for t, unit, p in re.findall(rf"up to {TIME} (?:a step|in the trace|of the trace) \({SHARE}\)", text)
    ]
    found += [(share(p), timed(t, unit), f"{p} %, {t} {unit}") for p, t, unit in re.findall(rf"{SHARE} of {WHOLE} \({TIME}\)", text)]
    for fraction, time_s, said in found:
        assert fraction == pytest.approx(time_s / whole_of(analysis), abs=ROUNDED + 0.005 * fraction), said


@every_trace
def test_a_trace_without_steps_speaks_of_the_trace(path):
    if analysis_of(path).basis.per == "trace":
        text = sentences_of(path)
        said = [
            text[max(0, one.start() - 60) : one.end() + 20]
            for one in re.finditer(
                rf"\b(?:a|per|each) (?:traced |timed )?step\b|% of {WHOLE.replace('|trace', '').replace('|time', '')}",
                text,
                re.IGNORECASE,
            )
        ]
        assert said == []


# --- what is in the file, and no more ----------------------------------------------------------------------------------------------

# Of a recording that rooflines made, which a trace is not.
OF_A_RUN = re.compile(r"\b(this run|profile it again|the run ended|run directory)\b", re.IGNORECASE)
# Folders of people and machines, three folders of a source file, hosts in a network, mail addresses, tokens.
PRIVATE = re.compile(
    r"/(?:home|root|Users|mnt|scratch|workspace)/|[A-Z]:\\\\|site-packages|(?:[\w.-]+/){2,}[\w.-]+\.py\(\d|\.(?:internal|local|corp)\b"
    r"|[\w.]+@[\w-]+\.\w{2,}|\b(?:hf|ghp|sk|xox[bp])[_-]\w{16,}"
)


@every_trace
def test_no_row_exceeds_its_bound_without_a_reason_that_is_possible_for_it(path):
    for row in analysis_of(path).operators:
        if row.efficiency is not None and row.efficiency > 1.1:
            assert row.flag, row.name
        if "Winograd" in (row.flag or ""):
            assert row.category == "convolution", row.name


@every_trace
def test_the_idle_time_of_the_headline_is_all_of_it(path):
    analysis = analysis_of(path)
    for found in re.finditer(rf"the device is idle for {SHARE} of the (?:step|trace)", analysis.verdict, re.IGNORECASE):
        assert share(found[1]) == pytest.approx(analysis.timeline.idle_s / analysis.timeline.span_s, abs=ROUNDED)


@pytest.mark.ci
@every_trace
def test_only_first_calls_are_warmed_up(path):
    """No more time than long calls take of whose kernel, or operator and arguments, none came before."""
    calls = tree(read(path))
    host, device = calls.trace.host, calls.trace.device
    kernel = {int(launch): int(name) for launch, name in zip(calls.launch.tolist(), device.name.tolist(), strict=True) if launch >= 0}
    seen, first_s = set(), 0.0
    for event in np.argsort(host.start_ns, kind="stable").tolist():
        inside = int(calls.above[event])
        of = kernel.get(event, -1), *((host.signature[inside],) if host.kind[event] == RUNTIME and event not in kernel else ())
        of = of if host.kind[event] == RUNTIME else (int(host.name[event]), int(host.signature[event]))
        lasting_s = (calls.end_ns[event] - host.start_ns[event]) / 1e9
        if of not in seen or lasting_s >= 0.05:  # the longest allocate, which begins to use a library
            first_s += lasting_s
        seen.add(of)
    warmed = [finding for finding in analysis_of(path).findings if finding.title.startswith("Warm up")]
    assert sum(finding.most_s for finding in warmed) <= first_s / max(1, analysis_of(path).basis.steps)


@every_trace
def test_a_plan_adds_up_and_no_gain_exceeds_its_bound(path):
    analysis = analysis_of(path)
    replayed = [finding for finding in analysis.findings if finding.about_s is not None]
    for finding in replayed:
        assert 0 <= finding.about_s <= finding.saves_s + 1e-12
        assert finding.later_s is None or finding.about_s < finding.later_s <= finding.saves_s + 1e-12
    chain_s = analysis.replay.chain_s if analysis.replay is not None else ()
    assert sum(finding.about_s for finding in replayed if finding.later_s is None) == pytest.approx(
        chain_s[0] - chain_s[-1] if chain_s else 0
    )
    assert not replayed or analysis.replay.error <= 0.05


@every_trace
def test_what_has_no_figure_is_absent_and_never_0(path):
    found = json.loads(to_json(analysis_of(path)))
    assert all(finding.get("saves_s") != 0 and finding.get("later_s") != 0 for finding in found["findings"])
    assert all(not {"flops", "bytes", "matrix_flops"} & gap.keys() for gap in found["coverage"]["unmodeled"])
    if not any(row["flops"] or row["bytes"] for row in found["operators"]):
        assert not {"flops", "matrix_flops", "bytes"} & found["totals"].keys()


@every_trace
def test_a_trace_is_not_spoken_of_as_a_run_and_keeps_its_people_and_places_to_itself(path):
    for text in (terminal_of(path), page_of(path), to_json(analysis_of(path))):
        shown = text.replace(str(path), "").replace(str(path.parent), "")
        assert OF_A_RUN.findall(shown) == []
        assert PRIVATE.findall(shown) == []
