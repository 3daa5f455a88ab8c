"""The oracle's answers for our calls and for torch's own samples, recorded for each version of torch.

``make test`` compares with them, ``make test-all`` measures them again.

``python -m tests.roofline.formulas.answers`` measures with the installed torch and writes its file. ``flops.json`` beside it has the
FLOPs of the recorded calls, which the oracle cannot see, and ``rows.json`` the figures of an example of every row of a library: with
``flops`` as an argument only they are written, which is how a change of a cost is approved.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import msgspec
import torch

from rooflines.profiler.read.signature import StoredCall
from rooflines.roofline.count.formulas import count
from tests.roofline.formulas import samples
from tests.roofline.formulas.oracle import Bytes, Call, Verdict, judge

FOLDER = Path(__file__).parents[2] / "data" / "oracle"
FLOPS = FOLDER / "flops.json"
ROWS = FOLDER / "rows.json"


class Answer(msgspec.Struct, array_like=True):
    """What the oracle found for one call; ``outputs`` is absent where it did not run the operator or had no answer."""

    overload: str
    kinds: int
    call: StoredCall
    source: str
    bytes: tuple[int, int, int, int] | None
    reason: str = ""
    has_outputs: bool = True


class Answers(msgspec.Struct):
    """All answers of one version of torch. ``kinds`` are the types in the operators' schemas, each list once."""

    torch: str
    kinds: list[tuple[str, ...]]
    answers: list[Answer]


def path_of(version: str = str(torch.__version__)) -> Path:
    """The file of a version of torch: ``2.14`` for 2.14.1+cpu."""
    return FOLDER / f"torch-{'.'.join(version.split('.')[:2])}.json.gz"


def recorded() -> list[Verdict]:
    """The recorded answers beside what the formulas say now. FileNotFoundError where this version of torch has none."""
    stored = msgspec.json.decode(gzip.decompress(path_of().read_bytes()), type=Answers)
    found = []
    for one in stored.answers:
        outputs = one.call.results if one.has_outputs else None
        call = Call(one.overload, stored.kinds[one.kinds], one.call.signature, one.source)
        oracle = None if one.bytes is None else Bytes(*one.bytes)
        found.append(Verdict(call, count(call.signature, outputs=outputs), oracle, one.reason, outputs))
    return found


def measured() -> list[Verdict]:
    """The answers for all calls: minutes."""
    collections = samples.own(), samples.torchs()
    return [judge(sample) for collection in collections for found in collection.samples.values() for sample in found]


def write(verdicts: list[Verdict]) -> Path:
    """Keep these answers for the installed torch."""
    kinds: dict[tuple[str, ...], int] = {}
    answers = [
        Answer(
            overload=one.call.overload,
            kinds=kinds.setdefault(one.call.kinds, len(kinds)),
            call=StoredCall.of(one.call.signature, one.outputs or ()),
            source=one.call.source,
            bytes=None if one.oracle is None else (one.oracle.read, one.oracle.written, one.oracle.most_read, one.oracle.most_written),
            reason=one.reason,
            has_outputs=one.outputs is not None,
        )
        for one in verdicts
    ]
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = path_of()
    plain = msgspec.json.encode(Answers(torch=str(torch.__version__), kinds=list(kinds), answers=answers))
    path.write_bytes(gzip.compress(plain, mtime=0))
    return path


def flops(verdicts: list[Verdict]) -> dict[str, str]:
    """Matrix and other FLOPs of all calls of an operator, and their precisions."""
    found: dict[str, tuple[int, int, set[str]]] = {}
    for work, name in ((one.ours.work, one.call.name) for one in verdicts):
        if work is not None:
            matrix, other, precisions = found.get(name, (0, 0, set()))
            found[name] = (matrix + work.matrix_flops, other + work.other_flops, precisions | {str(work.precision)})
    return {name: f"{matrix} {other} {' '.join(sorted(precisions))}" for name, (matrix, other, precisions) in sorted(found.items())}


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:] != ["flops"]:
        write(measured())
    from tests.roofline.formulas.libraries.test_rows import approved

    FLOPS.write_text(json.dumps(flops(recorded()), indent=1) + "\n")
    ROWS.write_text(json.dumps(dict(sorted(approved().items())), indent=1) + "\n")
    print(FOLDER)
