"""The chain that counts cycles: its arithmetic, and that nothing of it can be left out or run side by side."""

import platform
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.kernels.micro import fma

fma.chain(1, 3, 1)  # compiles, which takes longer than an example may


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 300))
def test_the_chain_is_an_xor_and_an_addition_an_iteration(value, step, iterations):
    expected = value
    for index in range(iterations):
        expected = ((expected ^ index) + step) % 2**64
    assert fma.chain(value, step, iterations) % 2**64 == expected


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="reads x86 assembly")
def test_every_link_is_one_instruction_on_two_registers():
    # A process of its own: assembly is not kept with what comes from the compiler's cache.
    code = "from rooflines.kernels.micro.fma import chain; from numba import njit\n"
    code += "own = njit(nogil=True)(chain.py_func); own(1, 3, 5); print(next(iter(own.inspect_asm().values())))"
    assembly = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loops = [block for block in re.split(r"\n(?=\.LBB)", assembly) if len(re.findall(r"\txorq\t%r\w+, %r\w+", block)) > 1]
    assert loops
    for block in loops:
        links = re.findall(r"\t(xorq|addq)\t%r\w+, %r\w+", block)
        assert links.count("xorq") == links.count("addq")
        assert not re.search(r"%[xyz]mm", block)
