"""A workload from the user's own file: import it, find the factory, call it; what it raises comes back as ours."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflines.errors import WorkloadError
from rooflines.profiler.options import Options
from rooflines.profiler.records import Workload
from rooflines.profiler.workloads.memory_shortage import memory_shortage

if TYPE_CHECKING:
    import torch


def call_factory(path: Path, name: str, options: Options, device: torch.device) -> Any:
    """Call the function ``name`` in the file ``path`` and return its result: ``(module, inputs)`` or a step function.

    It is called with those of ``batch_size``, ``image_size``, ``device``, ``mode`` and ``seed`` that its signature names. Raises
    WorkloadError when the function does not exist, when it raises (with its exception as ``__cause__``), or when it returns neither.
    """
    import torch

    if not path.is_file():
        raise WorkloadError(f"no such file: {str(path)!r}.", hint="Give path/to/file.py:factory.")
    label = f"{path.name}:{name}"
    with _import_path(path.parent), _user_code(f"the file {str(path)!r} raised during import", label, options, device):
        module = _load_file(path)
    factory = getattr(module, name, None)
    if not callable(factory):
        functions = [n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__]
        close = difflib.get_close_matches(name, functions, n=1)
        hint = f"Did you mean {close[0]}?" if close else f"It has {', '.join(functions)}." if functions else ""
        raise WorkloadError(f"{str(path)!r} has no function {name!r}.", hint=hint)
    offered = {"batch_size": options.batch_size or 1, "image_size": options.image_size, "device": device, "mode": options.mode,
               "seed": options.seed}  # fmt: skip
    with _import_path(path.parent), _user_code(f"the factory {label} raised", label, options, device):
        parameters = inspect.signature(factory).parameters
        made = factory(**{key: value for key, value in offered.items() if key in parameters and value is not None})
    is_module = isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module)
    if is_module or (callable(made) and not isinstance(made, torch.nn.Module)):
        return made
    raise WorkloadError(
        f"the factory {label} returned {_described(made)}.", hint="Return (module, inputs), or a function that runs one step."
    )


@contextlib.contextmanager
def _user_code(what: str, label: str, options: Options, device: torch.device) -> Iterator[None]:
    """Turns what the user's code raises, also sys.exit(), into ours, with the exception as its cause."""
    try:
        yield
    except (Exception, SystemExit) as error:
        facts = Workload(name=label, mode=options.mode, batch_size=options.batch_size)
        shortage = memory_shortage(error, facts, device)
        raise shortage or WorkloadError(f"{what}: {type(error).__name__}: {error}") from error


def _described(value: Any) -> str:
    kinds = f" of {', '.join(type(item).__name__ for item in value)}" if isinstance(value, tuple) and value else ""
    return f"{type(value).__name__}{kinds}"


def _load_file(path: Path) -> Any:
    # The name lets its classes be pickled; one that is taken (json.py, types.py) must not be replaced for everybody else.
    name = path.stem if path.stem not in sys.modules else f"{path.stem}__workload"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextlib.contextmanager
def _import_path(folder: Path) -> Iterator[None]:
    """``folder`` first on the import path, as for a script that lies there."""
    before = list(sys.path)
    sys.path.insert(0, str(folder.resolve()))
    try:
        yield
    finally:
        sys.path[:] = before
