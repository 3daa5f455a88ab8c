"""Studies: the same network run in several ways on this machine, held against each other and against what a paper printed."""
