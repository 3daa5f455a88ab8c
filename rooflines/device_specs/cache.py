"""Ceilings in files: those measured before, in the user's cache directory, and those that a user brings along."""

from __future__ import annotations

import datetime
import math
import os
from pathlib import Path

import msgspec

from rooflines.device_specs.meter import DISTURBED
from rooflines.device_specs.records import Ceilings
from rooflines.errors import DataError
from rooflines.serial import from_plain, read_json

# A measurement that other processes disturbed serves the session it was made in; after this it is made anew.
_DISTURBED_AGE = datetime.timedelta(hours=1)


def load_file(path: Path) -> Ceilings:
    """Ceilings from a JSON file: a stored ``Ceilings`` record, or anything with a list ``ceilings`` of them, such as analysis.json.

    Raises DataError, naming the field, where the file is neither.
    """
    hint = "A run's analysis.json holds some; docs/ceilings.md names the fields."
    try:
        plain = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise DataError(f'cannot read the ceilings file "{path}": {error.strerror or error}.', hint=hint) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f'the ceilings file "{path}" is not JSON: {error}.', hint=hint) from None
    if not isinstance(plain, dict) or not isinstance(plain.get("ceilings"), (list, dict)):
        raise DataError(f'the ceilings file "{path}" has no list "ceilings".', hint=hint)
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
        raise DataError(f'the ceilings file "{path}" does not hold ceilings: {error}.', hint=hint) from None
    if not ceilings.ceilings:
        raise DataError(f'the ceilings file "{path}" holds no ceiling.', hint=hint)
    for ceiling in ceilings.ceilings:
        if not (math.isfinite(ceiling.value) and ceiling.value > 0):
            raise DataError(f'the ceilings file "{path}" gives "{ceiling.name}" as {ceiling.value}, not a positive number.', hint=hint)
    return ceilings


def age(ceilings: Ceilings, now: datetime.datetime | None = None) -> datetime.timedelta | None:
    """How long before ``now`` (this moment) ``ceilings`` were measured, or None where they do not say."""
    try:
        then = datetime.datetime.fromisoformat(ceilings.measured_at)
    except ValueError:
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=datetime.timezone.utc)
    return (now or datetime.datetime.now(datetime.timezone.utc)) - then


def cache_directory() -> Path:
    """Where measured ceilings are kept: ``ROOFLINES_CACHE_DIR``, or the user's own directory for such files."""
    import platformdirs

    return Path(os.environ.get("ROOFLINES_CACHE_DIR") or platformdirs.user_cache_dir("rooflines")) / "ceilings"


def cache_path(name: str, full: bool) -> Path:
    """The file of a set of ceilings: those that judge a run and the full set lie beside each other."""
    return cache_directory() / f"{name}{'-full' if full else ''}.json"


def newest(name: str, fingerprint: str, *, full: bool, sustained_s: float | None) -> Ceilings | None:
    """The latest stored set that answers the request, or None: a full set has everything that a smaller request asks for."""
    sets = [cached(cache_path(name, True), fingerprint), None if full else cached(cache_path(name, False), fingerprint)]
    known = [one for one in sets if one is not None and sustained_s in (None, one.sustained_s)]
    return max(known, key=lambda one: (one.measured_at, one.full), default=None)


def cached(path: Path, fingerprint: str) -> Ceilings | None:
    """The ceilings stored at ``path``, or None where there are none that can be read and belong to ``fingerprint``."""
    try:
        ceilings = read_json(path, Ceilings)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if ceilings.fingerprint != fingerprint or not ceilings.ceilings:
        return None
    disturbed = any(DISTURBED in ceiling.source.detail for ceiling in ceilings.ceilings)
    since = age(ceilings)
    return None if disturbed and (since is None or since > _DISTURBED_AGE) else ceilings
