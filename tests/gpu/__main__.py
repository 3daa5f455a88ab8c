"""The process of a part, ``python -m tests.gpu MODULE:FUNCTION FOLDER SECONDS``, and of the question for a device: ``cuda:0``."""

import sys
from importlib import import_module
from pathlib import Path

from rooflines.errors import RooflinesError
from rooflines.serial import read_json, to_json
from tests.gpu.parts import Device, Recorder, describe_device

try:
    if len(sys.argv) == 2:
        print(to_json(describe_device(sys.argv[1])))
    else:
        module, _, name = sys.argv[1].partition(":")
        folder = Path(sys.argv[2])
        getattr(import_module(module), name)(Recorder(folder, read_json(folder / "device.json", Device), float(sys.argv[3])))
except RooflinesError as error:
    sys.exit(str(error))
