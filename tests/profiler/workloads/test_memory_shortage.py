"""The batch that an out-of-memory error suggests."""

import pytest
import torch

from rooflines.profiler.records import Workload
from rooflines.profiler.workloads.memory_shortage import memory_shortage


@pytest.mark.parametrize(("batch", "asked", "least", "most"), [
    (10**8, 55 * 2**40, 64, 10**8 * 2**40 // (55 * 2**40)),  # 64 GB and 1 TB of memory, and all machines between
    (8, 2**20, 4, 4),
    (7, 2**20, 3, 3),
])  # fmt: skip
def test_the_batch_suggested_fits(batch, asked, least, most):
    error = RuntimeError(f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {asked} bytes.")
    found = memory_shortage(error, Workload(name="m", mode="inference", batch_size=batch), torch.device("cpu"))
    assert found is not None
    assert least <= int(found.hint.removeprefix("Try batch_size=").rstrip(".")) <= most


def test_a_batch_of_one_that_does_not_fit_wants_a_smaller_input():
    error = MemoryError("Unable to allocate 3.55 PiB for an array")
    found = memory_shortage(error, Workload(name="m", mode="inference", batch_size=8), torch.device("cpu"))
    assert found is not None
    assert "3.55 PiB asked for" in found.message
    assert found.hint == "Try a smaller input."
