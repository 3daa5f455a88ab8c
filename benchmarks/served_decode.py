"""Attention, experts and weights in steps of servers, against what is counted for their models without running them.

``python benchmarks/served_decode.py AMD-AGI/TraceLens=CLONE`` reads the traces of servers at the commit below, with their captures,
from a clone, which may be a bare repository, and counts the same batch and context from a configuration written from public facts.
Writes ``benchmarks/results/served_decode.json`` and ``.md``. A difference of more than a tenth without a reason in ``REASONS`` is an
error.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import rooflines
from rooflines.device_specs import catalog, search
from rooflines.profiler.options import PointOptions
from rooflines.roofline.count.formulas.costs import SOFTMAX
from rooflines.roofline.count.formulas.experts import experts_hit
from rooflines.roofline.dry_run.phases import GenerationCount, count_generation
from rooflines.roofline.predict.device_bounds import bound_operator, bound_phase, folded
from rooflines.roofline.predict.layouts import network_facts
from rooflines.roofline.served_steps import ServedSteps
from rooflines.serial import to_plain
from rooflines.units import percent, seconds, si

RESULTS = Path(__file__).parent / "results" / "served_decode.json"
COMMIT, FOLDER = "171dd747", "tests/traces/inference"
DEVICE = "MI300X"
# A difference above this needs a reason.
TENTH = 0.1


class Model(NamedTuple):
    """A network by public facts; ``expert_bits`` are those of a weight of an expert as the server has it."""

    name: str
    source: str
    config: dict[str, Any]
    expert_bits: float = 16


QWEN = Model(
    "Qwen3-8B", "Qwen3 technical report, arXiv 2505.09388, table 1; head size and vocabulary: the shapes in the trace",
    {"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
     "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": False, "max_position_embeddings": 40960},
)  # fmt: skip
GPT_OSS = Model(
    "gpt-oss-20b", "gpt-oss model card, arXiv 2508.10925, section 2: MXFP4 experts (4.25 bit), windows of 128 in every other layer",
    {"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64,
     "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088, "num_local_experts": 32, "num_experts_per_tok": 4,
     "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 12, "tie_word_embeddings": False,
     "max_position_embeddings": 131072},
    4.25,
)  # fmt: skip
TRACES = {
    "SGLang, decode": ("sglang_decode/sglang_Qwen3-8B_decode.json.gz", QWEN),
    "SGLang, prefill": ("sglang_prefilldecode/sglang_Qwen3-8B_prefilldecode.json.gz", QWEN),
    "vLLM, decode": ("vllm_decode_full/graph_execution.json.gz", GPT_OSS),
    "vLLM, mixed": ("vllm_prefilldecode_piecewise/graph_execution.json.gz", GPT_OSS),
}
WINDOW = (
    "The trace does not record the window of every other layer, so the analysis counts all keys in all layers (an assumption, which "
    "it states). The count of the model has the window."
)
# By step and figure, with what ``compared`` returns.
REASONS = {
    ("vLLM, decode", "attention FLOPs"): WINDOW,
    ("vLLM, decode", "KV cache"): WINDOW,
    ("vLLM, decode", "expert weights"): "The server pads the matrices of an expert, 2880 x 5760 and 2880 x 2880, to 3072 x 5888 and "
    "2944 x 3072 numbers (9 % more). The trace does not say which experts are used, so the analysis counts all 32; {hit:.1f} are "
    "expected.",
    ("vLLM, decode", "time to read both"): "The experts and the KV cache above.",
}


def traces_of(clone: Path, work: Path) -> None:
    """Write the traces and captures at the commit into ``work``."""
    folders = [f"{FOLDER}/{Path(path).parent}" for path, _ in TRACES.values()]
    archive = subprocess.run(["git", "-C", str(clone), "archive", COMMIT, *folders], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        found.extractall(work, filter="data")


def counted(model: Model, batch: int, context: int, folder: Path) -> GenerationCount:
    """A generation whose decode has this context, and its prompts one token less."""
    (folder / "config.json").write_text(json.dumps(model.config))
    options = PointOptions(mode="generate", prompt_length=context - 1, new_tokens=2, batch_size=batch, precision="bf16")
    return count_generation(f"hf:{folder}", options, keys=(context,))


def compared(label: str, model: Model, steps: ServedSteps, folder: Path) -> dict[str, Any]:
    """The figures of a step, and those of the same batch and mean context from the configuration."""
    is_decode = steps.kind == "decode"
    context = round((steps.keys or 0) / steps.requests)
    found = counted(model, int(steps.requests), context if is_decode else context + 1, folder)
    phase = next(one for one in found.phases if one.phase == ("decode" if is_decode else "prefill"))
    rows = folded(phase.count, phase.phase)
    facts, experts = network_facts(found), model.config.get("num_local_experts", 0)
    tokens = int(steps.tokens or 0)
    pairs: dict[str, tuple[float, float]] = {}
    if steps.attention is not None and steps.kind != "mixed":
        core = sum(row.matrix_flops for row in rows if row.module.endswith("self_attn"))
        products = 4 * model.config["head_dim"]
        pairs["attention FLOPs"] = steps.attention.flops * products / (products + 1 + SOFTMAX), core
    if steps.moe is not None:
        pairs["expert FLOPs"] = steps.moe.flops, 24 * tokens * 4 * 3 * 2 * 2880**2
    roofs = catalog.ceilings_of(search.only(DEVICE).sheet)
    memory = roofs.outermost_memory()
    assert memory is not None
    result: dict[str, Any] = {}
    if steps.reads is not None:
        hit = experts_hit(experts, facts.chosen, tokens) if experts else 0
        dense = facts.block_weights_bytes - facts.expert_weights_bytes + facts.head_bytes
        used = facts.expert_weights_bytes * hit / experts * model.expert_bits / 16 if experts else 0
        if experts:
            pairs["expert weights"] = steps.reads.weight_bytes - dense, used
        pairs["weights"] = steps.reads.weight_bytes, dense + used
        pairs["KV cache"] = steps.reads.kv_cache_bytes, found.kv_bytes or 0
        pairs["time to read both"] = steps.reads.lower_bound_s or 0, (dense + used + (found.kv_bytes or 0)) / memory.value
        result["hit"] = hit
    bound = bound_phase(phase.phase, rows, [bound_operator(row, roofs) for row in rows], roofs)
    if not experts:  # the counted experts are wider numbers than the server's
        result |= {"bound_s": bound.lower_bound_s, "step_s": steps.step_s}
    return result | {
        "label": label,
        "model": model.name,
        "requests": steps.requests,
        "tokens": tokens,
        "context": context,
        "pairs": pairs,
    }


def page(results: list[dict[str, Any]]) -> str:
    return "\n".join(_lines(results)) + "\n"


def _lines(results: list[dict[str, Any]]) -> Iterator[str]:
    yield "# Steps of servers against the count of their models\n"
    yield f"Traces of AMD-AGI/TraceLens at {COMMIT} (MIT), recorded on an Instinct MI300X. `served` is what the analysis of the trace"
    yield "has, `counted` what `count_generation` gives for the model, without running it, at the same batch and mean context.\n"
    for model in (QWEN, GPT_OSS):
        yield f"- {model.name}: {model.source}"
    yield "\n| step | requests | context | figure | served | counted | served / counted |\n|---|---|---|---|---|---|---|"
    reasons = []
    for one in results:
        for name, (served, expected) in one["pairs"].items():
            unit = "FLOP" if "FLOPs" in name else "s" if name.startswith("time") else "B"
            texts = [seconds(value) if unit == "s" else si(value, unit) for value in (served, expected)]
            differs = abs(served / expected - 1) > TENTH
            mark = ""
            if differs:
                why = REASONS[one["label"], name].format(**one)
                if why not in reasons:
                    reasons.append(why)
                mark = f" ({reasons.index(why) + 1})"
            context = one["context"] if "mixed" not in one["label"] else "-"
            cells = f"{one['label']}, {one['model']}", one["requests"], context, name, *texts, f"{served / expected:.3f}{mark}"
            yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    for number, why in enumerate(reasons, 1):
        yield f"{number}. {why}"
    yield "\nThe bound of products and attention of the whole step, where the counted weights are as wide as those of the server:\n"
    yield "| step | bound | device time | share of the bound |\n|---|---|---|---|"
    for one in results:
        if "bound_s" in one:
            cells = f"{one['label']}, {one['model']}", seconds(one["bound_s"]), seconds(one["step_s"])
            yield f"| {' | '.join(cells)} | {percent(one['bound_s'] / one['step_s'])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", metavar="AMD-AGI/TraceLens=CLONE")
    clone = Path(parser.parse_args().clone.partition("=")[2])
    results = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        traces_of(clone, work)
        for label, (name, model) in TRACES.items():
            path = work / FOLDER / name
            captures = path.parent / "capture_traces"
            analysis = rooflines.analyze(path, capture=captures if captures.is_dir() else None)
            assert analysis.serving is not None
            results += [compared(label, model, steps, work) for steps in analysis.serving.kinds]
    RESULTS.write_text(json.dumps(to_plain(results), indent=1) + "\n")
    RESULTS.with_suffix(".md").write_text(page(results))
    print(page(results))


if __name__ == "__main__":
    main()
