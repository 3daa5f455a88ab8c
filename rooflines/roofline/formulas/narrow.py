"""Rows of conversions to numbers of fewer bits and back whose results are no arguments: their sizes follow from those of the input."""

from __future__ import annotations

from rooflines.roofline.formulas.costs import DEQUANTIZE, DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.rows import Row


def widened(schema: str, item: str, numbers: str = "input.n", precision: str = "=fp32", cost: int = DEQUANTIZE) -> Row:
    """``numbers`` numbers of ``item`` bytes each, ``cost`` FLOPs a number."""
    return Row(schema, other=f"{cost} * {numbers}", writes=f"{numbers} * {item}", precision=precision)


def to_8_bits(schema: str, cost: int = 0, numbers: str = "input.n") -> Row:
    """A byte for each number, scales where none was given (of rows, or of groups), and the sum with the residual. Before the conversion
    come ``cost`` FLOPs for each number."""
    scales = f"4 * ({numbers} // {'group_size' if 'group_size' in schema else 'input[-1]'})"
    given = "scale" in schema
    return Row(
        schema,
        other=f"{numbers} * ({cost} + {'(QUANTIZE if scale else DYNAMIC_QUANTIZE)' if given else 'DYNAMIC_QUANTIZE'})",
        result="residual" if "residual" in schema else "",
        writes=f"{numbers} + {f'(0 if scale else {scales})' if given else scales}",
        precision="input",
    )


def to_blocks(bits: int, block: int | str, schema: str = "read input") -> Row:
    """Numbers of ``bits`` bits with a scale of a byte for each ``block`` of them. Padding is not counted."""
    return Row(schema, DYNAMIC_QUANTIZE, writes=f"input.n * {bits} // 8 + input.n // {block}")


def to_fp4(schema: str) -> Row:
    """NVFP4: two numbers of 4 bits a byte and a scale of 8 bits for each 16; results that are not arguments have no padding."""
    made = "input.n // 2 + input.n // 16"
    return Row(schema, DYNAMIC_QUANTIZE, writes=f"0 if out else {made}" if "out" in schema else made)
