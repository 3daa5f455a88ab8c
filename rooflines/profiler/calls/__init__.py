"""The operator calls of a step without a trace, on fake tensors or real ones."""
