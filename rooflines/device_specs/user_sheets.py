"""Data sheets of a user's own, kept in the user's configuration directory, one TOML file a device, as those
of the package."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from pathlib import Path

from rooflines.device_specs import names
from rooflines.device_specs.sheet import Sheet, read_sheet
from rooflines.errors import DataError, UsageError, writing
from rooflines.serial import write_text


def config_directory() -> Path:
    """The directory of a user's own sheets: ``devices`` in ``ROOFLINES_CONFIG_DIR``, or in the user's
    configuration directory."""
    import platformdirs

    return (
        Path(os.environ.get("ROOFLINES_CONFIG_DIR") or platformdirs.user_config_dir("rooflines")) / "devices"
    )


def user_sheets() -> tuple[Sheet, ...]:
    """The user's own sheets, ordered by file name; raises DataError for a file there that is not valid (any
    more)."""
    return tuple(_kept(path) for path in _files())


def add(path: Path) -> tuple[Sheet, Path]:
    """Keep the sheet in the file at ``path``: what it is, and where it is kept. A sheet of the same name is
    replaced.

    Raises DataError for a file that is not valid, UsageError for one that matches no name or a name of
    another sheet of the user's, and OutputError where nothing can be written.
    """
    sheet = read_sheet(path, title=repr(str(path)))
    if not sheet.names:
        raise UsageError(
            f"the data sheet {str(path)!r} has no `names`.", hint="Add the name that the driver reports."
        )
    directory = config_directory()
    slug = re.sub(r"[^a-z0-9]+", "_", sheet.name.casefold()).strip("_") or "device"
    target = directory / f"{slug}.toml"
    for other in _files():
        with contextlib.suppress(DataError):
            theirs = _read(other, other.stat().st_mtime_ns)
            if (
                theirs.name != sheet.name
                and (shared := _keys(theirs) & _keys(sheet))
                and not _told_apart(theirs, sheet)
            ):
                raise UsageError(
                    f"the user data sheet {theirs.name!r} already matches {min(shared)!r} with "
                    f"the same number of {sheet.units.name}s "
                    "and the same memory.",
                    hint=f"Remove it first: rooflines devices --remove {theirs.name!r}",
                )
    with writing(
        f"save the data sheet in {str(directory)!r}", "Set ROOFLINES_CONFIG_DIR to another directory."
    ):
        directory.mkdir(parents=True, exist_ok=True)
        write_text(target, path.read_bytes().decode())
    return sheet, target


def remove(name: str) -> Path:
    """Take out the user's own sheet of that name (or of that file name, for one that cannot be read): the
    file that was removed."""
    for path in _files():
        with contextlib.suppress(DataError):
            if _read(path, path.stat().st_mtime_ns).name.casefold() == name.casefold():
                return _unlink(path)
    for path in _files():
        if path.stem == name.removesuffix(".toml"):
            return _unlink(path)
    own = ", ".join(path.stem for path in _files())
    raise UsageError(
        f"no user data sheet is named {name!r}.", hint=f"There are: {own}." if own else "There are none."
    )


def _files() -> list[Path]:
    return sorted(config_directory().glob("[!.]*.toml"))


def _kept(path: Path) -> Sheet:
    try:
        return _read(path, path.stat().st_mtime_ns)
    except DataError as error:
        hint = f"Fix it or remove it: rooflines devices --remove {path.stem}"
        raise DataError(error.message, hint=hint) from None


@functools.lru_cache(maxsize=256)
def _read(path: Path, changed_ns: int) -> Sheet:
    return read_sheet(path, title=repr(str(path)))


def _keys(sheet: Sheet) -> set[str]:
    return {names.parse(name).text for name in sheet.names}


def _told_apart(one: Sheet, other: Sheet) -> bool:
    """Whether units, memory or the kind of device differ between two sheets that share a name."""
    sizes = one.memory.capacity_gb, other.memory.capacity_gb
    return (
        one.kind != other.kind
        or one.units.count != other.units.count
        or (None not in sizes and sizes[0] != sizes[1])
    )


def _unlink(path: Path) -> Path:
    with writing(f"remove {str(path)!r}"):
        path.unlink()
    return path
