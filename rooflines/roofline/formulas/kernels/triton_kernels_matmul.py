"""Grouped matrix products of triton_kernels, the library of Triton for mixtures of experts (gpt-oss): ``_matmul_ogs_NNT_...``.

The name has the layouts and the dtypes of the result, the input and the weight, the block along m, n and k and the parts into which k
is split, then what is fused behind the product (``make_matmul_repr`` in triton_kernels/matmul_ogs_details/_common.py, and
``FnSpecs`` in triton_kernels/specialize.py, 3.4 and 3.5). ``matmul_ogs`` (triton_kernels/matmul_ogs.py) allocates the result
[splits, 1, rows, n] before it launches, and views the weight [experts, k, n] last; of mxfp4 two values of k are in a byte.
"""

from __future__ import annotations

import re
from typing import Final

from rooflines.profiler.trace.signature import TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import NotCounted, floating
from rooflines.roofline.formulas.experts import SPREAD
from rooflines.roofline.formulas.kernels.experts import ELEMENT_BYTES, PRECISIONS, touched
from rooflines.roofline.formulas.kernels.launch import Launch
from rooflines.roofline.formulas.record import Work

CATEGORY: Final = "moe"

_NAME: Final = re.compile(
    r"_(?:p_)?matmul\w*?_[NT]{3}_(?P<y>[a-z0-9]{1,12}?)x(?P<x>[a-z0-9]{1,12}?)x(?P<w>[a-z0-9]{1,12})_(?:\d+x){3}(?P<splits>\d+)(?P<then>\w*)"
)
_SWIGLU: Final = costs.SIGMOID + 6  # two clamps, alpha * x, the sigmoid, two products, + 1


def work(launch: Launch) -> tuple[tuple[TensorArg, ...], Work]:
    """The product of the gathered rows and their experts' weights."""
    found = _NAME.match(launch.kernel)
    if found is None:
        raise NotCounted("kernel name of an unsupported version of triton_kernels")
    x_type, w_type, y_type = found["x"], found["w"], found["y"]
    if not {x_type, w_type, y_type} <= set(ELEMENT_BYTES):
        raise NotCounted(f"unknown dtype in '{launch.kernel[:60]}'")
    packed = 2 if w_type == "mxfp4" else 1
    viewed = [call.args[0] for call in launch.before if call.name == "aten::view" and call.args and isinstance(call.args[0], TensorArg)]
    weight = next((one for one in reversed(viewed) if len(one.shape) == 3 and (packed == 1 or not floating(one.dtype))), None)
    if weight is None:
        raise NotCounted("the weights of the experts are not recorded")
    experts, k, n = weight.shape[0], weight.shape[1] * packed, weight.shape[2]
    columns = n // 2 if "swiglu" in found["then"] else n
    result = next((one for one in reversed(launch.allocated) if len(one.shape) >= 2 and one.shape[-1] == columns), None)
    inputs = next((one for one in reversed(viewed) if one is not weight and floating(one.dtype) and one.shape[-1:] == (k,)), None)
    if result is None or inputs is None:
        raise NotCounted("the input or the result of the product is not recorded")
    splits = int(found["splits"])
    rows = result.numel // (columns * splits)
    other = rows * columns * _SWIGLU if columns != n else 0
    return (inputs, weight), Work(
        matrix_flops=2 * rows * k * n,
        other_flops=other,
        bytes_read=round(inputs.numel * ELEMENT_BYTES[x_type] + touched(experts, rows) * k * n * ELEMENT_BYTES[w_type]),
        bytes_written=round(rows * splits * columns * ELEMENT_BYTES[y_type]),
        precision=PRECISIONS[x_type],
        assumption=SPREAD,
    )
