"""The points of a sweep: every combination of lists of options, from the command line or a TOML file."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import types
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

from rooflines.arguments import arg
from rooflines.errors import DataError, UsageError
from rooflines.pipeline.options import ProfileOptions
from rooflines.profiler.directory import file_stem
from rooflines.profiler.options import OptionValue, OptionValues, PointOptions
from rooflines.profiler.training.options import TrainOptions
from rooflines.reports.words.text import joined
from rooflines.sweeps.records import Kind, SweepPoint

# What a point runs, and its options.
Setting: TypeAlias = tuple[Kind, OptionValues]
RECORDS: dict[Kind, type[PointOptions]] = {"profile": ProfileOptions, "train": TrainOptions}
# Options of one run that are those of the whole sweep here.
NOT_SWEPT = ("output", "formats", "progress", "to_end", "trace")
_YES, _NO = ("on", "true", "yes", "1"), ("off", "false", "no", "0")


@cache
def swept_options(kind: Kind) -> dict[str, Any]:
    """Return the options that a sweep may vary, with their types."""
    hints = get_type_hints(RECORDS[kind])
    return {
        field.name: hints[field.name]
        for field in dataclasses.fields(RECORDS[kind])
        if field.name not in NOT_SWEPT
    }


def parse_values(name: str, text: str, kind: Kind = "profile") -> list[OptionValue]:
    """Return the values of option ``name`` in ``text``, separated by commas; raises UsageError for one of
    another type.

    A value that contains a comma itself (``adamw,fused``) is recognized where the option has a list of
    choices.
    """
    hint = _hint(name, kind)
    choices = _choices(hint)
    parts = [part.strip() for part in text.split(",")]
    values: list[OptionValue] = []
    while parts:
        length = next((n for n in range(len(parts), 0, -1) if ",".join(parts[:n]) in choices), 1)
        values.append(_value(name, ",".join(parts[:length]), hint, choices))
        parts = parts[length:]
    return values


def parse_range(name: str, text: str, kind: Kind) -> tuple[float, float] | None:
    """Return the ends of ``low..high`` for the numeric option ``name``; None where ``text`` is no range or
    the option not a number."""
    kinds = _kinds(_hint(name, kind))
    if ".." not in text or bool in kinds or not {int, float} & set(kinds):
        return None
    low, high = (_value(name, end.strip(), _hint(name, kind), ()) for end in text.split("..", 1))
    assert isinstance(low, int | float)
    assert isinstance(high, int | float)
    if not low < high:
        raise UsageError(f"{arg(name, text)} is not a range: {low} is not less than {high}.")
    return low, high


def _hint(name: str, kind: Kind) -> Any:
    if name not in swept_options(kind):
        raise UsageError(
            f"{arg(name)} is not an option of {kind}.",
            hint=f"Choose from {', '.join(sorted(swept_options(kind)))}.",
        )
    return swept_options(kind)[name]


def _choices(hint: Any) -> tuple[str, ...]:
    return tuple(
        choice
        for one in (hint, *get_args(hint))
        if get_origin(one) is Literal
        for choice in get_args(one)
        if isinstance(choice, str)
    )


def _kinds(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _value(name: str, text: str, hint: Any, choices: tuple[str, ...]) -> OptionValue:
    kinds = _kinds(hint)
    if choices:
        if text in choices:
            return text
        raise UsageError(f"{arg(name, text)} is not a choice.", hint=f"Choose from {'; '.join(choices)}.")
    if bool in kinds:
        if text.lower() in (*_YES, *_NO):
            return text.lower() in _YES
        raise UsageError(f"{arg(name, text)} is not on or off.", hint=f"For example: {arg(name, 'off,on')}")
    for kind in (int, float):
        if kind in kinds:
            try:
                return kind(text)
            except ValueError:
                what = "an integer" if kind is int else "a number"
                raise UsageError(
                    f"{arg(name, text)} is not {what}.", hint=f"For example: {arg(name, '1,2,4')}"
                ) from None
    return text


def options_of(kind: Kind, options: Mapping[str, OptionValue]) -> Any:
    """Return the record of the ``options`` of a point of this ``kind``, which also have its model."""
    given: dict[str, Any] = {name: value for name, value in options.items() if name != "model"}
    return RECORDS[kind](**given)


def point_grid(
    options: Mapping[str, OptionValue | Sequence[OptionValue]], kind: Kind = "profile"
) -> list[OptionValues]:
    """Return every combination of the values in ``options``: lists are crossed, in their order, the last one
    fastest."""
    known = {"model", *swept_options(kind)}
    for name in options:
        if name not in known:
            raise UsageError(
                f"unknown option {name!r} of {kind}.", hint=f"Choose from {', '.join(sorted(known))}."
            )
    return crossed_options(options)


def crossed_options(
    options: Mapping[str, OptionValue | Sequence[OptionValue]],
) -> list[OptionValues]:
    """Return every combination of the values in ``options``, whose names are not checked."""
    lists = [value if isinstance(value, list | tuple) else [value] for value in options.values()]
    return [dict(zip(options, values, strict=True)) for values in itertools.product(*lists)]


def make_points(settings: Iterable[Setting], function: str = "") -> tuple[SweepPoint, ...]:
    """Return the points of ``settings``, each once, labeled by what differs between them.

    Raises UsageError for a setting that no machine can run; another ``function`` checks its options itself.
    """
    unique: dict[str, Setting] = {}
    for kind, options in settings:
        if not function:
            if "model" not in options:
                raise UsageError(
                    "a sweep requires a model.", hint=f"For example: {arg('model', 'resnet18,mobilenet_v2')}"
                )
            options_of(kind, options).check()
        unique.setdefault(hash_of([kind, sorted(options.items())]), (kind, options))
    names = varying([options for _, options in unique.values()])
    several_kinds = len({kind for kind, _ in unique.values()}) > 1
    points = []
    for hashed, (kind, options) in unique.items():
        parts = [label_of(options, names), kind if several_kinds else ""]
        label = joined(" · ", *parts) or str(options.get("model") or next(iter(options.values())))
        points.append(
            SweepPoint(id=point_id(label, hashed), label=label, kind=kind, function=function, options=options)
        )
    return tuple(points)


def varying(settings: Sequence[Mapping[str, OptionValue]]) -> list[str]:
    """Return the options that are not the same in all ``settings``."""
    names = dict.fromkeys(name for options in settings for name in options)
    return [name for name in names if len({repr(options.get(name)) for options in settings}) > 1]


def label_of(options: Mapping[str, OptionValue], names: Iterable[str]) -> str:
    """Return the options ``names`` in words: ``batch 8 · bf16``."""
    return joined(" · ", *(shown_option(name, options.get(name)) for name in names))


_WORDS = {
    "batch_size": "batch",
    "image_size": "pixels",
    "data_workers": "workers",
    "sequence_length": "tokens",
}
_PLAIN = ("precision", "mode", "optimizer", "quantize", "device", "data", "backend")


def shown_option(name: str, value: OptionValue | None) -> str:
    """``batch 8``, ``bf16``, ``compiled``; empty for an option that is off or not given."""
    if name == "model":
        return str(value).rpartition("/")[2]
    if value is None or value is False or (name == "compile" and value == "off") or value == "none":
        return ""
    if name == "compile":
        return "compiled" if value in ("on", True) else f"compiled ({value})"
    if value is True or name in _PLAIN:
        return name.replace("_", " ") if value is True else str(value)
    if name == "threads":
        return f"{value} thread{'' if value == 1 else 's'}"
    return f"{_WORDS.get(name, name.replace('_', ' '))} {value}"


def point_id(label: str, hashed: str) -> str:
    """Return the name of the folder of a point: its label, and a hash that no other setting has."""
    return f"{file_stem(label.replace(' · ', '_').replace(' ', '-'))[:60]}-{hashed}"


def hash_of(plain: object) -> str:
    """Return eight digits that stand for ``plain``."""
    return hashlib.sha256(msgspec.json.encode(plain)).hexdigest()[:8]


class SweepFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sweep as a TOML file: ``options`` for all points, and ``points``, each a table whose lists are
    crossed."""

    name: str = ""
    kind: Kind = "profile"
    repeats: int | None = None
    options: dict[str, Any] = {}
    points: list[dict[str, Any]] = []


def read_file(path: Path) -> SweepFile:
    """Return the sweep in the TOML file at ``path``; raises DataError where it is none."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=SweepFile)
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror or error}.") from None
    except (msgspec.DecodeError, ImportError) as error:
        raise DataError(f"{str(path)!r} is not a sweep: {error}.", hint="See docs/sweeps.md.") from None


def settings_of(file: SweepFile, given: Mapping[str, list[OptionValue]]) -> list[Setting]:
    """Return the settings of ``file`` with the options ``given`` on the command line, which replace those of
    the file."""
    settings: list[Setting] = []
    for table in file.points or [{}]:
        kind: Kind = table.get("kind", file.kind)
        own = {name: value for name, value in table.items() if name != "kind"}
        settings += [(kind, options) for options in point_grid({**file.options, **own, **given}, kind)]
    return settings
