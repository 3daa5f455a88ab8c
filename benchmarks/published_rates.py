"""Published tokens per second against the bound of the data sheet, and against a prediction from public traces of GPUs.

``python benchmarks/published_rates.py`` counts each model without running it and writes ``benchmarks/results/published_rates.json`` and
``.md``. The figures and their conditions are those of their authors; a figure above its bound without a reason in ``VIOLATIONS`` is an
error.
"""

from __future__ import annotations

import functools
import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from rooflines.device_specs import catalog, search
from rooflines.profiler.options import PointOptions
from rooflines.roofline.dry_run.phases import GenerationCount, count_generation
from rooflines.roofline.predict.calibrated import Calibrated
from rooflines.roofline.predict.device_bounds import bound_operator, estimates_of, folded
from rooflines.roofline.predict.forecast import Operator
from rooflines.roofline.predict.layouts import Layout, bound_layouts, network_facts, on_device
from rooflines.roofline.predict.weights import weights_read, with_fewer_bits
from rooflines.serial import to_plain
from rooflines.units import percent, significant

RESULTS = Path(__file__).parent / "results" / "published_rates.json"
# arXiv 2307.09288 (Llama 2), 2407.21783 (Llama 3): layers, hidden and inner size, query and key heads, vocabulary
MODELS = {
    "Llama-2-7B": (32, 4096, 11008, 32, 32, 32000),
    "Llama-3-8B": (32, 4096, 14336, 32, 8, 128256),
    "Llama-3.1-8B": (32, 4096, 14336, 32, 8, 128256),
    "Llama-2-70B": (80, 8192, 28672, 64, 8, 32000),
    "Llama-3.1-405B": (126, 16384, 53248, 128, 8, 128256),
}
A100, H100, B200 = "A100-SXM4-80GB", "H100 SXM5 80GB", "B200 SXM"
GPT_FAST = "gpt-fast, README"
FAST = "A100 at 330 W, compiled"
TORCHAO = "torchao, README"
VLLM = "vLLM 0.13, torch 2.9"


class Rate(NamedTuple):
    """A published rate and its conditions; ``weights`` is their format, fp8 computes in it too. Rates of a prefill count prompts."""

    source: str
    model: str
    device: str
    weights: str
    tokens_per_s: float
    batch: int = 1
    prompt: int = 5
    new: int = 200
    tensor: int = 1
    prefill: bool = False
    conditions: str = ""


RATES = (
    Rate(GPT_FAST, "Llama-2-7B", A100, "bf16", 104.9, conditions=FAST),
    Rate(GPT_FAST, "Llama-2-7B", A100, "int8", 155.6, conditions=FAST),
    Rate(GPT_FAST, "Llama-2-7B", A100, "int4", 196.8, conditions=FAST),
    Rate(GPT_FAST, "Llama-3.1-8B", A100, "bf16", 93.9, conditions=FAST),
    Rate(GPT_FAST, "Llama-3.1-8B", A100, "int8", 137.6, conditions=FAST),
    Rate(GPT_FAST, "Llama-2-70B", A100, "int8", 19.1, conditions=FAST),
    Rate(GPT_FAST, "Llama-2-70B", A100, "bf16", 62.5, tensor=8, conditions=FAST),
    Rate(GPT_FAST, "Llama-3.1-405B", A100, "int8", 15.6, tensor=8, conditions=FAST),
    Rate(GPT_FAST, "Llama-2-7B", "Instinct MI250X (one GCD)", "bf16", 76.3, conditions="compiled"),
    Rate(TORCHAO, "Llama-3-8B", A100, "bf16", 95.6, conditions="compiled"),
    Rate(TORCHAO, "Llama-3.1-8B", H100, "bf16", 126.9, conditions="compiled"),
    Rate(TORCHAO, "Llama-3.1-8B", H100, "int8", 198.9, conditions="compiled"),
    Rate(VLLM, "Llama-3.1-8B", H100, "bf16", 30946, 32, 4096, 32, prefill=True),
    Rate(VLLM, "Llama-3.1-8B", H100, "bf16", 6612, 128, 32, 2048),
    Rate(VLLM, "Llama-3.1-8B", H100, "fp8", 45312, 32, 4096, 32, prefill=True),
    Rate(VLLM, "Llama-3.1-8B", H100, "fp8", 8026, 128, 32, 2048),
    Rate(VLLM, "Llama-3.1-8B", B200, "bf16", 59100, 32, 4096, 32, prefill=True),
    Rate(VLLM, "Llama-3.1-8B", B200, "bf16", 14380, 128, 32, 2048),
    Rate("llama.cpp, llama-bench", "Llama-2-7B", "A100 80GB PCIe", "fp16", 8668, 1, 512, 2, prefill=True),
    Rate("llama.cpp, llama-bench", "Llama-2-7B", "A100 80GB PCIe", "fp16", 74.8, 1, 1, 128, conditions="context empty at first"),
)
VIOLATIONS: dict[Rate, str] = {}


class Outcome(NamedTuple):
    """The bound of a rate in tokens/s, and the prediction with its interval of 90 % where there is one."""

    bound: float
    predicted: float | None
    interval: tuple[float | None, float | None] | None


@functools.cache
def counted(model: str, batch: int, prompt: int, new: int, precision: str) -> GenerationCount:
    layers, hidden, inner, heads, kv_heads, vocabulary = MODELS[model]
    config = {
        "model_type": "llama", "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": inner,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocabulary, "tie_word_embeddings": False,
        "max_position_embeddings": 131072,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config))
        options = PointOptions(mode="generate", prompt_length=prompt, new_tokens=new, batch_size=batch, precision=precision)
        return count_generation(f"hf:{folder}", options)


def in_fp8(one: Operator) -> Operator:
    """The operator with weights and activations in fp8, which it computes in."""
    if not weights_read(one, 2):
        return one
    read = one.bytes_read // 2
    return replace(one, bytes_read=read, bytes=one.bytes - one.bytes_read + read, precision="fp8")


def outcome(rate: Rate) -> Outcome:
    """Products and attention alone, because compiled code and servers fuse the others with them."""
    precision = "fp16" if rate.weights == "fp16" else "bf16"
    generation = counted(rate.model, rate.batch, rate.prompt, rate.new, precision)
    if rate.weights.startswith("int"):
        generation = with_fewer_bits(generation, f"{rate.weights}-weight")
    sheet = search.only(rate.device).sheet
    roofs, link, layout = catalog.ceilings_of(sheet), catalog.peer_link(sheet), Layout(tensor=rate.tensor)
    facts = network_facts(generation)
    (cut,) = bound_layouts(generation, roofs, link, [layout])
    like = Calibrated(roofs, "served")
    bound_s, sent_s, parts = 0.0, 0.0, []
    for phase, sends in zip(generation.phases, cut.phases, strict=True):
        if rate.prefill and phase.phase == "decode":
            continue
        rows = [row for row in folded(phase.count, phase.phase) if row.matrix_flops]
        if rate.weights == "fp8":
            rows = [in_fp8(row) for row in rows]
        rows = [on_device(row, layout, facts, 1, rate.batch * phase.tokens) for row in rows]
        bounds = [bound_operator(row, roofs, like) for row in rows]
        bound_s += phase.calls * sum(found.lower_bound_s or 0 for found in bounds)
        sent_s += phase.calls * sends.exposed_s
        parts += estimates_of(rows, bounds, phase.calls)
    tokens = rate.batch * (rate.prompt if rate.prefill else rate.new)
    found = like.total(parts) if parts else None
    return Outcome(
        tokens / (bound_s + sent_s),
        tokens / (found.time_s + sent_s) if found else None,
        (tokens / (found.high_s + sent_s) if found.high_s else None, tokens / (found.low_s + sent_s)) if found else None,
    )


def main() -> None:
    outcomes = {rate: outcome(rate) for rate in RATES}
    for rate, found in outcomes.items():
        if rate.tokens_per_s > found.bound and rate not in VIOLATIONS:
            raise SystemExit(f"{rate} is above its bound of {found.bound:.1f} tokens/s without a reason")
    rows: list[dict[str, Any]] = [rate._asdict() | found._asdict() for rate, found in outcomes.items()]
    RESULTS.write_text(json.dumps(to_plain(rows), indent=1) + "\n")
    text = "\n".join(lines(outcomes)) + "\n"
    RESULTS.with_suffix(".md").write_text(text)
    print(text)


def lines(outcomes: dict[Rate, Outcome]) -> Iterator[str]:
    yield "# Published tokens per second against bounds and predictions\n"
    yield "Bound: products and attention on the data sheet, each weight read once a token of the batch, the communication of tensor"
    yield "parallelism exposed (`rooflines/roofline/predict`). Predicted: the same operators at the utilization of operators in public"
    yield "traces of GPUs, without other operators, the host and sampling. Error: predicted / published - 1. Nothing is fitted to these"
    yield "rates. Those of prefill count the tokens of the prompts and are compared with prefill alone, although the runs of vLLM also"
    yield "generate 32 tokens for each prompt, and their rates may contain them.\n"
    yield "| source | model | weights | device | batch x (prompt + new) | published | bound | of the bound | predicted (90 %) | error |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    errors: dict[str, list[float]] = {"decode": [], "prefill": []}
    held = []
    for rate, found in outcomes.items():
        device = f"{rate.tensor} x {rate.device}" if rate.tensor > 1 else rate.device
        sizes = f"{rate.batch} x ({rate.prompt} + {rate.new}){', prefill' if rate.prefill else ''}"
        predicted = error = "-"
        if found.predicted is not None and found.interval is not None:
            low, high = found.interval
            error = f"{found.predicted / rate.tokens_per_s - 1:+.0%}"
            predicted = f"{significant(found.predicted)} ({significant(low) if low else 0} to {significant(high or found.bound)})"
            errors["prefill" if rate.prefill else "decode"].append(abs(found.predicted / rate.tokens_per_s - 1))
            held.append((low or 0) <= rate.tokens_per_s <= (high or found.bound))
        source = f"{rate.source}{f'; {rate.conditions}' if rate.conditions else ''}"
        figures = significant(rate.tokens_per_s), significant(found.bound), percent(rate.tokens_per_s / found.bound)
        yield f"| {' | '.join((source, rate.model, rate.weights, device, sizes, *figures, predicted, error))} |"
    shares = [rate.tokens_per_s / found.bound for rate, found in outcomes.items()]
    above = sum(share > 1 for share in shares)
    spread = f"{percent(min(shares))} to {percent(max(shares))}"
    yield f"\nAbove the bound: {above} of {len(shares)}. Share of the bound: median {percent(statistics.median(shares))}, {spread}."
    for name, values in errors.items():
        if values:
            mean, median = (percent(of(values)) for of in (statistics.mean, statistics.median))
            yield f"Error of the prediction, {name}: mean {mean}, median {median}, largest {percent(max(values))} of {len(values)}."
    yield f"In their interval: {sum(held)} of {len(held)}."
    yield "\nNot compared: training rates of a GPU without a data sheet here, and bus bandwidths of collectives, which depend on NVLS."


if __name__ == "__main__":
    main()
