"""Callbacks and plugins for the frameworks that own the training loop; each module imports its framework, and
nothing else does."""
