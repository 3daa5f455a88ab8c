"""A package that is a program."""
