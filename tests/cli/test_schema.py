"""The published schemas: the comment above a field of a record is its description."""

import json

import pytest

from rooflines.cli import schema
from rooflines.profiler.records import RunFile, StepTimes
from rooflines.profiler.training.records import Training


@pytest.mark.ci
@pytest.mark.parametrize("name", ["analysis", "monitor"])
def test_a_field_is_described_by_the_comment_above_it(name, capsys):
    schema.schema(name)
    records = json.loads(capsys.readouterr().out)["$defs"]
    environment = records["Environment"]["properties"]
    assert environment["device_units"]["description"] == "Multiprocessors of the GPU; of a slice its own."
    assert environment["device"]["description"] == "torch's name of the device: `cpu`, `cuda:0`."
    assert environment["device"]["type"] == "string"


def test_every_field_of_the_large_records_is_explained():
    for kind in (RunFile, StepTimes):
        assert schema.explanations(kind).keys() == set(kind.__struct_fields__)


def test_the_records_in_a_record_are_found_once_each():
    found = schema.records_in(Training)
    assert {"Training", "Epoch", "Environment", "ResultError"} <= found.keys()
