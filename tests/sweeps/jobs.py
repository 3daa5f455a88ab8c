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
