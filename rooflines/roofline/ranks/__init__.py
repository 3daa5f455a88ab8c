"""Several ranks of one job."""
