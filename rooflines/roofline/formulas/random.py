"""Random numbers: factories, fills, samples. The generator's integer arithmetic is not counted: it differs between devices."""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, Dispatches, broadcast, size, written
from rooflines.roofline.formulas.factories import option
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.rows import Row, register

_UNIFORM: Final = 2 * costs.BASIC  # from the generator's bits to between two bounds
_NORMAL: Final = 2 * costs.TRANSCENDENTAL + 2  # Box and Muller, mean and deviation
_EXPONENTIAL: Final = costs.TRANSCENDENTAL + 1

# Distribution -> FLOPs a number. Each has an in-place form, and a functional one to which ``self`` gives the shape.
RANDOM: Final[dict[str, int]] = {
    "bernoulli": costs.BASIC, "uniform": _UNIFORM, "random": costs.BASIC, "exponential": _EXPONENTIAL, "normal": _NORMAL,
    "log_normal": _NORMAL + costs.TRANSCENDENTAL, "geometric": costs.TRANSCENDENTAL + 1, "cauchy": costs.TRANSCENDENTAL + 3,
}  # fmt: skip


def _drawn(result: TensorArg, cost: int, *read: TensorArg | None) -> Work:
    """A result with a fixed cost per number; ``read`` are the parameters of the distribution."""
    return Work(
        other_flops=cost * result.numel, bytes_read=size(*read), bytes_written=written(result), precision=precision_of(result.dtype)
    )


def _out(signature: Signature) -> TensorArg | None:
    """The ``out`` tensor that ends the arguments, where the call has one."""
    last = signature.args[-1]
    return last if isinstance(last, TensorArg) and len(signature.args) > 2 else None


# The parameter of a distribution may be a tensor.
register({
    **{
        f"{name}_" if name in ("bernoulli", "normal") else f"{name} {name}_": Row(
            "view self, read parameter?", cost, per="self", result="self", precision="self"
        )
        for name, cost in RANDOM.items()
    },
    "normal_functional": Row("view self, read parameter?", _NORMAL, per="self", result="self", precision="self"),
}, "element-wise", namespace="aten::")  # fmt: skip


@formula("aten::bernoulli", category="element-wise")
def _bernoulli(signature: Signature) -> Work:
    """bernoulli(self) has the probabilities in ``self``; bernoulli(self, p) only its shape."""
    inputs, probability = Arguments(signature, "self").tensor("self"), signature.arg(1, default=None)
    result = _out(signature) or inputs
    if isinstance(probability, int | float):
        return _drawn(result, costs.BASIC)
    return _drawn(result, costs.BASIC, probability if isinstance(probability, TensorArg) else inputs)


@formula("aten::normal", category="element-wise")
def _normal(signature: Signature) -> Work:
    """normal(mean, std) of which one or both are tensors; normal(mean, std, size, generator, dtype, ...) of neither."""
    args = Arguments(signature, "mean std=1.0")
    parameters = [tensor for tensor in (args.optional("mean"), args.optional("std")) if tensor is not None]
    result = _out(signature)
    if result is None and parameters:
        result = TensorArg(broadcast(tensor.shape for tensor in parameters), parameters[0].dtype)
    return _drawn(result or _new(Arguments(signature, "mean std size generator dtype=None"), "float32"), _NORMAL, *parameters)


# Factories, whose numbers are drawn into a new tensor. ``dtype layout device pin_memory`` end the schema, after a generator in some.
_FACTORIES: Final[dict[str, tuple[int, str]]] = {
    "rand": (_UNIFORM, "float32"), "randn": (_NORMAL, "float32"), "randint": (costs.BASIC, "int64"), "randperm": (costs.BASIC, "int64"),
}  # fmt: skip


def _new(args: Arguments, dtype: str) -> TensorArg:
    """The tensor that a factory makes; its own event has no shape in old traces, where the fill inside has it."""
    if not args.recorded("size"):
        raise Dispatches
    sizes = args.value("size")
    return TensorArg(
        (sizes,) if isinstance(sizes, int) else args.sizes("size"), args.dtype("dtype", dtype) if args.has("dtype") else dtype
    )


def _factory(signature: Signature, cost: int, dtype: str) -> Work:
    out = next((arg for arg in signature.args if isinstance(arg, TensorArg)), None)
    if out is not None:
        return _drawn(out, cost)
    sized = next((index for index, arg in enumerate(signature.args) if isinstance(arg, tuple)), 0)
    shape = _new(Arguments(signature, " ".join([*(f"bound{index}" for index in range(sized)), "size"])), dtype).shape
    return _drawn(TensorArg(shape, option(signature, dtype, leading=sized + 1)), cost)


def _like(signature: Signature, cost: int) -> Work:
    """As many numbers as ``self`` has, of its dtype unless another is asked for; a bound may be a 0-dimensional tensor."""
    args = Arguments(signature, "self high")
    pattern, bound = args.tensor("self"), args.optional("high")
    return _drawn(_out(signature) or TensorArg(pattern.shape, option(signature, pattern.dtype, options=5)), cost, bound)


for _name, (_cost, _dtype) in _FACTORIES.items():
    formula(f"aten::{_name}", category="element-wise")(partial(_factory, cost=_cost, dtype=_dtype))
    if _name != "randperm":
        formula(f"aten::{_name}_like", category="element-wise")(partial(_like, cost=_cost))


_DRAWS: Final[dict[str, Row]] = {
    # a number for each parameter in ``self``; a Dirichlet sample is a row of gamma numbers over their sum
    "poisson _standard_gamma": Row("read self", costs.REJECTION, per="self", result="self"),
    "_sample_dirichlet": Row("read self", costs.REJECTION + 2, per="self", result="self"),
    "binomial": Row("read count, read prob", where="made = joined(count, prob)", other="made * REJECTION", writes="made * count.item"),
    # the derivative of a gamma number by its parameter: a series as long as that of the incomplete gamma function
    **{
        name: Row(schema, where=f"made = joined({names})", other="made * INCOMPLETE_GAMMA", writes="made * x.item")
        for name, schema, names in (
            ("_standard_gamma_grad", "read x, read y", "x, y"), ("_dirichlet_grad", "read x, read y, read z", "x, y, z"),
        )
    },
    # numbers of a counter-based generator whose key is a tensor
    "_philox_uniform _philox_uniform_": Row("view self, read key", _UNIFORM, per="self", result="self", precision="self"),
    "_philox_normal _philox_normal_": Row("view self, read key", _NORMAL, per="self", result="self", precision="self"),
    # integer arithmetic of the generator alone: new keys out of one, each as large as it
    "_philox_key_split": Row("read key, count", writes="count * key.full"),
    "_philox_key_fold_in": Row("read key, read count?", result="key"),
    "_fill_mem_eff_dropout_mask_": Row("view self", _UNIFORM, per="self", result="self", precision="self"),
    # [.., c] weights -> [.., samples] classes. With replacement: a running sum, a division, and a binary search for each sample.
    # Without: each weight over an exponential number, of which the largest are the samples.
    "multinomial": Row(
        "read self, samples, replacement=False", where="drawn = prod(self[:-1]) * samples; classes = self[-1] if self.rank else 1",
        other=f"2 * self.n + drawn * ({_UNIFORM} + compares(max(classes, 2))) if replacement else self.n * {_EXPONENTIAL + 2}",
        writes="8 * drawn",
    ),
}  # fmt: skip
register(_DRAWS, "element-wise", namespace="aten::")
