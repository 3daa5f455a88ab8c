"""The time of a step by part: the rows of the table, and sentences about how the step is fed."""

from __future__ import annotations

from typing import NamedTuple

from rooflines.reports.charts.palette import BOUNDS
from rooflines.roofline.advice.input import WAITS
from rooflines.roofline.analysis import PARTS, Analysis, StepDivision
from rooflines.roofline.step.input_pipeline import input_fraction
from rooflines.roofline.verdict import rates_sentence
from rooflines.units import counted, percent, seconds

_NAMES = {"data_loading": "data loading", "host_to_device": "host to device", "other": "other work"}
_MEANINGS = {
    "device": {
        "data_loading": "the device had nothing to do while the host was loading data",
        "host_to_device": "copies from the host that no other work hides",
        "forward": "work launched by the forward pass",
        "backward": "work launched by the backward pass",
        "optimizer": "work launched by the optimizer",
        "communication": "exchange between devices that no other work hides",
        "other": "device work whose phase or launch the trace does not show",
        "host": BOUNDS["host"].meaning,
        "idle": BOUNDS["idle"].meaning,
    },
    "host": {
        "data_loading": "in the data loader",
        "forward": "operators of the forward pass",
        "backward": "operators of the backward pass",
        "optimizer": "the optimizer, with its own Python",
        "communication": "exchange between processes that no operator hides",
        "other": "operators whose phase the trace does not show",
        "host": "outside of operators: Python and the framework",
    },
}


class DivisionRow(NamedTuple):
    """A part of the step: its name, its seconds, its share of them all, and what it is."""

    name: str
    time_s: float
    share: float
    meaning: str


def division_title(analysis: Analysis) -> str:
    """The heading of the table."""
    return "Time per step by part" if analysis.basis.per == "step" else "Time in the trace by part"


def division_rows(analysis: Analysis) -> list[DivisionRow]:
    """The parts that the trace shows, in the order of a step; empty without a trace, and where there is but one part."""
    division = analysis.division
    if division is None or division.step_s <= 0:
        return []
    meanings = _MEANINGS[division.of]
    rows = [
        DivisionRow(_NAMES.get(part, part), time_s, time_s / division.step_s, meanings.get(part, ""))
        for part in PARTS
        if (time_s := _time(division, part)) is not None
    ]
    return rows if len(rows) > 1 else []


def _time(division: StepDivision, part: str) -> float | None:
    found: float | None = getattr(division, f"{part}_s")
    return found


def input_sentences(analysis: Analysis) -> list[str]:
    """How long a step waits for its data, and what loader and step reach alone."""
    found, division = analysis.input, analysis.division
    if found is None:
        return []
    who = found.loader if found.workers is None else f"{found.loader}, {counted(found.workers, 'worker')}"
    texts = [f"The program waits for data for {seconds(found.wait_s)} of a step ({who})."]
    if found.rare_waits is not None:
        rare = found.rare_waits
        texts.append(
            f"In addition, {rare.steps} of {counted(rare.of, 'timed step')} waited {seconds(rare.wait_s)}: "
            f"{percent(rare.fraction)} of the time of all steps, and no part of the median step."
        )
    if found.is_lower_bound:
        texts.append(f"{found.ready_batches} batches were ready when the timed pass began: with more steps the share would be larger.")
    if division is not None and division.of == "device" and found.delay_s is not None:
        texts.append(f"It delays the device by {seconds(found.delay_s)}; the rest is hidden behind the device's work.")
    rates = rates_sentence(analysis)
    if rates and input_fraction(analysis) < WAITS:  # else the advice says them
        texts.append(f"{rates[0].upper()}{rates[1:]}.")
    if found.step_rate is not None:
        measured = found.step_rate.how == "measured"
        how = "measured on a batch in memory" if measured else "derived: the timed steps less what they waited"
        texts.append(f"The step alone was {how}.")
    if found.workers_busy_fraction is not None:
        texts.append(f"The workers computed for {percent(min(1.0, found.workers_busy_fraction))} of their time.")
    return texts
