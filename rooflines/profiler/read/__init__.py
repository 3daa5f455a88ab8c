"""A Kineto trace as columns, and the calls in it: operator, module, phase, launch."""
