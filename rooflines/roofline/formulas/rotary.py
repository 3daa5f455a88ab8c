"""Rotary position embeddings: pairs of numbers of each head rotate by an angle of the token's position."""

from __future__ import annotations

from rooflines.roofline.formulas.rows import Row

# A token has a row of the table, with cosines and sines; at most all rows are read.
ANGLES = "positions.size + selected(table, positions.n * table[-1])"


def rotation(tensors: str = "query key", head: str = "head", rotary: str = "table[-1]") -> str:
    """FLOPs of ``tensors`` that rotate: the first ``rotary`` numbers of each head."""
    numbers = " + ".join(f"{name}.n" for name in tensors.split())
    return f"({numbers}) // {head} * min({rotary}, {head}) * ROTARY_EMBEDDING"


def rotate_in_place(
    schema: str = "read positions, view query, view key?, head, view table, is_neox",
    tensors: str = "query key",
    head: str = "head",
    rotary: str = "table[-1]",
    angles: str = ANGLES,
) -> Row:
    """The row of an operator that rotates ``tensors`` in place. What does not rotate is not touched."""
    turned = " + ".join(f"{name}.n // {head} * min({rotary}, {head}) * {name}.item" for name in tensors.split())
    return Row(
        schema, other=rotation(tensors, head, rotary), reads=f"{turned} + {angles}", writes=turned, precision=tensors.split()[0],
        fits=f"{head} > 0 and table.rank > 1",
    )  # fmt: skip


def normalize_and_rotate(schema: str) -> Row:
    """The row of an operator that normalizes and rotates queries and keys inside ``qkv`` [tokens, heads * head] in place; cosines and
    sines are computed from a base."""
    numbers = "positions.n * (heads_q + heads_k) * head"
    return Row(
        schema,
        other=f"{numbers} * (RMS_NORM + ROTARY_EMBEDDING)",
        reads=f"{numbers} * qkv.item + q_weight.size + k_weight.size + positions.size",
        writes=f"{numbers} * qkv.item",
        precision="qkv",
    )
