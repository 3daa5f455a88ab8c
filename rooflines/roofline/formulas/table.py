"""The registry of formulas and the one question asked of it: what must this call compute and move?

An operator is in one of four places. *Counted*: a formula, registered by ``@formula``. *Zero on purpose*: a formula too, which returns
``Work()`` (views, allocation, metadata). *Composite*: it only calls other operators; they are counted, it is not. *Unknown*: everything
else, said with a reason.

Operators that PyTorch itself decomposes (``decomposed.py``) are composite wherever what they call is counted; a formula for one of them
speaks only where nothing below it does, as on devices that have a kernel of their own for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import Final, Literal

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.profiler.work_ranges import DeclaredWork
from rooflines.roofline.formulas import shapes
from rooflines.roofline.formulas.arguments import Dispatches, NotCounted
from rooflines.roofline.formulas.decomposed import DECOMPOSED, decomposes
from rooflines.roofline.formulas.families import load_families, load_family_of, operators
from rooflines.roofline.formulas.plugins import load_installed
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.sequences import Sequences

Formula = Callable[[Signature], Work]


@dataclass(frozen=True, slots=True)
class CallCount:
    """The answer for one signature: its work, or that it dispatches to other operators, or why it is unknown.

    ``decomposes`` says that the work counts only where no operator below the call is counted.
    """

    kind: Literal["counted", "composite", "unknown"]
    work: Work | None
    category: str
    reason: str = ""
    decomposes: bool = False


@dataclass(frozen=True, slots=True)
class Hints:
    """Known facts about a call besides its arguments; an unknown field is None.

    ``outputs`` are the tensors that it returned, which a recording has and a trace has not. ``output_bytes`` is what the call
    allocated. ``parameter_elements`` is how many elements of parameters it updates and ``parameter_dtype`` their dtype. ``sequences``
    are the lengths of the packed sequences of a server's step.
    """

    outputs: tuple[TensorArg, ...] | None = None
    output_bytes: int | None = None
    parameter_elements: int | None = None
    parameter_dtype: str = "float32"
    sequences: Sequences | None = None

    def results(self, signature: Signature) -> tuple[TensorArg, ...]:
        """The tensors that the call returns: as recorded, else as torch's own shape inference has them; raises NotCounted."""
        found = self.outputs if self.outputs is not None else shapes.infer(signature)
        if found is None:
            raise NotCounted("output shapes not known")
        return found


HintedFormula = Callable[[Signature, Hints], Work]


@dataclass(frozen=True, slots=True)
class _Entry:
    category: str
    formula: HintedFormula
    wraps: bool = False
    library: bool = False


_FORMULAS: Final[dict[str, _Entry]] = {}
# The reason of an operator that nobody has written a formula for.
NO_FORMULA: Final = "no formula"
# Why kernels of a layer that is found by its name or number have no work.
LAYER: Final = "weights and states of the layer are not arguments"
IS_COMMUNICATION: Final = "communication is bound by the link, not by the device"
# FLOPs or bytes of one call. More is a corrupt trace: at 1e18 FLOP/s this takes two weeks.
_MOST: Final = 1 << 80

# Names that the autograd engine, optimizers, FSDP, torch.compile, torchao, FBGEMM and SGLang's profiler give to what they call; the
# operators are inside.
_COMPOSITE_NAMES: Final = re.compile(
    r"autograd::engine::evaluate_function: |torch::autograd::|torch::jit::|torch(::|\.)distributed(::|\.)|\w+Backward\d+\Z"
    r"|CopyBackwards\Z|CopySlices\Z|GraphRoot\Z|GeneratedBackwardFor_torchvision_|torch/"
    r"|Optimizer\.|ProfilerStep#|enumerate\(DataLoader\)|DistributedDataParallel\."
    r"|TorchDynamo Cache Lookup|Pregraph bytecode|AOTDispatcher "
    r"|sglang_profiler::|torchao::(choose_qparams_affine|choose_scale_float8|(de)?quantize_affine(_float8_non_decomposed)?)\Z|_Round\Z"
    r"|fbgemm::\w+_embedding_\w+_(pt2_wrapper|function_pt2|function_cpu)\Z"
    r"|(fsdp|bucketing|flex_lib)::|symm_mem::_low_contention_|inductor::accumulate_grad_\Z"
    r"|quantized_decomposed::(_?choose_qparams_per_token|(de)?quantize_per_channel_group|convert_element_type|fake_quant_per_channel)"
)
COMPILED: Final = re.compile(r"Torch-Compiled Region|CompiledFunction|TorchDynamo |## Call CompiledFxGraph")
_OVERLOAD: Final = re.compile(r"(\w+::\w+)\.\w+\Z")
_TRITON: Final = re.compile(r"triton_\w+_fused|triton_\w+_\d+\Z")
_FUSED: Final = re.compile(r"(graph_\d+_)?cpp_\w*fused_")
_COMMUNICATION: Final = re.compile(r"(c10d|_?c10d_functional|symm_mem|nccl|gloo|mpi|ucc)(::|:)|record_param_comms")


def words(text: str) -> tuple[str, ...]:
    """Names written one after the other, as the long tables have them."""
    return tuple(text.split())


def aten(text: str) -> tuple[str, ...]:
    """``"relu gelu"`` -> ``("aten::relu", "aten::gelu")``."""
    return tuple(f"aten::{name}" for name in words(text))


def _register(names: tuple[str, ...], entry: _Entry) -> None:
    libraries = _libraries()
    # A module of a library may be the first to import a family of PyTorch's operators.
    entry = replace(entry, library=libraries.is_loading() and names[0] not in operators())
    for name in names:
        # A formula of a user may be for an operator that has one here. That of a library's operator is replaced.
        load_family_of(name)
        if not entry.library:
            libraries.load_library_of(name)
        before = _FORMULAS.get(name)
        if before is not None and (entry.library or not before.library):
            raise ValueError(f"operator '{name}' is registered twice")
        _FORMULAS[name] = entry


def formula(*names: str, category: str, wraps: bool = False) -> Callable[[Formula], Formula]:
    """Register ``f(signature) -> Work`` for these operators; ValueError names an operator that has one already, unless it is one of
    the formulas for other libraries (``libraries/``), which a user's formula replaces.

    ``wraps`` says that they may call other operators for all of their work: where an operator below is counted, only that one counts.
    """

    def register(function: Formula) -> Formula:
        _register(names, _Entry(category, lambda signature, _: function(signature), wraps))
        return function

    return register


def dispatches(*names: str, category: str, reason: str = "") -> None:
    """Register operators that only hand their work to others; ``reason`` says why kernels that one launches itself have no work."""

    @formula(*names, category=category)
    def handed_on(_: Signature) -> Work:
        raise Dispatches(reason)


def hinted_formula(*names: str, category: str, wraps: bool = False) -> Callable[[HintedFormula], HintedFormula]:
    """Register ``f(signature, hints) -> Work`` for operators whose recorded arguments do not determine what they move."""

    def register(function: HintedFormula) -> HintedFormula:
        _register(names, _Entry(category, function, wraps))
        return function

    return register


def _generated(name: str) -> _Entry | None:
    """The formula of the kernels that inductor generates: one for all of their names."""
    if not _TRITON.match(name):
        return None
    module = import_module("rooflines.roofline.formulas.generated_kernels")
    return _Entry(module.category_of(name), lambda signature, _: module.work_of(signature))


def _libraries() -> ModuleType:
    """The formulas of other libraries, whose modules import this one."""
    return import_module("rooflines.roofline.formulas.libraries")


def registered() -> dict[str, str]:
    """Every registered operator with its category, those of installed packages included."""
    load_families()
    _libraries().load_all()
    load_installed()
    return {name: entry.category for name, entry in _FORMULAS.items()}


def count(
    signature: Signature,
    output_bytes: int | None = None,
    parameter_elements: int | None = None,
    parameter_dtype: str = "float32",
    outputs: tuple[TensorArg, ...] | None = None,
    sequences: Sequences | None = None,
) -> CallCount:
    """The work of one call. Never raises: what cannot be counted is ``unknown`` with a reason.

    ``outputs`` are the tensors that the call returned, if they were recorded. ``output_bytes`` is what the call allocated, where the
    trace has memory events. It is used only where the recorded inputs do not determine the output: ``aten::index``, ``nonzero``, the
    dtype of ``aten::cat``'s list, which traces do not record, and lists of more than 30 tensors, which they leave out.
    ``parameter_elements`` is how many elements of parameters a fused or foreach optimizer call updates, of ``parameter_dtype``: its
    lists are such long ones. ``sequences`` are the lengths of packed sequences, where a server's step records them.
    """
    if signature.args and isinstance(signature.args[0], DeclaredWork):
        one = signature.args[0]
        work = Work(one.matrix_flops, one.other_flops, one.bytes_read, one.bytes_written, one.precision)
        return CallCount("counted", work, "other")
    name = _without_overload(signature.name)
    entry = _FORMULAS.get(name)
    if entry is None:
        load_family_of(name)
        libraries = _libraries()
        libraries.load_library_of(name)
        load_installed()
        entry = _FORMULAS.get(name) or _FORMULAS.get(libraries.canonical(name)) or _generated(name)
    if entry is None:
        if name.removeprefix("aten::") in DECOMPOSED or _COMPOSITE_NAMES.match(name):
            return CallCount("composite", None, "other")
        if COMPILED.match(name):
            return CallCount(
                "unknown", None, "other", "not compiled by inductor in this recording: kernels in it may leave no event of their own"
            )
        if _FUSED.match(name):
            return CallCount(
                "unknown", None, "other", "a fused C++ kernel: traces do not record its arguments; rooflines profile notes them"
            )
        if _COMMUNICATION.match(name):
            return CallCount("unknown", None, "communication", IS_COMMUNICATION)
        return CallCount("unknown", None, "other", NO_FORMULA)
    hints = Hints(outputs, output_bytes, parameter_elements, parameter_dtype, sequences)
    plain, formula_of = signature if name == signature.name else replace(signature, name=name), entry.formula
    if entry.library:
        plain = _libraries().given(plain)
    found = count_by(lambda: formula_of(plain, hints), entry.category)
    passed = found.kind == "counted" and (entry.wraps or decomposes(name.removeprefix("aten::"), signature.args))
    return replace(found, decomposes=True) if passed else found


def count_by(work_of: Callable[[], Work], category: str) -> CallCount:
    """The count of a call whose work ``work_of`` returns: unknown, with the reason, where it raises or no call can have that much."""
    try:
        work = work_of()
    except NotCounted as error:
        return CallCount("unknown", None, category, str(error))
    except Dispatches as error:
        return CallCount("composite", None, category, str(error))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # A signature that no call of this operator can have: another schema, a corrupt trace.
        return CallCount("unknown", None, category, f"arguments not understood ({type(error).__name__})")
    numbers = _numbers(work)
    if numbers is None:
        return CallCount("unknown", None, category, "its formula does not return rooflines.Work with whole numbers")
    if min(numbers) < 0:
        return CallCount("unknown", None, category, "arguments not understood (negative size)")
    if max(numbers) > _MOST:
        return CallCount("unknown", None, category, "arguments not understood (invalid size)")
    return CallCount("counted", work, category)


def _numbers(work: object) -> tuple[int, ...] | None:
    """FLOPs and bytes of what a formula returned; None for what is not ``Work`` of whole numbers (formulas may be a user's)."""
    if not isinstance(work, Work):
        return None
    numbers = (work.matrix_flops, work.other_flops, work.bytes_read, work.bytes_written)
    return numbers if all(isinstance(number, int) for number in numbers) else None


def _without_overload(name: str) -> str:
    """``aten::add.Tensor`` -> ``aten::add`` and ``_C::rms_norm.default`` -> ``_C::rms_norm``; other names, and those with a formula, as
    they are."""
    return name if name in _FORMULAS else _OVERLOAD.sub(r"\1", name)
