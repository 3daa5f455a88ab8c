"""A command line of the program's own, which it refuses."""

import argparse

from small import train

parser = argparse.ArgumentParser(description="A program.")
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--device", default="mine")
arguments = parser.parse_args()
print(arguments, parser.prog)
train(arguments.steps)
