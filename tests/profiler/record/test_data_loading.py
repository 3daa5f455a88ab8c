"""Watching data loading: what is waited for, what is left alone, and what a loader does when it runs alone."""

import itertools
import random
import threading
import time
from collections import namedtuple

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, Sampler, SequentialSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from rooflines.profiler.hooks.guard import Guard
from rooflines.profiler.record.data_loading import LoaderWatch, WatchedLoader, copied, may_begin_anew, run_alone, samples_in

NAP_S = 0.004


class Slow(Dataset):
    """Samples that take a known time, which it notes."""

    def __init__(self, size: int = 12, nap_s: float = NAP_S) -> None:
        self.size = size
        self.nap_s = nap_s
        self.slept_ns: list[int] = []

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        began = time.perf_counter_ns()
        time.sleep(self.nap_s)
        self.slept_ns.append(time.perf_counter_ns() - began)
        return torch.full((3,), float(index))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.zeros(8, 2))


class Drawing(Dataset):
    """Draws from every generator there is."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> float:
        return random.random() + float(np.random.rand()) + float(torch.rand(()))  # noqa: NPY002


class OwnSampler(Sampler):
    def __iter__(self):
        return iter(range(4))

    def __len__(self) -> int:
        return 4


def longest(watch):
    found = watch.longest
    assert found is not None
    return found


def test_what_a_loader_sleeps_is_waited_for_and_nothing_else():
    data = Slow()
    with LoaderWatch(Guard()) as watch:
        began = time.perf_counter_ns()
        waits = []
        for _ in DataLoader(data, batch_size=4):
            waits.append(watch.take())
            time.sleep(NAP_S)
        whole_ns = time.perf_counter_ns() - began
        assert longest(watch).name == "DataLoader"
    assert [(wait.batches, wait.samples) for wait in waits] == [(1, 4)] * 3
    waited_ns, slept_ns = sum(wait.wait_ns for wait in waits), sum(data.slept_ns)
    assert slept_ns <= waited_ns <= whole_ns - 3 * NAP_S * 1e9


def test_torch_is_left_as_it_was_and_who_wrapped_the_loader_meanwhile_keeps_what_he_did():
    before = DataLoader.__iter__, _BaseDataLoaderIter.__next__
    seen = []
    with LoaderWatch(Guard()):
        assert DataLoader.__iter__ is not before[0]
    assert (DataLoader.__iter__, _BaseDataLoaderIter.__next__) == before
    with LoaderWatch(Guard()):
        ours = _BaseDataLoaderIter.__next__

        def theirs(iterator):
            seen.append(1)
            return ours(iterator)

        _BaseDataLoaderIter.__next__ = theirs
    try:
        assert _BaseDataLoaderIter.__next__ is theirs
        assert len(list(DataLoader(range(4), batch_size=2))) == 2
        assert len(seen) == 3
    finally:
        _BaseDataLoaderIter.__next__ = before[1]


def test_any_iterable_can_be_wrapped_and_stays_what_it_is():
    with LoaderWatch(Guard()) as watch:
        batches = [torch.zeros(5, 2), torch.zeros(5, 2)]
        wrapped = WatchedLoader(watch, batches)
        assert len(wrapped) == 2
        assert wrapped.index(batches[0]) == 0
        assert [batch.shape[0] for batch in wrapped] == [5, 5]
        found = watch.take()
        assert (found.batches, found.samples) == (2, 10)
        assert longest(watch).name == "list"
        assert longest(watch).workers is None


def test_a_loader_in_a_loader_is_waited_for_once():
    data = Slow(4)

    def batches():
        yield from DataLoader(data, batch_size=2)

    with LoaderWatch(Guard()) as watch:
        began = time.perf_counter_ns()
        assert len(list(WatchedLoader(watch, batches()))) == 2
        whole_ns = time.perf_counter_ns() - began
        found = watch.take()
    assert found.batches == 2
    assert sum(data.slept_ns) <= found.wait_ns <= whole_ns


def test_other_threads_wait_for_themselves():
    with LoaderWatch(Guard()) as watch:
        thread = threading.Thread(target=lambda: list(DataLoader(Slow(4), batch_size=2)))
        thread.start()
        thread.join()
        assert watch.take() == (0, 0, 0)
        assert watch.longest is None


def test_of_two_loaders_the_one_that_was_waited_for_longest_counts_and_one_that_began_before_is_not_known():
    began = iter(DataLoader(Slow(4), batch_size=2))
    with LoaderWatch(Guard()) as watch:
        quick, slow = DataLoader(range(8), batch_size=2), DataLoader(Slow(8), batch_size=4)
        list(zip(quick, slow, strict=False))
        assert longest(watch).loader is slow
        watch.forget()
        assert watch.longest is None
        next(began)
        assert (longest(watch).loader, longest(watch).workers, longest(watch).batches) == (None, 0, 1)


def test_resident_data_comes_at_once_and_whole():
    with LoaderWatch(Guard()) as watch:
        iterator = iter(DataLoader([{"x": torch.full((3,), float(i))} for i in range(12)], batch_size=4))
        next(iterator)
        watch.keep = True
        last = next(iterator)["x"].clone()
        watch.resident = True
        taken = [next(iterator).pop("x") for _ in range(9)]
        watch.resident = False
        assert all(torch.equal(batch, last) for batch in taken)
        assert not torch.equal(next(iterator)["x"], last)


Pair = namedtuple("Pair", "x y")


@pytest.mark.parametrize(("batch", "batch_size", "samples"), [
    (torch.zeros(7, 3), None, 7),
    (np.zeros((7, 3)), None, 7),
    ((torch.zeros(7, 3), torch.zeros(7)), None, 7),
    ({"x": torch.zeros(7, 3), "y": [torch.zeros(7)]}, None, 7),
    (Pair(torch.zeros(7, 3), torch.zeros(7)), 8, 7),  # the last one of an epoch
    (torch.zeros(100, 8, 3), 8, 8),  # time first: the loader knows better
    ((torch.zeros(100, 8), torch.zeros(8)), 8, 8),
    ((torch.zeros(100, 8), torch.zeros(8)), None, None),
    (torch.zeros(()), None, None),
    (["a", "b"], None, None),
    (3, None, None),
])  # fmt: skip
def test_samples_in(batch, batch_size, samples):
    assert samples_in(batch, batch_size) == samples


def test_a_copy_has_its_own_containers_and_the_same_tensors():
    tensor = torch.zeros(2)
    batch = {"x": [tensor], "pair": Pair(tensor, (tensor,))}
    found = copied(batch)
    assert found["x"] is not batch["x"]
    assert found["x"][0] is found["pair"].x is found["pair"].y[0] is tensor
    assert type(found["pair"]) is Pair


def source(loader, **wrapped):
    with LoaderWatch(Guard()) as watch:
        next(iter(WatchedLoader(watch, loader, **wrapped) if wrapped else loader))
        return longest(watch)


class Counted:
    """An iterable of its own, which starts over every time."""

    def __iter__(self):
        return itertools.repeat(torch.zeros(4, 2), 5)


@pytest.mark.parametrize(("loader", "wrapped", "may"), [
    (DataLoader(range(8)), {}, True),
    (DataLoader(range(8), shuffle=True), {}, True),
    (DataLoader(range(8), batch_sampler=BatchSampler(RandomSampler(range(8)), 2, False)), {}, True),
    (DataLoader(Stream()), {}, False),
    (DataLoader(range(8), sampler=OwnSampler()), {}, False),
    (DataLoader(range(8)), {"again": True}, True),
    (DataLoader(range(8)), {"again": False}, False),
    (Counted(), {"again": True}, True),
    (Counted(), {"again": False}, False),
    ((torch.zeros(1) for _ in range(3)), {"again": True}, False),
])  # fmt: skip
def test_what_may_be_iterated_once_more(loader, wrapped, may):
    assert may_begin_anew(source(loader, **wrapped)) is may


def test_a_loader_alone_takes_what_its_samples_take():
    data = Slow(8)
    found = source(DataLoader(data, batch_size=2, sampler=SequentialSampler(data)))
    data.slept_ns.clear()
    alone = run_alone(found, limit_s=0.05)
    assert alone is not None
    assert set(alone.samples) == {2}
    assert sum(data.slept_ns) <= sum(alone.batch_ns)
    assert len(data.slept_ns) == sum(alone.samples), "every sample was somebody's"
    assert sum(alone.batch_ns[:-1]) < 0.05e9 <= sum(alone.batch_ns), "it goes on over epochs, and ends in time"


def test_a_loader_alone_puts_every_generator_back():
    own = torch.Generator().manual_seed(3)
    loader = DataLoader(Drawing(), batch_size=2, shuffle=True, generator=own)
    found = source(loader)
    for seed in (random.seed, np.random.seed, torch.manual_seed, own.manual_seed):
        seed(1)
    expected = list(loader)
    for seed in (random.seed, np.random.seed, torch.manual_seed, own.manual_seed):
        seed(1)
    assert run_alone(found, limit_s=0.05) is not None
    assert all(map(torch.equal, loader, expected))


@pytest.mark.ci
def test_a_loader_with_workers_has_new_ones_and_leaves_the_old_alone():
    loader = DataLoader(Slow(40, 0.0005), batch_size=2, num_workers=1, persistent_workers=True)
    with LoaderWatch(Guard()) as watch:
        batches = iter(loader)
        first = next(batches)
        found = longest(watch)
        assert (found.workers, found.prefetched) == (1, 2)
        with watch.looking_away():
            alone = run_alone(found, limit_s=1.0)
        assert watch.workers_cpu_s() > 0
        rest = list(batches)
    assert alone is not None
    assert [int(batch[0, 0]) for batch in (first, *rest)] == list(range(0, 40, 2)), "the program's own epoch goes on"
    loader._iterator._shutdown_workers()


class Starting:
    """Batches that come at once, but for those with which an epoch begins; it notes when epochs began and how many each gave."""

    def __init__(self, slow: int, batches: int, workers: int = 2) -> None:
        self.slow, self.batches, self.num_workers = slow, batches, workers
        self.began_s: list[float] = []
        self.given: list[int] = []

    def __iter__(self):
        self.began_s.append(time.perf_counter())
        self.given.append(0)
        for number in range(self.batches):
            if number < self.slow:
                time.sleep(0.02)
            self.given[-1] += 1
            yield torch.zeros(2)


def test_a_loader_alone_is_stopped_when_most_of_its_time_does_not_count():
    loader = Starting(slow=2, batches=8)
    found = source(loader, again=True)
    loader.began_s.clear()
    loader.given.clear()
    began_s = time.perf_counter()
    alone = run_alone(found, limit_s=0.1)
    assert alone is not None
    assert len(alone.batch_ns) == sum(max(0, given - 2) for given in loader.given), "of each epoch all but the first two"
    assert sum(alone.batch_ns) < 0.1e9
    assert max(loader.began_s) < began_s + 0.5 + 0.02, "five times the limit, and nothing begins after that"


def test_a_loader_alone_is_stopped_within_an_epoch():
    loader = Starting(slow=1000, batches=1000, workers=1000)
    found = source(loader, again=True)
    loader.given.clear()
    assert run_alone(found, limit_s=0.01) is None
    assert len(loader.given) == 1
    assert 1 <= loader.given[0] <= 3, "the third batch of 0.02 s is past 0.05 s"


def test_too_few_batches_for_the_workers_tell_nothing():
    assert run_alone(source(DataLoader(range(1))), limit_s=0.05) is not None  # epoch after epoch
    assert run_alone(source(DataLoader(range(2), num_workers=2)), limit_s=1.0) is None


def test_what_the_loader_raises_is_raised():
    data = Slow(4)
    found = source(DataLoader(data, batch_size=2))
    data.nap_s = -1.0
    with pytest.raises(ValueError, match="sleep length"):
        run_alone(found, limit_s=1.0)
