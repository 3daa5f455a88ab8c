"""Programs as people write them, with the frameworks that they use: each must end with a report that adds up."""
