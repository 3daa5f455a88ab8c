"""How well the measured ceilings repeat: this CPU measured again and again, first as it is, then while a burner takes a core.

Each run is ``rooflines ceilings --remeasure`` in a process of its own. The runs of a condition share one cache, empty before the first
of them, as the user's runs do: a roof is the best of all rounds in it. The burner is busy for half a second, then idle for a random
0.2 to 1.5 s. For every main figure the worst run is compared with the best one of the same condition: at least ``WITHIN`` of it, or the
figure has failed. What each measurement found by itself, without the rounds of those before it, is held to the same limit and listed
beside it (``alone``). Writes ``results/ceilings_repeat.json`` with the machine's facts, and exits with 1 where a figure failed or a law
between figures was broken.

    python benchmarks/ceilings_repeat.py [--runs 10] [--only quiet|burner]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rooflines.device_specs.history import History, best_of, load_file
from rooflines.device_specs.records import CONTRADICTS, Ceiling, Ceilings, marked, marks_of
from rooflines.serial import read_json
from rooflines.units import percent, si

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).parent / "results" / "ceilings_repeat.json"
WITHIN = 0.93
BUSY_S = 0.5
IDLE_S = (0.2, 1.5)
CONDITIONS = ("quiet", "burner")


def burn(seed: int) -> None:
    """Take a core for half a second at a time, till the process is ended."""
    idle = random.Random(seed)
    while True:
        end = time.perf_counter() + BUSY_S
        while time.perf_counter() < end:
            pass
        time.sleep(idle.uniform(*IDLE_S))


@contextlib.contextmanager
def burner(seed: int) -> Iterator[None]:
    """Inside, a child process burns."""
    child = subprocess.Popen([sys.executable, __file__, "--burn", str(seed)], env=environment())
    try:
        yield
    finally:
        child.terminate()
        child.wait()


def environment(**more: str) -> dict[str, str]:
    """Ours with the repository importable."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))), **more}


def measured(cache: Path) -> tuple[Ceilings, float]:
    """One measurement by the command line, and the seconds it took."""
    into = cache / "ceilings.json"
    command = [sys.executable, "-m", "rooflines", "ceilings", "--device", "cpu", "--remeasure", "--output", str(into)]
    begin = time.perf_counter()
    subprocess.run(command, check=True, env=environment(ROOFLINES_CACHE_DIR=str(cache)), stderr=subprocess.DEVNULL)
    return load_file(into), time.perf_counter() - begin


def alone(cache: Path) -> dict[str, list[float]]:
    """Every main figure as each measurement in ``cache`` found it by itself."""
    (file,) = (cache / "ceilings").glob("cpu-*.json")
    found: dict[str, list[float]] = {}
    for session in read_json(file, History).sessions:
        for one in best_of([session]):
            if not one.variant:
                found.setdefault(one.name, []).append(float(f"{one.value:.4g}"))
    return found


def name_of(one: Ceiling) -> str:
    return f"{one.name} ({one.variant})" if one.variant else one.name


def one_run(condition: str, seed: int, cache: Path) -> tuple[Ceilings, float]:
    """A measurement under a condition, and the seconds it took."""
    with burner(seed) if condition == "burner" else contextlib.nullcontext():
        return measured(cache)


def judged(runs: Sequence[tuple[Ceilings, float]]) -> dict[str, Any]:
    """Every main figure in all runs with the worst relative to the best, the figures that failed, marks, and broken laws."""
    figures: dict[str, Any] = {}
    for name, unit in {one.name: one.unit for found, _ in runs for one in found.ceilings if not one.variant}.items():
        own = [next((one for one in found.ceilings if one.name == name and not one.variant), None) for found, _ in runs]
        known = [one.value for one in own if one is not None]
        figures[name] = {
            "unit": unit,
            "best": min(known) if unit == "s" else max(known),
            "worst_of_best": round(min(known) / max(known), 4),
            "missing": own.count(None),
            "values": [None if one is None else float(f"{one.value:.4g}") for one in own],
            "rounds": [None if one is None else f"{one.agreeing}/{one.rounds}" for one in own],
        }
    named = [(number, one) for number, (found, _) in enumerate(runs, 1) for one in found.ceilings]
    return {
        "seconds": [round(seconds, 1) for _, seconds in runs],
        "failed": [name for name, one in figures.items() if one["worst_of_best"] < WITHIN or one["missing"]],
        "broken_laws": [
            f"run {number}: {name_of(one)} is {marked(one, CONTRADICTS)}" for number, one in named if CONTRADICTS in marks_of(one)
        ],
        "marks": [f"run {number}: {name_of(one)}: {', '.join(marks_of(one))}" for number, one in named if marks_of(one)],
        "figures": figures,
    }


def show(condition: str, result: dict[str, Any]) -> None:
    """Print one condition: a line a figure, the worst first, then what failed."""
    seconds, failed, laws = result["seconds"], result["failed"], result["broken_laws"]
    print(f"\n{condition}: {len(seconds)} runs, {statistics.median(seconds):.0f} s each ({min(seconds):.0f} to {max(seconds):.0f} s)")
    for name, one in sorted(result["figures"].items(), key=lambda item: item[1]["worst_of_best"]):
        word = "FAILED" if name in failed else ""
        print(
            f"  {name:20} best {si(one['best'], one['unit']):>14}  worst {percent(one['worst_of_best'], 1):>7} of it  {word}".rstrip()
        )
    for mark in result["marks"]:
        print(f"  marked in {mark}")
    print(f"  FAILED: {len(laws)} broken laws: {'; '.join(laws)}" if laws else "  every law holds in every run")
    within = percent(1 - WITHIN)
    shares = {name: min(values) / max(values) for name, values in result.get("alone", {}).items()}
    if shares:
        below = sorted((name for name in shares if shares[name] < WITHIN), key=lambda name: shares[name])
        worst = min(shares, key=lambda name: shares[name])
        print(
            f"  each measurement alone: {len(below)} of {len(shares)} figures are not within {within}, the worst {worst} at "
            f"{percent(shares[worst], 1)}"
        )
    print(
        f"  FAILED: {len(failed)} figures are not within {within}: {', '.join(failed)}"
        if failed
        else f"  every main figure is within {within}"
    )


def text_of(result: dict[str, Any]) -> str:
    """``result`` as JSON with every list of plain values on one line."""
    return re.sub(r"\[[^\[\]{}]*\]", lambda found: " ".join(found[0].split()), json.dumps(result, indent=1)) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10, help="measurements of each condition")
    parser.add_argument("--only", choices=CONDITIONS, help="one condition; the other one's results are kept")
    parser.add_argument("--burn", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.burn is not None:
        burn(options.burn)

    from rooflines.profiler.machine.environment import collect_environment
    from rooflines.serial import to_plain

    known = json.loads(RESULTS.read_text(encoding="utf-8")) if options.only and RESULTS.is_file() else {}
    conditions: dict[str, Any] = known.get("conditions", {})
    chosen = [options.only] if options.only else list(CONDITIONS)
    for condition in chosen:
        runs = []
        with tempfile.TemporaryDirectory() as folder:
            for number in range(options.runs):
                runs.append(one_run(condition, number, Path(folder)))
                print(f"{condition} {number + 1}/{options.runs}: {runs[-1][1]:.0f} s", flush=True)
            separate = alone(Path(folder))
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        conditions[condition] = {**judged(runs), "alone": separate, "load_after": load}
        show(condition, conditions[condition])
        result = {
            "benchmark": "ceilings_repeat",
            "command": "rooflines ceilings --device cpu --remeasure",
            "within": WITHIN,
            "conditions": conditions,
            "environment": {key: value for key, value in to_plain(collect_environment("cpu")).items() if key != "host"},
        }
        RESULTS.write_text(text_of(result), encoding="utf-8")
    return int(any(conditions[one]["failed"] or conditions[one]["broken_laws"] for one in chosen))


if __name__ == "__main__":
    sys.exit(main())
