"""The rounds of every measurement of one device, the ceilings that follow from them, and the files with both.

Nothing but what was measured is stored, in the user's cache directory: which round is the best, how far the
rounds are apart and which laws are broken is derived each time, from all measurements of the same device,
driver, threads, packages and method.
"""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from rooflines.device_specs import detect, laws
from rooflines.device_specs.records import CONTRADICTS, DISTURBED, UNCONFIRMED, Ceiling, Ceilings, marks_of
from rooflines.device_specs.rounds import Round, fastest, summary
from rooflines.errors import DataError
from rooflines.serial import from_plain, read_json_if_whole, write_json

Progress = Callable[[str], None]

# Older measurements are dropped, so that the file stays small.
MOST_SESSIONS = 32
# Ceilings that other processes disturbed serve for this long; then they are measured again.
_DISTURBED_AGE = datetime.timedelta(hours=1)
# Histories that could not be written: they serve this process.
_unwritten: dict[str, History] = {}


class HistorySeries(msgspec.Struct, frozen=True, kw_only=True):
    """The rounds of one way to measure a figure, in the order in which they were taken."""

    #: The fields of the figure, and the best value of these rounds.
    ceiling: Ceiling
    #: Empty for a figure that was not measured in rounds (derived, sustained), whose ``ceiling`` stands as it
    #: is.
    values: tuple[float, ...] = ()
    quiet: tuple[bool, ...] = ()
    #: The variant that this way is kept as where another way is faster.
    further: str = ""
    #: Whether values that are not quiet are per processor time.
    private: bool = False

    @property
    def rounds(self) -> list[Round]:
        found = zip(self.values, self.quiet, strict=True)
        return [Round(value, quiet, corrected=self.private and not quiet) for value, quiet in found]


class HistorySession(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement and what it found."""

    #: ISO time at which it ended.
    measured_at: str
    series: tuple[HistorySeries, ...]
    full: bool = False
    sustained_s: float | None = None
    #: How long it took.
    seconds: float | None = None
    clock_hz: float | None = None
    #: Who else used the device all the time, in words.
    disturbed_by: str = ""
    #: Remarks on a memory level, by its name.
    notes: dict[str, str] = msgspec.field(default_factory=dict)


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Every measurement of one device; the fields before ``sessions`` are those of ``Ceilings``."""

    device: str
    kind: str
    fingerprint: str
    method: int
    packages: dict[str, str] = msgspec.field(default_factory=dict)
    driver: str | None = None
    threads: int | None = None
    sessions: tuple[HistorySession, ...] = ()

    def ceilings(self, sustained_s: float | None = None) -> Ceilings:
        """The best of all measurements.

        Figures held for ``sustained_s`` seconds, or for as long as in the last measurement that held any: the
        longer, the lower.
        """
        sessions = self.sessions
        held = sustained_s or next((one.sustained_s for one in reversed(sessions) if one.sustained_s), None)
        clocks = [one.clock_hz for one in sessions if one.clock_hz is not None]
        best = best_of(sessions, held)
        marks: dict[laws.Key, list[str]] = {}
        for broken in broken_laws(best, self.threads):
            marks.setdefault(broken.suspect, []).append(broken.law)
        return Ceilings(
            **{name: getattr(self, name) for name in self.__struct_fields__ if name != "sessions"},
            ceilings=tuple(
                one.noted(f", {CONTRADICTS}: {' and '.join(marks[one.key])}") if one.key in marks else one
                for one in best
            ),
            measured_at=sessions[-1].measured_at,
            measurements=len(sessions),
            since=sessions[0].measured_at,
            full=any(one.full for one in sessions),
            sustained_s=held,
            clock_hz=max(clocks, default=None),
        )

    def joined(self, sessions: Iterable[HistorySession]) -> History:
        """Merge further measurements, each once, in the order of time."""
        every = {one.measured_at: one for one in (*self.sessions, *sessions)}
        kept = sorted(every.values(), key=lambda one: datetime.datetime.fromisoformat(one.measured_at))
        return replace(self, sessions=tuple(kept[-MOST_SESSIONS:]))


def best_of(sessions: Sequence[HistorySession], sustained_s: float | None = None) -> tuple[Ceiling, ...]:
    """Every figure of ``sessions`` once: its fastest way, the best round of that, and marks where no other
    round agrees."""
    figures: dict[laws.Key, dict[str, list[tuple[HistorySession, HistorySeries]]]] = {}
    for session in sessions:
        for series in session.series:
            if series.ceiling.variant == "sustained" and session.sustained_s != sustained_s:
                continue
            figures.setdefault(series.ceiling.key, {}).setdefault(series.ceiling.source.detail, []).append(
                (session, series)
            )
    notes = {level: note for session in sessions for level, note in session.notes.items()}
    found: list[Ceiling] = []
    for ways in figures.values():
        fixed = [way[-1][1] for way in ways.values() if not way[-1][1].values]
        if fixed:  # not measured in rounds: the latest stands
            found.append(fixed[-1].ceiling)
            continue
        lowest = next(iter(ways.values()))[0][1].ceiling.kind == "latency"
        best = fastest([(way, _rounds(way)) for way in ways.values()], lowest=lowest)
        found.append(_ceiling(best, lowest, notes))
        for way in ways.values():
            further = way[-1][1].further
            if way is not best and further:
                found.append(replace(_ceiling(way, lowest, notes), variant=further))
    return tuple(found)


def _rounds(way: Sequence[tuple[HistorySession, HistorySeries]]) -> list[Round]:
    return [one for _, series in way for one in series.rounds]


def _ceiling(
    way: Sequence[tuple[HistorySession, HistorySeries]], lowest: bool, notes: dict[str, str]
) -> Ceiling:
    """The ceiling of one way; date and conditions are those of the measurement that had the best round."""
    said = summary(_rounds(way), lowest=lowest)
    session, series = next((session, series) for session, series in way if said.best.value in series.values)
    note = notes.get(series.ceiling.level or "", "")
    if said.disturbed:
        note += f", {DISTURBED}: {session.disturbed_by or 'other processes used the same cores'}"
    elif not said.confirmed:
        note += f", {UNCONFIRMED}"
    return replace(
        series.ceiling.noted(note),
        value=said.best.value,
        spread=said.spread,
        rounds=said.rounds,
        agreeing=said.agreeing,
    )


def broken_laws(ceilings: Sequence[Ceiling], threads: int | None) -> tuple[laws.Broken, ...]:
    """The laws that ``ceilings`` measured with ``threads`` threads break here."""
    cores = detect.physical_cores() if threads else None
    return laws.broken(ceilings, min(threads, cores) if threads and cores else None)


# --- files ------------------------------------------------------------------------------------------------


def load_file(path: Path) -> Ceilings:
    """Ceilings from a JSON file: a stored ``Ceilings`` record, or anything with a list ``ceilings`` of them,
    such as analysis.json.

    Raises DataError, naming the field, where the file is neither.
    """
    hint = "Use a run's analysis.json, or see docs/ceilings.md for the fields."

    def refusal(what: str) -> DataError:
        return DataError(f'the ceilings file "{path}" {what}.', hint=hint)

    try:
        plain = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise DataError(
            f'cannot read the ceilings file "{path}": {error.strerror or error}.', hint=hint
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise refusal(f"is not JSON: {error}") from None
    if not isinstance(plain, dict) or not isinstance(plain.get("ceilings"), (list, dict)):
        raise refusal('has no "ceilings" list')
    if isinstance(plain["ceilings"], dict):  # run.json keeps the whole record
        plain = plain["ceilings"]
    known = plain.get("environment")
    known = known if isinstance(known, dict) else {}
    given = {
        "device": known.get("device_name", path.stem),
        "kind": str(known.get("device", "")).split(":")[0],
        **plain,
    }
    try:
        ceilings = from_plain(given, Ceilings)
    except msgspec.ValidationError as error:
        raise refusal(f"is not valid: {error}") from None
    if not ceilings.ceilings:
        raise refusal("contains no ceilings")
    for ceiling in ceilings.ceilings:
        if not (math.isfinite(ceiling.value) and ceiling.value > 0):
            raise refusal(f'gives "{ceiling.name}" as {ceiling.value}; it must be positive')
    return ceilings


def age(ceilings: Ceilings, now: datetime.datetime | None = None) -> datetime.timedelta | None:
    """The age of ``ceilings`` at ``now`` (default: this moment), or None if unknown."""
    try:
        then = datetime.datetime.fromisoformat(ceilings.measured_at)
    except ValueError:
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=datetime.timezone.utc)
    return (now or datetime.datetime.now(datetime.timezone.utc)) - then


def cache_directory() -> Path:
    """The directory of measured ceilings: ``ROOFLINES_CACHE_DIR``, or the user's cache directory."""
    import platformdirs

    return (
        Path(os.environ.get("ROOFLINES_CACHE_DIR") or platformdirs.user_cache_dir("rooflines")) / "ceilings"
    )


def _path(kind: str, fingerprint: str) -> Path:
    return cache_directory() / f"{kind}-{fingerprint}.json"


def read_history(kind: str, fingerprint: str) -> History | None:
    """The measurements of a device, or None where there are none that can be read and belong to
    ``fingerprint``."""
    history = read_json_if_whole(_path(kind, fingerprint), History)
    if history is None:
        return _unwritten.get(fingerprint)
    return history if history.fingerprint == fingerprint and history.sessions else None


def add_session(empty: History, session: HistorySession, progress: Progress) -> History:
    """``session`` with those that are stored by now, in the cache; where that cannot be written, they still
    serve this process.

    The file is replaced as a whole. Of two processes that write in the same moment one loses its session.
    """
    history = (read_history(empty.kind, empty.fingerprint) or empty).joined([session])
    path = _path(empty.kind, empty.fingerprint)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, history)
    except OSError as error:
        _unwritten[empty.fingerprint] = history
        progress(f"ceilings not cached: {error}")
    return history


def answering(empty: History, *, full: bool, sustained_s: float | None) -> Ceilings | None:
    """The stored ceilings that answer a request, or None: a full set has everything that a smaller request
    asks for."""
    history = read_history(empty.kind, empty.fingerprint)
    if history is None or (full and not any(one.full for one in history.sessions)):
        return None
    if sustained_s is not None and not any(one.sustained_s == sustained_s for one in history.sessions):
        return None
    ceilings = history.ceilings(sustained_s)
    # what such a request would measure again: a quick one has no variants of memory to make better
    alike = [one for one in history.sessions if one.full == full] or history.sessions
    measured = {series.ceiling.key for session in alike for series in session.series}
    disturbed = any(DISTURBED in marks_of(one) for one in ceilings.ceilings if one.key in measured)
    since = age(ceilings)
    return (
        None
        if not ceilings.ceilings or (disturbed and (since is None or since > _DISTURBED_AGE))
        else ceilings
    )
