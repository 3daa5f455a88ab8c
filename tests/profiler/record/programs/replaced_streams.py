"""Standard output and error that the program replaces, by a copy to a file and by memory."""

import contextlib
import io
import sys

from small import train


class Both:
    def __init__(self, stream, file):
        self.stream, self.file = stream, file

    def write(self, text):
        self.file.write(text)
        return self.stream.write(text)

    def flush(self):
        self.stream.flush()


file = open("copy.txt", "w", buffering=1)
with contextlib.redirect_stdout(io.StringIO()) as memory, contextlib.redirect_stderr(memory):
    train(5)
print("in memory", memory.getvalue().count("loss"), len(memory.getvalue()))
sys.stdout = Both(sys.stdout, file)
sys.stderr = Both(sys.stderr, file)
train(10)
print("to error", file=sys.stderr)
