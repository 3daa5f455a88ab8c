"""The words in a ceiling's source that say why the figure should be read with care."""

from __future__ import annotations

from rooflines.device_specs.records import Ceiling

DISTURBED = "disturbed"
UNCONFIRMED = "unconfirmed"
CONTRADICTS = "contradicts"
THROTTLED = "throttled"

# What each of them means.
MARKS = {
    UNCONFIRMED: "no second round came within 5 % of the best",
    DISTURBED: "other processes used the same cores, so it may be too low",
    CONTRADICTS: "it contradicts another figure, so it may be too low",
    THROTTLED: "the device ran below the requested clock",
}


def marks_of(ceiling: Ceiling) -> list[str]:
    """The words of ``MARKS`` that belong to a ceiling."""
    found = [word for word in MARKS if f", {word}" in ceiling.source.detail]
    return [*found, THROTTLED] if ceiling.conditions and ceiling.conditions.throttled else found


def marked(ceiling: Ceiling, word: str) -> str:
    """The text after one of these words in the source of ``ceiling``; empty without it."""
    for part in ceiling.source.detail.split(", "):
        if part.startswith(word):
            return part.removeprefix(word).lstrip(": ")
    return ""
