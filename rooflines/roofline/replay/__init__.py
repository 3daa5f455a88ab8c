"""What a change would really save: the recorded step, run again by its dependencies."""
