"""A program with changes that its code does not have: autocast, compiled modules, channels-last weights,
fused optimizers; and its first results, which the same program without them should also give.

Random numbers start from the same seed, as far as the program does not seed them itself.
"""

from __future__ import annotations

import contextlib
import os
import random
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from rooflines.profiler.hooks.module_hooks import global_hooks
from rooflines.profiler.hooks.replaced import Function, replaced
from rooflines.profiler.options import OptionValues
from rooflines.profiler.workloads.inputs import tensors_in

# The variable that holds the changes as JSON.
VARIABLE = "ROOFLINES_CODE_CHANGES"
# Results that are compared.
_FIRST = 3


class CodeChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``profile``, and the file for the first results."""

    options: OptionValues
    results: str


@contextlib.contextmanager
def code_changes() -> Iterator[None]:
    """Inside, the program runs with the changes that the environment asks for; without any, nothing
    happens."""
    text = os.environ.get(VARIABLE)
    if not text:
        yield
        return
    import torch

    changes = msgspec.json.decode(text, type=CodeChanges)
    random.seed(0)
    torch.manual_seed(0)
    results: list[float] = []
    modules = _Modules(changes.options, results)
    with contextlib.ExitStack() as made:
        made.enter_context(replaced("backward", lambda method: _noting(method, results), torch.Tensor))
        made.enter_context(global_hooks(modules.before, modules.after))
        precision = str(changes.options.get("precision", ""))
        if precision.startswith("amp-"):
            kind = "cuda" if torch.cuda.is_available() else "cpu"
            dtype = torch.bfloat16 if precision == "amp-bf16" else torch.float16
            made.enter_context(torch.autocast(kind, dtype))
        if "optimizer" in changes.options:
            for optimizer in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad):
                made.enter_context(replaced("__init__", _fused, optimizer))
        try:
            yield
        finally:
            Path(changes.results).write_text(msgspec.json.encode(results).decode())


@dataclass(eq=False)
class _Modules:
    """Changes the outermost modules with parameters when they are called for the first time."""

    options: OptionValues
    results: list[float]

    def __post_init__(self) -> None:
        self._changed: weakref.WeakSet[Any] = weakref.WeakSet()
        self._depth = 0

    def before(self, module: Any, _: Any) -> None:
        """Change ``module``, for this call and later ones; compiled code begins with the next call."""
        import torch

        self._depth += 1
        parameters = [*module.parameters()] if self._depth == 1 and module not in self._changed else []
        if not parameters or any(map(torch.nn.parameter.is_lazy, parameters)):
            return
        self._changed.add(module)
        if self.options.get("channels_last"):
            module.to(memory_format=torch.channels_last)
        if "compile" in self.options:
            module.compile()

    def after(self, module: Any, _: Any, output: Any) -> None:
        """Note what an outermost module returns where nothing is trained."""
        import torch

        self._depth -= 1
        if module in self._changed and not self._depth and not torch.is_grad_enabled():
            _note(output, self.results)


def _noting(method: Function, results: list[float]) -> Function:
    def backward(loss: Any, *arguments: Any, **keywords: Any) -> Any:
        _note(loss, results)
        return method(loss, *arguments, **keywords)

    return backward


def _note(result: Any, results: list[float]) -> None:
    """The norm of the first tensor of a result, while they are few."""
    import torch

    found = next(tensors_in(result), None)
    if found is not None and len(results) < _FIRST and not torch.compiler.is_compiling():
        results.append(float(found.detach().float().norm()))


def _fused(make: Function) -> Function:
    def made(optimizer: Any, *arguments: Any, **keywords: Any) -> None:
        make(optimizer, *arguments, **{**keywords, "foreach": None, "fused": True})

    return made
