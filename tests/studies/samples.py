"""Studies with numbers that are easy to check, as if they had been measured."""

import msgspec

from rooflines.device_specs.records import Ceiling, Ceilings, Source
from rooflines.serial import write_json
from rooflines.sweeps.records import MeasuredValue, SweepPoint, SweepRow
from rooflines_studies.backends.train import BackendResult, NetworkEpoch, NetworkTraining, ThroughLoader
from rooflines_studies.backends.train import values_of as backends_values
from rooflines_studies.from_scratch.train import Iterations, LibraryResult, MemoryParts, SizePoint
from rooflines_studies.from_scratch.train import values_of as libraries_values
from rooflines_studies.records import DETAIL_FILE, ImageFacts, TimedOperator
from rooflines_studies.study import Missing, Study, _findings, find_study, page

SYNTHETIC = ImageFacts(name="synthetic", label="synthetic images of MNIST's size", train_samples=60_000, test_samples=10_000)
DIGITS = ImageFacts(name="digits", label="scikit-learn's 8x8 digits", train_samples=1_437, test_samples=360)
SOURCE = Source(kind="measured", detail="for a test")
# 100 GFLOP/s and 10 GB/s: the ridge is at 10 FLOP/byte.
CEILINGS = Ceilings(
    device="test CPU",
    kind="cpu",
    ceilings=(
        Ceiling(kind="compute", name="FMA fp32", value=100e9, unit="FLOP/s", source=SOURCE, precision="fp32", engine="vector"),
        Ceiling(kind="memory", name="DRAM read", value=10e9, unit="B/s", source=SOURCE, level="DRAM", access="read"),
        Ceiling(kind="latency", name="dispatch", value=1e-6, unit="s", source=SOURCE),
    ),
)


def operator(name="convolution", layer="conv1", *, time_s=1e-3, flops=50_000_000, matrix_flops=None, size=1_000_000, phase="forward"):
    """50 MFLOP and 1 MB: at the roofs of ``CEILINGS`` 500 µs of arithmetic and 100 µs of memory."""
    return TimedOperator(
        name=name, layer=layer, phase=phase, time_s=time_s, rounds=5, calls=1, flops=flops,
        matrix_flops=flops if matrix_flops is None else matrix_flops, bytes=size, precision="fp32",
    )  # fmt: skip


def training(*, epoch_s=2.0, epochs=3, input_s=0.1, data=SYNTHETIC, accuracy=0.98, step_s=0.016, samples=60_416, device="cpu", **more):
    return NetworkTraining(
        device=device, threads=2, versions={"torch": "2.14"}, others_cores=0.0, data=data, batch_size=512, learning_rate=0.01,
        momentum=0.9, setup_s=1.5, step_s=step_s, ceilings=CEILINGS,
        epochs=tuple(
            NetworkEpoch(
                epoch=number + 1, epoch_s=epoch_s, samples_per_s=samples / epoch_s, input_s=input_s, train_loss=1 / (number + 1),
                test_accuracy=accuracy - 0.01 * (epochs - 1 - number), process_memory_bytes=500_000_000,
            )
            for number in range(epochs)
        ),
        **more,
    )  # fmt: skip


def around(value, spread=1.05):
    """An estimate with an interval of a factor to either side; without one for a single round (``spread`` None)."""
    return MeasuredValue(value=value) if spread is None else MeasuredValue(value=value, low=value / spread, high=value * spread)


def result(backend="numba-cpu", *, operators=(), loader=None, spread=1.05, **options):
    speed = training(operators=tuple(operators), **options)
    return BackendResult(
        name=backend, backend=backend, device_name="test CPU", speed=speed, accuracy=training(data=DIGITS, epochs=4), loader=loader,
        epoch_s=speed.epochs[0].epoch_s, rate=around(speed.epochs[0].samples_per_s, spread),
    )  # fmt: skip


def through_loader(samples_per_s=5_000.0, input_fraction=0.8, alone=7_000.0):
    return ThroughLoader(samples_per_s=samples_per_s, input_fraction=input_fraction, alone_samples_per_s=alone)


def iterations(data, widths, losses, checked_at, accuracies, iteration_s, operators=()):
    return Iterations(
        device="cpu", others_cores=0.0, data=data, widths=widths, losses=losses, checked_at=checked_at, accuracies=accuracies,
        total_s=len(losses) * iteration_s, iteration_s=iteration_s, fastest_s=iteration_s, process_memory_bytes=300_000_000,
        operators=tuple(operators), ceilings=CEILINGS,
    )  # fmt: skip


def library_result(backend="numpy", *, iteration_s=0.04, spread=1.05, operators=(), sizes=(), memory=None, losses=(2.3, 1.2, 0.6)):
    images = msgspec.structs.replace(SYNTHETIC, train_samples=59_000)
    return LibraryResult(
        name=backend, backend=backend, device_name="test CPU", sizes=tuple(sizes), memory=memory, iteration=around(iteration_s, spread),
        speed=iterations(images, (784, 10, 10), losses, (3,), (0.9,), iteration_s, operators),
        accuracy=iterations(DIGITS, (784, 128, 10), losses, (1, 3), (0.2, 0.8), 0.003),
    )  # fmt: skip


def rows(one, directory):
    """The rows of the points that measured ``one``, with their details in ``directory``."""

    def row(part, values, detail=None, facts=None, **options):
        number = len(list(directory.iterdir()))
        known = {name: value for name, value in values.items() if value is not None}
        estimates = {name: value if isinstance(value, MeasuredValue) else MeasuredValue(value=value) for name, value in known.items()}
        data = {} if detail is None else {"data": detail.data.label}
        run = directory / str(number)
        run.mkdir()
        if detail is not None:
            write_json(run / DETAIL_FILE, detail)
        return SweepRow(
            point=SweepPoint(id=str(number), label=one.name, part=part, options={"backend": one.backend, **options}), rounds=1,
            estimates=estimates, run=str(run) if detail is not None else None,
            facts={"device_name": one.device_name, "remark": one.remark, **data, **(facts or {})},
        )  # fmt: skip

    backend = isinstance(one, BackendResult)
    values_of = backends_values if backend else libraries_values
    times = {"epoch_s": one.epoch_s, "samples_per_s": one.rate} if backend else {"iteration_s": one.iteration}
    options = {} if backend else {"iterations": len(one.speed.losses)}
    yield row("speed", {**values_of(one.speed), **times}, one.speed, **options)
    if one.accuracy is not None:
        yield row("accuracy", values_of(one.accuracy), one.accuracy)
    if backend and one.loader is not None:
        yield row("loader", msgspec.to_builtins(one.loader))
    if not backend and one.memory is not None:
        parts = msgspec.to_builtins(one.memory)
        how = parts.pop("how")
        yield row("memory", {f"{name}_bytes": value for name, value in parts.items()}, facts={"how": how})
    for size in () if backend else one.sizes:
        text = f"{'-'.join(map(str, size.widths))}@{size.samples}"
        yield row("sizes", {"iteration_s": size.iteration, "flops": size.flops}, size=text)


MISSING = Missing(what="torch-mps", reason="no Apple GPU")


def study(directory, *results, name="backends", missing=(MISSING,)):
    """The study ``name`` with ``results``, and its page."""
    folder = find_study(name)
    made = Study(
        name=name, title="A study", created="2026-11-22 09:00", command=f"rooflines study {name}", missing=missing,
        rows=tuple(row for one in results for row in rows(one, directory)), data="Speed: synthetic images of MNIST's size.",
    )  # fmt: skip
    made = msgspec.structs.replace(made, findings=tuple(_findings(made, folder)))
    return made, page(made, folder)


MEMORY = MemoryParts(
    parameters=31_840, input=185_000_000, activations=9_900_000, gradients=4_700_000, overhead=30_000_000, total=230_000_000,
    how="tracemalloc",
)  # fmt: skip
SIZES = (
    SizePoint(widths=(784, 10, 10), samples=10_000, iteration=around(0.01), flops=32_000_000),
    SizePoint(widths=(784, 100, 10), samples=10_000, iteration=around(0.02), flops=320_000_000),
)
