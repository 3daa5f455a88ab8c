"""Mixtures of experts of triton_kernels, a library of Triton (gpt-oss): grouped products
``_matmul_ogs_NNT_...``, which token goes to which expert, and the sum of a token's results.

The name of a product has the layouts and the dtypes of the result, the input and the weight, the block along
m, n and k and the parts into which k is split, then what is fused behind the product (``make_matmul_repr`` in
triton_kernels/matmul_ogs_details/_common.py, and ``FnSpecs`` in triton_kernels/specialize.py, 3.4 and 3.5).
``matmul_ogs`` (triton_kernels/matmul_ogs.py) allocates the result [splits, 1, rows, n] before it launches,
and views the weight [experts, k, n] last; of mxfp4 two values of k are in a byte.

``topk`` (triton_kernels/topk.py, 3.4 and 3.5) chooses the experts and writes a bit for each pair of token and
expert; ``routing`` (triton_kernels/routing.py) counts and sorts them; ``_finalize_matmul_scatter``
(triton_kernels/matmul_ogs.py) adds the rows of a token.
"""

from __future__ import annotations

import re

from rooflines.profiler.read.signature import TensorArg
from rooflines.roofline.count.formulas import costs
from rooflines.roofline.count.formulas.arguments import NotCounted, floating, known, size
from rooflines.roofline.count.formulas.experts import ELEMENT_BYTES, PRECISIONS, SPREAD
from rooflines.roofline.count.formulas.kernels import Launch, LaunchWork, allocations
from rooflines.roofline.count.formulas.record import Work, precision_of

CATEGORY = "moe"

_NAME = re.compile(
    r"_(?:p_)?matmul\w*?_[NT]{3}_(?P<y>[a-z0-9]{1,12}?)x(?P<x>[a-z0-9]{1,12}?)x(?P<w>[a-z0-9]{1,12})"
    r"_(?:\d+x){3}(?P<splits>\d+)(?P<then>\w*)"
)
_SWIGLU = costs.SIGMOID + 6  # two clamps, alpha * x, the sigmoid, two products, + 1
_WHOLE = "it reads the arguments of the operator around it and writes all that this allocated"


def work(launch: Launch) -> LaunchWork:
    """The work of one of these kernels."""
    if launch.kernel.startswith("_finalize"):
        return _finalize(launch)
    return _product(launch) if launch.kernel.startswith(("_matmul", "_p_matmul")) else _bookkeeping(launch)


def _product(launch: Launch) -> LaunchWork:
    """The product of the gathered rows and their experts' weights."""
    found = known(_NAME.match(launch.kernel), "kernel name of an unsupported version of triton_kernels")
    x_type = found["x"]
    w_type = found["w"]
    y_type = found["y"]
    if not {x_type, w_type, y_type} <= set(ELEMENT_BYTES):
        raise NotCounted(f"unknown dtype in '{launch.kernel[:60]}'")
    packed = 2 if w_type == "mxfp4" else 1
    viewed = [
        call.args[0]
        for call in launch.before
        if call.name == "aten::view" and call.args and isinstance(call.args[0], TensorArg)
    ]
    weights = (
        one for one in reversed(viewed) if len(one.shape) == 3 and (packed == 1 or not floating(one.dtype))
    )
    weight = known(next(weights, None), "the weights of the experts are not recorded")
    experts = weight.shape[0]
    k = weight.shape[1] * packed
    n = weight.shape[2]
    columns = n // 2 if "swiglu" in found["then"] else n
    results = (one for one in reversed(launch.allocated) if len(one.shape) >= 2 and one.shape[-1] == columns)
    operands = (
        one
        for one in reversed(viewed)
        if one is not weight and floating(one.dtype) and one.shape[-1:] == (k,)
    )
    result, inputs = (
        known(next(found, None), "the input or the result of the product is not recorded")
        for found in (results, operands)
    )
    splits = int(found["splits"])
    rows = result.numel // (columns * splits)
    other = rows * columns * _SWIGLU if columns != n else 0
    return (inputs, weight), Work(
        matrix_flops=2 * rows * k * n,
        other_flops=other,
        bytes_read=round(
            inputs.numel * ELEMENT_BYTES[x_type] + min(experts, rows) * k * n * ELEMENT_BYTES[w_type]
        ),
        bytes_written=round(rows * splits * columns * ELEMENT_BYTES[y_type]),
        precision=PRECISIONS[x_type],
        assumption=SPREAD,
    )


def _bookkeeping(launch: Launch) -> LaunchWork:
    """At most the tensors around the launch; each of these kernels handles a part of them."""
    if launch.operator is None or not launch.operator.tensors:
        raise NotCounted("the tensors of the operator around the kernel are not recorded")
    inputs = launch.operator.tensors
    return inputs, Work(
        bytes_read=size(*inputs), bytes_written=size(*allocations(launch.inside)), assumption=_WHOLE
    )


def _finalize(launch: Launch) -> LaunchWork:
    """[.., rows, n] -> [tokens, n]: the rows of a token added."""
    tokens = launch.wrapped(0).shape[0]
    partial = next((one for one in reversed(launch.allocated) if len(one.shape) >= 3), None)
    if partial is None or partial.shape[-2] < tokens:
        raise NotCounted("the rows that the kernel adds are not recorded")
    n = partial.shape[-1]
    return (partial,), Work(
        other_flops=partial.numel - tokens * n,
        bytes_read=size(partial),
        bytes_written=size(TensorArg((tokens, n), partial.dtype)),
        precision=precision_of(partial.dtype),
    )
