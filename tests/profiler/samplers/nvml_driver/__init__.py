"""A stand-in for NVIDIA's driver library, built from ``nvml.c``, scripted by a text file and loaded by the real pynvml."""
