"""Formulas for the operators of other libraries, one module a library, imported when one of its operators is first counted.

A module states for each formula the version and the file that its order of arguments comes from. To add a library, add its module here
and the namespace of its operators to ``_NAMESPACES``; operators without a namespace, such as Python's autograd functions, are found by
the start of their names in ``_PREFIXES``.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Final

# The namespace of an operator (``vllm::unified_attention``) -> the modules with its formulas.
_NAMESPACES: Final[dict[str, tuple[str, ...]]] = {
    "_C": ("vllm_attention",),
    "_diffusers_flash_attn_3": ("flash_attention",),
    "_flashmla_C": ("flash_mla",),
    "_rocm_C": ("vllm_attention",),
    "_vllm_fa2_C": ("flash_attention",),
    "_vllm_fa3_C": ("flash_attention",),
    "aiter": ("aiter_attention",),
    "flash_attn": ("flash_attention",),
    "flash_attn_2_cuda": ("flash_attention",),
    "flash_attn_3": ("flash_attention",),
    "sgl_kernel": ("flash_attention", "flash_mla", "sglang_attention"),
    "sglang": ("sglang_attention",),
    "sglang_profiler": ("aiter_attention",),
    "vllm": ("vllm_attention",),
    "xformers": ("xformers",),
    "xformers_flash": ("xformers",),
    "xformers_flash3": ("xformers",),
}
# The start of an operator's name without a namespace -> the modules with its formulas.
_PREFIXES: Final[dict[str, tuple[str, ...]]] = {
    "FlashAttn": ("flash_attention",),
    "FusedAttnFunc": ("transformer_engine_attention",),
    "sage_": ("aiter_attention",),
}


# A number that SGLang's profiler gives to a function it makes an operator of, or inductor to a program's own kernel in Triton.
_NUMBER: Final = re.compile(r"_\d+\Z")
# The namespace of a kernel from Hugging Face's hub, with the commit it was built from: ``_flash_attn3_cuda_1d39a44::fwd``.
_HUB: Final = re.compile(r"_(?:vllm_)?flash_attn(?P<version>[23]?)_\w+::")


def canonical(name: str) -> str:
    """The name of an operator without what a profiler, a compiler or a build adds to it.

    ``sglang_profiler::attention_paged_attention_ragged_100`` and ``sage_fwd_1`` lose the number, and flash-attn from the hub is
    ``flash_attn_2_cuda::fwd`` or ``flash_attn_3::fwd``.
    """
    hub = _HUB.match(name)
    if hub:
        return ("flash_attn_3::" if hub["version"] == "3" else "flash_attn_2_cuda::") + name[hub.end() :]
    return _NUMBER.sub("", name)


def load_library_of(name: str) -> None:
    """Import the modules with formulas for the library of the operator ``name``, if there are any."""
    _load(modules_of(name))


def modules_of(name: str) -> tuple[str, ...]:
    """The modules that may have a formula for the operator ``name``."""
    name = canonical(name)
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
