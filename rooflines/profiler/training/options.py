"""The options of ``train``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rooflines.arguments import arg
from rooflines.errors import UsageError
from rooflines.profiler.options import Data, Mode, Option, PointOptions, split_list

TRAINING = "Training"
# What a trained network can be tested in, and the options of each.
VARIANTS = {
    "dynamic-int8": {"quantize": "dynamic-int8"},
    "static-int8": {"quantize": "static-int8"},
    "qat": {"quantize": "qat"},
    "int8-weight": {"quantize": "int8-weight"},
    "int4-weight": {"quantize": "int4-weight", "precision": "bf16"},
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16"},
    "amp-bf16": {"precision": "amp-bf16"},
    "amp-fp16": {"precision": "amp-fp16"},
    "compile": {"compile": "on"},
}


@dataclass(frozen=True, kw_only=True)
class TrainOptions(PointOptions):
    """Options of training a network on labeled images."""

    mode: Mode = "training"
    data: Annotated[
        Data, Option("Data set: cifar10, cifar100, tiny-imagenet, mnist, folder or digits.", "Data")
    ] = "cifar10"
    train_samples: Annotated[int | None, Option("Maximum number of training images.", "Data", "all")] = None
    test_samples: Annotated[int | None, Option("Maximum number of test images.", "Data", "all")] = None
    epochs: Annotated[int, Option("Number of epochs.", TRAINING)] = 5
    seeds: Annotated[
        int, Option("Number of runs with different seeds; the median is reported.", TRAINING)
    ] = 1
    learning_rate: Annotated[
        float | None, Option("Learning rate.", TRAINING, "0.01 for SGD, 0.001 for Adam")
    ] = None
    weight_decay: Annotated[float | None, Option("Weight decay.", TRAINING, "torch's")] = None
    lr_steps: Annotated[
        str, Option("Epochs after which the learning rate falls to a tenth, comma-separated.", TRAINING)
    ] = ""
    weights: Annotated[
        str | None, Option("File with pretrained weights; the classifier is replaced.", TRAINING, "random")
    ] = None
    variants: Annotated[
        str, Option(f"Also test the trained network as: {', '.join(VARIANTS)}.", TRAINING)
    ] = ""

    def check(self) -> None:
        """Raise UsageError, WorkloadError or DeviceError for what no machine accepts."""
        super().check()
        if self.data == "resident":
            raise UsageError(
                "training to accuracy requires labeled images.", hint=f"For example: {arg('data', 'cifar10')}"
            )
        for name in ("epochs", "seeds", "train_samples", "test_samples"):
            value: int | None = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{arg(name)} must be at least 1, got {value}.")
        if self.learning_rate is not None and not 0 < self.learning_rate < float("inf"):
            raise UsageError(f"{arg('learning_rate')} must be positive, got {self.learning_rate}.")
        for name in self.variant_names:
            if name not in VARIANTS:
                raise UsageError(f"unknown variant {name!r}.", hint=f"Choose from {', '.join(VARIANTS)}.")
        _ = self.milestones

    @property
    def variant_names(self) -> tuple[str, ...]:
        """The names in ``variants``."""
        return split_list(self.variants)

    @property
    def milestones(self) -> tuple[int, ...]:
        """The epochs in ``lr_steps``."""
        try:
            return tuple(map(int, split_list(self.lr_steps)))
        except ValueError:
            raise UsageError(
                f"{arg('lr_steps')} must be epochs, got {self.lr_steps!r}.", hint="For example: 10,20"
            ) from None
