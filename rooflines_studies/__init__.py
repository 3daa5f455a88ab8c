"""Studies: published comparisons, each a folder of points and a page, run as a sweep and compared with the
paper."""
