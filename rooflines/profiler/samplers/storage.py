"""``samples.parquet``: a run's device samples as one table, a column a field."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import UnionType
from typing import Any

import msgspec

from rooflines.errors import RunError
from rooflines.profiler.records import DeviceSample

SAMPLES_SCHEMA = "rooflines.samples/1"


def write_samples(samples: Iterable[DeviceSample], path: Path) -> None:
    """Write ``samples`` to ``path``, whole or not at all.

    A field that was not measured is a null, and a column without a single figure still has its type.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [msgspec.to_builtins(sample) for sample in samples]
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        pq.write_table(pa.Table.from_pylist(rows, schema=_schema()), temporary, compression="zstd")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_samples(path: Path) -> tuple[DeviceSample, ...]:
    """The samples in the file at ``path``; raises OSError, or RunError when it is not a table of samples."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path, memory_map=False).to_pylist()
        return tuple(msgspec.convert(row, DeviceSample) for row in rows)
    except (pa.ArrowInvalid, msgspec.ValidationError) as error:
        raise RunError(
            f"{str(path)!r} contains no valid device samples: {error}.", hint="Delete it; the rest of the run stays usable."
        ) from None


def _schema() -> Any:
    """The table's columns, derived from the record so that the two cannot drift apart."""
    import pyarrow as pa

    types = {int: pa.int64(), float: pa.float64(), str: pa.string(), tuple[float, ...]: pa.list_(pa.float64())}
    fields = []
    for field in msgspec.structs.fields(DeviceSample):
        options = field.type.__args__ if isinstance(field.type, UnionType) else (field.type,)
        (kind,) = (option for option in options if option is not type(None))
        fields.append(pa.field(field.name, types[kind], nullable=not field.required))
    return pa.schema(fields, metadata={"rooflines.schema": SAMPLES_SCHEMA})
