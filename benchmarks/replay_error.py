"""How well the unchanged replay reproduces traces that other people recorded.

``python -m benchmarks.replay_error AMD-AGI/TraceLens=DIR facebookresearch/HolisticTraceAnalysis=DIR ...`` analyzes every trace in
clones of these repositories (as ``trace_coverage.py`` finds them) and writes ``benchmarks/results/replay_error.json``: a step as
recorded, the error of its replay, the part that stays as recorded because no dependency explains it, and what the others lack.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

import rooflines
from benchmarks.trace_coverage import commit_of, measured, traces_in
from rooflines.errors import RooflinesError

RESULTS = Path(__file__).parent / "results" / "replay_error.json"


def main() -> None:
    """Analyze, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clones", nargs="+", metavar="OWNER/NAME=DIR", help="a clone of a repository with traces")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, help="where to write the result")
    arguments = parser.parse_args()
    rows, others, commits = [], [], {}
    for clone in arguments.clones:
        repository, _, directory = clone.partition("=")
        commits[repository] = commit_of(Path(directory))
        with tempfile.TemporaryDirectory() as work:
            for one in traces_in(Path(directory), Path(work)):
                named = {"repository": repository, "path": one.name}
                try:
                    analysis = measured(one.path)
                except RooflinesError as error:
                    others.append({**named, "why": type(error).__name__})
                    continue
                found = analysis.replay
                if found is None:
                    others.append({**named, "why": "no launches of device events" if analysis.on_device else "no device events"})
                    continue
                rows.append({**named, "recorded_s": found.recorded_s, "error": found.error, "kept_fraction": found.kept_fraction})
                print(f"{found.error:.5f}  {found.kept_fraction:.3f}  {repository}  {one.name}", flush=True)
    errors = np.array([row["error"] for row in rows])
    result = {
        "benchmark": "replay_error",
        "rooflines": rooflines.__version__,
        "commits": commits,
        "traces_with_replay": len(rows),
        "median_error": float(np.median(errors)),
        "error_of_nine_of_ten": float(np.quantile(errors, 0.9)),
        "within_5_percent": int((errors <= 0.05).sum()),
        "traces": rows,
        "without": others,
    }
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(rows)} traces: median {result['median_error']:.4%}, nine of ten at most {result['error_of_nine_of_ten']:.4%}")


if __name__ == "__main__":
    main()
