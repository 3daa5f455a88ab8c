"""Watching inductor generate kernels: for each kernel the graph nodes it computes, the memory it accesses and
the module it is from.

Inductor calls a hook of its configuration for every graph that it schedules. From there on *this graph's*
scheduler and code generator are watched, on the objects themselves: nothing of torch is changed for the next
graph. C++ kernels leave an event in a trace only when they are generated with one, which is switched on for
the whole recording; without a profiler it costs a few nanoseconds a call. Graphs that inductor finds in its
caches are not scheduled, so the caches of graphs are off while recording; those of compiled kernels stay on.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import re
import sys
from collections.abc import Iterator
from typing import Any, TypeAlias

from msgspec.structs import replace

from rooflines.profiler.compiled.records import Access, CompiledCode, CompiledKernel, Graph, as_buffer
from rooflines.profiler.hooks.line_marks import is_of_program, program_line
from rooflines.profiler.hooks.replaced import replaced, when_imported
from rooflines.profiler.read.signature import Signature, StoredCall, TensorArg
from rooflines.profiler.records import Numbers

VARYING = "compiled for varying sizes that are not recorded; use torch.compile(..., dynamic=False)"
# Files, numbers and functions of lines, and calls of operators as text, each with its number.
_Line: TypeAlias = tuple[str, int, str]
_Lines: TypeAlias = dict[_Line, int]
_Nodes: TypeAlias = dict[str, tuple[int, StoredCall]]
# For every node the memory that it is computed from.
_Needs: TypeAlias = dict[Any, set[frozenset[str]]]
_CONFIG = "torch._inductor.config"
_HOOK = "_pre_fusion_custom_pass"
_EVENTS = "cpp.enable_kernel_profile"
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def leaves_of(node: Any) -> Iterator[Any]:
    """The single operations in an entry of a schedule; markers between them have none."""
    if hasattr(node, "get_nodes"):
        for leaf in node.get_nodes():
            if leaf is node:
                yield leaf
            else:
                yield from leaves_of(leaf)


class _Varying(Exception):
    """A size is not a number."""


class GraphReader:
    """One graph: notes its kernels while its code is generated, then reads its facts off inductor's objects.

    ``kernels`` are those that were defined for it, each with its scheduler nodes, in order; ``silent`` says
    that one leaves no event. ``module_ids`` has the ``id`` of every module by its path.
    """

    def __init__(
        self,
        graph: Any,
        scheduler: Any,
        region: str,
        nodes: _Nodes,
        lines: _Lines,
    ) -> None:
        self._graph, self._scheduler, self._region, self._nodes = graph, scheduler, region, nodes
        self._lines = lines
        self.kernels: list[tuple[str, list[Any]]] = []
        self.silent = False
        self.module_ids: dict[str, int] = {}
        self._modules: dict[str, str] = {}
        self._buffers: dict[str, tuple[int, TensorArg]] = {}

    def follow(self, part: Any, wrapped: bool) -> None:
        """Note the kernels that a part of the code generator defines; with a C++ wrapper (``wrapped``) their
        functions have names."""
        define = part.define_kernel
        cpp = type(part).__name__.startswith("Cpp")

        def define_kernel(source: str, nodes: Any, *rest: Any, **named: Any) -> Any:
            name = define(source, nodes, *rest, **named)
            event = _event_name(source, str(name), str(name) if wrapped else "kernel") if cpp else str(name)
            if event is None:
                self.silent = True
            else:
                self.kernels.append((event, [leaf for node in nodes for leaf in leaves_of(node)]))
            return name

        part.define_kernel = define_kernel

    def graph(self) -> Graph:
        """The graph with its calls in the order of execution, once its code has been generated."""
        self._order = {node: index for index, node in enumerate(self._graph.graph.nodes)}
        self._leaves = [leaf for node in self._scheduler.nodes for leaf in leaves_of(node)]
        # What operators outside compute is not computed by the kernels that prepare their arguments or finish
        # their results. With the buffers that they write.
        self._outside: dict[Any, set[str]] = {}
        for leaf in self._leaves:
            if leaf.is_extern() and (own := self._own(leaf)) is not None:
                self._outside.setdefault(own, set()).update(output.get_name() for output in leaf.outputs)
        self._shares = self._share()
        place = {leaf.get_name(): index for index, leaf in enumerate(self._leaves)}
        entries: list[tuple[int, str, list[Any]]] = [
            (min((place.get(leaf.get_name(), -1) for leaf in leaves), default=-1), name, leaves)
            for name, leaves in self.kernels
        ]
        entries += [
            (place[leaf.get_name()], name, [leaf])
            for leaf in self._leaves
            if leaf.is_extern() and (name := _extern_name(leaf.node))
        ]
        kernels = tuple(
            self._extern(name, leaves[0])
            if len(leaves) == 1 and leaves[0].is_extern()
            else self._kernel(name, leaves)
            for _, name, leaves in sorted(entries, key=lambda entry: entry[0])
        )
        return Graph(
            region=self._region,
            backward=bool(self._graph.is_backward),
            kernels=kernels,
            buffers=tuple(as_buffer(tensor) for _, tensor in self._buffers.values()),
            modules=self._modules,
        )

    def _number(self, call: StoredCall) -> int:
        return self._nodes.setdefault(repr(call), (len(self._nodes), call))[0]

    def _extern(self, name: str, leaf: Any) -> CompiledKernel:
        own = self._own(leaf)
        numbers: Numbers = ()
        with contextlib.suppress(_Varying):
            call = call_of(own) if own is not None else None
            if call is not None and call.name == name:  # else the operator was lowered to another one
                numbers = (self._number(call),)
        nodes = [own] if own is not None else []
        return CompiledKernel(
            name=name,
            extern=True,
            module=self._module(nodes),
            nodes=numbers,
            lines=self._numbered_lines(nodes),
        )

    def _kernel(self, name: str, leaves: list[Any]) -> CompiledKernel:
        nodes = sorted(
            {node for leaf in leaves for node in self._shares.get(leaf.get_name(), ())}, key=self._place
        )
        module = self._module(
            [node for node in nodes if node not in self._outside]
            or [n for leaf in leaves for n in _origins(leaf)]
        )
        try:
            calls = [
                call
                for node in nodes
                if (call := _bias_of(node) if node in self._outside else call_of(node)) is not None
            ]
            reads, writes = self._accesses(leaves)
        except _Varying:
            return CompiledKernel(name=name, module=module, reason=VARYING)
        return CompiledKernel(
            name=name,
            module=module,
            nodes=tuple(map(self._number, calls)),
            lines=self._numbered_lines(nodes),
            reads=tuple(reads),
            writes=tuple(writes),
        )

    def _numbered_lines(self, nodes: list[Any]) -> Numbers:
        """The lines of the program that ``nodes`` come from, the innermost of each."""
        found = dict.fromkeys(filter(None, map(_line, nodes)))
        return tuple(self._lines.setdefault(line, len(self._lines)) for line in found)

    def _module(self, nodes: list[Any]) -> str | None:
        """The path of the innermost module that all of ``nodes`` came from; None where no node says."""
        stacks = [stack for node in nodes if (stack := _module_stack(node)) is not None]
        for stack in stacks:
            self.module_ids.update({path: identity for identity, path, _ in stack if identity is not None})
            self._modules.update({path: kind for _, path, kind in stack})
        paths = [[path for _, path, _ in stack if path] for stack in stacks]
        common = [
            level[0]
            for level in itertools.takewhile(lambda level: len(set(level)) == 1, zip(*paths, strict=False))
        ]
        return (common[-1] if common else "") if stacks else None

    # nodes of the graph

    def _place(self, node: Any) -> int:
        return self._order.get(node, -1)

    def _own(self, leaf: Any) -> Any:
        """The node that an operation computes itself: what its arguments were made of comes before it in the
        graph."""
        own = getattr(leaf.node, "origin_node", None)
        if own is not None and own.op == "call_function":
            return own
        return max(_origins(leaf), key=self._place, default=None)

    def _share(self) -> dict[str, list[Any]]:
        """The nodes that each operation of a kernel is the first to compute.

        An operation lists too many origins: all values without memory when it was lowered. A node belongs to
        the operation that reads its inputs; if those have no node, to the one whose result it goes into; else
        to the one that reads most of its inputs.
        """
        needs = self._needs()
        claims: dict[Any, list[tuple[int, str]]] = {}
        for leaf in self._leaves:
            if leaf.is_extern() or getattr(leaf.node, "origins", None) is None:
                continue
            reads = {dep.name for dep in leaf.read_writes.reads}
            makes = self._behind(leaf)
            for node in _origins(leaf):
                missing = sum(1 for names in needs.get(node, ()) if not names & reads)
                rank = 0 if missing == 0 else 1 if node in makes else 1 + missing
                claims.setdefault(node, []).append((rank, leaf.get_name()))
        owner = {node: min(claimed, key=lambda claim: claim[0])[1] for node, claimed in claims.items()}
        # Some are not an origin of any operation (torch versions differ): they are computed where they are
        # used.
        for node in reversed(self._order):
            if node.op == "call_function" and node not in owner and node not in self._outside:
                name = next(
                    (owner[user] for user in node.users if user in owner and user not in self._outside), None
                )
                if name is not None:
                    owner[node] = name
        shares: dict[str, list[Any]] = {}
        for node, name in owner.items():
            shares.setdefault(name, []).append(node)
        return shares

    def _needs(self) -> _Needs:
        """For every node the memory that it is computed from: of each piece the names under which it may be
        read.

        What is left to do of a node outside (its bias) is done to what the operator wrote.
        """
        kept = {node: set(names) for node, names in self._outside.items()}
        for leaf in self._leaves:
            node = getattr(leaf.node, "origin_node", None)
            if node is not None:
                kept.setdefault(node, set()).update(output.get_name() for output in leaf.outputs)
        needs: _Needs = {}
        for node in self._order:
            if node.op in ("placeholder", "get_attr"):
                kept.setdefault(node, set()).add(str(node.target))
            needs[node] = set()
            for argument in node.all_input_nodes:
                needs[node] |= {frozenset(kept[argument])} if argument in kept else needs[argument]
        return needs | {node: {frozenset(names)} for node, names in self._outside.items()}

    def _behind(self, leaf: Any) -> set[Any]:
        """The node whose result an operation is, and its origins that the node is made of."""
        origins = set(_origins(leaf))
        behind: set[Any] = set()
        waiting: list[Any] = [getattr(leaf.node, "origin_node", None)]
        while waiting:
            node = waiting.pop()
            if node in origins and node not in behind:
                behind.add(node)
                waiting += node.all_input_nodes
        return behind

    # memory

    def _accesses(self, leaves: list[Any]) -> tuple[list[Access], list[Access]]:
        """Loads of memory written before the kernel, and stores of results needed after it."""
        inside = {leaf.get_name() for leaf in leaves}
        written = {dep.name for leaf in leaves for dep in leaf.read_writes.writes}
        stays = {
            self._memory(output.get_name())
            for leaf in leaves
            for output in leaf.outputs
            if self._memory(output.get_name()) not in written
            or any(not user.is_weak and user.node.get_name() not in inside for user in output.users)
        }
        reads, writes = {}, {}
        for leaf in leaves:
            turns = math.prod(_integer(size) for sizes in leaf.get_ranges() for size in sizes)
            for dep in leaf.read_writes.reads:
                # A star without a template only orders a change of memory after the reads of what was there.
                if dep.name not in written and (
                    _has_index(dep) or (type(dep).__name__ == "StarDep" and leaf.is_template())
                ):
                    reads[str(dep)] = self._access(dep, turns)
            for dep in leaf.read_writes.writes:
                memory = self._memory(dep.name)
                if memory in stays:
                    adds = getattr(dep, "mode", None) == "atomic_add" and memory not in written
                    writes[str(dep)] = self._access(dep, turns, adds)
        return list(reads.values()), list(writes.values())

    def _memory(self, name: str) -> str:
        """The buffer behind ``name``: a changed version of a buffer has another name."""
        return str(self._scheduler.mutation_real_name.get(name, name))

    def _access(self, dep: Any, turns: int, adds: bool = False) -> Access:
        """The elements that one load or store reaches in loops of these sizes."""
        number, tensor = self._buffer(self._memory(dep.name))
        last = tensor.extent - 1
        if not _has_index(dep):
            return Access(number, tensor.distinct, 0, last, adds)
        sizes = {variable: _integer(size) for variable, size in zip(dep.var_names, dep.size, strict=True)}
        symbols = dep.index.free_symbols
        if dep.is_indirect():  # one element a turn, anywhere
            return Access(number, min(turns, tensor.distinct), 0, last, adds, anywhere=True)
        if symbols - set(sizes):
            raise _Varying
        from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

        loops: Any = {variable: ValueRanges(0, max(size - 1, 0)) for variable, size in sizes.items()}
        bounds: Any = bound_sympy(dep.index, loops)
        elements = min(math.prod(sizes[symbol] for symbol in symbols), tensor.distinct)
        return Access(number, elements, max(int(bounds.lower), 0), int(bounds.upper), adds)

    def _buffer(self, name: str) -> tuple[int, TensorArg]:
        if name not in self._buffers:
            layout = self._graph.get_buffer(name).get_layout()
            dtype = str(self._graph.get_dtype(name)).removeprefix("torch.")
            tensor = TensorArg(tuple(map(_integer, layout.size)), dtype, tuple(map(_integer, layout.stride)))
            self._buffers[name] = len(self._buffers), tensor
        return self._buffers[name]


def _integer(size: Any) -> int:
    if getattr(size, "free_symbols", None):
        raise _Varying
    return int(size)


def _origins(leaf: Any) -> list[Any]:
    """The calls of the graph that an operation came from."""
    return [node for node in leaf.node.origins if node.op == "call_function"]


def _has_index(dep: Any) -> bool:
    return type(dep).__name__ == "MemoryDep"


def _extern_name(operation: Any) -> str:
    """The name of the event that an operator outside leaves: ``extern_kernels.addmm`` is ``aten::addmm``;
    empty where it has none."""
    if type(operation).__name__ == "MultiOutput":
        return ""
    overload = getattr(operation, "op_overload", None)
    if overload is not None and hasattr(overload, "_schema"):
        return str(overload._schema.name)
    name = str(getattr(operation, "python_kernel_name", None) or "")
    if name.startswith("extern_kernels."):
        return f"aten::{name.removeprefix('extern_kernels.').removeprefix('bias_')}"
    parts = name.removeprefix("torch.ops.").split(".")
    return f"{parts[0]}::{parts[1]}" if len(parts) >= 2 else ""


def call_of(node: Any) -> StoredCall | None:
    """The operator call that a graph's node is; None for the parts of tuples and arithmetic on sizes."""
    import torch
    from torch.utils._pytree import tree_map

    from rooflines.profiler.calls.signatures import argument_of, call_signature, tensor_arg

    target, value = node.target, node.meta.get("val")
    if isinstance(target, torch._ops.OpOverloadPacket) and hasattr(target, "default"):
        target = target.default
    if not isinstance(target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
        # A function that a pass has put there has a result; where one cannot be seen it is arithmetic on
        # sizes.
        if target is operator.getitem or not isinstance(value, torch.Tensor):
            return None
        if not _fixed(value):
            raise _Varying
        return StoredCall.of(
            Signature(f"inductor::{getattr(target, '__name__', type(target).__name__)}"), (tensor_arg(value),)
        )
    if not all(_fixed(argument.meta.get("val")) for argument in (*node.all_input_nodes, node)):
        raise _Varying
    args, kwargs = tree_map(
        lambda value: value.meta.get("val") if isinstance(value, torch.fx.Node) else value,
        (node.args, node.kwargs),
    )
    if isinstance(target, torch._ops.OpOverload):
        signature = call_signature(target, tuple(args), dict(kwargs))
    else:
        name = target.name()  # type: ignore[no-untyped-call]
        signature = Signature(f"higher_order::{name}", tuple(argument_of(argument) for argument in args))
    results = value if isinstance(value, (tuple, list)) else (value,)
    return StoredCall.of(
        signature, tuple(tensor_arg(result) for result in results if isinstance(result, torch.Tensor))
    )


def _fixed(value: Any) -> bool:
    """Whether a node's value has sizes that are numbers; asking a symbol for its value would fix it for the
    program."""
    import torch
    from torch.utils._pytree import tree_leaves

    numbers: list[Any] = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            numbers += (*leaf.shape, *(leaf.stride() if leaf.layout is torch.strided else ()))
        else:
            numbers.append(leaf)
    return not any(isinstance(one, (torch.SymInt, torch.SymFloat, torch.SymBool)) for one in numbers)


def _bias_of(node: Any) -> StoredCall | None:
    """The addition of its bias, which inductor takes out of some operators to fuse it with what follows."""
    import torch

    from rooflines.profiler.calls.signatures import tensor_arg

    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not _fixed(value):
        return None
    result = tensor_arg(value)
    channels = result.shape[1:2]
    if node.target is torch.ops.aten.convolution.default and value.device.type != "cpu":
        bias, shape = node.args[2], (*channels, *(1 for _ in result.shape[2:]))
    elif str(node.target).startswith("mkl._mkl_linear"):
        bias, shape = node.args[3], result.shape[-1:]
    else:
        return None
    return (
        None
        if bias is None
        else StoredCall.of(Signature("aten::add", (result, TensorArg(shape, result.dtype), 1)), (result,))
    )


# --- modules ----------------------------------------------------------------------------------------------


def _module_stack(node: Any) -> list[tuple[int | None, str, str]] | None:
    """The modules around a node, outermost first, each with its ``id``, its path below the one whose forward
    was compiled, and its class; of a backward node those of its forward. None for nodes that come from no
    line of the program, as those that passes insert.
    """
    modules = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not modules:
        return [] if node.meta.get("stack_trace") else None
    return [
        (
            int(number[0]) if (number := re.match(r"\d+", str(key))) else None,
            _path(str(path)),
            getattr(kind, "__name__", str(kind).rpartition(".")[2]),
        )
        for key, (path, kind) in modules.items()
    ]


def _line(node: Any) -> _Line | None:
    """File, number and function of the innermost line of the program that a node comes from."""
    frames = _FRAME.findall(str(node.meta.get("stack_trace") or ""))
    of_program = [frame for frame in frames if is_of_program(frame[0])]
    return (of_program[-1][0], int(of_program[-1][1]), of_program[-1][2]) if of_program else None


def _path(source: str) -> str:
    """``L['self'].layer1.0`` and ``L['self']._modules['layer1'][0]`` as ``layer1.0``."""
    path = re.sub(r"\A[A-Z]+\['[^']*'\]", "", source)
    path = path.replace("._modules", "").replace("._orig_mod", "")
    path = re.sub(r"\[['\"]?([^'\"\]]*)['\"]?\]", r".\1", path)
    return path.strip(".")


class InductorWatch:
    """Context manager: while it is open, what inductor compiles is noted; ``code()`` has it afterwards.

    Nothing is imported for it: where ``torch._inductor`` is not loaded yet, the watch begins when it is
    loaded.
    """

    def __init__(self) -> None:
        self._graphs: list[tuple[Graph, dict[str, int]]] = []
        self._nodes: _Nodes = {}
        self._lines: _Lines = {}
        self._problems: list[str] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> InductorWatch:
        self._stack.enter_context(when_imported(_CONFIG, self._begin))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def code(self, names: dict[int, str] | None = None) -> CompiledCode | None:
        """Return the compiled code; None without any. ``names`` are the paths of modules by their ``id``."""
        if not self._graphs and not self._problems:
            return None
        from torch._dynamo.utils import get_compilation_metrics

        return CompiledCode(
            graphs=tuple(replace(graph, prefix=_prefix(ids, names or {})) for graph, ids in self._graphs),
            nodes=tuple(call for _, call in self._nodes.values()),
            lines=tuple(program_line(*line) for line in self._lines),
            # Functions that were compiled to nothing, as those of hooks; torch keeps the figures of the last
            # 64 compilations.
            empty=tuple(
                str(metrics.compile_id)
                for metrics in get_compilation_metrics()
                if metrics.is_forward and metrics.graph_op_count == 0
            ),
            problems=tuple(dict.fromkeys(self._problems)),
        )

    @property
    def graphs(self) -> int:
        """The number of compiled graphs."""
        return len(self._graphs)

    def _begin(self) -> None:
        import torch._functorch.config as functorch
        import torch._inductor.config as inductor

        config: Any = inductor
        before = getattr(config, _HOOK, None)

        # A plain function: inductor makes deep copies of its configuration.
        def hook(nodes: list[Any]) -> Any:
            """Called for every graph with its scheduler's nodes, before they are fused."""
            result = before(nodes) if before is not None else nodes
            with self._problem_noted():
                if nodes:
                    self._watch(nodes)
            return result

        wanted = {_HOOK: hook, _EVENTS: True, "fx_graph_cache": False, "fx_graph_remote_cache": False}
        self._patch(config, wanted)
        self._patch(functorch, {"enable_autograd_cache": False, "enable_remote_autograd_cache": False})

    def _patch(self, config: Any, wanted: dict[str, Any]) -> None:
        for name, value in wanted.items():
            # Private settings: a version of torch without one is worked with as far as that goes.
            if hasattr(config, name):
                # Not by config.patch: what a thread sets is its own since torch 2.14, and another one may end
                # the watch.
                given = replaced(name, lambda _, value=value: value, config)  # type: ignore[misc]
                self._stack.enter_context(given)
            elif name in (_HOOK, _EVENTS):
                self._problems.append(
                    f"this version of torch has no {config.__name__}.{name}: fused kernels cannot "
                    "be identified"
                )

    def _watch(self, nodes: list[Any]) -> None:
        """Note what is generated for the graph of ``nodes``, and read the graph when all of it is."""
        from torch._guards import CompileContext
        from torch._inductor.virtualized import V

        scheduler = nodes[0].scheduler
        region = str(CompileContext.current_compile_id())
        reader = GraphReader(V.graph, scheduler, region, self._nodes, self._lines)
        for device in {device for node in nodes if (device := node.get_device()) is not None}:
            backend = scheduler.get_backend(device)
            # One for a GPU hands on to those for Triton, CUTLASS, ...: it keeps them as attributes.
            for part in (backend, *vars(backend).values()):
                if callable(getattr(part, "define_kernel", None)):
                    reader.follow(part, V.graph.cpp_wrapper)
        generate = scheduler.codegen

        def codegen() -> Any:
            result = generate()
            if reader.silent:
                self._problems.append(
                    f"compiled C++ kernels have no events on {sys.platform}: their times are not available"
                )
            else:
                with self._problem_noted():
                    self._graphs.append((reader.graph(), reader.module_ids))
            return result

        scheduler.codegen = codegen

    @contextlib.contextmanager
    def _problem_noted(self) -> Iterator[None]:
        """Note an exception and go on: a difference between versions of inductor must not stop the
        compilation."""
        try:
            yield
        except Exception as error:
            self._problems.append(f"a compiled graph could not be read ({type(error).__name__}: {error})")


def _prefix(ids: dict[str, int], names: dict[int, str]) -> str | None:
    """The path of the module that was compiled, from those of its modules that have a name in ``names``."""
    for path, identity in ids.items():
        name = names.get(identity)
        if name is not None and f".{name}".endswith(f".{path}" if path else ""):
            return name.removesuffix(path).rstrip(".")
    return None


def _event_name(source: str, name: str, function: str) -> str | None:
    """The name of the event that a C++ kernel leaves, as its source has it before it gets its ``name`` and
    that of its ``function``; None where it leaves none."""
    from torch._inductor.utils import Placeholder

    mark = re.search(r'(?:RAIIAtenRecordFunctionHandle [\w.]+|RECORD_FUNCTION)\("([^"]+)"', source)
    return (
        mark[1]
        .replace(str(Placeholder.DESCRIPTIVE_NAME), name)
        .replace(str(Placeholder.KERNEL_NAME), function)
        if mark
        else None
    )


def compile_seconds() -> float:
    """Return the seconds that this process has spent compiling so far; 0 where nothing was compiled."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return float(utils.calculate_time_spent().get("total_wall_time", 0.0)) if utils is not None else 0.0
