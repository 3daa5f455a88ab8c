"""sys.exit with a text, which Python prints."""

import sys

from small import train

train(10)
sys.exit("nothing to learn")
