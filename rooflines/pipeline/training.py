"""Train a network to accuracy: seeds, checkpoints, variants of the trained network."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from rooflines.arguments import arg, escaped
from rooflines.errors import (
    Interrupted,
    OutputError,
    RooflinesError,
    RunError,
    WorkloadError,
    first_line,
    writing,
)
from rooflines.kernels.threads import torch_threads
from rooflines.pipeline.command import default_command
from rooflines.pipeline.result_checks import output_error
from rooflines.profiler.directory import create_directory, default_directory, read_facts, timestamp
from rooflines.profiler.machine.environment import collect_environment
from rooflines.profiler.options import OptionValue, find_device
from rooflines.profiler.progress import Progress, Silent
from rooflines.profiler.records import Workload
from rooflines.profiler.training.loop import (
    NotFiniteError,
    Trainer,
    classifier_of,
    load_weights,
    read_checkpoint,
    read_weights,
    test_network,
    write_checkpoint,
)
from rooflines.profiler.training.options import VARIANTS, TrainOptions
from rooflines.profiler.training.records import (
    TRAINING_FILE,
    TRAINING_SCHEMA,
    DataFacts,
    SeedResult,
    Training,
    VariantResult,
)
from rooflines.profiler.workloads import quantization
from rooflines.profiler.workloads.datasets import DataSet, find_dataset, make_loader
from rooflines.profiler.workloads.networks import call_factory, find_network
from rooflines.profiler.workloads.prepare import Placed, place
from rooflines.profiler.workloads.steps import shown_name
from rooflines.serial import write_json
from rooflines.units import counted

if TYPE_CHECKING:
    import torch

BATCH_SIZE = 64
# The trained network is tested so often in each variant; the fastest counts.
_PASSES = 3
# What may change between two calls that continue one training.
_NOT_COMPARED = ("data_workers", "pin_memory", "threads", "data_dir", "variants")


def train(
    model: str,
    options: TrainOptions | None = None,
    *,
    output: Path | str | None = None,
    progress: Progress | None = None,
    each: Callable[[Training], None] | None = None,
    **keywords: Any,
) -> tuple[Training, Path]:
    """Train ``model`` on labeled images and test it after every epoch; returns the record and its directory.

    ``keywords`` are the fields of ``TrainOptions``, instead of ``options``.

    ``model`` is a torchvision model, ``timm:NAME``, or ``path/to/file.py:factory`` that returns (module,
    inputs). With an ``output`` that holds an earlier, unfinished training with the same options, that one is
    continued after its last whole epoch. A loss that is not finite ends its seed with a ``Failure``. ``each``
    is called after every epoch. Raises UsageError, DataError, and Interrupted on Ctrl-C, after the
    results so far were written.
    """
    options = options or TrainOptions(**keywords)
    options.check()
    progress = progress or Silent()
    device = find_device(options.device)
    progress.stage("reading the data", None)
    images = find_dataset(
        options.data,
        options.data_dir,
        image_size=options.image_size,
        train_samples=options.train_samples,
        test_samples=options.test_samples,
        seed=options.seed,
    )
    directory = Path(output) if output is not None else default_directory(Path(model).name, "train")
    job = _Job(model, options, images, device, directory, progress, each)
    if job.training.status == "complete":
        return job.training, directory
    try:
        with torch_threads(options.threads):
            for seed in range(options.seed, options.seed + options.seeds):
                job.train_seed(seed)
            if options.variant_names and job.training.accuracies:
                job.test_variants()
    except KeyboardInterrupt:
        job.training = load_training(directory)
        job.write(status="interrupted")
        raise Interrupted(
            f"interrupted; the training is in {str(directory)!r}.",
            hint="The same command with this output continues it.",
        ) from None
    job.write(status="complete")
    return job.training, directory


def load_training(directory: Path) -> Training:
    """Return the training in ``directory``; raises RunError where there is none that can be read."""
    path = directory / TRAINING_FILE
    if not path.is_file():
        raise RunError(
            f"{str(directory)!r} holds no {TRAINING_FILE}.", hint="Give the directory of 'rooflines train'."
        )
    return read_facts(
        path, Training, TRAINING_SCHEMA, what=f"the training in {str(directory)!r}", again="train again"
    )


class _Job:
    """One call of ``train``: what it trains, and the record so far.

    Where ``directory`` holds a training with the same options already, the record is that one. Otherwise the
    directory is made.
    """

    def __init__(
        self,
        model: str,
        options: TrainOptions,
        images: DataSet,
        device: torch.device,
        directory: Path,
        progress: Progress,
        each: Callable[[Training], None] | None,
    ) -> None:
        self._model, self._options, self._images, self._device = model, options, images, device
        self._directory, self._progress, self._each = directory, progress, each
        self._batch_size = options.batch_size or BATCH_SIZE
        plain = {
            name: value
            for name, value in dataclasses.asdict(options).items()
            if isinstance(value, OptionValue)
        }
        workload = Workload(
            name=escaped(Path(model).name),
            mode="training",
            precision=options.precision,
            batch_size=self._batch_size,
            unit="images",
            image_size=images.size,
            channels_last=options.channels_last,
            compiled=options.compile != "off",
            optimizer=shown_name(options.optimizer),
            checkpointing=options.checkpointing or None,
            data=images.label,
        )
        self.training = Training(
            created=timestamp(),
            command=default_command(),
            workload=workload,
            environment=collect_environment(str(device)),
            options=plain,
            data=DataFacts(
                name=images.name,
                label=images.label,
                real=images.real,
                classes=images.classes,
                train_samples=len(images.train),
                test_samples=len(images.test),
            ),
        )
        if not (directory / TRAINING_FILE).is_file():
            create_directory(directory)
            self.write()
            return
        new, self.training = self.training, load_training(directory)
        ours, theirs = new.options, self.training.options
        compared = (name for name in {**ours, **theirs} if name not in _NOT_COMPARED)
        differing = [name for name in compared if ours.get(name) != theirs.get(name)]
        if self.training.workload.name != new.workload.name or differing:
            what = arg(differing[0]) if differing else "the model"
            raise OutputError(
                f"{str(directory)!r} holds a training with another value of {what}.",
                hint=f"Choose another {arg('output')}.",
            )

    def write(self, **changes: Any) -> None:
        """Write the record with these changes."""
        self.training = replace(self.training, **changes)
        with writing(
            f"write {TRAINING_FILE} in {str(self._directory)!r}", "Check that the disk is not full."
        ):
            write_json(self._directory / TRAINING_FILE, self.training)

    def _keep(self, result: SeedResult) -> None:
        self.write(results=(*(other for other in self.training.results if other.seed != result.seed), result))

    def train_seed(self, seed: int) -> None:
        """Train with one seed, from its checkpoint where there is one."""
        options, progress = self._options, self._progress
        result = next(
            (result for result in self.training.results if result.seed == seed), SeedResult(seed=seed)
        )
        if result.failure is not None or len(result.epochs) >= options.epochs:
            return
        progress.stage("building the network", None)
        trainer, done = self._trainer(options, seed)
        result = replace(result, epochs=result.epochs[:done])
        which = f"seed {seed - options.seed + 1} of {options.seeds}: " if options.seeds > 1 else ""
        progress.stage(
            f"{which}training for {counted(options.epochs, 'epoch')}",
            trainer.steps * (options.epochs - len(result.epochs)),
        )
        for number in range(len(result.epochs) + 1, options.epochs + 1):
            try:
                epoch = trainer.epoch(number, progress)
            except NotFiniteError as error:
                self._keep(replace(result, failure=error.failure))
                return
            result = replace(result, epochs=(*result.epochs, epoch))
            write_checkpoint(self._checkpoint(seed), {**trainer.state(), "epochs": number})
            self._keep(result)
            if self._each is not None:
                self._each(self.training)

    def _checkpoint(self, seed: int) -> Path:
        return self._directory / "checkpoints" / f"seed-{seed}.pt"

    def _trainer(self, options: TrainOptions, seed: int) -> tuple[Trainer, int]:
        """A trainer in the state of the checkpoint of ``seed``, and the epochs that are done."""
        stored = read_checkpoint(self._checkpoint(seed))
        network = self._build(dataclasses.replace(options, seed=seed))
        trainer = Trainer(self._placed(network, options), self._images, options, seed, self._batch_size)
        if stored is None:
            return trainer, 0
        trainer.restore(stored)
        return trainer, stored["epochs"]

    def _build(self, options: TrainOptions) -> torch.nn.Module:
        """The network for the classes of the images, with random or pretrained weights, on the host."""
        import torch

        torch.manual_seed(options.seed)
        network: torch.nn.Module
        model, sized = self._model, dataclasses.replace(options, image_size=self._images.size, batch_size=2)
        path, colon, factory = model.rpartition(":")
        if colon and path.endswith(".py"):
            made = call_factory(Path(path), factory, sized, self._device)
            if not isinstance(made, tuple):
                raise WorkloadError(
                    f"{Path(path).name}:{factory} returns a step function, not a module.",
                    hint="Return (module, inputs).",
                )
            task, network = None, made[0]
        else:
            task = find_network(model, sized, self._images.classes)
            network = task.network
            if not task.classifies:
                raise WorkloadError(
                    f"{model} cannot be trained on labeled images: it is not an image classifier."
                )
        if options.weights:
            weights = read_weights(options.weights)
            name = classifier_of(network, model)[0]
            if task is not None and f"{name}.weight" not in weights:
                raise WorkloadError(
                    f"{options.weights!r} has no weights for {name!r} of {model}.",
                    hint="Give weights of this network.",
                )
            load_weights(network, weights, name, options.weights)
        return network

    def _placed(self, network: torch.nn.Module, options: TrainOptions) -> Placed:
        """``network`` on its device, as ``options`` ask, for whole batches; ranges of activations are those
        of a training batch."""
        import torch

        images = self._images
        pixels = torch.zeros(1, 3, images.size, images.size)
        if options.quantize != "none":
            loader = make_loader(
                images.train, self._batch_size, workers=0, pin_memory=False, seed=options.seed, training=True
            )
            pixels, _ = next(iter(loader))
        return place(network, ((pixels,), {}), options, self._device, self._model)

    def test_variants(self) -> None:
        """Test the network of the median seed in fp32 and in every variant."""
        options, progress = self._options, self._progress
        ranked = sorted(
            (result for result in self.training.results if result.failure is None),
            key=lambda result: result.accuracy or 0.0,
        )
        stored = read_checkpoint(self._checkpoint(ranked[(len(ranked) - 1) // 2].seed))
        if stored is None:
            return
        network = self._build(dataclasses.replace(options, weights=None))
        network.load_state_dict(stored["network"])
        network.float()
        plain = dataclasses.replace(
            options,
            mode="inference",
            precision="fp32",
            compile="off",
            optimizer="sgd",
            checkpointing=False,
            parallel="none",
        )
        reference: torch.Tensor | None = None
        results: list[VariantResult] = []
        for name in ("fp32", *options.variant_names):
            progress.stage(f"testing the trained network as {name}", _PASSES)
            asked = dataclasses.replace(plain, **VARIANTS.get(name, {}))  # type: ignore[arg-type]
            try:
                copied = copy.deepcopy(network)
                ready = (
                    self._trained_for_int8(copied, asked) if name == "qat" else self._placed(copied, asked)
                )
                tests = []
                for _ in range(_PASSES):
                    tests.append(test_network(ready, self._images, asked, self._batch_size))
                    progress.advance()
            except (RooflinesError, RuntimeError, NotImplementedError) as error:
                results.append(VariantResult(name=name, reason=first_line(error)))
                continue
            scores = tests[0].scores
            reference = scores if reference is None else reference
            results.append(
                VariantResult(
                    name=name,
                    accuracy=tests[0].accuracy,
                    sample_s=min(test.compute_s for test in tests) / len(scores),
                    error=output_error([scores], [reference], classifies=True) if name != "fp32" else None,
                    notes=ready.notes,
                )
            )
        self.training = replace(self.training, variants=tuple(results))

    def _trained_for_int8(self, network: torch.nn.Module, options: TrainOptions) -> Placed:
        """``network`` as int8 after one more epoch, in which weights and activations are rounded to int8."""
        quantization.check(
            "static-int8", mode="inference", precision="fp32", device=self._device
        )  # which it becomes
        options = dataclasses.replace(options, mode="training")
        ready = self._placed(network, options)
        trainer = Trainer(ready, self._images, options, options.seed, self._batch_size)
        self._progress.stage("training for int8, one epoch", trainer.steps)
        trainer.epoch(options.epochs + 1, self._progress)
        self._progress.stage("testing the trained network as qat", _PASSES)
        graph = quantization.converted(ready.network)  # type: ignore[arg-type]
        return ready._replace(
            network=graph,
            called=graph,
            notes=(ready.notes[0], "int8 after one more epoch, trained with rounding"),
        )
