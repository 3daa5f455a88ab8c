"""The FLOPs and bytes that one operator call requires."""

from __future__ import annotations

from dataclasses import dataclass

_PRECISIONS: dict[str, str] = {
    "float64": "fp64",
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float8_e5m2fnuz": "fp8",
    "float4_e2m1fn_x2": "fp4",
    "complex128": "fp64",
    "complex64": "fp32",
    "complex32": "fp16",
}
_INTEGER_MATRIX = frozenset({"int8", "uint8", "qint8", "quint8"})


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs and compulsory bytes of one or more operator calls; adds.

    A FLOP is one addition or multiplication, a fused multiply-add is 2. ``matrix_flops`` is matmul,
    convolution and attention products without bias; everything else is ``other_flops``. A byte is counted
    once however often it is used. ``precision`` is that of the arithmetic (fp64 fp32 bf16 fp16 fp8 fp4 int8),
    None where there is none or where it is on integers outside a matrix product. ``assumption`` says what was
    assumed about data that the arguments do not determine, such as the lengths of packed sequences; the
    numbers are then an estimate or a bound.
    """

    matrix_flops: int = 0
    other_flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    precision: str | None = None
    assumption: str = ""

    @property
    def flops(self) -> int:
        """Matrix and other FLOPs together."""
        return self.matrix_flops + self.other_flops

    @property
    def engine(self) -> str | None:
        """The units that do it: ``matrix`` for products, ``vector`` for other arithmetic, None where nothing
        is computed."""
        if self.matrix_flops:
            return "matrix"
        return "vector" if self.other_flops else None

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    def __add__(self, other: Work) -> Work:
        """The sum; its precision is that of the part with more matrix FLOPs, and with more FLOPs where these
        are equal."""
        if not isinstance(other, Work):
            return NotImplemented
        parts = [part for part in (self, other) if part.precision is not None]
        main = max(parts, key=lambda part: (part.matrix_flops, part.flops), default=self)
        return Work(
            self.matrix_flops + other.matrix_flops,
            self.other_flops + other.other_flops,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            main.precision,
            "; ".join(dict.fromkeys(part.assumption for part in (self, other) if part.assumption)),
        )


def precision_of(dtype: str) -> str | None:
    """The precision of element-wise arithmetic on this dtype, of a complex one that of its parts; None for
    integers and booleans."""
    return _PRECISIONS.get(dtype)


def matrix_precision_of(dtype: str) -> str | None:
    """The precision of a matrix product of this dtype: 8-bit integers multiply on matrix engines as int8."""
    return "int8" if dtype in _INTEGER_MATRIX else precision_of(dtype)
