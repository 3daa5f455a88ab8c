"""The threads, children, signals and modules that the program sees."""

import os
import signal
import threading

from small import train

train(10)
print([thread.name for thread in threading.enumerate()])
children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
print(len(children), "children")
print([number.name for number in signal.Signals if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN)])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), os.getpgid(0) == os.getpgid(os.getppid()), os.umask(0o22))
print(threading.stack_size(), threading.current_thread() is threading.main_thread(), threading.get_native_id() == os.getpid())
try:
    print(os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("no children to wait for")
