"""Formulas for the operators of other libraries. A module has a library, a part of one, or one subject of several, and is imported when
one of its operators is first counted.

A module states for each formula the version and the file that its order of arguments comes from. To add a library, add its module here
and the namespace of its operators to ``_NAMESPACES``; operators without a namespace, such as Python's autograd functions, are found by
the start of their names in ``_STARTS``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg

# The namespace of an operator (``vllm::unified_attention``) -> the modules with its formulas.
_NAMESPACES: Final[dict[str, str]] = {
    "_C": "serving_attention vllm_kernels vllm_products vllm_experts mamba sampling hadamard",
    "_C_cache_ops": "vllm_kernels",
    "_C_custom_ar": "collectives",
    "_diffusers_flash_attn_3": "flash_attention",
    "_flashmla_C": "serving_attention",
    "_flashmla_extension_C": "serving_attention",
    "_moe_C": "vllm_experts vllm_products",
    "_qutlass_C": "vllm_products",
    "_rocm_C": "serving_attention vllm_products",
    "_vllm_fa2_C": "flash_attention",
    "_vllm_fa3_C": "flash_attention",
    "aiter": "aiter_attention aiter_experts aiter_kernels aiter_products atom collectives hadamard hyper_connections"
    " sampling vllm_kernels vllm_products",
    "ao": "torchao",
    "apex": "apex",
    "bitsandbytes": "bitsandbytes",
    "blackwell_fmha": "fbgemm_attention",
    "DaoAILab": "mamba",
    "fbgemm": "fbgemm fbgemm_embedding fbgemm_genai fbgemm_attention",
    "flash_attn": "flash_attention",
    "flash_attn_2_cuda": "flash_attention",
    "flash_attn_3": "flash_attention",
    "flashinfer": "flashinfer sampling sglang",
    "mslk_flash": "training_attention",
    "mslk_flash3": "training_attention",
    "mslk_flydsl": "fbgemm_attention",
    "natten": "natten",
    "primus": "primus",
    "primus_turbo": "primus training_attention",
    "primus_turbo_cpp_extension": "primus",
    "pyg": "pyg",
    "quack": "quack",
    "sgl_kernel": "flash_attention serving_attention sglang vllm_kernels vllm_products vllm_experts mamba"
    " collectives hadamard sampling",
    "sglang": "serving_attention sglang vllm_operators vllm_experts vllm_kernels mamba collectives"
    " hadamard sampling",
    "sglang_profiler": "aiter_attention",
    "te_attention": "transformer_engine_operators",
    "te_kv_cache": "transformer_engine_operators",
    "te_moe": "token_permutation",
    "te_softmax": "transformer_engine",
    "tensorrt_llm": "tensorrt_llm",
    "tex_ts": "transformer_engine_operators",
    "torch_cluster": "pyg",
    "torch_scatter": "pyg",
    "torch_sparse": "pyg",
    "torchao": "torchao",
    "torchaudio": "torchaudio",
    "triton": "fbgemm_genai",
    "trtllm": "tensorrt_llm mamba collectives hyper_connections sampling sglang",
    "vllm": "serving_attention vllm_operators vllm_products vllm_experts collectives hyper_connections sglang",
    "xformers": "training_attention xformers",
    "xformers_flash": "training_attention",
    "xformers_flash3": "training_attention",
}  # fmt: skip
# A module -> how the names of its operators without a namespace, and of its autograd nodes, start.
_STARTS: Final[dict[str, str]] = {
    "activations": "BiasGeGLU BiasSwiGLU FastGeLUFunction GeGLUFunction GeLUFunction LigerGELUMul LigerReLUSquared LigerSiLUMul"
    " LogSigmoidFunction SigmoidFunction SigmoidGLU SquaredReLUFunction SwiGLU SwishFunction Weighted",
    "aiter_attention": "sage_",
    "apex": "CrossEntropyLoss Fast_CrossEntropyLoss FastLayerNormFN FusedDense FusedLayerNorm FusedRMSNorm"
    " GenericScaledMaskedSoftmax MlpFunction Scaled SoftmaxCrossEntropyLoss",
    "deformable": "_DeformConv _ModulatedDeformConv DeformConv2dFunction ModulatedDeformConv2dFunction MSDeformAttnFunction"
    " MultiScaleDeformable",
    "distributed_training": "FusedCombine FusedDispatch HybridEP LinearFunctionForZeroStage3 LinearWithGradAccumulation MoECombine"
    " MoEDispatch",
    "fbgemm": "torch::autograd::CppNode<",
    "fbgemm_embedding": "torch::autograd::CppNode<",
    "fla_modules": "ApplyRotaryEmb Fast_Layernorm Fast_RMS_Layernorm Fast_RoPE_Embedding FusedLinearCrossEntropyFunction"
    " L2NormFunction LayerNormFunction LayerNormGatedFunction RMSNormFunction RotaryEmbeddingFunction",
    "flash_attention": "FlashAttn",
    "liger": "Liger",
    "linear_attention": "Chunk FusedChunk FusedRecurrent",
    "mamba": "CausalConv1dFn CausalConv1dFunction LayerNormFn Mamba SelectiveScanFn",
    "primus": "_RMSNormFunction _RMSNormResidualFunction GLUWithProbs",
    "token_permutation": "_moe_ SortTokens TokenPermuteMaskMap TokenUnpermuteMaskMap TopK",
    "training_attention": "FusedAttnFunc",
    "transformer_engine": "_GroupedLinear _LayerNorm _Linear _RMSNorm CrossEntropyFunction FusedQKVRoPEFunc FusedRoPEFunc",
    "transformer_engine_operators": "FusedAuxLoss FusedComputeScoresForMoEAuxLoss FusedTopkScoreFunction",
    "unsloth": "FbgemmFp8Linear_matmul FP8_fbgemm_block_linear FP8BlockQuantLinear GroupedGemm LoRA_",
    "xformers": "_IndexSelectCat _ScaledIndexAdd",
}  # fmt: skip


# A number that SGLang's profiler gives to a function it makes an operator of, or inductor to a program's own kernel in Triton.
_NUMBER: Final = re.compile(r"_\d+\Z")
# flashinfer 0.2.2 to 0.3.1: operators of its released library, and of the modules that it compiles, of which attention has one for each
# combination of types and sizes (``batch_decode_with_kv_cache_dtype_q_bf16_...::run``).
_FLASHINFER: Final = re.compile(r"(flashinfer_kernels(_sm90)?|cascade|gemm|norm|page|rope|sampling|(silu|gelu|gelu_tanh)_and_mul)::")
_FLASHINFER_ATTENTION: Final = re.compile(
    r"(?P<kind>(batch|single)_(prefill|decode)_with_kv_cache)_dtype_q_\w+::(?P<keys>paged_|ragged_)?run\Z"
)
_FLASHINFER_NAMES: Final = {
    "batch_prefill_with_kv_cachepaged_": "batch_prefill_with_paged_kv_cache_run",
    "batch_prefill_with_kv_cacheragged_": "batch_prefill_with_ragged_kv_cache_run",
    "batch_decode_with_kv_cache": "batch_decode_with_paged_kv_cache_run",
}
# The namespace of a kernel from Hugging Face's hub, with the commit it was built from: ``_flash_attn3_cuda_1d39a44::fwd``.
_HUB: Final = re.compile(r"_(?:vllm_)?flash_attn(?P<version>[23]?)_\w+::")


def canonical(name: str) -> str:
    """The name of an operator without what a profiler, a compiler or a build adds to it.

    FBGEMM's GenAI operators moved to MSLK with their order of arguments: ``mslk::f8f8bf16`` is ``fbgemm::f8f8bf16``.
    ``sglang_profiler::attention_paged_attention_ragged_100`` and ``sage_fwd_1`` lose the number, and flash-attn from the hub is
    ``flash_attn_2_cuda::fwd`` or ``flash_attn_3::fwd``. AITER's were ``aiter::wrapper_...`` from August to October 2025.
    """
    if name.startswith("mslk::"):
        return name.replace("mslk", "fbgemm", 1)
    if name.startswith("aiter::wrapper_"):
        return name.replace("wrapper_", "", 1)
    if _FLASHINFER.match(name):
        return f"flashinfer::{name.partition('::')[2]}"
    attention = _FLASHINFER_ATTENTION.match(name)
    if attention:
        kind = attention["kind"] + (attention["keys"] or "")
        return f"flashinfer::{_FLASHINFER_NAMES.get(kind, kind)}"
    hub = _HUB.match(name)
    if hub:
        return ("flash_attn_3::" if hub["version"] == "3" else "flash_attn_2_cuda::") + name[hub.end() :]
    return _NUMBER.sub("", name)


def given(signature: Signature) -> Signature:
    """The call under its canonical name, without what its registration adds: AITER gives operators whose first argument is no tensor,
    and in September 2025 all of them, an empty tensor of one element before their arguments."""
    name, args = canonical(signature.name), signature.args
    first = args[0] if args else None
    if name.startswith("aiter::") and isinstance(first, TensorArg) and first.shape == (1,) and "float" in first.dtype:
        args = args[1:]
    return signature if name == signature.name and args is signature.args else replace(signature, name=name, args=args)


def load_library_of(name: str) -> None:
    """Import the modules with formulas for the library of the operator ``name``, if there are any."""
    _load(modules_of(name))


def modules_of(name: str) -> tuple[str, ...]:
    """The modules that may have a formula for the operator ``name``."""
    name = canonical(name)
    of_namespace = _NAMESPACES.get(name.partition("::")[0], "").split()
    return (*of_namespace, *(module for module, starts in _STARTS.items() if name.startswith(tuple(starts.split()))))


def load_all() -> None:
    """Import the formulas of every library."""
    _load((*" ".join(_NAMESPACES.values()).split(), *_STARTS))


def _load(modules: tuple[str, ...]) -> None:
    for module in modules:
        import_module(f"{__name__}.{module}")
