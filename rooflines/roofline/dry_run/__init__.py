"""Work counted without running: our count and those of other counters."""
