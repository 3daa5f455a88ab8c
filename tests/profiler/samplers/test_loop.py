"""Several samplers read at once: each at its own pace, none at the cost of another, whatever becomes of it."""

import io
import queue
import threading
import time
from collections.abc import Callable

import pytest

from rooflines.errors import DeviceError
from rooflines.profiler.samplers import loop
from rooflines.profiler.samplers.base import Sampler
from rooflines.profiler.samplers.fields import Counter, DeviceSample
from rooflines.profiler.samplers.loop import SamplingLoop
from rooflines.profiler.samplers.storage import Journal, read_journal
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
    assert journal.counters == (counter,)
    assert journal.started
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


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (DeviceError("sampling of cuda:1 stopped: GPU is lost."), "sampling of cuda:1 stopped: GPU is lost."),
        (ZeroDivisionError("division by zero"), "Device stopped: ZeroDivisionError: division by zero."),
        (OSError(5, "Input/output error"), "Device stopped: OSError: [Errno 5] Input/output error."),
    ],
)
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


def test_samples_come_through_the_journal_as_they_were(path):
    recorded = [DeviceSample(time_ns=number, source="test", power_w=70.0 + number) for number in range(5)]
    counters = (Counter(source="test", device="host", field="power_w", update_s=0.1, resolution=1e-3, window_s=1.0),)
    left = list(recorded)
    device = Device("test", counters=counters)
    device.read = lambda: [left.pop(0)] if left else ()
    silent = Device("silent")
    silent.read = lambda: ()
    journal = sample(device, silent, path=path, until=lambda: not left, period_s=0.01)
    assert journal.samples == tuple(recorded)
    assert journal.counters == counters
    assert journal.problems == ()
