"""Predict what was not run: a change of a run's options, and what its rows would save."""
