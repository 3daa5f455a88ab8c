"""Studies with numbers that are easy to check, as if they had been measured."""

from __future__ import annotations

from rooflines.device_specs.records import Ceiling, Ceilings, Source
from rooflines.studies.records import (
    BackendResult,
    BackendsStudy,
    DataFacts,
    Epoch,
    FromScratchStudy,
    Iterations,
    LibraryResult,
    MemoryParts,
    Missing,
    SizePoint,
    ThroughLoader,
    TimedOperator,
    Training,
)

SYNTHETIC = DataFacts(name="synthetic", label="synthetic images of MNIST's size", train_samples=60_000, test_samples=10_000)
DIGITS = DataFacts(name="digits", label="scikit-learn's 8x8 digits", train_samples=1_437, test_samples=360)
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


def training(backend="numba-cpu", *, epoch_s=2.0, epochs=3, input_s=0.1, data=SYNTHETIC, accuracy=0.98, step_s=0.016, samples=60_416):
    return Training(
        data=data, batch_size=512, learning_rate=0.01, momentum=0.9, setup_s=1.5, step_s=step_s,
        epochs=tuple(
            Epoch(
                backend=backend, data=data.name, epoch=number + 1, epoch_s=epoch_s, samples_per_s=samples / epoch_s,
                test_accuracy=accuracy - 0.01 * (epochs - 1 - number), train_loss=1 / (number + 1), process_memory_bytes=500_000_000,
                input_s=input_s,
            )
            for number in range(epochs)
        ),
    )  # fmt: skip


def result(backend="numba-cpu", *, operators=(), loader=None, device="cpu", **options):
    return BackendResult(
        backend=backend, device=device, threads=2, versions={"torch": "2.14"}, speed=training(backend, **options),
        accuracy=training(backend, data=DIGITS, epochs=4), operators=tuple(operators), operators_batch=512, loader=loader,
    )  # fmt: skip


def through_loader(seconds=1.0, input_s=0.8, samples=5_000, alone=7_000.0):
    return ThroughLoader(
        data=SYNTHETIC, batch_size=512, samples=samples, seconds=seconds, input_s=input_s, alone_samples_per_s=alone
    )  # fmt: skip


def study(*results, **options):
    return BackendsStudy(
        created="2026-11-22 09:00", command="rooflines study backends", rooflines="0.3", machine="test CPU, 2 CPUs", status="complete",
        quick=True, results=results, missing=(Missing(backend="torch-mps", reason="no Apple GPU"),),
        ceilings={"cpu": CEILINGS}, **options,
    )  # fmt: skip


def library_result(backend="numpy", *, iteration_s=0.04, operators=(), sizes=(), memory=None, losses=(2.3, 1.2, 0.6)):
    learned = Iterations(
        data=DIGITS,
        widths=(784, 128, 10),
        losses=losses,
        checked_at=(1, 3),
        accuracies=(0.2, 0.8),
        total_s=0.01,
        iteration_s=0.003,
        fastest_s=0.003,
    )
    return LibraryResult(
        backend=backend, device="cpu", widths=(784, 10, 10), operators=tuple(operators), sizes=tuple(sizes), memory=memory,
        memory_missing=None if memory else "nobody looked", accuracy=learned, process_memory_bytes=300_000_000,
        speed=Iterations(
            data=SYNTHETIC, widths=(784, 10, 10), losses=losses, checked_at=(3,), accuracies=(0.9,), total_s=3 * iteration_s,
            iteration_s=iteration_s, fastest_s=iteration_s,
        ),
    )  # fmt: skip


def from_scratch(*results):
    return FromScratchStudy(
        created="2026-11-22 09:00", command="rooflines study from-scratch", rooflines="0.3", machine="test CPU, 2 CPUs",
        status="complete", quick=True, widths=(784, 10, 10), samples=59_000, iterations=3, results=results,
        missing=(Missing(backend="cupy", reason="CuPy cannot be imported"),), ceilings={"cpu": CEILINGS},
    )  # fmt: skip


MEMORY = MemoryParts(
    parameters=31_840, input=185_000_000, activations=9_900_000, gradients=4_700_000, overhead=30_000_000, total=230_000_000,
    how="tracemalloc",
)  # fmt: skip
SIZES = (
    SizePoint(widths=(784, 10, 10), samples=10_000, iteration_s=0.01, flops=32_000_000, bytes=70_000_000),
    SizePoint(widths=(784, 100, 10), samples=10_000, iteration_s=0.02, flops=320_000_000, bytes=90_000_000),
)
