"""The call tree of a trace: nesting, launches, steps, and where its time is idle."""
