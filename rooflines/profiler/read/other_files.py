"""Files of other tools that are given as traces: what each is, by its first bytes, and what to do instead.
None is opened further."""

from __future__ import annotations

import re
from typing import NamedTuple

_RECORD = "Record the program with torch.profiler, or with rooflines profile."
_LONGEST_HEAD = 4096


class OtherFile(NamedTuple):
    """A kind of file: what it is, what to do, how it begins, and how its name ends where the begin is not
    published."""

    what: str
    hint: str
    #: A regular expression.
    head: bytes = rb"(?!)"
    name: str = ""


FILES = (
    # sqlite.org/fileformat2.html, section 1.3
    OtherFile(
        "an SQLite database, as nsys export, rocprof and rpd write",
        f"Nsight Systems shows it, and ROCm's rpd2tracing.py makes a Chrome trace of it. {_RECORD}",
        rb"SQLite format 3\0",
    ),
    OtherFile(
        "a report of Nsight Compute",
        f"ncu --import FILE --page details prints it: figures of single kernels. {_RECORD}",
        rb"NVR\0",
        ".ncu-rep",
    ),
    OtherFile(
        "a report of Nsight Systems",
        f"nsys stats FILE prints it: kernels and calls without operators. {_RECORD}",
        name=".nsys-rep",
    ),
    # docs.python.org/3/library/pickle.html: PROTO, the first opcode from protocol 2 on
    OtherFile(
        "a pickle, as torch.cuda.memory._dump_snapshot writes, and not opened",
        f"pytorch.org/memory_viz shows snapshots of memory. {_RECORD}",
        rb"\x80[\x02-\x05]",
    ),
    # openxla.org/xprof: XSpace, a protocol buffer whose first field is a plane with a name
    OtherFile(
        "a profile of XLA (JAX or TensorFlow)",
        "XProf (TensorBoard's profile plugin) shows it; traces of PyTorch/XLA are not read.",
        rb"(?s)\n.{1,32}/(?:host|device):",
    ),
    OtherFile(
        "a table of rocprof",
        _RECORD,
        rb'"?(?:Kind|Index|Name|Domain)"?,"?(?:Agent_Id|KernelName|Calls|Function)"?,',
    ),
)


def other_file(head: bytes, name: str) -> OtherFile | None:
    """The kind of the file that begins with ``head`` and is called ``name``; None for one that is not
    known."""
    head = head[:_LONGEST_HEAD]
    found = (one for one in FILES if re.match(one.head, head))
    return next(found, next((one for one in FILES if one.name and name.endswith(one.name)), None))
