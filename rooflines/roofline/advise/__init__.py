"""Advice: one small rule for each thing that can be changed, in a file for each family of rules."""
