"""sys.exit with values that are neither a number nor a text."""

import sys

from small import train

train(10)
sys.exit(("a", 1))
