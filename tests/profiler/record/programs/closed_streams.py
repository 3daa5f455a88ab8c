"""Standard streams that the program closes."""

import sys

from small import train

train(4)
sys.stdin.close()
sys.stderr.close()
train(10)
sys.stdout.close()
