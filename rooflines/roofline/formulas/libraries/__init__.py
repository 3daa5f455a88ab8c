"""Formulas for the operators of other libraries, one module a library, imported when one of its operators is first counted.

A module states for each formula the version and the file that its order of arguments comes from. To add a library, add its module here
and the namespace of its operators to ``_NAMESPACES``; operators without a namespace, such as Python's autograd functions, are found by
the start of their names in ``_PREFIXES``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

# The namespace of an operator (``vllm::unified_attention``) -> the modules with its formulas.
_NAMESPACES: Final[dict[str, tuple[str, ...]]] = {
    "_C": ("vllm_kernels", "vllm_products", "vllm_experts", "mamba_kernels"),
    "_C_cache_ops": ("vllm_kernels",),
    "_C_custom_ar": ("vllm_operators",),
    "_moe_C": ("vllm_experts", "vllm_products"),
    "_rocm_C": ("vllm_products",),
    "vllm": ("vllm_operators", "vllm_experts"),
    "sgl_kernel": ("sglang_kernels", "vllm_kernels", "vllm_products", "vllm_operators", "vllm_experts", "mamba_kernels"),
    "sglang": ("sglang_kernels", "vllm_operators", "vllm_experts"),
    "aiter": ("aiter_kernels", "aiter_experts", "vllm_kernels", "vllm_products"),
}
# The start of an operator's name without a namespace -> the modules with its formulas.
_PREFIXES: Final[dict[str, tuple[str, ...]]] = {"TopK": ("triton_kernels",), "SortTokens": ("triton_kernels",)}


def load_library_of(name: str) -> None:
    """Import the modules with formulas for the library of the operator ``name``, if there are any."""
    _load(modules_of(name))


def modules_of(name: str) -> tuple[str, ...]:
    """The modules that may have a formula for the operator ``name``."""
    namespace, separator, _ = name.partition("::")
    if separator:
        return _NAMESPACES.get(namespace, ())
    return tuple(module for prefix, modules in _PREFIXES.items() if name.startswith(prefix) for module in modules)


def load_all() -> None:
    """Import the formulas of every library."""
    for modules in (*_NAMESPACES.values(), *_PREFIXES.values()):
        _load(modules)


def _load(modules: tuple[str, ...]) -> None:
    for module in modules:
        import_module(f"{__name__}.{module}")
