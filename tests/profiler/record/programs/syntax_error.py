"""A file that Python cannot compile is made and imported."""

from pathlib import Path

Path("broken.py").write_text("x = (1,\n")
import sys  # noqa: E402

sys.path.insert(0, ".")
import broken  # noqa: E402, F401
