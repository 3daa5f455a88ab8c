"""Short names of device kernels: what a kernel is, in the words of an operator table (``GEMM bf16 128x128x64
(cuBLAS)``).

A kernel's full name is a C++ signature or a library's code for it, often hundreds of characters long. Each
family has one rule here; the first that knows the name says what it is. Names of no family keep their heart:
the function without namespaces, template arguments and parameters.

Categories are for kernels whose operator is not known or has no work model: the first family that knows a
name decides. It is given the short name, which has a rule for each library, and the name of the function
without template arguments. The names are those of public traces unless a row says otherwise. What no row
knows has no category.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from rooflines.profiler.read.communication_kernels import communicates, function_of
from rooflines.roofline.analysis import OperatorRow, Unmodeled
from rooflines.roofline.count.by_key import longest_first

_LONGEST = 60
# What a kernel is stands at the beginning of its name.
_READ = 1024
_PRECISIONS = (
    (r"e2m1\w*ue4m3", "nvfp4"),
    (r"e2m1\w*ue8m0", "mxfp4"),  # the second is the dtype of the scales
    (r"e4m3|e5m2|fp8", "fp8"),
    (r"bf16|bfloat16|BFloat16", "bf16"),
    (r"tf32|tfloat32", "tf32"),
    (r"fp16|f16|half|Half", "fp16"),
    (r"fp64|f64|double", "fp64"),
    (r"int8|i8", "int8"),
    (r"fp32|f32|float", "fp32"),
)
# The letter in front of ``gemm`` and ``cudnn`` in the names of NVIDIA's libraries, and behind the indices in
# those of Tensile.
_LETTERS = {
    "s": "fp32",
    "h": "fp16",
    "d": "fp64",
    "i": "int8",
    "c": "complex64",
    "z": "complex128",
    "b": "bf16",
}
# The dtypes in the names of grouped products: of TensorRT-LLM, and of triton_kernels and AITER.
_FORMATS = {
    "MxE2m1": "mxfp4",
    "E2m1": "nvfp4",
    "MxE4m3": "mxfp8",
    "E4m3": "fp8",
    "Bfloat16": "bf16",
    "Fp16": "fp16",
    "Fp32": "fp32",
}
# The first words of the short names of matrix work, and the precisions that follow them.
_MATRIX = (
    "GEMM ",
    "GEMV ",
    "grouped GEMM ",
    "convolution ",
    "attention ",
    "flash attention ",
    "memory-efficient attention ",
    "paged attention ",
)
_NAMED = frozenset((*(name for _, name in _PRECISIONS), *_FORMATS.values()))
_DIRECTIONS = {"fprop": "forward", "dgrad": "backward input", "wgrad": "backward weight"}
# What stands around an element-wise functor and says nothing of it.
_WRAPPERS = {
    "BinaryFunctor",
    "AUnaryFunctor",
    "BUnaryFunctor",
    "UnaryFunctor",
    "CompareFunctor",
    "operator",
    "gpu_kernel",
}
_OPERATIONS = {"plus": "add", "minus": "subtract", "multiplies": "multiply", "divides": "divide"}
# Whose products are not those of cuBLAS, by a word in their names, and how cuBLAS's own begin.
_MAKERS = {"cutlass": "CUTLASS", "deep_gemm": "DeepGEMM", "aiter": "AITER", "rocblas": "rocBLAS"}
_CUBLAS = re.compile(
    r"(?:[a-z]+_)?(?:ampere|hopper|maxwell|pascal|turing|volta|sm\d+|cublas\w*|cask\w*"
    r"|[shdcz]gemm)_|gemm(?:k1|SN|v|_?[a-z]*2x2)|cublas|internal::gemm"
)
_GENERIC = {"kernel", "Kernel", "Kernel2", "globalKernel", "device_kernel", "operator"}


@lru_cache(maxsize=4096)
def short_kernel(name: str) -> str:
    """A short name of the kernel, at most 60 characters; empty only if ``name`` is."""
    if name.startswith(("Memcpy ", "Memset ", "triton_")):  # named for people
        found = name[:_READ]
    else:
        found = (
            next((text for rule in _RULES if (text := _ruled(name[:_READ], *rule))), "")
            or _heart(name)
            or name.strip()
            or name
        )
    half = _LONGEST // 2
    return found if len(found) <= _LONGEST else f"{found[: half - 1]}…{found[-half:]}"


def matrix_precision(name: str) -> str:
    """The precision of a product, convolution or attention by its kernel's name; empty for other kernels and
    names without one."""
    short = short_kernel(name)
    if not short.startswith(_MATRIX):
        return ""
    return next((word for word in short.split() if word in _NAMED), "")


def _told(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _precision(text: str) -> str:
    """The precision that ``text`` names first in the order of ``_PRECISIONS``; empty where it names none."""
    return next((name for pattern, name in _PRECISIONS if re.search(pattern, text)), "")


def _tile(name: str) -> str:
    """The tile of a product or convolution: ``128x128x64`` from ``tilesize128x128x64``,
    ``128x128_ldg8_f2f_stages_64x3``."""
    whole = re.search(
        r"(?:tilesize|MT|bt|(?<!SM\d\d)(?<!SM\d{3})_)(\d+x\d+x\d+)(?:_|$)", name
    )  # SM90_64x256x16 is an instruction
    if whole:
        return whole[1]
    part = re.search(r"_(\d+x\d+)(?:_|$)", name)
    if part is None:
        return ""
    depth = re.search(r"stages_(\d+)x\d+", name) or re.match(r"(\d+)x\d+(?:_|$)", name[part.end() :])
    return f"{part[1]}x{depth[1]}" if depth else part[1]


# --- families ---------------------------------------------------------------------------------------------


def _collective(found: re.Match[str], name: str) -> str:
    words = found[3].lower()
    algorithm = next((one for one in ("ring", "tree", "collnet", "nvls") if one in words), "")
    operation = next((one for one in ("sum", "prod", "max", "min", "avg") if f"_{one}" in words), "")
    moves = found[2] in ("SendRecv", "AllGather", "Broadcast")
    precision = "" if moves else _precision(words)
    return _told(
        found[1].upper(),
        found[2],
        "" if moves else operation,
        precision,
        f"({algorithm})" if algorithm else "",
    )


# What kernels of ROCm's Composable Kernel are, by the first of these words in their names.
_COMPOSABLE = {
    "conv_fwd": "convolution forward",
    "conv_bwd_data": "convolution backward input",
    "conv_bwd_weight": "convolution backward weight",
    "MoeSorting": "sorting of tokens by expert",
    "moe_gemm": "grouped GEMM",
    "FusedMoe": "grouped GEMM",
    "FmhaBwd": "attention backward",
    "Fmha": "attention forward",
    "Rmsnorm2d": "RMS norm",
    "Layernorm2d": "layer norm",
    "emm": "GEMM",
    "Flatmm": "GEMM",
}
# Its types, mangled or not: bf16 is an unsigned short (``t``) in older versions.
_COMPOSABLE_TYPES = re.compile(
    r"(?P<bf16>DF16b|bf16|bhalf|unsigned "
    r"short|ttft)|(?P<fp16>DF16_|_Float16|half_t)|(?P<fp8>_BitInt\(8\)|f8_t)"
)


def _composable(_: re.Match[str], name: str) -> str:
    kind = next((text for word, text in _COMPOSABLE.items() if word in name), "")
    found = _COMPOSABLE_TYPES.search(name)
    precision = (found.lastgroup or "") if found and "sorting" not in kind else ""
    return _told(kind, precision, "(CK)") if kind else ""


def _convolution(_: re.Match[str], name: str) -> str:
    way = next((text for word, text in _DIRECTIONS.items() if word in name.lower()), "")
    letter = re.search(r"(?:^|_)([sh])(?:\d+)?cudnn", name)
    precision = _precision(name) or ("fp32" if "sgemm" in name else _LETTERS[letter[1]] if letter else "")
    method = "Winograd" if "inograd" in name else "FFT" if "fft" in name else _tile(name)
    return _told("convolution", way, precision, method, "(cuDNN)")


_KIND = r"(?:Mx)?(?:E\dm\d|Bfloat16|Fp16|Fp32)"


def _grouped(found: re.Match[str], name: str) -> str:
    """Products of rows with the weights of their experts."""
    weights, rows = (_FORMATS.get(word, word) for word in (found[1] or found[2], found[2]))
    gate = re.search(r"swiGlu|geGlu", name)
    return _told(
        "grouped GEMM", f"{rows} x {weights}", found[3], gate[0].lower() if gate else "", "(TensorRT-LLM)"
    )


def _tensile(found: re.Match[str], name: str) -> str:
    """Its layout is that of BLAS: ``TN`` of ``Alik_Bljk``. The first index is contiguous, and ``l`` is summed
    over."""
    precision = "fp8" if found[3].startswith(("F8", "B8")) else _LETTERS.get(found[3][0].lower(), "")
    layout = ("T" if found[1] == "l" else "N") + ("N" if found[2] == "l" else "T")
    return _told("GEMM", precision, _tile(name), layout, "(Tensile)")


def _product(_: re.Match[str], name: str) -> str:
    function = _kernel_function(name)
    if "gemm" not in function.rpartition("::")[2].lower():
        return ""
    code = re.search(r"cutlass\w*_[a-z0-9_]*gemm\w*", name)
    text = code[0] if code else name
    letter = re.search(r"([shdicz])(?:\d+)*gemm", text)
    tensor_cores = re.search(r"s1688gemm", text)
    precision = _precision(text) or ("tf32" if tensor_cores else _LETTERS[letter[1]] if letter else "")
    align = re.search(r"align([12])(?:\D|$)", text)
    maker = next(
        (maker for word, maker in _MAKERS.items() if word in name.lower()),
        "cuBLAS" if _CUBLAS.search(function) else "",
    )
    note = ", ".join(filter(None, (maker, f"align {align[1]}" if align else "")))
    return _told(
        "GEMM", precision, _tile(text), "SIMT" if "simt" in text else "", f"({note})" if note else ""
    )


def _kernel_function(name: str) -> str:
    """The qualified name of the function, or of the first template argument of a wrapper
    (``cutlass::device_kernel<...>``)."""
    function = function_of(name)
    if function.rpartition("::")[2] in _GENERIC and "<" in name:
        return re.split(r"[<>(,]", name.partition("<")[2], maxsplit=1)[0]
    return function


def _element_wise(found: re.Match[str], name: str) -> str:
    if "scatter_gather" in name:
        return ""
    size = re.match(r"\d+", name[found.end() :])
    way = f"(vectorized x{size[0]})" if size and found[1].startswith("vectorized") else ""
    # The functor's own name ends where its arguments begin: a lambda lies in the function that launches it.
    return _told("element-wise", _operation(name[found.end() :]), way)


def _of_many(found: re.Match[str], name: str) -> str:
    arguments = name[found.end() :]
    standard = re.search(r"std::(plus|minus|multiplies|divides)<", arguments)
    return _told("foreach", _OPERATIONS[standard[1]] if standard else _operation(arguments))


def _reduction(found: re.Match[str], name: str) -> str:
    inner = re.search(r"(sum|prod|max|min|and|or|xor)_functor|(\w+?)Ops<|(\w+?)NanFunctor", name)
    word = next((text for text in inner.groups() if text), "") if inner else _operation(name[found.end() :])
    return _told("reduce", {"Welford": "variance", "NormTwo": "norm"}.get(word, _lower(word)))


# What is in the names of kernels, in the words of a table.
_WORDS = {
    "fwd": "forward",
    "bwd": "backward",
    "fw": "forward",
    "bw": "backward",
    "f": "forward",
    "b": "backward",
    "reduce": "reduction",
    "nchw": "NCHW",
    "nhwc": "NHWC",
    "nchwaddpadding": "NCHW",
    "t": "bf16",
    "h": "fp16",
    "s": "fp32",
    "q": "fp8",
    "d": "fp64",  # nvjet
}
# In order: what a name contains and what such a kernel is, with the words that the parentheses hold and the
# precision and the tile that the name says; or a function that tells it, empty where it does not know.
_RULES: tuple[tuple[str, str | Callable[[re.Match[str], str], str]], ...] = (
    (r"^(nccl|rccl)(?:Dev)?Kernel_([A-Za-z]+)(\w*)", _collective),
    (r"^(?:(?:void )?ck(?:_tile)?::|_ZN\d+ck(?:\d|_tile))", _composable),
    (r"(?i)flashattn(fwd|bwd)", "flash attention {0} {precision} (version 3)"),
    (r"Batch(?:Prefill|Decode)With(?:Paged|Ragged)KVCache", "paged attention {precision} (FlashInfer)"),
    (r"kernel_unified_attention_", "paged attention {precision} (vLLM)"),
    (r"^(?=.*ll4mi).*paged_attention(?:\w*?(reduce))?", "paged attention {0} {precision} (vLLM)"),
    (r"paged_attention(?:\w*?(reduce))?", "paged attention {0} {precision}"),
    (r"^fmhaSm\d+\w*?Kernel_Qkv(E4m3|Bfloat16|Fp16|Fp32)", "attention {0} (TensorRT-LLM)"),
    (r"fmha_(fwd|bwd)_hd", "attention {0} {precision} (AITER)"),
    (r"(?i)flash_(fwd|bwd)", "flash attention {0} {precision}"),
    (r"fmha_cutlass([FB])", "memory-efficient attention {0} {precision} (CUTLASS)"),
    (r"(?i)^(?=.*sdpa)(?=.*bprop).*cudnn", "attention backward {precision} (cuDNN)"),
    (r"(?i)^(?=.*sdpa).*cudnn", "attention forward {precision} (cuDNN)"),
    (r"(\w*elementwise_kernel\w*)<", _element_wise),
    (r"multi_tensor_apply_kernel<", _of_many),
    (r"(?<!\w)reduce_kernel<", _reduction),
    (r"(nchw|nhwc|nchwAddPadding)To(Nhwc|Nchw)", "layout {0} to {1} (cuDNN)"),
    (r"^igemm_fwd_", "convolution forward {precision} {tile} (MIOpen)"),
    (r"^igemm_bwd_", "convolution backward input {precision} {tile} (MIOpen)"),
    (r"^igemm_wrw_", "convolution backward weight {precision} {tile} (MIOpen)"),
    (r"^(?:miopenSp3|ck::.*conv|gfx9_.*[Cc]onv)", "convolution {precision} {tile} (MIOpen)"),
    (r"^batched_transpose_", "layout transpose (MIOpen)"),
    (r"cask_cudnn\w*::compute\w*Offsets", "convolution offsets (cuDNN)"),
    (r"cudnn::(?:\w+::)*bn_(fw|bw)", "batch norm {0} {precision} (cuDNN)"),
    (r"cudnn.*ReduceSplitK|ReduceSplitK.*cudnn", "split-K reduction (cuDNN)"),
    (r"ReduceSplitK", "split-K reduction (CUTLASS)"),
    (
        r"[sh](?:\d+)?cudnn_|_convolve_|implicit_gemm|[Ww]inograd|fprop|dgrad|wgrad|Conv2d"
        r"|cudnn::(?:\w+::)*\w*conv",
        _convolution,
    ),
    # Products of rows with the weights of their experts.
    (
        r"^_(?:p_)?matmul\w*?_[NT]{3}_[a-z0-9]{1,12}?x([a-z0-9]{1,12}?)x([a-z0-9]{1,12})"
        r"_(\d+x\d+x\d+)x\d+_*(\w*?)_*(?!\w)",
        "grouped GEMM {0} x {1} {2} {3} (triton_kernels)",
    ),
    (rf"^bmm_{_KIND}_({_KIND}?)({_KIND})_\w+?_t(\d+x\d+x\d+)", _grouped),
    (r"^(?:Custom_)?Cijk_\w(\w)\w\w_\w(\w)\w\w_([A-Z0-9]+)", _tensile),
    (r"^nvjet_(?:sm\d+_)?(?:([thsqd])|[a-z])", "GEMM {0} {tile} (cuBLAS)"),
    (r"^.{,56}gemv", "GEMV {precision} (cuBLAS)"),
    (r"gemv|dot_kernel|reduce_1Block_kernel", "dot product {precision} (cuBLAS)"),
    (r"splitKreduce", "split-K reduction (cuBLAS)"),
    (r"(?i)gemm", _product),
)


def _ruled(name: str, pattern: str, text: str | Callable[[re.Match[str], str], str]) -> str:
    """What a kernel of this name is by a rule; empty where that does not know it."""
    found = re.search(pattern, name)
    if found is None:
        return ""
    if callable(text):
        return text(found, name)
    words = (_WORDS.get(word.lower(), _FORMATS.get(word, word)) for word in found.groups(""))
    return " ".join(text.format(*words, precision=_precision(name), tile=_tile(name)).split())


# --- names in C++ -----------------------------------------------------------------------------------------

_SKIPPED = re.compile(
    r"^gpu_|std::array|TensorListMetadata|OffsetCalculator|TrivialOffsetCalculator|memory::"
    r"|ReduceOp|func_wrapper"
)
_OPERATION = re.compile(r"(\w*(?:[Ff]unctor\w*|[Kk]ernel\w*|_cuda\w*|_impl|launch_\w+))")


def _operation(arguments: str) -> str:
    """The operation in a kernel's template arguments: ``fill`` from ``4, at::native::FillFunctor<float>``;
    empty if none is named."""
    for found in _OPERATION.finditer(arguments):
        word = found[1]
        if word not in _WRAPPERS and not _SKIPPED.search(word):
            cleaned = re.sub(
                r"CUDAFunctor(OnSelf|OnOther)?_|^launch_|_?[Ff]unctor"
                r"|_?(CUDA)?[Kk]ernel(_?[Ii]mpl)?|_cuda|_impl|_out$|_scalar$",
                "",
                word,
            )
            cleaned = re.sub(r"^(bfloat16|float8|float16|direct|gpu)_(?=copy)", "", cleaned)
            if cleaned.strip("_"):
                return _lower(cleaned.strip("_"))
    return ""


def _lower(word: str) -> str:
    """``FusedAdamMath`` as words: ``fused adam math``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", word).replace("_", " ").lower().strip()


def _heart(name: str) -> str:
    """The function's own name: without its type, namespaces, template arguments and parameters."""
    if name.startswith("_Z"):
        return _mangled_heart(name)
    text = _without_brackets(name.replace("(anonymous namespace)::", "")).strip()
    words = text.split()
    path = [part for part in (words[-1] if words else "").split("::") if part]
    if len(path) > 1 and path[-1] in _GENERIC:
        return "::".join(path[-2:])
    return path[-1] if path else ""


def _without_brackets(name: str) -> str:
    """``name`` without bracketed parts."""
    kept = []
    depth = 0
    for character in name:
        if character in "<({":
            depth += 1
        elif character in ">)}":
            depth = max(0, depth - 1)
        elif not depth:
            kept.append(character)
    return "".join(kept)


def _mangled_heart(name: str) -> str:
    """The last identifier of the outermost name: ``Kernel`` of ``_ZN7cutlass6KernelI...``."""
    at = 3 if name.startswith("_ZN") else 2
    path: list[str] = []
    while found := re.match(r"[KLS]?t?(\d{1,3})", name[at:]):
        start = at + found.end()
        at = start + int(found[1])
        path.append(name[start:at])
    path = [part for part in path if part and part != "_GLOBAL__N_1"]
    return "::".join(path[-2:]) if path and path[-1] in _GENERIC else path[-1] if path else name


_FAMILIES = (
    ("copy", r"^Memcpy|^Memset"),
    # Inductor names a kernel for the operators in it; its templates are products, convolutions or attention.
    ("attention", r"^triton_tem_\w*(?:attention|sdpa|flex)"),
    ("convolution", r"^triton_tem_\w*conv"),
    ("matmul", r"^triton_tem_\w*mm"),
    ("normalization", r"^triton_(?:red|per)_\w*(?:norm|rsqrt)"),
    ("reduction", r"^triton_(?:red|per)_"),
    ("element-wise", r"^triton_poi_"),
    # Updates of parameters by torch's foreach and fused kernels (its functors), apex and bitsandbytes (by
    # their sources).
    (
        "optimizer",
        r"^foreach .*(?:adam|sgd|lamb|adagrad|lion|momentum)|kOptimizer"
        r"|(?:Adam|SGD|LAMB|Adagrad|Lion)\w*(?:Functor|Kernel|Math)",
    ),
    ("element-wise", r"^foreach "),
    # Tables of FBGEMM and torch, and the indices into them (traces of DLRM). An optimizer inside of a table's
    # backward is the table's.
    (
        "embedding",
        r"(?<![Rr]otary)(?<!rotary_)[Ee]mbedding|\bpermute_(?:1D|2D|pooled_embs|indices)"
        r"|linearize_index|bounds_check_indices|bucketize_sparse",
    ),
    ("copy", r"reshape_and_cache|store_kv|kv_?cache"),
    (
        "attention",
        r"^(?:flash |memory-efficient |paged "
        r")?attention|fmha|flash_?attn|compute_attn|unified_attention|[Mm]ulti[Hh]ead"
        r"|\b_?attn_(?:fwd|bwd)|\b(?:flash|mla)::|(?:_|\b)mla_|sage_|mqa_logits",
    ),
    # Routing of tokens to experts, and their products: SGLang, TensorRT-LLM, triton_kernels, CK, AITER;
    # vLLM's by its source.
    (
        "moe",
        r"^grouped GEMM|^sorting of "
        r"tokens|(?:\b|_)f?moe(?:_|\b)|[Mm]oe[A-Z_]|topk_?(?:gating|softmax)|expert|routing"
        # triton_kernels, and what surrounds the experts in DeepSeek's training trace.
        r"|finalize_matmul|bitmatrix|_topk_forward|get_dispatch_layout|m_grouped_|expand_to_fused"
        r"|reduce_fused|get_fused_mapping",
    ),
    (
        "convolution",
        r"^convolution|^layout |^split-K reduction "
        r"\(cuDNN\)|im2col|Im2d2Col|col2im|transpose_\w*(?:CNHW|NCHW)",
    ),
    (
        "normalization",
        r"^(?:batch|layer|RMS) "
        r"norm|(?:[Bb]atch|[Ll]ayer|[Gg]roup|[Rr][Mm][Ss]|[Ii]nstance|qk)_?[Nn]orm|layer_norm::"
        r"|\b(?:ln|rms)_(?:fwd|bwd)|GammaBeta|RowwiseMoments|ComputeInternalGradients|(?:Fused"
        r"|Backward\w*)Params",
    ),
    (
        "matmul",
        r"^GEM[MV] |^dot product|^split-K reduction|epilogue::impl|cublas|\bmatmul|_mm_kernel"
        # Names that say nothing else, by the sources of rocBLAS, DeepGEMM, vLLM and Marlin.
        r"|rocblas_|\bdeep_gemm::|w8a8|[Mm]arlin|machete",
    ),
    (
        "reduction",
        r"^reduce "
        r"|[Ss]oft_?[Mm]ax|cub::|rocprim::|[Pp]ool|[Tt]op_?[Kk]|[Ss]ort|[Aa]rg(?:max|min)|cumsum|histogram"
        r"|cunn_Class|nll_loss|cross_entropy",
    ),
    (
        "copy",
        r"^element-wise (?:\w+ "
        r")?copy|CatArray|copy_?(?:async|tensor)?_?kernel|\btranspose|batched_transpose|indexSelect"
        r"|gather|scatter|index_(?:elementwise|copy|put|add)|indexFunc|[Cc]opyKernel|\brepeat_interleave",
    ),
    (
        "element-wise",
        r"^element-wise|act_and_mul|silu|swiglu|gelu|[Rr]otary|rope_|_rope|quant|cast|FP8|dropout"
        r"|distribution_|\bscal_kernel",
    ),
)


@lru_cache(maxsize=4096)
def kernel_category(name: str) -> str:
    """The category of operators that a kernel of this name belongs to, or ``communication``; empty where the
    name tells none."""
    if communicates(name):
        return "communication"
    text = f"{short_kernel(name)} {function_of(name)}"
    # Compiled when the first kernel needs it: a trace whose operators are all counted has none.
    return next((category for category, pattern in _FAMILIES if re.search(pattern, text)), "")


def traced_precision(operators: Sequence[OperatorRow], unmodeled: Sequence[Unmodeled]) -> str:
    """The precision in which matrix products, convolutions and attention run for most of their time; empty
    without any.

    It is that of a trace recorded without rooflines. Elements of tensors do not say it: a server that replays
    a graph in bfloat16 runs only bookkeeping and sampling outside of it. Kernels of operators without a count
    are included if their names contain a precision.
    """
    known = [(row.precision, row.time_s) for row in operators if row.matrix_flops and row.precision]
    named = [(matrix_precision(kernel.name), kernel.time_s) for gap in unmodeled for kernel in gap.kernels]
    return next(filter(None, longest_first([*known, *named])), "")
