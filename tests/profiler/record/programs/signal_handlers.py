"""Handlers of several signals, a timer, and an alarm."""

import os
import signal

from small import train

seen = {}


def handler(number, frame):
    seen[signal.Signals(number).name] = seen.get(signal.Signals(number).name, 0) + 1


for number in (signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG, signal.SIGCHLD, signal.SIGPROF):
    print(number.name, signal.signal(number, handler) == signal.SIG_DFL)
signal.setitimer(signal.ITIMER_REAL, 0.05)
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG):
    os.kill(os.getpid(), number)
train()
while "SIGALRM" not in seen:
    signal.pause()
signal.alarm(100)
print(signal.alarm(0) > 90)
print(sorted(seen.items()))
