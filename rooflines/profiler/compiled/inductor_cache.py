"""Kernels in inductor's cache: the files that a recorded run left in ``TORCHINDUCTOR_CACHE_DIR`` or in ``torch_compile_debug``.

Two kinds of files have kernels: the code of a graph, in which each kernel is a string with its operators in the comment above, and the
code of one Triton kernel. They are parsed and never executed. Format: torch 2.1 to 2.14 (``get_kernel_metadata`` in
torch/_inductor/utils.py, ``TritonKernel.codegen_kernel`` in torch/_inductor/codegen/triton.py); shapes in the comment since 2.9.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rooflines.errors import UsageError
from rooflines.profiler.compiled.cpp_calls import read_cpp_calls
from rooflines.profiler.compiled.graph_fragment import Fragment, read_fragment
from rooflines.profiler.compiled.triton_source import TritonSource, read_triton

# Larger files are not what inductor writes.
_MOST_BYTES: Final = 32 << 20
_ANY: Final = re.compile(r"async_compile\.|@triton_heuristics\.")


@dataclass(frozen=True, slots=True)
class CachedKernel:
    """A kernel in the cache. ``source`` has the loads and stores of Triton code, ``fragment`` the operators of the kernel, None where
    the file has none. A C++ kernel has no source, and a fragment with its tensors alone."""

    name: str
    source: TritonSource | None
    fragment: Fragment | None


def read_cache(directory: Path | str) -> dict[str, tuple[CachedKernel, ...]]:
    """The kernels in ``directory`` by name, each with its variants; raises UsageError for a directory that does not exist."""
    root = Path(directory)
    if not root.is_dir():
        raise UsageError(f"no such directory: {str(directory)!r}.", hint="Give the TORCHINDUCTOR_CACHE_DIR of the recorded run.")
    found: dict[str, dict[CachedKernel, None]] = {}
    for path in sorted(root.rglob("*.py")):
        try:
            kernels = list(_read_file(path))
        except RecursionError:  # nested deeper than inductor nests
            continue
        for kernel in kernels:
            found.setdefault(kernel.name, {})[kernel] = None
    # The code of one kernel says nothing that the code of its graph does not.
    return {name: _without_parts(tuple(kernels)) for name, kernels in found.items()}


def _without_parts(kernels: tuple[CachedKernel, ...]) -> tuple[CachedKernel, ...]:
    whole = {kernel.source for kernel in kernels if kernel.fragment is not None}
    return tuple(kernel for kernel in kernels if kernel.fragment is not None or kernel.source not in whole)


def _read_file(path: Path) -> Iterator[CachedKernel]:
    try:
        if path.is_symlink() or path.stat().st_size > _MOST_BYTES:
            return
        text = path.read_text(encoding="utf-8", errors="replace")
        if not _ANY.search(text):
            return
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    lines = text.splitlines()
    cpp: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and (call := _compilation(node)) is not None:
            name, language, code = call
            source = read_triton(code) if language == "triton" else None
            if source is not None:
                yield CachedKernel(name, source, read_fragment(_comment_above(lines, node.lineno - 1)))
            elif language.startswith("cpp"):
                cpp[name] = code
        elif isinstance(node, ast.FunctionDef) and any("triton_heuristics" in ast.dump(one) for one in node.decorator_list):
            source = read_triton(ast.unparse(node))
            if source is not None:
                yield CachedKernel(source.name, source, None)
    for name, fragment in read_cpp_calls(tree, cpp).items():
        yield CachedKernel(name, None, fragment)


def _compilation(node: ast.Assign) -> tuple[str, str, str] | None:
    """The name, the language and the code in ``name = async_compile.triton('name', '''code''', ...)``."""
    call: Any = node.value
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and isinstance(node.targets[0], ast.Name)):
        return None
    if not (isinstance(call.func.value, ast.Name) and call.func.value.id == "async_compile"):
        return None
    texts = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return (node.targets[0].id, call.func.attr, texts[-1]) if texts else None


def _comment_above(lines: list[str], end: int) -> list[str]:
    """The lines of the comment that ends before line ``end``."""
    start = end
    while start and lines[start - 1].startswith("#"):
        start -= 1
    return [line.removeprefix("#").strip() for line in lines[start:end]]
