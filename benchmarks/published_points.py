"""Published step times, prefill and decode times against the bound and the prediction of ``rooflines predict``.

``python benchmarks/published_points.py [--like public] [--only GROUP]`` counts each model of ``published_points.csv`` without running
it and writes ``benchmarks/results/published_points.json`` and ``.md``. The times are those of their authors (column ``source``).
Exits with 1 where a time is below its bound.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import rooflines
from rooflines.errors import RooflinesError
from rooflines.units import percent, seconds

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "published_points.json"
LLAMA = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size")
# arXiv 2307.09288 (Llama 2), 2407.21783 (Llama 3), and the configuration of EleutherAI/gpt-j-6b
CONFIGS: dict[str, dict[str, Any]] = {
    name: {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "max_position_embeddings": 16384,
        **dict(zip(LLAMA, sizes, strict=True)),
    }
    for name, sizes in {
        "llama2-7b": (32, 4096, 11008, 32, 32, 32000),
        "llama2-13b": (40, 5120, 13824, 40, 40, 32000),
        "llama2-70b": (80, 8192, 28672, 64, 8, 32000),
        "llama3-8b": (32, 4096, 14336, 32, 8, 128256),
    }.items()
}
CONFIGS["gptj"] = {
    "architectures": ["GPTJForCausalLM"], "model_type": "gptj", "n_layer": 28, "n_embd": 4096, "n_head": 16, "n_positions": 2048,
    "rotary_dim": 64, "vocab_size": 50400, "tie_word_embeddings": False,
}  # fmt: skip
# What a published time is the time of: one call of phases of the step. Servers with continuous batching compute the prompts of new
# requests between the tokens of others.
PHASES = {
    "forward+backward": ("forward", "backward"),
    "prefill": ("prefill",),
    "decode": ("decode",),
    "served token": ("decode", "prefill"),
}
POINT = ("model", "mode", "precision", "batch", "prompt_or_seq", "new")


def options_of(point: dict[str, str], configs: Path) -> tuple[str, dict[str, Any]]:
    """The model and the options of ``rooflines predict`` for a row of the table."""
    model = point["model"]
    name = model.removeprefix("hf:cfg/").removesuffix("/config.json")
    options: dict[str, Any] = {"mode": point["mode"], "precision": point["precision"], "batch_size": [int(point["batch"])]}
    size = int(point["prompt_or_seq"] or 0)
    if name not in CONFIGS:
        return model, {**options, **({"image_size": size} if size else {})}
    path = configs / name / "config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(CONFIGS[name]))
    if point["mode"] == "generate":
        return f"hf:{path}", {**options, "prompt_length": [size], "new_tokens": int(point["new"])}
    return f"hf:{path}", {**options, "sequence_length": [size]}


def calls_of(point: dict[str, str]) -> dict[str, float]:
    """The phases that a published time is the time of, with their calls; empty for a whole step."""
    calls = dict.fromkeys(PHASES.get(point["quantity"], ()), 1.0)
    return {**calls, "prefill": 1 / float(point["new"])} if point["quantity"] == "served token" else calls


def is_compiled(point: dict[str, str]) -> bool:
    """Whether ``torch.compile`` made the code that was measured."""
    return "dynamo" in point["group"]


def time_of(on: Any, calls: dict[str, float], eager: bool, estimated: bool) -> tuple[float, float, float] | None:
    """The bound, three times, or the estimate with its interval, of what was measured, in seconds."""
    parts = [(one, calls[one.name]) for one in on.phases if one.name in calls] if calls else [(on, 1.0)]
    if estimated:
        found = [(one.estimate, times) for one, times in parts if one.estimate is not None]
        names = ("time_s", "low_s", "high_s")
        return tuple(sum(getattr(one, name) * times for one, times in found) for name in names) if len(found) == len(parts) else None
    bounds = [(one.eager_bound_s if eager else one.lower_bound_s, times) for one, times in parts]
    return None if any(bound is None for bound, _ in bounds) else (sum(bound * times for bound, times in bounds),) * 3


def measure(points: list[dict[str, str]], like: list[str]) -> list[dict[str, Any]]:
    """Each point with its bound and its prediction."""
    steps = defaultdict(list)
    for point in points:
        steps[(*(point[name] for name in POINT), is_compiled(point))].append(point)
    found = []
    with tempfile.TemporaryDirectory() as configs:
        for number, group in enumerate(steps.values(), 1):
            print(f"{number} of {len(steps)}: {' '.join(group[0][name] for name in POINT)}", file=sys.stderr)
            model, options = options_of(group[0], Path(configs))
            options |= {"compile": "on"} if is_compiled(group[0]) else {}
            tensor = {int(point["tp"]) for point in group}
            layouts = [f"tp={size}" for size in tensor if size > 1]
            names = list(dict.fromkeys(point["device"] for point in group))
            try:
                forecast = rooflines.predict(model, devices=names, like=like, layouts=layouts, **options)
            except RooflinesError as error:
                found += [{**point, "error": error.message} for point in group]
                continue
            for point in group:
                device = forecast.devices[names.index(point["device"])]
                row: dict[str, Any] = {**point, "measured_s": float(point["measured_s"])}
                if int(point["tp"]) > 1:
                    phases = next(one for one in device.layouts if one.layout.tensor == int(point["tp"])).phases
                    calls = {phase.name: phase.calls for phase in forecast.steps[0].phases}
                    bound = sum(one.lower_bound_s * calls[one.name] for one in phases)
                    found.append({**row, "bound_s": bound})
                    continue
                for name, *kind in (("bound_s", False, False), ("eager_bound_s", True, False), ("predicted_s", False, True)):
                    times = time_of(device.steps[0], calls_of(point), *kind)
                    row[name] = times and times[0]
                    if kind[1] and times:
                        row["low_s"], row["high_s"] = times[1:]
                found.append(row)
    return found


def summary(found: list[dict[str, Any]]) -> str:
    """The table of groups."""
    lines = [
        "# Published times against bounds and predictions", "",
        "| group | points | above the bound | share of the bound: median | predicted: mean error | in the 90 % interval |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    groups = defaultdict(list)
    for one in found:
        groups[one["group"]].append(one)
    for name, rows in [*groups.items(), ("all", found)]:
        bound = [one for one in rows if one.get("bound_s")]
        above = sum(one["measured_s"] < one["bound_s"] for one in bound)
        share = percent(statistics.median(one["bound_s"] / one["measured_s"] for one in bound)) if bound else "-"
        known = [one for one in rows if one.get("predicted_s")]
        error = percent(statistics.fmean(abs(one["predicted_s"] / one["measured_s"] - 1) for one in known)) if known else "-"
        inside = sum(one["low_s"] <= one["measured_s"] <= one["high_s"] for one in known)
        lines.append(
            f"| {name} | {len(rows)} | {above} of {len(bound)} | {share} | {error} of {len(known)} | {inside} of {len(known)} |"
        )
    lines += ["", "Above their bound:", ""]
    lines += [
        f"- {one['group']}: {one['model']} {one['precision']} batch {one['batch']} on {one['device']}: {seconds(one['measured_s'])}, "
        f"bound {seconds(one['bound_s'])}"
        for one in found
        if one.get("bound_s") and one["measured_s"] < one["bound_s"]
    ]
    lines += [f"- refused: {one['model']} on {one['device']}: {one['error']}" for one in found if "error" in one]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--like", action="append", default=[])
    parser.add_argument("--only", default="")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    with (HERE / "published_points.csv").open(newline="", encoding="utf-8") as file:
        points = [point for point in csv.DictReader(file) if given.only in point["group"]]
    found = measure(points, given.like)
    given.output.write_text(json.dumps(found, indent=1) + "\n")
    text = summary(found)
    given.output.with_suffix(".md").write_text(text)
    print(text)
    return int(any(one.get("bound_s") and one["measured_s"] < one["bound_s"] for one in found))


if __name__ == "__main__":
    raise SystemExit(main())
