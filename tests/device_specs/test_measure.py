"""Measuring, caching and reading ceilings; no test asserts how fast this machine is."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys

import msgspec
import pytest
import torch

from rooflines.device_specs import detect, measure
from rooflines.device_specs.measure_gpu import derived_fp32
from rooflines.device_specs.measure_torch import transfers
from rooflines.device_specs.meter import Meter
from rooflines.device_specs.records import Ceilings
from rooflines.errors import DataError, DeviceError, UsageError
from rooflines.kernels.micro.repeats import Timing
from rooflines.serial import write_json
from tests import samples

pytestmark = pytest.mark.alone

BUDGET_S = 0.05
REST = '"name": "a", "value": {}, "unit": "s", "source": {{"kind": "user", "detail": ""}}}}]}}'
STORED = Ceilings(device="laptop", kind="cpu", ceilings=samples.ceilings(), fingerprint="f", measured_at="2026-11-20T10:00:00+00:00")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROOFLINES_CACHE_DIR", str(tmp_path))
    return tmp_path / "ceilings"


@pytest.fixture
def instant(monkeypatch):
    """A measurement that takes no time: the ceilings of the sample. Returns the thread counts it was asked for."""
    asked = []

    def fake(meter, threads, *, full=False):
        asked.append((threads, "full") if full else threads)
        for ceiling in samples.ceilings():
            meter.keep(ceiling)

    monkeypatch.setattr(measure, "measure_cpu", fake)
    monkeypatch.setattr(measure, "sustained_clock_hz", lambda threads: 3e9)
    return asked


@pytest.mark.slow
def test_measures_every_kind_on_the_cpu(cache):
    threads_before, said = torch.get_num_threads(), []
    flags_before = torch.get_float32_matmul_precision(), torch.is_grad_enabled()
    found = measure.measure("cpu", threads=1, progress=said.append, budget_s=BUDGET_S)

    names = [ceiling.name for ceiling in found.ceilings]
    assert len(set(names)) == len(names)
    assert {"FMA fp32", "FMA fp64", "GEMM fp32", "GEMM fp64", "DRAM read", "DRAM copy", "DRAM triad", "operator dispatch"} <= set(names)
    assert {f"{level.level} {access}" for level in detect.cpu().caches for access in ("read", "copy", "triad")} <= set(names)
    for ceiling in found.ceilings:
        assert ceiling.value > 0
        assert ceiling.spread is not None
        assert ceiling.source.kind == "measured"
        assert "repeats" in ceiling.source.detail
        assert ceiling.source.date == datetime.date.today().isoformat()
        assert any(line.startswith(ceiling.name) for line in said)
    assert found.outermost_memory().level == "DRAM"
    for level in detect.cpu().caches:
        assert {c.capacity_bytes for c in found.ceilings if c.level == level.level} == {level.capacity_bytes(1)}
    assert found.kind == "cpu"
    assert found.device == detect.cpu().name

    # AND the process is as it was, and the second call does not measure
    assert torch.get_num_threads() == threads_before
    assert (torch.get_float32_matmul_precision(), torch.is_grad_enabled()) == flags_before
    said.clear()
    assert measure.measure("cpu", threads=1, progress=said.append, budget_s=BUDGET_S) == found
    assert said == []


@pytest.mark.unit
def test_second_call_is_answered_from_the_cache(cache, instant):
    first = measure.measure("cpu", threads=2)
    assert measure.measure("cpu", threads=2) == first
    assert instant == [2]
    assert [path.name for path in cache.iterdir()] == [f"cpu-{first.fingerprint}.json"]


@pytest.mark.unit
def test_remeasure_and_other_threads_are_measured(cache, instant):
    first = measure.measure("cpu", threads=2)
    measure.measure("cpu", threads=2, remeasure=True)
    other = measure.measure("cpu", threads=1)
    assert instant == [2, 2, 1]
    assert other.fingerprint != first.fingerprint


@pytest.mark.unit
def test_a_full_set_answers_a_quick_request_and_not_the_other_way_round(cache, instant):
    quick = measure.measure("cpu", threads=2)
    full = measure.measure("cpu", threads=2, full=True)
    assert instant == [2, (2, "full")]
    assert (quick.full, full.full, full.clock_hz) == (False, True, 3e9)
    assert measure.measure("cpu", threads=2) == measure.measure("cpu", threads=2, full=True) == full
    assert instant == [2, (2, "full")]
    assert sorted(path.name for path in cache.iterdir()) == [f"cpu-{full.fingerprint}-full.json", f"cpu-{full.fingerprint}.json"]


@pytest.mark.unit
def test_of_a_full_and_a_quick_set_the_later_answers_a_quick_request(cache, instant):
    full = measure.measure("cpu", threads=2, full=True)
    older = msgspec.structs.replace(full, measured_at="2026-01-01T00:00:00+00:00")
    write_json(cache / f"cpu-{full.fingerprint}-full.json", older)
    quick = measure.measure("cpu", threads=2, remeasure=True)
    assert measure.measure("cpu", threads=2) == quick
    assert measure.measure("cpu", threads=2, full=True) == older


@pytest.mark.unit
def test_what_is_measured_again_stays_with_the_set_that_it_betters(cache, instant):
    full = measure.measure("cpu", threads=2, full=True)
    further = msgspec.structs.replace(full.ceilings[0], variant="1 thread", value=1.0)
    known = msgspec.structs.replace(full, ceilings=(*full.ceilings, further))
    best = measure.measure_again(known, "cpu", threads=2)
    assert instant == [(2, "full"), 2]
    assert (best.full, best.measurements, best.clock_hz) == (True, 2, 3e9)
    assert set(best.ceilings) == set(known.ceilings)  # a further roof is not taken for the main one of its name
    assert measure.measure("cpu", threads=2, full=True) == best


@pytest.mark.unit
def test_what_is_interrupted_leaves_the_cache_as_it_was(cache, instant, monkeypatch):
    first = measure.measure("cpu", threads=2)

    def stopped(meter, threads, *, full=False):
        meter.keep(samples.ceilings()[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "measure_cpu", stopped)
    before = {path.name: path.read_bytes() for path in cache.iterdir()}
    for full in (False, True):
        with pytest.raises(KeyboardInterrupt):
            measure.measure("cpu", threads=2, remeasure=True, full=full)
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == before
    assert measure.measure("cpu", threads=2) == first


@pytest.mark.unit
def test_a_record_says_what_measured_it(cache, instant):
    found = measure.measure("cpu", threads=2)
    assert found.method == measure.METHOD
    assert found.packages["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert found.threads == 2


@pytest.mark.unit
def test_sustained_figures_are_for_cuda(cache, instant):
    with pytest.raises(UsageError, match="measured on CUDA devices, not on cpu"):
        measure.measure("cpu", sustained_s=5)
    assert instant == []


@pytest.mark.unit
def test_threads_default_to_those_of_torch(cache, instant):
    measure.measure()
    assert instant == [torch.get_num_threads()]


@pytest.mark.unit
@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[]", b'{"device": 3}', b'{"device": "a", "kind": "cpu", "ceilings": []}']
)
def test_corrupted_cache_is_measured_again(cache, instant, content):
    first = measure.measure("cpu", threads=2)
    path = cache / f"cpu-{first.fingerprint}.json"
    path.write_bytes(content)
    again = measure.measure("cpu", threads=2)
    assert instant == [2, 2]
    assert again.ceilings == first.ceilings
    assert msgspec.json.decode(path.read_bytes(), type=Ceilings) == again


@pytest.mark.unit
def test_disturbed_measurement_is_made_again_after_an_hour(cache, instant):
    first = measure.measure("cpu", threads=2)
    source = msgspec.structs.replace(first.ceilings[0].source, detail="FMA kernel, disturbed: other processes used the same cores")
    disturbed = (msgspec.structs.replace(first.ceilings[0], source=source), *first.ceilings[1:])
    path = cache / f"cpu-{first.fingerprint}.json"
    now = datetime.datetime.now(datetime.timezone.utc)
    for minutes, measured in ((50, [2]), (70, [2, 2])):
        then = (now - datetime.timedelta(minutes=minutes)).isoformat()
        write_json(path, msgspec.structs.replace(first, ceilings=disturbed, measured_at=then))
        measure.measure("cpu", threads=2)
        assert instant == measured


@pytest.mark.unit
def test_unwritable_cache_is_said_and_not_an_error(tmp_path, monkeypatch, instant):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ROOFLINES_CACHE_DIR", str(tmp_path / "file"))
    said = []
    assert measure.measure("cpu", threads=2, progress=said.append).ceilings == samples.ceilings()
    assert said[-1].startswith("ceilings not cached")


@pytest.mark.unit
@pytest.mark.parametrize("name", ["gpu0", "meta", "", "cuda:99"])
def test_device_that_is_not_there(cache, name):
    with pytest.raises(DeviceError) as caught:
        measure.measure(name)
    assert f'"{name}"' in caught.value.message
    assert caught.value.hint


@pytest.mark.unit
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_says_what_to_do(cache):
    with pytest.raises(DeviceError, match="sees no GPU"):
        measure.measure("cuda:0")


@pytest.mark.unit
@pytest.mark.parametrize("shape", ["record", "analysis", "run"])
def test_load_file_reads_what_rooflines_writes(tmp_path, shape):
    path = tmp_path / "mine.json"
    record = msgspec.to_builtins(STORED)
    environment = {"device": "cuda:0", "device_name": "NVIDIA H200"}
    plain = {
        "record": record,
        "analysis": {"environment": environment, "ceilings": record["ceilings"]},
        "run": {"environment": environment, "ceilings": record},
    }[shape]
    path.write_text(json.dumps(plain))
    found = measure.load_file(path)
    assert found.ceilings == STORED.ceilings
    assert (found.device, found.kind) == (("NVIDIA H200", "cuda") if shape == "analysis" else ("laptop", "cpu"))


@pytest.mark.unit
def test_load_file_needs_no_more_than_the_list(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"ceilings": msgspec.to_builtins(STORED)["ceilings"]}))
    assert measure.load_file(path).device == "mine"


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "is not JSON"),
        ("[1, 2]", 'has no list "ceilings"'),
        ('{"ceilings": 3}', 'has no list "ceilings"'),
        ('{"ceilings": []}', "holds no ceiling"),
        ('{"ceilings": [{"kind": "compute"}]}', "missing required field"),
        ('{"ceilings": [{"kind": "weight", ' + REST.format(1), r"\$.ceilings\[0\].kind"),
        ('{"ceilings": [{"kind": "latency", ' + REST.format(0), 'gives "a" as 0.0'),
    ],
)  # fmt: skip
def test_load_file_says_what_is_wrong(tmp_path, text, message):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        measure.load_file(path)
    assert str(path) in caught.value.message
    assert caught.value.exit_code == 2


@pytest.mark.unit
def test_load_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        measure.load_file(tmp_path / "missing.json")


@pytest.mark.unit
def test_age():
    then = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=3)
    found = measure.age(msgspec.structs.replace(STORED, measured_at=then.isoformat()))
    assert datetime.timedelta(hours=3) <= found < datetime.timedelta(hours=3, minutes=5)
    assert measure.age(msgspec.structs.replace(STORED, measured_at="")) is None
    assert measure.age(msgspec.structs.replace(STORED, measured_at="yesterday")) is None


@pytest.mark.unit
def test_derived_fp32_is_multiprocessors_times_rate_times_clock():
    found = []
    meter = Meter(1.0, found, lambda _: None)
    h100 = detect.Gpu(name="NVIDIA H100 80GB HBM3", index=0, compute_capability=(9, 0), multiprocessors=132, memory_bytes=80 << 30,
                      sm_clock_hz=1.98e9)  # fmt: skip
    derived_fp32(meter, h100)
    (ceiling,) = found
    assert ceiling.value == 132 * 256 * 1.98e9  # 66.9 TFLOP/s; the data sheet says 67
    assert (ceiling.precision, ceiling.engine, ceiling.source.kind, ceiling.spread) == ("fp32", "vector", "derived", None)


@pytest.mark.unit
@pytest.mark.parametrize(
    "change",
    [{"sm_clock_hz": None}, {"compute_capability": (99, 0)}, {"name": "NVIDIA H20"}],
    ids=["no clock", "unknown generation", "capped by its vendor"],
)
def test_derived_fp32_is_left_out_where_it_is_not_exact(change):
    found = []
    gpu = detect.Gpu(name="NVIDIA H200", index=0, compute_capability=(9, 0), multiprocessors=132, memory_bytes=1, sm_clock_hz=1.98e9)
    derived_fp32(Meter(1.0, found, lambda _: None), msgspec.structs.replace(gpu, **change))
    assert found == []


@pytest.mark.unit
@pytest.mark.parametrize(("private", "rate"), [(True, 100.0), (False, 50.0)])
def test_a_private_core_is_judged_by_its_processor_time(private, rate):
    # GIVEN 10 FLOP a call, each call 0.2 s of which the thread had its core for half
    found = []
    meter = Meter(0.0, found, lambda _: None)
    repeats = meter.rate(10.0, lambda calls: Timing(0.2 * calls, busy=0.5), private=private)
    assert repeats.median == pytest.approx(rate)
    meter.add(repeats, "kernel", kind="compute", name="a", unit="FLOP/s")
    assert ("disturbed" in found[0].source.detail) == (not private)


@pytest.mark.unit
def test_torch_transfers_become_ceilings():
    found = []
    meter = Meter(BUDGET_S, found, lambda _: None)
    transfers(meter, torch.device("cpu"), "HBM", 1 << 20, ("read", "copy", "triad"))
    assert [(ceiling.name, ceiling.level, ceiling.access, ceiling.capacity_bytes) for ceiling in found] == [
        ("HBM read", "HBM", "read", None),
        ("HBM copy", "HBM", "copy", None),
        ("HBM triad", "HBM", "triad", None),
    ]


@pytest.mark.unit
def test_importing_loads_no_heavy_library():
    code = (
        "import sys, rooflines.device_specs.measure\n"
        "print([name for name in ('torch', 'numba', 'numpy', 'pynvml', 'platformdirs') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert result.stdout.strip() == "[]"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
def test_measures_every_kind_on_cuda(cache):
    found = measure.measure("cuda:0", budget_s=2.0)
    names = {ceiling.name for ceiling in found.ceilings}
    assert {"GEMM fp32", "GEMM fp16", "HBM read", "HBM copy", "HBM triad", "kernel launch", "operator dispatch"} <= names
    assert found.kind == "cuda"
    assert found.latency().name == "kernel launch"
    assert measure.measure("cuda", budget_s=2.0) == found
    with pytest.raises(DeviceError):
        measure.measure("cuda:99")


def test_measuring_again_keeps_the_better_of_every_figure(cache):
    first = measure.measure("cpu", threads=1, budget_s=BUDGET_S)
    halved = msgspec.structs.replace(first, ceilings=tuple(
        msgspec.structs.replace(one, value=one.value * (1000 if one.kind == "latency" else 1e-3)) for one in first.ceilings
    ))  # fmt: skip
    best = measure.measure_again(halved, "cpu", threads=1, budget_s=BUDGET_S)
    found = {one.name: one for one in best.ceilings}
    for before in halved.ceilings:
        after = found[before.name]
        assert (after.value < before.value) if after.kind == "latency" else (after.value > before.value)
    absurd = msgspec.structs.replace(first, ceilings=tuple(
        msgspec.structs.replace(one, value=one.value * (1e-3 if one.kind == "latency" else 1000)) for one in first.ceilings
    ))  # fmt: skip
    kept = measure.measure_again(absurd, "cpu", threads=1, budget_s=BUDGET_S)
    assert {one.name: one.value for one in absurd.ceilings}.items() <= {one.name: one.value for one in kept.ceilings}.items()
    assert measure.measure("cpu", threads=1, budget_s=BUDGET_S) == kept  # what the next run finds in the cache
