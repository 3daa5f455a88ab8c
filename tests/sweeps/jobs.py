"""Jobs that take no time, for the processes, orders and restarts of a sweep."""

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
    if model in ("dies", "stops") and not any((parent / "go").exists() for parent in directory.parents):
        progress.found({"point": point["id"], "round": number, "values": {"samples_per_s": 1.0}})
        if model == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        progress.advance()
        time.sleep(600)
    if model.startswith("waits"):
        time.sleep(0.5 if model == "waits" else 600)
    print("printed by the job")
    progress.advance()
    return {
        "point": point["id"], "round": number, "facts": {"device_name": "test", "pid": str(os.getpid())},
        "values": {"samples_per_s": 10.0 * size, "step_s": 0.1, "peak_memory_bytes": 1000.0 * size},
    }  # fmt: skip


def speed(options, directory, channel):
    """A throughput that grows with the batch and twofold with channels-last; the batch of 64 does not fit. Needs no time."""
    point = options["point"]
    asked = point["options"]
    channel.stage("measuring", 1)
    with (directory / "seen").open("a") as file:
        file.write(f"{os.getpid()}\n")
    size = asked.get("batch_size", 1)
    if size == 64:
        raise WorkloadError("out of memory at 64.", hint="Use less.")
    if asked["model"] == "waits":
        time.sleep(0.1)
    if asked["model"] == "hangs" and not any((parent / "go").exists() for parent in directory.parents):
        time.sleep(600)
    rate = 10.0 * size * (2 if asked.get("channels_last") else 1)
    values = {"samples_per_s": rate, "step_s": size / rate, "peak_memory_bytes": 1000.0 * size}
    return {"point": point["id"], "round": options["round"], "facts": {"device_name": "test"}, "values": values}


def learn(options, directory, channel):
    """An accuracy that is the learning rate from the first epoch on, told after every epoch; of seed 0 only it is 0.05 higher."""
    point = options["point"]
    asked = point["options"]
    accuracy = asked.get("learning_rate", 0.5) + (0.0 if asked.get("seed") else 0.05)
    result = {"point": point["id"], "round": options["round"], "facts": {"device_name": "test"}}
    for epoch in range(1, asked["epochs"] + 1):
        result["values"] = {"accuracy": accuracy, "epochs": epoch, "samples_per_s": 1.0 / accuracy}
        channel.found(result)
        time.sleep(0.02)
        (directory / "epochs").write_text(str(epoch))
    return result


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
    others = {"others_cores": 1.4} if "precision" in given and number == 0 else {}
    return {"point": point["id"], "round": number, "values": {"samples_per_s": rate - slower, "step_s": 1 / rate, **error, **others}}
