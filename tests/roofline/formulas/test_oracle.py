"""Bytes of every operator in the table against an oracle that runs it (``oracle.py``), and the oracle against what is known.

What the oracle found for our own calls and for torch's samples is recorded (``answers.py``) and measured again by ``make test-all``.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision  # noqa: F401 (registers its operators)
from torch.ops import aten

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import CallCount, Work, count
from rooflines.roofline.count.formulas.counter import registered
from rooflines.roofline.count.formulas.decomposed import DECOMPOSED, SOMETIMES_DECOMPOSED
from rooflines.roofline.count.formulas.families import is_torchs
from rooflines.roofline.count.formulas.registry import FORMULAS
from tests.roofline.formulas import answers, samples
from tests.roofline.formulas.calls import rand
from tests.roofline.formulas.helpers import UNCOUNTED, operators
from tests.roofline.formulas.oracle import Bytes, Call, Collection, Experiment, Sample, Verdict, describe, judge, plain_name, storage

# registers its operators; an older torch lacks this and other operators that our calls need
pytest.importorskip("torch.nn.attention.varlen")

_PACKS = "packs into an object that shows the weight it was given, not what it made of it"
_HALF = "its packed weight is kept as float16 and shown as float32"
_TABLE = "the table is in an object that neither a trace nor a recording opens; unknown"
# Operators whose bytes the oracle cannot establish, each with the reason.
EXCEPTIONS = {
    **{f"{namespace}::{kind}": _PACKS for namespace in ("quantized", "_quantized") for kind in (
        "linear_prepack", "linear_prepack_fp16", "conv2d_prepack", "conv3d_prepack", "conv_transpose1d_prepack",
        "conv_transpose2d_prepack", "conv_transpose3d_prepack",
    )},
    "quantized::conv1d_prepack": _PACKS,
    "quantized::conv_prepack": _PACKS,
    "quantized::linear_dynamic_fp16": _HALF,
    "quantized::linear_relu_dynamic_fp16": _HALF,
    "quantized::embedding_byte": _TABLE,
    "quantized::embedding_4bit": _TABLE,
    "quantized::embedding_bag_byte": _TABLE,
    "quantized::embedding_bag_4bit": _TABLE,
    "aten::q_per_channel_scales": "what it returns is the quantized tensor's own and not new",
    "aten::q_per_channel_zero_points": "what it returns is the quantized tensor's own and not new",
    "aten::_make_per_channel_quantized_tensor": "refers to the scales instead of copying them, so that no result shows them",
    "aten::_native_multi_head_attention": "query, key and value of equal shape count once: in self-attention they are one tensor",
    "prims::inductor_random": "called by itself it draws from torch's generator; only the compiled kernel reads the seed",
    "prims::inductor_randint": "called by itself it draws from torch's generator; only the compiled kernel reads the seed",
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tensors of a few elements gain nothing from more, and threads wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def disagreements(name: str, found: list[Verdict]) -> list[str]:
    return [] if name in EXCEPTIONS else [describe(one) for one in found if one.state != "agrees"]


# --- the oracle --------------------------------------------------------------------------------------------------------------------

X, Y = rand(3, 4), rand(3, 4)
ROWS = torch.tensor([2, 0])
LOG_PROBABILITIES, CLASSES = rand(3, 4).log_softmax(1), torch.tensor([1, 3, 0])

# A call, what it reads and what it writes. Elements of 4 bytes, indices of 8.
KNOWN = {
    "both operands": (partial(torch.add, X, Y), 2 * 48, 48),
    "one row, expanded": (partial(torch.add, X, rand(1, 4).expand(3, 4)), 48 + 16, 48),
    "windows that overlap": (rand(9).unfold(0, 4, 1).exp, 9 * 4, 6 * 4 * 4),
    "every second element": (rand(3, 8)[:, ::2].exp, 48, 48),
    "no number": (partial(torch.add, X, 2.0), 48, 48),
    "in place": (partial(X.clone().mul_, Y), 2 * 48, 48),
    "into out": (partial(torch.mul, X, Y, out=torch.empty(3, 4)), 2 * 48, 48),
    "another dtype": (X.double, 48, 96),
    "a view": (X.t, 0, 0),
    "what is overwritten is not read": (partial(X.clone().copy_, Y), 48, 48),
    "what is filled is not read": (X.clone().zero_, 0, 48),
    "a shape is not read": (partial(torch.zeros_like, X), 0, 48),
    "both branches, though one is never taken": (partial(torch.where, torch.ones(3, 4, dtype=torch.bool), X, Y), 12 + 2 * 48, 48),
    "rows": (partial(torch.index_select, X, 0, ROWS), 2 * 16 + 2 * 8, 2 * 16),
    "rows that are added to": (partial(X.clone().index_add_, 0, ROWS, rand(2, 4)), 2 * 16 + 2 * 8 + 2 * 16, 2 * 16),
    "rows that are overwritten": (partial(X.clone().index_copy_, 0, ROWS, rand(2, 4)), 2 * 8 + 2 * 16, 2 * 16),
    "what the classes pick": (partial(aten.nll_loss_forward, LOG_PROBABILITIES, CLASSES, None, 1, -100), 3 * 4 + 3 * 8, 2 * 4),
    "saved, only for its shape": (
        partial(aten.nll_loss_backward, rand(), LOG_PROBABILITIES, CLASSES, None, 1, -100, rand()), 4 + 3 * 8 + 4, 48,
    ),
    "running statistics change": (
        partial(aten.native_batch_norm, X, None, None, torch.zeros(4), torch.ones(4), True, 0.1, 1e-5),
        48 + 2 * 16, 48 + 2 * 16 + 2 * 16,
    ),
    "positions that a window covers": (partial(aten.avg_pool2d, rand(1, 1, 5, 5), [1, 1], [2, 2]), 9 * 4, 9 * 4),
    "a mask beside the result": (partial(torch.native_dropout, X, 0.5, True), 48, 48 + 12),
    "the lower triangle": (rand(3, 3).tril, 6 * 4, 9 * 4),
}  # fmt: skip


def captured(body: Any) -> list[Sample]:
    collection = Collection()
    with torch.no_grad():
        collection.capture("", body)
    return [sample for found in collection.samples.values() for sample in found]


@pytest.mark.parametrize("name", KNOWN)
def test_the_oracle_knows_what_is_read_and_written(name):
    call, read, written = KNOWN[name]
    (sample,) = captured(call)
    assert Experiment(sample).bytes() == Bytes(read, written, read, written)


def test_storage_is_counted_once():
    assert storage(torch.empty(5, 3)) == 60
    assert storage(torch.empty(1, 3).expand(5, 3)) == 12
    assert storage(torch.empty(9).unfold(0, 4, 1)) == 36
    assert storage(torch.empty(4, 4, dtype=torch.bfloat16)[::2, ::2], None, torch.empty(0)) == 8


def test_another_figure_is_a_mismatch():
    (sample,) = captured(partial(torch.add, X, Y))
    right = judge(sample)
    assert right.state == "agrees"
    assert right.ours.work is not None
    for wrong in ({"bytes_read": 95}, {"bytes_read": 97}, {"bytes_written": 0}, {"bytes_written": 49}):
        assert replace(right, ours=replace(right.ours, work=replace(right.ours.work, **wrong))).state == "mismatch"
    assert replace(right, ours=CallCount("unknown", None, "other", "no formula")).state == "unknown"


# --- the table ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not torch.__version__.startswith("2.14"), reason="another torch may lack some of 2.14's operators")
def test_our_calls_run():
    assert samples.own().failed == {}


def test_bytes_of_every_call(collected):
    assert [line for name, found in collected.items() for line in disagreements(name, found)] == []


def test_flops_of_every_call_are_those_that_were_approved(collected):
    assert answers.flops([one for found in collected.values() for one in found]) == json.loads(answers.FLOPS.read_text())


def as_traced(call: Call) -> Signature:
    """The call as Kineto would have written it: no strings, no lists of optional tensors, numbers in a tensor's place as tensors."""

    def traced(kind: str, value: Any) -> Any:
        if isinstance(value, str) or kind == "List[Optional[Tensor]]":
            return None
        if kind == "Tensor" and isinstance(value, (bool, int, float)):
            return TensorArg((), {bool: "bool", int: "int64", float: "float64"}[type(value)], ())
        return value

    return replace(call.signature, args=tuple(map(traced, call.kinds, call.signature.args)))


def total(work: Work) -> tuple[int, int]:
    return work.bytes_read, work.bytes_written


_INDICES = "the indices, which are then not read"
_DEVICE = "the device, which decides what is noted beside the result, and as what"
# What a trace lacks and does change a figure, by operator.
_NOT_TRACED = {
    "index_put": _INDICES, "_index_put_impl": _INDICES, "_unsafe_index_put": _INDICES, "_unsafe_masked_index_put_accumulate": _INDICES,
    "_embedding_bag": _DEVICE, "_embedding_bag_forward_only": _DEVICE, "native_batch_norm": _DEVICE, "native_group_norm": _DEVICE,
    "_native_batch_norm_legit": _DEVICE, "_batch_norm_with_update": _DEVICE,
    "max": "whether the second tensor is another operand or the output", "min": "whether the second tensor is another operand",
}  # fmt: skip


def changed_by_tracing(found: list[Verdict]) -> list[str]:
    """Calls that count otherwise as a trace has them, without outputs too; no count at all is right."""
    changed = []
    for one in found:
        traced = count(as_traced(one.call))
        if traced.work is not None and one.ours.work is not None and total(traced.work) != total(one.ours.work):
            changed.append(f"{describe(one)}  traced: {total(traced.work)}")
    return changed


def test_what_a_trace_lacks_changes_no_figure(collected):
    changed = {name: changed_by_tracing(found) for name, found in collected.items()}
    assert {name: lines for name, lines in changed.items() if lines and plain_name(name) not in _NOT_TRACED} == {}
    assert {plain_name(name) for name, lines in changed.items() if lines} == set(_NOT_TRACED)


@pytest.fixture(scope="module")
def collected():
    """All verdicts by operator: on our calls and on torch's own samples."""
    if not answers.path_of().exists():
        pytest.skip(f"no answers are recorded for torch {torch.__version__}: python -m tests.roofline.formulas.answers")
    found: dict[str, list[Verdict]] = {}
    for verdict in answers.recorded():
        found.setdefault(verdict.call.name, []).append(verdict)
    return found


UNDECIDED = {"aten::as_strided_copy.out"}


def meet(one, other):
    """Whether the bounds of both have a number in common, those of what is read and those of what is written."""
    if one is None or other is None:
        return one is other
    reads = max(one.read, other.read) <= min(one.most_read, other.most_read)
    return reads and max(one.written, other.written) <= min(one.most_written, other.most_written)


@pytest.mark.slow
def test_the_recorded_answers_are_measured_again(collected):
    """The oracle finds the same bytes, and the same operators; how many samples torch makes differs a little between processors.

    Of the calls in UNDECIDED chance decides whether the first experiment finds the bytes or bounds of them: these must meet.
    """
    before = {(one.call.overload, one.call.signature): one for one in answers.recorded()}
    again = {(one.call.overload, one.call.signature): one for one in answers.measured()}
    both = before.keys() & again.keys()
    differing = {key for key in both if key[0] not in UNDECIDED and before[key].oracle != again[key].oracle}
    differing |= {key for key in both if key[0] in UNDECIDED and not meet(before[key].oracle, again[key].oracle)}
    assert differing == set()
    assert {overload for overload, _ in before} == {overload for overload, _ in again}
    assert len(before.keys() ^ again.keys()) <= 0.01 * len(before)
    assert [describe(one) for one in again.values() if one.call.name not in EXCEPTIONS and one.state != "agrees"] == []


def words(text: str) -> frozenset[str]:
    return frozenset(word if "::" in word else f"aten::{word}" for word in text.split())


# Operators for which the dispatcher has something to call on a CPU, and which cannot be tried there.
_REASONS = {
    "its layout is oneDNN's or MKL's own, whose bytes cannot be looked at": """to_mkldnn mkl::_mkl_linear
        mkl::_mkl_reorder_linear_weight mkldnn::_reorder_convolution_transpose_weight mkldnn::_reorder_convolution_weight
        mkldnn::_reorder_linear_weight mkldnn::_reorder_mkldnn_rnn_layer_weight mkldnn_prepacked::conv2d_prepack
        onednn::linear_prepack_fp16 onednn::qconv2d_pointwise onednn::qconv_pointwise onednn::qconv_prepack
        onednn::qlinear_pointwise onednn::qlinear_prepack""",
    "its tensors are sparse or nested": """_indices_copy _values_copy ccol_indices_copy col_indices_copy crow_indices_copy
        indices_copy row_indices_copy values_copy _sparse_addmm _nested_get_values_copy _nested_tensor_from_tensor_list
        _nested_view_from_buffer_copy _nested_view_from_jagged_copy""",
    "its weights are in objects, or in tensors that hold an object, which nothing opens": """quantized_gru quantized_lstm
        quantized::make_quantized_cell_params quantized::make_quantized_cell_params_dynamic quantized::embedding_bag_prepack
        quantized::linear_prepack_legacy quantized::linear_prepack_fp16_legacy _quantized::linear_prepack_fp16_legacy
        _quantized::_wrapped_linear_prepack _quantized::_wrapped_quantized_linear_prepacked quantized::linear_unpack
        quantized::linear_unpack_fp16 _quantized::wrapped_fbgemm_pack_gemm_matrix_fp16 _quantized::wrapped_fbgemm_linear_fp16_weight""",
    "only forward-mode differentiation in inference mode calls it": "_fw_primal_copy _make_dual_copy",
    "it is registered for every device and calls a kernel of CUDA": """torch_attn::_varlen_attn torch_attn::_varlen_attn_out
        torch_attn::_varlen_attn_backward""",
    "it needs a library or a device that is not everywhere": """_resize_output _nnpack_spatial_convolution _pin_memory prims::device_put
        _scaled_grouped_mm_v2 quantized::int4mm_packed_weight_cpu torchvision::qnms torchvision::qroi_align""",
    "it only says that there is no kernel": """convolution_overrideable convolution_backward_overrideable
        _scaled_dot_product_fused_attention_overrideable _scaled_dot_product_fused_attention_overrideable_backward""",
}
NOT_ON_A_CPU = {name: reason for reason, names in _REASONS.items() for name in words(names)}

T = TensorArg
_IMAGE, _GRADIENT, _FILTERS = T((2, 4, 5, 5)), T((2, 6, 3, 3)), T((6, 4, 3, 3))  # 800, 432 and 864 bytes
_SIX, _ZEROS, _HALVES = T((6,)), T((6,), "int32"), T((32, 32), "float16")  # 24, 24 and 2048 bytes
_ONES, _NONES, _PLAIN = (1,) * 3, (0,) * 3, ("none", (), "")
_PACKED, _META = T((32, 16), "float16"), T((32, 2), "int16")  # half of the elements, and which they are: 1024 and 128 bytes
# Operators that cannot be tried here and have a formula of their own: arguments, results where they are needed, read, written.
BY_HAND: dict[str, tuple[tuple[Any, ...], tuple[TensorArg, ...] | None, int, int]] = {
    **{name: ((T((4, 5)),), (T((2, 6), "int64"),), 96, 96) for name in words(
        "_indices_copy _values_copy ccol_indices_copy col_indices_copy crow_indices_copy indices_copy row_indices_copy values_copy"
    )},
    # four of 16 elements, each with an index of 8 bytes for its row and its column
    "aten::_sparse_addmm": ((T((4, 3)), T((4, 4), stored=(4, 4 * 4 + 4 * 16)), T((4, 3)), 1, 1), None, 48 + 80 + 48, 48),
    "mkl::_mkl_reorder_linear_weight": ((T((4, 8)), 5), None, 128, 128),
    "mkldnn::_reorder_linear_weight": ((T((4, 8)), None), None, 128, 128),
    "mkldnn::_reorder_convolution_weight": ((_FILTERS, (0, 0), (1, 1), (1, 1), 1, None), None, 864, 864),
    "mkldnn::_reorder_convolution_transpose_weight": ((_FILTERS, (0, 0), (0, 0), (1, 1), (1, 1), 1, None), None, 864, 864),
    "mkldnn::_reorder_mkldnn_rnn_layer_weight": ((T((16, 3)), T((16, 4)), 4, False, True, False, None), None, 448, 448),
    "aten::mkldnn_reorder_conv2d_weight": ((_FILTERS, (0, 0), (1, 1), (1, 1), 1, None), None, 864, 864),
    "aten::mkldnn_reorder_conv3d_weight": ((T((3, 2, 2, 2, 2)), (0,) * 3, (1,) * 3, (1,) * 3, 1, None), None, 192, 192),
    # input, weight, its scales and zero points, bias -> uint8, or float32 where the dtype says so
    "onednn::qconv_pointwise": (
        (T((1, 4, 6, 6), "uint8"), 0.1, 0, T((6, 4, 3, 3), "int8"), _SIX, _ZEROS, _SIX, (1, 1), (0, 0), (1, 1), 1, 0.1, 0, 0, *_PLAIN),
        None, 144 + 216 + 3 * 24, 6 * 4 * 4,
    ),
    "onednn::qconv1d_pointwise": (
        (T((1, 4, 6), "uint8"), 0.1, 0, T((6, 4, 3), "int8"), _SIX, _ZEROS, _SIX, (1,), (0,), (1,), 1, 0.1, 0, 0, *_PLAIN),
        None, 24 + 72 + 3 * 24, 6 * 4,
    ),
    "onednn::qconv3d_pointwise": (
        (T((1, 4, 3, 3, 3), "uint8"), 0.1, 0, T((6, 4, 2, 2, 2), "int8"), _SIX, _ZEROS, _SIX, _ONES, _NONES, _ONES, 1, 0.1, 0, 6,
         *_PLAIN),
        None, 108 + 192 + 3 * 24, 4 * 6 * 8,
    ),
    "onednn::linear_relu_dynamic_fp16": ((T((5, 8)), T((8, 4), "float16"), T((4,))), None, 160 + 64 + 16, 80),
    "quantized::linear_unpack": (((T((4, 8), "qint8"), T((4,))),), (T((4, 8), "qint8"), T((4,))), 32 + 16, 32 + 16),
    "quantized::linear_unpack_fp16": (((T((4, 8)), T((4,))),), (T((4, 8)), T((4,))), 128 + 16, 128 + 16),
    "aten::_cudnn_rnn_flatten_weight": (
        ((T((16, 3)), T((16, 4)), T((16,)), T((16,))), 4, 3, 2, 4, 0, 1, False, False), None, 4 * (48 + 64 + 32), 4 * (48 + 64 + 32),
    ),
    "aten::_fill_mem_eff_dropout_mask_": ((T((8, 8)), 0.1, 1, 2), None, 0, 256),
    "aten::_masked_scale": ((_IMAGE, T((2, 4, 5, 5), "uint8"), 2.0), None, 800 + 200, 800),
    "aten::_cslt_compress": ((_HALVES,), (T((1152,), "uint8"),), 2048, 1152),
    "aten::_to_sparse_semi_structured": ((_HALVES,), (_PACKED, _META), 2048, 1024 + 128),
    "aten::_sparse_semi_structured_tile": (
        (_HALVES, "", True), (_PACKED, _META, _PACKED, _META, T((4, 4), "uint8")), 2048, 2 * (1024 + 128) + 16,
    ),
    "aten::_sparse_semi_structured_apply": ((_HALVES, T((4, 4), "uint8")), (_PACKED, _PACKED), 2048 + 16, 2 * 1024),
    "aten::_sparse_semi_structured_apply_dense": ((_HALVES, T((4, 4), "uint8")), (_HALVES,), 2048 + 16, 2048),
    "aten::_sparse_semi_structured_addmm": (
        (T((32,)), _PACKED, _META, T((32, 8), "float16"), 1, 1, None), (T((32, 8), "float16"),), 128 + 1024 + 128 + 512, 512,
    ),
    # the input gives only its dtype; running statistics are read and written
    "aten::batch_norm_gather_stats": (
        (_IMAGE, T((3, 4)), T((3, 4)), T((4,)), T((4,)), 0.1, 1e-5, 50), None, 2 * 48 + 2 * 16, 2 * 16 + 2 * 16,
    ),
    "aten::cudnn_convolution_backward_bias": ((_GRADIENT,), None, 432, 24),
    "aten::miopen_convolution_backward_bias": ((_GRADIENT,), None, 432, 24),
    # gradient [2, 6, 7, 7] with a weight of 4 inputs and 6 outputs -> [2, 4, 5, 5]
    "aten::cudnn_convolution_transpose_backward_input": (
        (T((2, 6, 7, 7)), T((4, 6, 3, 3)), (0, 0), (1, 1), (1, 1), 1, False, False, False), None, 2352 + 864, 800,
    ),
    "aten::miopen_convolution_transpose_backward_input": (
        (T((2, 6, 7, 7)), T((4, 6, 3, 3)), (0, 0), (1, 1), (1, 1), 1, False, False), None, 2352 + 864, 800,
    ),
    "aten::miopen_ctc_loss": (
        (T((6, 2, 5)), T((5,), "int32"), (6, 6), (3, 2), 0, False, True), (T((2,)), T((6, 2, 5))), 240 + 20, 8 + 240,
    ),
    "aten::tanhshrink": ((_IMAGE,), None, 800, 800),
}  # fmt: skip


def explicit(name: str) -> bool:
    """Whether a recording meets this operator, and it does something."""
    plain = name.removeprefix("aten::")
    return plain not in DECOMPOSED and plain not in SOMETIMES_DECOMPOSED and name not in NOTHING


NOTHING = operators("views", "metadata")
COUNTED = sorted(
    name
    for name, category in registered().items()
    if category not in ("composite", "communication")
    and explicit(name)
    and (name not in UNCOUNTED or name in EXCEPTIONS)
    and is_torchs(name)
)


CPU_KEYS = ("CPU", "QuantizedCPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd")


def runs_on_a_cpu(name: str) -> bool:
    """Whether this torch has the operator, with something that it would call on a CPU."""
    namespace, _, plain = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace, None), plain, None) if plain else None
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return False
    overloads = [getattr(packet, overload) for overload in packet.overloads()]
    # torch generates the out= form of every operator, for a CPU too, and it calls the plain one
    own = [overload for overload in overloads if not any(argument.is_out for argument in overload._schema.arguments)]
    return any(
        torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), key) for overload in own or overloads for key in CPU_KEYS
    )


def formula_of(name: str) -> str:
    """What counts an operator: a function, or rows. That the argument names it was given are torch's is tested where they are."""
    registered()
    options = FORMULAS[name].formula.paragraph.heading.options
    return next((option.replace("backward_transposed", "backward") for option in options if option.startswith("by=")), "rows")


@cache
def hand_written() -> frozenset[str]:
    """Operators that other tests count: named by a string of their own, or as ``aten.NAME`` or ``torch.ops.X.NAME``."""
    here = Path(__file__)
    found = set()
    for path in here.parent.glob("test_*.py"):
        if path != here:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
            # without comments
            found |= set(re.findall(r"\b(?:aten|torch\.ops\.\w+)\.(\w+)", ast.unparse(tree)))
    return frozenset(found)


def sibling(name: str) -> str:
    """``add_`` -> ``add`` and back."""
    return name.removesuffix("_") if name.endswith("_") else f"{name}_"


@pytest.mark.ci
def test_the_bytes_of_every_operator_are_tested(collected):
    """What cannot run here has the formula of something that can, or is counted by hand."""
    exercised = {formula_of(name) for name in collected if name in registered()}
    absent = [name for name in COUNTED if name not in collected and sibling(name) not in collected]
    assert [name for name in absent if runs_on_a_cpu(name) and name not in NOT_ON_A_CPU] == [], "add calls to calls.py"
    by_hand = {name for name in absent if name in BY_HAND or {name, name.partition("::")[2]} & hand_written()}
    assert [name for name in absent if name not in by_hand and formula_of(name) not in exercised] == []


def test_every_operator_that_samples_call_is_in_the_table(collected):
    unknown = {name for name in collected if name not in registered() and sibling(name) not in registered()}
    assert {name for name in unknown if name.removeprefix("aten::") not in DECOMPOSED} == set()


def test_the_exceptions_are_needed(collected):
    agreeing = {name for name in EXCEPTIONS if name not in collected or all(found.state == "agrees" for found in collected[name])}
    assert agreeing == set()


def test_what_does_not_run_here_is_said_for_a_reason(collected):
    assert {name for name in NOT_ON_A_CPU if name in collected or not runs_on_a_cpu(name)} == set()


@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_bytes_by_hand(name):
    args, outputs, read, written = BY_HAND[name]
    outcome = count(Signature(name, args), outputs=outputs)
    assert outcome.work is not None, outcome
    assert total(outcome.work) == (read, written)
