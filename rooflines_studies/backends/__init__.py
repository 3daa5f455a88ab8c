"""One convolutional network on every backend that is here, with the same start and order of the data."""
