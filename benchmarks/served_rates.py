"""Measured times per token of servers against ``rooflines predict --like public``, beside AIConfigurator.

``python benchmarks/served_rates.py --tables CLONE [--aiconfigurator PYTHON] [--only MODEL]`` reads the rows of ``silicon_sample.csv``
in a clone (which may be bare) of github.com/ai-dynamo/aiconfigurator (Apache-2.0): servers with continuous batching, their batch as
many requests as are served at once. A time per token has the part of prefill in it, so it is that of ``sustained_tokens_per_s``.
PYTHON is an interpreter that has aiconfigurator installed, whose ``cli_estimate`` answers the same rows; without it, its last answers
stay. Six of the rows are among the published points that the coefficients were fitted to. Writes
``benchmarks/results/served_rates.json`` and ``.md``.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import rooflines
from rooflines.errors import RooflinesError
from rooflines.roofline.predict.calibrated import coefficients
from rooflines.units import percent

RESULTS = Path(__file__).parent / "results" / "served_rates.json"
PACKAGE = "aic-core/src/aiconfigurator_core"
DEVICES = {"h100_sxm": "H100 SXM5 80GB", "h200_sxm": "H200 SXM5", "b200_sxm": "B200 SXM"}
# Models with the precision of their rows: the file of their configuration, and the precision that is asked for. A configuration that is
# quantized itself is served as it is.
MODELS = {
    ("meta-llama/Llama-3.1-8B-Instruct", ""): ("meta-llama--Meta-Llama-3.1-8B", "bf16"),
    ("meta-llama/Llama-3.1-70B", "fp8"): ("meta-llama--Meta-Llama-3.1-70B", "fp8"),
    ("meta-llama/Llama-3.1-70B", "fp4"): ("meta-llama--Meta-Llama-3.1-70B", "fp4"),
    ("Qwen/Qwen3-32B", ""): ("Qwen--Qwen3-32B", "bf16"),
    ("Qwen/Qwen3-32B", "fp8"): ("Qwen--Qwen3-32B", "fp8"),
    ("openai/gpt-oss-120b", "fp4"): ("openai--gpt-oss-120b", "bf16"),
    ("deepseek-ai/DeepSeek-R1", "fp8"): ("deepseek-ai--DeepSeek-R1", "bf16"),
}
ASKED = ("model_path", "system", "backend", "isl", "osl", "batch_size", "tp_size", "moe_ep_size", "gemm_quant_mode")
# What answers the rows in another interpreter: a row and its version of the tables, else the newest.
ESTIMATE = """
import csv, contextlib, json, sys
from aiconfigurator.cli.api import cli_estimate
known = {}
for row in json.load(sys.stdin):
    key = json.dumps({name: row[name] for name in row if name != "id" and not name.startswith("silicon")})
    if key not in known:
        sizes = {n: int(row[n]) for n in ("batch_size", "tp_size", "moe_tp_size", "moe_ep_size", "isl", "osl") if row[n]}
        quant = {n: row[n] or None for n in ("gemm_quant_mode", "moe_quant_mode")}
        known[key] = None
        for version in (row["backend_version"] or None, None):
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    known[key] = cli_estimate(
                        model_path=row["file"].replace("--", "/"), system_name=row["system"], mode="agg", backend_name=row["backend"],
                        backend_version=version, **sizes, **quant).tpot
                break
            except Exception as error:
                print(row["id"], str(error)[:200], file=sys.stderr)
    print(json.dumps({"id": row["id"], "tpot_ms": known[key]}), flush=True)
"""


def shown(clone: Path, path: str) -> str:
    """A file of the clone."""
    return subprocess.run(["git", "-C", clone, "show", f"HEAD:{PACKAGE}/{path}"], check=True, capture_output=True, text=True).stdout


def rows_of(clone: Path, only: str) -> list[dict[str, str]]:
    """The rows of servers of these models on one machine, whose experts are whole, on all devices or cut as the rest."""
    every = csv.DictReader(io.StringIO(shown(clone, "systems/silicon_sample.csv")))
    return [
        row
        for row in every
        if row["mode"] == "agg"
        and row["system"] in DEVICES
        and (row["model_path"], row["precision"]) in MODELS
        and only in row["model_path"]
        and int(row["tp_size"]) <= 8
        and {row["attention_dp_size"], row["pp_size"]} <= {"", "1"}
        and row["moe_ep_size"] in ("", "1", row["tp_size"])
    ]


def layout_of(row: dict[str, str]) -> str:
    """The layout of a row as ``--layout`` takes it."""
    experts = row["moe_ep_size"]
    return f"tp={row['tp_size']}" + (f",ep={experts}" if experts not in ("", "1") else "")


def predicted(rows: list[dict[str, str]], clone: Path) -> dict[str, float | str]:
    """By row, the predicted time per token in ms, or why there is none."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["model_path"], row["precision"], int(row["isl"]), int(row["osl"])].append(row)
    found: dict[str, float | str] = {}
    with tempfile.TemporaryDirectory() as place:
        for number, ((model, kind, prompt, new), group) in enumerate(groups.items(), 1):
            print(f"{number} of {len(groups)}: {model} {kind} {prompt} {new}", file=sys.stderr, flush=True)
            file, precision = MODELS[model, kind]
            path = Path(place) / file / "config.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(shown(clone, f"model_configs/{file}_config.json"))
            devices = list(dict.fromkeys(DEVICES[row["system"]] for row in group))
            layouts = list(dict.fromkeys(layout_of(row) for row in group))
            for batch in sorted({int(row["batch_size"]) for row in group}):
                own = [row for row in group if int(row["batch_size"]) == batch]
                try:
                    forecast = rooflines.predict(
                        f"hf:{path}", mode="generate", precision=precision, batch_size=[batch], prompt_length=[prompt], new_tokens=new,
                        devices=devices, layouts=layouts, like=["public"],
                    )  # fmt: skip
                except RooflinesError as error:
                    found |= {row["id"]: error.message for row in own}
                    continue
                for row in own:
                    on = forecast.devices[devices.index(DEVICES[row["system"]])]
                    bound = on.layouts[layouts.index(layout_of(row))]
                    rate = bound.sustained_tokens_per_s
                    found[row["id"]] = 1e3 * batch / rate if rate else "does not fit"
    return found


def answered(rows: list[dict[str, str]], python: str) -> dict[str, float | None]:
    """By row, what AIConfigurator says in ms; None where it refuses."""
    done = subprocess.run([python, "-c", ESTIMATE], input=json.dumps(rows), check=True, stdout=subprocess.PIPE, text=True)
    return {one["id"]: one["tpot_ms"] for line in done.stdout.splitlines() if (one := json.loads(line))}


def errors(rows: list[dict[str, Any]], name: str) -> str:
    """Mean and median error of the rows that have an answer."""
    off = [abs(row[name] / float(row["silicon_tpot_ms"]) - 1) for row in rows if isinstance(row.get(name), float)]
    return f"{percent(statistics.fmean(off))}, {percent(statistics.median(off))} of {len(off)}" if off else "-"


def inside(rows: list[dict[str, Any]]) -> str:
    """The share of the answered rows within the factor of 90 % of served code."""
    within = math.log(coefficients().codes["served"].wide)
    off = [abs(math.log(row["rooflines_ms"] / float(row["silicon_tpot_ms"]))) for row in rows if isinstance(row["rooflines_ms"], float)]
    return percent(sum(one <= within for one in off) / len(off)) if off else "-"


def table(rows: list[dict[str, Any]]) -> str:
    """The errors by model and device, and of all that both answer."""
    lines = [
        "# Time per token of servers", "",
        "Mean and median of |predicted - measured| / measured. AIConfigurator interpolates in measured tables of the kernels of each",
        "device; `rooflines predict --like public` has a data sheet and coefficients.", "",
        "| model | precision | device | rows | rooflines | in its interval | AIConfigurator |", "|---|---|---|---:|---|---|---|",
    ]  # fmt: skip
    groups = defaultdict(list)
    for row in rows:
        groups[row["model_path"], row["precision"] or "bf16", row["system"]].append(row)
    for key, group in sorted(groups.items()):
        ours, theirs = errors(group, "rooflines_ms"), errors(group, "aiconfigurator_ms")
        lines.append(f"| {' | '.join(key)} | {len(group)} | {ours} | {inside(group)} | {theirs} |")
    both = [row for row in rows if isinstance(row.get("rooflines_ms"), float) and isinstance(row.get("aiconfigurator_ms"), float)]
    for name, of in (("all", rows), ("all that both answer", both)):
        ours, theirs = errors(of, "rooflines_ms"), errors(of, "aiconfigurator_ms")
        lines.append(f"| {name} | | | {len(of)} | {ours} | {inside(of)} | {theirs} |")
    refused = defaultdict(int)
    for row in rows:
        if isinstance(row["rooflines_ms"], str):
            refused[row["model_path"], row["rooflines_ms"]] += 1
    lines += ["", *(f"- without an answer of rooflines: {count} of {model}: {why}" for (model, why), count in refused.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--aiconfigurator", metavar="PYTHON")
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = [*rows_of(asked.tables, asked.only)]
    known = {row["id"]: row for row in (json.loads(RESULTS.read_text()) if RESULTS.exists() else [])}
    ours = predicted(rows, asked.tables)
    theirs = {name: row["aiconfigurator_ms"] for name, row in known.items()}
    if asked.aiconfigurator:
        theirs |= answered([{**row, "file": MODELS[row["model_path"], row["precision"]][0]} for row in rows], asked.aiconfigurator)
    for row in rows:
        row |= {"rooflines_ms": ours[row["id"]], "aiconfigurator_ms": theirs.get(row["id"])}
    kept = ("id", *ASKED, "precision", "silicon_tpot_ms", "rooflines_ms", "aiconfigurator_ms")
    every = [*(known | {row["id"]: {name: row[name] for name in kept} for row in rows}).values()]
    RESULTS.write_text(json.dumps(every, indent=0) + "\n")
    RESULTS.with_suffix(".md").write_text(table(every))
    print(table(every))


if __name__ == "__main__":
    main()
