"""The number of CPU threads of torch's operators."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def torch_threads(threads: int | None) -> Iterator[None]:
    """Inside, torch's operators use ``threads`` threads (None: their number is left alone); afterwards as
    many as before."""
    import torch

    before = torch.get_num_threads()
    if threads is not None:  # to set the same number would also keep MKL from choosing fewer
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
