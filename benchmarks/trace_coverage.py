"""The share of the busy time with a work model in traces that other people recorded.

``python benchmarks/trace_coverage.py AMD-AGI/TraceLens=DIR facebookresearch/HolisticTraceAnalysis=DIR ...`` analyzes every trace in
clones of these repositories and writes ``benchmarks/results/trace_coverage.json``; files with the same content count once, and an
execution trace with a folder ``capture_traces`` beside it is analyzed together with it. ``--before FILE`` adds the shares of an earlier
result, ``--page docs/traces.md`` replaces the table of that page between ``<!-- coverage -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import rooflines
from rooflines.errors import RooflinesError
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.formulas.table import IS_COMMUNICATION
from rooflines.roofline.kernel_names import short_kernel
from rooflines.units import percent, seconds

RESULTS = Path(__file__).parent / "results" / "trace_coverage.json"
CAPTURES = "capture_traces"
# Of what is left, the longest few.
_LISTED = 3


def traces_in(clone: Path) -> list[Path]:
    """The files of a clone that may be traces, without copies."""
    seen: set[str] = set()
    found = []
    for path in sorted((*clone.rglob("*.json.gz"), *clone.rglob("*.json"))):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest not in seen:
            seen.add(digest)
            found.append(path)
    return found


def measured(path: Path) -> Analysis:
    """The analysis of a trace, with its captures if the version can take them."""
    captures = path.parent / CAPTURES
    if captures.is_dir() and "capture" in inspect.signature(rooflines.analyze).parameters:
        return rooflines.analyze(path, capture=captures)  # type: ignore[call-overload,no-any-return]
    return rooflines.analyze(path)


def row_of(analysis: Analysis) -> dict[str, Any]:
    """The device, the coverage and the longest operators without a work model."""
    coverage, timeline = analysis.coverage, analysis.timeline
    assert coverage is not None
    assert timeline is not None
    times: dict[tuple[str, str], float] = {}
    for one in coverage.unmodelled:
        if one.reason == IS_COMMUNICATION:  # a class of its own, although no formula says how much it moves
            continue
        # Work that no operator launched has the name of its kernel.
        name = short_kernel(one.name) if one.kernels and one.kernels[0].name == one.name else one.name
        times[name, one.reason] = times.get((name, one.reason), 0.0) + one.time_s
    busy_s = timeline.busy_s
    longest = sorted(times.items(), key=lambda one: -one[1])[:_LISTED] if busy_s > 0 else []
    # Earlier versions, which the column "before" comes from, have no assumptions.
    estimated_s = sum(row.time_s for row in analysis.operators if row.inferred or getattr(row, "assumption", None))
    return {
        "device": analysis.environment.device_name,
        "busy_s": busy_s,
        "shapes_recorded": coverage.shapes_recorded,
        "coverage": coverage.modelled_time_fraction,
        "estimated": estimated_s / busy_s if busy_s > 0 else None,
        "left": [{"name": name, "reason": reason, "share": time_s / busy_s} for (name, reason), time_s in longest],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The Markdown table: one line a trace."""
    head = ["| trace | device | busy | before | now | estimated | what is left |", "|---|---|---|---|---|---|---|"]
    return "\n".join([*head, *(f"| {' | '.join(_cells(row))} |" for row in rows)])


def _cells(row: dict[str, Any]) -> list[str]:
    left = [f"{_plain(one['name'])} {percent(one['share'])} ({_plain(one['reason'])})" for one in row["left"] if one["share"] >= 0.005]
    if row["shapes_recorded"] is False:
        left = ["shapes not recorded"]
    elif row["shapes_recorded"] is None:
        left = ["no operators in the trace"]
    return [
        f"{row['repository'].partition('/')[2]} `{row['path']}`",
        row["device"] or "not recorded",
        seconds(row["busy_s"]),
        _share(row.get("before")),
        _share(row["coverage"]),
        _share(row["estimated"]) if row["estimated"] else "",
        "; ".join(left),
    ]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{max(0.0, value):.3f}"


def _plain(text: str) -> str:
    """A name without what Markdown would act upon, cut to 60 characters."""
    text = re.sub(r"[|`<>*\n]", " ", text)
    return text if len(text) <= 60 else f"{text[:59]}…"


def commit_of(clone: Path) -> str:
    """The commit of a clone; empty where git does not know it."""
    done = subprocess.run(["git", "-C", str(clone), "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main() -> None:
    """Analyze, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clones", nargs="+", metavar="OWNER/NAME=DIR", help="a clone of a repository with traces")
    parser.add_argument("--before", type=Path, help="an earlier result, for the column 'before'")
    parser.add_argument("--page", type=Path, help="a page whose table to replace")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, help="where to write the result")
    arguments = parser.parse_args()
    before: dict[tuple[str, str], float | None] = {}
    if arguments.before:
        earlier = json.loads(arguments.before.read_text())["traces"]
        before = {(row["repository"], row["path"]): row["coverage"] for row in earlier}
    rows, refused, commits = [], [], {}
    for clone in arguments.clones:
        repository, _, directory = clone.partition("=")
        commits[repository] = commit_of(Path(directory))
        for path in traces_in(Path(directory)):
            name = str(path.relative_to(directory))
            try:
                row = row_of(measured(path))
            except RooflinesError as error:
                refused.append({"repository": repository, "path": name, "error": type(error).__name__})
                continue
            rows.append({"repository": repository, "path": name, **row, "before": before.get((repository, name))})
            print(f"{_share(rows[-1]['coverage'])}  {repository}  {name}", flush=True)
    result = {"benchmark": "trace_coverage", "rooflines": rooflines.__version__, "commits": commits, "traces": rows, "refused": refused}
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    if arguments.page:
        shown = f"<!-- coverage -->\n{table(rows)}\n<!-- end -->"
        text = arguments.page.read_text()
        arguments.page.write_text(re.sub(r"<!-- coverage -->\n.*?<!-- end -->", lambda _: shown, text, flags=re.DOTALL))


if __name__ == "__main__":
    main()
