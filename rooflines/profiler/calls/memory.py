"""Peak memory of a step by category, from the storages that its operators return: on fake tensors, without
allocating any of it.

Every storage that an operator returns is an allocation of its size, held until the storage is freed; views
share one, operators in place make none. What operators are given and none of them made existed before the
step. What a kernel allocates for itself and frees again is not seen (docs/counting.md, "Memory at the peak").
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from rooflines.errors import UsageError
from rooflines.profiler.calls.recorder import StepCalls, Watcher, record
from rooflines.profiler.calls.signatures import ACCUMULATE, LIFTS, name_of, running_node, tensors_in
from rooflines.profiler.hooks.module_hooks import ModuleWatch
from rooflines.profiler.read.extremes import extremes
from rooflines.profiler.read.records import Int64s
from rooflines.profiler.read.signature import Positional
from rooflines.profiler.records import HeldTensor, MemoryAtPeak, MemoryCurve, Numbers, StepMemory
from rooflines.profiler.tree.tree import BACKWARD, DECODE, FORWARD, PHASES, PREFILL

# The caching allocators hand out multiples of this: kMinBlockSize in CUDACachingAllocator.cpp and
# XPUCachingAllocator.cpp.
_ROUNDING = {"cuda": 512, "xpu": 512}
# Their fourth result is kept for the backward. Only the library knows how large it is, and a fake one is
# empty.
_SIZED_BY_LIBRARY = frozenset(
    "aten::" + name
    for name in (
        "mkldnn_rnn_layer",
        "_cudnn_rnn",
        "cudnn_batch_norm",
        "miopen_rnn",
        "_batch_norm_with_update",
    )
)

_CATEGORIES = MemoryAtPeak.__struct_fields__
_FORWARDS = (FORWARD, PREFILL, DECODE)
_MOST_TENSORS = 10


def record_with_memory(
    step: Callable[[], object],
    fake: FakeTensorMode | None,
    *,
    before: int = 0,
    restore: bool = True,
    held: Callable[[], Iterable[torch.Tensor]] = tuple,
    opens: Callable[[str], bool] = lambda _: False,
) -> StepCalls:
    """``record(step, fake)`` with the memory of the step at its peak.

    Where ``before`` steps run first, the memory is that of the one after them, and the calls are those of
    all: the first step of most optimizers makes the state that later ones start with. The tensors that
    ``held`` returns at the end are inputs, such as a KV cache.
    """
    followed = _Storages(held)

    def watched() -> None:
        for _ in range(before):
            step()
        with followed:
            step()

    recording = record(watched, fake, followed, restore, opens)
    recording.memory = followed.peak(recording)
    return recording


class _Place(NamedTuple):
    """The operator that a block grew in."""

    operator: str = ""
    module: int = -1
    phase: int = FORWARD


_BEFORE = _Place()  # the step


@dataclass(slots=True, eq=False)
class _Block:
    """One storage; ``category`` is empty where it follows from when the storage was made.

    ``shape`` and ``dtype`` are those of its first tensor, ``place`` is where it was made and ``owner`` the
    module of a parameter.
    """

    device: torch.device
    phase: int
    existed: bool
    shape: Numbers
    dtype: torch.dtype
    place: _Place = _BEFORE
    requested: int = 0
    allocated: int = 0
    category: str = ""
    owner: str = ""

    def kind(self) -> str:
        """Its category, a field of ``MemoryAtPeak``."""
        return self.category or (
            "inputs" if self.existed else "activations" if self.phase in _FORWARDS else "workspace"
        )


class _Change(NamedTuple):
    """A block grew or shrank by this many bytes, when ``calls`` operator calls had been made."""

    block: _Block
    requested: int
    allocated: int
    place: _Place = _BEFORE
    calls: int = 0


class _Reference(weakref.ref[torch.UntypedStorage]):
    """A weak reference to a storage, with its address and its block. A fake storage for a real one owns no
    block."""

    __slots__ = ("address", "block", "owns")

    address: int
    block: _Block
    owns: bool


class _Sum(NamedTuple):
    """A sum just computed: its first term, the reference to its result, and the index of the change that it
    made."""

    term: _Block
    result: _Reference
    change: int


class _Storages(ModuleWatch, Watcher):
    """Follows the storages of a step; a context manager around the step, inside of its recording."""

    def __init__(self, held: Callable[[], Iterable[torch.Tensor]]) -> None:
        super().__init__()
        self._held = held
        self._references: dict[int, _Reference] = {}
        self._existing: list[_Change] = []
        self._changes: list[_Change] = []
        self._sum: _Sum | None = None
        self._modules: list[torch.nn.Module] = []  # the outermost ones that the step calls
        self._open: list[str] = []  # the classes of modules whose forward is running
        self._optimizers: dict[int, torch.optim.Optimizer] = {}
        self._gradients: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._unknown: dict[str, None] = {}
        self._calls = 0
        self._watching = False

    def __enter__(self) -> _Storages:
        self._watching = True
        self._around.enter_context(
            register_optimizer_step_pre_hook(lambda optimizer, *_: self._found_optimizer(optimizer))
        )
        return super().__enter__()

    def __exit__(self, *details: object) -> None:
        super().__exit__(*details)
        # What the step has made of parameters, gradients and optimizer states is known now.
        for module in self._modules:
            self._found_module(module)
        for optimizer in self._optimizers.values():
            self._found_optimizer(optimizer)
        for tensor in self._held():
            self._found(tensor, "inputs")
        self._references.clear()
        self._watching = False

    def entered(self, path: str, kind: str) -> None:
        self._open.append(kind)

    def left(self, token: None) -> None:
        self._open.pop()

    def found_root(self, module: torch.nn.Module) -> None:
        """Mark the storages of ``module`` as existing before the step."""
        self._modules.append(module)
        self._found_module(module)

    # --- records ---

    def _found_module(self, module: torch.nn.Module) -> None:
        self._found_parameters(module.parameters(), module.buffers())
        for name, tensor in chain(module.named_parameters(), module.named_buffers()):
            for storage in () if is_lazy(tensor) else storages(tensor):
                self._references[storage._cdata].block.owner = name.rpartition(".")[0]

    def _found_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizers[id(optimizer)] = optimizer
        self._found_parameters(*(group["params"] for group in optimizer.param_groups))
        for value in tree_leaves(list(optimizer.state.values())):
            if isinstance(value, torch.Tensor):
                self._found(value, "optimizer")

    def _found_parameters(self, *groups: Iterable[torch.Tensor]) -> None:
        for tensor in chain.from_iterable(groups):
            if is_lazy(tensor):
                continue
            self._found(tensor, "parameters")
            if tensor.grad is not None:
                self._found(tensor.grad, "gradients")
                self._gradients[id(tensor)] = (tensor, tensor.grad)

    def _drop_gradients(self) -> None:
        """Gradients from before that the step has given up. The recording keeps them, to put them back, so
        that nothing frees them."""
        for key, (tensor, gradient) in list(self._gradients.items()):
            if tensor.grad is not gradient:
                del self._gradients[key]
                for storage in storages(gradient):
                    reference = self._references.get(storage._cdata)
                    if reference is not None:  # several gradients may share a storage
                        self._freed(reference)

    def _found(self, tensor: torch.Tensor, category: str) -> None:
        """``tensor`` is of this category; if no operator made its storages, they existed before the step."""
        for storage in storages(tensor):
            reference = self._references.get(storage._cdata)
            if reference is None:
                block = _Block(tensor.device, FORWARD, True, tuple(tensor.shape), tensor.dtype)
                self._grow(block, storage)
                reference = self._refer(storage, block, owns=True)
            reference.block.category = reference.block.category or category

    # --- what happens ---

    def called(self, func: Any, inputs: Positional, result: Any, phase: int, module: int) -> None:
        if not self._watching:
            return
        self._sum = None
        if self._gradients:
            self._drop_gradients()
        self._calls += 1
        name = name_of(func)
        place = _Place(name, module, phase)
        given = [] if name in LIFTS else list(tensors_in(inputs))  # what is lifted is new
        for tensor in given:
            self._found(tensor, "parameters" if isinstance(tensor, torch.nn.Parameter) else "")
        for tensor in tensors_in(result):
            for storage in storages(tensor):
                self._returned(storage, tensor, given, func, place)
        # It uses packed weights, or returns something for its backward whose size a fake tensor does not
        # tell.
        if name in _SIZED_BY_LIBRARY:
            unknown = torch.is_grad_enabled() and isinstance(result[3], FakeTensor) and not result[3].numel()
        else:
            unknown = any(isinstance(value, torch.ScriptObject) for value in inputs)
        if unknown:
            self._unknown[name] = None
        if phase == BACKWARD and running_node() == ACCUMULATE:
            # What is returned here ends up in ``.grad`` of its leaf, unless it is a part of a sparse one.
            leaf: Any = torch._C._current_autograd_node()
            for tensor in tensors_in(result):
                if tensor.shape == leaf.variable.shape:
                    self._found(tensor, "gradients")
        if name == "aten::add" and len(given) == 2 and (phase == BACKWARD or self._open[-1:] == ["Linear"]):
            self._note_sum(given, result)

    def _returned(
        self,
        storage: torch.UntypedStorage,
        tensor: torch.Tensor,
        given: list[torch.Tensor],
        func: Any,
        place: _Place,
    ) -> None:
        reference = self._references.get(storage._cdata)
        if reference is not None:
            if reference.owns and storage.nbytes() != reference.block.requested:
                self._grow(reference.block, storage, place)
            return
        if (
            given
            and isinstance(tensor, FakeTensor)
            and not isinstance(given[0], FakeTensor)
            and _aliases(func)
        ):
            # The fake tensor made for the call replaces the real one that was passed.
            source = next(storages(given[0]))
            self._refer(storage, self._references[source._cdata].block, owns=False)
            return
        recomputed = place.phase == BACKWARD and bool(self._open)
        phase = FORWARD if recomputed else place.phase
        block = _Block(tensor.device, phase, False, tuple(tensor.shape), tensor.dtype, place)
        self._grow(block, storage, place)
        self._refer(storage, block, owns=True)

    def _note_sum(self, terms: list[torch.Tensor], result: torch.Tensor) -> None:
        """Without a dispatch mode this sum might have been made in place; if so, ``_freed`` undoes its
        allocation.

        Autograd adds gradients that meet into the first of them, if nothing else holds that, and a linear
        layer its bias into the product; but not under a mode (``can_accumulate_inplace`` in
        autograd/input_buffer.cpp, ``isTensorSubclassLike`` in Linear.cpp). The first term had no other holder
        if it is freed before the next call.
        """
        first, second, total = (next(storages(tensor))._cdata for tensor in (*terms, result))
        term, owner = self._references[first].block, self._references[total]
        dense = terms[0].nbytes == term.requested == owner.block.requested
        if dense and first != second and not terms[0]._is_view():  # a view keeps what it is a view of
            self._sum = _Sum(term, owner, len(self._changes) - 1)

    def _grow(self, block: _Block, storage: torch.UntypedStorage, place: _Place | None = None) -> None:
        """Note the size of a block; without a place it existed before the step."""
        requested = storage.nbytes()
        unit = _ROUNDING.get(block.device.type, 1)
        allocated = -(-requested // unit) * unit
        change = _Change(
            block,
            requested - block.requested,
            allocated - block.allocated,
            place or _BEFORE,
            self._calls if place else 0,
        )
        (self._changes if place else self._existing).append(change)
        block.requested, block.allocated = requested, allocated

    def _refer(self, storage: torch.UntypedStorage, block: _Block, owns: bool) -> _Reference:
        reference = _Reference(storage, self._freed)
        reference.address, reference.block, reference.owns = storage._cdata, block, owns
        self._references[reference.address] = reference
        return reference

    def _freed(self, reference: _Reference) -> None:
        self._references.pop(reference.address, None)
        if not reference.owns:
            return
        block = reference.block
        if self._sum is not None and block is self._sum.term:
            self._changes[self._sum.change] = _Change(
                block, 0, 0, calls=self._changes[self._sum.change].calls
            )
            self._sum.result.block = block
            self._sum = None
        else:
            self._changes.append(_Change(block, -block.requested, -block.allocated, calls=self._calls))

    # --- what came of it ---

    def peak(self, recording: StepCalls) -> StepMemory:
        """The peak of the device that holds most; any accelerator comes before the host."""
        lines: dict[torch.device, list[_Change]] = {torch.device("cpu"): []}
        for change in (*self._existing, *self._changes):
            lines.setdefault(change.block.device, []).append(change)
        held = {device: _held(changes) for device, changes in lines.items()}
        device = max(lines, key=lambda place: (place.type != "cpu", held[place].sum(axis=1).max()))
        changes, sums = lines[device], held[device].sum(axis=1)
        at = int(sums.argmax())
        place = changes[at - 1].place if at else _BEFORE
        paths = [module.path for module in recording.modules]
        return StepMemory(
            device=str(device),
            peak_bytes=int(sums[at]),
            at_peak=MemoryAtPeak(**dict(zip(_CATEGORIES, held[device][at].tolist(), strict=True))),
            operator=place.operator,
            module=paths[place.module] if place.module >= 0 else "",
            phase=PHASES[place.phase] if place.operator else "",
            unknown=tuple(self._unknown),
            curve=_curve(
                changes, held[device], sum(change.block.device == device for change in self._existing)
            ),
            largest=_largest(changes[:at], paths),
        )


def _held(changes: list[_Change]) -> Int64s:
    """The bytes of each category, in columns, before any of ``changes`` and after each of them."""
    held = np.zeros((len(changes) + 1, len(_CATEGORIES)), np.int64)
    for number, change in enumerate(changes, 1):
        held[number, _CATEGORIES.index(change.block.kind())] += change.requested
        held[number, -1] += change.allocated - change.requested  # overhead
    return held.cumsum(axis=0)


def _curve(changes: list[_Change], held: Int64s, existing: int) -> MemoryCurve | None:
    """What is held after the ``existing`` first changes and each further one: all points, or the extremes of
    equal parts."""
    if not changes:
        return None
    first = max(1, existing)
    kept = first + extremes(held[first:].sum(axis=1))
    columns = zip(_CATEGORIES, held[kept].T.tolist(), strict=True)
    parts = {name: tuple(values) for name, values in columns if any(values)}
    return MemoryCurve(unit="calls", at=tuple(changes[at - 1].calls for at in kept.tolist()), parts=parts)


def _largest(changes: list[_Change], paths: list[str]) -> tuple[HeldTensor, ...]:
    """The largest tensors that are held after ``changes``; ``paths`` are those of the modules by number."""
    held = Counter[_Block]()
    for change in changes:
        held[change.block] += change.requested
    return tuple(
        HeldTensor(
            bytes=size,
            category=block.kind(),
            dtype=str(block.dtype).removeprefix("torch."),
            shape=block.shape if math.prod(block.shape) * block.dtype.itemsize == size else None,
            operator=block.place.operator,
            module=paths[block.place.module] if block.place.module >= 0 else block.owner,
        )
        for block, size in held.most_common(_MOST_TENSORS)
        if size > 0
    )


def storages(tensor: torch.Tensor) -> Iterator[torch.UntypedStorage]:
    """What holds the data of a tensor: one storage, or those of the tensors that it wraps or that make it
    up."""
    wrapper: Any = tensor
    if is_traceable_wrapper_subclass(wrapper):
        for name in wrapper.__tensor_flatten__()[0]:
            yield from storages(getattr(wrapper, name))
    elif tensor.layout is torch.strided or tensor.layout is torch.jagged:
        yield tensor.untyped_storage()
    elif tensor.layout is torch.sparse_coo:
        yield tensor._indices().untyped_storage()
        yield tensor._values().untyped_storage()
    else:
        raise UsageError(f"memory of tensors with layout {str(tensor.layout)!r} is not supported.")


@cache
def _aliases(func: Any) -> bool:
    """Whether what the operator returns may be (a view of) its first argument."""
    if not isinstance(func, torch._ops.OpOverload):
        return False
    return func._schema.name == "aten::_unsafe_view" or any(
        value.alias_info is not None for value in func._schema.returns
    )
