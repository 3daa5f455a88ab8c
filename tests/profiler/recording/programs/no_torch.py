"""A program without torch."""

import sys

print("no torch here", sorted(name for name in ("torch", "numpy", "pandas") if name in sys.modules))
