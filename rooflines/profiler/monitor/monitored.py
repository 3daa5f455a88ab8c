"""A monitored program: what was recorded while it ran, and the directory that holds it.

``monitor.json`` is written before the program begins (status ``running``) and replaced when it has ended.
Until then the samples are in the sampler's journal, so that a monitor that was killed leaves a directory that
can be read.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import msgspec
from msgspec.structs import replace

from rooflines.arguments import escaped
from rooflines.profiler.directory import JOURNAL_FILE, journal_facts, read_facts, stored_samples, write_record
from rooflines.profiler.records import Environment, Status
from rooflines.profiler.samplers.fields import FIELDS, Counter, DeviceSample, Field

MONITOR_FILE = "monitor.json"
MONITOR_SCHEMA = "rooflines.monitor/1"
OUTPUT_FILE = "output.txt"

# Interpreters whose second word says more than their first, and the letters of their options that take
# neither code nor a value: behind any other option a word may be either.
_FLAGS = {
    "python": "bBdEiIOPqsSuvx",
    **dict.fromkeys(("bash", "sh", "zsh"), "aefilmnuvx"),
    "perl": "tTwWX",
    "ruby": "dvw",
    **dict.fromkeys(("node", "Rscript", "julia"), ""),
}
_INTERPRETER = re.compile(rf"({'|'.join(_FLAGS)})(\d[\d.]*t?)?")


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The exit of a command and the system's figures for its resources, including children that it waited
    for.

    ``signal`` is the number of the one that killed it, and ``exit_code`` then 128 more, as shells have it.
    ``largest_rss_bytes`` is the peak of its largest process; absent if that is not more than our own process
    held before it became the command.
    """

    exit_code: int
    signal: int | None = None
    wall_s: float
    user_cpu_s: float
    system_cpu_s: float
    largest_rss_bytes: int | None = None


class MonitorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the record of a monitored program and its analysis both say.

    ``ending`` is absent if the end was not observed. ``gpus`` are the driver's names of the GPUs.
    ``attached`` is whether the program ran already.
    """

    status: Status = "running"
    created: str
    program: str
    attached: bool = False
    period_s: float
    ending: Ending | None = None
    environment: Environment
    gpus: dict[str, str] = {}
    counters: tuple[Counter, ...] = ()
    notes: tuple[str, ...] = ()


class MonitorFile(MonitorFacts, frozen=True, kw_only=True):
    """The contents of ``monitor.json``. Times are on the clock of the samples."""

    schema: str = MONITOR_SCHEMA
    #: Command line as given (``escaped``); empty if the monitor was attached to a running process. It
    #: may contain secrets.
    command: tuple[str, ...] = ()
    #: Whether reports show the command, and not only the ``program``.
    show_command: bool = False
    #: The process.
    pid: int
    #: When it began (epoch).
    began_ns: int | None = None
    #: When it ended (epoch).
    ended_ns: int | None = None
    fields: dict[str, Field] = {}


class Monitored(msgspec.Struct, frozen=True, kw_only=True):
    """A monitor's directory in memory: where it is, its facts and its samples."""

    directory: Path
    facts: MonitorFile
    samples: tuple[DeviceSample, ...] = ()


def program_name(command: Sequence[str]) -> str:
    """The name of a command in reports: its program, or the script or module of an interpreter, without
    arguments."""
    command = [escaped(word) for word in command]
    name = Path(command[0]).name
    interpreter = _INTERPRETER.fullmatch(name)
    if interpreter is None:
        return name
    language = interpreter[1]
    for word, following in zip_longest(command[1:], command[2:], fillvalue=""):
        if language == "python" and word == "-m":
            return f"{name} -m {following}" if len(following.split()) == 1 else name
        if not word.startswith("-"):
            return f"{name} {Path(word).name}" if Path(word).suffix and len(word.split()) == 1 else name
        if word == "-" or not set(word[1:]) <= set(_FLAGS[language]):
            break
    return name


def save(directory: Path, facts: MonitorFile, samples: Sequence[DeviceSample] | None = None) -> Monitored:
    """Write ``monitor.json``, and the samples where they are given, which ends the journal. Raises
    OutputError when they do not fit."""
    write_record(directory / MONITOR_FILE, facts, samples or (), "the samples")
    if samples is not None:
        with contextlib.suppress(OSError):  # a table is read before its journal
            (directory / JOURNAL_FILE).unlink(missing_ok=True)
    return Monitored(directory=directory, facts=facts, samples=tuple(samples or ()))


def is_monitored(directory: Path | str) -> bool:
    """Whether ``directory`` is one that a monitor wrote."""
    # Not the test of Path, which raises for a name that no file can have.
    return os.path.isfile(os.path.join(directory, MONITOR_FILE))


def load(directory: Path | str) -> Monitored:
    """Read ``directory``; after a monitor that was killed or ran out of disk, read the journal. Raises
    RunError for what is corrupt."""
    directory = Path(directory)
    what = f"the monitored program in {str(directory)!r}"
    facts = read_facts(
        directory / MONITOR_FILE, MonitorFile, MONITOR_SCHEMA, what=what, again="monitor it again"
    )
    stored = stored_samples(directory, what=what)
    facts = replace(facts, **journal_facts(facts, stored, stored.problems))
    if facts.status == "running":
        cut = (
            "The monitor has not ended: it was killed or is still running. The result covers the "
            "samples so far."
        )
        facts = replace(facts, notes=(cut, *facts.notes))
    return Monitored(directory=directory, facts=facts, samples=since(facts.began_ns, stored.samples))


def since(began_ns: int | None, samples: Sequence[DeviceSample]) -> tuple[DeviceSample, ...]:
    """``samples`` from ``began_ns`` on, and the last of each device before it, for what came in between.

    That one is without what its process held: it had not become the program yet.
    """
    if began_ns is None:
        return tuple(samples)
    before = {(sample.source, sample.device): sample for sample in samples if sample.time_ns < began_ns}
    unborn = (replace(sample, **dict.fromkeys(_HELD)) for sample in before.values())
    return (
        *sorted(unborn, key=lambda sample: sample.time_ns),
        *(sample for sample in samples if sample.time_ns >= began_ns),
    )


_HELD = tuple(key for key, field in FIELDS.items() if field.program and not field.is_counter)
