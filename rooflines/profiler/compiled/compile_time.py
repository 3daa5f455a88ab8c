"""The time that ``torch.compile`` has taken in this process."""

from __future__ import annotations

import sys
from typing import Any


def compile_seconds() -> float:
    """Return the seconds that this process has spent compiling so far; 0 where nothing was compiled."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return float(utils.calculate_time_spent().get("total_wall_time", 0.0)) if utils is not None else 0.0
