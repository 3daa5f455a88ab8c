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
    "DaoAILab": ("mamba",),
    "apex": ("apex",),
    "bitsandbytes": ("bitsandbytes",),
    "fbgemm": ("fbgemm", "fbgemm_embedding", "fbgemm_genai"),
    "te_moe": ("transformer_engine",),
    "te_softmax": ("transformer_engine",),
    "torchao": ("torchao",),
}
# The start of the name of an operator without a namespace, or of an autograd node -> the modules with its formulas.
_PREFIXES: Final[dict[str, tuple[str, ...]]] = {
    "CausalConv1dFn": ("mamba",),
    "CrossEntropyFunction": ("transformer_engine",),
    "FastLayerNormFN": ("apex",),
    "FusedDense": ("apex",),
    "FusedLayerNorm": ("apex",),
    "FusedRMSNorm": ("apex",),
    "FusedRoPEFunc": ("transformer_engine",),
    "GenericScaledMaskedSoftmax": ("apex",),
    "LayerNormFn": ("mamba",),
    "Liger": ("liger",),
    "Mamba": ("mamba",),
    "MlpFunction": ("apex",),
    "Scaled": ("apex",),
    "SelectiveScanFn": ("mamba",),
    "SoftmaxCrossEntropyLoss": ("apex",),
    "SwiGLU": ("mamba",),
    "_GroupedLinear": ("transformer_engine",),
    "_LayerNorm": ("transformer_engine",),
    "_Linear": ("transformer_engine",),
    "_RMSNorm": ("transformer_engine",),
    "torch::autograd::CppNode<": ("fbgemm", "fbgemm_embedding"),
}


def load_library_of(name: str) -> None:
    """Import the modules with formulas for the library of the operator ``name``, if there are any."""
    _load(_NAMESPACES.get(name.partition("::")[0], ()))
    for prefix, modules in _PREFIXES.items():
        if name.startswith(prefix):
            _load(modules)


def load_all() -> None:
    """Import the formulas of every library."""
    for modules in (*_NAMESPACES.values(), *_PREFIXES.values()):
        _load(modules)


def _load(modules: tuple[str, ...]) -> None:
    for module in modules:
        import_module(f"{__name__}.{module}")
