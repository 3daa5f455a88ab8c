"""Logging to a file and to standard error."""

import logging

from small import train

print(logging.getLogger().handlers, logging.getLogger().level, logging.root.manager.disable, logging.lastResort.level)
logging.warning("by the first handler")
logging.basicConfig(filename="log.txt", level=logging.DEBUG, format="%(levelname)s %(name)s %(message)s", force=True)
logging.getLogger("mine").info("into the file")
train(8)
logging.getLogger("mine").addHandler(logging.StreamHandler())
logging.getLogger("mine").info("on both")
logging.captureWarnings(True)
train(8)
