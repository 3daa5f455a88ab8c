"""Data loading in a recording: waiting time of steps, the loader alone, a step without the loader.

While a recording is on, torch's ``DataLoader`` tells ``LoaderWatch`` how long each batch took to come; other
iterables do where the program wraps them. What is added up is the time of the thread that was entered: a
batch that workers had ready costs next to nothing.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from rooflines.errors import first_line
from rooflines.profiler.distributed import Agreement
from rooflines.profiler.hooks.guard import Guard
from rooflines.profiler.hooks.replaced import replaced
from rooflines.profiler.hooks.step_clock import StepClock
from rooflines.profiler.progress import Progress
from rooflines.profiler.read.work_ranges import profiler_range
from rooflines.profiler.record.device import RecordedDevice
from rooflines.profiler.record.step_counts import known
from rooflines.profiler.records import LoaderAlone, Loading

# The loader alone runs for this long, within these numbers of batches.
ALONE_S = 2.0
ALONE_LEAST_BATCHES, ALONE_MOST_BATCHES = 2, 1000
# The pass on resident data: about this many seconds, within these numbers of steps.
RESIDENT_S = 1.0
RESIDENT_MIN_STEPS, RESIDENT_MAX_STEPS = 4, 51  # the first one, which follows the profiler, is not kept
# Workers start and end with every epoch, and what they bring meanwhile does not count: at most as many times
# the limit go by in all.
ALONE_LONGEST = 5
# What a range is called in which the program waits for a batch; torch's own begin so as well, and the trace
# reader knows them by it.
RANGE_PREFIX = "enumerate(DataLoader)#"
# A batch is a tensor, or a few of them in a few containers; what is deeper is something else.
_DEEPEST, _MOST_ITEMS = 3, 16


class Waited(NamedTuple):
    """The waiting of one step: nanoseconds, batches, and their samples (None if one is unknown)."""

    wait_ns: int = 0
    batches: int = 0
    samples: int | None = 0


class LoaderWatch:
    """Context manager: while it is open, the waiting of this thread for the batches of any torch
    ``DataLoader`` is added up.

    ``wrap`` does the same for any iterable. ``keep`` makes it hold the last batch, and ``resident`` hand that
    one out again at once instead of the next one; while it is ``paused`` nothing is added up. ``tracing``
    writes a range around waits that torch writes none for. Forked workers and other threads are not watched:
    the step may not wait for what they wait for.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._arrived = self._guard.about(self._note)
        self.keep = self.resident = self.paused = self.tracing = False
        self._on = self._inside = False
        self._owner = (0, 0)
        self._waited = Waited()
        self._sources: dict[int, _Source] = {}
        self._loader_of: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        self._last: dict[int, Any] = {}
        self._replaced = contextlib.ExitStack()

    def __enter__(self) -> LoaderWatch:
        from torch.utils.data import DataLoader
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        self._owner = (os.getpid(), threading.get_ident())
        begin, fetch = DataLoader.__iter__, _BaseDataLoaderIter.__next__

        @functools.wraps(begin)
        def watched_begin(loader: Any) -> Any:
            iterator = self._waited_for(
                lambda: begin(loader), None, f"{RANGE_PREFIX}{type(loader).__name__}.__iter__"
            )
            if self._watched():
                with contextlib.suppress(TypeError):  # a subclass may return what nothing can refer to weakly
                    self._loader_of[iterator] = loader
            return iterator

        @functools.wraps(fetch)
        def watched_fetch(iterator: Any) -> Any:
            if not self._watched() or self._inside:
                return fetch(iterator)
            return self._waited_for(lambda: fetch(iterator), found(iterator))

        @self._guard.about
        def found(iterator: Any) -> _Source:
            source = self._source(self._loader_of.get(iterator), iterator)
            if source.workers:
                self._iterators.add(iterator)
            return source

        self._replaced.enter_context(replaced("__iter__", lambda _: watched_begin, DataLoader))
        self._replaced.enter_context(replaced("__next__", lambda _: watched_fetch, _BaseDataLoaderIter))
        self._on = True
        return self

    def __exit__(self, *_: object) -> None:
        self._on = self.resident = False
        self._replaced.close()
        self._last.clear()
        self._sources.clear()

    def follow(self, thread: int) -> None:
        """Another ``thread`` makes the steps."""
        self._owner = (self._owner[0], thread)

    def take(self) -> Waited:
        """Return the waiting since the last call."""
        waited, self._waited = self._waited, Waited()
        return waited

    def forget(self) -> None:
        """Reset the measurement of which loader is waited for longest."""
        self.take()
        for source in self._sources.values():
            source.wait_ns = source.batches = 0

    @property
    def is_loading(self) -> bool:
        """Whether this thread is in a loader just now."""
        return self._inside and self._watched()

    @contextlib.contextmanager
    def looking_away(self) -> Iterator[None]:
        """Do not count waiting inside this context."""
        before, self._inside = self._inside, True
        try:
            yield
        finally:
            self._inside = before

    @property
    def longest(self) -> _Source | None:
        """The loader that was waited for longest since ``forget``; None without batches."""
        return max(
            (source for source in self._sources.values() if source.batches),
            key=lambda source: source.wait_ns,
            default=None,
        )

    def workers_cpu_s(self) -> float:
        """Processor seconds so far of the workers of the loaders seen: the difference of two readings is what
        they used meanwhile.

        Of workers that have ended the system tells only the sum over all ended children of the process, which
        is in every reading.
        """
        import psutil

        workers = [
            worker for iterator in list(self._iterators) for worker in getattr(iterator, "_workers", ())
        ]
        ended = os.times()
        seconds = ended.children_user + ended.children_system
        for worker in workers:
            with contextlib.suppress(psutil.Error, OSError):
                seconds += sum(psutil.Process(worker.pid).cpu_times()[:2])  # user and system
        return seconds

    def _waited_for(self, fetch: Callable[[], Any], source: _Source | None, span: str = "") -> Any:
        """What ``fetch`` returns, its time added to the waiting; without a ``source`` it is not a batch."""
        if not self._watched() or self._inside or self.paused:
            return fetch()
        if self.resident and source is not None and source.key in self._last:
            return copied(self._last[source.key])
        self._inside = True
        began = time.perf_counter_ns()
        try:
            with profiler_range(span) if self.tracing and span else contextlib.nullcontext():
                batch = fetch()
        finally:
            wait_ns = time.perf_counter_ns() - began
            self._waited = self._waited._replace(wait_ns=self._waited.wait_ns + wait_ns)
            self._inside = False
            if source is not None:
                source.wait_ns += wait_ns
        if source is not None:
            self._arrived(source, batch)
        return batch

    def _note(self, source: _Source, batch: Any) -> None:
        source.batches += 1
        before, samples = self._waited, samples_in(batch, source.batch_size)
        known = None if samples is None or before.samples is None else before.samples + samples
        self._waited = before._replace(batches=before.batches + 1, samples=known)
        if self.keep:
            self._last[source.key] = copied(batch)

    def _source(self, loader: Any, iterator: Any = None, *, again: bool | None = None) -> _Source:
        """Where batches come from: the loader or, where it began before we looked, its iterator."""
        key = id(iterator if loader is None else loader)
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = _Source(key, loader, iterator, again)
        return source

    def _watched(self) -> bool:
        return self._on and (os.getpid(), threading.get_ident()) == self._owner


class _Source:
    """A loader that batches came from. The object is held: its ``id`` is its key, and it is what is measured
    afterwards."""

    def __init__(self, key: int, loader: Any, iterator: Any, again: bool | None) -> None:
        known = iterator if loader is None else loader
        self.key = key
        self.loader = loader
        self.again = again
        self.wait_ns = 0
        self.batches = 0
        self.name = type(known).__name__
        self.workers = _whole(known, "num_workers", "_num_workers")
        self.prefetched = (self.workers or 0) * (_whole(known, "prefetch_factor", "_prefetch_factor") or 0)
        self.batch_size = _whole(known, "batch_size") or _whole(
            getattr(known, "batch_sampler", None), "batch_size"
        )
        pinned = getattr(known, "pin_memory", getattr(known, "_pin_memory", None))
        self.pin_memory = pinned if isinstance(pinned, bool) else None
        self._held = known


def _whole(holder: Any, *names: str) -> int | None:
    """The first of these attributes that is there, where it is a whole number."""
    value = next((getattr(holder, name) for name in names if hasattr(holder, name)), None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


class WatchedLoader:
    """An iterable whose batches the watch sees coming; in all else the iterable itself."""

    def __init__(self, watch: LoaderWatch, iterable: Iterable[Any], *, again: bool = True) -> None:
        self._watch = watch
        self._iterable = iterable
        self._again = again

    def __iter__(self) -> Iterator[Any]:
        watch, span = self._watch, f"{RANGE_PREFIX}{type(self._iterable).__name__}"
        iterator = watch._waited_for(lambda: iter(self._iterable), None, f"{span}.__iter__")
        # An iterator cannot restart: iterating it would consume the program's data.
        again = self._again and iterator is not self._iterable
        while True:
            source = watch._source(self._iterable, again=again)
            try:
                batch = watch._waited_for(lambda: next(iterator), source, f"{span}.__next__")
            except StopIteration:
                return
            yield batch

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "_iterable":  # a copy that is not filled yet
            raise AttributeError(name)
        return getattr(self._iterable, name)


# --- batches ----------------------------------------------------------------------------------------------


def samples_in(batch: Any, batch_size: int | None = None) -> int | None:
    """The number of samples in a batch: the first size that its tensors share, else the loader's
    ``batch_size``.

    The one tensor of a batch without a loader's word counts by its own first size. None for what holds no
    tensor.
    """
    sizes = list(_first_sizes(batch, 0))
    if len(sizes) > 1 and len(set(sizes)) == 1:
        return sizes[0]
    return batch_size or (sizes[0] if len(sizes) == 1 else None)


def _first_sizes(batch: Any, depth: int) -> Iterator[int]:
    shape = getattr(batch, "shape", None)
    if isinstance(shape, tuple):
        if shape and isinstance(shape[0], int):
            yield shape[0]
        return
    if depth == _DEEPEST:
        return
    items = (
        batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    )
    for _, item in zip(range(_MOST_ITEMS), items, strict=False):
        yield from _first_sizes(item, depth + 1)


def copied(batch: Any) -> Any:
    """``batch`` in new containers with shared tensors: an item removed from a container is there again the
    next time."""
    from torch.utils._pytree import tree_map

    return tree_map(lambda leaf: copy.copy(leaf) if isinstance(leaf, (Mapping, list)) else leaf, batch)


# --- the loader alone -------------------------------------------------------------------------------------


def may_begin_anew(source: _Source) -> bool:
    """Whether iterating the loader once more changes nothing for the program that owns it.

    That holds for torch's loader over a data set with an index and samplers of torch: what they draw from
    generators is put back. An iterable data set may be a stream. What the program wrapped itself may be
    iterated unless it said otherwise.
    """
    from torch.utils.data import DataLoader, IterableDataset
    from torch.utils.data.distributed import DistributedSampler

    loader = source.loader
    if not isinstance(loader, DataLoader):
        return bool(source.again)
    if source.again is False or isinstance(loader.dataset, IterableDataset):
        return False
    samplers = [loader.sampler, loader.batch_sampler]
    return all(
        sampler is None
        or isinstance(sampler, DistributedSampler)
        or type(sampler).__module__ == "torch.utils.data.sampler"
        for sampler in samplers
    )


def run_alone(source: _Source, *, limit_s: float) -> LoaderAlone | None:
    """Iterate the loader alone for ``limit_s``, with new workers; None if it has too few batches to measure.

    As many first batches as there are workers are left out: they came while the workers started. With these,
    and with all else that is not counted, it takes ``ALONE_LONGEST`` times ``limit_s`` and what is then under
    way. Raises what the loader raises.
    """
    workers = source.workers or 0
    times: list[int] = []
    samples: list[int | None] = []
    limit_ns, taken_ns, enough = round(limit_s * 1e9), 0, False
    deadline_ns = time.perf_counter_ns() + ALONE_LONGEST * limit_ns
    with _generators_put_back(source.loader):
        while not enough and time.perf_counter_ns() < deadline_ns:
            before, last = len(times), time.perf_counter_ns()
            # torch's loader with persistent workers would begin the program's own again.
            iterator = getattr(source.loader, "_get_iterator", lambda: iter(source.loader))()
            try:
                for number, batch in enumerate(iterator):
                    now = time.perf_counter_ns()
                    if number >= workers:
                        times.append(now - last)
                        samples.append(samples_in(batch, source.batch_size))
                        taken_ns += now - last
                    last = now
                    enough = len(times) >= ALONE_MOST_BATCHES or (
                        taken_ns >= limit_ns and len(times) >= ALONE_LEAST_BATCHES
                    )
                    # Not in the middle of what workers bring together.
                    if (enough and len(times) % max(1, workers) == 0) or now >= deadline_ns:
                        break
            finally:
                shut_down = getattr(iterator, "_shutdown_workers", None)
                if shut_down is not None:
                    shut_down()
            if len(times) - before <= workers:  # too short for its workers: what came is what they began with
                break
    if len(times) < max(ALONE_LEAST_BATCHES, 2 * workers):
        return None
    return LoaderAlone(
        batch_ns=tuple(times),
        samples=known(samples, len(samples)),
    )


@contextlib.contextmanager
def _generators_put_back(loader: Any) -> Iterator[None]:
    """Afterwards every random generator that a loader in this process may draw from is where it was."""
    import torch

    numpy = sys.modules.get("numpy")
    holders = (
        loader,
        getattr(loader, "sampler", None),
        getattr(getattr(loader, "batch_sampler", None), "sampler", None),
    )
    own = {
        generator
        for holder in holders
        if isinstance(generator := getattr(holder, "generator", None), torch.Generator)
    }
    with contextlib.ExitStack() as stack:
        for generator in own:
            stack.callback(generator.set_state, generator.get_state())
        stack.callback(random.setstate, random.getstate())
        if numpy is not None:
            stack.callback(numpy.random.set_state, numpy.random.get_state())
        stack.enter_context(torch.random.fork_rng([]))
        yield


class DataLoading(LoaderWatch):
    """Watches the data loading of one recording, pass by pass, while it is entered.

    ``seen`` is what is known so far, without a loader's name where none was waited for. Sentences about what
    could not be found out are added to ``notes``.
    """

    def __init__(self, device: RecordedDevice, progress: Progress, notes: list[str], guard: Guard) -> None:
        super().__init__(guard)
        self.seen = Loading()
        self._device = device
        self._progress = progress
        self._notes = notes
        self._traced: Sequence[Waited] = ()
        self._workers_cpu_s = 0.0  # over the timed steps so far
        self._workers_from_s = 0.0
        self._resident_until = 0

    @functools.cached_property
    def _clock(self) -> StepClock:
        """The clock of the steps on resident data, by which time the device is known."""
        return self._device.step_clock()

    # --- the passes ---------------------------------------------------------------------------------------

    def begin_timed(self, *, more: bool = False) -> None:
        """The timed steps begin, or ``more`` of them after others that were not timed."""
        if more:
            self.take()
        else:
            self._workers_cpu_s = 0.0
            self.forget()
        self._workers_from_s = self.workers_cpu_s()

    def pause(self) -> None:
        """Stop counting: data loaded from here on is not for the steps."""
        self.paused = True

    def resume(self) -> None:
        """Count again: data loaded from here on is for the next step."""
        self.paused = False
        self.take()

    def restart(self) -> None:
        """Forget the steps so far."""
        self.seen = Loading()
        self._traced = ()
        self.paused = False
        self.forget()

    def end_timed(self, steps: Sequence[Waited]) -> None:
        """The timed steps have ended: ``seen`` says what these of them waited for."""
        self._workers_cpu_s += self.workers_cpu_s() - self._workers_from_s
        source = self.longest
        if source is None:
            return
        self.seen = Loading(
            loader=source.name,
            timed_wait_ns=tuple(waited.wait_ns for waited in steps),
            timed_batches=tuple(waited.batches for waited in steps),
            timed_samples=known([waited.samples for waited in steps], len(steps)),
            workers=source.workers,
            prefetched=source.prefetched,
            batch_size=source.batch_size,
            pin_memory=source.pin_memory,
            workers_cpu_s=self._workers_cpu_s if source.workers else None,
        )

    def begin_traced(self, *, keep_batches: bool) -> None:
        """The traced steps begin; ``keep_batches`` holds the last batch, which the program may be given again
        afterwards."""
        # What the program does with a batch after its step is its own business: it is held only while it may
        # be asked for again.
        self.take()
        self.keep, self.tracing = keep_batches, True

    def end_traced(self, steps: Sequence[Waited] | None) -> None:
        """The traced steps have ended; these waited, if their trace replaces an earlier one."""
        if steps is not None:
            self._traced = steps
        self.keep = self.tracing = False

    def finish(self) -> None:
        """Complete what was seen with the traced steps."""
        if self.seen.loader:
            self.seen = replace(self.seen, traced_wait_ns=tuple(waited.wait_ns for waited in self._traced))

    @property
    def samples_of_every_step(self) -> int | None:
        """The number of samples of each timed step, if all are equal."""
        sizes = set(self.seen.timed_samples)
        return sizes.pop() if len(sizes) == 1 and sizes != {0} else None

    # --- the step on resident data ------------------------------------------------------------------------

    def resident_step(self) -> bool:
        """To be called after a step of a program that ends with its recording: whether to make one more, on
        the batch that is there.

        Such steps tell what the program reaches when it does not wait for its data. False where no batch was
        seen, when there are enough of them, and as one of several ranks: one that made more steps than the
        others would wait for them forever.
        """
        if not self.resident:
            if self.seen.resident_ns or not self.seen.loader or not self._last or Agreement().has_peers:
                return False
            self._progress.stage("timing the step with data in memory", None)
            self.resident = True
            self._resident_until = time.perf_counter_ns() + round(RESIDENT_S * 1e9)
            self._device.synchronize()
        else:
            self._clock.end()
        count = len(self._clock)
        in_time = time.perf_counter_ns() < self._resident_until
        if count < RESIDENT_MIN_STEPS or (count < RESIDENT_MAX_STEPS and in_time):
            self._clock.begin()
            return True
        self.end_resident_steps()
        return False

    def end_resident_steps(self, error: Exception | None = None) -> None:
        """Keep what was measured on resident data; nothing where it made the program raise ``error``."""
        self.resident = False
        if error is not None:
            self._clock.drop()
            self._notes.append(f"the step could not be repeated on its last batch: {first_line(error)}")
            return
        self.seen = replace(self.seen, resident_ns=tuple(self._clock.take_ns()[1:]))

    # --- the loader alone ---------------------------------------------------------------------------------

    def run_loader_alone(self, *, ends: bool = False) -> None:
        """Iterate the loader that was waited for longest for two seconds, unless that would take data from
        the program it belongs to.

        ``ends`` says that the program will not go on afterwards, and so has no use for its data.
        """
        source = self.longest
        if source is None or source.loader is None or not self.seen.loader or source.again is False:
            return
        if not ends and not may_begin_anew(source):
            return
        self._progress.stage("timing the data loader alone", None)
        alone: LoaderAlone | None = None
        try:
            with self.looking_away():
                alone = run_alone(source, limit_s=ALONE_S)
        except Exception as error:
            self._notes.append(f"the data loader could not be timed alone: {first_line(error)}")
        self.seen = replace(self.seen, alone=alone)
