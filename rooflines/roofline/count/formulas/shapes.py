"""Output shapes from torch's own shape inference: the call rebuilt on meta tensors, which have no data, and
run.

Formulas ask for it only where inputs do not easily determine the outputs; torch is imported then and not
before.
"""

from __future__ import annotations

import contextlib
from functools import lru_cache
from typing import Any

from rooflines.profiler.read.signature import MISSING, Argument, Signature, TensorArg
from rooflines.roofline.count.formulas.arguments import TensorArgs


def infer(signature: Signature) -> TensorArgs | None:
    """The tensors that this call returns, or None where torch cannot tell: an operator that it does not know,
    arguments that were not recorded, or a result whose size depends on the values of the inputs."""
    return _infer(signature, repr(signature))


def fitted(signature: Signature) -> Signature:
    """The call with the last arguments that one of its overloads has, or as it is where all of them fit one,
    or none does."""
    schemas: list[list[str]] = []
    with contextlib.suppress(RuntimeError, ImportError):  # a name that no operator has
        import torch

        found = torch._C._jit_get_schemas_for_operator(signature.name)
        schemas = [[str(argument.type) for argument in schema.arguments] for schema in found]
    for kinds in sorted(schemas, key=len, reverse=True):
        given = signature.args[-len(kinds) :]
        if len(given) == len(kinds) and all(
            value is MISSING or _fits(kind, value) for kind, value in zip(kinds, given, strict=True)
        ):
            return Signature(signature.name, given)
    return signature


@lru_cache(maxsize=4096)
def _infer(signature: Signature, text: str) -> TensorArgs | None:
    """``text`` keeps ``add(x, 1)`` and ``add(x, 1.0)`` apart, which are equal as signatures."""
    import torch

    namespace, _, name = signature.name.partition("::")
    packet: Any = getattr(getattr(torch.ops, namespace, None), name, None) if name else None
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return None
    names: list[str] = packet.overloads()  # type: ignore[no-untyped-call]
    for overload in names:
        result = _run(getattr(packet, overload), signature.args)
        if result is not None:
            return result
    return None


def _run(operator: Any, given: tuple[Argument, ...]) -> TensorArgs | None:
    """The outputs under one overload; None where the arguments are not its own."""
    import torch

    from rooflines.profiler.calls.signatures import tensor_arg, tensors_in

    schema = operator._schema.arguments
    if len(given) > len(schema):
        return None
    # What torch refuses with is as varied as its operators; every refusal means that this overload gives no
    # answer.
    with contextlib.suppress(Exception), torch.no_grad():
        values = [
            (argument, _argument(argument, value)) for argument, value in zip(schema, given, strict=False)
        ]
        positional = [value for argument, value in values if not argument.kwarg_only]
        keywords = {argument.name: value for argument, value in values if argument.kwarg_only}
        return tuple(tensor_arg(tensor) for tensor in tensors_in(operator(*positional, **keywords)))
    return None


def _argument(argument: Any, value: Argument) -> Any:
    """A recorded argument, tensors on the meta device; raises ValueError where the schema has no place for
    it."""
    kind = str(argument.type)
    if value is MISSING and argument.has_default_value():
        return argument.default_value
    if value is MISSING or not _fits(kind, value):
        raise ValueError(f"no argument {kind}")
    return _converted(kind, value)


def _fits(kind: str, value: Argument) -> bool:
    """Whether a recorded value can be an argument of this schema type."""
    if value is None:
        return kind.startswith("Optional") or "Dimname" in kind or kind in ("Device", "Generator")
    if isinstance(value, TensorArg):
        return kind in ("Tensor", "Optional[Tensor]")
    if isinstance(value, tuple) and any(isinstance(item, TensorArg) for item in value):
        return kind.startswith("List[") and "Tensor" in kind
    return "Tensor" not in kind


def _converted(kind: str, value: Argument) -> Any:
    import torch

    if isinstance(value, TensorArg):
        dtype = getattr(torch, value.dtype)
        if value.strides is not None and len(value.strides) == len(value.shape):
            return torch.empty_strided(value.shape, value.strides, dtype=dtype, device="meta")
        return torch.empty(value.shape, dtype=dtype, device="meta")
    if isinstance(value, tuple):
        return [_converted(kind, item) for item in value]
    return value
