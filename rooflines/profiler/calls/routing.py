"""How many experts a grouped product uses, which its shapes do not tell: a recording does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import torch

from rooflines.profiler.read.signature import Keywords, Positional, Signature

GROUPED = "aten::_grouped_mm"
_CHOICE = "aten::topk"


class Routing:
    """Follows what routers choose, for the products of experts after them."""

    def __init__(self) -> None:
        self._chosen: dict[int, int] = {}

    def note(self, name: str, results: Iterable[torch.Tensor]) -> None:
        """Remember how many experts each token chose, by the number of rows that this makes."""
        if name == _CHOICE:
            self._chosen.update((chosen.numel(), chosen.shape[-1]) for chosen in results if chosen.dim())

    def known(self, signature: Signature, args: Positional, kwargs: Keywords, *, fake: bool) -> Signature:
        """A grouped product with two more arguments: the number of groups that have rows, known of real
        tensors, and how many experts each token chose."""
        offsets = kwargs.get("offs", args[2] if len(args) > 2 else None)
        used = (
            None
            if fake or offsets is None
            else sum(end > start for start, end in pairwise([0, *offsets.tolist()]))
        )
        return replace(signature, args=(*signature.args, used, self._chosen.get(args[0].shape[0])))
