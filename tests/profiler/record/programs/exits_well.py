"""sys.exit(0) at the end of training, and a handler at exit that uses the program's own module."""

import atexit
import pickle
import sys

from small import train


class Result:
    value = 3


@atexit.register
def report():
    print(pickle.loads(pickle.dumps(Result())).value, sys.modules["__main__"].__file__ == __file__, __name__)


train()
sys.exit(0)
