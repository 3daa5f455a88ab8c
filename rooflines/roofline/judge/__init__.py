"""Judge the divided time by the ceilings."""
