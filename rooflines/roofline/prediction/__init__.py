"""What a change of a run's options would gain, derived from the analysis of the run: a file for each kind of change."""
