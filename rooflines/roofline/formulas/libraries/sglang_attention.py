"""Attention of SGLang: kernels of ``sgl_kernel`` (its flash-attn 3 is in ``flash_attention.py``) and the layer of its compiled models.

Orders of arguments: sgl-project/sglang 0063ef1 (sgl-kernel/csrc/common_extension.cc; python/sglang/srt/layers/radix_attention.py).
"""

from __future__ import annotations

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments
from rooflines.roofline.formulas.packed_attention import Layout, merge, register, unified
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.table import Hints, formula, hinted_formula

register({"sgl_kernel::cutlass_mla_decode": Layout(("out query query_rest key used_k pages",), log_sum=False, causal=True)}, {})


@formula("sgl_kernel::merge_state", "sgl_kernel::merge_state_v2", category="attention")
def _merge(signature: Signature) -> Work:
    return merge(signature, "prefix prefix_log_sum suffix suffix_log_sum out out_log_sum")


@hinted_formula("sglang::unified_attention_with_output", category="attention")
def _unified(signature: Signature, hints: Hints) -> Work:
    schema = "query key value out saves_cache layer"
    return unified(signature, hints, schema, writes_cache=Arguments(signature, schema).flag("saves_cache"))
