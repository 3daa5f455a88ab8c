"""Measures data loading in a recording: waiting time of steps, the loader alone, a step without the loader."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from rooflines.profiler.distributed import Agreement
from rooflines.profiler.progress import Progress
from rooflines.profiler.recording.device import RecordedDevice
from rooflines.profiler.recording.loader import LoaderWatch, Waited, WatchedLoader, may_begin_anew, run_alone
from rooflines.profiler.recording.step_clock import StepClock
from rooflines.profiler.records import LoaderAlone, Loading

# The loader alone runs for this long.
ALONE_S = 2.0
# The pass on resident data: about this many seconds, within these numbers of steps.
RESIDENT_S = 1.0
RESIDENT_MIN_STEPS, RESIDENT_MAX_STEPS = 4, 51  # the first one, which follows the profiler, is not kept


class DataLoading:
    """Watches the data loading of one recording, pass by pass, while it is entered.

    ``seen`` is what is known so far, without a loader's name where none was waited for. Sentences about what could not be found out
    are added to ``notes``.
    """

    def __init__(self, device: RecordedDevice, progress: Progress, notes: list[str]) -> None:
        self.seen = Loading()
        self._device = device
        self._progress = progress
        self._notes = notes
        self._watch = LoaderWatch()
        self._timed: list[Waited] = []
        self._traced: list[Waited] = []
        self._tracing: list[Waited] = []
        self._workers_cpu_s = 0.0  # over the timed steps so far
        self._workers_from_s = 0.0
        self._resident_until: int | None = None

    @functools.cached_property
    def _clock(self) -> StepClock:
        """The clock of the steps on resident data, by which time the device is known."""
        return self._device.step_clock()

    def __enter__(self) -> DataLoading:
        self._watch.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.__exit__()

    def loader(self, iterable: Iterable[Any], *, again: bool = True) -> WatchedLoader:
        """``iterable`` so that waiting for its batches is seen; torch's ``DataLoader`` is seen without.

        After the recording it is iterated once more, for two seconds, to measure it alone, unless it is an iterator or ``again`` is
        False: iterating it would take the program's data.
        """
        return self._watch.wrap(iterable, again=again)

    @property
    def is_under_way(self) -> bool:
        """Whether the program is inside a data loader: what runs there is not a step."""
        return self._watch.is_loading

    # --- the passes ------------------------------------------------------------------------------------------------------------

    def begin_timed(self, *, more: bool = False) -> None:
        """The timed steps begin, or ``more`` of them after others that were not timed."""
        if more:
            self._watch.take()
        else:
            self._timed, self._workers_cpu_s = [], 0.0
            self._watch.forget()
        self._workers_from_s = self._watch.workers_cpu_s()

    def after_timed_step(self) -> None:
        """A timed step has ended."""
        self._timed.append(self._watch.take())

    def pause(self) -> None:
        """Stop counting: data loaded from here on is not for the steps."""
        self._watch.paused = True

    def resume(self) -> None:
        """Count again: data loaded from here on is for the next step."""
        self._watch.paused = False
        self._watch.take()

    def restart(self) -> None:
        """Forget the steps so far."""
        self.seen = Loading()
        self._timed, self._traced = [], []
        self._watch.paused = False
        self._watch.forget()

    def end_timed(self, whole: Sequence[bool]) -> None:
        """The timed steps have ended: ``seen`` says what those of them waited for that are ``whole``."""
        self._workers_cpu_s += self._watch.workers_cpu_s() - self._workers_from_s
        self._timed = [waited for waited, kept in zip(self._timed, whole, strict=True) if kept]
        source = self._watch.longest
        if source is None:
            return
        samples = [one.samples for one in self._timed]
        self.seen = Loading(
            loader=source.name,
            timed_wait_ns=tuple(one.wait_ns for one in self._timed),
            timed_batches=tuple(one.batches for one in self._timed),
            timed_samples=tuple(count for count in samples if count is not None) if None not in samples else (),
            workers=source.workers,
            prefetched=source.prefetched,
            batch_size=source.batch_size,
            pin_memory=source.pin_memory,
            workers_cpu_s=self._workers_cpu_s if source.workers else None,
        )

    def begin_traced(self, *, keep_batches: bool) -> None:
        """The traced steps begin; ``keep_batches`` holds the last batch, which the program may be given again afterwards."""
        # What the program does with a batch after its step is its own business: it is held only while it may be asked for again.
        self._tracing = []
        self._watch.take()
        self._watch.keep, self._watch.tracing = keep_batches, True

    def after_traced_step(self) -> None:
        """A traced step has ended."""
        self._tracing.append(self._watch.take())

    def end_traced(self, *, kept: bool) -> None:
        """The traced steps have ended; ``kept`` says whether their trace replaces an earlier one."""
        if kept:
            self._traced = self._tracing
        self._watch.keep = self._watch.tracing = False

    def finish(self) -> None:
        """Complete what was seen with the traced steps."""
        if self.seen.loader:
            self.seen = msgspec.structs.replace(self.seen, traced_wait_ns=tuple(one.wait_ns for one in self._traced))

    @property
    def samples_of_every_step(self) -> int | None:
        """The number of samples of each timed step, if all are equal."""
        sizes = set(self.seen.timed_samples)
        return sizes.pop() if len(sizes) == 1 and sizes != {0} else None

    # --- the step on resident data ---------------------------------------------------------------------------------------------

    @property
    def is_resident(self) -> bool:
        """Whether the step now running was given its last batch again."""
        return self._watch.resident

    def resident_step(self) -> bool:
        """To be called after a step of a program that ends with its recording: whether to make one more, on the batch that is there.

        Such steps tell what the program reaches when it does not wait for its data. False where no batch was seen, when there are
        enough of them, and as one of several ranks: one that made more steps than the others would wait for them forever.
        """
        if not self.is_resident:
            if self.seen.resident_ns or not self.seen.loader or not self._watch.has_batch or Agreement().has_peers:
                return False
            self._progress.stage("timing the step with data in memory", None)
            self._watch.resident = True
            self._resident_until = time.perf_counter_ns() + round(RESIDENT_S * 1e9)
            self._device.synchronise()
        else:
            self._clock.end()
        count = len(self._clock)
        in_time = self._resident_until is None or time.perf_counter_ns() < self._resident_until
        if count < RESIDENT_MIN_STEPS or (count < RESIDENT_MAX_STEPS and in_time):
            self._clock.begin()
            return True
        self.end_resident_steps()
        return False

    def end_resident_steps(self, error: Exception | None = None) -> None:
        """Keep what was measured on resident data; nothing where it made the program raise ``error``."""
        self._watch.resident = False
        if error is not None:
            self._clock.drop()
            self._notes.append(f"the step could not be repeated on its last batch: {_reason(error)}")
            return
        self.seen = msgspec.structs.replace(self.seen, resident_ns=tuple(self._clock.take_ns()[1:]))

    # --- the loader alone ------------------------------------------------------------------------------------------------------

    def run_loader_alone(self, *, ends: bool = False) -> None:
        """Iterate the loader that was waited for longest for two seconds, unless that would take data from the program it belongs to.

        ``ends`` says that the program will not go on afterwards, and so has no use for its data.
        """
        source = self._watch.longest
        if source is None or source.loader is None or not self.seen.loader or source.again is False:
            return
        if not ends and not may_begin_anew(source):
            return
        self._progress.stage("timing the data loader alone", None)
        alone: LoaderAlone | None = None
        try:
            with self._watch.looking_away():
                alone = run_alone(source, limit_s=ALONE_S)
        except Exception as error:
            self._notes.append(f"the data loader could not be timed alone: {_reason(error)}")
        self.seen = msgspec.structs.replace(self.seen, alone=alone)


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
