"""A program without torch."""

import sys

print("no torch here", sys.argv[1:])
