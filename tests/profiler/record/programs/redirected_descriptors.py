"""The descriptors of standard output and error, redirected to files and back, and to a file for good."""

import os
import sys

from small import train

train(3)
sys.stdout.flush()
kept = os.dup(1), os.dup(2)
file = os.open("redirected.txt", os.O_CREAT | os.O_WRONLY)
os.dup2(file, 1)
os.dup2(file, 2)
train(5)
os.write(2, b"to error\n")
sys.stdout.flush()
os.dup2(kept[0], 1)
os.dup2(kept[1], 2)
train(10)
print("back", file=sys.stderr)
sys.stdout.flush()
os.dup2(os.open("last.txt", os.O_CREAT | os.O_WRONLY), 1)
print("to the last file")
