"""A program that reads standard input, with prompts and line by line to the end."""

import sys

from small import train

print("read", repr(input("name? ")))
train(6)
print("read", repr(sys.stdin.readline()))
train(8)
print("rest", sys.stdin.read().splitlines())
try:
    input("more? ")
except EOFError:
    print("no more")
