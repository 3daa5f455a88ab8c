"""A thread that runs operators while the main thread trains, and a daemon that is alive at the end."""

import threading
import time

import torch
from small import train

stop, sums = threading.Event(), []


def work():
    weight = torch.eye(16)
    while not stop.is_set():
        sums.append((weight @ weight).sum().item())


thread = threading.Thread(target=work)
thread.start()
train()
stop.set()
thread.join()
print(set(sums))
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
