"""Measurements by torch operators, on any device that torch has: matrix products, memory, and the links to
the host and other GPUs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from rooflines.device_specs import detect
from rooflines.device_specs.nvml import find_gpu, start_nvml
from rooflines.device_specs.plan import Plan
from rooflines.device_specs.records import EMULATED, Precision
from rooflines.device_specs.rounds import RunAndWork, Way, ready
from rooflines.errors import DeviceError, first_line
from rooflines.kernels.micro import clock, matmul, transfer
from rooflines.kernels.micro.matmul import Scaling, Shape, Side
from rooflines.kernels.micro.repeats import Timing
from rooflines.kernels.micro.transfer import Access
from rooflines.kernels.threads import torch_threads
from rooflines.units import binary_bytes, significant

_SLOWEST_GEMM = (
    1 / 20
)  # of fp32, for the narrow precisions on a CPU; slower means emulated element by element
_TRIAL_S, _TRIAL_CALLS = (
    5e-3,
    64,
)  # a trial is that long, so that starting a kernel does not matter, but no more calls than that
# A shape whose product would take longer, by the rate of the trial, is not tried: a GPU has many figures, a
# CPU few shapes.
_LONGEST_CALL_S, _LONGEST_CALL_ON_GPU_S = 0.5, 0.1
_LARGEST_COPY = 256 << 20  # bytes of one copy over a link: milliseconds on any
_ROUTES = {"NVLink": "over NVLink", "peer": "into each other's memory", "PCIe": "through the host's memory"}


def gemm(
    plan: Plan,
    device: torch.device,
    precision: Precision,
    shapes: tuple[Shape, ...],
    trial_side: int,
    detail: str,
    *,
    transposed: tuple[tuple[Shape, Side], ...] = (),
    scaling: Scaling = "tensor",
    variant: str = "",
) -> None:
    """Plan the matrix product of ``precision`` in those of ``shapes`` [m, n, k] that fit the memory and the
    time.

    The shapes in ``transposed`` are multiplied with one operand stored transposed, where the operator leaves
    that open.

    A product of ``trial_side`` cubed tells first whether the device has the precision at all; it is measured
    where no other fits. ``scaling`` is that of fp8. A ``variant`` is a further roof below the main one.
    """

    def make(shape: Shape, side: Side) -> RunAndWork:
        with matmul.float32_matmul(precision):
            multiply = matmul.multiplication(shape, precision, device, scaling, side)

        def run(calls: int) -> Timing:
            with matmul.float32_matmul(precision):
                return clock.timed_in_parts(device, multiply, calls)

        return run, matmul.flops(shape)

    what = f"GEMM {precision}" + (f" ({variant})" if variant else "")
    small = (trial_side,) * 3
    # a CPU alone: a thread that is kept from its core would make all others wait at the end of so short a
    # product
    alone = torch_threads(1) if device.type == "cpu" else contextlib.nullcontext()
    try:
        with matmul.float32_matmul(precision), alone:
            multiply = matmul.multiplication(small, precision, device, scaling)
            narrow = device.type == "cpu" and precision in ("bf16", "fp16")
            if narrow and emulated(small, multiply, cpu_reference(small)):
                plan.progress(f"{what}: emulated")
                variant = EMULATED
                shapes = (small,)
                transposed = ()
            rate = matmul.flops(small) / quickest(device, multiply)
    except (
        RuntimeError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:  # no such product here: the message is torch's
        plan.progress(f"{what}: not available ({first_line(error)})")
        return
    free = free_bytes(device)
    longest_s = _LONGEST_CALL_ON_GPU_S if device.type == "cuda" else _LONGEST_CALL_S
    plain: Side = ""
    wanted = [(shape, plain) for shape in shapes]
    wanted += [(shape, side if matmul.has_free_layout(precision) else plain) for shape, side in transposed]
    tried = [
        (shape, side)
        for shape, side in dict.fromkeys(wanted)
        if fits(shape, free) and matmul.flops(shape) / rate < longest_s
    ]
    ways = [
        Way(
            f"{matmul.operator(precision)} {matmul.words(shape, side)} ({detail})",
            partial(make, shape, side),
            renewed=True,
        )
        for shape, side in tried or [(small, plain)]
    ]
    accumulate = matmul.accumulate(precision)
    plan.figure(
        *ways, kind="compute", precision=precision, engine="matrix", accumulate=accumulate, variant=variant
    )


def cpu_reference(shape: Shape) -> float:
    """The rate of an fp32 product of ``shape`` on this CPU, by which an emulated precision is known."""
    device = torch.device("cpu")
    return matmul.flops(shape) / quickest(device, matmul.multiplication(shape, "fp32", device))


def emulation(device: torch.device, precision: str) -> str | None:
    """A sentence for who asks for a precision that the processor or GPU emulates; None for another one."""
    low: Precision | None = "bf16" if precision.endswith("bf16") else "fp16" if "fp16" in precision else None
    nvidia = device.type == "cuda" and torch.version.hip is None
    if nvidia and low == "bf16" and torch.cuda.get_device_capability(device) < (8, 0):
        return "this GPU has no units for bf16: torch computes its products in fp32"
    if device.type != "cpu" or low is None:
        return None
    shape = (256,) * 3
    with torch_threads(1), torch.random.fork_rng([]):  # keeps the random state of the workload
        times = quickest(device, matmul.multiplication(shape, low, device)) * cpu_reference(shape)
    if times * _SLOWEST_GEMM < matmul.flops(shape):
        return None
    slower = significant(times / matmul.flops(shape), 2)
    return f"this processor emulates {low}: a product takes {slower} times as long as in fp32"


def emulated(shape: Shape, multiply: Callable[[], object], reference: float) -> bool:
    """Whether a product of ``shape`` is so slow compared with the ``reference`` that it cannot use matrix
    units."""
    return matmul.flops(shape) / quickest(torch.device("cpu"), multiply) < _SLOWEST_GEMM * reference


def fits(shape: Shape, free: int) -> bool:
    """Whether the matrices of a product take less than half of ``free`` bytes while they are made, which is
    in fp32 and one by one."""
    return matmul.footprint_bytes(shape, "fp32") * 2 < free / 2


def quickest(device: torch.device, call: Callable[[], object]) -> float:
    """Seconds of one call at best: of three tries of some milliseconds each, after a first call that chooses
    and loads its kernel."""
    call()
    once = clock.timed_on_device(device, call, 1).seconds
    calls = max(1, min(_TRIAL_CALLS, int(_TRIAL_S / max(once, 1e-9))))
    return min(
        once,
        *(
            clock.timed_on_device(device, call, calls).seconds / calls
            for _ in range(1 if once > _TRIAL_S else 3)
        ),
    )


def free_bytes(device: torch.device) -> int:
    """The memory that a measurement may use."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return detect.memory_available_bytes()


def transfers(
    plan: Plan, device: torch.device, level: str, size_bytes: int, accesses: tuple[Access, ...]
) -> None:
    """Plan the bandwidth of the device's outermost memory by torch operators on float32 tensors of
    ``size_bytes``."""
    for access in accesses:
        detail = f"{transfer.OPERATORS[access]} on tensors of {binary_bytes(size_bytes)}"
        way = Way(detail, partial(transfer_run, device, access, size_bytes))
        plan.figure(way, kind="memory", level=level, access=access)


def transfer_run(device: torch.device, access: Access, size_bytes: int) -> RunAndWork:
    """A run of the operator for ``access`` on float32 tensors of ``size_bytes``, and the bytes of one
    call."""
    call, moved = transfer.streaming(access, *transfer.operands(size_bytes, device))
    return partial(clock.timed_on_device, device, call), moved


def cache_reads(plan: Plan, device: torch.device, l2_bytes: int) -> None:
    """Plan the read bandwidth of a GPU's L2 cache."""
    size = l2_bytes // 2 // 4 * 4

    def make() -> RunAndWork:
        call, moved = transfer.repeated_read(torch.ones(size // 4, device=device), 64)
        return partial(clock.timed_on_device, device, call), moved

    way = Way(f"torch.sum 64 times over {binary_bytes(size)} in one kernel", make)
    plan.figure(way, kind="memory", above="HBM", level="L2", access="read", capacity_bytes=l2_bytes)


def host_links(plan: Plan, device: torch.device, *, pageable: bool) -> None:
    """Plan copies from the host (H2D) and to it (D2H), by pinned memory, which the device reads by itself.

    With ``pageable`` also by pageable memory: variants, because the driver copies them through its own pinned
    memory.
    """
    size = copy_bytes(free_bytes(device), detect.memory_available_bytes())
    here = torch.empty(size // 4, device=device)
    # an Apple GPU shares the host's memory, and torch pins none of it there
    kinds = (False,) if device.type != "cuda" else (True, False) if pageable else (True,)
    for pinned in kinds:
        # written once: pages that were never touched all lie on one page of zeros
        host = torch.ones(size // 4, pin_memory=pinned)
        for name, source, target in (("H2D", host, here), ("D2H", here, host)):
            kind = "pinned" if pinned else "pageable"
            detail = f"Tensor.copy_ of {binary_bytes(size)}, {kind} host memory"
            plan.figure(
                _crossing(detail, device, source, target),
                kind="link",
                name=name,
                level="host",
                variant="pageable" if device.type == "cuda" and not pinned else "",
            )


def peer_links(plan: Plan, device: torch.device) -> None:
    """Plan copies between ``device`` and every other GPU that torch sees, each way."""
    for index in range(torch.cuda.device_count()):
        other = torch.device("cuda", index)
        if other == device:
            continue
        try:
            level = peer_level(device, other)
            size = copy_bytes(free_bytes(device), free_bytes(other))
            here, there = (torch.ones(size // 4, device=end) for end in (device, other))
            for source, target in ((here, there), (there, here)):
                # torch copies on the stream of the source
                way = _crossing(
                    f"Tensor.copy_ of {binary_bytes(size)}, {_ROUTES[level]}", source.device, source, target
                )
                plan.figure(way, kind="link", name=f"{source.device} to {target.device}", level=level)
        except (
            RuntimeError
        ) as error:  # the other one is out of memory, or in exclusive use by another process
            plan.progress(f"{device} and {other}: skipped ({first_line(error)})")


def _crossing(detail: str, device: torch.device, source: torch.Tensor, target: torch.Tensor) -> Way:
    """A copy over a link, timed on ``device``."""
    call, crossed = transfer.crossing(source, target)
    return Way(detail, ready(partial(clock.timed_on_device, device, call), crossed))


def copy_bytes(*free: int) -> int:
    """The size of a copy between ends with this much free memory each."""
    return max(min(_LARGEST_COPY, *(one // 8 for one in free)), 1 << 20) // 4 * 4


def peer_level(device: torch.device, other: torch.device) -> str:
    """The link between two GPUs: NVLink; a bus with access to each other's memory ("peer"); or the host's
    memory ("PCIe")."""
    ends = [str(getattr(torch.cuda.get_device_properties(end), "uuid", "")) for end in (device, other)]
    with contextlib.suppress(DeviceError):
        nvml: Any = start_nvml()
        try:
            status = nvml.nvmlDeviceGetP2PStatus(
                *(find_gpu(nvml, end) for end in ends), nvml.NVML_P2P_CAPS_INDEX_NVLINK
            )
            if status == nvml.NVML_P2P_STATUS_OK:
                return "NVLink"
        except nvml.NVMLError:
            pass
        finally:
            nvml.nvmlShutdown()
    return "peer" if torch.cuda.can_device_access_peer(device, other) else "PCIe"
