"""A thread that trains when the main thread has come to its end, for which Python waits."""

import atexit
import threading
import time

from small import train

atexit.register(print, "at exit")


def work():
    threading.main_thread().join(0)
    time.sleep(0.2)
    train(4)
    print("thread ends", __name__)


train(3)
threading.Thread(target=work).start()
print("main ends")
