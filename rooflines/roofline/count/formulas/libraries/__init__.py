"""Functions for the operators of other libraries, whose rows stand in the files beside them."""
