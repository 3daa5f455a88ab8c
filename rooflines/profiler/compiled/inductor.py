"""Watching inductor generate kernels: which graph nodes each computes and which memory it reads and writes.

Inductor calls a hook of its configuration for every graph that it schedules. From there on *this graph's* scheduler and code generator
are watched, on the objects themselves: nothing of torch is changed for the next graph. C++ kernels leave an event in a trace only when
they are generated with one, which is switched on for the whole recording; without a profiler it costs a few nanoseconds a call. Graphs
that inductor finds in its caches are not scheduled, so the caches of graphs are off while recording; those of compiled kernels stay on.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rooflines.profiler.compiled.inductor_graph import GraphReader, Nodes, Schedule, leaves_of
from rooflines.profiler.compiled.records import CompiledCode, Graph

if TYPE_CHECKING:
    from typing_extensions import Self

_CONFIG: Final = "torch._inductor.config"
_HOOK: Final = "_pre_fusion_custom_pass"
_EVENTS: Final = "cpp.enable_kernel_profile"


class InductorWatch:
    """Context manager: while it is open, what inductor compiles is noted; ``code()`` has it afterwards.

    Nothing is imported for it: where ``torch._inductor`` is not loaded yet, the watch begins when it is loaded.
    """

    def __init__(self) -> None:
        self._graphs: list[tuple[Graph, dict[str, int]]] = []
        self._nodes = Nodes()
        self._problems: list[str] = []
        self._stack = contextlib.ExitStack()
        self._before: Any = None

    def __enter__(self) -> Self:
        if _CONFIG in sys.modules:
            self._begin()
        else:
            finder = _WhenImported(_CONFIG, self._begin)
            sys.meta_path.insert(0, finder)
            self._stack.callback(finder.remove)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def code(self, names: dict[int, str] | None = None) -> CompiledCode | None:
        """Return the compiled code; None without any. ``names`` are the paths of modules by their ``id``."""
        if not self._graphs and not self._problems:
            return None
        return CompiledCode(
            graphs=tuple(msgspec.structs.replace(graph, prefix=_prefix(ids, names or {})) for graph, ids in self._graphs),
            nodes=tuple(self._nodes.values),
            empty=_empty_regions(),
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
        self._before = getattr(config, _HOOK, None)

        def hook(nodes: list[Any]) -> Any:  # a plain function: inductor makes deep copies of its configuration
            return self._scheduling(nodes)

        wanted = {_HOOK: hook, _EVENTS: True, "fx_graph_cache": False, "fx_graph_remote_cache": False}
        self._patch(config, wanted)
        self._patch(functorch, {"enable_autograd_cache": False, "enable_remote_autograd_cache": False})

    def _patch(self, config: Any, wanted: dict[str, Any]) -> None:
        for name, value in wanted.items():
            # Private settings: a version of torch without one is worked with as far as that goes.
            if hasattr(config, name):
                self._stack.enter_context(config.patch({name: value}))
            elif name in (_HOOK, _EVENTS):
                self._problems.append(f"this version of torch has no {config.__name__}.{name}: fused kernels cannot be identified")

    def _scheduling(self, nodes: list[Any]) -> Any:
        """Inductor's hook: called for every graph with its scheduler's nodes, before they are fused."""
        result = self._before(nodes) if self._before is not None else nodes
        try:
            if nodes:
                _watch(nodes, self._scheduled)
        except Exception as error:  # a difference between versions of inductor must not stop the compilation
            self._failed(error)
        return result

    def _scheduled(self, schedule: Schedule) -> None:
        if schedule.silent:
            self._problems.append(f"compiled C++ kernels have no events on {sys.platform}: their times are not available")
            return
        try:
            reader = GraphReader(schedule, self._nodes)
            self._graphs.append((reader.graph(), reader.module_ids))
        except Exception as error:  # as above
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self._problems.append(f"a compiled graph could not be read ({type(error).__name__}: {error})")


def _empty_regions() -> tuple[str, ...]:
    """Functions that were compiled to nothing, as those of hooks; torch keeps the figures of the last 64 compilations."""
    from torch._dynamo.utils import get_compilation_metrics

    return tuple(str(one.compile_id) for one in get_compilation_metrics() if one.is_forward and one.graph_op_count == 0)


def _prefix(ids: dict[str, int], names: dict[int, str]) -> str | None:
    """The path of the module that was compiled, from those of its modules that have a name in ``names``."""
    for path, identity in ids.items():
        name = names.get(identity)
        if name is not None and f".{name}".endswith(f".{path}" if path else ""):
            return name.removesuffix(path).rstrip(".")
    return None


class _WhenImported:
    """A finder of modules that finds none itself, and calls ``then`` once the module ``name`` has been imported."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The module's own spec with its loader's end extended, by the finders after this one."""
        if name != self._name:
            return None
        self.remove()
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                self._then()

            loader.exec_module = exec_module
        return spec

    def remove(self) -> None:
        """No longer asked for modules."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


# --- one graph -----------------------------------------------------------------------------------------------------------------------


def _watch(nodes: list[Any], done: Callable[[Schedule], None]) -> None:
    """Note what is generated for the graph of ``nodes``, and call ``done`` when all of it is."""
    from torch._guards import CompileContext
    from torch._inductor.virtualized import V

    graph: Any = V.graph
    scheduler = nodes[0].scheduler
    schedule = Schedule(graph, scheduler, str(CompileContext.current_compile_id()))
    for device in {device for node in nodes if (device := node.get_device()) is not None}:
        backend = scheduler.get_backend(device)
        # One for a GPU hands on to those for Triton, CUTLASS, ...: it keeps them as attributes.
        for part in (backend, *vars(backend).values()):
            if callable(getattr(part, "define_kernel", None)):
                _note_kernels(part, schedule)
    generate = scheduler.codegen

    def codegen() -> Any:
        result = generate()
        done(schedule)
        return result

    scheduler.codegen = codegen


def _note_kernels(part: Any, schedule: Schedule) -> None:
    define = part.define_kernel
    cpp = type(part).__name__.startswith("Cpp")

    def define_kernel(source: str, nodes: Any, *rest: Any, **named: Any) -> Any:
        name = define(source, nodes, *rest, **named)
        event = _event_name(source, str(name), str(name) if schedule.graph.cpp_wrapper else "kernel") if cpp else str(name)
        if event is None:
            schedule.silent = True
        else:
            schedule.kernels.append((event, [leaf for node in nodes for leaf in leaves_of(node)]))
        return name

    part.define_kernel = define_kernel


def _event_name(source: str, name: str, function: str) -> str | None:
    """The name of the event that a C++ kernel leaves, as its source has it before it gets its ``name`` and that of its ``function``;
    None where it leaves none."""
    from torch._inductor.utils import Placeholder

    found = re.search(r'(?:RAIIAtenRecordFunctionHandle [\w.]+|RECORD_FUNCTION)\("([^"]+)"', source)
    return found[1].replace(str(Placeholder.DESCRIPTIVE_NAME), name).replace(str(Placeholder.KERNEL_NAME), function) if found else None


def compile_seconds() -> float:
    """Return the seconds that this process has spent compiling so far; 0 where nothing was compiled."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return float(utils.calculate_time_spent().get("total_wall_time", 0.0)) if utils is not None else 0.0
