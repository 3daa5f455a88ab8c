"""The version of the package, read by the build and by every run directory."""

__version__ = "0.1.0"
