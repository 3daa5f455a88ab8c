"""How far predicted times to the first token and per token are from measured ones, on this CPU.

``python benchmarks/predicted_generations.py`` generates with small language models of random weights, and predicts each by the runs of
the others (``rooflines predict --like``), and by its own run with another prompt. Writes
``benchmarks/results/predicted_generations.json`` and ``.md``. Takes about ten minutes, on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import rooflines
from rooflines.roofline.analysis import Analysis
from rooflines.units import percent, seconds

RESULTS = Path(__file__).parent / "results" / "predicted_generations.json"
_WIDE = {"hidden_size": 768, "num_hidden_layers": 8, "num_attention_heads": 12, "vocab_size": 32000, "max_position_embeddings": 1024}
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2", "n_layer": 8},
    "llama": {"model_type": "llama", **_WIDE, "intermediate_size": 2048, "num_key_value_heads": 4},
    "qwen2": {"model_type": "qwen2", **_WIDE, "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2,
              "intermediate_size": 2432},
    "gpt_neox": {"model_type": "gpt_neox", **_WIDE, "intermediate_size": 3072},
    "opt": {"model_type": "opt", **_WIDE, "ffn_dim": 3072, "word_embed_proj_dim": 768},
}  # fmt: skip
PROMPTS = (64, 128)
NEW = 16
METHOD = """\
Small language models with random weights, fp32, batch 1, a static KV cache, {new} new tokens, on {cpu}. Measured: the median time
to the first token and the median between tokens of {steps} generations without the profiler. Predicted: the estimates of
`rooflines predict --like` for the operators of the phase, and the runs' time outside of operators per call. Held: whether the
measured time without the time outside of operators is in the 90 % interval of the operators. {others}; of
{planned} runs, {left_out} were left out because they delayed most steps.
"""


class Measured(NamedTuple):
    """A run of a model with one length of its prompts."""

    model: str
    prompt: int
    directory: Path
    analysis: Analysis


def measured(folder: Path, steps: int) -> list[Measured]:
    """The runs that other programs did not disturb too much."""
    found = []
    for prompt in PROMPTS:
        for model in MODELS:
            directory = folder / f"{model}-{prompt}"
            options: dict[str, Any] = {"device": "cpu", "steps": steps, "warmup": 2, "formats": ("json",), "output": directory}
            rooflines.profile(named(folder, model), **generating(prompt), **options)
            analysis = rooflines.analyze(directory)
            generation = analysis.generation
            judged = any(row.lower_bound_s for row in analysis.operators)
            print(f"{model}, prompt {prompt}: {'' if judged else 'not '}judged", flush=True)
            if judged and generation is not None and generation.latency is not None:
                found.append(Measured(model, prompt, directory, analysis))
    return found


def named(folder: Path, model: str) -> str:
    """The name of a model, whose configuration is written into ``folder``."""
    path = folder / model / "config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(MODELS[model]))
    return f"hf:{path}"


def generating(prompt: int) -> dict[str, Any]:
    """The options of a generation."""
    return {"mode": "generate", "prompt_length": prompt, "new_tokens": NEW, "kv_cache": "static"}


def compared(run: Measured, others: list[Measured], folder: Path) -> list[dict[str, Any]]:
    """The time of each phase, predicted by ``others``."""
    forecast = rooflines.predict(
        named(folder, run.model), devices=["this"], like=[one.directory for one in others], **generating(run.prompt)
    )
    on, phases, generation = forecast.devices[0].steps[0], forecast.steps[0].phases, run.analysis.generation
    assert generation is not None
    assert generation.latency is not None
    calls = {phase.name: sum(one.calls for one in forecast.operators if one.phase == phase.name) for phase in phases}
    every = sum(calls[phase.name] * phase.calls for phase in phases)
    found = []
    for phase in on.phases:
        measured_s = generation.latency.ttft_s if phase.name == "prefill" else generation.latency.tpot_s
        estimate, outside_s = phase.estimate, (on.outside_s or 0.0) * calls[phase.name] / every
        if measured_s is None or estimate is None:
            continue
        inside_s = measured_s - outside_s
        found.append({
            "model": run.model, "prompt": run.prompt, "phase": phase.name, "measured_s": measured_s,
            "lower_bound_s": phase.lower_bound_s, "predicted_s": estimate.time_s + outside_s,
            "error": (estimate.time_s + outside_s) / measured_s - 1, "low_s": estimate.low_s, "high_s": estimate.high_s,
            "held": estimate.high_s is not None and estimate.low_s <= inside_s <= estimate.high_s,
        })  # fmt: skip
    return found


def page(result: dict[str, Any]) -> str:
    """The result in Markdown."""
    busy = result["busy"]
    others = f"Other programs kept at most {busy:.2g} processors busy" if busy is not None else "Other programs delayed no step"
    parts = ["# Predicted generations\n", METHOD.format(**result, others=others)]
    head = "| model | prompt | phase | measured | at least | predicted | error | held |"
    for title, rows in result["comparisons"].items():
        parts += [f"## {title}\n", head, f"|{'---|' * 8}"]
        parts += [
            f"| {row['model']} | {row['prompt']} | {row['phase']} | {seconds(row['measured_s'])} | {seconds(row['lower_bound_s'])} "
            f"| {seconds(row['predicted_s'])} | {100 * row['error']:+.0f} % | {'yes' if row['held'] else 'no'} |"
            for row in rows
        ]
        for phase, name in (("prefill", "Time to first token"), ("decode", "Time per token")):
            errors = [abs(row["error"]) for row in rows if row["phase"] == phase]
            held = [row["held"] for row in rows if row["phase"] == phase]
            below = sum(row["measured_s"] < row["lower_bound_s"] for row in rows if row["phase"] == phase)
            if errors:
                parts.append(
                    f"\n{name}: mean error {percent(statistics.mean(errors))}, median {percent(statistics.median(errors))}, largest "
                    f"{percent(max(errors))}; in the interval {sum(held)} of {len(held)}; faster than the bound {below}."
                )
        parts.append("")
    return "\n".join(parts)


def main() -> None:
    """Measure, predict, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=7, help="timed generations of each run")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, help="where to write the result")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        runs = measured(folder, arguments.steps)
        chosen = {
            "By runs of other models": lambda run, other: other.model != run.model,
            "By the same model with another prompt": lambda run, other: other.model == run.model and other is not run,
        }
        comparisons: dict[str, list[dict[str, Any]]] = {}
        for title, choice in chosen.items():
            for run in runs:
                if others := [other for other in runs if choice(run, other)]:
                    comparisons.setdefault(title, []).extend(compared(run, others, folder))
    facts = runs[0].analysis.environment
    result = {
        "benchmark": "predicted_generations", "rooflines": rooflines.__version__, "new": NEW, "steps": arguments.steps,
        "cpu": f"{facts.cpu}, {facts.cpu_cores} cores, {facts.threads} threads, torch {facts.torch}",
        "planned": len(MODELS) * len(PROMPTS), "left_out": len(MODELS) * len(PROMPTS) - len(runs),
        "busy": max((one.busy for run in runs if (one := run.analysis.other_programs) is not None), default=None),
        "comparisons": comparisons,
    }  # fmt: skip
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    arguments.output.with_suffix(".md").write_text(page(result))


if __name__ == "__main__":
    main()
