"""TF32: whether float32 products, convolutions and recurrent networks of a GPU run on its tensor cores with
ten bits of mantissa.

Torch keeps these settings twice. The older switches are ``torch.set_float32_matmul_precision``
(``cuda.matmul.allow_tf32`` is another name for it) and ``cudnn.allow_tf32``, one for convolutions and
recurrent networks. Torch 2.9 added ``fp32_precision`` for every backend and operator, where ``none`` takes
the precision of the backend, and the backend that of all backends. While the two disagree, reading an older
switch raises RuntimeError, also in torch's own code (``cudnn.flags``, ``torch.export``). So both are set here
and both are put back (aten/src/ATen/Context.cpp).
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import NamedTuple

_ALL = ("generic", "all")
_OPERATORS = {"matmul": "matmul", "convolution": "conv", "rnn": "rnn"}
# What the context sets. The older switch of products sets those of oneDNN, too.
_SET = (_ALL, ("cuda", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"), ("mkldnn", "matmul"))


class _Settings(NamedTuple):
    """The older switches, and by backend and operator the newer ones as stored: with ``none``. Empty before
    torch 2.9."""

    matmul: str
    cudnn: bool
    stored: dict[tuple[str, str], str]


def tf32_state() -> dict[str, bool]:
    """Whether ``matmul``, ``convolution`` and ``rnn`` (cuDNN's) may use TF32 now."""
    import torch

    if _has_newer():
        return {name: _read("cuda", operator) == "tf32" for name, operator in _OPERATORS.items()}
    matmul, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    return {name: bool(matmul if name == "matmul" else cudnn) for name in _OPERATORS}


@contextlib.contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Inside, TF32 is allowed or not, for all three, and every older switch can be read; afterwards
    everything is as it was."""
    before = _settings()
    stored = dict.fromkeys(before.stored, "tf32" if allowed else "ieee")
    if _ALL in stored:
        stored[_ALL] = (
            "none"  # cudnn.flags(allow_tf32=False) leaves convolutions to it, and raises where it says TF32
        )
    try:
        _restore(_Settings("high" if allowed else "highest", allowed, stored))
        yield
    finally:
        _restore(before)


def _has_newer() -> bool:
    import torch

    return hasattr(torch._C, "_get_fp32_precision_getter")


def _read(backend: str, operator: str) -> str:
    import torch

    return torch._C._get_fp32_precision_getter(backend, operator)


def _write(key: tuple[str, str], precision: str) -> None:
    import torch

    torch._C._set_fp32_precision_setter(*key, precision)


def _settings() -> _Settings:
    """The present settings. Leaves the newer ones changed: ``_restore`` must follow."""
    import torch

    stored = {key: _stored(key) for key in _SET} if _has_newer() else {}
    for key in stored:
        _write(key, "ieee")
    with warnings.catch_warnings():  # torch 2.9 warns of the older switches
        warnings.simplefilter("ignore")
        # With "ieee" everywhere this one can always be read, and cuDNN's unless it is on.
        matmul = torch.get_float32_matmul_precision()
        try:
            cudnn = torch._C._get_cudnn_allow_tf32()
        except RuntimeError:
            cudnn = True
    return _Settings(matmul, cudnn, stored)


def _stored(key: tuple[str, str]) -> str:
    """What is stored for ``key``: ``none`` where its value follows that of its parent, which is changed to
    see it.

    cuDNN's operators begin in a state of their own, which is TF32 as long as no parent has a value. It cannot
    be set, so TF32 stands for it, as it does wherever torch puts cuDNN's older switch back (``cudnn.flags``).
    """
    backend, operator = key
    if key == _ALL:
        return _read(*key)
    parent = _ALL if operator == "all" else (backend, "all")
    shown, follows, before = _read(*key), _read(*parent), _stored(parent)
    seen = set()
    try:
        for precision in ("ieee", "tf32"):
            _write(parent, precision)
            seen.add(_read(*key))
    finally:
        _write(parent, before)
    if len(seen) == 1:
        return seen.pop()
    return shown if follows == "none" else "none"


def _restore(settings: _Settings) -> None:
    """Set the older switches, which change the newer ones, and then these."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_float32_matmul_precision(settings.matmul)
        torch._C._set_cudnn_allow_tf32(settings.cudnn)
    for key, precision in settings.stored.items():
        _write(key, precision)
