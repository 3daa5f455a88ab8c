"""The process of a part: runs it, and records why where it cannot go on. ``process`` is the other side."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from rooflines.errors import RooflinesError
from rooflines.gpu_check.parts import PARTS, PartPlan
from rooflines.gpu_check.recorder import DEVICE_FILE, Recorder
from rooflines.gpu_check.records import Device
from rooflines.serial import read_json


def main(name: str, folder: str, limit_s: str) -> int:
    """Run the part ``name`` for at most ``limit_s`` seconds, with its raw files in ``folder``, next to the file of the device."""
    (part,) = (part for part in PARTS if part.name == name)
    recorder = Recorder(Path(folder), read_json(Path(folder).with_name(DEVICE_FILE), Device), float(limit_s))
    try:
        function_of(part)(recorder)
    except RooflinesError as error:
        recorder.fail(str(error))
    except Exception as error:  # whatever it is, the other parts are still worth having
        traceback.print_exc()
        recorder.fail(f"{type(error).__name__}: {error}")
    return 0


def function_of(part: PartPlan) -> Callable[[Recorder], None]:
    """The function that runs ``part``."""
    module, _, name = part.function.partition(":")
    function: Callable[[Recorder], None] = getattr(import_module(module), name)
    return function


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
