"""Laws of the registry of sampled fields, and its order in files."""

import ast
import os
import time
from pathlib import Path
from typing import get_args

import pyarrow.parquet as pq
import pytest

import rooflines.profiler.samplers
from rooflines.profiler.samplers.fields import COLUMNS, FIELDS, NUMBERS, DeviceSample, Field, Place, Summary
from rooflines.profiler.samplers.host import HostSampler
from rooflines.profiler.samplers.storage import read_samples, write_samples
from rooflines.reports.page.usage import SUMMARY_WORDS
from rooflines.roofline.judge.usage.device_usage import figure, usage_of
from rooflines.units import UNITS, quantity
from tests.usage_samples import machine_samples

SAMPLERS = Path(rooflines.profiler.samplers.__file__).parent
# What a field's name ends with for its unit.
ENDINGS = {
    "W": "_w", "J": "_j", "°C": "_c", "Hz": "_hz", "B": "_bytes", "B/s": "_bytes_per_s", "1": ("_utilization", "_reasons"),
    "cores": "_utilization", "": ("_threads", "_count", "_faults", "_corrected", "_uncorrected"),
}  # fmt: skip


@pytest.mark.parametrize("key", FIELDS)
def test_every_field_has_a_known_unit_a_label_and_a_way_of_summing_up(key):
    field = FIELDS[key]
    assert field.label.strip()
    assert field.unit in UNITS
    assert key.endswith(ENDINGS[field.unit])
    assert field.summary
    assert set(field.summary) <= set(get_args(Summary))
    assert set(field.shown) <= set(get_args(Place))
    assert not (field.is_counter and len(field.summary) > 1)
    for summary in field.summary:
        assert SUMMARY_WORDS[summary]
        assert field.unit_of(summary) in UNITS


def test_every_field_is_in_the_registry():
    # Every part of a sample is in the registry or says whose it is.
    assert set(DeviceSample.__struct_fields__) == {"time_ns", "source", "device", "more", *FIELDS}
    assert list(COLUMNS) == ["time_ns", "source", "device", *FIELDS]
    assert set(FIELDS) - set(NUMBERS) == {"core_utilization", "throttle_reasons"}
    # Read from the source: no machine has all of the hardware.
    named = set()
    for path in SAMPLERS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "DeviceSample":
                named |= {keyword.arg for keyword in node.keywords if keyword.arg is not None}
            if isinstance(node, ast.Dict) and path.stem in ("host", "nvml"):
                named |= {key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    yielded = named - {"time_ns", "source", "device", "more"}
    assert yielded <= set(FIELDS)
    # Every field has a sampler.
    assert set(FIELDS) <= yielded
    # A reading of this machine has registered fields only.
    sampler = HostSampler(os.getpid())
    try:
        time.sleep(0.1)
        (sample,) = sampler.read()
        numbers = sample.numbers()
        assert {"process_rss_bytes", "memory_used_bytes"} <= set(numbers) <= set(FIELDS)
        assert {counter.field for counter in sampler.counters()} <= set(FIELDS)
    finally:
        sampler.close()


def test_every_figure_of_a_sampled_field_can_be_read_and_written():
    usage = usage_of(machine_samples())
    for one in usage.devices:
        for key in {*one.gauges, *one.counts}:
            field = FIELDS[key]
            shown = [(summary, figure(one, key, summary)) for summary in field.summary if summary != "integral"]
            assert all(value is not None and quantity(value, field.unit_of(summary)) for summary, value in shown), key


def test_samples_come_back_from_the_table_with_declared_fields_and_absent_ones_absent(tmp_path):
    path = tmp_path / "samples.parquet"
    samples = (
        DeviceSample(time_ns=1795172931471427755, source="psutil", core_utilization=(0.25, 0.75), process_threads=3),
        DeviceSample(time_ns=1, source="nvml", device="cuda:0", power_w=431.5, memory_used_bytes=3 << 40, energy_j=0.0),
        DeviceSample(time_ns=2, source="fan", more={"fan_rpm": 900.0}),
        DeviceSample(time_ns=3, source="fan", device="rack", more={"fan_rpm": 901.5, "inlet_c": 21.0}),
    )
    write_samples(samples, path)
    assert read_samples(path) == samples
    assert pq.read_schema(path).names == [*COLUMNS, "fan_rpm", "inlet_c"]
    assert [path.name for path in tmp_path.iterdir()] == ["samples.parquet"]


def test_declared_gauges_counters_and_integrals_are_summed_up():
    fields = {
        "fan_rpm": Field("fan", "rpm"),
        "pump_w": Field("pump", "W", ("mean", "integral")),
        "pages_total": Field("pages", "", ("difference",)),
    }
    second = 10**9
    samples = [
        DeviceSample(time_ns=i * second, source="fan", more={"fan_rpm": 900.0 + i, "pump_w": 20.0, "pages_total": 1e6 + 3 * i})
        for i in range(11)
    ]
    usage = usage_of(samples, fields=fields)
    (host,) = usage.devices
    assert usage.fields == fields
    assert figure(host, "fan_rpm", "highest") == 910
    assert figure(host, "pump_w", "mean") == 20
    assert figure(host, "pump_w", "integral") == pytest.approx(200)
    assert figure(host, "pages_total", "difference") == 30
    curves = {series.field: series.values for series in usage.series}
    assert curves["pages_total"] == tuple(3.0 * i for i in range(11))
    assert curves["fan_rpm"][0] == 900
