"""What a point of a network measured in detail: a file beside its result, which the page of its study reads.

Units are SI base units, given in the field names. A field that is None was not measured and is absent from
the JSON.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from rooflines import Ceilings
from rooflines.ext import Bound

DETAIL_FILE = "measured.json"
DataName = Literal["mnist", "digits", "synthetic"]


class ImageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The data that something was trained on. ``label`` says it in words wherever a number of it is shown."""

    name: DataName
    label: str
    train_samples: int
    test_samples: int


class TimedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of a training step: the work that it declares, its time alone, and where that stands."""

    name: str
    layer: str
    phase: str
    #: The fastest of ``rounds``.
    time_s: float
    rounds: int
    calls: int
    #: Those of the direct algorithm.
    flops: int
    matrix_flops: int
    bytes: int
    precision: str
    #: What the kernel does where it leaves out what cannot matter; rates and roofs are about it.
    executed_flops: int | None = None
    lower_bound_s: float | None = None
    attainable_flop_per_s: float | None = None
    #: The lower bound over the time; it and ``bound`` need the ceilings of the device.
    efficiency: float | None = None
    bound: Bound = "unknown"
    memory_level: str | None = None

    @property
    def executed(self) -> int:
        """The FLOPs that are done."""
        return self.flops if self.executed_flops is None else self.executed_flops


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """A training of a network."""

    #: The name of torch.
    device: str
    threads: int | None = None
    #: Those of the packages involved.
    versions: dict[str, str] = {}
    data: ImageFacts
    #: How many processors other programs kept busy meanwhile.
    others_cores: float
    operators: tuple[TimedOperator, ...] = ()
    #: Those that bound the ``operators``.
    ceilings: Ceilings | None = None


class NetworkResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one backend did on one machine. ``name`` has the device in it where several machines have the
    backend.

    ``speed`` is the training that times are taken from, ``remark`` what could not be measured.
    """

    name: str
    backend: str
    device_name: str
    speed: Detail | None = None
    remark: str = ""

    @property
    def operators(self) -> tuple[TimedOperator, ...]:
        """The operators of a step."""
        return self.speed.operators if self.speed is not None else ()
