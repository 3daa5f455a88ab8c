"""Jobs that take no time, for the processes, orders and restarts of a sweep."""

from __future__ import annotations

import os
import signal
import time

from rooflines.errors import WorkloadError


def measure(options, directory, progress):
    """The point's ``batch_size`` as throughput; what its model says happens first."""
    point, number = options["point"], options["round"]
    size = point["options"]["batch_size"]
    progress.stage("measuring", 1)
    (directory / "seen").write_text("seen")
    model = point["options"]["model"]
    if model == "refused":
        raise WorkloadError("out of memory in refused.", hint="Use less.")
    if model == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if model == "raises":
        raise KeyError("lost")
    if model.startswith("waits"):
        time.sleep(0.5 if model == "waits" else 600)
    print("printed by the job")
    progress.advance()
    return {
        "point": point["id"], "round": number, "facts": {"device_name": "test", "pid": str(os.getpid())},
        "values": {"samples_per_s": 10.0 * size, "step_s": 0.1, "peak_memory_bytes": 1000.0 * size},
    }  # fmt: skip


def change(options, directory, progress):
    """Ten steps a second, twice as many in bf16, three times with an allocator that keeps its memory; compiling is refused."""
    point, number = options["point"], options["round"]
    given = point["options"]
    if given.get("compile") == "on":
        raise WorkloadError("no compiler.", hint="Install one.")
    if given["model"] == "interrupted" and number == 3:
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(60)
    rate = 10.0 * (1 + 0.01 * number) * (2 if "precision" in given else 1) * (3 if "MALLOC_TRIM_THRESHOLD_" in os.environ else 1)
    error = {"output_error": 0.01, "same_class": 1.0} if "precision" in given and number == 0 else {}
    slower = 0.001 * number if "precision" in given else 0.0
    values = {"samples_per_s": rate - slower, "step_s": 1 / rate, **error}
    notes = ["other programs kept 1.4 of 2 processors busy"] if "precision" in given and number == 0 else []
    return {"point": point["id"], "round": number, "values": values, "notes": notes}
