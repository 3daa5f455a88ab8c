"""Samples of the machine during a run: utilization, memory, power, temperature and clocks, read in a separate
process."""
