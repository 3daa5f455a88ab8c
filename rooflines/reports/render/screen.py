"""Lines at the bottom of the terminal that are drawn again and again: those of ``rooflines monitor --live``,
and of device samples."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rooflines.profiler.record.program import own_stream
from rooflines.profiler.record.reported_steps import reported_steps
from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.samplers.fields import FIELDS
from rooflines.profiler.samplers.storage import last_bytes, read_journal
from rooflines.units import quantity

if TYPE_CHECKING:
    from rich.live import Live

# A curve is the last minute: a character for each of these.
_COLUMN_NS, _COLUMNS = 5_000_000_000, 12
# A reading that is older is not shown.
_LOST_NS = 10_000_000_000
# Half a second of the host and eight GPUs.
_NEWEST_BYTES = 1 << 14
_OUTPUT_LINES, _OUTPUT_BYTES = 5, 4096
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*|.)")
_OF_HOST = {
    "cores busy": "process_cpu_utilization",
    "memory": "process_rss_bytes",
    "disk read": "process_read_bytes",
    "disk written": "process_written_bytes",
    "CPU power": "power_w",
}
_GPU = "{:9} {:>5}  {:12}  {:>7}  {:12}  {:>8}  {:>5}  {:>8}"


def plain(text: str) -> str:
    """``text`` of a program without what would control the terminal."""
    return "".join(
        character if character.isprintable() else " " for character in _ESCAPES.sub("", text.expandtabs())
    )


def line(label: str, value: str, curve: str = "") -> str:
    """A line of a screen: a label, a value and its course over the last minute."""
    return f"{label:12} {value:28} {curve}".rstrip()


def region(lines: Callable[[], Iterable[str]], per_second: int = 0) -> Live:
    """A context that shows ``lines`` below what Python prints, cut where there is no room: drawn
    ``per_second`` by a thread, or if 0 whenever ``refresh`` is called. What does not go to the terminal is
    left alone."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    return Live(
        get_renderable=lambda: Text("\n".join(lines()), no_wrap=True, overflow="crop"),
        console=Console(file=own_stream(sys.stderr), highlight=False),
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        auto_refresh=per_second > 0,
        refresh_per_second=per_second or 1,
        transient=True,
        vertical_overflow="crop",
    )


def monitor_screen(
    program: str, journal: Path, steps: Path | None = None, output: Path | None = None
) -> Live:
    """A context that shows how ``program`` runs: its readings, the ``steps`` that it reports and the end of
    its ``output``.

    A thread of the monitor draws, which the program does not wait for.
    """
    began_s, readings = time.monotonic(), Readings(journal)

    def lines() -> Iterator[str]:
        yield f"{plain(program)}  {timedelta(seconds=round(time.monotonic() - began_s))}"
        if steps is not None and (rate := reported_steps(steps)):
            yield line("steps/s", rate)
        yield from readings.lines()
        if output is not None:
            yield line("output", plain(str(output)))
            for text in (
                last_bytes(output, _OUTPUT_BYTES)
                .decode(errors="replace")
                .rstrip()
                .split("\n")[-_OUTPUT_LINES:]
            ):
                shown = text.rstrip("\r").rpartition("\r")[
                    2
                ]  # a terminal shows what follows a return to the beginning
                yield f"  {plain(shown)}"

    return region(lines, per_second=2)


class Readings:
    """The latest samples of a journal that is being written, and their course over the last minute, as
    lines."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._values: dict[
            tuple[str, str], tuple[int, float]
        ] = {}  # by device and field, with the time of reading
        self._curves: dict[tuple[str, str], deque[list[float]]] = defaultdict(
            partial(deque, maxlen=_COLUMNS)
        )  # column, sum, number

    def lines(self) -> Iterator[str]:
        """The host's lines, then a table of GPUs."""
        for sample in read_journal(self._journal, _NEWEST_BYTES).samples:
            for key, value in sample.numbers().items():
                self._take(sample.device, key, sample.time_ns, value)
        for label, key in _OF_HOST.items():
            if text := self._latest("host", key):
                yield line(label, text, self._curve("host", key))
        gpus = sorted(
            {device for device, key in self._values if device.startswith("gpu") and self._latest(device, key)}
        )
        if gpus:
            yield _GPU.format("", "busy", "last minute", "power", "last minute", "memory", "temp", "clock")
        for gpu in gpus:
            latest, curve = partial(self._latest, gpu), partial(self._curve, gpu)
            yield _GPU.format(
                gpu,
                latest("gpu_utilization"),
                curve("gpu_utilization"),
                latest("power_w"),
                curve("power_w"),
                latest("process_memory_bytes") or latest("memory_used_bytes"),
                latest("temperature_c"),
                latest("sm_clock_hz"),
            ).rstrip()

    def _take(self, device: str, key: str, time_ns: int, value: float) -> None:
        if (
            key not in FIELDS or time_ns <= self._values.get((device, key), (0, 0.0))[0]
        ):  # of another package, or read before
            return
        self._values[device, key] = time_ns, value
        curve, column = self._curves[device, key], time_ns // _COLUMN_NS
        if not curve or curve[-1][0] != column:
            curve.append([column, 0.0, 0])
        curve[-1][1] += value
        curve[-1][2] += 1

    def _latest(self, device: str, key: str) -> str:
        read_ns, value = self._values.get((device, key), (0, 0.0))
        return quantity(value, FIELDS[key].unit) if read_ns > now_ns() - _LOST_NS else ""

    def _curve(self, device: str, key: str) -> str:
        """The course of a field, from zero to the highest possible value or the highest that was read."""
        means = {int(column): total / count for column, total, count in self._curves[device, key]}
        possible = {
            "process_cpu_utilization": os.cpu_count() or 1,
            "gpu_utilization": 1.0,
            "power_w": self._values.get((device, "power_limit_w"), (0, 0.0))[1],
        }.get(key, 0.0)
        top, last = max([possible, 1e-9, *means.values()]), now_ns() // _COLUMN_NS
        blocks = (
            "▁▂▃▄▅▆▇█"[min(7, int(8 * means[at] / top))] if at in means else " "
            for at in range(last - _COLUMNS + 1, last + 1)
        )
        return "".join(blocks).lstrip()
