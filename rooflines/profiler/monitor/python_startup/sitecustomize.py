"""What records a program as a child of a recorded one: imported by every interpreter that starts with this
folder in PYTHONPATH.

The interpreter need not be ours and need not have rooflines installed, so that only the standard library is
imported, of Python 3.9 or newer. With ``ORDER`` in the environment the program is recorded where it runs
PyTorch (``recording.children``), if rooflines is there. The program finds ``sys.path``, its environment and
its own ``sitecustomize`` as they would be without this module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

ORDER = "ROOFLINES_CHILD"
_HERE = os.path.dirname(os.path.abspath(__file__))


def child_environment(order: str, current: Mapping[str, str]) -> dict[str, str]:
    """The environment ``current`` for a program that is recorded by ``order`` if it runs PyTorch."""
    path = current.get("PYTHONPATH")  # an empty one means none, but behind a separator the working directory
    return {
        **current,
        ORDER: order,
        "PYTHONPATH": _HERE if path is None else f"{_HERE}{os.pathsep}{path or _HERE}",
    }


def _leave_no_trace() -> None:
    """Undo ``child_environment``, and import the ``sitecustomize`` that would have been imported without
    it."""
    _, separator, path = os.environ["PYTHONPATH"].partition(os.pathsep)
    if separator:
        os.environ["PYTHONPATH"] = "" if path == _HERE else path
    else:
        del os.environ["PYTHONPATH"]
    sys.path[:] = [place for place in sys.path if place != _HERE]
    ours = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
        sys.modules[__name__] = ours


def record(order: str) -> Any:
    """Record this process by ``order``: called when it runs PyTorch."""
    from rooflines.profiler.record.child import Child

    return Child.begun(order)


_order = os.environ.pop(ORDER, None)
if _order is not None:
    _leave_no_trace()
    try:
        from rooflines.profiler.record.children import Children
    except ImportError:
        pass  # the interpreter of another environment
    else:
        Children(_order, child_environment, record).__enter__().wait()
