"""What the program sees of its streams and of the interpreter."""

import sys

from small import train

for stream in (sys.stdin, sys.stdout, sys.stderr):
    print(stream.name, stream.mode, stream.encoding, stream.errors, stream.isatty(), stream.fileno(), stream.line_buffering)
    print(stream is getattr(sys, f"__{stream.name.strip('<>')}__"))
print(sys.flags, sys.warnoptions, sys._xoptions, sys.executable, sys.dont_write_bytecode)
print(sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile(), sys.displayhook is sys.__displayhook__)
print(sys.excepthook is sys.__excepthook__, sys.unraisablehook is sys.__unraisablehook__, sys.exc_info())
train()
