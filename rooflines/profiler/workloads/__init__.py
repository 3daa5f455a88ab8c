"""Turn a workload into a step: a network by name, a factory or a step function."""
