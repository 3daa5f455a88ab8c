"""The facts of a run whose trace was recorded without rooflines: those that the trace itself holds.

A trace says what ran and on which device, but neither the batch size nor the versions of anything, nor where
it ran. The precision is that in which most elements of the operators' tensors are; names of kernels say
whether float32 ran as TF32. A device without a name is inferred from its properties and the names of its
kernels (``device_specs/identify.py``).
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np

from rooflines._version import __version__
from rooflines.device_specs.identify import DeviceTraits, guess, is_shared_name, traits_in_kernels
from rooflines.errors import TraceError
from rooflines.profiler.options import Mode
from rooflines.profiler.read import intervals
from rooflines.profiler.read.distinct import distinct
from rooflines.profiler.read.missing_device import lacks_device, without_device
from rooflines.profiler.read.records import ANNOTATION, COMPILING, KERNEL, OPERATOR, Trace, TracedDevice
from rooflines.profiler.read.sources import shown
from rooflines.profiler.records import Environment, Run, RunFile, Settings, Workload
from rooflines.profiler.tree.tree import is_backward_node
from rooflines.profiler.tree.windows import inside

# Kernels of cuDNN, cuBLAS and CUTLASS that multiply float32 on tensor cores: in instructions of 16 x 8 x 8,
# unless they name a type.
_TF32 = re.compile(r"tf32|_s1688gemm_")
_OTHER = re.compile(r"f16|fp16|half|e4m3|e5m2", re.IGNORECASE)
_CONVOLUTION = re.compile(r"fprop|dgrad|wgrad|conv", re.IGNORECASE)
_PRECISIONS = {"float64": "fp64", "float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def run_of_trace(path: Path | str, trace: Trace, command: str = "") -> Run:
    """The run that the trace in ``path`` records. Its directory is the trace's own; no file of a run is in
    it.

    Raises TraceError for a trace in which nothing ran.
    """
    if not (
        len(trace.device)
        or len(trace.memory)
        or (trace.host.kind == OPERATOR).any()
        or trace.cut_ns is not None
    ):
        raise TraceError(
            f"the trace {shown(path)!r} has no operators and no device events.",
            hint="Record a step that runs operators.",
        )
    place = Path(shown(path))
    environment, notes = _environment(trace)
    signs = without_device(trace) if trace.cut_ns is None else ""
    facts = RunFile(
        status="complete",
        workload=Workload(
            name=shown(place.name), mode=_mode(trace), precision=_precision(trace), source="trace"
        ),
        environment=environment,
        settings=Settings(command=command, ceilings="spec"),
        trace=place.name,
        tf32=_tf32(trace),
        notes=(*trace.notes, *notes),
        unrecorded=(f"{signs}, so the work of the device was not recorded",) if signs else (),
    )
    return Run(directory=place.parent, facts=facts)


def _mode(trace: Trace) -> Mode:
    """Training when something was differentiated or optimized, but by ``torch.compile``, which only traces
    it."""
    trains = np.array(
        [
            *(
                is_backward_node(name) or name.startswith("Optimizer.") or "_backward" in name
                for name in trace.names
            ),
            False,
        ]
    )
    compiling, start_ns = trace.named(lambda name: name.endswith(COMPILING), ANNOTATION), trace.host.start_ns
    traced = inside(start_ns, intervals.union(start_ns[compiling], trace.host.end_ns[compiling]))
    named = np.append(trains[trace.host.name] & ~traced, trains[trace.device.name])
    return "training" if named.any() else "inference"


def _precision(trace: Trace) -> str:
    elements: Counter[str] = Counter()
    calls = np.bincount(
        trace.host.signature[trace.host.kind == OPERATOR] + 1, minlength=len(trace.signatures) + 1
    )[1:]
    for signature, number in zip(trace.signatures, calls.tolist(), strict=True):
        for tensor in signature.tensors:
            if tensor.dtype in _PRECISIONS:
                elements[tensor.dtype] += number * tensor.numel
    return _PRECISIONS[elements.most_common(1)[0][0]] if elements else ""


def _kernels(trace: Trace) -> list[str]:
    """The names of the kernels that ran."""
    return [
        trace.names[name] for name in distinct(trace.device.name[trace.device.kind == KERNEL])[0].tolist()
    ]


def _tf32(trace: Trace) -> dict[str, bool] | None:
    """Where TF32 was allowed, by the kernels of products and convolutions that used it; None where none did,
    which may be chance."""
    names = [name for name in _kernels(trace) if _TF32.search(name) and not _OTHER.search(name)]
    convolves = [_CONVOLUTION.search(name) is not None for name in names]
    return {"matmul": not all(convolves), "convolution": any(convolves)} if names else None


# --- the device -------------------------------------------------------------------------------------------


def _environment(trace: Trace) -> tuple[Environment, tuple[str, ...]]:
    """The device that worked, as far as the trace tells, and notes on how it was found."""
    ordinals = [0] if lacks_device(trace) else distinct(trace.device.device)[0].tolist()
    if not ordinals:
        listed = ", ".join(sorted({device.name for device in trace.devices} - {""}))
        either = "the operators ran on the processor, or the work of the device was not recorded"
        note = f"The trace lists {listed} and has no event of it: {either}."
        return Environment(rooflines=__version__, device="cpu", device_name=""), (note,) if listed else ()
    used, notes = _properties(trace, ordinals[0])
    environment = Environment(
        rooflines=__version__,
        device=f"{trace.platform}:{ordinals[0]}",
        device_name=used.name,
        device_memory_bytes=used.memory_bytes,
        device_units=used.multiprocessors,
    )
    if notes or trace.platform != "cuda" or not is_shared_name(environment.device_name):
        return environment, notes
    architectures, products = traits_in_kernels(_kernels(trace))
    traits = DeviceTraits(
        capability=used.capability,
        units=used.multiprocessors,
        memory_bytes=used.memory_bytes,
        warp=used.warp,
        architectures=architectures,
        products=products,
    )
    return _inferred(environment, traits)


def _properties(trace: Trace, ordinal: int) -> tuple[TracedDevice, tuple[str, ...]]:
    """The properties of the device ``ordinal``: its own, else those of the only model that the trace lists.

    Kernels of ROCm carry the number of an agent, which counts processors too, where the properties are
    numbered from 0.
    """
    own = [device for device in trace.devices if device.ordinal == ordinal]
    models = {device.model: device for device in trace.devices}
    if len(own) == 1 or len(models) == 1:
        return own[0] if own else next(iter(models.values())), ()
    if not models:
        return TracedDevice(""), ()
    listed = ", ".join(sorted({device.name or "a device without a name" for device in trace.devices}))
    return TracedDevice(""), (
        f"The kernels ran on device {ordinal}, which the trace does not describe, and it lists "
        f"several models: {listed}.",
    )


def _inferred(environment: Environment, traits: DeviceTraits) -> tuple[Environment, tuple[str, ...]]:
    """With the device that the traits fit, and a note on it; the same where they fit none or several that
    differ."""
    device = guess(traits)
    others = ", ".join(sheet.name for sheet in device.others)
    called = environment.device_name
    printed = (
        f"The device name in the trace is {called!r}" if called else "The trace does not name its device"
    )
    if device.sheet is None:
        note = f"{printed}. Its {traits.words()} fit several: {others}."
        return environment, (note,) if others else ()
    also = f"; {others} would fit too" if others else ""
    note = f"{printed}. It is treated as {device.name}, inferred from {traits.words()}{also}."
    return msgspec.structs.replace(environment, device_name=device.name, device_inferred=traits.words()), (
        note,
    )
