"""Optimizations of CNN training and inference: default, int8, bf16, compiled and tuned."""
