"""Compiling where nothing can be cached, and the width of the registers."""

from rooflines.kernels.micro import vectors


def test_kernels_compile_without_a_cache_directory(monkeypatch):
    # GIVEN a Numba that finds no directory to cache in
    real, asked = vectors.njit, []

    def njit(**options):
        asked.append(options.get("cache", False))
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'double': no locator available for file 'double.py'")
        return real(**options)

    monkeypatch.setattr(vectors, "njit", njit)
    kernel = vectors.compiled(lambda number: number * 2)
    assert asked == [True, False]
    assert kernel(4) == 8


def test_width_is_a_register():
    assert vectors.vector_bytes() in (16, 32, 64)
