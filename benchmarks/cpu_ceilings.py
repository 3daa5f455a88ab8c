"""Measured CPU ceilings beside hand-written benchmarks: likwid-bench (Debian's ``likwid``) and a STREAM-like C program compiled here.

Every case is taken in rounds, all its sides in turn within a second or two, and the rounds of all cases take turns, because a shared
machine changes its pace from one minute to the next. Each side runs alone, on the same CPUs, at the same working set, and counts bytes
as STREAM does (likwid-bench too: neither counts the lines that a write fetches). A round begins when other processes leave CPUs
enough, if they do within ``--patience``; one during which they had more than ``DISTURBED`` of those in use is taken again, as long as
there are spare ones. A ratio is that of the medians, with a bootstrap interval over the rounds.

Writes ``benchmarks/results/cpu_ceilings.json``. Where ``likwid-bench`` or ``gcc`` is missing, the sides that need them are left out and
the script says so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rooflines.device_specs import detect
from rooflines.kernels.micro import fma, stream
from rooflines.kernels.micro.repeats import calls_for
from rooflines.kernels.micro.team import Team
from rooflines.units import binary_bytes, si

RESULTS = Path(__file__).parent / "results" / "cpu_ceilings.json"
SOURCE = Path(__file__).with_name("stream.c")
FLAGS = ("-O3", "-march=native", "-fopenmp")
# Share of the CPUs in use that other processes may have during a round.
DISTURBED = 0.1
TRIES = 3  # times the rounds asked for, at most, in search of undisturbed ones
KEPT = 3  # of the sides to compare with: the fastest in the first round go on
_ISA = (("avx512f", "avx512"), ("avx2", "avx"), ("", "sse"))
_SAMPLE_S = {"FMA": 0.05, "cache": 0.05, "DRAM": 0.3}

Side = Callable[[], float]  # one sample: FLOP/s or B/s


@dataclass
class Case:
    """One figure: our sides and theirs. ``at_least`` is the share of their best that our best must reach."""

    name: str
    unit: str
    threads: int
    working_set_bytes: int
    at_least: float
    ours: dict[str, Side]
    theirs: dict[str, Side]
    samples: list[dict[str, float]] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


# --- sides -------------------------------------------------------------------------------------------------------------------------


def our_fma(team: Team, dtype: Any) -> Side:
    """FMAs a second of our kernel, in wall time."""
    lanes = fma.lanes(dtype)
    values = [np.ones(max(lanes, 4096), dtype=dtype)[:lanes] for _ in range(team.size)]

    def run(thousands: int) -> Any:
        return team.run([partial(fma.recur, own, dtype(0.5), dtype(1.0), 1000 * thousands) for own in values])

    run(1)
    calls: list[int] = []  # found when it is first used, not when a case is prepared

    def sample() -> float:
        calls[:] = calls or [calls_for(_SAMPLE_S["FMA"], run)]
        return fma.flops(dtype, 1000) * calls[0] * team.size / run(calls[0]).seconds

    return sample


def our_stream(team: Team, access: str, working_set_bytes: int, past_caches: bool, memory: dict[Any, Any]) -> Side:
    """Bytes a second of our kernel, in wall time. ``memory`` keeps the arrays that several sides share."""
    kernel = getattr(stream, access + "_past_caches" * past_caches)
    arrays = {"read": 1, "copy": 2, "triad": 3}[access]
    step = stream.granule()
    elements = max(step, working_set_bytes // arrays // 8 // team.size // step * step)

    def operands() -> list[tuple[Any, ...]]:
        key = team.size, elements
        made = memory.setdefault(key, [])
        while len(made) < arrays:
            slices = [stream.aligned_array(elements) for _ in range(team.size)]
            team.run([partial(own.fill, 1.0) for own in slices])
            made.append(slices)
        per_thread = zip(*made[:arrays], strict=True)
        return [tuple(one.view(np.int64) for one in own) if access == "read" else own for own in per_thread]

    def run(passes: int) -> Any:
        scalars = (3.0,) if access == "triad" else ()
        return team.run([partial(kernel, *own, *scalars, passes) for own in operands()])

    calls: list[int] = []
    sample_s = _SAMPLE_S["DRAM" if working_set_bytes > 128 << 20 else "cache"]

    def sample() -> float:
        if not calls:
            run(1)
            calls.append(calls_for(sample_s, run))
        return 8 * elements * arrays * team.size * calls[0] / run(calls[0]).seconds

    return sample


def likwid(kernel: str, working_set_bytes: int, threads: int, unit: str, sample_s: float, huge: bool = False) -> Side:
    """What ``likwid-bench`` says of its ``kernel``; MFlops/s and MByte/s are computed from its own wall time (the TSC)."""
    field_ = "MFlops/s" if unit == "FLOP/s" else "MByte/s"
    iterations: list[int] = []
    environment = os.environ | ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"} if huge else {})

    def run(times: int) -> dict[str, float]:
        command = ["likwid-bench", "-t", kernel, "-w", f"S0:{working_set_bytes}B:{threads}", "-i", str(times)]
        text = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
        return {key: float(value) for key, value in re.findall(r"^(Time|MFlops/s|MByte/s):\s+([\d.e+-]+)", text, re.MULTILINE)}

    def sample() -> float:
        if not iterations:
            times = 10  # what likwid-bench makes at the least
            while (found := run(times))["Time"] < sample_s / 4:
                times = int(times * min(1000.0, max(2.0, sample_s / max(found["Time"], 1e-6))))
            iterations.append(max(10, round(times * sample_s / found["Time"])))
        return run(iterations[0])[field_] * 1e6

    return sample


def stream_c(program: Path, access: str, working_set_bytes: int, threads: int, huge: bool) -> Side:
    """Bytes a second of the C program."""
    arrays = {"read": 1, "copy": 2, "triad": 3}[access]
    elements = working_set_bytes // arrays // 8
    cpus = ",".join(f"{{{cpu}}}" for cpu in detect.usable_cpus()[:threads])
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "true", "OMP_PLACES": cpus}

    def sample() -> float:
        passes = max(2, round(_SAMPLE_S["DRAM"] * 15e9 / working_set_bytes))
        command = [str(program), access, str(elements), str(passes), *(["huge"] if huge else [])]
        seconds = float(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()[0])
        return 8 * elements * arrays * passes / seconds

    return sample


# --- cases -------------------------------------------------------------------------------------------------------------------------


def best_variant(names: Sequence[str], stem: str, ending: str = "") -> str | None:
    """The likwid kernel ``stem_<isa>ending`` of the widest registers this CPU has, among ``names``."""
    for flag, isa in _ISA:
        if (not flag or flag in detect.isa()) and f"{stem}_{isa}{ending}" in names:
            return f"{stem}_{isa}{ending}"
    return None


def runnable(names: Sequence[str], stem: str) -> list[str]:
    """The likwid kernels called ``stem`` or ``stem_...`` that this CPU can run."""
    wide = {"avx512": "avx512f", "avx": "avx2", "fma": "fma", "sse": ""}
    found = [name for name in names if re.fullmatch(rf"{stem}(_(sse|avx|avx512)(_fma)?)?", name)]
    return [name for name in found if all(wide[word] in ("", *detect.isa()) for word in name[len(stem) :].split("_") if word)]


def cases(team: Team, names: Sequence[str], program: Path | None) -> list[Case]:
    """Everything to compare with as many threads as ``team`` has."""
    threads, memory = team.size, {}
    made = []
    for precision, dtype, stem in (("fp32", np.float32, "peakflops_sp"), ("fp64", np.float64, "peakflops")):
        kernel = best_variant(names, stem, "_fma") or best_variant(names, stem)
        size = 16 << 10
        theirs = {kernel: likwid(kernel, size * threads, threads, "FLOP/s", _SAMPLE_S["FMA"])} if kernel else {}
        made.append(Case(f"FMA {precision}", "FLOP/s", threads, size * threads, 1.0, {"ours": our_fma(team, dtype)}, theirs))
    load = best_variant(names, "load")
    caches = detect.cpu().caches
    for number, cache in enumerate(caches):
        sizes = [cache.capacity_bytes(threads) // 2]
        if number and number == len(caches) - 1:  # the last may be shared with other guests: a set that fits what is left of it
            sizes.insert(0, 3 * caches[number - 1].capacity_bytes(threads))
        for size in sizes:
            whole = size // (1024 * threads) * 1024 * threads
            theirs = {}
            if load:
                theirs[load] = likwid(load, whole, threads, "B/s", _SAMPLE_S["cache"])
            ours = {"ours": our_stream(team, "read", whole, False, memory if whole == size else {})}
            made.append(Case(f"{cache.level} read", "B/s", threads, whole, 0.9 if cache.level == "L1" else 0.95, ours, theirs))
    last = max((cache.size_bytes * cache.instances for cache in caches), default=0)
    array = min(max(256 << 20, 4 * last), detect.memory_available_bytes() // 12) // (1 << 20) * (1 << 20)
    dram: dict[Any, Any] = {}
    for access, stems in (("copy", ("copy_mem",)), ("triad", ("stream_mem",))):
        size = array * {"copy": 2, "triad": 3}[access]
        ours = {
            f"ours, {'non-temporal' if past_caches else 'ordinary'} stores": our_stream(team, access, size, past_caches, dram)
            for past_caches in (True, False)
        }
        theirs = {name: likwid(name, size, threads, "B/s", _SAMPLE_S["DRAM"]) for stem in stems for name in runnable(names, stem)}
        if program is not None:
            theirs |= {
                f"STREAM {access}{', huge pages' if huge else ''}": stream_c(program, access, size, threads, huge)
                for huge in (False, True)
            }
        made.append(Case(f"DRAM {access}", "B/s", threads, size, 0.97, ours, theirs))
    return made


# --- rounds ------------------------------------------------------------------------------------------------------------------------


class Watch:
    """What other processes did to CPUs since it was made."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.perf_counter(), busy_s(), own_s()

    def others(self, cpus: Sequence[int]) -> float:
        """How many of ``cpus`` others kept busy, on average. Exact for the CPUs that this process is bound to, and for all of them."""
        elapsed, busy = time.perf_counter() - self._began, busy_s()
        return max(0.0, (sum(busy[cpu] - self._busy[cpu] for cpu in cpus) - (own_s() - self._own)) / elapsed)


def busy_s() -> dict[int, float]:
    """Seconds for which each CPU was used by anybody, or taken away by the host, since the machine was started."""
    ticks, found = os.sysconf("SC_CLK_TCK"), {}
    for number, rest in re.findall(r"^cpu(\d+) (.*)", Path("/proc/stat").read_text(), re.MULTILINE):
        user, nice, system, _, _, irq, softirq, steal, *_ = (int(word) for word in rest.split())
        found[int(number)] = (user + nice + system + irq + softirq + steal) / ticks
    return found


def own_s() -> float:
    """Seconds of processor time of this process and the children it waited for."""
    return sum(os.times()[:4])


class Patience:
    """Seconds that are left for waiting until other processes leave ``threads`` CPUs alone."""

    def __init__(self, seconds: float) -> None:
        self.left_s = seconds

    def wait(self, threads: int) -> None:
        """Until a fifth of a second in which there was room for ``threads`` threads, or until there is no patience left."""
        cpus = list(busy_s())
        while self.left_s > 0:
            began, watch = time.perf_counter(), Watch()
            time.sleep(0.2)
            room = len(cpus) - watch.others(cpus) >= threads * (1 - DISTURBED)
            if not room:
                time.sleep(1.0)
            self.left_s -= time.perf_counter() - began
            if room:
                return


def take(case: Case, patience: Patience) -> None:
    """One round: every side of ``case`` once, in turn, and the share of its CPUs that others had meanwhile."""
    patience.wait(case.threads)
    sides = case.ours | case.theirs
    order = list(sides)
    turn = len(case.samples) % len(order)
    watch = Watch()
    found = {name: sides[name]() for name in order[turn:] + order[:turn]}
    case.others.append(watch.others(detect.usable_cpus()) / case.threads)
    case.samples.append({name: found[name] for name in order})


def failure(side: Side) -> str:
    """What became of the process of ``side``, empty where it did well."""
    try:
        side()
    except subprocess.CalledProcessError as error:
        return str(error).rsplit("' ", 1)[-1]
    return ""


def leave_out_failing(case: Case) -> None:
    """Try each of their sides once; one that ends in an error (some of likwid-bench's kernels do) is left out, and why is kept."""
    case.failed = {name: why for name, side in case.theirs.items() if (why := failure(side))}
    for name, why in case.failed.items():
        del case.theirs[name]
        print(f"{case.name}: {name} is left out, it {why}")


def narrow(case: Case) -> None:
    """After the first round, which also finds how long each side must run: keep the ``KEPT`` fastest of theirs, and start over."""
    (first,) = case.samples
    fastest = sorted(case.theirs, key=lambda name: -first[name])[:KEPT]
    case.theirs = {name: case.theirs[name] for name in case.theirs if name in fastest}
    case.samples, case.others = [], []


def quiet(case: Case, rounds: int) -> list[int]:
    """The rounds that count: the ``rounds`` during which others had least of the CPUs."""
    return sorted(sorted(range(len(case.others)), key=lambda number: case.others[number])[:rounds])


def enough(case: Case, rounds: int) -> bool:
    """True when so many undisturbed rounds have been taken, or no more will be."""
    return sum(others <= DISTURBED for others in case.others) >= rounds or len(case.others) >= TRIES * rounds


def judge(case: Case, rounds: int) -> dict[str, Any]:
    """The case as it is written: medians and their coefficients of variation, the ratio of the best of each with its interval."""
    counted = quiet(case, rounds)
    columns = {name: np.array([case.samples[number][name] for number in counted]) for name in (*case.ours, *case.theirs)}
    medians = {name: float(np.median(column)) for name, column in columns.items()}
    row: dict[str, Any] = {
        "name": case.name,
        "threads": case.threads,
        "working_set_bytes": case.working_set_bytes,
        "unit": case.unit,
        "rounds": len(counted),
        "rounds_taken": len(case.samples),
        "share_of_its_cpus_that_others_had": round(statistics.mean(case.others[number] for number in counted), 3),
        "median": medians,
        "coefficient_of_variation": {
            name: round(float(np.std(column, ddof=1) / np.mean(column)), 4) if len(column) > 1 else None
            for name, column in columns.items()
        },
    }
    if case.failed:
        row["left_out"] = case.failed
    if not case.theirs:
        return row
    mine, other = (max(sides, key=lambda name: medians[name]) for sides in (case.ours, case.theirs))
    picks = np.random.default_rng(0).integers(0, len(counted), (2000, len(counted)))
    resampled = np.median(columns[mine][picks], axis=1) / np.median(columns[other][picks], axis=1)
    low, high = (round(float(value), 4) for value in np.percentile(resampled, (2.5, 97.5)))
    ratio = medians[mine] / medians[other]
    # "within spread": at least 1.0 for the peaks means that the interval does not lie below it
    reached = high >= case.at_least if case.at_least == 1.0 else ratio >= case.at_least
    return row | {
        "ours": mine,
        "theirs": other,
        "ratio": round(ratio, 4),
        "ratio_ci95": [low, high],
        "at_least": case.at_least,
        "reached": bool(reached),
    }


def line(row: dict[str, Any]) -> str:
    """One row for the terminal."""
    name = f"{row['name']:<11} {row['threads']} thr {binary_bytes(row['working_set_bytes']):>9}"
    if "ratio" not in row:
        ((_, value),) = row["median"].items() if len(row["median"]) == 1 else [max(row["median"].items(), key=lambda item: item[1])]
        return f"{name}  {si(value, row['unit']):>13}  nothing to compare with"
    mine, other = (si(row["median"][row[side]], row["unit"]) for side in ("ours", "theirs"))
    low, high = row["ratio_ci95"]
    verdict = "reached" if row["reached"] else "MISSED"
    cv = " / ".join(f"{row['coefficient_of_variation'][row[side]] or 0:.1%}" for side in ("ours", "theirs"))
    return (
        f"{name}  {mine:>13}  {other:>13}  {row['ratio']:.3f} [{low:.3f}, {high:.3f}]  >= {row['at_least']:.2f} {verdict:<7}  cv {cv}"
        f"  others {row['share_of_its_cpus_that_others_had']:.0%}  {row['theirs']}"
    )


def first_line(*command: str) -> str | None:
    """The first line that a command prints, None where it does not run."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return (result.stdout or result.stderr).split("\n", 1)[0].strip() or None


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=31, help="undisturbed rounds of each case (default 31; a third for DRAM)")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds to wait for quiet, in all (default 600)")
    parser.add_argument("--threads", type=int, nargs="*", help="thread counts (default: 1 and all)")
    parser.add_argument("--only", default="", help="only cases whose name contains this; nothing is written")
    arguments = parser.parse_args()
    rounds, cpus = arguments.rounds, detect.usable_cpus()
    detect.cpu()  # with all caches, before this process is bound to some CPUs
    counts = arguments.threads or sorted({1, len(cpus)})
    names: list[str] = []
    if shutil.which("likwid-bench"):
        listed = subprocess.run(["likwid-bench", "-a"], capture_output=True, text=True, check=True).stdout
        names = re.findall(r"^(\w+) - ", listed, re.MULTILINE)
    else:
        print("likwid-bench is not installed (Debian: apt-get install likwid): its sides are left out.")
    started, rows, patience = time.time(), [], Patience(arguments.patience)
    with tempfile.TemporaryDirectory() as folder:
        program: Path | None = Path(folder) / "stream"
        if shutil.which("gcc"):
            subprocess.run(["gcc", *FLAGS, str(SOURCE), "-o", str(program)], check=True)
        else:
            program = None
            print("gcc is not installed: STREAM is left out.")
        for threads in counts:
            if hasattr(os, "sched_setaffinity"):  # for the processes started here as well
                os.sched_setaffinity(0, cpus[:threads])
            with Team(threads, [frozenset({cpu}) for cpu in cpus[:threads]]) as team:
                chosen = [case for case in cases(team, names, program) if arguments.only in case.name]
                for case in chosen:
                    leave_out_failing(case)
                    take(case, patience)
                    narrow(case)
                # a round in memory takes seconds, most of them to fill the arrays, and its samples are longer
                wanted = {id(case): max(3, rounds // 3) if case.name.startswith("DRAM") else rounds for case in chosen}
                # one round of every case, then the next: what slows the machine down for a minute is spread over all of them
                while pending := [case for case in chosen if not enough(case, wanted[id(case)])]:
                    for case in pending:
                        take(case, patience)
                for case in chosen:
                    rows.append(judge(case, wanted[id(case)]))
                    print(line(rows[-1]), flush=True)
    if arguments.only:
        return
    from rooflines.profiler.machine.environment import collect_environment
    from rooflines.serial import to_plain

    result = {
        "benchmark": "cpu_ceilings",
        "rounds": rounds,
        "seconds": round(time.time() - started),
        "seconds_of_waiting_for_quiet": round(arguments.patience - patience.left_s),
        "versions": {
            "likwid": first_line("likwid-bench", "-v") if names else None,
            "gcc": first_line("gcc", "--version"),
            "gcc_flags": " ".join(FLAGS),
            "numba": __import__("numba").__version__,
            "llvmlite": __import__("llvmlite").__version__,
        },
        "caches": [to_plain(cache) for cache in detect.cpu().caches],
        "isa": list(detect.isa()),
        "environment": {key: value for key, value in to_plain(collect_environment("cpu")).items() if key != "host"},
        "cases": rows,
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if not all(row.get("reached", True) for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
