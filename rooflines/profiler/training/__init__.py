"""Training to accuracy: epochs, seeds, checkpoints."""
