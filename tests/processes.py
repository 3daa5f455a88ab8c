"""Waiting for what other processes do."""

import time

import psutil


def wait_until(condition, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def ended(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def samplers_of(pid):
    """A sampler is no child of what it samples."""
    lines = ((process, " ".join(process.info["cmdline"] or ())) for process in psutil.process_iter(["cmdline"]))
    return [process for process, line in lines if "rooflines.profiler.samplers" in line and f'"pid":{pid},' in line]
