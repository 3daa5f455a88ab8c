"""KeyboardInterrupt that nobody catches."""

from small import train

train(10)
raise KeyboardInterrupt
