"""What each backend is asked to do."""

from __future__ import annotations

import pytest

from rooflines.studies.backends import LOADER_BATCHES, Backends, BackendsOptions
from rooflines.studies.records import LoaderJob


@pytest.mark.parametrize(
    ("batch_size", "samples", "batches"),
    [(512, None, LOADER_BATCHES), (512, 1_000, 2), (60_000, None, 1), (7_000, None, 9), (7_000, 70_000, 10)],
)
def test_the_loader_reads_no_more_than_there_is(batch_size, samples, batches):
    jobs = Backends(BackendsOptions(batch_size=batch_size, samples=samples)).jobs("torch-cpu", on_mnist=False)
    (job,) = [one for one in jobs if isinstance(one, LoaderJob)]
    assert job.batches == batches
