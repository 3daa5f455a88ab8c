"""The registry: what is counted, dispatched and unknown, and that no signature whatever makes it raise."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflines.profiler.read.signature import DTYPE_BYTES, MISSING, Signature, TensorArg
from rooflines.roofline.analysis import CATEGORIES
from rooflines.roofline.count.formulas import CallCount, Work, count, formula
from rooflines.roofline.count.formulas.counter import registered
from rooflines.roofline.count.formulas.registry import FORMULAS
from tests.roofline.formulas.by_hand import tensor


def test_categories_are_those_of_the_analysis():
    assert set(registered().values()) <= set(CATEGORIES)


def test_importing_the_formulas_loads_no_torch():
    code = "import sys, rooflines.roofline.count.formulas; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_second_formula_for_an_operator_is_refused_by_name():
    with pytest.raises(ValueError, match="'aten::mm' is registered twice"):
        formula("aten::mm", category="matmul")(lambda signature: Work())


@pytest.mark.parametrize(
    "name",
    [
        "aten::to", "aten::contiguous", "aten::reshape", "aten::einsum", "AddmmBackward0", "torch::autograd::AccumulateGrad",
        "GeneratedBackwardFor_torchvision_roi_align_defaultBackward",
        "autograd::engine::evaluate_function: ConvolutionBackward0", "Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad",
        "ProfilerStep#3", "fsdp::all_gather_copy_in", "symm_mem::_low_contention_all_gather", "bucketing::_pre_bucket_reduce_scatter",
        "quantized_decomposed::choose_qparams_per_token_asymmetric", "quantized_decomposed::convert_element_type.no_fuse",
    ],
)  # fmt: skip
def test_what_only_dispatches_is_composite(name):
    assert count(Signature(name, (tensor(2, 3),))) == CallCount("composite", None, "other")


@pytest.mark.parametrize("name", ["c10d_functional::all_reduce", "symm_mem::all_to_all_vdev", "c10d::new", "gloo:new"])
def test_other_messages_between_ranks_are_communication(name):
    assert count(Signature(name, (tensor(2, 3),))).category == "communication"


@pytest.mark.parametrize("name", ["Torch-Compiled Region: 0/0", "MyFunctionBackward", "mylib::op"])
def test_what_may_compute_without_an_event_of_its_own_is_unknown(name):
    found = count(Signature(name, (tensor(2, 3),)))
    assert found.kind == "unknown"
    assert found.reason


@pytest.mark.parametrize(
    "name", ["aten::view", "aten::t", "aten::expand", "aten::as_strided", "aten::empty", "aten::resize_", "detach"]
)
def test_views_and_allocations_are_counted_as_nothing(name):
    assert count(Signature(name, (tensor(2, 3), (6,)))) == CallCount("counted", Work(), "other")


def test_unknown_operators_say_so():
    assert count(Signature("mylib::secret_op", (tensor(2),))) == CallCount("unknown", None, "other", "no formula")
    assert count(Signature("c10d::allreduce_", ())).category == "communication"


def test_an_overload_name_is_the_same_operator():
    assert count(Signature("aten::add.Tensor", (tensor(2), tensor(2)))) == count(Signature("aten::add", (tensor(2), tensor(2))))


def test_an_overload_name_of_a_librarys_operator_is_the_same_operator():
    bf16, fp8 = TensorArg((3, 16), "bfloat16"), TensorArg((3, 16), "float8_e4m3fn")
    scales = TensorArg((3, 1)), TensorArg((1, 3))
    for name, args in (
        ("vllm::unified_attention_with_output", (TensorArg((3, 2, 8), "bfloat16"),) * 4),
        ("_C::silu_and_mul", (TensorArg((3, 8), "bfloat16"), bf16)),
        ("sgl_kernel::fp8_scaled_mm", (fp8, TensorArg((16, 3), "float8_e4m3fn"), *scales)),
        ("mslk::f8f8bf16_rowwise", (fp8, fp8, *scales)),
    ):
        plain = count(Signature(name, args))
        assert plain.kind != "unknown" or plain.reason != "no formula"
        assert count(Signature(f"{name}.default", args)) == plain


def test_a_namespace_that_moved_has_the_same_formulas():
    args = TensorArg((3, 16), "bfloat16"), TensorArg((5, 8), "int8"), TensorArg((1, 5)), TensorArg((1, 5))
    assert count(Signature("mslk::bf16i4bf16_rowwise", args)) == count(Signature("fbgemm::bf16i4bf16_rowwise", args))
    assert count(Signature("mslk::bf16i4bf16_rowwise", args)).kind == "counted"


def test_shapes_that_were_not_recorded_are_unknown_not_zero():
    for name in ("aten::add", "aten::conv2d", "aten::batch_norm", "aten::copy_", "aten::sum", "aten::cat", "aten::_foreach_add_"):
        outcome = count(Signature(name, ()))
        assert (outcome.kind, outcome.work) == ("unknown", None)
        assert "not recorded" in outcome.reason, name


def test_only_what_works_on_one_element_is_counted_without_arguments():
    works = {name: count(Signature(name, ())).work for name in registered()}
    one_element = {"aten::_amp_update_scale", "aten::_amp_update_scale_", "aten::scalar_tensor"}
    assert {name for name, work in works.items() if work not in (None, Work())} == one_element


anything = st.deferred(
    lambda: st.one_of(
        st.none(), st.just(MISSING), st.booleans(), st.integers(-3, 2**40), st.floats(), st.text(max_size=3),
        st.builds(
            TensorArg,
            st.lists(st.integers(-2, 9), max_size=5).map(tuple),
            st.sampled_from([*DTYPE_BYTES, "no such dtype"]),
            st.none() | st.lists(st.integers(-1, 9), max_size=5).map(tuple),
        ),
        st.lists(anything, max_size=3).map(tuple),
    )
)  # fmt: skip


@pytest.mark.ci
@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(registered())), st.lists(anything, max_size=12), st.none() | st.integers(-1, 2**40))
def test_no_signature_makes_it_raise(name, arguments, output_bytes):
    outcome = count(Signature(name, tuple(arguments)), output_bytes)
    assert outcome.kind in ("counted", "composite", "unknown")
    assert (outcome.work is not None) == (outcome.kind == "counted")
    assert outcome.kind == "composite" or bool(outcome.reason) == (outcome.kind == "unknown")
    if outcome.work is not None:
        work = outcome.work
        assert min(work.matrix_flops, work.other_flops, work.bytes_read, work.bytes_written) >= 0
        assert all(type(value) is int for value in (work.flops, work.bytes))
        assert work.precision in (None, "fp64", "fp32", "bf16", "fp16", "fp8", "fp4", "int8")


@given(st.text(max_size=30))
def test_no_name_makes_it_raise(name):
    assert count(Signature(name, (tensor(2, 3),))).kind in ("counted", "composite", "unknown")


def test_a_users_formula_replaces_that_of_a_library(monkeypatch):
    """Also where the library's formulas are loaded later; a second one of the user's is an error."""
    monkeypatch.setitem(FORMULAS, "_C::rms_norm", None)  # what was there returns
    del FORMULAS["_C::rms_norm"]
    once = formula("_C::rms_norm", category="other")
    once(lambda signature: Work(bytes_read=17))
    assert count(Signature("_C::rms_norm", (tensor(3, 5), tensor(3, 5)))).work == Work(bytes_read=17)
    assert count(Signature("_C::silu_and_mul", (tensor(3, 5), tensor(3, 10)))).kind == "counted"
    with pytest.raises(ValueError, match="'_C::rms_norm' is registered twice"):
        once(lambda signature: Work())


def test_operators_of_libraries_are_those_of_their_files():
    registered()
    assert {entry.origin for name, entry in FORMULAS.items() if name.startswith("aten::")} == {"torch"}
    assert FORMULAS["vllm::mrope"].origin == "library"
