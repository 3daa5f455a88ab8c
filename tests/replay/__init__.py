"""A GPU that is not there: recorded traces replayed through everything above the hardware."""
