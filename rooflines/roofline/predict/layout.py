"""A parallel layout of several equal devices, and the bound of a generation in it."""

from __future__ import annotations

import msgspec


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How many ways a network is cut: ``devices`` is the product of tensor, pipeline and data. Experts are
    spread over ``expert`` of the replicas, all or one."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        if min(self.tensor, self.pipeline, self.data) < 1 or self.expert not in (1, self.data):
            raise ValueError("sizes of a layout must be at least 1, and expert must be 1 or data")

    @property
    def devices(self) -> int:
        return self.tensor * self.pipeline * self.data

    def __str__(self) -> str:
        named = (
            ("tensor", self.tensor),
            ("pipeline", self.pipeline),
            ("data", self.data),
            ("expert", self.expert),
        )
        return " x ".join(f"{name} {size}" for name, size in named if size > 1) or "one device"


class LayoutPhase(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a phase for all sequences.

    ``computed_s`` is the bound of the operators of a device, over the stages of a pipeline, and
    ``sent_bytes`` what a device sends: the sizes of collectives times their bus factors. ``exposed_s`` is the
    part of ``communication_s`` that nothing hides. ``lower_bound_s`` is when the last sequence is ready.
    """

    name: str
    computed_s: float
    sent_bytes: float
    communication_s: float
    exposed_s: float
    lower_bound_s: float


class LayoutBound(msgspec.Struct, frozen=True, kw_only=True):
    """A generation in a layout: the memory of the device that needs most, and the least times.

    ``tokens_per_s`` is of all sequences in decode, at most reached; absent where the layout does not fit.
    ``fits`` is absent where the size of the memory is not known.
    """

    layout: Layout
    weights_bytes: int
    kv_cache_bytes: int
    activations_bytes: int
    phases: tuple[LayoutPhase, ...]
    tokens_per_s: float | None = None
    fits: bool | None = None

    @property
    def memory_bytes(self) -> int:
        """What one device holds."""
        return self.weights_bytes + self.kv_cache_bytes + self.activations_bytes
