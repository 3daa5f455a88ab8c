"""Categories of device kernels by name, for those whose operator is not known or has no work model.

The first family that knows a name decides. It is given the short name (``kernel_names.py``), which has a rule for each library, and the
name of the function without template arguments. The names are those of public traces unless a row says otherwise. What no row knows has
no category.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from rooflines.profiler.trace.records import communicates, function_of
from rooflines.roofline.kernel_names import short_kernel

_FAMILIES: Final[tuple[tuple[str, str], ...]] = (
    ("copy", r"^Memcpy|^Memset"),
    # Inductor names a kernel for the operators in it; its templates are products, convolutions or attention.
    ("attention", r"^triton_tem_\w*(?:attention|sdpa|flex)"),
    ("convolution", r"^triton_tem_\w*conv"),
    ("matmul", r"^triton_tem_\w*mm"),
    ("normalisation", r"^triton_(?:red|per)_\w*(?:norm|rsqrt)"),
    ("reduction", r"^triton_(?:red|per)_"),
    ("element-wise", r"^triton_poi_"),
    # Updates of parameters by torch's foreach and fused kernels (its functors), apex and bitsandbytes (by their sources).
    ("optimizer", r"^foreach .*(?:adam|sgd|lamb|adagrad|lion|momentum)|kOptimizer"),
    ("optimizer", r"(?:Adam|SGD|LAMB|Adagrad|Lion)\w*(?:Functor|Kernel|Math)"),
    ("element-wise", r"^foreach "),
    # Tables of FBGEMM and torch, and the indices into them (traces of DLRM). An optimizer inside of a table's backward is the table's.
    ("embedding", r"(?<![Rr]otary)(?<!rotary_)[Ee]mbedding|\bpermute_(?:1D|2D|pooled_embs|indices)"),
    ("embedding", r"linearize_index|bounds_check_indices|bucketize_sparse"),
    ("copy", r"reshape_and_cache|store_kv|kv_?cache"),
    ("attention", r"^(?:flash |memory-efficient |paged )?attention|fmha|flash_?attn|compute_attn|unified_attention|[Mm]ulti[Hh]ead"),
    ("attention", r"\b_?attn_(?:fwd|bwd)|\b(?:flash|mla)::|(?:_|\b)mla_|sage_|mqa_logits"),
    # Routing of tokens to experts, and their products: SGLang, TensorRT-LLM, triton_kernels, CK, AITER; vLLM's by its source.
    ("moe", r"^grouped GEMM|^sorting of tokens|(?:\b|_)f?moe(?:_|\b)|[Mm]oe[A-Z_]|topk_?(?:gating|softmax)|expert|routing"),
    # triton_kernels, and what surrounds the experts in DeepSeek's training trace.
    ("moe", r"finalize_matmul|bitmatrix|_topk_forward|get_dispatch_layout|m_grouped_|expand_to_fused|reduce_fused|get_fused_mapping"),
    ("convolution", r"^convolution|^layout |^split-K reduction \(cuDNN\)|im2col|Im2d2Col|col2im|transpose_\w*(?:CNHW|NCHW)"),
    ("normalisation", r"^(?:batch|layer|RMS) norm|(?:[Bb]atch|[Ll]ayer|[Gg]roup|[Rr][Mm][Ss]|[Ii]nstance|qk)_?[Nn]orm|layer_norm::"),
    ("normalisation", r"\b(?:ln|rms)_(?:fwd|bwd)|GammaBeta|RowwiseMoments|ComputeInternalGradients|(?:Fused|Backward\w*)Params"),
    ("matmul", r"^GEM[MV] |^dot product|^split-K reduction|epilogue::impl|cublas|\bmatmul|_mm_kernel"),
    # Names that say nothing else, by the sources of rocBLAS, DeepGEMM, vLLM and Marlin.
    ("matmul", r"rocblas_|\bdeep_gemm::|w8a8|[Mm]arlin|machete"),
    ("reduction", r"^reduce |[Ss]oft_?[Mm]ax|cub::|rocprim::|[Pp]ool|[Tt]op_?[Kk]|[Ss]ort|[Aa]rg(?:max|min)|cumsum|histogram"),
    ("reduction", r"cunn_Class|nll_loss|cross_entropy"),
    ("copy", r"^element-wise (?:\w+ )?copy|CatArray|copy_?(?:async|tensor)?_?kernel|\btranspose|batched_transpose|indexSelect"),
    ("copy", r"gather|scatter|index_(?:elementwise|copy|put|add)|indexFunc|[Cc]opyKernel|\brepeat_interleave"),
    ("element-wise", r"^element-wise|act_and_mul|silu|swiglu|gelu|[Rr]otary|rope_|_rope|quant|cast|FP8|dropout|distribution_"),
    ("element-wise", r"\bscal_kernel"),
)  # fmt: skip


@lru_cache(maxsize=4096)
def kernel_category(name: str) -> str:
    """The category of operators that a kernel of this name belongs to, or ``communication``; empty where the name tells none."""
    if communicates(name):
        return "communication"
    text = f"{short_kernel(name)} {function_of(name)}"
    # Compiled when the first kernel needs it: a trace whose operators are all counted has none.
    return next((category for category, pattern in _FAMILIES if re.search(pattern, text)), "")
