"""Train a network to accuracy: seeds, checkpoints, variants of the trained network."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rooflines.arguments import arg, escaped
from rooflines.errors import Interrupted, OutputError, RooflinesError, RunError, WorkloadError, writing
from rooflines.pipeline.output_check import output_error
from rooflines.pipeline.reading import default_command
from rooflines.pipeline.training_failure import not_finite_failure, stuck_failure
from rooflines.profiler.directory import create_directory, default_directory, read_facts
from rooflines.profiler.environment import collect_environment
from rooflines.profiler.options import eager, find_device
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
    Failure,
    SeedResult,
    Training,
    VariantResult,
)
from rooflines.profiler.workloads import quantization
from rooflines.profiler.workloads.datasets import DataSet, find_dataset, make_loader
from rooflines.profiler.workloads.networks import call_factory, find_network
from rooflines.profiler.workloads.prepare import Placed, place, thread_count
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
    """Train ``model`` on labelled images and test it after every epoch; returns the record and its directory.

    ``keywords`` are the fields of ``TrainOptions``, instead of ``options``.

    ``model`` is a torchvision model, ``timm:NAME``, or ``path/to/file.py:factory`` that returns (module, inputs). With an ``output``
    that holds an earlier, unfinished training with the same options, that one is continued after its last whole epoch. A loss that is
    not finite ends its seed with a ``Failure``. ``each`` is called after every epoch. Raises UsageError,
    DataError, and Interrupted on Ctrl-C after what there is was written.
    """
    options = options or TrainOptions(**keywords)
    options.check()
    progress = progress or Silent()
    device = find_device(options.device)
    progress.stage("reading the data", None)
    images = find_dataset(
        options.data, options.data_dir, image_size=options.image_size, train_samples=options.train_samples,
        test_samples=options.test_samples, seed=options.seed,
    )  # fmt: skip
    directory = Path(output) if output is not None else default_directory(Path(model).name, "train")
    training = _begun(directory, _record(model, options, images, device))
    if training.status == "complete":
        return training, directory
    try:
        with thread_count(options.threads):
            for seed in range(options.seed, options.seed + options.seeds):
                training = _train_seed(training, directory, model, options, images, device, seed, progress, each)
            if options.variant_names and training.accuracies:
                training = _test_variants(training, directory, model, options, images, device, progress)
    except KeyboardInterrupt:
        _write(directory, msgspec.structs.replace(load_training(directory), status="interrupted"))
        raise Interrupted(
            f"interrupted; the training is in {str(directory)!r}.", hint="The same command with this output continues it."
        ) from None
    training = msgspec.structs.replace(training, status="complete")
    _write(directory, training)
    return training, directory


def load_training(directory: Path) -> Training:
    """Return the training in ``directory``; raises RunError where there is none that can be read."""
    path = directory / TRAINING_FILE
    if not path.is_file():
        raise RunError(f"{str(directory)!r} holds no {TRAINING_FILE}.", hint="Give the directory of 'rooflines train'.")
    return read_facts(path, Training, TRAINING_SCHEMA, what=f"the training in {str(directory)!r}", again="train again")


def _record(model: str, options: TrainOptions, images: DataSet, device: torch.device) -> Training:
    plain = {name: value for name, value in dataclasses.asdict(options).items() if isinstance(value, str | int | float | bool)}
    workload = Workload(
        name=escaped(Path(model).name), mode="training", precision=options.precision,
        batch_size=options.batch_size or BATCH_SIZE, unit="images", image_size=images.size,
        channels_last=options.channels_last, compiled=options.compile != "off",
        optimizer=shown_name(options.optimizer), checkpointing=options.checkpointing or None, data=images.label,
    )  # fmt: skip
    return Training(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=default_command(),
        workload=workload,
        environment=collect_environment(str(device)),
        data=DataFacts(
            name=images.name, label=images.label, real=images.real, classes=images.classes, train_samples=len(images.train),
            test_samples=len(images.test),
        ),
        options=plain,
    )  # fmt: skip


def _begun(directory: Path, new: Training) -> Training:
    """The training that ``directory`` holds already, with the same options, or ``new`` in a new directory."""
    if not (directory / TRAINING_FILE).is_file():
        create_directory(directory)
        _write(directory, new)
        return new
    old = load_training(directory)

    def compared(training: Training) -> dict[str, Any]:
        return {name: value for name, value in training.options.items() if name not in _NOT_COMPARED}

    ours, theirs = compared(new), compared(old)
    differing = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    if old.workload.name != new.workload.name or differing:
        what = arg(differing[0]) if differing else "the model"
        raise OutputError(f"{str(directory)!r} holds a training with another value of {what}.", hint=f"Choose another {arg('output')}.")
    return old


def _write(directory: Path, training: Training) -> None:
    with writing(f"write {TRAINING_FILE} in {str(directory)!r}", "Check that the disk is not full."):
        write_json(directory / TRAINING_FILE, training)


def _with_result(training: Training, result: SeedResult) -> Training:
    others = tuple(one for one in training.results if one.seed != result.seed)
    return msgspec.structs.replace(training, results=(*others, result))


def _train_seed(
    training: Training, directory: Path, model: str, options: TrainOptions, images: DataSet, device: torch.device, seed: int,
    progress: Progress, each: Callable[[Training], None] | None,
) -> Training:  # fmt: skip
    """Train with one seed, from its checkpoint where there is one."""
    result = next((one for one in training.results if one.seed == seed), SeedResult(seed=seed))
    if result.failure is not None or len(result.epochs) >= options.epochs:
        return training
    progress.stage("building the network", None)
    path = checkpoint_path(directory, seed)

    def trainer_at_checkpoint(asked: TrainOptions) -> tuple[Trainer, int]:
        stored = read_checkpoint(path)
        network = build(model, dataclasses.replace(asked, seed=seed), images, device)
        made = Trainer(placed(network, images, asked, device, model), images, asked, seed, asked.batch_size or BATCH_SIZE)
        if stored is not None:
            made.restore(stored)
        return made, stored["epochs"] if stored is not None else 0

    trainer, done = trainer_at_checkpoint(options)
    result = msgspec.structs.replace(result, epochs=result.epochs[:done])
    total = trainer.steps * (options.epochs - len(result.epochs))
    which = f"seed {seed - options.seed + 1} of {options.seeds}: " if options.seeds > 1 else ""
    progress.stage(f"{which}training for {counted(options.epochs, 'epoch')}", total)
    lost: NotFiniteError | None = None
    for number in range(len(result.epochs) + 1, options.epochs + 1):
        try:
            epoch = trainer.epoch(number, progress)
        except NotFiniteError as error:
            lost = error.with_traceback(None)  # which would keep the trainer
            break
        result = msgspec.structs.replace(result, epochs=(*result.epochs, epoch))
        training = _with_result(training, result)
        write_checkpoint(path, {**trainer.state(), "epochs": number})
        _write(directory, training)
        if each is not None:
            each(training)
    if lost is None:
        failure = stuck_failure(trainer, result.epochs[-1], progress)
    else:
        del trainer
        failure = not_finite_failure(lost, trainer_at_checkpoint(eager(options))[0], progress)
    result = msgspec.structs.replace(result, failure=failure)
    training = _with_result(training, result)
    _write(directory, training)
    return training


def checkpoint_path(directory: Path, seed: int) -> Path:
    """Return where the state of a seed is stored."""
    return directory / "checkpoints" / f"seed-{seed}.pt"


def build(model: str, options: TrainOptions, images: DataSet, device: torch.device) -> torch.nn.Module:
    """Return the network ``model`` for the classes of ``images``, with random or pretrained weights, on the host."""
    import torch

    torch.manual_seed(options.seed)
    network: torch.nn.Module
    sized = dataclasses.replace(options, image_size=images.size, batch_size=2)
    path, colon, factory = model.rpartition(":")
    if colon and path.endswith(".py"):
        made = call_factory(Path(path), factory, sized, device)
        if not isinstance(made, tuple):
            raise WorkloadError(f"{Path(path).name}:{factory} returns a step function, not a module.", hint="Return (module, inputs).")
        task, network = None, made[0]
    else:
        task = find_network(model, sized, images.classes)
        network = task.network
        if not task.classifies:
            raise WorkloadError(f"{model} cannot be trained on labelled images: it is not an image classifier.")
    if options.weights:
        weights = read_weights(options.weights)
        name = classifier_of(network, model)[0]
        if task is not None and f"{name}.weight" not in weights:
            raise WorkloadError(f"{options.weights!r} has no weights for {name!r} of {model}.", hint="Give weights of this network.")
        load_weights(network, weights, name, options.weights)
    return network


def placed(network: torch.nn.Module, images: DataSet, options: TrainOptions, device: torch.device, name: str) -> Placed:
    """Return ``network`` on its device, as ``options`` ask, for whole batches; ranges of activations are those of a training batch."""
    import torch

    batch_size = options.batch_size or BATCH_SIZE
    pixels = torch.zeros(1, images.channels, images.size, images.size)
    if options.quantize != "none":
        pixels, _ = next(iter(make_loader(images.train, batch_size, workers=0, pin_memory=False, seed=options.seed, training=True)))
    return place(network, ((pixels,), {}), options, device, name)


def _test_variants(
    training: Training, directory: Path, model: str, options: TrainOptions, images: DataSet, device: torch.device, progress: Progress
) -> Training:
    """Test the network of the median seed in fp32 and in every variant."""
    median = sorted((one for one in training.results if one.failure is None), key=lambda one: one.accuracy or 0.0)
    stored = read_checkpoint(checkpoint_path(directory, median[(len(median) - 1) // 2].seed))
    if stored is None:
        return training
    network = build(model, dataclasses.replace(options, weights=None), images, device)
    network.load_state_dict(stored["network"])
    network.float()
    plain = dataclasses.replace(
        options, mode="inference", precision="fp32", compile="off", optimizer="sgd", checkpointing=False, parallel="none"
    )
    reference: torch.Tensor | None = None
    results: list[VariantResult] = []
    for name in ("fp32", *options.variant_names):
        progress.stage(f"testing the trained network as {name}", _PASSES)
        asked = dataclasses.replace(plain, **VARIANTS.get(name, {}))  # type: ignore[arg-type]
        try:
            if name == "qat":
                ready = _trained_for_int8(copy.deepcopy(network), images, asked, device, model, progress)
            else:
                ready = placed(copy.deepcopy(network), images, asked, device, model)
            tests = []
            for _ in range(_PASSES):
                tests.append(test_network(ready, images, asked, options.batch_size or BATCH_SIZE))
                progress.advance()
        except (RooflinesError, RuntimeError, NotImplementedError) as error:
            results.append(VariantResult(name=name, reason=str(error).partition("\n")[0]))
            continue
        scores = tests[0].scores
        reference = scores if reference is None else reference
        results.append(
            VariantResult(
                name=name, accuracy=tests[0].accuracy, sample_s=min(one.compute_s for one in tests) / len(scores),
                error=output_error([scores], [reference], classifies=True) if name != "fp32" else None, notes=ready.notes,
            )
        )  # fmt: skip
    return msgspec.structs.replace(training, variants=tuple(results))


def _trained_for_int8(
    network: torch.nn.Module, images: DataSet, options: TrainOptions, device: torch.device, model: str, progress: Progress
) -> Placed:
    """Return ``network`` as int8 after one more epoch, in which weights and activations are rounded to int8."""
    quantization.check("static-int8", mode="inference", precision="fp32", device=device)  # which it becomes
    options = dataclasses.replace(options, mode="training")
    ready = placed(network, images, options, device, model)
    trainer = Trainer(ready, images, options, options.seed, options.batch_size or BATCH_SIZE)
    progress.stage("training for int8, one epoch", trainer.steps)
    trainer.epoch(options.epochs + 1, progress)
    progress.stage("testing the trained network as qat", _PASSES)
    graph = quantization.converted(ready.network)  # type: ignore[arg-type]
    return ready._replace(network=graph, called=graph, notes=(ready.notes[0], "int8 after one more epoch, trained with rounding"))


def failed(training: Training) -> tuple[Failure, ...]:
    """Return the failures of all seeds."""
    return tuple(one.failure for one in training.results if one.failure is not None)
