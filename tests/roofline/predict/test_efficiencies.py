"""The laws of predictions from measured efficiencies."""

import itertools
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

import rooflines
from rooflines.device_specs.catalog import ceilings_of, matching
from rooflines.roofline.analysis import OtherPrograms
from rooflines.roofline.judge.bounds import IMPLAUSIBLE
from rooflines.roofline.predict.calls import Call, HostTime, MeasuredCall, host_time, measured_calls
from rooflines.roofline.predict.efficiencies import Efficiencies

TRACES = Path(__file__).parents[2] / "data" / "traces"

CALL = Call(
    name="aten::mm", category="matmul", precision="bf16", engine="matrix", flops=2 * 512**3, bytes=3 * 2 * 512**2,
    lower_bound_s=1e-5, bound="compute",
)  # fmt: skip


def sized(bound_s, call=CALL):
    """``call`` with the work that takes ``bound_s``."""
    factor = bound_s / call.lower_bound_s
    return replace(call, lower_bound_s=bound_s, flops=round(call.flops * factor), bytes=round(call.bytes * factor))


def measured(bound_s, time_s, *, run="a", device="one", calls=1, call=CALL):
    one = msgspec.structs.asdict(sized(bound_s, call))
    return MeasuredCall(**one, run=run, device=device, calls=calls, time_s=time_s)


ADD = replace(CALL, name="aten::add", category="element-wise", engine="vector", bound="memory")
# Two operators of three runs, whose utilization grows with the size and is another in each run.
RUNS = [
    measured(bound_s, 2e-6 + bound_s * slower, run=run, call=call)
    for run, slower in (("a", 1.5), ("b", 2.0), ("c", 2.5))
    for call in (CALL, ADD)
    for bound_s in (1e-6, 1e-5, 1e-4, 1e-3)
]


@pytest.mark.ci
@pytest.mark.parametrize("reference", [RUNS, RUNS[:1]])
@pytest.mark.parametrize("bound_s", [1e-9, 1e-6, 3e-5, 1e-2, 10.0])
@pytest.mark.parametrize("call", [CALL, ADD, replace(CALL, name="other", category="attention", bound="latency")])
def test_an_estimate_is_never_below_its_bound(reference, bound_s, call):
    found = Efficiencies(reference).estimate(sized(bound_s, call))
    assert bound_s == found.lower_bound_s <= found.low_s <= found.time_s
    assert found.high_s is None or found.time_s <= found.high_s


def test_a_call_is_predicted_by_itself():
    alone = measured(1e-5, 3e-5)
    found = Efficiencies([alone]).estimate(sized(1e-5))
    assert found.time_s == pytest.approx(3e-5)
    assert found.basis == "the same work in aten::mm: 1 call in 1 run"


def test_equal_work_counts_before_other_work_of_the_same_size():
    other = replace(measured(1e-5, 9e-5), flops=1)
    assert Efficiencies([other, measured(1e-5, 3e-5)]).estimate(sized(1e-5)).time_s == pytest.approx(3e-5)


def test_estimates_scale_with_the_times():
    slower = [replace(call, time_s=3 * call.time_s) for call in RUNS]
    one, three = Efficiencies(RUNS), Efficiencies(slower)
    for bound_s in (1e-7, 1e-6, 3e-5, 5e-3):
        for call in (sized(bound_s), sized(bound_s, ADD)):
            then, now = three.estimate(call), one.estimate(call)
            assert then.time_s == pytest.approx(3 * now.time_s)


def test_a_law_is_found_again():
    """Calls that take 2 µs and twice their bound."""
    efficiencies = Efficiencies([call for call in RUNS if call.run == "b"])
    for bound_s in (1e-9, 4e-6, 3e-5, 2e-2):
        assert efficiencies.estimate(sized(bound_s)).time_s == pytest.approx(2e-6 + 2 * bound_s, rel=0.1)


def test_neither_time_nor_utilization_falls_with_the_size():
    efficiencies = Efficiencies(RUNS)
    at = {bound_s: efficiencies.estimate(sized(bound_s)).time_s for bound_s in (1e-7, 5e-7, 1.1e-6, 9e-4, 4e-3, 1e-1)}
    sizes = sorted(at)
    for smaller, larger in itertools.pairwise(sizes):
        assert at[smaller] <= at[larger] * (1 + 1e-12)
        assert smaller / at[smaller] <= larger / at[larger] * (1 + 1e-12)


def test_what_short_calls_do_not_tell_is_as_in_the_next_wider_kind():
    # Of calls that all take 2 µs nothing tells what a thousand times more takes.
    short = [measured(bound_s, 2e-6, call=replace(CALL, name="aten::bmm")) for bound_s in (1e-11, 2e-11, 4e-11)]
    efficiencies = Efficiencies([*RUNS, *short])
    large = sized(1e-3, replace(CALL, name="aten::bmm"))
    assert efficiencies.estimate(large).time_s == pytest.approx(efficiencies.estimate(sized(1e-3)).time_s, rel=0.5)


def test_equal_work_on_another_device_takes_as_much_more_than_its_law():
    # Twice what its law says, there and on a device with half of the bound.
    slow = [replace(call, time_s=2 * call.time_s) if call.lower_bound_s == 1e-4 else call for call in RUNS if call.run == "b"]
    efficiencies = Efficiencies(slow, "two")
    faster = replace(sized(1e-4), lower_bound_s=5e-5)
    assert efficiencies.estimate(faster).time_s == pytest.approx(2 * (2e-6 + 2 * 5e-5), rel=0.2)


@pytest.mark.parametrize(
    ("changes", "basis"),
    [
        ({}, "aten::mm, compute bound, bf16: 12 calls in 3 runs"),
        ({"precision": "fp32"}, "matmul, compute bound: 12 calls in 3 runs"),
        ({"name": "aten::bmm", "precision": "fp32"}, "matmul, compute bound: 12 calls in 3 runs"),
        ({"name": "f", "category": "attention"}, "any operator, compute bound: 12 calls in 3 runs"),
        ({"name": "f", "category": "attention", "bound": "latency"}, "any operator: 24 calls in 3 runs"),
    ],
)
def test_an_unknown_call_falls_back_and_says_so(changes, basis):
    call = replace(sized(2e-5), **changes)
    assert Efficiencies(RUNS).estimate(call).basis == basis


def test_calls_faster_than_their_bound_allows_teach_nothing():
    fast = measured(1e-5, 1e-5 / IMPLAUSIBLE / 1.01)
    assert Efficiencies([*RUNS, fast]).calls == tuple(RUNS)
    with pytest.raises(ValueError, match="no call has a bound"):
        Efficiencies([fast])


def test_a_total_is_the_sum():
    efficiencies = Efficiencies(RUNS)
    parts = [(efficiencies.estimate(sized(2e-5)), 3), (efficiencies.estimate(sized(5e-5, ADD)), 2)]
    total = efficiencies.total(parts)
    assert total.time_s == pytest.approx(sum(calls * one.time_s for one, calls in parts))
    assert total.lower_bound_s == pytest.approx(3 * 2e-5 + 2 * 5e-5)
    assert total.lower_bound_s <= total.low_s <= total.time_s <= total.high_s
    assert total.basis == "errors of 3 steps in runs of one, each predicted by the others"


def test_with_one_run_the_errors_of_public_traces_count():
    of_one_run = Efficiencies([call for call in RUNS if call.run == "a"])
    total = of_one_run.total([(of_one_run.estimate(sized(2e-5)), 3)])
    assert total.basis == "errors of steps in public traces of GPUs that were left out"
    assert total.low_s == pytest.approx(max(total.time_s / 1.9, total.lower_bound_s))
    assert total.high_s == pytest.approx(1.9 * total.time_s)


def test_the_calls_of_a_processor_tell_no_limit_on_another_device():
    here = Efficiencies(RUNS, "NVIDIA H100 80GB HBM3")  # "one" is no GPU that is known
    total = here.total([(here.estimate(sized(2e-5)), 3)])
    assert (total.low_s, total.high_s) == (total.lower_bound_s, None)
    assert total.basis == "no errors are known"


def test_calls_of_the_device_come_before_those_of_others():
    mixed = [measured(1e-5, 9e-5, device="one"), measured(1e-5, 2e-5, device="two")]
    here, elsewhere = Efficiencies(mixed, "two"), Efficiencies(mixed, "three")
    assert here.estimate(sized(1e-5)).time_s == pytest.approx(2e-5)
    assert not here.is_transfer
    assert elsewhere.is_transfer
    assert len(elsewhere.calls) == 2


def test_between_devices_the_interval_is_that_of_other_devices():
    # Every run of a device agrees with every other; the devices differ by a factor of four.
    def runs(slower, device):
        return [measured(10**-step, slower * 10**-step, run=run, device=device) for run in "abc" for step in range(1, 6)]

    same, other = Efficiencies(runs(2, "one"), "one"), Efficiencies([*runs(2, "one"), *runs(8, "two")], "three")
    wide = {one: (total := one.total([(one.estimate(sized(3e-3)), 1)])).high_s / total.time_s for one in (same, other)}
    assert wide[same] == pytest.approx(1.0, abs=0.01)
    # Six errors of a factor of about four: Student's t takes more.
    assert 4 < wide[other] < 4**3


def test_the_time_outside_of_operators():
    assert Efficiencies(RUNS).outside_s(100, 1.0) is None
    host = Efficiencies(RUNS, host_times=[HostTime("host", 2e-6), HostTime("host", 4e-6), HostTime("host", 3e-6)])
    assert host.outside_s(100, 1.0) == pytest.approx(100 * 3e-6)
    device = Efficiencies(RUNS, host_times=[HostTime("device", 5e-6)])
    assert device.outside_s(100, 2e-4) == pytest.approx(100 * 5e-6 - 2e-4)
    assert device.outside_s(100, 1.0) == 0.0  # the device is busy for longer than the host launches


@pytest.fixture(scope="module")
def analysis():
    return rooflines.analyze(TRACES / "bert-small_h100_inference.json.gz")


def test_the_calls_of_a_trace_are_those_of_its_rows(analysis):
    calls = measured_calls(analysis)
    rows = [row for row in analysis.operators if row.lower_bound_s and row.bound not in ("transfer", "communication")]
    assert sum(call.calls for call in calls) == sum(row.calls for row in rows)
    assert sum(call.calls * call.time_s for call in calls) == pytest.approx(sum(row.time_s for row in rows))
    assert len(calls) < len(rows)  # layers repeat the same work
    # The shortest kernel of the trace is a measured time, and no bound for another device.
    assert all(call.bound != "latency" for call in calls)


def test_a_run_that_others_delayed_teaches_nothing(analysis):
    delayed = replace(analysis, other_programs=OtherPrograms(busy=1.5, threads=2, judged=False))
    assert measured_calls(delayed) == ()
    with pytest.raises(ValueError, match="delayed in nearly every step"):
        Efficiencies.of([delayed])
    assert Efficiencies.of([analysis, delayed]).calls == Efficiencies.of([analysis]).calls


def test_bounds_are_those_of_the_ceilings_given(analysis):
    (match,) = matching("NVIDIA H200")
    h200 = ceilings_of(match.sheet)
    for ours, theirs in zip(measured_calls(analysis), measured_calls(analysis, ceilings=h200), strict=True):
        assert theirs.device == ours.device == "H100 SXM5 80GB"
        if ours.bound == theirs.bound == "memory":
            # The same arithmetic units with memory of 4.8 instead of 3.35 TB/s.
            assert theirs.lower_bound_s == pytest.approx(ours.lower_bound_s * 3.35 / 4.8)


def test_runs_of_one_workload_count_as_one(analysis):
    renamed = replace(analysis, workload=replace(analysis.workload, name="another"))
    assert len({call.run for call in Efficiencies.of([analysis, analysis]).calls}) == 1
    assert len({call.run for call in Efficiencies.of([analysis, renamed]).calls}) == 2


def test_stacks_make_the_time_of_the_host_unknown(analysis):
    assert analysis.basis.stacks
    assert host_time(analysis) is None


@pytest.mark.ci
def test_a_step_on_a_processor_is_its_operators_and_the_time_between_them(tmp_path):
    torch = pytest.importorskip("torch")
    network = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
    options = {"device": "cpu", "threads": 1, "steps": 5, "warmup": 2, "formats": (), "ceilings": "EPYC 9654"}
    rooflines.profile(network, torch.ones(8, 64), **options, output=tmp_path / "run")
    measured_run = rooflines.analyze(tmp_path / "run")
    division, rows = measured_run.division, measured_run.rows
    host = host_time(measured_run)
    assert host.of == "host"
    operators_s = sum(row.time_s for row in rows)
    efficiencies = Efficiencies(RUNS, host_times=[host])
    assert operators_s + efficiencies.outside_s(sum(row.calls for row in rows), operators_s) == pytest.approx(division.step_s)
