"""Restoring what a recorded step changes in objects of the caller."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import _disable_current_modes

from rooflines.profiler.module_hooks import ModuleWatch

if TYPE_CHECKING:
    from typing_extensions import Self


class StateGuard(ModuleWatch):
    """Context manager: restores the caller's module attributes, gradients and optimizer state when it ends.

    On fake tensors nothing else can change. On real ones ``values`` keeps the values of all of these.
    """

    def __init__(self, values: bool) -> None:
        super().__init__()
        self._keeps_values = values
        self._modules: dict[int, tuple[torch.nn.Module, type, dict[str, Any], dict[str, Any]]] = {}
        self._tensors: dict[int, tuple[torch.Tensor, torch.Tensor | None, list[tuple[torch.Tensor, torch.Tensor]]]] = {}
        self._lazy: dict[int, tuple[torch.Tensor, type, torch.Tensor]] = {}
        self._buffers: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._optimizers: dict[int, tuple[torch.optim.Optimizer, dict[Any, dict[str, Any]]]] = {}

    def __enter__(self) -> Self:
        from torch.nn.utils import stateless
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        # ``torch.func.functional_call`` puts tensors of the step into a module before it calls it: note what was there before.
        swap = stateless._reparametrize_module

        @functools.wraps(swap)
        def swapping(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            self.found_root(module)
            return swap(module, *args, **kwargs)

        stateless._reparametrize_module = swapping
        self._around.callback(setattr, stateless, "_reparametrize_module", swap)
        self._around.enter_context(register_optimizer_step_pre_hook(self._before_optimizer))
        return super().__enter__()

    def __exit__(self, *details: object) -> None:
        super().__exit__(*details)
        for module, kind, attributes, contents in self._modules.values():
            module.__class__ = kind  # a lazy module becomes another one when it is first called
            module.__dict__.clear()
            module.__dict__.update(attributes)
            for name, content in contents.items():
                held = attributes[name]
                if isinstance(held, list):
                    held[:] = content
                else:
                    held.clear()
                    held.update(content)
        for tensor, lazy, data in self._lazy.values():
            tensor.data, tensor.grad = data, None
            tensor.__class__ = lazy
        with torch.no_grad():
            for tensor, gradient, copies in self._tensors.values():
                tensor.grad = gradient
                for touched, copied in copies:
                    touched.copy_(copied)
            for touched, copied in self._buffers:
                touched.copy_(copied)
        for optimizer, state in self._optimizers.values():
            optimizer.state.clear()
            optimizer.state.update(state)

    def entered(self, path: str, kind: str) -> None:
        """Nothing: only roots matter."""

    def left(self, token: None) -> None:
        """Nothing: only roots matter."""

    def found_root(self, module: torch.nn.Module) -> None:
        """Note what the module and those below it hold."""
        for child in module.modules():
            if id(child) not in self._modules:
                attributes = dict(child.__dict__)
                contents = {name: copy.copy(value) for name, value in attributes.items() if isinstance(value, (dict, list, set))}
                self._modules[id(child)] = (child, type(child), attributes, contents)
        with _disable_current_modes():  # the copies are ours and not the step's
            for tensor in (*module.parameters(), *module.buffers()):
                if is_lazy(tensor):  # without a shape until it is first used
                    self._lazy.setdefault(id(tensor), (tensor, type(tensor), tensor.data))
                elif id(tensor) not in self._tensors and id(tensor) not in self._lazy:
                    held = [t for t in (tensor, tensor.grad) if t is not None and self._keeps_values]
                    self._tensors[id(tensor)] = (tensor, tensor.grad, [(t, t.detach().clone()) for t in held])

    def _before_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if id(optimizer) not in self._optimizers:
            state = {parameter: dict(values) for parameter, values in optimizer.state.items()}
            self._optimizers[id(optimizer)] = (optimizer, state)
            if self._keeps_values:
                held = [value for values in state.values() for value in values.values() if isinstance(value, torch.Tensor)]
                with _disable_current_modes():
                    self._buffers += [(value, value.detach().clone()) for value in held]
