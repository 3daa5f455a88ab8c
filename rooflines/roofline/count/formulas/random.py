"""Random numbers: factories, fills, samples. The generator's integer arithmetic is not counted: it differs
between devices."""

from __future__ import annotations

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import costs
from rooflines.roofline.count.formulas.arguments import Arguments, Dispatches, broadcast, size, written
from rooflines.roofline.count.formulas.factories import option
from rooflines.roofline.count.formulas.record import Work, precision_of

_NORMAL = 2 * costs.TRANSCENDENTAL + 2  # Box and Muller, mean and deviation


def _drawn(result: TensorArg, cost: int, *read: TensorArg | None) -> Work:
    """A result with a fixed cost per number; ``read`` are the parameters of the distribution."""
    return Work(
        other_flops=cost * result.numel,
        bytes_read=size(*read),
        bytes_written=written(result),
        precision=precision_of(result.dtype),
    )


def _out(signature: Signature) -> TensorArg | None:
    """The ``out`` tensor that ends the arguments, where the call has one."""
    last = signature.args[-1]
    return last if isinstance(last, TensorArg) and len(signature.args) > 2 else None


def normal(signature: Signature) -> Work:
    """normal(mean, std) of which one or both are tensors; normal(mean, std, size, generator, dtype, ...) of
    neither."""
    args = Arguments(signature, "mean std=1.0")
    parameters = [tensor for tensor in args.optionals("mean", "std") if tensor is not None]
    result = _out(signature)
    if result is None and parameters:
        result = TensorArg(broadcast(tensor.shape for tensor in parameters), parameters[0].dtype)
    return _drawn(
        result or _new(Arguments(signature, "mean std size generator dtype=None"), "float32"),
        _NORMAL,
        *parameters,
    )


def _new(args: Arguments, dtype: str) -> TensorArg:
    """The tensor that a factory makes; its own event has no shape in old traces, where the fill inside has
    it."""
    if not args.recorded("size"):
        raise Dispatches
    sizes = args.value("size")
    return TensorArg(
        (sizes,) if isinstance(sizes, int) else args.sizes("size"),
        args.dtype("dtype", dtype),
    )


def factory(signature: Signature, cost: int, dtype: str) -> Work:
    out = next((arg for arg in signature.args if isinstance(arg, TensorArg)), None)
    if out is not None:
        return _drawn(out, cost)
    sized = next((index for index, arg in enumerate(signature.args) if isinstance(arg, tuple)), 0)
    shape = _new(
        Arguments(signature, " ".join([*(f"bound{index}" for index in range(sized)), "size"])), dtype
    ).shape
    return _drawn(TensorArg(shape, option(signature, dtype, leading=sized + 1)), cost)


def like(signature: Signature, cost: int) -> Work:
    """As many numbers as ``self`` has, of its dtype unless another is asked for; a bound may be a
    0-dimensional tensor."""
    args = Arguments(signature, "self high")
    pattern = args.tensor("self")
    bound = args.optional("high")
    return _drawn(
        _out(signature) or TensorArg(pattern.shape, option(signature, pattern.dtype, options=5)), cost, bound
    )
