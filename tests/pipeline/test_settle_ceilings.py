"""Ceilings that operators beat are measured again: how often, and when it ends."""

from types import SimpleNamespace

import msgspec
import pytest

from rooflines.device_specs.records import Ceilings
from rooflines.pipeline import recording
from rooflines.profiler.progress import Silent
from rooflines.profiler.records import Environment, Run, RunFile, Settings, Workload


@pytest.fixture
def settle(tmp_path, monkeypatch):
    """Settle the ceilings of a run with an operator that takes 1 s; returns the lower bounds that judged it."""

    def settled(*bounds_s, bound="compute", ceilings="measured", measurements=1):
        found, used = list(bounds_s), []
        environment = Environment(host="h", os="o", python="3", rooflines="0", torch="2", device="cpu", device_name="x", threads=2)
        facts = RunFile(
            status="complete", workload=Workload(name="net", mode="inference"), environment=environment,
            settings=Settings(ceilings=ceilings), ceilings=Ceilings(device="", kind="cpu", ceilings=(), measurements=measurements),
        )  # fmt: skip

        def analyze(run):
            used.append(found[len(used)])
            return SimpleNamespace(operators=[SimpleNamespace(efficiency=used[-1], bound=bound)])

        def measure(device, threads, *, remeasure, progress):
            assert (device, threads, remeasure) == ("cpu", 2, True)
            return msgspec.structs.replace(facts.ceilings, measurements=measurements + len(used))

        monkeypatch.setattr(recording, "_analyze", analyze)
        monkeypatch.setattr(recording, "measured_ceilings", measure)
        run, _ = recording._settle_ceilings(Run(directory=tmp_path, facts=facts), Silent())
        return used, run.facts

    return settled


@pytest.mark.parametrize("bound", ["compute", "memory"])
def test_a_ceiling_that_was_too_low_is_measured_again_till_nothing_beats_it(settle, bound):
    used, facts = settle(1.9, 0.95, bound=bound)
    assert used == [1.9, 0.95]
    assert facts.ceilings.measurements == 2
    assert facts.notes == (recording.MEASURED_AGAIN,)


def test_a_roof_that_does_not_rise_stands(settle):
    # a convolution that does less than its formula (Winograd)
    assert settle(1.50, 1.49, 1.49)[0] == [1.50, 1.49]
    assert settle(1.50, 1.40, 1.39)[0] == [1.50, 1.40, 1.39]


def test_it_ends_after_three_measurements(settle):
    assert settle(4.0, 3.0, 2.0)[0] == [4.0, 3.0, 2.0]
    assert settle(4.0, measurements=3)[0] == [4.0]


def test_what_is_plausible_or_not_measured_or_not_a_roof_is_left_alone(settle):
    assert settle(1.01)[0] == [1.01]
    assert settle(2.0, ceilings="spec")[0] == [2.0]
    assert settle(2.0, bound="latency")[0] == [2.0]
