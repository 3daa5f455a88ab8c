"""What the compilers make of our CUDA kernels, without a GPU: registers, spills, occupancy and loads in flight for each generation.

Every kernel of ``rooflines.kernels`` is compiled by NVVM and nvJitLink for seven compute capabilities, and its machine code is read.
How many blocks a multiprocessor holds follows from NVIDIA's limits. rooflines_studies/README.md says what the figures mean.

Needs numba-cuda with NVVM (the extra ``ptx``) and cuobjdump, which Triton has too; exits 2 where they are missing.
Writes benchmarks/results/cuda_kernels.json and cuda_kernels.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
WARP = 32
# Machine instructions: 16 bytes a thread from global and from shared memory, and FMAs.
LOAD, SHARED_LOAD = r"LDG\.E\.128", r"LDS(\.U)?\.128"
FMAS = {"fp64": "DFMA", "fp32": "FFMA", "fp16": r"HFMA2"}
LEAST_SHARE = 0.97  # of what a multiprocessor could do, by the instructions of the loop
# For Little's law: an upper estimate of the latency of a load while the memory is busy; no vendor publishes it. Idle: 500 to 700 ns.
LATENCY_S = 1e-6
DEVICES = ("t4", "a100_sxm_80gb", "rtx_4090", "h100_sxm", "h200", "b200")


class Limits(NamedTuple):
    """What one multiprocessor holds at most: resident blocks and warps, and bytes of shared memory."""

    blocks: int
    warps: int
    shared_bytes: int


# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
LIMITS: dict[tuple[int, int], Limits] = {
    (7, 5): Limits(16, 32, 64 << 10),
    (8, 0): Limits(32, 64, 164 << 10),
    (8, 6): Limits(16, 48, 100 << 10),
    (8, 9): Limits(24, 48, 100 << 10),
    (9, 0): Limits(32, 64, 228 << 10),
    (10, 0): Limits(32, 64, 228 << 10),
    (12, 0): Limits(24, 48, 100 << 10),
}
# The same guide: registers of a multiprocessor, which has four schedulers with a quarter each. Nsight Compute's occupancy calculator:
# a warp's registers are allocated in units of 256, a block's shared memory in units of 128 bytes. From 8.0 on each block costs
# 1 KiB of shared memory more ("reserved by the system").
REGISTERS = 65536
SCHEDULERS = 4
REGISTER_UNIT, SHARED_UNIT = 256, 128


def resident_blocks(capability: tuple[int, int], threads: int, registers: int, shared_bytes: int = 0) -> int:
    """How many blocks of ``threads`` threads one multiprocessor holds at once."""
    limits = LIMITS[capability]
    warps = -(-threads // WARP)
    of_a_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    by_registers = SCHEDULERS * (REGISTERS // SCHEDULERS // of_a_warp) // warps
    of_a_block = shared_bytes + (1024 if capability >= (8, 0) else 0)
    by_shared = limits.shared_bytes // (-(-of_a_block // SHARED_UNIT) * SHARED_UNIT) if of_a_block else limits.blocks
    return min(limits.blocks, limits.warps // warps, by_registers, by_shared)


def occupancy(capability: tuple[int, int], blocks: int, threads: int) -> float:
    """The warps of ``blocks`` blocks as a share of the warps that a multiprocessor may hold."""
    return blocks * -(-threads // WARP) / LIMITS[capability].warps


# --- kernels -----------------------------------------------------------------------------------------------------------------------


class Kernel(NamedTuple):
    """A kernel to compile: its function, Numba signature and block sizes, and a pattern of the instruction that its loop is made of."""

    name: str
    function: Any
    signature: tuple[Any, ...]
    threads: tuple[int, ...]
    work: str


def kernels() -> Iterator[Kernel]:
    """Every CUDA kernel that the package launches, with the types it is launched with."""
    yield from micro_kernels()
    yield from network_kernels()


def micro_kernels() -> Iterator[Kernel]:
    """The kernels that measure ceilings."""
    from rooflines.kernels.micro import cuda_fma, cuda_stream
    from rooflines.kernels.micro.cuda_vectors import THREADS

    patterns = cuda_stream.PATTERNS + cuda_stream.MORE_PATTERNS
    for access, signature in cuda_stream.SIGNATURES.items():
        for unroll in sorted({one.unroll for one in patterns}):
            threads = tuple(sorted({one.threads for one in patterns if one.unroll == unroll}))
            work = r"STG\.E\.128" if access == "write" else LOAD
            yield Kernel(f"{access}, {unroll} vectors", cuda_stream.kernel_of(access, unroll), signature, threads, work)
    yield Kernel("L2 read", cuda_stream.read_again, cuda_stream.READ_AGAIN, (THREADS,), LOAD)
    yield Kernel("shared memory read", cuda_stream.read_shared, cuda_stream.READ_SHARED, (cuda_stream.SHARED_THREADS,), SHARED_LOAD)
    for precision, signature in cuda_fma.SIGNATURES.items():
        yield Kernel(f"FMA {precision}", cuda_fma.kernel_of(precision), signature, (THREADS,), FMAS[precision])


def network_kernels() -> Iterator[Kernel]:
    """The kernels of the network ``numba-cuda`` at its default sizes."""
    from numba import types

    from rooflines_studies.networks import cnn_numba_cuda_convolution as convolution
    from rooflines_studies.networks import cnn_numba_cuda_dense as dense
    from rooflines_studies.networks import cnn_numba_cuda_update as ends

    number, size = types.float32, types.int64
    single, byte, word, long = (types.Array(kind, 1, "C") for kind in (number, types.int8, types.int32, size))
    forward = (single, size, single, single, byte)
    weights = (single, size, size, single, byte, single)
    product = (*[single] * 4, *[size] * 4)
    made = {
        "conv1": (convolution.forward(1, 28, 28, 8), forward),
        "conv2": (convolution.forward(8, 13, 13, 16), forward),
        "dense1": (dense.forward(True), product),
        "dense2": (dense.forward(False), product),
        "loss": (ends.loss(10), (single, long, size, single, single, size)),
        "dense weight": (dense.weight_gradient(), product),
        "dense2 input": (dense.input_gradient(True), product),
        "dense1 input": (dense.input_gradient(False), product),
        "conv2 weight": (convolution.weight_gradient(8, 13, 13, 16), weights),
        "conv2 input": (convolution.input_gradient(8, 13, 13, 16), (single, byte, single, single)),
        "conv1 weight": (convolution.weight_gradient(1, 28, 28, 8), weights),
        "update": (ends.update(), (single, word, word, single, single, single, number, number, size)),
    }
    for name, (kernel, signature) in made.items():
        yield Kernel(f"network: {name}", kernel.function, signature, (kernel.threads,), "")


# --- compilers ---------------------------------------------------------------------------------------------------------------------


class Missing(Exception):
    """A compiler that is not here."""


class Code(NamedTuple):
    """What the assembler reports of a kernel, and its instructions: (address, text) in order."""

    registers: int
    spilled_bytes: int
    shared_bytes: int
    instructions: tuple[tuple[int, str], ...]


def disassembler() -> str:
    """cuobjdump: the one on the path, or the one that Triton ships."""
    shipped = Path(sysconfig.get_path("purelib"), "triton", "backends", "nvidia", "bin", "cuobjdump")
    found = shutil.which("cuobjdump") or (str(shipped) if shipped.exists() else None)
    if found is None:
        raise Missing("no cuobjdump here")
    return found


def compiled(kernel: Kernel, capability: tuple[int, int]) -> Code:
    """What a launch runs: NVVM's code for link-time optimization, linked by nvJitLink, as numba-cuda does it at the first launch."""
    try:
        from cuda.core import Linker, LinkerOptions, ObjectCode
        from numba import cuda

        code, _ = cuda.compile(kernel.function.py_func, kernel.signature, device=False, abi="numba", cc=capability, output="ltoir")
    except ImportError as error:
        raise Missing(f"no numba-cuda here: {error}") from error
    except Exception as error:
        if "nvvm" in f"{type(error).__name__} {error}".lower():
            raise Missing(f"no NVVM here: {str(error).splitlines()[0]}") from error
        raise
    options = LinkerOptions(arch=f"sm_{capability[0]}{capability[1]}", link_time_optimization=True, ptxas_options=["-v"])
    linker = Linker(ObjectCode.from_ltoir(code), options=options)
    binary = linker.link("cubin").code
    said = linker.get_info_log()
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        listing = subprocess.run([disassembler(), "--dump-sass", file.name], capture_output=True, text=True, check=True).stdout
    return Code(
        registers=number_in(r"Used (\d+) registers", said),
        spilled_bytes=number_in(r"(\d+) bytes spill stores", said) + number_in(r"(\d+) bytes spill loads", said),
        shared_bytes=number_in(r"(\d+) bytes smem", said),
        instructions=tuple((int(at, 16), text) for at, text in re.findall(r"/\*([0-9a-f]{4,})\*/\s+([^;]+?)\s*;", listing)),
    )


def number_in(pattern: str, text: str) -> int:
    """The number that ``pattern`` finds in ``text``; 0 without."""
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


# --- machine code ------------------------------------------------------------------------------------------------------------------


def opcode(text: str) -> str:
    """The operation of an instruction, without its predicate."""
    return re.sub(r"^@!?U?P\w+\s+", "", text).split()[0]


def loops(code: Code) -> list[list[str]]:
    """The innermost loops of a kernel: what stands between the target of a backward branch and the branch."""
    spans = []
    for at, text in code.instructions:
        target = re.search(r"\bBRA\b.*?\b0x([0-9a-f]+)", text)
        if target and int(target[1], 16) < at:
            spans.append((int(target[1], 16), at))
    inner = [one for one in spans if not any(one[0] <= other[0] and other[1] <= one[1] and other != one for other in spans)]
    return [[text for place, text in code.instructions if begin <= place <= end] for begin, end in inner]


def count_of(loop: list[str], work: str) -> int:
    """How many instructions of ``loop`` are of the kind ``work``."""
    return sum(bool(re.match(work, opcode(one))) for one in loop)


def loads_before_use(loop: list[str], load: str) -> int:
    """How many loads a thread starts before an instruction of the loop needs what one of them brings."""
    waited: set[int] = set()
    count = 0
    for text in loop:
        registers = [int(one) for one in re.findall(r"\bR(\d+)", text)]
        if re.match(load, opcode(text)):
            count += 1
            waited |= set(range(registers[0], registers[0] + 4))
        elif waited & set(registers):
            break
    return count


def main_loop(code: Code, work: str) -> list[str]:
    """The loop that starts most loads at once or, without loads, that has most of the kind ``work``; empty where none has any.

    Not the loop over a remainder, which the compiler unrolls too.
    """
    found = [loop for loop in loops(code) if count_of(loop, work)]
    loads = work in (LOAD, SHARED_LOAD)
    return max(found, key=lambda loop: (loads and loads_before_use(loop, work), count_of(loop, work), -len(loop)), default=[])


def row(kernel: Kernel, capability: tuple[int, int], code: Code) -> dict[str, Any]:
    """What the table says of a kernel on a compute capability."""
    loop = main_loop(code, kernel.work) if kernel.work else []
    found: dict[str, Any] = {
        "kernel": kernel.name,
        "capability": f"{capability[0]}.{capability[1]}",
        "registers": code.registers,
        "spilled_bytes": code.spilled_bytes,
        "local_accesses": count_of([text for _, text in code.instructions], "LDL|STL"),
        "shared_bytes": code.shared_bytes,
        "launches": [],
    }
    if kernel.work:
        found |= {"instruction": kernel.work.replace("\\", ""), "count": count_of(loop, kernel.work), "of": len(loop)}
    loads = loads_before_use(loop, kernel.work) if kernel.work in (LOAD, SHARED_LOAD) else 0
    for threads in kernel.threads:
        blocks = resident_blocks(capability, threads, code.registers, code.shared_bytes)
        launch = {"threads": threads, "blocks": blocks, "occupancy": round(occupancy(capability, blocks, threads), 4)}
        found["launches"].append(launch | ({"in_flight_bytes": loads * 16 * threads * blocks} if loads else {}))
    if kernel.work in FMAS.values():
        precision = next(name for name, work in FMAS.items() if work == kernel.work)
        found["share"] = round(min(1.0, cycles(capability, precision) * found["count"] / max(1, found["of"])), 4)
    return found


def cycles(capability: tuple[int, int], precision: str) -> float:
    """Cycles that a scheduler's units take for the FMAs of a warp, at least the one in which the instruction is issued."""
    from rooflines.device_specs.derive import gpu_rates

    rate = next(one for one in gpu_rates("", capability) if one.engine == "vector" and one.precision == precision)
    lanes = rate.operations / (4 if precision == "fp16" else 2) / SCHEDULERS  # FMA = 2, and fp16 two to an instruction
    return max(1.0, WARP / lanes)


def faults(found: dict[str, Any]) -> list[str]:
    """What is wrong with a row of the table: spills, a block that does not fit, a loop that does not do what is counted."""
    where = f"{found['kernel']} on {found['capability']}"
    wrong = []
    if found["spilled_bytes"] or found["local_accesses"]:
        wrong.append(f"{where}: {found['spilled_bytes']} bytes spilled, {found['local_accesses']} accesses to local memory")
    for launch in found["launches"]:
        if not launch["blocks"]:
            wrong.append(f"{where}: a block of {launch['threads']} threads with {found['registers']} registers does not start")
        if launch["blocks"] * launch["threads"] * found["registers"] > REGISTERS:
            wrong.append(f"{where}: {launch['blocks']} blocks of {launch['threads']} threads need more than {REGISTERS} registers")
        if found.get("instruction") in ("LDG.E.128", "LDS(.U)?.128") and not launch.get("in_flight_bytes"):
            wrong.append(f"{where}: no loop of 16-byte loads")
    if "count" in found and not found["count"]:
        wrong.append(f"{where}: no loop of {found['instruction']}")
    if found.get("share", 1.0) < LEAST_SHARE:
        wrong.append(
            f"{where}: {found['count']} {found['instruction']} of {found['of']} instructions are {found['share']:.1%} of the peak"
        )
    return wrong


# --- model -------------------------------------------------------------------------------------------------------------------------


def needed_in_flight(bandwidth: float, multiprocessors: int) -> float:
    """Bytes that each multiprocessor must have on their way for ``bandwidth`` in B/s: Little's law at ``LATENCY_S``."""
    return bandwidth * LATENCY_S / multiprocessors


def devices() -> Iterator[Any]:
    """The data sheets of the devices that the table compares with."""
    from rooflines.device_specs.sheet import read_sheet

    for name in DEVICES:
        yield read_sheet(ROOT / "rooflines" / "device_specs" / "data" / f"{name}.toml")


def model(rows: list[dict[str, Any]]) -> Iterator[tuple[str, str, float, float]]:
    """Of each device: its name, its bandwidth, the bytes a multiprocessor needs on their way, and the most that a kernel has."""
    for sheet in devices():
        bandwidth, count = sheet.memory.bytes_per_second, sheet.units.count
        launches = [
            launch["in_flight_bytes"]
            for row in rows
            if row["capability"] == sheet.compute_capability and row["kernel"].startswith(("read", "copy", "triad"))
            for launch in row["launches"]
        ]
        yield sheet.name, f"{bandwidth / 1e12:.2f} TB/s", needed_in_flight(bandwidth, count), min(launches)


# --- table -------------------------------------------------------------------------------------------------------------------------


def versions() -> dict[str, str]:
    """The compilers that take part."""
    found = {}
    for name in ("numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def table() -> list[dict[str, Any]]:
    """Every kernel on every compute capability."""
    return [row(kernel, capability, compiled(kernel, capability)) for kernel in kernels() for capability in LIMITS]


def markdown(result: dict[str, Any]) -> str:
    """The result as a page."""
    rows = result["rows"]
    names = list(dict.fromkeys(one["kernel"] for one in rows))
    capabilities = list(dict.fromkeys(one["capability"] for one in rows))
    by_key = {(one["kernel"], one["capability"]): one for one in rows}
    compilers = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    heads = [f"sm_{one.replace('.', '')}" for one in capabilities]

    def lines(first: str, cell: Callable[[dict[str, Any], int], str], kernels: list[str]) -> Iterator[str]:
        yield f"| {first} | threads | {' | '.join(heads)} |"
        yield "|---|---" + "|---" * len(heads) + "|"
        for name in kernels:
            for place, launch in enumerate(by_key[name, capabilities[0]]["launches"]):
                cells = [cell(by_key[name, one], place) for one in capabilities]
                yield f"| {name} | {launch['threads']} | {' | '.join(cells)} |"

    def fit(one: dict[str, Any], place: int) -> str:
        launch = one["launches"][place]
        return f"{one['registers']} · {launch['blocks']} · {launch['occupancy']:.0%}"

    def in_flight(one: dict[str, Any], place: int) -> str:
        return f"{one['launches'][place]['in_flight_bytes'] / 1024:.0f}"

    def share(one: dict[str, Any], place: int) -> str:
        return f"{one['count']} of {one['of']} · {one['share']:.1%}"

    loading = [name for name in names if "in_flight_bytes" in by_key[name, capabilities[0]]["launches"][0]]
    spilled = sum(one["spilled_bytes"] for one in rows)
    page = [
        "# CUDA kernels as compiled",
        "",
        f"Written by `python benchmarks/cuda_kernels.py` with {compilers}.",
        "[Their page](../../rooflines_studies/README.md#machine-code-of-the-cuda-kernels) explains the figures.",
        "",
        "## Registers a thread · blocks a multiprocessor · occupancy",
        "",
        *lines("kernel", fit, names),
        "",
        f"Bytes spilled by all of them together: {spilled}.",
        "",
        "## KiB of loads in flight a multiprocessor",
        "",
        *lines("kernel", in_flight, loading),
        "",
        "Needed for the bandwidth of the data sheet if a load takes 1 µs:",
        "",
        "| device | bandwidth | KiB needed | least of read, copy and triad |",
        "|---|---|---|---|",
        *(f"| {name} | {rate} | {need / 1024:.0f} | {have / 1024:.0f} |" for name, rate, need, have in model(rows)),
        "",
        "## FMAs of the loop · share of the peak that its instructions allow",
        "",
        *lines("kernel", share, [name for name in names if "share" in by_key[name, capabilities[0]]]),
    ]
    return "\n".join(page) + "\n"


def main() -> int:
    """Compile everything; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    try:
        result = {"versions": versions(), "latency_s": LATENCY_S, "rows": table()}
    except Missing as error:
        print(f"cuda_kernels: {error}: nothing was compiled.")
        return 2
    wrong = [line for one in result["rows"] for line in faults(one)]
    if not options.check:
        (RESULTS / "cuda_kernels.json").write_text(json.dumps(result, indent=1) + "\n")
        (RESULTS / "cuda_kernels.md").write_text(markdown(result), encoding="utf-8")
    print("\n".join(wrong) or f"cuda_kernels: {len(result['rows'])} compiled, nothing wrong.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
