"""The difference of a result from that in fp32."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rooflines.profiler.options import PointOptions
from rooflines.profiler.records import ResultError
from rooflines.profiler.workloads.inputs import tensors_in
from rooflines.roofline.predict.options import OPTIONS

if TYPE_CHECKING:
    import torch


class FirstResult:
    """A step that keeps the result of its first call on the host, in fp32."""

    def __init__(self, step: Callable[[], object]) -> None:
        self._step = step
        self.tensors: list[torch.Tensor] | None = None

    def __call__(self) -> object:
        result = self._step()
        if self.tensors is None:
            self.tensors = floats(result)
        return result


def reference_options(options: PointOptions) -> PointOptions | None:
    """Return the options of the reference in fp32 for a run with ``options``; None if that is what it is."""
    altering = (option.name for option in OPTIONS if option.alters)
    plain = dataclasses.replace(options, **{name: getattr(PointOptions, name) for name in altering})
    return None if plain == options else plain


def floats(result: object) -> list[torch.Tensor]:
    """Return the floating-point tensors in ``result`` as copies on the host in fp32."""
    import torch

    return [
        t.detach().to("cpu", torch.float32, copy=True) for t in tensors_in(result) if t.is_floating_point()
    ]


def output_error(result: list[Any], reference: list[Any], *, classifies: bool) -> ResultError | None:
    """Compare the tensors of two results; None where they do not correspond, are not finite, or the reference
    is zero.

    ``classifies`` says that they are scores of classes [N, classes].
    """
    if [tensor.shape for tensor in result] != [tensor.shape for tensor in reference]:
        return None
    norm = math.sqrt(sum(float(tensor.double().square().sum()) for tensor in reference))
    distance = math.sqrt(
        sum(float((a.double() - b.double()).square().sum()) for a, b in zip(result, reference, strict=True))
    )
    if not norm > 0 or not math.isfinite(distance):
        return None
    same = None
    if classifies and len(result) == 1 and result[0].dim() == 2 and result[0].shape[1] > 1:
        same = float((result[0].argmax(1) == reference[0].argmax(1)).double().mean())
    return ResultError(relative=distance / norm, same_class=same)
