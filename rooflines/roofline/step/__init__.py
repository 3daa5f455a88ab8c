"""What a step's time is for, what fed it, and what disturbed it."""
