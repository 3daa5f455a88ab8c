"""The environment, as this program and one that it starts see it."""

import os
import subprocess
import sys

from small import train

print(*sorted(os.environ.items()), sep="\n")
train(6)
print(*sorted(os.environ.items()), sep="\n")
listing = "import os; print(*sorted(os.environ.items()), sep='\\n')"
print(subprocess.run([sys.executable, "-S", "-c", listing], capture_output=True, text=True).stdout)
train(10)
