"""Measure the links of a GPU: from and to the host, and to other GPUs."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch

from rooflines.device_specs import detect
from rooflines.device_specs.measure_torch import free_bytes
from rooflines.device_specs.nvml import find_gpu, start_nvml
from rooflines.device_specs.plan import Plan
from rooflines.device_specs.rounds import Way, ready
from rooflines.errors import DeviceError
from rooflines.kernels.micro import clock, transfer
from rooflines.units import binary_bytes

Peer = Literal["NVLink", "peer", "PCIe"]

_LARGEST = 256 << 20  # bytes of one copy: milliseconds on any link


def host_links(plan: Plan, device: torch.device, *, pageable: bool) -> None:
    """Plan copies from the host (H2D) and to it (D2H), by pinned memory, which the device reads by itself.

    With ``pageable`` also by pageable memory: variants, because the driver copies them through its own pinned memory.
    """
    size = copy_bytes(free_bytes(device), detect.memory_available_bytes())
    here = torch.empty(size // 4, device=device)
    # an Apple GPU shares the host's memory, and torch pins none of it there
    kinds = (False,) if device.type != "cuda" else (True, False) if pageable else (True,)
    for pinned in kinds:
        # written once: pages that were never touched all lie on one page of zeros
        host = torch.ones(size // 4, pin_memory=pinned)
        for name, source, target in (("H2D", host, here), ("D2H", here, host)):
            call, crossed = transfer.crossing(source, target)
            made = ready(partial(clock.timed, device, call), crossed)
            kind = "pinned" if pinned else "pageable"
            plan.figure(Way(f"Tensor.copy_ of {binary_bytes(size)}, {kind} host memory", made), kind="link", name=name, unit="B/s",
                        level="host", variant="pageable" if device.type == "cuda" and not pinned else "")  # fmt: skip


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
                call, crossed = transfer.crossing(source, target)
                made = ready(partial(clock.timed, source.device, call), crossed)  # torch copies on the stream of the source
                plan.figure(Way(f"Tensor.copy_ of {binary_bytes(size)}, {_route(level)}", made), kind="link",
                            name=f"{source.device} to {target.device}", unit="B/s", level=level)  # fmt: skip
        except RuntimeError as error:  # the other one is out of memory, or in exclusive use by another process
            plan.progress(f"{device} and {other}: skipped ({str(error).splitlines()[0]})")


def copy_bytes(*free: int) -> int:
    """The size of a copy between ends with this much free memory each."""
    return max(min(_LARGEST, *(one // 8 for one in free)), 1 << 20) // 4 * 4


def peer_level(device: torch.device, other: torch.device) -> Peer:
    """The link between two GPUs: NVLink; a bus with access to each other's memory ("peer"); or the host's memory ("PCIe")."""
    if _nvlink(*(str(getattr(torch.cuda.get_device_properties(end), "uuid", "")) for end in (device, other))):
        return "NVLink"
    return "peer" if torch.cuda.can_device_access_peer(device, other) else "PCIe"


def _nvlink(uuid: str, other: str) -> bool:
    """Whether NVML says that two GPUs talk over NVLink."""
    try:
        nvml: Any = start_nvml()
    except DeviceError:
        return False
    try:
        ends = (find_gpu(nvml, uuid), find_gpu(nvml, other))
        return bool(nvml.nvmlDeviceGetP2PStatus(*ends, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == nvml.NVML_P2P_STATUS_OK)
    except nvml.NVMLError:
        return False
    finally:
        nvml.nvmlShutdown()


def _route(level: Peer) -> str:
    return {"NVLink": "over NVLink", "peer": "into each other's memory", "PCIe": "through the host's memory"}[level]
