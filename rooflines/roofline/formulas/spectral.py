"""Fourier transforms: 5 n log2(n) FLOPs for n complex points, half as many for real ones, for any n.

That is the convention of FFTW's benchmark (http://www.fftw.org/speed/), the cost of the radix-2 algorithm of Cooley and Tukey. A
transform along several dimensions has the product of their lengths as n.
"""

from __future__ import annotations

from math import log2, prod

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import formula

_PARTS = {"complex128": "float64", "complex64": "float32", "complex32": "float16"}
_WHOLE = {part: whole for whole, part in _PARTS.items()}


def transform_flops(elements: int, points: int, real: bool) -> int:
    """FLOPs of transforms of ``points`` each, over ``elements`` in all; of real numbers in or out half of those of complex ones."""
    return round((2.5 if real else 5.0) * elements * log2(points)) if points > 1 else 0


def _transformed(inputs: TensorArg, dims: tuple[int, ...]) -> list[int]:
    rank = len(inputs.shape)
    if not all(-rank <= dim < rank for dim in dims):
        raise NotCounted("argument 'dim' not recorded")
    return [dim % rank for dim in dims]


def _work(inputs: TensorArg, read: int, shape: list[int], dtype: str, flops: int, scaled: bool) -> Work:
    """``scaled`` by 1 / n or 1 / sqrt(n): a product for each number that comes out, two for a complex one."""
    results = prod(shape)
    parts = 2 if dtype.startswith("complex") else 1
    return Work(
        other_flops=flops + (parts * results if scaled else 0),
        bytes_read=read,
        bytes_written=results * size_of(dtype),
        precision=precision_of(inputs.dtype),
    )


@formula("aten::_fft_c2c", category="other")
def _complex_to_complex(signature: Signature) -> Work:
    args = Arguments(signature, "self dim normalization")
    inputs = args.tensor("self")
    dims = _transformed(inputs, args.sizes("dim"))
    flops = transform_flops(inputs.numel, prod(inputs.shape[dim] for dim in dims), real=False)
    return _work(inputs, size(inputs), list(inputs.shape), inputs.dtype, flops, args.integer("normalization") != 0)


@formula("aten::_fft_r2c", category="other")
def _real_to_complex(signature: Signature) -> Work:
    """The spectrum of real numbers is symmetric: of the last dimension only the first n // 2 + 1 are kept, unless all are asked for."""
    args = Arguments(signature, "self dim normalization onesided")
    inputs = args.tensor("self")
    dims = _transformed(inputs, args.sizes("dim"))
    shape = list(inputs.shape)
    if args.flag("onesided") and dims:
        shape[dims[-1]] = shape[dims[-1]] // 2 + 1
    flops = transform_flops(inputs.numel, prod(inputs.shape[dim] for dim in dims), real=True)
    return _work(inputs, size(inputs), shape, _WHOLE.get(inputs.dtype, "complex64"), flops, args.integer("normalization") != 0)


@formula("aten::_fft_c2r", category="other")
def _complex_to_real(signature: Signature) -> Work:
    """Half a spectrum, of which n // 2 + 1 are read, to n real numbers."""
    args = Arguments(signature, "self dim normalization last")
    inputs, last = args.tensor("self"), args.integer("last")
    dims = _transformed(inputs, args.sizes("dim"))
    shape = list(inputs.shape)
    half = 1
    if dims:
        half = min(last // 2 + 1, shape[dims[-1]])
        read = size(inputs) // max(shape[dims[-1]], 1) * half
        shape[dims[-1]] = last
    else:
        read = size(inputs)
    flops = transform_flops(prod(shape), prod(shape[dim] for dim in dims), real=True)
    return _work(inputs, read, shape, _PARTS.get(inputs.dtype, inputs.dtype), flops, args.integer("normalization") != 0)


@formula("aten::fft_fftfreq", "aten::fft_rfftfreq", category="other")
def _frequencies(signature: Signature) -> Work:
    """Multiples of 1 / (n d): of all n points, or of the n // 2 + 1 of half a spectrum."""
    args = Arguments(signature, "n d=1.0 dtype=None")
    count = args.integer("n") if signature.name == "aten::fft_fftfreq" else args.integer("n") // 2 + 1
    dtype = args.dtype("dtype", "float32")
    return Work(other_flops=count, bytes_written=count * size_of(dtype), precision=precision_of(dtype))
