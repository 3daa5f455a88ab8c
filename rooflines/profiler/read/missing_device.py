"""Whether a device worked of which a trace has no events."""

from __future__ import annotations

import re

import numpy as np

from rooflines.profiler.read.launches import is_launch
from rooflines.profiler.read.records import OPERATOR, RUNTIME, Trace
from rooflines.units import counted

# Operators that torch has for no processor: those of cuDNN and MIOpen, of cuSPARSELt, of streams, fused
# kernels of attention, recurrent cells and dropout, depthwise convolutions, synchronized batch normalization,
# Apple's GPUs; collectives of NCCL, and kernels that inductor generates.
OF_A_DEVICE = re.compile(
    r"aten::(_?(cudnn|miopen)_(?!is_acceptable)\w+|_(flash|efficient|cudnn)_attention_\w+"
    r"|_thnn_fused_(lstm|gru)_cell|_cslt_\w+|record_stream"
    r"|_scaled_dot_product_(flash|efficient|cudnn)_attention(_backward)?|_triton_\w+"
    r"|_sparse_semi_structured_\w+|_fused_dropout"
    r"|_conv_depthwise2d|conv_depthwise3d|batch_norm_(stats|elemt|gather_stats\w*|backward_elemt"
    r"|backward_reduce)|_weight_int4pack_mm"
    r"|_scaled_grouped_mm|_masked_scale|_?mps_\w+|_?lstm_mps\w*|\w+_for_mps|linear_backward"
    r"|max_pool2d_backward)|nccl:\w+|triton_(poi|red|per|tem)_fused_\w+"
)
# Runtime calls that torch's profiler makes on its own.
_OF_THE_PROFILER = re.compile(r"(cuda|hip)(DeviceSynchronize|Get\w+|DeviceGet\w+)")


def lacks_device(trace: Trace) -> bool:
    """Whether a device worked whose events are not in the trace: it was cut off before them, or they were not
    recorded."""
    if len(trace.device):
        return False
    if trace.cut_ns is None:
        return bool(without_device(trace))
    backend = trace.rank.backend if trace.rank is not None else None
    return bool(trace.devices) or "nccl" in (backend or "") or bool((trace.host.kind == RUNTIME).any())


def without_device(trace: Trace) -> str:
    """What shows that a device worked although the trace has no event of one; empty where nothing does, or
    where it has some."""
    if len(trace.device):
        return ""
    launches = int(trace.named(is_launch, RUNTIME).sum())
    if launches:
        return f"the trace has {counted(launches, 'launch call')} and no device events"
    own = trace.named(lambda name: _OF_THE_PROFILER.fullmatch(name) is None, RUNTIME)
    if trace.devices and own.any():
        return f"the trace has {counted(int(own.sum()), 'call')} of a device's runtime and no device events"
    if of_device := int(((trace.memory.device_type > 0) & (trace.memory.size_bytes > 0)).sum()):
        return f"the trace has {counted(of_device, 'allocation')} of a device's memory and no device events"
    called = np.flatnonzero(trace.named(lambda name: OF_A_DEVICE.fullmatch(name) is not None, OPERATOR))
    if not len(called):
        return ""
    return (
        f"the trace has {trace.names[trace.host.name[called[0]]]}, which only a device runs, and no "
        "device events"
    )
