"""Traces of the capture of CUDA and HIP graphs, which belong to the trace that launches the graphs: files,
folders, and the layout in which vLLM, SGLang and xDiT record them.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rooflines.errors import DataError, TraceError
from rooflines.profiler.read.sources import find_traces, is_url, rank_in_name

Captures = Path | str | Sequence[Path | str]

DETAILS = "execution_details.json"
_FOLDER = "capture_traces"
_LARGEST_DETAILS = 1 << 20
# The batch in the name of a capture of SGLang: ``bs_32_rank0.json.gz``.
_BATCH = re.compile(r"bs_(\d{1,9})_")


class _Detail(msgspec.Struct):
    """A line of ``execution_details.json``: a trace of captures, and for how many tokens it captured."""

    file: str
    batch_size: int | None = None


def captured_beside(source: Path | str) -> tuple[str, str] | None:
    """The trace and the folder of its captures where ``source`` is a directory that holds both; None for
    anything else."""
    if is_url(source) or not os.path.isdir(folder := os.path.join(source, _FOLDER)):
        return None
    if not os.path.isfile(os.path.join(folder, DETAILS)) and not find_traces([folder], may_be_empty=True):
        return None
    traces = find_traces([source], may_be_empty=True)
    return (traces[0], folder) if len(traces) == 1 else None


def find_captures(captures: Captures | None, of: str) -> dict[str, int | None]:
    """The capture traces in files and folders, each with the number of tokens that it was captured for (None:
        not recorded).

    Of a folder with the captures of several ranks, those of the rank in the name ``of`` of the trace. Raises
    TraceError for a path that does not exist, DataError for a damaged record.
    """
    given = () if captures is None else [captures] if isinstance(captures, Path | str) else captures
    return dict(pair for source in given for pair in _files(source, rank_in_name(of)))


def _files(source: Path | str, rank: int | None) -> list[tuple[str, int | None]]:
    """The capture traces of one source, each with the number of tokens that it was captured for."""
    if not is_url(source) and not os.path.exists(source):
        raise TraceError(
            f"capture trace not found: {str(source)!r}.", hint="Give an existing file or folder."
        )
    if is_url(source):
        return [(path, None) for path in find_traces([source])]
    if not os.path.isdir(source):
        sizes = _details(Path(source).parent)
        return [(str(source), sizes.get(Path(source).name))]
    sizes = _details(Path(source))
    paths = [str(Path(source) / name) for name in sizes] or find_traces([source])
    own = [path for path in paths if rank is None or rank_in_name(path) in (rank, None)]
    named = ((path, Path(path).name) for path in own or paths)
    return [
        (path, sizes.get(name, int(batch[1]) if (batch := _BATCH.match(name)) else None))
        for path, name in named
    ]


def _details(folder: Path) -> dict[str, int | None]:
    """The traces listed in the record of ``folder``, each with its size; without one where several are listed
    for a file."""
    path = folder / DETAILS
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_DETAILS:
            return {}
        details = msgspec.json.decode(path.read_bytes(), type=list[_Detail])
    except (msgspec.DecodeError, UnicodeDecodeError, OSError, RecursionError) as error:
        raise DataError(
            f"cannot read {str(path)!r}: {error}.", hint="Give the capture traces as files."
        ) from None
    if any(detail.file != os.path.basename(detail.file) for detail in details):
        raise DataError(
            f"{str(path)!r} names a file outside of its folder.", hint="Give the capture traces as files."
        )
    times = Counter(detail.file for detail in details)
    return {detail.file: detail.batch_size if times[detail.file] == 1 else None for detail in details}
