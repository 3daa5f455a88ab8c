"""A child that trains and comes to the program's end, and children that are waited for as they end."""

import os
import sys

from small import train

train(6)
sys.stdout.flush()
if os.fork() == 0:
    train(3, "child ")
    print("child ends")
else:
    print("status", os.wait()[1])
    for code in (3, 4):
        if os.fork() == 0:
            os._exit(code)
    ended = []
    try:
        while True:
            ended.append(os.waitstatus_to_exitcode(os.wait()[1]))
    except ChildProcessError:
        print("children", sorted(ended))
    train(10)
