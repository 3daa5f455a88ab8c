"""Names of operators of other libraries, as the rows of ``libraries/`` have them."""

from __future__ import annotations

import re
from dataclasses import replace

from rooflines.profiler.read.signature import Signature, TensorArg

# A number that SGLang's profiler gives to a function it makes an operator of, or inductor to a program's own
# kernel in Triton.
_NUMBER = re.compile(r"_\d+\Z")
# flashinfer 0.2.2 to 0.3.1: operators of its released library, and of the modules that it compiles.
_FLASHINFER = re.compile(
    r"(flashinfer_kernels(_sm90)?|cascade|gemm|norm|page|rope|sampling|(silu|gelu|gelu_tanh)_and_mul)::"
)
# The namespace of a kernel from Hugging Face's hub, with the commit it was built from:
# ``_flash_attn3_cuda_1d39a44::fwd``.
_HUB = re.compile(r"_(?:vllm_)?flash_attn(?P<version>[23]?)_\w+::")


def canonical(name: str) -> str:
    """The name of an operator without what a profiler, a compiler or a build adds to it.

    FBGEMM's GenAI operators moved to MSLK with their order of arguments: ``mslk::f8f8bf16`` is
    ``fbgemm::f8f8bf16``. ``sglang_profiler::attention_paged_attention_ragged_100`` and ``sage_fwd_1`` lose
    the number, and flash-attn from the hub is ``flash_attn_2_cuda::fwd`` or ``flash_attn_3::fwd``. AITER's
    were ``aiter::wrapper_...`` from August to October 2025.
    """
    if name.startswith("torch::autograd::CppNode<"):
        return name.replace("(anonymous namespace)::", "").replace("> >", ">>")
    if name.startswith("mslk::"):
        return name.replace("mslk", "fbgemm", 1)
    if name.startswith("aiter::wrapper_"):
        return name.replace("wrapper_", "", 1)
    if _FLASHINFER.match(name):
        return f"flashinfer::{name.partition('::')[2]}"
    hub = _HUB.match(name)
    if hub:
        return ("flash_attn_3::" if hub["version"] == "3" else "flash_attn_2_cuda::") + name[hub.end() :]
    return _NUMBER.sub("", name)


def given(signature: Signature) -> Signature:
    """The call under its canonical name, without what its registration adds: AITER gives operators whose
    first argument is no tensor, and in September 2025 all of them, an empty tensor of one element before
    their arguments."""
    name = canonical(signature.name)
    args = signature.args
    first = args[0] if args else None
    if (
        name.startswith("aiter::")
        and isinstance(first, TensorArg)
        and first.shape == (1,)
        and "float" in first.dtype
    ):
        args = args[1:]
    return (
        signature
        if name == signature.name and args is signature.args
        else replace(signature, name=name, args=args)
    )
