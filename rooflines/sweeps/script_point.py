"""One round of a script with a change: profiled in a process of its own, by the command that made its run."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from rooflines.pipeline import ANALYSIS_FILE
from rooflines.profiler.record.code_changes import VARIABLE, CodeChanges
from rooflines.reports.words.sentences import repeated
from rooflines.roofline.analysis import Analysis
from rooflines.serial import read_json
from rooflines.sweeps.point import RUN_FOLDER, of_run
from rooflines.sweeps.records import PointResult, SweepPoint
from rooflines.sweeps.worker import WorkerChannel

_RESULTS = "first_results.json"


def run_script_point(options: dict[str, Any], directory: Path, channel: WorkerChannel) -> PointResult:
    """Run one round of a script in ``directory``: ``options`` are the ``point``, whose options are the
    ``command`` of the run, its ``ceilings`` and the changes, and the number of its ``round``.

    The values have the script's first results (``result_0``). What it printed is the reason where it failed.
    """
    point, number = msgspec.convert(options["point"], SweepPoint), int(options["round"])
    changes = {**point.options}
    words = shlex.split(str(changes.pop("command")))
    given = {
        "--ceilings": [str(changes.pop("ceilings"))],
        "--output": [str(directory / RUN_FOLDER)],
        "--formats": ["csv"],
        **({"--threads": [str(changes.pop("threads"))]} if "threads" in changes else {}),
    }
    results = directory / _RESULTS
    variable = msgspec.json.encode(CodeChanges(options=changes, results=str(results))).decode()
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(repeated(words, given))],
        env={**os.environ, VARIABLE: variable},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        reason = done.stderr.strip().rpartition("rooflines: ")[2] or "it failed"
        return PointResult(point=point.id, round=number, reason=" ".join(reason.split()))
    found = of_run(read_json(directory / RUN_FOLDER / ANALYSIS_FILE, Analysis), point, number)
    first = read_json(results, list[float]) if results.is_file() else []
    if changes and not first:
        # Its children, for example, run without the changes.
        reason = "the script's own process had no loss and no result, so that nothing shows the change"
        return PointResult(point=point.id, round=number, reason=reason)
    values = {f"result_{place}": value for place, value in enumerate(first)}
    return msgspec.structs.replace(found, values={**found.values, **values})
