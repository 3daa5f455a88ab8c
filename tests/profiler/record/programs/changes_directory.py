"""A program that changes its directory, as hydra does, and writes where it is."""

import os
from pathlib import Path

from small import train

os.makedirs("outputs/1")
os.chdir("outputs/1")
Path("notes.txt").write_text("here\n")
train()
Path("later.txt").write_text("here, too\n")
print(Path.cwd().name)
