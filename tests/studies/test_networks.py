"""Which backends can run here, and why others cannot."""

import os
import subprocess
import sys

import pytest

from rooflines.studies import networks


def test_a_simulated_gpu_is_none():
    """The network itself runs in the simulator, for its tests; a study would publish the simulator's times."""
    code = """
from rooflines.errors import DeviceError
from rooflines.kernels.networks.cnn_numba_cuda import NumbaCuda
from rooflines.studies import networks

NumbaCuda().close()
print(networks.why_not("numba-cuda"))
try:
    networks.network("numba-cuda", 0.01, 0.9, 0)
except DeviceError as error:
    print(error.message)
"""
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=300)
    reason, refused = done.stdout.splitlines()
    assert reason == "NUMBA_ENABLE_CUDASIM is set: Numba simulates a GPU"
    assert refused == f"numba-cuda cannot run here: {reason}."


@pytest.mark.parametrize("backend", ["numba-cpu", "torch-cpu", "numpy"])
def test_what_computes_on_the_cpu_runs_everywhere(backend):
    assert networks.device_of(backend) == "cpu"
    assert networks.why_not(backend) is None
