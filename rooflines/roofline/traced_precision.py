"""The precision of a trace that was recorded without rooflines: that of its matrix work.

Elements of tensors do not say it: a server that replays a graph in bfloat16 runs only bookkeeping and sampling outside of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rooflines.roofline.analysis import OperatorRow, Unmodelled
from rooflines.roofline.kernel_names import matrix_precision


def traced_precision(operators: Sequence[OperatorRow], unmodelled: Sequence[Unmodelled]) -> str:
    """The precision in which matrix products, convolutions and attention run for most of their time; empty without any.

    Kernels of operators without a count are included if their names contain a precision.
    """
    times: defaultdict[str, float] = defaultdict(float)
    for row in operators:
        if row.matrix_flops and row.precision:
            times[row.precision] += row.time_s
    for gap in unmodelled:
        for kernel in gap.kernels:
            times[matrix_precision(kernel.name)] += kernel.time_s
    times.pop("", None)
    return max(times, key=lambda name: times[name], default="")
