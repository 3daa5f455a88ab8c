"""Training one network on labeled images, epoch by epoch, from a checkpoint where there is one."""

from __future__ import annotations

import errno
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rooflines.arguments import arg
from rooflines.errors import DataError, RooflinesError, WorkloadError, first_line, writing
from rooflines.profiler.machine.others import OthersMeter
from rooflines.profiler.options import PointOptions
from rooflines.profiler.progress import Progress
from rooflines.profiler.record.process import PeakMemory
from rooflines.profiler.records import FINDS_THE_OPERATOR
from rooflines.profiler.training.options import TrainOptions
from rooflines.profiler.training.records import Epoch, Failure
from rooflines.profiler.workloads.datasets import DataSet, check_batch, make_loader
from rooflines.profiler.workloads.networks import classification_loss
from rooflines.profiler.workloads.prepare import Placed
from rooflines.profiler.workloads.steps import make_autocast, make_optimizer, make_scaler, optimize, trainable

if TYPE_CHECKING:
    import torch

# Tensors and settings by name, as ``torch.save`` stores them.
State: TypeAlias = dict[str, Any]
# Steps between two readings of a loss on a GPU, because reading waits for the device.
_READ_EVERY = 20
_FACTOR = 0.1  # of the learning rate after each milestone


class NotFiniteError(RooflinesError):
    """A loss that is NaN or infinite, at ``step`` (from 1) of ``epoch``."""

    def __init__(self, epoch: int, step: int, loss: float) -> None:
        what = f"the loss is {'NaN' if math.isnan(loss) else 'infinite'} at step {step} of epoch {epoch}"
        super().__init__(f"{what}.", hint=FINDS_THE_OPERATOR)
        self.failure = Failure(epoch=epoch, step=step, what=what)


@dataclass(eq=False)
class Trainer:
    """A network in training: its optimizer, scaler and schedule; what follows is determined by its state and
    the seed.

    The order of the images and their random transforms in an epoch depend on the seed and the number of the
    epoch only, so an epoch can be repeated from the state that it began with.
    """

    placed: Placed
    images: DataSet
    options: TrainOptions
    seed: int
    batch_size: int

    def __post_init__(self) -> None:
        check_batch(self.images.train, self.batch_size)
        options = self.options
        self.device = self.placed.device
        self.losses: list[float] = []
        parameters = trainable(self.placed.network)
        self.optimizer = make_optimizer(
            options.optimizer,
            parameters,
            learning_rate=options.learning_rate,
            weight_decay=options.weight_decay,
        )
        self._rate = self.optimizer.param_groups[0]["lr"]
        self.scaler = make_scaler(options.precision, self.device)
        self._autocast = make_autocast(options, self.device)
        self._peak = PeakMemory(self.device)
        self._ran = False

    @property
    def steps(self) -> int:
        """The number of steps in an epoch."""
        return len(self.images.train) // self.batch_size

    def state(self) -> State:
        """Return what must be stored to go on from here."""
        return {
            "network": self.placed.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
        }

    def restore(self, state: State) -> None:
        """Go back to a stored state."""
        self.placed.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])

    def epoch(self, number: int, progress: Progress) -> Epoch:
        """Train for epoch ``number`` (from 1), then test. Raises NotFiniteError at a loss that is not
        finite."""
        from rooflines.kernels.micro.clock import synchronize_device

        rate = self._begin(number)
        self._peak.start()
        self.losses = []
        pending: list[torch.Tensor] = []
        first_s, skipped, input_s = None, 0, 0.0
        scale = self.scaler.get_scale()
        others = OthersMeter()
        loader = make_loader(
            self.images.train,
            self.batch_size,
            workers=self.options.data_workers,
            pin_memory=self.options.pin_memory,
            seed=_seed(self.seed, number),
            training=True,
        )
        began = last = time.perf_counter()
        for step, batch in enumerate(loader, 1):
            input_s += time.perf_counter() - last
            pending.append(self.step(batch))
            if not self._ran:
                synchronize_device(self.device)
                first_s, self._ran = time.perf_counter() - last, True
            if self.scaler.is_enabled():
                skipped += self.scaler.get_scale() < scale
                scale = self.scaler.get_scale()
            if len(pending) >= (1 if self.device.type == "cpu" else _READ_EVERY) or step == self.steps:
                self._read(pending, number)
                pending = []
            progress.advance()
            last = time.perf_counter()
        synchronize_device(self.device)
        epoch_s, others_cores = time.perf_counter() - began, others.cores()
        test_loss, accuracy, test_s = self.test()
        return Epoch(
            epoch=number,
            epoch_s=epoch_s,
            input_s=input_s,
            test_s=test_s,
            samples_per_s=self.steps * self.batch_size / epoch_s,
            train_loss=sum(self.losses) / len(self.losses),
            test_loss=test_loss,
            test_accuracy=accuracy,
            learning_rate=rate,
            peak_memory_bytes=self._peak.bytes(),
            first_step_s=first_s,
            skipped_steps=skipped,
            others_cores=others_cores,
        )

    def _begin(self, number: int) -> float:
        """Seed the epoch and set its learning rate, which is returned."""
        import torch

        torch.manual_seed(_seed(self.seed, number))
        rate = float(self._rate * _FACTOR ** sum(number > milestone for milestone in self.options.milestones))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.placed.network.train()
        return rate

    def _read(self, pending: list[torch.Tensor], number: int) -> None:
        import torch

        for loss in torch.stack(pending).tolist():
            self.losses.append(loss)
            if not math.isfinite(loss):
                raise NotFiniteError(number, len(self.losses), loss)

    def step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Train on one batch; returns the loss."""
        images, labels = self.placed.move(batch[0]), batch[1].to(self.device, non_blocking=True)

        def loss() -> torch.Tensor:
            with self._autocast():
                return classification_loss(self.placed.called(images), labels)

        return optimize(loss, self.optimizer, self.scaler).float()

    def test(self) -> tuple[float | None, float, float]:
        """Return the loss (None if it is not finite) and the accuracy on the test images, and how long that
        took in seconds."""
        began = time.perf_counter()
        tested = test_network(self.placed, self.images, self.options, self.batch_size)
        loss = float(classification_loss(tested.scores, tested.labels))
        return loss if math.isfinite(loss) else None, tested.accuracy, time.perf_counter() - began


class Tested(NamedTuple):
    """The scores [N, classes] of the test images in fp32, their labels [N], and the time of the network
    without its input."""

    scores: torch.Tensor
    labels: torch.Tensor
    compute_s: float

    @property
    def accuracy(self) -> float:
        """The share of images whose highest score is that of their class."""
        return float((self.scores.argmax(1) == self.labels).double().mean())


def test_network(placed: Placed, images: DataSet, options: PointOptions, batch_size: int) -> Tested:
    """Run the network on all test images, in batches of ``batch_size``."""
    import torch
    from torch.nn import functional

    placed.network.eval()
    autocast = make_autocast(options, placed.device)
    loader = make_loader(
        images.test,
        batch_size,
        workers=options.data_workers,
        pin_memory=options.pin_memory,
        seed=0,
        training=False,
    )
    scores, labels, seconds = [], [], 0.0
    for pixels, ours in loader:
        began = time.perf_counter()
        # Graphs and compiled code are made for one shape.
        whole = functional.pad(pixels, (0, 0) * 3 + (0, batch_size - len(pixels)))
        with torch.no_grad(), autocast():
            output = placed.called(placed.move(whole))
        scores.append(getattr(output, "logits", output)[: len(ours)].float().cpu())
        seconds += time.perf_counter() - began
        labels.append(ours)
    return Tested(torch.cat(scores), torch.cat(labels), seconds)


def _seed(seed: int, epoch: int) -> int:
    return seed * 1_000_003 + epoch


def read_checkpoint(path: Path) -> State | None:
    """Return the stored state at ``path``; None where there is none."""
    import torch

    return torch.load(path, map_location="cpu", weights_only=True) if path.is_file() else None


def write_checkpoint(path: Path, state: State) -> None:
    """Write ``state`` to ``path`` so that a reader sees the old file or the whole new one."""
    import torch

    temporary = path.with_suffix(".tmp")
    with writing(f"write the checkpoint {str(path)!r}", "Check that the disk is not full."):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.save(state, temporary)
        except RuntimeError as error:
            temporary.unlink()
            if "inline_container" not in str(error):
                raise
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None  # torch's zip file ends short
        temporary.replace(path)


def read_weights(path: str) -> State:
    """Return the state of a network that ``torch.save`` wrote to ``path``; raises DataError where there is
    none."""
    import torch

    if not Path(path).is_file():
        raise DataError(
            f"no such file: {path!r}.", hint=f"Give {arg('weights')} a file that torch.save wrote."
        )
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and torch's own types
        raise DataError(f"{path!r} cannot be read: {first_line(error)}.", hint="Save a state_dict.") from None
    for key in ("state_dict", "model", "network"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise DataError(f"{path!r} holds no weights of a network.", hint="Save a state_dict.")
    return {name.removeprefix("module."): value for name, value in state.items()}


def classifier_of(network: torch.nn.Module, name: str) -> tuple[str, torch.nn.Module]:
    """Return the path and module of the last linear layer or convolution of ``network``, which gives the
    scores of its classes."""
    import torch

    layers = [
        (path, module)
        for path, module in network.named_modules()
        if isinstance(module, (torch.nn.Linear, torch.nn.Conv2d))
    ]
    if not layers:
        raise WorkloadError(f"{name} has no classifier: no linear layer and no convolution.")
    return layers[-1]


def load_weights(network: torch.nn.Module, weights: State, classifier: str, path: str) -> None:
    """Load all of ``weights`` into ``network`` but those of another number of classes; raises DataError where
    anything else differs."""
    own = network.state_dict()
    differing = [name for name, value in weights.items() if name in own and own[name].shape != value.shape]
    kept = {name: value for name, value in weights.items() if name not in differing}
    wrong = [name for name in differing if not name.startswith(f"{classifier}.")]
    missing, unexpected = ([], []) if wrong else network.load_state_dict(kept, strict=False)
    absent = [
        name
        for name in missing
        if not name.startswith(f"{classifier}.") and not name.endswith("num_batches_tracked")
    ]
    if problems := [*wrong, *unexpected, *absent]:
        what = "has another shape" if wrong else "is unknown" if unexpected else "is missing"
        raise DataError(
            f"{path!r} does not fit the network: {problems[0]!r} {what}.",
            hint="Give weights of the same architecture.",
        )
