"""Every test of this folder has the same random numbers."""

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        yield
