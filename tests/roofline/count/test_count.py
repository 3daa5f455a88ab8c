"""The resolvers in their order: each returns new counts and leaves those that it was given as they are."""

from __future__ import annotations

import numpy as np
import pytest

from rooflines.profiler.tree.tree import tree
from rooflines.roofline.count.count import RESOLVERS, count
from rooflines.roofline.count.counts import Known, count_signatures
from tests.roofline.real import DATA
from tests.roofline.rooms import read

TRACE = DATA / "resnet50_v100_training_2021_schema.json.gz"


@pytest.fixture(scope="module")
def counted():
    return count_signatures(tree(read(TRACE)), Known(parameter_elements=25_557_032))


def test_every_resolver_returns_counts_of_its_own(counted):
    counts = counted
    for resolve in RESOLVERS:
        variants, of_event = counts.variants, counts.of_event.copy()
        found = counts.resolved(resolve)
        assert counts.variants == variants
        assert np.array_equal(counts.of_event, of_event), resolve.__name__
        assert found.variants[: len(variants)] == variants, "what other events refer to stays in its place"
        counts = found
    every = count(counted.calls, counted.known)
    assert every.variants == counts.variants
    assert np.array_equal(every.of_event, counts.of_event)


def test_fewer_calls_are_unknown_with_every_call_that_was_resolved(counted):
    def unknown(counts):
        return int(counts.where(lambda variant: variant.count.kind == "unknown").sum())

    assert unknown(count(counted.calls, counted.known)) < unknown(counted) / 2


def test_what_a_resolver_needs_comes_before_it():
    order = list(RESOLVERS)
    for resolve, needed in RESOLVERS.items():
        assert all(order.index(other) < order.index(resolve) for other in needed), resolve.__name__
