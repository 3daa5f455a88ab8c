"""Hooks for uncaught exceptions, in the main thread and in others."""

import sys
import threading

from small import train

threading.excepthook = lambda arguments: print("thread hook", arguments.exc_type.__name__, arguments.exc_value)
sys.excepthook = lambda kind, value, trace: print("hook", kind.__name__, value, trace is not None, file=sys.stderr)
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
train(10)
raise ValueError("for the hook")
