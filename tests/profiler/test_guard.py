"""What goes wrong in ours stays ours: the recording ends, or one object is left alone, and the program goes on."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from rooflines.profiler.hooks.guard import Guard
from rooflines.profiler.hooks.module_hooks import ModuleRanges


class Model(torch.nn.Module):
    pass


def test_an_error_around_the_recording_ends_it_once():
    notes, ends = [], []
    guard = Guard(notes, lambda: ends.append(True))
    assert guard.around(lambda: 1)() == 1
    fail, other = guard.around(lambda: 1 // 0), guard.around(lambda: 1)
    assert (fail(), fail(), other(), guard.about(lambda _: 1)(Model())) == (None, None, None, None)
    assert ends == [True]
    assert len(notes) == 1
    assert "the recording ended" in notes[0]
    assert "ZeroDivisionError" in notes[0]


def test_an_error_about_an_object_ends_the_observation_of_that_object_only():
    notes, good, bad, calls = [], Model(), Model(), []
    guard = Guard(notes)

    @guard.about
    def observe(model, number):
        calls.append(number)
        if model is bad:
            raise ValueError("odd")
        return number

    assert [observe(good, 1), observe(bad, 2), observe(bad, 3), observe(good, 4)] == [1, None, None, 4]
    assert calls == [1, 2, 4]
    assert guard.about(lambda model: model)(bad) is None  # by any function
    assert len(notes) == 1
    assert "Model" in notes[0]
    assert not guard.has_failed


@pytest.mark.ci
def test_an_object_left_alone_is_not_kept_alive():
    guard, model = Guard(), Model()
    guard.about(lambda _: 1 // 0)(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_an_object_without_weak_references_is_left_alone_too():
    class Slots:
        __slots__ = ()

    calls, guard, odd = [], Guard(), Slots()

    @guard.about
    def observe(_):
        calls.append(1)
        raise ValueError

    observe(odd)
    observe(odd)
    assert calls == [1]


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_program_passes(ending):
    def end(*_):
        raise ending

    with pytest.raises(ending):
        Guard().around(end)()
    with pytest.raises(ending):
        Guard().about(end)(Model())


def test_a_module_that_cannot_be_named_runs_and_others_have_ranges():
    class Unnameable(torch.nn.Linear):
        def named_modules(self, *_, **__):
            raise RuntimeError("no names here")

    notes = []
    one, other = Unnameable(2, 3), torch.nn.Linear(2, 3)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler, ModuleRanges(Guard(notes)):
        for _ in range(2):
            one(torch.ones(1, 2))
            other(torch.ones(1, 2))
    ranges = [event.name for event in profiler.events() if event.name.startswith("nn.Module")]
    assert len(ranges) == 2
    assert all("(Linear)" in name for name in ranges)
    assert len(notes) == 1
    assert "no names here" in notes[0]
