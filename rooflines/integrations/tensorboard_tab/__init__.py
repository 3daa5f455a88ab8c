"""The tab "Rooflines" of TensorBoard: the runs and traces below its log directory, their reports, and
comparisons of two.

TensorBoard finds ``RooflinesTab`` by an entry point. This module imports nothing, so that it loads where
TensorBoard is not installed.
"""

from __future__ import annotations

from rooflines.lazy import lazy

__getattr__ = lazy(__name__, {"RooflinesTab": "rooflines.integrations.tensorboard_tab.plugin"})
