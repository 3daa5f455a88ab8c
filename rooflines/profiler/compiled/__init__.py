"""What ``torch.compile`` generated: kernels, the operators in them and the memory that they touch."""
