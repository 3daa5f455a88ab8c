"""faulthandler, on from the start, with a timer that is canceled."""

import faulthandler

from small import train

print("enabled before", faulthandler.is_enabled())
faulthandler.enable()
faulthandler.dump_traceback_later(60, exit=True)
train()
faulthandler.cancel_dump_traceback_later()
print("enabled", faulthandler.is_enabled())
