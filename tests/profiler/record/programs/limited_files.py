"""A low limit of open files, all of which are used."""

import resource

from small import train

train(3)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
train(10)
files = []
try:
    while True:
        files.append(open("/dev/null"))
except OSError as error:
    print(error.strerror, len(files) > 10)
train(4)
files.clear()
print("closed")
