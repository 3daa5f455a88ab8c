"""The one question asked of the formulas: what must this call compute and move?

Operators that PyTorch itself decomposes (``decomposed.py``) are composite wherever what they call is counted;
a formula for one of them speaks only where nothing below it does, as on devices that have a kernel of their
own for it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.profiler.read.work_ranges import DeclaredWork
from rooflines.roofline.count.formulas import library_names
from rooflines.roofline.count.formulas.decomposed import DECOMPOSED, decomposes
from rooflines.roofline.count.formulas.families import load_installed
from rooflines.roofline.count.formulas.lengths import Sequences
from rooflines.roofline.count.formulas.record import Work
from rooflines.roofline.count.formulas.registry import FORMULAS, CallCount, Entry, Hints, count_by
from rooflines.roofline.count.formulas.tables import load_families, load_family_of

# The reason of an operator that nobody has written a formula for.
NO_FORMULA = "no formula"
IS_COMMUNICATION = "communication is bound by the link, not by the device"
# Names that the autograd engine, optimizers, FSDP, torch.compile, torchao, FBGEMM and SGLang's profiler give
# to what they call; the operators are inside.
_COMPOSITE_NAMES = re.compile(
    r"autograd::engine::evaluate_function: |torch::autograd::|torch::jit::|torch(::|\.)distributed(::|\.)"
    r"|\w+Backward(AutogradNestedTensor)?\d+\Z"
    r"|CopyBackwards\Z|CopySlices\Z|GraphRoot\Z|GeneratedBackwardFor_|torch/"
    r"|Optimizer\.|ProfilerStep#|enumerate\(DataLoader\)|DistributedDataParallel\."
    r"|TorchDynamo Cache Lookup|Pregraph bytecode|AOTDispatcher "
    r"|sglang_profiler::|torchao::(choose_qparams_affine|choose_scale_float8"
    r"|(de)?quantize_affine(_float8_non_decomposed)?)\Z|_Round\Z"
    r"|fbgemm::\w+_embedding_\w+_(pt2_wrapper|function_pt2|function_cpu)\Z"
    r"|(fsdp|bucketing|flex_lib)::|symm_mem::_low_contention_|inductor::accumulate_grad_\Z"
    r"|quantized_decomposed::(_?choose_qparams_per_token|(de)?quantize_per_channel_group"
    r"|convert_element_type|fake_quant_per_channel)"
)
COMPILED = re.compile(r"Torch-Compiled Region|CompiledFunction|TorchDynamo |## Call CompiledFxGraph")
_OVERLOAD = re.compile(r"(\w+::\w+)\.\w+\Z")
_TRITON = re.compile(r"triton_\w+_fused|triton_\w+_\d+\Z")
_FUSED = re.compile(r"(graph_\d+_)?cpp_\w*fused_")
_COMMUNICATION = re.compile(r"(c10d|_?c10d_functional|symm_mem|nccl|gloo|mpi|ucc)(::|:)|record_param_comms")
# Why operators of these names have no count.
_REASONS = {
    COMPILED: "not compiled by inductor in this recording: kernels in it may leave no event of their own",
    _FUSED: "a fused C++ kernel: traces do not record its arguments; rooflines profile notes them",
    _COMMUNICATION: IS_COMMUNICATION,
}


def _generated(name: str) -> Entry | None:
    """The formula of the kernels that inductor generates: one for all of their names."""
    if not _TRITON.match(name):
        return None
    from rooflines.roofline.count.formulas import generated_kernels

    return Entry(
        generated_kernels.category_of(name),
        lambda signature, _: generated_kernels.work_of(signature),
        False,
        "torch",
    )


def registered() -> dict[str, str]:
    """Every registered operator with its category, those of installed packages included."""
    load_families()
    load_installed()
    return {name: entry.category for name, entry in FORMULAS.items()}


def count(
    signature: Signature,
    output_bytes: int | None = None,
    parameter_elements: int | None = None,
    parameter_dtype: str = "float32",
    outputs: tuple[TensorArg, ...] | None = None,
    sequences: Sequences | None = None,
) -> CallCount:
    """The work of one call. Never raises: what cannot be counted is ``unknown`` with a reason.

    ``outputs`` are the tensors that the call returned, if they were recorded. ``output_bytes`` is what the
    call allocated, where the trace has memory events. It is used only where the recorded inputs do not
    determine the output: ``aten::index``, ``nonzero``, the dtype of ``aten::cat``'s list, which traces do not
    record, and lists of more than 30 tensors, which they leave out. ``parameter_elements`` is how many
    elements of parameters a fused or foreach optimizer call updates, of ``parameter_dtype``: its lists are
    such long ones. ``sequences`` are the lengths of packed sequences, where a server's step records them.
    """
    if signature.args and isinstance(signature.args[0], DeclaredWork):
        one = signature.args[0]
        work = Work(one.matrix_flops, one.other_flops, one.bytes_read, one.bytes_written, one.precision)
        return CallCount("counted", work, "other")
    # ``aten::add.Tensor`` -> ``aten::add`` and ``_C::rms_norm.default`` -> ``_C::rms_norm``; other names, and
    # those with a formula, as they are.
    name = signature.name if signature.name in FORMULAS else _OVERLOAD.sub(r"\1", signature.name)
    entry = FORMULAS.get(name)
    if entry is None:
        load_family_of(name, library_names.canonical(name))
        load_installed()
        entry = FORMULAS.get(name) or FORMULAS.get(library_names.canonical(name)) or _generated(name)
    if entry is None:
        if name.removeprefix("aten::") in DECOMPOSED or _COMPOSITE_NAMES.match(name):
            return CallCount("composite", None, "other")
        reason = next((why for pattern, why in _REASONS.items() if pattern.match(name)), NO_FORMULA)
        category = "communication" if reason == IS_COMMUNICATION else "other"
        return CallCount("unknown", None, category, reason)
    hints = Hints(outputs, output_bytes, parameter_elements, parameter_dtype, sequences)
    plain = signature if name == signature.name else replace(signature, name=name)
    formula_of = entry.formula
    if entry.origin == "library":
        plain = library_names.given(plain)
    found = count_by(lambda: formula_of(plain, hints), entry.category)
    passed = found.kind == "counted" and (
        entry.wraps or decomposes(name.removeprefix("aten::"), signature.args)
    )
    return replace(found, decomposes=True) if passed else found


@cache
def lacks_formula(name: str) -> bool:
    """Whether the operator is only counted by what it calls."""
    found = count(Signature(name))
    return found.kind == "composite" or found.reason == NO_FORMULA
