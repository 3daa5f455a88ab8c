"""Calls of libraries' operators, without the library and without torch."""

from __future__ import annotations

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import count


def bf16(*shape):
    return TensorArg(shape, "bfloat16")


def fp8(*shape):
    return TensorArg(shape, "float8_e4m3fn")


def fp32(*shape):
    return TensorArg(shape, "float32")


def int8(*shape):
    return TensorArg(shape, "int8")


def int32(*shape):
    return TensorArg(shape, "int32")


def int64(*shape):
    return TensorArg(shape, "int64")


def uint8(*shape):
    return TensorArg(shape, "uint8")


def counted(name, *args):
    outcome = count(Signature(name, args))
    assert outcome.kind == "counted", outcome
    return outcome


def figures(name, *args):
    """(matrix FLOPs, other FLOPs, bytes read, bytes written, precision)"""
    work = counted(name, *args).work
    return work.matrix_flops, work.other_flops, work.bytes_read, work.bytes_written, work.precision


def reason(name, *args):
    outcome = count(Signature(name, args))
    assert outcome.kind == "unknown", outcome
    return outcome.reason
