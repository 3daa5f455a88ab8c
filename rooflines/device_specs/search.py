"""Finding data sheets: by a printed name, by the sheet's own name or some words of it, and by what the device
can do."""

from __future__ import annotations

import re

from rooflines.device_specs import catalog
from rooflines.device_specs.catalog import Match, SheetFacts
from rooflines.device_specs.sheet import Sheet
from rooflines.device_specs.user_sheets import user_sheets
from rooflines.errors import UsageError

_VARIANTS = frozenset({"ti", "super", "laptop"})


def every() -> tuple[Match, ...]:
    """Every sheet of the package and of the user, by vendor and name, numbers in order."""
    return tuple(
        sorted(
            [Match(sheet=sheet, user=True) for sheet in user_sheets()]
            + [Match(sheet=sheet) for sheet in catalog.sheets()],
            key=lambda match: (match.sheet.vendor.casefold(), _natural(match.sheet.name), not match.user),
        )
    )


def search(
    name: str = "",
    *,
    vendor: str = "",
    kind: str = "",
    architecture: str = "",
    precision: str = "",
    min_bandwidth: float | None = None,
    min_memory: float | None = None,
) -> tuple[Match, ...]:
    """The sheets that answer to all of what is given.

    ``kind`` is a torch device type, or "gpu" for everything except CPUs; ``precision`` asks for a rate of it;
    ``min_bandwidth`` is in GB/s, ``min_memory`` in GB. Raises UsageError, naming what looks alike, where
    nothing does.
    """
    named = _named(name) if name else every()
    found = [
        match
        for match in named
        if _alike(vendor, match.sheet.vendor)
        and (not kind or kind == match.sheet.kind or (kind == "gpu" and match.sheet.kind != "cpu"))
        and _alike(architecture, f"{match.sheet.architecture} {match.sheet.compute_capability}")
        and (not precision or any(rate.precision == precision for rate in match.sheet.compute))
        and (min_bandwidth is None or match.sheet.memory.gb_per_s >= min_bandwidth)
        # the most that is sold; none where it is not part of the device (the DRAM of a CPU)
        and (
            min_memory is None
            or (match.sheet.memory.capacity_gb or max(match.sheet.memory.capacities_gb or (0.0,)))
            >= min_memory
        )
    ]
    if not found:
        raise UsageError("no device matches all of these filters.", hint=_hint(vendor, architecture))
    return tuple(found)


def only(name: str, facts: SheetFacts | None = None) -> Match:
    """The one sheet that ``name`` is of: a name as a driver prints it, the sheet's own, or some words of it.

    ``facts`` tell those apart that share it. Raises UsageError with what looks alike where there is none, or
    more than one.
    """
    found = _named(name)
    if len(found) > 1 and facts is not None:
        alike = [
            (match, catalog.matching(match.sheet.names[0], facts) if match.sheet.names else ())
            for match in found
        ]
        found = (
            tuple(match for match, ones in alike if any(match.sheet == one.sheet for one in ones)) or found
        )
    if len(found) > 1:
        raise UsageError(
            f"{name!r} may be {', '.join(match.sheet.name for match in found)}.",
            hint="Give one of these names.",
        )
    return found[0]


def _named(name: str) -> tuple[Match, ...]:
    if printed := catalog.matching(name):
        return printed
    wanted = name.casefold()
    if exact := tuple(match for match in every() if match.sheet.name.casefold() == wanted):
        return exact
    words = wanted.split()
    numbers = [word for word in words if any(letter.isdigit() for letter in word)]
    if found := tuple(match for match in every() if all(_has_word(match.sheet, word) for word in words)):
        # with its number, a variant must be asked for: "rtx 4070" is none of the 4070 Ti, 4070 SUPER and 4070
        # Laptop GPU
        plain = tuple(
            match
            for match in found
            if _VARIANTS.intersection(match.sheet.name.casefold().split()) <= set(words)
        )
        return (plain or found) if numbers else found
    near = catalog.nearest(name) or [
        match.sheet.name for match in every() if any(_has_word(match.sheet, word) for word in numbers)
    ]
    hint = f"Nearest: {', '.join(near)}." if near else "rooflines devices lists all."
    raise UsageError(f"no data sheet for {name!r}.", hint=hint)


def _hint(vendor: str, architecture: str) -> str:
    """The vendors or architectures there are, where the one asked for is none of them."""
    known = [match.sheet for match in every()]
    if vendor and not any(_alike(vendor, sheet.vendor) for sheet in known):
        return f"Vendors: {', '.join(sorted({sheet.vendor for sheet in known}))}."
    if architecture and not any(
        _alike(architecture, f"{sheet.architecture} {sheet.compute_capability}") for sheet in known
    ):
        return f"Architectures: {', '.join(sorted({sheet.architecture.split()[0] for sheet in known}))}."
    return "Remove one of the filters."


def _has_word(sheet: Sheet, word: str) -> bool:
    """Whether ``word`` begins a word of the device's names: "rtx" and "4090" find the GeForce RTX 4090, and
    "l4" no L40."""
    text = " ".join((sheet.vendor, sheet.name, *sheet.names)).casefold()
    end = r"(?![\w+])" if word[-1:].isdigit() else ""
    return re.search(rf"(?<!\w){re.escape(word)}{end}", text) is not None


def _alike(wanted: str, text: str) -> bool:
    return wanted.casefold() in text.casefold()


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """A sort key under which A10 comes before A100 and after A2."""
    return [
        (part.isdigit(), int(part) if part.isdigit() else 0, part)
        for part in re.split(r"(\d+)", name.casefold())
    ]
