"""Ranked advice: what to change first, the seconds a step it could save at most, the evidence, and what to
try.

Every finding is computed from the analysis, names the figures it rests on, and claims no more than the time
it is about. Each rule is one function in a file of ``advise/`` with a line in ``RULES``, or in another
package; ``find`` runs them all and keeps the largest.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from rooflines.installed import load_all
from rooflines.roofline.advise import (
    categories,
    communication,
    copies,
    experts,
    generation,
    host,
    matrix,
    small_kernels,
    training,
)
from rooflines.roofline.advise.case import Advice, Case, Rule, Setting, device_kind
from rooflines.roofline.advise.plan import Planned, in_order, planned
from rooflines.roofline.advise.verdict import ONE_THREAD
from rooflines.roofline.analysis import Analysis, Finding, Key
from rooflines.roofline.judge.step.interference import busy, delayed, is_delayed, undivided
from rooflines.roofline.replay.replays import Replays

# What is below this share of a step is not worth a sentence.
WORTH = 0.02
MOST = 6

# Special rules first: what they are about is taken out of the times that the general ones see.
RULES: tuple[Rule, ...] = (
    host.load_faster,
    matrix.emulated,
    matrix.hand_written,
    matrix.fallback,
    copies.conversions,
    copies.pageable,
    communication.late_rank,
    communication.exposed,
    training.evaluating,
    training.recomputed,
    training.page_faults,
    training.zeroed_gradients,
    training.loop,
    experts.dense,
    matrix.double,
    matrix.lower_precision,
    matrix.named_in_full_precision,
    generation.read_weights,
    small_kernels.chained,
    copies.of_ddp,
    copies.on_device,
    small_kernels.small_operators,
    *(categories.slow(category) for category in categories.CATEGORIES),
    small_kernels.larger_grids,
    host.synchronization,
    host.preprocessing,
    host.beginning,
    host.allocating,
    host.unrecorded,
    host.eager_decode,
    host.launching,
    host.late_start,
    host.in_graphs,
    host.between_operators,
    host.oversubscribed,
)
# What can be said of a run without a trace.
_UNTRACED_RULES: tuple[Rule, ...] = (training.page_faults, host.oversubscribed)
# Of a device that was not traced, only the wait for data is known; a cost that occurs once is not advice for
# a step.
_INPUT_RULES: tuple[Rule, ...] = (host.load_faster,)

REPEAT = "Repeat the run while other programs pause"
_MORE_STEPS = Finding(
    title="Record more steps",
    evidence="the only step contains start-up, so the time of a step is unknown",
    suggestion="profile at least five steps",
)


def find(analysis: Analysis) -> tuple[Finding, ...]:
    """The findings of ``analysis`` without replays."""
    return tuple(find_plan(analysis).findings)


def find_plan(analysis: Analysis, replays: Replays | None = None) -> Planned:
    """The findings of ``analysis``, in seconds of the step: in the order of a plan where its trace is
    replayed, else the largest bound first; no two about the same time, together at most it."""
    start_up = analysis.basis.start_up
    only_input = start_up or analysis.basis.served or analysis.device_untraced
    rules = (
        _UNTRACED_RULES
        if analysis.timeline is None
        else _INPUT_RULES
        if only_input
        else (*load_all("findings"), *RULES)
    )
    case = Case(analysis)
    least_s = WORTH * case.step_s
    untold = bool(undivided(analysis))
    pairs = [] if untold else [*_found(case, rules, least_s)]
    if not pairs and not untold and analysis.other_programs is not None:
        # Beside other programs no gain is certain, so the largest one is listed even if it is small.
        least_s = 0.0
        every = _found(Case(analysis), rules, least_s)
        pairs = sorted(every, key=lambda pair: -(pair[0].saves_s or 0.0))[:1]
    plan = Planned([finding for finding, _ in pairs]) if replays is None else planned(pairs, replays, least_s)
    more = [_MORE_STEPS] if start_up else []
    if untold or is_delayed(analysis):
        more += _disturbed(analysis)
    return plan._replace(findings=(*in_order(plan.findings)[:MOST], *more))


def _disturbed(analysis: Analysis) -> Iterator[Finding]:
    """What to do about a run that other programs disturbed too much to judge it."""
    ours, found = analysis.workload.source != "loop", analysis.other_programs
    again: Setting | str = Setting("wait_quiet", True) if ours else "the same loop when the machine is idle"
    what: dict[str, tuple[Setting | str, str]] = {}
    threads = analysis.environment.threads or 1
    if found is not None and threads > 1 and device_kind(analysis) == "cpu":
        one = Setting("threads", 1, None if ours else "torch.set_num_threads(1)")
        measured = "; rooflines advise RUN --try --only threads measures what one saves" * ours
        what[ONE_THREAD] = one, f"operators use up to {threads} threads while {busy(found)}{measured}"
    what[REPEAT] = again, delayed(analysis)
    for title, (suggestion, evidence) in what.items():
        yield Finding(
            title=title,
            evidence=evidence,
            suggestion=str(suggestion),
            **_option(suggestion),
        )


def _found(case: Case, rules: tuple[Rule, ...], least_s: float) -> Iterator[tuple[Finding, Advice]]:
    # An option gives what is predicted for it once.
    promised: dict[Setting | str, dict[Key, float]] = defaultdict(lambda: defaultdict(float))
    left_s = case.step_s
    for rule in rules:
        advice = rule(case)
        if advice is None:
            continue
        saves_s = 0.0
        if advice.saves_s is not None:
            of_s = sum(advice.of.values())
            predicted_s = _predicted_s(advice, case, promised[advice.suggestion])
            saves_s = min(advice.saves_s, of_s, predicted_s, left_s)
            if saves_s <= 0 or saves_s < least_s:
                continue
            left_s -= saves_s
            for key, time_s in advice.of.items():
                promised[advice.suggestion][key] += saves_s * time_s / of_s
        case.take(advice)
        finding = Finding(
            title=advice.title,
            saves_s=saves_s or None,
            evidence=advice.evidence + case.left_out(advice),
            suggestion=str(advice.suggestion),
            example=case.example(advice),
            **_option(advice.suggestion),
        )
        yield finding, advice._replace(saves_s=saves_s)


def _option(suggestion: Setting | str) -> dict[str, Any]:
    """What repeats the run with ``suggestion``."""
    if not isinstance(suggestion, Setting) or suggestion.in_code is not None:
        return {}
    return {"option": suggestion.option, "value": suggestion.value}


def _predicted_s(advice: Advice, case: Case, promised: Mapping[Key, float]) -> float:
    """What an option is predicted to save of the rows and causes that ``advice`` is about, without what other
    advice has ``promised`` of it, as in the table of ``rooflines advise``; infinite without a prediction."""
    option = advice.suggestion
    if not isinstance(option, Setting):
        return math.inf
    gain = case.gain(option.option, option.value)
    if gain is None:
        return math.inf
    if gain.of:
        return sum(gain.of.get(key, 0.0) - promised.get(key, 0.0) for key in advice.of)
    return case.step_s * (1 - 1 / gain.speedup) - sum(promised.values())
