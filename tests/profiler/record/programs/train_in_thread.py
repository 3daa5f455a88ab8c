"""Training in a thread that is not the main one."""

import threading

from small import train

thread = threading.Thread(target=train, name="trainer")
thread.start()
thread.join()
print(sorted(one.name for one in threading.enumerate()))
