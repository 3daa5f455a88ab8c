"""The workloads of the GPU check that are files: factories and a script, given to ``rooflines profile`` by path.

Each has a size for a GPU, chosen so that a step takes some milliseconds on a large one, and a small one to rehearse the code on a CPU,
with the matrix FLOPs of a step in closed form.
"""
