"""What is known of one launch of a kernel besides its name: the operators before it under the same wrapper, and its grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rooflines.profiler.trace.signature import SCALAR_TYPES, Signature, TensorArg
from rooflines.roofline.formulas.arguments import NotCounted

# The position of the sizes and of the dtype among the arguments of the operators that allocate; all others call one of these
# (native_functions.yaml, torch 2.0 to 2.14).
_ALLOCATIONS: Final[dict[str, tuple[int, int]]] = {"aten::empty": (0, 1), "aten::empty_strided": (0, 2)}
_DEFAULT: Final = "float32"


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of ``kernel``. ``wrapper`` is the outermost operator around it, ``operator`` the innermost, None where there is none;
    ``before`` are the operators called before it under the wrapper, ``inside`` those of them that the innermost operator called.
    ``grid`` is the number of blocks along x, y and z, None where it is not recorded."""

    kernel: str
    before: tuple[Signature, ...]
    wrapper: Signature | None = None
    operator: Signature | None = None
    inside: tuple[Signature, ...] = ()
    grid: tuple[int, int, int] | None = None

    @property
    def allocated(self) -> tuple[TensorArg, ...]:
        """The tensors allocated before the launch, in order."""
        return allocations(self.before)

    def wrapped(self, position: int) -> TensorArg:
        """A tensor argument of the wrapper; raises NotCounted."""
        found = self.wrapper.arg(position) if self.wrapper is not None else None
        if not isinstance(found, TensorArg):
            raise NotCounted("the tensors of the operator around the kernel are not recorded")
        return found


def allocations(calls: tuple[Signature, ...]) -> tuple[TensorArg, ...]:
    """The tensors that ``calls`` allocated, in order."""
    return tuple(tensor for call in calls if (tensor := _allocation(call)) is not None)


def _allocation(call: Signature) -> TensorArg | None:
    places = _ALLOCATIONS.get(call.name)
    if places is None:
        return None
    sizes, dtype = (call.arg(place, None) for place in places)
    if not isinstance(sizes, tuple) or not all(isinstance(size, int) and size >= 0 for size in sizes):
        return None
    name = _DEFAULT if dtype is None else SCALAR_TYPES.get(dtype) if isinstance(dtype, int) else None
    return None if name is None else TensorArg(sizes, name)
