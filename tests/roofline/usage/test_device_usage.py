"""What samples mean: gauges over the window, counts, throttling, whose energy it is, and advice that says no more than was read."""

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from rooflines.device_specs.records import Ceilings, Conditions
from rooflines.profiler.records import Environment, StepTimes, TimedStretch, Workload
from rooflines.profiler.samplers.fields import Counter, DeviceSample
from rooflines.reports.page.usage import usage_remarks, usage_table
from rooflines.roofline.advise.usage import find_in_usage, ranked
from rooflines.roofline.analysis import Analysis, Finding, ModuleRow
from rooflines.roofline.analyze import analyze
from rooflines.roofline.judge.usage.device_usage import Window, held_down, thinned, usage, usage_of
from tests.samples import ceilings
from tests.traces import mm, span, trace
from tests.usage_samples import BEGAN_NS, WINDOW, gpu_samples, host_samples, run_of


def gauge(samples, field, device="cuda:0", window=WINDOW, counters=()):
    return usage_of(samples, counters, window).of(device).gauges[field]


def sample(second, **fields):
    return DeviceSample(**{"time_ns": BEGAN_NS + round(second * 1e9), "source": "nvml", "device": "cuda:0", **fields})


def analysis_of(samples, **fields) -> Analysis:
    facts = replace(run_of(samples).facts, **fields)
    return analyze(replace(run_of(samples), facts=facts)).analysis


def finding(analysis, words):
    return next(one for one in find_in_usage(analysis) if words in one.title)


# --- gauges and counts -------------------------------------------------------------------------------------------------------------


def test_a_gauge_is_what_was_read_in_the_window():
    samples = [sample(second, temperature_c=40.0 + 2 * second) for second in np.arange(-2, 8, 0.5)]
    found = gauge(samples, "temperature_c")
    assert (found.start, found.end, found.lowest, found.highest) == (40, 50, 40, 50)
    assert (found.mean, found.median) == (pytest.approx(45), 45)


def test_the_mean_is_over_time_and_not_over_readings():
    often = [sample(second, gpu_utilization=1.0) for second in np.arange(0, 1, 0.01)]
    seldom = [sample(second, gpu_utilization=0.0) for second in np.arange(1, 5.01, 1)]
    assert gauge([*often, *seldom], "gpu_utilization").mean == pytest.approx(0.2, abs=0.1)


def test_an_average_over_a_second_speaks_of_the_window_only_from_its_first_second_on():
    samples = [sample(tenth / 10, gpu_utilization=0.0 if tenth < 10 else 0.9) for tenth in range(-10, 60)]
    counter = Counter(source="nvml", device="cuda:0", field="gpu_utilization", update_s=0.1, window_s=1.0)
    assert gauge(samples, "gpu_utilization", counters=(counter,)).mean == pytest.approx(0.9)
    assert gauge(samples, "gpu_utilization").mean < 0.8


def burst_samples(seconds):
    """A GPU at 70 W and idle but for ``seconds`` at 700 W and full load: power over a second, utilization over half of one."""
    counters = [
        Counter(source="nvml", device="cuda:0", field=field, update_s=0.05, window_s=window_s)
        for field, window_s in (("power_w", 1.0), ("gpu_utilization", 0.5))
    ]
    samples = []
    for moment in np.arange(-2, seconds + 2, 0.05):
        power, load = (float(np.clip(moment, 0, seconds) - np.clip(moment - over, 0, seconds)) / over for over in (1.0, 0.5))
        samples.append(sample(moment, power_w=70 + 630 * power, gpu_utilization=load, temperature_c=50.0))
    return samples, counters, Window(BEGAN_NS, BEGAN_NS + round(seconds * 1e9))


@pytest.mark.parametrize(("seconds", "told"), [(0.2, set()), (0.8, {"gpu_utilization"}), (3, {"gpu_utilization", "power_w"})])
def test_a_window_shorter_than_an_average_has_no_gauge_of_it(seconds, told):
    samples, counters, window = burst_samples(seconds)
    found = usage_of(samples, counters, window)
    gpu = found.of("cuda:0")
    assert set(gpu.gauges) == told | {"temperature_c"}
    assert all(gpu.gauges[name].lowest == pytest.approx({"power_w": 700, "gpu_utilization": 1.0}[name]) for name in told)
    table = usage_table(Analysis(workload=Workload(name="n", mode="inference"), environment=environment("cuda:0"), usage=found))
    columns = {(column.label, column.unit): cell for column, cell in zip(table.columns, table.rows[0].cells, strict=True)}
    assert columns.get(("power", "peak")) == ("700 W" if "power_w" in told else None)
    assert columns.get(("busy", "mean")) == ("100 %" if told else None)


def test_an_average_that_ends_just_after_the_window_still_speaks_of_it():
    power = Counter(source="nvml", device="cuda:0", field="power_w", update_s=0.1, window_s=1.0)
    for last, mean in ((0.95, None), (1.25, 400.0), (1.35, None)):
        samples = [sample(0.1, power_w=90.0), sample(last, power_w=400.0)]
        gauges = usage_of(samples, (power,), Window(BEGAN_NS, BEGAN_NS + 1_200_000_000)).of("cuda:0").gauges
        assert (gauges["power_w"].mean if gauges else None) == mean


def test_a_rate_is_over_the_time_between_the_readings_it_comes_from():
    # 100 GB/s; the window of 0.1 s lies across two pauses between readings.
    samples = [sample(tenth / 10 + 0.05, nvlink_tx_bytes=tenth * 10_000_000_000) for tenth in range(-3, 5)]
    gpu = usage_of(samples, (), Window(BEGAN_NS, BEGAN_NS + 100_000_000)).of("cuda:0")
    assert gpu.counts["nvlink_tx_bytes"] == 20e9
    assert gpu.counted_s["nvlink_tx_bytes"] == pytest.approx(0.2)


def test_a_window_between_two_readings_takes_both():
    found = gauge([sample(-1, temperature_c=40.0), sample(9, temperature_c=50.0)], "temperature_c")
    assert (found.start, found.end) == (40, 50)


def test_a_count_is_the_difference_around_the_window_and_survives_a_restart():
    samples = [sample(second, nvlink_tx_bytes=1000 * second) for second in range(-2, 9)]
    assert usage_of(samples, (), WINDOW).of("cuda:0").counts["nvlink_tx_bytes"] == 5000
    restarted = [sample(second, nvlink_tx_bytes=1000 * (second if second < 3 else second - 3)) for second in range(6)]
    assert usage_of(restarted, (), WINDOW).of("cuda:0").counts["nvlink_tx_bytes"] == 4000


def test_what_was_not_sampled_is_absent():
    only = usage_of([sample(second, temperature_c=40.0) for second in range(6)], (), WINDOW).of("cuda:0")
    assert set(only.gauges) == {"temperature_c"}
    assert only.counts == {}
    plain = msgspec.to_builtins(only)
    assert [plain[name] for name in ("energy", "no_energy", "mean_power_w", "throttled_s", "clock_loss_fraction")] == [None] * 5
    assert usage(run_of(())) is None


def test_a_run_that_does_not_say_when_its_steps_began_has_no_energy_a_step():
    run = run_of(gpu_samples())
    steps = replace(run.facts.steps, timed_began_ns=None)
    found = usage(replace(run, facts=replace(run.facts, steps=steps)))
    assert found.window == "samples"
    assert found.of("cuda:0").energy is not None
    assert found.energy_per_step_j is None


def test_where_steps_were_interrupted_the_longest_stretch_is_the_window():
    run = run_of(gpu_samples())
    stretch = TimedStretch(began_ns=BEGAN_NS + int(1e9), ended_ns=BEGAN_NS + int(3e9), steps=5)
    steps = replace(run.facts.steps, timed_stretch=stretch)
    found = usage(replace(run, facts=replace(run.facts, steps=steps)))
    assert (found.began_ns, found.window_s, found.steps) == (stretch.began_ns, 2.0, 5)


def test_a_device_whose_samples_end_is_said_to_have_ended():
    samples = [one for one in gpu_samples() if one.time_ns < BEGAN_NS + 2e9]
    lost = usage(run_of(samples)).of("cuda:0")
    assert lost.ended
    assert lost.energy is None
    assert not usage(run_of(gpu_samples())).of("cuda:0").ended


def test_a_long_curve_keeps_its_extremes():
    times = np.arange(100_000.0)
    values = np.sin(times / 1e4)
    values[61_234], values[70_000] = 40.0, -30.0
    thin_times, thin_values = thinned(times, values, 400)
    assert len(thin_times) <= 400
    assert (thin_values.max(), thin_values.min()) == (40, -30)
    assert (np.diff(thin_times) > 0).all()
    assert len(thinned(times[:300], values[:300], 400)[0]) == 300


# --- energy of a run -----------------------------------------------------------------------------------------------------------------


def test_energy_a_step_a_sample_and_flops_a_joule():
    found = usage(run_of(gpu_samples()), flops_per_step=1e12)
    gpu = found.of("cuda:0")
    # 300 W for 50 steps of 0.1 s
    assert (gpu.energy.method, gpu.energy.energy_j) == ("counter", pytest.approx(1500, rel=0.01))
    assert abs(gpu.energy.energy_j - 1500) <= gpu.energy.error_j
    assert gpu.energy_by_power.energy_j == pytest.approx(1500, rel=0.06)
    assert gpu.mean_power_w == pytest.approx(300, rel=0.01)
    assert found.energy_per_step_j == gpu.energy_per_step_j == pytest.approx(30, rel=0.01)
    assert found.energy_per_sample_j == pytest.approx(30 / 32, rel=0.01)
    assert found.flop_per_j == pytest.approx(1e12 / 30, rel=0.01)


def test_without_a_counter_power_is_integrated():
    samples = [replace(one, energy_j=None) for one in gpu_samples()]
    gpu = usage(run_of(samples)).of("cuda:0")
    assert gpu.energy.method == "power"
    assert abs(gpu.energy.energy_j - 1500) <= gpu.energy.error_j
    assert gpu.energy_by_power is None


@pytest.mark.parametrize("fields", [{}, {"energy_j": 812.5}, {"power_instant_w": 0.0}])
def test_a_device_whose_power_reads_zero_has_no_joules_and_is_told(fields):
    run = run_of([sample(tenth / 10, power_w=0.0, **fields) for tenth in range(-10, 70)])
    found = usage(run, flops_per_step=1e12)
    gpu = found.of("cuda:0")
    assert (gpu.energy, gpu.energy_per_step_j, found.energy_per_step_j, found.flop_per_j) == (None,) * 4
    assert "did not change" in gpu.no_energy.reason if "energy_j" in fields else gpu.no_energy.reason == "the power readings are zero"
    assert "no joules, because the " in usage_remarks(analyze(run).analysis)[0]


def test_a_short_run_says_how_many_steps_would_do():
    gpu = usage(run_of(gpu_samples(), steps=3)).of("cuda:0")
    assert gpu.energy is None
    assert gpu.energy_per_step_j is None
    enough = gpu.no_energy.needs_steps
    assert enough == pytest.approx(gpu.no_energy.needs_s / 0.1, abs=1)
    assert usage(run_of(gpu_samples(seconds=enough / 10 + 1), steps=enough)).of("cuda:0").energy is not None


def test_the_energy_of_a_run_is_that_of_the_devices_it_used():
    idle = gpu_samples("cuda:1", busy_w=40, process_memory_bytes=0)
    helping = gpu_samples("cuda:2", busy_w=200, process_memory_bytes=1 << 30)
    found = usage(run_of((*gpu_samples(), *idle, *helping)))
    assert found.own == ("cuda:0", "cuda:2")
    assert found.energy_per_step_j == pytest.approx(50, rel=0.01)
    assert usage(run_of((*gpu_samples(), *host_samples()), device="cpu")).own == ("host",)


def test_the_host_has_the_energy_of_its_packages():
    found = usage(run_of(host_samples(), device="cpu"))
    assert found.energy_per_step_j == pytest.approx(9, rel=0.02)  # 90 W
    assert found.of("host").gauges["process_rss_bytes"].highest == 3 << 30


def test_totals_hold_the_energy_of_a_step():
    untraced = analysis_of(gpu_samples())
    assert untraced.totals is None
    assert untraced.usage.energy_per_step_j is not None
    steps = [event for start in (0, 200) for event in (span(f"ProfilerStep#{start}", start, 120), mm(start + 5, 100, 64, 64, 64))]
    found = analyze(run_of(gpu_samples()), trace=trace(*steps)).analysis
    assert found.totals.energy_j == found.usage.energy_per_step_j == pytest.approx(30, rel=0.01)
    assert found.usage.flop_per_j == pytest.approx(2 * 64**3 / 30, rel=0.01)
    assert Analysis.from_dict(found.to_dict()) == found


def test_a_trace_without_steps_has_no_energy_of_a_step_in_its_totals():
    found = analyze(run_of(gpu_samples()), trace=trace(mm(5, 100, 64, 64, 64))).analysis
    assert found.basis.per == "trace"
    assert found.totals.energy_j is None
    assert found.usage.flop_per_j is None


# --- throttling ----------------------------------------------------------------------------------------------------------------------


def test_settings_and_idleness_are_no_throttling():
    assert held_down("applications clocks setting, software power cap") == ("software power cap",)
    assert held_down("gpu idle") == held_down("") == ()


def throttled_samples(reasons="software power cap", clock=1.2e9, device="cuda:0"):
    """Held down from 1 s to 3 s of the 5 s."""
    return [
        replace(
            one,
            throttle_reasons=reasons if 1 <= (one.time_ns - BEGAN_NS) / 1e9 < 3 else "",
            sm_clock_hz=clock if 1 <= (one.time_ns - BEGAN_NS) / 1e9 < 3 else 1.6e9,
        )
        for one in gpu_samples(device)
    ]


def test_throttled_time_and_what_the_clock_lost():
    gpu = usage(run_of(throttled_samples("software power cap, hardware thermal slowdown"))).of("cuda:0")
    assert gpu.throttled_s == pytest.approx(2, abs=0.06)
    assert [(one.reason, round(one.fraction, 1)) for one in gpu.throttled] == [
        ("hardware thermal slowdown", 0.4), ("software power cap", 0.4),
    ]  # fmt: skip
    # A quarter lower for two fifths of the time.
    assert gpu.clock_loss_fraction == pytest.approx(0.1, abs=0.005)


def test_a_clock_that_was_always_held_is_compared_with_that_of_the_ceilings():
    always = [replace(one, throttle_reasons="software power cap", sm_clock_hz=1.5e9) for one in gpu_samples()]
    assert usage(run_of(always)).of("cuda:0").clock_loss_fraction is None
    roof = replace(ceilings()[0], conditions=Conditions(clock_hz=2e9))
    known = Ceilings(device="H100", kind="cuda", ceilings=(roof,))
    assert usage(run_of(always), ceilings=known).of("cuda:0").clock_loss_fraction == pytest.approx(0.25)


def lost_samples(end_s=2.0):
    """A GPU that is read every 0.1 s and lost at ``end_s``, throttled to half its clock in its last two readings."""
    return [
        sample(
            tenth / 10,
            throttle_reasons="software thermal slowdown" if tenth / 10 > end_s - 0.25 else "",
            sm_clock_hz=0.8e9 if tenth / 10 > end_s - 0.25 else 1.6e9,
            gpu_utilization=0.3 if tenth / 10 > end_s - 0.25 else 0.9,
        )
        for tenth in range(-10, round(10 * end_s))
    ]


def test_what_a_lost_device_showed_last_is_not_stretched_over_the_rest():
    minute = usage(run_of(lost_samples(), steps=600))
    gpu = minute.of("cuda:0")
    assert gpu.ended
    # Two readings of twenty, the last of which stands for half a pause beyond it.
    assert gpu.throttled_s == pytest.approx(0.2)
    assert [(one.reason, one.fraction) for one in gpu.throttled] == [("software thermal slowdown", pytest.approx(0.2 / 1.95))]
    assert (gpu.throttled_fraction, gpu.clock_loss_fraction) == (pytest.approx(0.2 / 1.95), pytest.approx(0.1 / 1.95))
    assert gpu.gauges["gpu_utilization"].mean == pytest.approx(0.9 - 0.6 * 0.2 / 1.95)
    # However much longer the window is.
    assert usage(run_of(lost_samples(), steps=6000)).of("cuda:0").gauges == gpu.gauges


def test_a_device_that_was_lost_before_the_window_has_no_figures():
    gone = usage(run_of(lost_samples(end_s=-0.5))).of("cuda:0")
    assert gone.ended
    assert (gone.gauges, gone.throttled_s, gone.clock_loss_fraction, gone.throttled) == ({}, None, None, ())


def test_a_device_that_comes_late_is_judged_from_then_on():
    late = [one for one in throttled_samples() if one.time_ns >= BEGAN_NS + 2e9]
    gpu = usage(run_of(late)).of("cuda:0")
    assert not gpu.ended
    assert (gpu.throttled_s, gpu.throttled_fraction) == (pytest.approx(1, abs=0.06), pytest.approx(1 / 3, abs=0.02))


def test_a_lost_device_promises_no_seconds():
    analysis = replace(
        analysis_of(lost_samples(), steps=StepTimes(timed_ns=(100_000_000,) * 600, timed_began_ns=BEGAN_NS)),
        bound_breakdown={"compute": 0.1},
    )
    (found,) = find_in_usage(analysis)
    assert (found.title, found.saves_s) == ("cuda:0 is held back by heat", None)
    assert "throttled for 10 % of the time until its samples end (software thermal slowdown 10 %)" in found.evidence
    idle = [replace(one, throttle_reasons="", gpu_utilization=0.2) for one in lost_samples()]
    assert not find_in_usage(analysis_of(idle))


def test_throttling_is_a_finding_with_what_compute_bound_work_could_gain():
    analysis = replace(analysis_of(throttled_samples()), bound_breakdown={"compute": 0.06, "memory": 0.04})
    found = finding(analysis, "held back by its power limit")
    assert "throttled for 4" in found.evidence
    assert "software power cap" in found.evidence
    # A tenth of the clock, six tenths of a step of 0.1 s.
    assert found.saves_s == pytest.approx(0.006, abs=0.0003)
    untraced = finding(analysis_of(throttled_samples()), "held back by its power limit")
    assert untraced.saves_s is None


def test_a_clock_that_did_not_fall_was_not_held_back():
    """As on an H100 whose driver named its power limit for 11 % of the time while the clock stayed at its maximum."""
    analysis = analysis_of(throttled_samples(clock=1.59e9))
    assert not [one.title for one in find_in_usage(analysis) if "held back" in one.title]


# --- findings -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "by", "said"), [("software thermal slowdown", "heat", "it reached 7"), ("reliability", "its driver", "(reliability 4")]
)
def test_a_reason_that_is_not_power_is_a_finding_of_its_own(reason, by, said):
    found = finding(analysis_of(throttled_samples(reason)), f"held back by {by}")
    assert said in f"{found.evidence} {found.suggestion}"


def uneven(**fields):
    return (*gpu_samples(busy=0.94, process_memory_bytes=2 << 30), *gpu_samples("cuda:1", busy=0.14, process_memory_bytes=1 << 30))


def test_an_uneven_share_is_a_finding_and_dataparallel_is_blamed_only_where_it_is_there():
    analysis = analysis_of(uneven())
    found = finding(analysis, "Spread the work evenly")
    assert found.title.endswith("cuda:1 works 14 % of the time")
    assert "DataParallel" not in found.evidence
    # Busy for 0.94 of a step of 0.1 s, evenly for the mean of 0.94 and 0.14.
    assert found.saves_s == pytest.approx((0.94 - 0.54) * 0.1, rel=0.01)
    module = ModuleRow(path="", type="DataParallel", calls=1, time_s=1, flops=0, matrix_flops=0, bytes=0)
    wrapped = finding(replace(analysis, modules=(module,)), "Spread the work evenly")
    assert "DataParallel, which gathers on one device (cuda:0 is busiest)" in wrapped.evidence


def test_a_gpu_that_the_run_does_not_use_is_no_imbalance():
    spare = gpu_samples("cuda:1", busy=0.0, process_memory_bytes=0)
    used = gpu_samples(busy=0.94, process_memory_bytes=2 << 30)
    assert not find_in_usage(analysis_of((*used, *spare)))


def test_equal_work_is_no_finding():
    pair = (*gpu_samples(busy=0.94), *gpu_samples("cuda:1", busy=0.9))
    assert not find_in_usage(analysis_of(pair))


def test_uncorrected_errors_come_first():
    wrong = [replace(one, ecc_uncorrected=int(one.time_ns > BEGAN_NS + 1e9)) for one in throttled_samples()]
    found = ranked(find_in_usage(analysis_of(wrong)))
    assert found[0].title == "Take this GPU out of use and check it"
    assert "cuda:0 1;" in found[0].evidence
    assert not find_in_usage(analysis_of([replace(one, ecc_uncorrected=7) for one in gpu_samples()]))


def test_all_savings_together_are_at_most_a_step():
    found = [Finding(title=str(saves_s), saves_s=saves_s, evidence="", suggestion="") for saves_s in (0.02, 0.07, 0.05)]
    assert [one.saves_s and round(one.saves_s, 6) for one in ranked(tuple(found), 0.1)] == [0.07, 0.03, None]


def test_a_gpu_that_waits_is_a_finding_where_no_trace_tells_more():
    analysis = analysis_of(gpu_samples(busy=0.35))
    found = finding(analysis, "Keep cuda:0 busy")
    assert found.saves_s == pytest.approx(0.065, rel=0.01)
    assert not find_in_usage(replace(analysis, idle_breakdown={}))


def test_memory_nearly_full():
    full = finding(analysis_of(gpu_samples(memory_used_bytes=79 << 30, memory_total_bytes=80 << 30)), "The memory of cuda:0")
    assert "79.0 GiB of 80.0 GiB" in full.evidence
    assert full.saves_s is None


def test_pages_read_from_disk():
    paging = [replace(one, process_major_faults=i * 30) if one.source == "psutil" else one for i, one in enumerate(host_samples())]
    assert "pages had to be read from disk" in finding(analysis_of(paging, environment=environment("cpu")), "swap").evidence
    assert not find_in_usage(analysis_of(host_samples(), environment=environment("cpu")))


def environment(device):
    return Environment(rooflines="0", device=device, device_name="d", memory_bytes=24 << 30)
