"""What changes were predicted to gain, against what they gained when they were made: on programs that no rule was built on.

``python -m benchmarks.held_out_changes -o DIR`` profiles the programs below on this machine's processor, tries their changes
(``rooflines advise RUN --try``) and writes ``benchmarks/results/held_out_changes.json``: of each change the predicted and the measured
part of the step that goes, with its interval. The sides run in turn, each in a process of its own. What is measured already in DIR is
not measured again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import rooflines
from rooflines.profiler.directory import load
from rooflines.roofline.predict.trials import Trial, outcome, read_trials

RESULTS = Path(__file__).parent / "results" / "held_out_changes.json"
# A gain below this part of the step is none.
WORTH = 0.02

KINDS = "precision,compile,channels-last,optimizer,threads,batch-size,allocator"
PROGRAMS = {
    "mobilenet_v3_small training": ("--model", "mobilenet_v3_small", "--mode", "training", "--batch-size", "8"),
    "shufflenet_v2_x1_0 inference": ("--model", "shufflenet_v2_x1_0", "--batch-size", "8"),
    "regnet_y_400mf inference": ("--model", "regnet_y_400mf", "--batch-size", "4"),
    "densenet121 inference": ("--model", "densenet121", "--batch-size", "2"),
    "mnasnet0_5 training": ("--model", "mnasnet0_5", "--mode", "training", "--batch-size", "8"),
}


def main() -> None:
    """Profile, try, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True, help="directory of the measurements")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[*PROGRAMS], help="names of programs")
    parser.add_argument("--kinds", default=KINDS, help="kinds of changes")
    arguments = parser.parse_args()
    rows, facts = [], None
    for name in arguments.only:
        run = arguments.output / name.replace(" ", "-")
        if not run.is_dir():
            _rooflines("profile", *PROGRAMS[name], "--device", "cpu", "--formats", "csv", "-o", str(run))
        found = read_trials(run)
        if found is None or not found.complete:
            tried = str(arguments.output / f"{run.name}-tried")
            _rooflines("advise", str(run), "--try", "--only", arguments.kinds, "--rounds", str(arguments.rounds), "--output", tried)
            found = read_trials(run)
        assert found is not None
        facts = load(run).facts.environment
        for trial in found.every:
            rows.append({"program": name, "rounds": found.rounds, **_row(trial)})
            print(rows[-1], flush=True)
        _write(arguments.output, rows, facts)
    _write(RESULTS.parent, rows, facts)


def _row(trial: Trial) -> dict[str, object]:
    found = trial.speedup
    predicted = _part(trial.predicted) if trial.predicted is not None else None
    measured = _part(found.value) if found is not None else None
    known = predicted is not None and measured is not None and found is not None and found.low is not None and found.high is not None
    return {
        "change": trial.change.label,
        "predicted_gain": predicted,
        "measured_gain": measured,
        "measured_ci95": [_part(found.low), _part(found.high)] if known else None,
        "outcome": outcome(trial),
        # The whole interval is on the other side of nothing than the prediction.
        "wrong_sign": bool(known and ((predicted > WORTH and found.high < 1) or (predicted < -WORTH and found.low > 1))),
    }


def _part(speedup: float) -> float:
    """The part of the time of a sample that goes."""
    return 1 - 1 / speedup


def _write(folder: Path, rows: list[dict[str, object]], facts: object) -> None:
    pairs = [
        (row["predicted_gain"], row["measured_gain"])
        for row in rows
        if row["predicted_gain"] is not None and row["measured_gain"] is not None
    ]
    errors = np.abs(np.subtract(*np.array(pairs, float).T)) if pairs else np.zeros(0)
    result = {
        "benchmark": "held_out_changes",
        "rooflines": rooflines.__version__,
        "machine": {
            "device": getattr(facts, "device_name", ""),
            "threads": getattr(facts, "threads", None),
            "torch": getattr(facts, "torch", ""),
        },
        "changes_with_prediction": len(pairs),
        "median_error": float(np.median(errors)) if len(errors) else None,
        "mean_error": float(np.mean(errors)) if len(errors) else None,
        "wrong_signs": [f"{row['program']}: {row['change']}" for row in rows if row["wrong_sign"]],
        "changes": rows,
    }
    (folder / RESULTS.name).write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(pairs)} changes: median error {result['median_error']}, mean {result['mean_error']}", flush=True)


def _rooflines(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "rooflines", *words], check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
