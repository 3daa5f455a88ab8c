"""Pretrained weights from a file, and a classifier for other classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflines.arguments import arg
from rooflines.errors import DataError, WorkloadError

if TYPE_CHECKING:
    import torch


def read_weights(path: str) -> dict[str, Any]:
    """Return the state of a network that ``torch.save`` wrote to ``path``; raises DataError where there is none."""
    import torch

    if not Path(path).is_file():
        raise DataError(f"no such file: {path!r}.", hint=f"Give {arg('weights')} a file that torch.save wrote.")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and torch's own types
        raise DataError(f"{path!r} cannot be read: {str(error).partition(chr(10))[0]}", hint="Save a state_dict.") from None
    for key in ("state_dict", "model", "network"):
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise DataError(f"{path!r} holds no weights of a network.", hint="Save a state_dict.")
    return {name.removeprefix("module."): value for name, value in found.items()}


def classifier_of(network: torch.nn.Module, name: str) -> tuple[str, torch.nn.Module]:
    """Return the path and module of the last linear layer or convolution of ``network``, which gives the scores of its classes."""
    import torch

    found = [(path, one) for path, one in network.named_modules() if isinstance(one, (torch.nn.Linear, torch.nn.Conv2d))]
    if not found:
        raise WorkloadError(f"{name} has no classifier: no linear layer and no convolution.")
    return found[-1]


def classes_in(weights: dict[str, Any], classifier: str) -> int | None:
    """Return the number of classes that ``weights`` have in the layer ``classifier``; None where they have none."""
    value = weights.get(f"{classifier}.weight")
    return None if value is None else int(value.shape[0])


def load_weights(network: torch.nn.Module, weights: dict[str, Any], classifier: str, path: str) -> None:
    """Load all of ``weights`` into ``network`` but those of another number of classes; raises DataError where anything else differs."""
    own = network.state_dict()
    kept = {
        name: value
        for name, value in weights.items()
        if not (name.startswith(f"{classifier}.") and name in own and own[name].shape != value.shape)
    }
    wrong = [name for name, value in kept.items() if name in own and own[name].shape != value.shape]
    missing, unexpected = ([], []) if wrong else network.load_state_dict(kept, strict=False)
    absent = [name for name in missing if not name.startswith(f"{classifier}.") and not name.endswith("num_batches_tracked")]
    if wrong or unexpected or absent:
        what = (
            f"{(wrong or unexpected or absent)[0]!r} {'has another shape' if wrong else 'is unknown' if unexpected else 'is missing'}"
        )
        raise DataError(f"{path!r} does not fit the network: {what}.", hint="Give weights of the same architecture.")
