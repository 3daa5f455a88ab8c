"""What ``benchmarks/ceilings_repeat.py`` makes of its measurements: it must say what failed."""

import importlib.util
import json
from pathlib import Path

import msgspec
import pytest

from rooflines.device_specs.records import Ceilings
from tests import samples

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "ceilings_repeat.py"


@pytest.fixture(scope="module")
def repeat():
    spec = importlib.util.spec_from_file_location("ceilings_repeat", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*changes):
    """A measurement of the sample's ceilings, some of them changed: (name, factor, what its source says after it)."""
    found = list(samples.ceilings())
    for name, factor, note in changes:
        index = next(number for number, one in enumerate(found) if one.name == name)
        found[index] = msgspec.structs.replace(found[index], value=found[index].value * factor).noted(note)
    return Ceilings(device="x", kind="cpu", ceilings=tuple(found)), 40.0


def test_the_worst_run_is_compared_with_the_best(repeat, capsys):
    result = repeat.judged([run(), run(("FMA fp32", 0.94, ""), ("operator dispatch", 1.05, ""))])
    assert result["figures"]["FMA fp32"]["worst_of_best"] == 0.94
    assert result["figures"]["operator dispatch"]["worst_of_best"] == pytest.approx(1 / 1.05, abs=1e-4)
    assert (result["failed"], result["broken_laws"]) == ([], [])
    repeat.show("quiet", result)
    assert "every main figure is within 7 %" in capsys.readouterr().out


def test_a_figure_that_is_too_low_or_missing_and_a_broken_law_fail(repeat, capsys):
    fewer = msgspec.structs.replace(run()[0], ceilings=samples.ceilings()[:-1])
    result = repeat.judged([run(), run(("L3 read", 0.9, ", contradicts: 90 % of DRAM read")), (fewer, 40.0)])
    assert result["failed"] == ["L3 read", "operator dispatch"]
    assert result["broken_laws"] == ["run 2: L3 read is 90 % of DRAM read"]
    repeat.show("quiet", result)
    said = capsys.readouterr().out
    assert "FAILED: 2 figures are not within 7 %: L3 read, operator dispatch" in said
    assert "FAILED: 1 broken laws" in said
    assert json.loads(repeat.text_of(result)) == result
