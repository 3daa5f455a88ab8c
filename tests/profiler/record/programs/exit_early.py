"""sys.exit before anything of torch has run, with handlers at exit."""

import atexit
import sys

atexit.register(print, "first registered")
atexit.register(print, "second registered")
sys.exit(7)
