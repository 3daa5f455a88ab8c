"""By which device and which roof a row is judged, and its class, on real traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from rooflines import pipeline

TRACES = Path(__file__).parents[1] / "data" / "traces"


@pytest.fixture(scope="module")
def judged():
    """The analysis of a trace by its name, each made once."""
    found = {}

    def of(name):
        if name not in found:
            found[name] = pipeline.analyze(TRACES / f"{name}.json.gz")
        return found[name]

    return of


# --- the device --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "device"), [
    ("vit-b16_mi300x_inference", "AMD Instinct MI300X VF"),  # its kernels ran on agent 2, and only device 0 is described
    ("resnet50_v100_training_2021_schema", "Tesla V100-DGXS-32GB"),
    ("nccl_collectives", "NVIDIA A100-PG509-200"),
])  # fmt: skip
def test_a_trace_is_judged_by_the_device_it_lists(judged, name, device):
    analysis = judged(name)
    assert (analysis.environment.device_name, analysis.environment.device_inferred) == (device, None)
    assert analysis.ceilings


def test_a_name_that_many_devices_have_is_inferred(judged):
    analysis = judged("toy_mi250_training")
    assert analysis.environment.device_inferred == "compute capability 9.0, 104 units, 68.7 GB of memory, kernels of gfx90a"
    assert any("calls its device 'AMD Radeon Graphics'" in note and "MI250" in note for note in analysis.notes)
    assert analysis.ceilings
