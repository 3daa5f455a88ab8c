"""Train, and say something on standard error."""

import sys

from small import train

train()
print("trained", file=sys.stderr)
