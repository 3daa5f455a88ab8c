"""One perceptron in every array library that is here: its operators, its memory, its convergence, other
sizes."""
