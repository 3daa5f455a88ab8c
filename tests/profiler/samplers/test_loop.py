"""Several samplers read at once: each at its own pace, none at the cost of another, whatever becomes of it."""

import io
import math
import queue
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rooflines.errors import DeviceError
from rooflines.profiler.samplers import loop
from rooflines.profiler.samplers.base import Sampler
from rooflines.profiler.samplers.fields import Counter, DeviceSample
from rooflines.profiler.samplers.loop import SamplingLoop
from rooflines.profiler.samplers.storage import Journal, read_journal
from rooflines.profiler.samplers.update_time import pace
from tests.processes import wait_until


class Device(Sampler):
    """A device that is read by running ``read`` and counts how often; it has ``counters`` and a period as it is told."""

    def __init__(self, name: str, read=lambda: None, *, period_s: float = 0.0, counters=()) -> None:
        self.name, self.period_s, self.given = name, period_s, counters
        self.reading, self.readings, self.closed = read, 0, False

    def counters(self):
        return self.given() if callable(self.given) else self.given

    def read(self):
        self.readings += 1
        self.reading()
        return (DeviceSample(time_ns=time.time_ns(), source=self.name),)

    def close(self) -> None:
        self.closed = True


def sample(*samplers: Sampler, path, until: Callable[[], bool], period_s: float = 0.02) -> Journal:
    """What the journal holds after sampling until that is so."""
    stop = queue.SimpleQueue()

    def end():
        wait_until(until)
        stop.put(None)

    threading.Thread(target=end, daemon=True).start()
    with path.open("wb", buffering=0) as file:
        SamplingLoop(samplers, file, watched=lambda: True, period_s=period_s, stop=stop).run()
    return read_journal(path)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "samples.jsonl"


def test_counters_come_before_the_first_reading_and_are_asked_once(path):
    counter = Counter(source="one", device="host", field="power_w", update_s=0.1)
    asked = []
    device = Device("one", counters=lambda: (asked.append(device.readings), (counter,))[1])
    journal = sample(device, path=path, until=lambda: device.readings > 1)
    assert asked == [0]
    assert (journal.counters, journal.problems, journal.started) == ((counter,), (), True)
    assert len(journal.samples) == device.readings > 1


def test_a_sampler_is_read_at_its_own_period_where_that_is_longer(path):
    quick, slow = Device("quick"), Device("slow", period_s=0.2)
    began = time.monotonic()
    sample(quick, slow, path=path, until=lambda: slow.readings > 3)
    # One at the begin, and one at the end however soon that comes after the one before.
    assert 2 <= slow.readings <= (time.monotonic() - began) / slow.period_s + 2
    assert quick.readings > slow.readings


def test_a_device_that_hangs_delays_neither_the_others_nor_the_end(path, monkeypatch):
    monkeypatch.setattr(loop, "LAST_READING_S", 0.1)
    forever = threading.Event()
    quick, hanging = Device("quick"), Device("hanging", forever.wait)
    try:
        journal = sample(quick, hanging, path=path, until=lambda: quick.readings > 3)
    finally:
        forever.set()
    assert len(journal.samples) == quick.readings > 3
    assert journal.problems == ("1 of 2 samplers did not respond at the end.",)


def test_counters_that_take_long_do_not_hold_up_the_start(path, monkeypatch):
    monkeypatch.setattr(loop, "COUNTERS_TIMEOUT_S", 0.05)
    measured = Counter(source="slow", device="host", field="power_w")
    quick_is_read = threading.Event()
    slow = Device("slow", counters=lambda: (quick_is_read.wait(60), (measured,))[1])
    quick = Device("quick", lambda: quick.readings > 1 and quick_is_read.set())
    journal = sample(quick, slow, path=path, until=lambda: slow.readings > 0)
    assert journal.counters == (measured,)
    assert journal.samples[0].source == "quick"
    assert slow.readings >= 1


@pytest.mark.parametrize(("error", "sentence"), [
    (DeviceError("sampling of cuda:1 stopped: GPU is lost."), "sampling of cuda:1 stopped: GPU is lost."),
    (ZeroDivisionError("division by zero"), "Device stopped: ZeroDivisionError: division by zero."),
    (OSError(5, "Input/output error"), "Device stopped: OSError: [Errno 5] Input/output error."),
])  # fmt: skip
def test_a_sampler_that_raises_ends_its_own_series_only(path, error, sentence):
    def fail():
        if broken.readings == 3:
            raise error

    broken, whole = Device("broken", fail), Device("whole")
    journal = sample(broken, whole, path=path, until=lambda: broken.closed and whole.readings > 3)
    assert journal.problems == (sentence,)
    assert [reading.source for reading in journal.samples].count("broken") == 2
    assert broken.readings == 3
    assert whole.readings > 3
    assert (broken.closed, whole.closed) == (True, True)


def test_a_sampler_that_cannot_say_how_well_it_reads_is_not_read(path):
    def lost():
        raise DeviceError("sampling of cuda:0 stopped: GPU is lost.")

    device = Device("lost", counters=lost)
    journal = sample(device, path=path, until=lambda: device.closed)
    assert (journal.problems, journal.samples, device.closed) == (("sampling of cuda:0 stopped: GPU is lost.",), (), True)


@pytest.mark.ci
def test_a_costly_sampler_is_read_less_often_than_asked(path):
    def work():
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass

    cheap, costly = Device("cheap"), Device("costly", work)
    began = time.monotonic()
    sample(cheap, costly, path=path, until=lambda: time.monotonic() > began + 2 and cheap.readings > costly.readings > 0)
    elapsed_s = time.monotonic() - began
    # The average cost is only known after some readings, of which each may be early.
    assert 0.02 * costly.readings < elapsed_s * loop.BUSIEST_SHARE + 0.02 * loop.COST_SMOOTHED_OVER
    assert cheap.readings > costly.readings


def test_sampling_ends_when_there_is_nothing_left_to_watch(path, monkeypatch):
    monkeypatch.setattr(loop, "LOOK_EVERY_S", 0.05)
    device = Device("one")
    with path.open("wb", buffering=0) as file:
        SamplingLoop([device], file, watched=lambda: device.readings < 5, period_s=0.02, stop=queue.SimpleQueue()).run()
    assert device.readings >= 5
    assert device.closed


def test_what_does_not_fit_into_the_file_ends_sampling_with_the_reason():
    class Full(io.BytesIO):
        def write(self, line):
            if self.tell() > 1000:
                raise OSError(28, "No space left on device")
            return super().write(bytes(line)[:7])

    device, file = Device("one"), Full()
    with pytest.raises(OSError, match="No space left"):
        SamplingLoop([device], file, watched=lambda: True, period_s=0.001, stop=queue.SimpleQueue()).run()
    assert device.closed
    assert file.getvalue().startswith(b'{"started":true}\n{"sample":{"time_ns":')


def test_a_sampler_that_was_kept_from_reading_says_so(path, monkeypatch):
    monkeypatch.setattr(loop, "GAP_S", 0.2)
    device = Device("one", lambda: time.sleep(0.5 if device.readings == 2 else 0))
    journal = sample(device, path=path, until=lambda: device.readings > 2)
    (problem,) = journal.problems
    assert problem.startswith("Device could not read for ")


VALUES = st.lists(st.integers(-1000, 1000), min_size=0, max_size=40)


def counter(period_s, *, reading_s, length_s, step=1, phase_s=0.0):
    """The readings of a counter that grows by ``step`` every period."""
    times = [index * reading_s for index in range(int(length_s / reading_s))]
    return [(time_s, step * math.floor((time_s - phase_s) / period_s)) for time_s in times]


def read_at_once(values):
    return [(float(index), value) for index, value in enumerate(values)]


def test_update_times():
    # Counter that grows evenly.
    found = pace(counter(0.1, reading_s=0.001, length_s=0.65, step=250, phase_s=0.0505))
    assert found.period_s == pytest.approx(0.1, rel=0.01)
    assert found.step == 250
    # Update that changed nothing counts.
    # Power as a multiple of 5 W, which happened to stay the same at the third update and at the sixth and seventh.
    shown = [100, 105, 110, 110, 115, 105, 105, 105, 120, 115]
    found = pace([(index * 0.01, shown[index // 10]) for index in range(100)])
    assert found.period_s == pytest.approx(0.1)
    assert found.step == 5
    # Reader that was held up spoils nothing.
    # Twice it was not there for a while: once for 45 ms around an update, once for so long that an update was missed.
    held_up = [(0.155, 0.2), (0.43, 0.57)]
    readings = counter(0.1, reading_s=0.001, length_s=0.75, phase_s=0.09)
    seen = [(time_s, value) for time_s, value in readings if not any(begin < time_s < end for begin, end in held_up)]
    assert pace(seen).period_s == pytest.approx(0.1, rel=0.01)
    # Slow readings are what limits the period.
    assert pace(counter(0.001, reading_s=0.005, length_s=0.1)).period_s == pytest.approx(0.005)


@pytest.mark.parametrize("values", [[], [7], [7, 7, 7]])
def test_without_a_change_nothing_is_known(values):
    assert pace(read_at_once(values)) == (None, None)


def test_steps_and_falls_of_counters():
    # One change tells the step and no period.
    assert pace(read_at_once([7, 7, 4, 4])) == (None, 3)
    # Counter that falls back to zero has its period.
    values = [value % 400 for _, value in counter(0.1, reading_s=0.01, length_s=1.0, step=100)]
    assert pace([(index * 0.01, value) for index, value in enumerate(values)]).period_s == pytest.approx(0.1)


@given(period_s=st.floats(0.02, 0.2), reading_s=st.floats(0.001, 0.02), phase=st.floats(0, 1))
def test_period_is_as_good_as_the_readings(period_s, reading_s, phase):
    readings = counter(period_s, reading_s=reading_s, length_s=20 * period_s, phase_s=phase * period_s)
    found = pace(readings)
    assume(reading_s < period_s / 2)
    # Both ends of the time between the first change and the last are known to a reading.
    changes = len({value for _, value in readings}) - 1
    assert abs(found.period_s - period_s) <= reading_s / (changes - 1) + 1e-9


@given(VALUES, st.integers(-100, 100), st.integers(1, 50), st.integers(1, 8))
def test_zero_and_unit_make_no_difference_and_time_runs_at_any_speed(values, zero, unit, speed):
    plain, other = pace(read_at_once(values)), pace([(speed * time_s, unit * value + zero) for time_s, value in read_at_once(values)])
    assert other.step == (plain.step and plain.step * unit)
    assert other.period_s == (None if plain.period_s is None else pytest.approx(speed * plain.period_s))


@pytest.mark.ci
@given(VALUES)
def test_every_change_is_a_multiple_of_the_step(values):
    found = pace(read_at_once(values))
    assert all((value - values[0]) % (found.step or 1) == 0 for value in values)
    assert (found.step is None) == (len(set(values)) < 2)
