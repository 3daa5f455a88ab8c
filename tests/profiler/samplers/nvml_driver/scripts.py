"""Scripts that several tests use."""

# One GPU that has everything, and shows the same all the time.
FULL = """
gpu
name Stand-in H100
uuid GPU-11111111-2222-3333-4444-555555555555
capability 9.0
links 4
memory_total 85899345920
power constant 431.5
limit constant 700
utilization constant 0.97
memory_utilization constant 0.41
memory_used constant 3221225472
temperature constant 61
memory_temperature constant 74
sm_clock constant 1.98e9
memory_clock constant 2.619e9
throttle constant 0x24
pcie_tx constant 1.5e9
pcie_rx constant 2.5e9
nvlink_tx constant 0
start nvlink_tx 1048576
nvlink_rx constant 0
start nvlink_rx 2097152
ecc_corrected constant 3
ecc_uncorrected constant 1
start energy 123456.789
"""


def with_lines(script: str, *lines: str) -> str:
    """``script`` with more lines about its last GPU."""
    return script + "".join(f"{line}\n" for line in lines)


def without(script: str, *signals: str) -> str:
    """``script`` without what it says of ``signals``."""
    return "".join(f"{line}\n" for line in script.splitlines() if not set(line.split()[:2]) & set(signals))
