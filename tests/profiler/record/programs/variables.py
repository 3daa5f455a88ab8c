"""The environment, as this program and one that it starts see it."""

import os
import subprocess
import sys

from small import train

train(6)
os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)  # torch sets it as it is imported
print(*sorted(os.environ.items()), sep="\n")
listing = "import os; print(*sorted(os.environ.items()), sep='\\n')"
print(subprocess.run([sys.executable, "-S", "-c", listing], capture_output=True, text=True).stdout)
train(10)
