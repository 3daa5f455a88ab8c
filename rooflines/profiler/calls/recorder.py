"""The operator calls of a step without a trace: a dispatch mode over fake tensors, which have shapes and no
data, or over real ones.

The mode sees every operator below autograd and below what PyTorch decomposes itself, with its exact arguments
and results: the same calls that a trace holds, with what traces leave out. On fake tensors nothing is
computed and nothing that the step changes is real: parameters stay as they are, and what would hold fake
tensors afterwards (gradients, buffers, optimizer state) is put back.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nested._internal.nested_tensor import NestedTensor
from torch.nn.parameter import is_lazy
from torch.nn.utils import stateless
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from rooflines.kernels.threads import torch_threads
from rooflines.profiler.calls.fakes import (
    RULES,
    ConcreteValues,
    as_fake,
    biases_made,
    empty_caches_of_fakes,
    quiet_refusals,
    seen_by_transformers,
)
from rooflines.profiler.calls.routing import GROUPED, Routing
from rooflines.profiler.calls.signatures import (
    COMPOSITE,
    LIFTS,
    UNWRITTEN,
    argument_of,
    device_type,
    has_own_kernel,
    name_of,
    operator_of,
    python_kernel,
    running_node,
    tensor_arg,
    tensors_of,
)
from rooflines.profiler.hooks.generation_phases import current_phase
from rooflines.profiler.hooks.module_hooks import ModuleWatch
from rooflines.profiler.hooks.replaced import Function, replaced
from rooflines.profiler.read.signature import LOSSY, Keywords, Positional, Signature, StoredCall, Tensors
from rooflines.profiler.read.work_ranges import DeclaredWork, active, listening
from rooflines.profiler.tree.tree import BACKWARD, FORWARD, OPTIMIZER, PHASES, Module

if TYPE_CHECKING:
    from rooflines.profiler.records import StepMemory

_NOT_RECORDED = frozenset(
    {
        "prim::device",
        "prim::layout",
        "aten::sym_size",
        "aten::size",
        "aten::stride",
        "aten::numel",
        "aten::dim",
    }
)
_ENTER = ("profiler::_record_function_enter_new", "profiler::_record_function_enter")
_EXIT = "profiler::_record_function_exit"
# Where a mode looks on, autograd's formulas keep to operators that return their result; without one they
# write into fresh zeros.
_IN_PLACE = {
    "aten::index_put": "aten::_index_put_impl_",
    "aten::scatter": "aten::scatter_",
    "aten::scatter_add": "aten::scatter_add_",
    "aten::index_add": "aten::index_add_",
    "aten::put": "aten::put_",
}
_AUTOGRAD_S_OWN = re.compile(r"\w+Backward\d+")


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One operator call as it was made: exact arguments, results, the module (index into
    ``StepCalls.modules``, -1: none) and phase."""

    signature: Signature
    outputs: Tensors
    module: int
    phase: int


@dataclass(slots=True)
class StepCalls:
    """The calls of a step."""

    #: Distinct calls with their counts, in the order of their first call.
    calls: dict[RecordedCall, int]
    #: Calls that a trace cannot hold whole (indices, packed weights, sparse tensors), each as often as
    #: it was made and in that order.
    lossy: list[RecordedCall]
    modules: list[Module]
    module_calls: list[int]
    #: Whether the step ran on fake tensors.
    fake: bool
    #: Whether later steps do the same: lazy modules are made in the first one, and TorchScript is
    #: compiled in the first ones.
    settled: bool
    #: An operator whose own kernel, which is not run on fake tensors, was to be recorded.
    unopened: str
    #: Why it did not run on fake tensors, where these were tried first.
    reason: str = ""
    #: Its memory, where that was followed (memory.py).
    memory: StepMemory | None = None


def record(
    step: Callable[[], object],
    fake: FakeTensorMode | None,
    watcher: Watcher | None = None,
    restore: bool = True,
    opens: Callable[[str], bool] = lambda _: False,
) -> StepCalls:
    """Run ``step`` once and return the operators that it calls; on fake tensors where a mode is given, else
    on what it works with.

    The modules that it calls and their gradients are afterwards as they were before; on real tensors only
    where ``restore`` is set. What the step raises passes through. ``watcher`` is shown every call as it
    happens. An operator that ``opens`` chooses by its name and whose kernel is written in Python is recorded
    as what that kernel calls.
    """
    recorder = _Recorder(fake, watcher, opens)
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        stack.callback(recorder.close)
        enter(torch.compiler.set_stance("force_eager"))
        if restore or fake is not None:
            enter(StateGuard(values=fake is None))
        if fake is not None:
            enter(torch.random.fork_rng([]))
            enter(torch_threads(1))  # as for ``Building``
            enter(seen_by_transformers())
            enter(fake)
            enter(quiet_refusals())
        enter(biases_made())
        enter(recorder.modules)
        enter(listening(recorder.declared))
        enter(recorder)
        step()
    modules = recorder.modules
    return StepCalls(
        recorder.calls,
        recorder.lossy(),
        modules.seen,
        modules.calls,
        fake=fake is not None,
        settled=modules.settled,
        unopened=recorder.unopened,
    )


def record_lossy_calls(step: Callable[[], object]) -> tuple[StoredCall, ...]:
    """Run ``step`` once and return, in order, the calls whose arguments a trace leaves out. What the step
    raises passes through."""
    recording = record(step, None, restore=False, opens=lambda name: not name.startswith(LOSSY))
    return tuple(StoredCall.of(call.signature, call.outputs) for call in recording.lossy)


class Watcher:
    """Shown every operator call of a recording; the base class ignores them."""

    def called(self, func: Any, inputs: Positional, result: Any, phase: int, module: int) -> None:
        """``func`` was called with ``inputs`` (positional and keyword values) and returned ``result``;
        ``module`` as in ``RecordedCall``.

        The tensors in ``inputs`` are those of the caller: real ones, too, in a recording on fake tensors.
        Autograd may call this on several threads (one for each device).
        """


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The dispatch mode: decomposes what PyTorch decomposes, notes the rest."""

    supports_higher_order_operators = True

    def __init__(
        self, fake: FakeTensorMode | None, watcher: Watcher | None, opens: Callable[[str], bool]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._fake = fake
        self._opens = opens
        self.unopened = ""
        self._values = ConcreteValues(fake) if fake is not None else None
        self.calls: dict[RecordedCall, int] = {}
        self._made: list[RecordedCall] = []
        self.modules = _ModuleStack()
        self._watcher = watcher or Watcher()
        self._routing = Routing()
        self._optimizer_ranges: list[bool] = []
        self._module_of_node: dict[int, int] = {}
        self._depth = 0  # of operators that PyTorch decomposes, around what is being called
        self._working = False  # whether an operator that does some work was called

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Positional = (), kwargs: Keywords | None = None
    ) -> Any:
        if NestedTensor in types:
            return NotImplemented  # it computes on the tensors inside, which come here, too
        kwargs = kwargs or {}
        given = args, kwargs
        is_operator = isinstance(func, torch._ops.OpOverload)
        if is_operator:
            operator = operator_of(func)
            name = operator.name
            if name.startswith("profiler::"):
                self._range(name, args)
                return func(*args, **kwargs)
            if name in _NOT_RECORDED or active() is not None:  # the latter is part of the declared work
                return func(*args, **kwargs)
            if (
                operator.decomposes
                and not has_own_kernel(func, device_type(args))
                # Nested tensors have kernels of their own for operators that PyTorch decomposes for others.
                and not any(isinstance(value, torch.Tensor) and value.is_nested for value in args)
            ):
                self._depth += 1
                try:
                    with self:
                        # Not func.decompose(): it prefers decompositions written in Python, which do not run
                        # without a mode.
                        return func._op_dk(COMPOSITE, *args, **kwargs)
                finally:
                    self._depth -= 1
            kernel = python_kernel(func, device_type(args)) if self._opens(name) else None
            # Kernels may hand the address of a tensor's data to code that is not torch's, and a fake tensor
            # has none.
            if kernel is not None and self._fake is not None:
                self.unopened = name
            # Values that torch.tensor lifts stay known to the fake mode, so that an optimizer's step counter
            # can be read.
            if self._fake is not None and name not in LIFTS:
                # The mode computes some operators for real where all tensors are real:
                # num_batches_tracked.add_(1) would be added to.
                args = tuple(self._as_fake(value) for value in args)
                kwargs = {key: self._as_fake(value) for key, value in kwargs.items()}
            signature = operator.signature(args, kwargs)  # before the call, which may change shapes in place
            if name == GROUPED:
                signature = self._routing.known(signature, args, kwargs, fake=self._fake is not None)
        else:  # it takes functions, and nothing below it is seen
            name, kernel = name_of(func), None
            signature = Signature(name, tuple(argument_of(value) for value in args))
        phase, module = self._place()
        opened = False
        if is_operator and self._values is not None:
            result = self._values.call(func, args, kwargs, RULES.get(name))
        elif kernel is not None:
            result, opened = self._by_kernel(func, kernel, args, kwargs)
        else:
            result = func(*args, **kwargs)
        if (
            self._depth
            and is_operator
            and func.is_view
            and name != "aten::detach"
            and torch.is_inference_mode_enabled()
        ):
            _keep_requires_grad(given[0], result)
        if phase == BACKWARD and name in _IN_PLACE:
            signature = self._as_without_a_mode(signature)
        if not opened:
            self._note(signature, result, module, phase)
            self._working = (
                self._working or not is_operator or not (func.is_view or name in UNWRITTEN or name in LIFTS)
            )
        self._watcher.called(func, (*given[0], *given[1].values()), result, phase, module)
        return result

    def _by_kernel(self, func: Any, kernel: Any, args: Positional, kwargs: Keywords) -> tuple[Any, bool]:
        """The result of an operator's own kernel, and whether the operators that do its work were recorded:
        NumPy leaves none."""
        working, self._working = self._working, False
        try:
            with self, torch._C._AutoDispatchBelowAutograd():
                return func.redispatch(kernel, *args, **kwargs), self._working
        finally:
            self._working = self._working or working

    def _as_without_a_mode(self, signature: Signature) -> Signature:
        """A call of a backward formula as autograd makes it without a dispatch mode."""
        if self.modules.current >= 0 or not _AUTOGRAD_S_OWN.fullmatch(running_node()):
            return signature
        unsafe = (True,) if signature.name == "aten::index_put" else ()
        return Signature(_IN_PLACE[signature.name], (*signature.args, *unsafe))

    def close(self) -> None:
        """Let no function keep a fake tensor that the step made."""
        if self._values is not None and self._values.any_survives():
            empty_caches_of_fakes()

    def declared(self, work: DeclaredWork) -> None:
        """A user's kernel begins, which says itself what it does."""
        phase, module = self._place()
        self._note(Signature(work.name, (work,)), (), module, phase)

    def _note(self, signature: Signature, result: Any, module: int, phase: int) -> None:
        self._routing.note(signature.name, tensors_of(result))
        call = RecordedCall(
            signature, tuple(tensor_arg(tensor) for tensor in tensors_of(result)), module, phase
        )
        self.calls[call] = self.calls.get(call, 0) + 1
        self._made.append(call)

    def lossy(self) -> list[RecordedCall]:
        """The calls, in order, that a trace cannot hold whole; of operators that are given sparse tensors,
        every call."""
        sparse = {
            call.signature.name
            for call in self.calls
            if any(tensor.stored for tensor in call.signature.tensors)
        }
        return [
            call
            for call in self._made
            if call.signature.name in sparse or call.signature.name.startswith(LOSSY)
        ]

    def _as_fake(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value if self._fake is None else as_fake(self._fake, value)
        if isinstance(value, (list, tuple)):
            return [self._as_fake(item) for item in value]
        return value

    def _place(self) -> tuple[int, int]:
        """The phase and module that the call now being made belongs to.

        A backward operator belongs to the module of the forward operator that made its autograd node: the
        node's sequence number is the last one handed out when that operator reached us.
        """
        node: Any = torch._C._current_autograd_node()
        current = self.modules.current
        if node is None:
            self._module_of_node.setdefault(torch._C._autograd._get_sequence_nr() - 1, current)
            forward = FORWARD if (kind := current_phase()) is None else PHASES.index(kind)
            return (OPTIMIZER if any(self._optimizer_ranges) else forward), current
        if current >= 0:  # checkpointing runs a forward inside a backward
            return BACKWARD, current
        return BACKWARD, self._module_of_node.get(node._sequence_nr(), -1)

    def _range(self, name: str, args: Positional) -> None:
        if name in _ENTER:
            self._optimizer_ranges.append(str(args[0]).startswith("Optimizer."))
        elif name == _EXIT and self._optimizer_ranges:
            self._optimizer_ranges.pop()


def _keep_requires_grad(inputs: Positional, result: Any) -> None:
    """In inference mode a view of a parameter still requires a gradient, which ``matmul`` asks for; in a
    decomposition it would not."""
    base = inputs[0] if inputs else None
    if isinstance(base, torch.Tensor) and base.requires_grad:
        for view in tensors_of(result):
            if view.is_floating_point() and not view.is_inference():
                view.requires_grad_()


class _ModuleStack(ModuleWatch):
    """The modules seen, numbered, and the one whose forward is running."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Module] = []
        self.calls: list[int] = []
        self.current = -1
        self.settled = True
        self._numbers: dict[tuple[str, str], int] = {}

    def found_root(self, module: torch.nn.Module) -> None:
        scripted = any(isinstance(part, torch.jit.ScriptModule) for part in module.modules())
        self.settled = self.settled and not scripted and not any(map(is_lazy, module.parameters()))

    def entered(self, path: str, kind: str) -> int:
        number = self._numbers.setdefault((path, kind), len(self.seen))
        if number == len(self.seen):
            self.seen.append(Module(path, kind))
            self.calls.append(0)
        self.calls[number] += 1
        before, self.current = self.current, number
        return before

    def left(self, token: int) -> None:
        self.current = token


class StateGuard(ModuleWatch):
    """Context manager: restores the caller's module attributes, gradients and optimizer state when it ends.

    On fake tensors nothing else can change. On real ones ``values`` keeps the values of all of these.
    """

    def __init__(self, values: bool) -> None:
        super().__init__()
        self._keeps_values = values
        self._undo: list[Callable[[], object]] = []
        self._seen: dict[int, object] = {}  # by ``id``; held, so that no other object gets the same

    def __enter__(self) -> StateGuard:
        # ``torch.func.functional_call`` puts tensors of the step into a module before it calls it: note what
        # was there before.
        self._around.enter_context(replaced("_reparametrize_module", self._swapping, stateless))
        self._around.enter_context(register_optimizer_step_pre_hook(self._before_optimizer))
        return super().__enter__()

    def _swapping(self, swap: Function) -> Function:
        @functools.wraps(swap)
        def swapping(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            self.found_root(module)
            return swap(module, *args, **kwargs)

        return swapping

    def __exit__(self, *details: object) -> None:
        super().__exit__(*details)
        with torch.no_grad():
            for undo in self._undo:
                undo()

    def found_root(self, module: torch.nn.Module) -> None:
        """Note what the module and those below it hold."""
        for child in filter(self._is_new, module.modules()):
            attributes = dict(child.__dict__)
            contents = {
                name: copy.copy(value)
                for name, value in attributes.items()
                if isinstance(value, (dict, list, set))
            }
            # A lazy module becomes another one when it is first called.
            self._undo.append(functools.partial(_restore, child, type(child), attributes, contents))
        with _disable_current_modes():  # the copies are ours and not the step's
            for tensor in filter(self._is_new, (*module.parameters(), *module.buffers())):
                if is_lazy(tensor):  # without a shape until it is first used
                    self._undo.append(functools.partial(_make_lazy, tensor, type(tensor), tensor.data))
                    continue
                self._undo.append(functools.partial(setattr, tensor, "grad", tensor.grad))
                self._keep_values(tensor, tensor.grad)

    def _is_new(self, seen: object) -> bool:
        known = id(seen) in self._seen
        self._seen[id(seen)] = seen
        return not known

    def _keep_values(self, *tensors: Any) -> None:
        for tensor in tensors:
            if self._keeps_values and isinstance(tensor, torch.Tensor):
                self._undo.append(functools.partial(tensor.copy_, tensor.detach().clone()))

    def _before_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._is_new(optimizer):
            state = {parameter: dict(values) for parameter, values in optimizer.state.items()}
            with _disable_current_modes():
                for values in state.values():
                    self._keep_values(*values.values())
            self._undo += [optimizer.state.clear, functools.partial(optimizer.state.update, state)]


def _restore(
    module: torch.nn.Module, kind: type, attributes: dict[str, Any], contents: dict[str, Any]
) -> None:
    module.__class__ = kind
    module.__dict__.clear()
    module.__dict__.update(attributes)
    for name, content in contents.items():
        held = attributes[name]
        if isinstance(held, list):
            held[:] = content
        else:
            held.clear()
            held.update(content)


def _make_lazy(tensor: torch.Tensor, kind: type, data: torch.Tensor) -> None:
    tensor.data, tensor.grad = data, None
    tensor.__class__ = kind
