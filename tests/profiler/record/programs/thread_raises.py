"""A thread that ends with an exception, which Python prints."""

import threading

from small import train


def work():
    raise ValueError("in a thread")


train(10)
thread = threading.Thread(target=work, name="worker")
thread.start()
thread.join()
print("goes on")
