"""Parts of the GPU tests that work, fail, die or hang."""

import os
import subprocess
import sys
import time

from rooflines.errors import DeviceError


def hangs(recorder):
    recorder.figure("first", 1)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (recorder.folder / "child").write_text(str(child.pid))
    time.sleep(600)


def raises(recorder):
    recorder.figure("first", 1)
    raise ZeroDivisionError("no steps")


def refuses(recorder):
    raise DeviceError("cuda:0 is busy: another program holds 3 GiB.", hint="Wait.")


def dies(recorder):
    os._exit(3)


def works(recorder):
    recorder.figure("first", recorder.torch_device)
    recorder.leave_out("second", "there is one GPU")
