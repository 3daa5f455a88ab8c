"""The share of the busy time with a work model in traces that other people recorded.

``python benchmarks/trace_coverage.py AMD-AGI/TraceLens=DIR facebookresearch/HolisticTraceAnalysis=DIR ...`` analyzes every trace in
clones of these repositories: the files of the current commit, archives unpacked, and files that only earlier commits have, which are
named with the commit that added them. Files with the same content count once, and an execution trace with a folder ``capture_traces``
next to it is analyzed together with it. Writes ``benchmarks/results/trace_coverage.json``. ``--before FILE`` adds the shares of an
earlier result, ``--page benchmarks/results/trace_coverage.md`` replaces the table of that page between ``<!-- coverage -->`` and
``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import rooflines
from rooflines.errors import RooflinesError
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.count.formulas.counter import IS_COMMUNICATION
from rooflines.roofline.count.kernel_names import short_kernel
from rooflines.units import percent, seconds

RESULTS = Path(__file__).parent / "results" / "trace_coverage.json"
CAPTURES = "capture_traces"
GZIP = b"\x1f\x8b"
# Of what is left, the longest few.
_LISTED = 3


class Found(NamedTuple):
    """A file that may be a trace, and its name in the table."""

    path: Path
    name: str


def traces_in(clone: Path, work: Path) -> Iterator[Found]:
    """The files of a clone that may be traces, without copies; ``work`` is a folder for what is not in its work tree."""
    seen: set[str] = set()
    for one in (*_in_tree(clone, work), *_in_history(clone, work)):
        data = one.path.read_bytes()
        try:
            digest = hashlib.sha256(gzip.decompress(data) if data[:2] == GZIP else data).hexdigest()
        except (OSError, EOFError):
            continue
        if digest not in seen:
            seen.add(digest)
            yield one


def _in_tree(clone: Path, work: Path) -> Iterator[Found]:
    for path in sorted(clone.rglob("*.json*")):
        if path.name.endswith((".json", ".json.gz")) and ".git" not in path.parts:
            yield Found(path, str(path.relative_to(clone)))
    for path in sorted((*clone.rglob("*.tar.gz"), *clone.rglob("*.tgz"))):
        yield from _unpacked(path, str(path.relative_to(clone)), work / "tree" / path.name)


def _in_history(clone: Path, work: Path) -> Iterator[Found]:
    """Traces that only earlier commits have, with the captures in their folders."""
    now = {line.split()[2] for line in _git(clone, "ls-tree", "-r", "HEAD").splitlines()}
    added: dict[tuple[str, str], str] = {}
    commit = ""
    # Newest first, so that what remains is the commit that added a file.
    for line in _git(clone, "log", "--all", "--raw", "--no-renames", "--no-abbrev", "--format=%H").splitlines():
        if not line.startswith(":"):
            commit = line or commit
            continue
        facts, path = line.split("\t", 1)
        blob = facts.split()[3]
        if blob not in now and path.endswith((".json.gz", "trace.json", ".tar.gz", ".tgz")):
            added[path, blob] = commit
    for (path, blob), commit in sorted(added.items()):
        target = work / commit[:8] / path
        if not _save(clone, blob, target):
            continue
        beside = f"{Path(path).parent}/{CAPTURES}/"
        for line in _git(clone, "ls-tree", "-r", commit, beside).splitlines():
            facts, name = line.split("\t", 1)
            _save(clone, facts.split()[2], work / commit[:8] / name)
        if path.endswith((".json.gz", ".json")):
            yield Found(target, f"{path} at {commit[:8]}")
        else:
            yield from _unpacked(target, f"{path} at {commit[:8]}", target.with_suffix(".unpacked"))


def _unpacked(archive: Path, name: str, folder: Path) -> Iterator[Found]:
    with tarfile.open(archive) as found:
        for member in found:
            place = Path(member.name)
            if not member.isfile() or not member.name.endswith((".json", ".json.gz")) or place.name.startswith("._"):
                continue
            data = found.extractfile(member)
            assert data is not None
            path = folder / hashlib.sha256(member.name.encode()).hexdigest()[:16] / place.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.read())
            yield Found(path, f"{name}: {'/'.join(place.parts[-2:])}")


def _save(clone: Path, blob: str, path: Path) -> bool:
    """Whether the clone has the file, which is then at ``path``."""
    done = subprocess.run(["git", "-C", str(clone), "cat-file", "blob", blob], capture_output=True, check=False)
    if done.returncode:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(done.stdout)
    return True


def _git(clone: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(clone), *arguments], capture_output=True, text=True, check=False).stdout


def absent(clone: Path) -> list[str]:
    """Traces of the current commit that the clone lacks, such as those in another storage."""
    names = _git(clone, "ls-tree", "-r", "--name-only", "HEAD").splitlines()
    return [name for name in names if name.endswith((".json.gz", ".tar.gz", ".tgz")) and not (clone / name).is_file()]


def measured(path: Path) -> Analysis:
    """The analysis of a trace, with its captures."""
    captures = path.parent / CAPTURES
    return rooflines.analyze(path, capture=captures if captures.is_dir() else None)


def row_of(analysis: Analysis) -> dict[str, Any]:
    """The device, the coverage and the longest operators without a work model."""
    coverage, timeline = analysis.coverage, analysis.timeline
    assert coverage is not None
    times: dict[tuple[str, str], float] = {}
    for one in coverage.unmodeled:
        if one.reason == IS_COMMUNICATION:  # a class of its own, although no formula says how much it moves
            continue
        # Work that no operator launched has the name of its kernel.
        name = short_kernel(one.name) if one.kernels and one.kernels[0].name == one.name else one.name
        times[name, one.reason] = times.get((name, one.reason), 0.0) + one.time_s
    busy_s = timeline.busy_s if timeline is not None else 0.0  # launches without the work of the device
    longest = sorted(times.items(), key=lambda one: -one[1])[:_LISTED] if busy_s > 0 else []
    # Earlier versions, which the column "before" comes from, have no assumptions.
    estimated_s = sum(row.time_s for row in analysis.operators if row.inferred or getattr(row, "assumption", None))
    return {
        "device": analysis.environment.device_name,
        "busy_s": busy_s,
        "shapes_recorded": coverage.shapes_recorded,
        "coverage": coverage.modeled_time_fraction,
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
    rows, refused, commits, missing = [], [], {}, []
    for clone in arguments.clones:
        repository, _, directory = clone.partition("=")
        commits[repository] = commit_of(Path(directory))
        missing += [f"{repository}: {name}" for name in absent(Path(directory))]
        with tempfile.TemporaryDirectory() as work:
            for one in traces_in(Path(directory), Path(work)):
                try:
                    row = row_of(measured(one.path))
                except RooflinesError as error:
                    refused.append({"repository": repository, "path": one.name, "error": type(error).__name__})
                    continue
                rows.append({"repository": repository, "path": one.name, **row, "before": before.get((repository, one.name))})
                print(f"{_share(rows[-1]['coverage'])}  {repository}  {one.name}", flush=True)
    result = {
        "benchmark": "trace_coverage",
        "rooflines": rooflines.__version__,
        "commits": commits,
        "traces": rows,
        "refused": refused,
        "absent": missing,
    }
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    if arguments.page:
        shown = f"<!-- coverage -->\n{table(rows)}\n<!-- end -->"
        text = arguments.page.read_text()
        arguments.page.write_text(re.sub(r"<!-- coverage -->\n.*?<!-- end -->", lambda _: shown, text, flags=re.DOTALL))


if __name__ == "__main__":
    main()
