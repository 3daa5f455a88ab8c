"""Studies: the same network run in several ways on this machine, compared with each other and with a published paper."""
