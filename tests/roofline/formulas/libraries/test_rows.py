"""Laws of every row: an example is made of its schema, and its figures are checked against each other."""

from __future__ import annotations

import ast
import itertools
import json
import re
from functools import cache

import pytest

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import count
from rooflines.roofline.count.formulas.arguments import NotCounted, size
from rooflines.roofline.count.formulas.counter import registered
from rooflines.roofline.count.formulas.families import is_torchs
from rooflines.roofline.count.formulas.registry import FORMULAS, Hints
from rooflines.roofline.count.formulas.rows import fields_of, row_work, steps_of
from rooflines.roofline.count.formulas.tables import FileFormula
from tests.roofline.formulas.answers import ROWS as APPROVED

registered()
OF_FILES = {name: entry.formula for name, entry in FORMULAS.items() if isinstance(entry.formula, FileFormula)}
ROWS = {name: formula.rows for name, formula in OF_FILES.items() if formula.is_rows}
# Products of narrow numbers, each with its schema.
SCHEMAS = {
    name: formula.said["schema"] for name, formula in OF_FILES.items() if "by=scaled.scaled_work" in formula.paragraph.heading.options
}
# One operator of each row.
OPERATORS = {row: (name, number) for name, rows in reversed(ROWS.items()) if not is_torchs(name) for number, row in enumerate(rows)}
HINTS = Hints(output_bytes=4096, outputs=(TensorArg((8, 16), "bfloat16"),))
# Names of tensors of integers.
INTEGERS = re.compile(
    r"slots|positions|ids|index|lengths|ends|starts|map|places|offsets|labels|target|sizes|counts|permute|order|experts|sequences"
)
DTYPES = ("bfloat16", "uint8", "int64")
# Sizes that the names of dimensions do not say.
SIZES = {"half": 8, "bit_rate": 4, "axis": 0, "parts": 3}
PACKED = "fbgemm::int_nbit_split_embedding_codegen_lookup_function"
LAYERS = ("FusedDenseFunc", "FusedDenseGeluDenseFunc", "MlpFunction")
SHAPES = {
    **{name + end: {"rest": (32, 48)} for name in LAYERS for end in ("", "Backward")},  # a layer with 48 inputs
    **{f"quack::gemm_{name}_out": {"left": (24, 16), "right": (4, 16, 16)} for name in ("act", "gated", "dact", "dgated")},
    "bitsandbytes::int8_mixed_scaled_mm": {"outliers": (0,)},
    PACKED: {"D_offsets": (3,), "offsets": (9,)},
}
# A width of 128 for each of two tables of 4 bits.
VALUES = {
    PACKED: {"total_D": 256, "max_int2": 0, "max_int4": 128, "max_int8": 0, "max_float16": 0, "max_float32": 0, "output": 1},
}


def extent(name, times):
    """Dimensions of one name have one size, of different names mostly different ones."""
    return SIZES.get(name, 16 + 16 * (sum(map(ord, name)) % 3)) * times.get(name, 1)


def example(row, times, equal, values, dtypes, shapes):
    """A call of the row: sizes of dimensions by their names; other tensors are [24, 16, 16], or [8] of integers."""
    args, tensors = [], []

    def of(name):
        return SIZES.get(name, 16) * times.get(name, 1) if equal else extent(name, times)

    for field in fields_of(row.schema):
        dims = [dim.strip("*=") for dim in field.dims]
        if field.verb:
            integers = INTEGERS.search(field.name) is not None
            shape = tuple(map(of, dims)) if dims else (8,) if integers else (24, 16, 16)
            tensor = TensorArg(shapes.get(field.name, shape), dtypes.get(field.name, "int64" if integers else "bfloat16"))
            tensors.append(tensor)
            args.append((tensor,) if field.kind in ("*", "+") else tensor)
        elif field.name in values:
            args.append(values[field.name])
        elif dims or field.kind == "*":
            args.append(tuple(map(of, dims)) or (of(field.name),))
        elif field.default:
            args.append(15 if "dtype" in field.name else ast.literal_eval(field.default))
        else:
            args.append(15 if "dtype" in field.name else of(field.name))
    return Signature("lib::op", tuple(args)), tensors


@cache
def chosen(row):
    """The options of an example that the row counts: other values and dtypes of one or two arguments in its condition are tried."""
    name, asked = OPERATORS[row][0], fields_of(row.schema) if row.fits else ()
    asked = [field for field in asked if re.search(rf"\b{field.name}\b", f"{row.where} {row.fits}")]
    options = [(field, option) for field in asked for option in (DTYPES if field.verb else (*range(8), 0.5, True))]
    shapes = SHAPES.get(name, {})
    for equal, changed in itertools.product(
        (False, True), [(), *itertools.combinations(options, 1), *itertools.combinations(options, 2)]
    ):
        values = {field.name: option for field, option in changed if not field.verb} | VALUES.get(name, {})
        dtypes = {field.name: option for field, option in changed if field.verb}
        try:
            row_work(example(row, {}, equal, values, dtypes, shapes)[0], row, HINTS)
        except NotCounted:
            continue
        return equal, values, dtypes, shapes
    return None


def work_of(row, **times):
    signature, _ = example(row, times, *chosen(row))
    return row_work(signature, row, HINTS)


def figures(row, **times):
    work = work_of(row, **times)
    return work.matrix_flops, work.other_flops, work.bytes_read, work.bytes_written


# Rows that read more than their tensors hold: a result or state that was kept, slots of a cache, weights in a list, views.
READS_MORE = re.compile(
    r".*Backward|te_attention::fa_prepare_fwd|sgl_kernel::transfer_kv_.*|.*fused_(qk_norm_rope|rope_rms|qk_norm_rope_cache).*"
    r"|.*causal_conv1d_(update|fwd).*|_C::selective_scan_fwd|fbgemm::silu_mul_quantize_i8|vllm::lora_.*"
)
IDS = {row: f"{name} {number or ''}".strip() for row, (name, number) in OPERATORS.items()}


def approved():
    """FLOPs and bytes of the example of each row."""
    return {IDS[row]: " ".join(map(str, figures(row))) for row in OPERATORS}


def test_figures_of_every_row_are_those_that_were_approved():
    """A new row needs none; a row that changes does: ``python -m tests.roofline.formulas.answers flops``."""
    found, expected = approved(), json.loads(APPROVED.read_text())
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize("row", OPERATORS, ids=IDS.values())
def test_laws_of_a_row(row):
    """Its example is counted. It reads no more than its tensors hold, and every figure grows evenly with a leading dimension, products
    in proportion to it, if at all."""
    assert chosen(row) is not None, "no example is counted"
    plain = figures(row)
    assert min(plain) >= 0
    assert READS_MORE.fullmatch(OPERATORS[row][0]) or plain[2] <= size(*example(row, {}, *chosen(row))[1])
    leading = {dim.strip("*=") for field in fields_of(row.schema) if field.verb for dim in field.dims if dim.startswith("*")}
    for name in leading:
        two, three, four = (figures(row, **{name: times}) for times in (2, 3, 4))
        assert [b - a for a, b in zip(two, three, strict=True)] == [c - b for b, c in zip(three, four, strict=True)], name
        assert four[0] in (two[0], 2 * two[0]), name


@pytest.mark.parametrize("row", OPERATORS, ids=IDS.values())
def test_every_step_of_a_row_is_used(row):
    """A field with a wrong name is a step. The step ``number`` only asks for an argument, which must be an integer."""
    steps = dict(steps_of(row.where))
    texts = [text for text in (row.matrix, row.other, row.reads, row.writes, row.also, row.fits, row.given) if text]
    used = {name for text in (*texts, *steps.values()) for name in re.findall(r"\w+", text)}
    assert set(steps) - used <= {"number"}


# Elements of the operands along 64 numbers: 16 bits each, 4 bits each, or a weight of 4 bits.
OPERANDS = ((("bfloat16", 64), ("bfloat16", 64)), (("uint8", 32), ("uint8", 32)), (("bfloat16", 64), ("int32", 8)))


@pytest.mark.parametrize(
    ("schema", "left", "right"),
    [(schema, *pair) for schema in dict.fromkeys(SCHEMAS.values()) for pair in OPERANDS if "out" in schema or pair[0][0] == "bfloat16"],
)
def test_laws_of_a_product(schema, left, right):
    """[40, 64] with [48, 64], in 16 bits, in 4, or with a weight of 4: both are read once, and 40 * 48 numbers are written."""
    tensors = {
        "left": TensorArg((40, left[1]), left[0]),
        "right": TensorArg((48, right[1]), right[0]),
        "out": TensorArg((40, 48), "bfloat16"),
    }
    args = tuple(
        tensors.get(field.name, TensorArg((48,), "float32")) if field.verb or field.name in tensors else 15
        for field in fields_of(schema)
    )
    name = next(name for name, found in SCHEMAS.items() if found == schema)
    work = FORMULAS[name].formula(Signature(name, args), Hints())
    others = [arg for field, arg in zip(fields_of(schema), args, strict=True) if field.verb == "read"]
    assert work.matrix_flops == 2 * 40 * 64 * 48
    assert work.other_flops % (40 * 48) == 0
    assert (work.bytes_read, work.bytes_written) == (size(tensors["left"], tensors["right"], *others), 40 * 48 * 2)


BACKWARD = {"Backward": "", "_bwd": "_fwd", "_bwd_impl": "_fwd_impl", "_backward": ""}
PAIRS = {
    name: forward
    for name in ROWS
    if not is_torchs(name)
    for ending, other in BACKWARD.items()
    if name.endswith(ending) and (forward := name.removesuffix(ending) + other) in ROWS
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_backward_does_no_less_than_its_forward(name):
    """As many products or a multiple of them, and it has some arithmetic and results wherever the forward has."""
    forward, backward = figures(ROWS[PAIRS[name]][0]), figures(ROWS[name][0])
    assert backward[0] >= forward[0]
    assert not forward[0] or backward[0] % forward[0] == 0
    assert all(bool(after) >= bool(before) for before, after in zip(forward, backward, strict=True))


@pytest.mark.parametrize(
    "name",
    [
        "aiter::mhc_pre", "aiter::moe_forward", "sglang::gdn_with_output", "sglang::moe_impl", "sglang_profiler::forward_1",
        "trtllm::mla_custom_op_inplace", "vllm::flash_attn_maxseqlen_wrapper", "vllm::mamba_mixer2", "vllm::moe_forward",
        "vllm::unified_mla_attention_with_output",
    ],
)  # fmt: skip
def test_layers_only_call_others(name):
    assert count(Signature(name, (TensorArg((7, 30), "bfloat16"), None))).kind == "composite"
