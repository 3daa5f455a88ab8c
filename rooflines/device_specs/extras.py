"""The extra of this package that brings CUDA kernels: their compiler and libraries, each for one major version of CUDA."""

from __future__ import annotations


def cuda_extra(torch_cuda: str | None, driver_cuda: tuple[int, int] | None) -> str | None:
    """Return ``cuda12`` or ``cuda13``, None where neither fits.

    torch loads the libraries of the CUDA that it was built for (``torch_cuda``, "13.0"), so the extra is that version's. A torch built
    without CUDA does not restrict the choice: then it is the newest that the driver runs (``driver_cuda``, (12, 4)). None where torch
    or the driver is older than CUDA 12, and where torch is newer than the driver, because torch itself has to be replaced first.
    """
    if torch_cuda is None:
        major = min(driver_cuda[0], 13) if driver_cuda else 0
    else:
        major = int(torch_cuda.split(".")[0])
        if driver_cuda and driver_cuda[0] < major:
            return None
    return f"cuda{major}" if major in (12, 13) else None
