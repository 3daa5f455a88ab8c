"""The machine: its facts, other programs on it, what it lacks."""
