"""When warm-up ends, on made-up step times."""

from rooflines.profiler.recording.step_counts import WarmUp


def warm(durations_ns, asked=None):
    """After steps of these lengths: how many it took, whether they had settled, and what is said of it."""
    warmup = WarmUp(asked)
    for duration_ns in durations_ns:
        warmup.add(duration_ns)
        if warmup.is_over():
            break
    return len(warmup.times_ns), warmup.settled, warmup.rule, warmup.problem


def test_as_many_steps_as_asked_settled_or_not():
    assert warm([100, 900, 5], asked=2) == (2, None, "2 warm-up steps, as requested", "")
    assert WarmUp(0).rule == "no warm-up, as requested"


def test_a_step_takes_what_the_last_three_took():
    warmup = WarmUp(None)
    assert warmup.step_s is None
    for duration_ns in (9_000_000_000, 3_000_000_000, 1_000_000_000, 2_000_000_000):
        warmup.add(duration_ns)
    assert warmup.step_s == 2.0


def test_warm_up_ends_when_three_steps_are_within_five_percent_of_the_three_before():
    assert warm([100] * 20)[:3] == (
        6, True, "settled after 6 warm-up steps: medians of the last 3 steps and the 3 before differ by 0.0 % (limit 5 %)",
    )  # fmt: skip
    # 900 300 120 | 100 100 100: 300 to 100; then 300 120 100 | ...: 120 to 100; then 120 100 100 | 100 100 100: the same
    assert warm([900, 300, 120, *[100] * 20])[:2] == (8, True)


def test_warm_up_that_does_not_settle_ends_after_fifty_steps_and_says_so():
    count, settled, rule, problem = warm([2**i for i in range(60)][:24] + [2 ** (24 - i) for i in range(24)] + [1, 9] * 20)
    assert (count, settled) == (50, False)
    assert rule.startswith("not settled after 50 warm-up steps")
    assert problem.startswith("step times had not settled when timing started: medians of the last 3 steps")


def test_warm_up_that_does_not_settle_ends_after_thirty_seconds():
    assert warm([10**9 * 2**i for i in range(20)])[:2] == (5, False)  # 1 + 2 + 4 + 8 + 16 s


def test_the_first_step_does_not_count_for_settling_and_counts_as_a_step():
    warmup = WarmUp(None, most=20)
    warmup.first_step(10**9)
    for _ in range(5):
        warmup.add(100)
    assert not warmup.is_over()
    warmup.add(100)
    assert warmup.is_over()
    assert len(warmup.times_ns) == 7
    asked = WarmUp(1)
    asked.first_step(10**9)
    assert asked.is_over()


def test_ranks_of_a_job_take_the_same_number_of_steps_whatever_they_see():
    for times in ([100] * 30, [2**i for i in range(30)]):
        warmup = WarmUp(None, alike=lambda: True)
        warmup.first_step(5)
        taken = 0
        while not warmup.is_over():
            warmup.add(times[taken])
            taken += 1
        assert (taken, warmup.rule, warmup.settled) == (8, "8 warm-up steps, the same on every rank", None)
