"""Two analyses compared row by row."""
