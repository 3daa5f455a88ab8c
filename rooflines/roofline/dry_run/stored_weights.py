"""How a configuration says that weights are stored: ``quantization_config`` of a model of transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import msgspec

from rooflines.errors import UsageError

KNOWN: Final = ("awq", "bitsandbytes", "compressed-tensors", "fbgemm_fp8", "fp8", "gptq", "modelopt", "mxfp4")
# The modules that keep the precision of the model, by the names that the methods have for their list.
_KEPT: Final = ("modules_to_not_convert", "llm_int8_skip_modules", "ignored_layers", "ignore")
# NVIDIA's numbers of 4 bits: each 16 have a scale of 8.
_NVFP4: Final = 4 + 8 / 16


class StoredWeights(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of products in ``bits`` each, scales included, as ``method`` stores them.

    Products compute in ``precision`` where their inputs are quantized too, else in that of the model.
    ``kept`` are regular expressions of the modules whose weights stay as they are, ``cache_bits`` those of a
    number in the KV cache where the configuration quantizes it.
    """

    method: str
    bits: float
    precision: str | None = None
    kept: tuple[str, ...] = ()
    cache_bits: int | None = None

    def keeps(self, module: str) -> bool:
        """Whether the weights of ``module`` are those of the model."""
        return any(re.search(pattern, module) for pattern in self.kept)


def stored_weights(config: Mapping[str, Any]) -> StoredWeights:
    """The weights that ``config`` describes; raises UsageError also for one that lacks what it needs."""
    try:
        return _stored(config)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _unknown(f"{config.get('quant_method')}: {type(error).__name__}: {error}") from None


def _stored(config: Mapping[str, Any]) -> StoredWeights:
    """The weights that ``config``, a ``quantization_config``, describes.

    Sources: the configurations of transformers 5 (``utils/quantization_config.py``), compressed-tensors
    (``QuantizationConfig``) and TensorRT Model Optimizer (``hf_quant_config.json``); OCP Microscaling Formats
    1.0 (mxfp4: 32 numbers of 4 bits, a scale of 8).
    Raises UsageError for a method, or a scheme of it, that is not known.
    """
    method = str(config.get("quant_method", "")).lower()
    kept = tuple(_pattern(name) for key in _KEPT for name in config.get(key) or ())
    precision = None
    if method in ("gptq", "awq"):
        # A scale of 16 bits for each group, and a zero where they are not symmetric; else a row is one group.
        bits, group = config["bits"], config["group_size"]
        zero = config.get("zero_point", True) if method == "awq" else not config.get("sym", True)
        each = bits + (16 + bits * zero) / group if group > 0 else bits
        method = f"{method} int{bits}"
    elif method in ("fp8", "fbgemm_fp8"):
        # A scale of 32 bits for each block; of a row or a whole matrix it does not count.
        block, precision = config.get("weight_block_size"), "fp8"
        each = 8 + 32 / prod(block) if block else 8
    elif method == "mxfp4":
        each = 4 + 8 / 32
    elif method == "modelopt" and (algorithm := config.get("quant_algo")) in ("FP8", "NVFP4"):
        each, precision = (8, "fp8") if algorithm == "FP8" else (_NVFP4, "fp4")
        method = f"{method} {precision}"
    elif method == "bitsandbytes":
        # 4 bits have a scale of 32 bits for each 64, or one of 8 bits, which has one for each 256 of its own.
        in_4_bits = config.get("load_in_4bit", config.get("_load_in_4bit"))
        scale = 8 / 64 + 32 / (64 * 256) if config.get("bnb_4bit_use_double_quant") else 32 / 64
        each = 4 + scale if in_4_bits else 8
    elif (
        method == "compressed-tensors" and len(groups := list(config.get("config_groups", {}).values())) == 1
    ):
        weights, inputs = groups[0]["weights"], groups[0].get("input_activations")
        bits, group = weights["num_bits"], weights.get("group_size") or 0
        is_nvfp4 = (weights["type"], bits, group) == ("float", 4, 16)
        if weights["type"] == "float" and bits != 8 and not is_nvfp4:
            raise _unknown(f"{method} with floats of {bits} bits")
        each = _NVFP4 if is_nvfp4 else bits + 16 / group if group > 0 else bits
        if inputs is not None:
            precision = f"fp{bits}" if inputs.get("type") == "float" else "int8"
        if inputs is not None and (bits, inputs.get("num_bits")) not in ((8, 8), *[(4, 4)] * is_nvfp4):
            raise _unknown(f"{method} with {bits} bits for weights and {inputs.get('num_bits')} for inputs")
    else:
        raise _unknown(method or "missing")
    heads = () if config.get("lm_head") else (_pattern("lm_head"),)
    cache = config.get("kv_cache_scheme") or {}
    return StoredWeights(
        method=method,
        bits=float(each),
        precision=precision,
        kept=(*kept, *heads),
        cache_bits=cache.get("num_bits"),
    )


def _pattern(name: str) -> str:
    """A regular expression of the modules that ``name`` stands for: a path, part of one, one with stars, or
    an expression after ``re:``."""
    if name.startswith("re:"):
        return name[3:]
    return rf"(^|\.){re.escape(name).replace(re.escape('*'), '.*')}(\.|$)"


def _unknown(what: str) -> UsageError:
    known: Sequence[str] = KNOWN
    return UsageError(
        f"quantization_config: the method ({what}) is not known, so neither are bytes and rates.",
        hint=f"Known: {', '.join(known)}. Without the field, weights count in the precision asked for.",
    )
