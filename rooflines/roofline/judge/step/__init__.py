"""Analysis of a step: the parts of its time, data loading, interference."""
