"""A program that removes all directories beside it at its end."""

import os
import shutil

from small import train

train()
for name in sorted(os.listdir(".")):
    if os.path.isdir(name) and name != "out":
        print(name)
        shutil.rmtree(name)
