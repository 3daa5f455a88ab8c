"""Operators that only torch.compile has: what inductor puts in the place of others before it generates kernels."""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Argument
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import NotCounted
from rooflines.roofline.formulas.random import RANDOM
from rooflines.roofline.formulas.rows import Row, named, register

_MODES: Final = {"rand": RANDOM["uniform"], "randn": RANDOM["normal"]}


@named
def drawing(mode: Argument) -> int:
    """FLOPs of a random number."""
    if mode not in _MODES:
        raise NotCounted(f"unknown random number distribution ('{mode}')")
    return _MODES[mode]


_MADE: Final = "results().full"
_COPIES: Final[dict[str, Row]] = {
    "convert_element_type device_put inductor_force_stride_order": Row("read a", writes=_MADE),
    # start + step * i, as aten::arange
    "iota": Row("length", other="2 * results().n", writes=_MADE, precision="results"),
    # seeds of random numbers, one int64 each: drawn, or one of them looked up
    "inductor_seed inductor_seeds": Row("device", writes=_MADE),
    "inductor_lookup_seed": Row("seeds", reads=_MADE, writes=_MADE),
    # places in windows as places in the image: addresses, which are not counted as arithmetic
    "_low_memory_max_pool_offsets_to_indices _low_memory_max_pool2d_offsets_to_indices": Row("read offsets", writes=_MADE),
}
_RANDOM: Final[dict[str, Row]] = {
    "inductor_random": Row("size, read seed?, mode", other="results().n * drawing(known('mode'))", writes=_MADE, precision="results"),
    "inductor_randint": Row("low, high, size, read seed?", other="results().n", writes=_MADE, precision="="),
}
# a * b + c, rounded once
_FMA: Final = Row(
    "read a?, read b?, read c?", where="made = joined(a, b, c)", other="2 * made", writes="made * (a or b or c).item",
    precision="a b c", fits="bool(a or b or c)",
)  # fmt: skip
# max pooling that keeps where in its window each maximum was, as int8
_MAX_POOL: Final = Row(
    "read self, kernel+", other="results().tensors[0].numel * volume(kernel, self.rank - 2)", writes=_MADE, precision="self"
)
# the maximum of each row, and the sum of exp(x - maximum): all of softmax but its division
_STATISTICS: Final = Row("read a, dim", costs.SOFTMAX - costs.BASIC, per="a", writes=_MADE)
register(_COPIES, "copy", namespace="prims::")
register({**_RANDOM, "fma": _FMA}, "element-wise", namespace="prims::")
_MAX_POOLS: Final = "_low_memory_max_pool_with_offsets _low_memory_max_pool2d_with_offsets"
register({"prepare_softmax_online": _STATISTICS, _MAX_POOLS: _MAX_POOL}, "reduction", namespace="prims::")
# where(index == selector, value, background), in which the constant that is scattered into is never made
_ONE_HOT: Final = Row("read tensors*", other="2 * results().n", writes=_MADE, precision="results")
register({"inductor::scatter_upon_const_tensor": _ONE_HOT}, "element-wise", functions=True)
