"""Ceilings in files: those measured before, in the user's cache directory, and those that a user brings along."""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from rooflines.device_specs.history import History, Session
from rooflines.device_specs.records import DISTURBED, Ceilings, marks_of
from rooflines.errors import DataError
from rooflines.serial import from_plain, read_json, write_json

# Ceilings that other processes disturbed serve for this long; then they are measured again.
_DISTURBED_AGE = datetime.timedelta(hours=1)
# Histories that could not be written: they serve this process.
_unwritten: dict[str, History] = {}

Progress = Callable[[str], None]


def load_file(path: Path) -> Ceilings:
    """Ceilings from a JSON file: a stored ``Ceilings`` record, or anything with a list ``ceilings`` of them, such as analysis.json.

    Raises DataError, naming the field, where the file is neither.
    """
    hint = "Use a run's analysis.json, or see docs/ceilings.md for the fields."
    try:
        plain = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise DataError(f'cannot read the ceilings file "{path}": {error.strerror or error}.', hint=hint) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f'the ceilings file "{path}" is not JSON: {error}.', hint=hint) from None
    if not isinstance(plain, dict) or not isinstance(plain.get("ceilings"), (list, dict)):
        raise DataError(f'the ceilings file "{path}" has no "ceilings" list.', hint=hint)
    if isinstance(plain["ceilings"], dict):  # run.json keeps the whole record
        plain = plain["ceilings"]
    environment = plain.get("environment")
    environment = environment if isinstance(environment, dict) else {}
    whole = {
        "device": environment.get("device_name", path.stem),
        "kind": str(environment.get("device", "")).split(":")[0],
        **plain,
    }
    try:
        ceilings = from_plain(whole, Ceilings)
    except msgspec.ValidationError as error:
        raise DataError(f'the ceilings file "{path}" is not valid: {error}.', hint=hint) from None
    if not ceilings.ceilings:
        raise DataError(f'the ceilings file "{path}" contains no ceilings.', hint=hint)
    for ceiling in ceilings.ceilings:
        if not (math.isfinite(ceiling.value) and ceiling.value > 0):
            raise DataError(f'the ceilings file "{path}" gives "{ceiling.name}" as {ceiling.value}; it must be positive.', hint=hint)
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

    return Path(os.environ.get("ROOFLINES_CACHE_DIR") or platformdirs.user_cache_dir("rooflines")) / "ceilings"


def cache_path(kind: str, fingerprint: str) -> Path:
    """The file that holds every measurement of one device."""
    return cache_directory() / f"{kind}-{fingerprint}.json"


def read_history(kind: str, fingerprint: str) -> History | None:
    """The measurements of a device, or None where there are none that can be read and belong to ``fingerprint``."""
    try:
        history = read_json(cache_path(kind, fingerprint), History)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return _unwritten.get(fingerprint)
    return history if history.fingerprint == fingerprint and history.sessions else None


def add_session(empty: History, session: Session, progress: Progress) -> History:
    """``session`` with those that are stored by now, in the cache; where that cannot be written, they still serve this process.

    The file is replaced as a whole. Of two processes that write in the same moment one loses its session.
    """
    history = (read_history(empty.kind, empty.fingerprint) or empty).joined([session])
    path = cache_path(empty.kind, empty.fingerprint)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, history)
    except OSError as error:
        _unwritten[empty.fingerprint] = history
        progress(f"ceilings not cached: {error}")
    return history


def answering(empty: History, *, full: bool, sustained_s: float | None) -> Ceilings | None:
    """The stored ceilings that answer a request, or None: a full set has everything that a smaller request asks for."""
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
    return None if not ceilings.ceilings or (disturbed and (since is None or since > _DISTURBED_AGE)) else ceilings
