"""A program whose working directory is gone."""

import os

from small import train

train(2)
os.mkdir("gone")
os.chdir("gone")
os.rmdir("../gone")
train()
try:
    os.getcwd()
except FileNotFoundError:
    print("no directory")
