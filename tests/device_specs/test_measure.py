"""Measuring, caching and reading ceilings; no test asserts how fast this machine is."""

import datetime
import json
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
import torch

from rooflines.device_specs import detect, measure, measure_cpu
from rooflines.device_specs.history import History, HistorySeries, age, best_of, load_file
from rooflines.device_specs.measure_gpu import derived_fp32
from rooflines.device_specs.measure_torch import transfers
from rooflines.device_specs.plan import Plan
from rooflines.device_specs.records import DISTURBED, Ceilings, marks_of
from rooflines.device_specs.rounds import Way, ready
from rooflines.errors import DataError, DeviceError, UsageError
from rooflines.kernels.micro.repeats import Timing
from rooflines.serial import read_json, write_json
from tests import samples

BUDGET_S = 0.05
REST = '"name": "a", "value": {}, "unit": "s", "source": {{"kind": "user", "detail": ""}}}}]}}'
STORED = Ceilings(device="laptop", kind="cpu", ceilings=samples.ceilings(), fingerprint="f", measured_at="2026-11-20T10:00:00+00:00")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROOFLINES_CACHE_DIR", str(tmp_path))
    return tmp_path / "ceilings"


@pytest.fixture
def instant(monkeypatch):
    """A measurement that takes no time: two equal rounds of the ceilings of the sample. Returns the thread counts it was asked for."""
    asked = []

    def fake(plan, threads, *, full=False):
        asked.append((threads, "full") if full else threads)
        plan.clock_hz = 3e9 if full else None
        for ceiling in samples.ceilings():
            plan.series.append(HistorySeries(ceiling=ceiling, values=(ceiling.value,) * 2, quiet=(True, True)))

    monkeypatch.setattr(measure_cpu, "measure_cpu", fake)
    return asked


def values(ceilings):
    return [(one.key, one.value) for one in ceilings]


@pytest.mark.ci
def test_measures_every_kind_on_the_cpu(cache):
    threads_before, said = torch.get_num_threads(), []
    flags_before = torch.get_float32_matmul_precision(), torch.is_grad_enabled()
    found = measure.measure("cpu", threads=1, progress=said.append, budget_s=BUDGET_S)

    names = [ceiling.name for ceiling in found.ceilings if not ceiling.variant]
    assert len(set(names)) == len(names)
    assert {"FMA fp32", "FMA fp64", "GEMM fp32", "GEMM fp64", "DRAM read", "DRAM copy", "DRAM triad", "operator dispatch"} <= set(names)
    assert {f"{level.level} {access}" for level in detect.cpu().caches for access in ("read", "copy", "triad")} <= set(names)
    for ceiling in found.ceilings:
        assert ceiling.value > 0
        assert ceiling.spread is not None
        assert ceiling.source.kind == "measured"
        # of a best round that others disturbed, no quiet round may come near
        assert (DISTURBED not in marks_of(ceiling)) <= ceiling.agreeing <= ceiling.rounds
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


def test_second_call_is_answered_from_the_cache_unless_it_is_another(cache, instant):
    first = measure.measure("cpu", threads=2)
    assert measure.measure("cpu", threads=2) == first
    assert instant == [2]
    assert [path.name for path in cache.iterdir()] == [f"cpu-{first.fingerprint}.json"]
    measure.measure("cpu", threads=2, remeasure=True)
    assert measure.measure("cpu", threads=1).fingerprint != first.fingerprint
    assert instant == [2, 2, 1]


def test_a_full_set_answers_a_quick_request_and_not_the_other_way_round(cache, instant):
    quick = measure.measure("cpu", threads=2)
    full = measure.measure("cpu", threads=2, full=True)
    assert (quick.full, full.full, full.clock_hz) == (False, True, 3e9)
    assert measure.measure("cpu", threads=2) == measure.measure("cpu", threads=2, full=True) == full
    assert instant == [2, (2, "full")]
    assert [path.name for path in cache.iterdir()] == [f"cpu-{full.fingerprint}.json"]
    # Every measurement adds its rounds.
    both = measure.measure("cpu", threads=2, remeasure=True)
    assert (both.measurements, both.full, both.clock_hz, both.since) == (3, True, 3e9, quick.measured_at)
    assert {one.rounds for one in both.ceilings} == {6}
    assert [one.full for one in measure.sessions(both)] == [False, True, False]


def test_what_is_interrupted_leaves_the_cache_as_it_was(cache, instant, monkeypatch):
    first = measure.measure("cpu", threads=2)

    def stopped(plan, threads, *, full=False):
        plan.keep(samples.ceilings()[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(measure_cpu, "measure_cpu", stopped)
    before = {path.name: path.read_bytes() for path in cache.iterdir()}
    for full in (False, True):
        with pytest.raises(KeyboardInterrupt):
            measure.measure("cpu", threads=2, remeasure=True, full=full)
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == before
    assert measure.measure("cpu", threads=2) == first


def test_a_record_says_what_measured_it_and_sustained_figures_are_for_cuda(cache, instant):
    with pytest.raises(UsageError, match="measured on CUDA devices only; the device is cpu"):
        measure.measure("cpu", sustained_s=5)
    found = measure.measure("cpu")
    assert found.method == measure.METHOD
    assert found.packages["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert [found.threads] == instant == [torch.get_num_threads()]


@pytest.mark.parametrize("content", [
    b"", b"{", b"\xff\xfe", b"[]", b'{"device": 3}', b'{"device": "a", "kind": "cpu", "ceilings": []}',
    b'{"device": "a", "kind": "cpu", "fingerprint": "f", "method": 1}',
])  # fmt: skip
def test_corrupted_cache_is_measured_again(cache, instant, content):
    first = measure.measure("cpu", threads=2)
    path = cache / f"cpu-{first.fingerprint}.json"
    path.write_bytes(content)
    again = measure.measure("cpu", threads=2)
    assert instant == [2, 2]
    assert again.ceilings == first.ceilings
    assert read_json(path, History).ceilings() == again


def test_disturbed_measurement_is_made_again_after_an_hour(cache, instant):
    first = measure.measure("cpu", threads=2)
    path = cache / f"cpu-{first.fingerprint}.json"
    (session,) = measure.sessions(first)
    noisy = msgspec.structs.replace(session.series[0], quiet=(False, False))
    now = datetime.datetime.now(datetime.timezone.utc)

    def stored(minutes):
        then = (now - datetime.timedelta(minutes=minutes)).isoformat()
        return msgspec.structs.replace(session, series=(noisy, *session.series[1:]), measured_at=then)

    history = read_json(path, History)
    for minutes, measured in ((50, [2]), (70, [2, 2])):
        write_json(path, msgspec.structs.replace(history, sessions=(stored(minutes),)))
        measure.measure("cpu", threads=2)
        assert instant == measured
    # AND not, once a later measurement had quiet rounds
    write_json(
        path,
        msgspec.structs.replace(history, sessions=(stored(90), msgspec.structs.replace(session, measured_at=stored(70).measured_at))),
    )
    assert not any(marks_of(one) for one in measure.measure("cpu", threads=2).ceilings)
    assert instant == [2, 2]


def test_what_only_a_full_set_has_is_not_measured_again_for_a_quick_request(cache, instant):
    first = measure.measure("cpu", threads=2)
    path = cache / f"cpu-{first.fingerprint}.json"
    (quick,) = measure.sessions(first)
    then = (datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=2)).isoformat()
    alone = msgspec.structs.replace(quick.series[0].ceiling, variant="1 thread")
    noisy = msgspec.structs.replace(quick.series[0], ceiling=alone, quiet=(False, False))
    both = (
        msgspec.structs.replace(quick, series=(noisy, *quick.series), full=True, measured_at=then),
        msgspec.structs.replace(quick, measured_at=f"{then[:-6]}1+00:00"),
    )
    write_json(path, msgspec.structs.replace(read_json(path, History), sessions=both))
    measure.measure("cpu", threads=2)
    assert instant == [2]
    measure.measure("cpu", threads=2, full=True)
    assert instant == [2, (2, "full")]


def test_what_others_measured_meanwhile_is_kept(cache, instant, monkeypatch):
    fake = measure_cpu.measure_cpu

    def beside(plan, threads, *, full=False):
        fake(plan, threads, full=full)
        if len(instant) == 1:
            measure.measure("cpu", threads=2, remeasure=True)

    monkeypatch.setattr(measure_cpu, "measure_cpu", beside)
    assert measure.measure("cpu", threads=2).measurements == 2
    assert instant == [2, 2]


def test_writers_at_the_same_time_leave_a_whole_file(cache, instant):
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: measure.measure("cpu", threads=2, remeasure=True), range(12)):
            assert values(found.ceilings) == values(samples.ceilings())
    (path,) = cache.iterdir()
    assert 1 <= len(read_json(path, History).sessions) <= 12


def test_unwritable_cache_is_said_and_not_an_error(tmp_path, monkeypatch, instant):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ROOFLINES_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr("rooflines.device_specs.history._unwritten", {})
    said = []
    assert values(measure.measure("cpu", threads=2, progress=said.append).ceilings) == values(samples.ceilings())
    assert said[-1].startswith("ceilings not cached")
    # AND this process keeps them all the same
    assert measure.measure("cpu", threads=2, remeasure=True).measurements == 2


@pytest.mark.parametrize("name", ["gpu0", "meta", "", "cuda:99"])
def test_device_that_is_not_there(cache, name):
    with pytest.raises(DeviceError) as caught:
        measure.measure(name)
    assert f'"{name}"' in caught.value.message
    assert caught.value.hint


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_says_what_to_do(cache):
    with pytest.raises(DeviceError, match="finds no GPU"):
        measure.measure("cuda:0")


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
    found = load_file(path)
    assert found.ceilings == STORED.ceilings
    assert (found.device, found.kind) == (("NVIDIA H200", "cuda") if shape == "analysis" else ("laptop", "cpu"))


def test_load_file_needs_no_more_than_the_list(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"ceilings": msgspec.to_builtins(STORED)["ceilings"]}))
    assert load_file(path).device == "mine"


@pytest.mark.parametrize(("text", "message"), [
    (None, "No such file"),
    ("not json", "is not JSON"),
    ("[1, 2]", 'has no "ceilings" list'),
    ('{"ceilings": 3}', 'has no "ceilings" list'),
    ('{"ceilings": []}', "contains no ceilings"),
    ('{"ceilings": [{"kind": "compute"}]}', "missing required field"),
    ('{"ceilings": [{"kind": "weight", ' + REST.format(1), r"\$.ceilings\[0\].kind"),
    ('{"ceilings": [{"kind": "latency", ' + REST.format(0), 'gives "a" as 0.0'),
])  # fmt: skip
def test_load_file_says_what_is_wrong(tmp_path, text, message):
    path = tmp_path / "bad.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        load_file(path)
    assert str(path) in caught.value.message
    assert caught.value.exit_code == 2


def test_age():
    then = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=3)
    found = age(msgspec.structs.replace(STORED, measured_at=then.isoformat()))
    assert datetime.timedelta(hours=3) <= found < datetime.timedelta(hours=3, minutes=5)
    assert age(msgspec.structs.replace(STORED, measured_at="")) is None
    assert age(msgspec.structs.replace(STORED, measured_at="yesterday")) is None


@pytest.mark.parametrize(("change", "values"), [
    ({}, [132 * 256 * 1.98e9]),  # 66.9 TFLOP/s; the data sheet says 67
    ({"sm_clock_hz": None}, []),
    ({"compute_capability": (99, 0)}, []),
    ({"name": "NVIDIA H20"}, []),  # capped by its vendor
])  # fmt: skip
def test_derived_fp32_is_multiprocessors_times_rate_times_clock_where_that_is_exact(change, values):
    gpu = detect.Gpu(name="NVIDIA H200", index=0, compute_capability=(9, 0), multiprocessors=132, memory_bytes=1, sm_clock_hz=1.98e9)
    plan = Plan(1.0, lambda _: None)
    derived_fp32(plan, msgspec.structs.replace(gpu, **change))
    found = best_of([plan.session(full=False, seconds=1.0)]) if plan.series else ()
    assert [ceiling.value for ceiling in found] == values
    for ceiling in found:
        assert (ceiling.precision, ceiling.engine, ceiling.source.kind, ceiling.spread) == ("fp32", "vector", "derived", None)


@pytest.mark.parametrize(
    ("busy", "private", "rate", "marks"), [(0.5, True, 100.0, ["disturbed"]), (0.5, False, 50.0, ["disturbed"]), (0.96, True, 50.0, [])]
)
def test_a_disturbed_round_of_a_private_core_is_judged_by_its_processor_time(busy, private, rate, marks):
    # GIVEN 10 FLOP a call, each call 0.2 s of which the thread had its core for a part
    plan = Plan(0.0, lambda _: None)
    way = Way("kernel", ready(lambda calls: Timing(0.2 * calls, busy=busy), 10.0), private=private)
    plan.figure(way, kind="compute", name="a", unit="FLOP/s")
    plan.measure()
    (found,) = best_of([plan.session(full=False, seconds=1.0)])
    assert found.value == pytest.approx(rate)
    assert marks_of(found) == marks


def test_samples_are_long_enough_though_the_first_call_was_held_up():
    # GIVEN calls of 1 ms, the first of which took 20 ms
    plan = Plan(4.0, lambda _: None)
    asked = []

    def run(calls):
        asked.append(calls)
        return Timing(0.020 if len(asked) == 1 else 0.001 * calls)

    way = Way("kernel", ready(run, 1.0))
    plan.visit(plan.figure(way, kind="compute", name="a", unit="FLOP/s"), way)
    assert way.calls * 0.001 >= plan.sample_s / 2


def test_renewed_operands_change_their_place_now_and_then():
    plan, made = Plan(0.0, lambda _: None), []

    def make():
        made.append(1)
        return (lambda calls: Timing(1.0)), 1.0

    for renewed, times in ((False, 1), (True, 4)):
        made.clear()
        way = Way("kernel", make, renewed=renewed)
        figure = plan.figure(way, kind="compute", name="a", unit="FLOP/s")
        for _ in range(12):
            way.rounds.append(plan.visit(figure, way))
        assert len(made) == times


def test_the_fastest_part_counts_where_parts_were_timed():
    plan = Plan(1.0, lambda _: None)
    way = Way("product", ready(lambda calls: Timing(0.02 * calls, peak_s=0.01 * calls), 3.0))
    found = plan.visit(plan.figure(way, kind="compute", name="GEMM bf16", unit="FLOP/s"), way)
    assert found.value == pytest.approx(3.0 / 0.01)


def test_torch_transfers_become_ceilings():
    plan = Plan(BUDGET_S, lambda _: None)
    transfers(plan, torch.device("cpu"), "HBM", 1 << 20, ("read", "copy", "triad"))
    plan.measure()
    assert [(one.ceiling.name, one.ceiling.level, one.ceiling.access, one.ceiling.capacity_bytes) for one in plan.series] == [
        ("HBM read", "HBM", "read", None),
        ("HBM copy", "HBM", "copy", None),
        ("HBM triad", "HBM", "triad", None),
    ]
