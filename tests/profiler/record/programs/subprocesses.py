"""Other programs that are started: Python with torch, Python without, a shell."""

import subprocess
import sys

from small import train

train(6)
code = "import torch; m = torch.nn.Linear(2, 2); print(m(torch.ones(1, 2)).shape); raise SystemExit(6)"
for command in (
    [sys.executable, "-c", code], [sys.executable, "-S", "-c", "import sys; print('torch' in sys.modules, sys.argv)"],
    ["sh", "-c", "cat; echo $0 >&2; exit 2"],
):  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, input="given\n")
    print(done.returncode, done.stdout, done.stderr)
train(10)
