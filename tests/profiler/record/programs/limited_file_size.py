"""A limit of the size of files, which one exceeds."""

import resource

from small import train

train(3)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    with open("large.bin", "wb", buffering=0) as file:
        for _ in range(3):
            file.write(b"x" * 4096)
except OSError as error:
    print(error.strerror)
train()
