"""What to run: a network by name, a factory or a step function, made into a step."""
