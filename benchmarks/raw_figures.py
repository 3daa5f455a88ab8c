"""Figures of a trace from its raw events alone, for the page that compares verdicts with an expert's; does not import the package.

``python benchmarks/raw_figures.py DIR [--page docs/verdicts.md]`` prints for each trace in DIR, or writes into the page between
``<!-- raw: NAME -->`` and ``<!-- end -->``: the steps and their length by ``ProfilerStep`` marks, busy and idle time as unions of
intervals, communication and the part of it that nothing else overlaps, copies, kernels by what their names say, the longest kernels,
and device events without a launch. Events belong to the step in which the host launched them (correlation id); without marks the whole
trace, from the first device event to the last, is one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import statistics
import textwrap
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

Interval = tuple[float, float]
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
HOST_CALLS = ("cuda_runtime", "cuda_driver", "runtime", "hip_runtime")
COMMUNICATION = re.compile(
    r"nccl|rccl|nvshmem|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|deep_ep|multimem|one_?shot|two_?shot", re.IGNORECASE
)
# What the name of a kernel says; the first that fits counts.
KINDS = (
    ("communication", COMMUNICATION),
    ("attention", re.compile(r"flash|fmha|attention|attn|sdpa|softmax", re.IGNORECASE)),
    ("convolution", re.compile(r"conv|winograd|im2col|dgrad|wgrad|fprop", re.IGNORECASE)),
    ("matrix products", re.compile(r"gemm|cutlass|Cijk|matmul|gemv|_mm_|\bmm\b|nvjet|xmma|wvSplitK|splitKreduce", re.IGNORECASE)),
    ("norms", re.compile(r"norm|welford|bn_(fw|bw)", re.IGNORECASE)),
    ("optimizer", re.compile(r"multi_tensor|adam|sgd|foreach", re.IGNORECASE)),
    ("embedding", re.compile(r"embedding|emb_|batched_unary|split_embedding|fbgemm", re.IGNORECASE)),
    ("compiled", re.compile(r"^triton_")),
    ("element-wise and copies", re.compile(r"elementwise|copy|fill|cat|index|reduce|transpose|scatter|gather", re.IGNORECASE)),
)  # fmt: skip


def read(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8", "replace")
    document = json.loads(text, strict=False)
    events = document["traceEvents"] if isinstance(document, dict) else document
    return [event for event in events if event.get("ph") == "X" and event.get("dur") is not None]


def merged(intervals: list[Interval]) -> list[Interval]:
    """The union of ``intervals`` as intervals that do not touch."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def length(intervals: list[Interval]) -> float:
    return sum(end - start for start, end in merged(intervals))


def interval(event: dict[str, Any]) -> Interval:
    return float(event["ts"]), float(event["ts"]) + float(event["dur"])


def kind_of(name: str) -> str:
    return next((kind for kind, pattern in KINDS if pattern.search(name)), "other")


def figures(path: Path) -> dict[str, Any]:
    """The figures of one trace; times are microseconds a step, or of the whole trace where no step is marked."""
    events = read(path)
    device = [event for event in events if str(event.get("cat", "")).lower() in DEVICE]
    launched = {
        event["args"]["correlation"]: float(event["ts"])
        for event in events
        if str(event.get("cat", "")).lower() in HOST_CALLS and "correlation" in event.get("args", {})
    }
    marks = sorted(
        {event["name"]: interval(event) for event in events if re.fullmatch(r"ProfilerStep#\d+", str(event.get("name"))) and
         str(event.get("cat", "")).lower() in ("user_annotation", "cpu_op", "operator")}.values()
    )  # fmt: skip
    chosen: dict[int, list[dict[str, Any]]] = defaultdict(list)
    without = 0
    for event in device:
        at = launched.get(event.get("args", {}).get("correlation"))
        without += at is None
        if not marks:
            chosen[0].append(event)
        elif at is not None and marks[0][0] <= at <= marks[-1][1]:
            chosen[max(i for i, (start, _) in enumerate(marks) if start <= at)].append(event)
    count = len(marks) or 1
    parts: Counter[str] = Counter()
    longest: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for own in chosen.values():
        every = [interval(event) for event in own]
        talk = [interval(event) for event in own if event["cat"].lower() == "kernel" and COMMUNICATION.search(event["name"])]
        rest = [interval(event) for event in own if not (event["cat"].lower() == "kernel" and COMMUNICATION.search(event["name"]))]
        parts["busy"] += length(every)
        parts["communication"] += length(talk)
        parts["exposed"] += length(every) - length(rest)
        parts["copies"] += length([interval(event) for event in own if event["cat"].lower() == "gpu_memcpy"])
        if not marks and every:
            parts["span"] += max(end for _, end in every) - min(start for start, _ in every)
        for event in own:
            if event["cat"].lower() == "kernel":
                longest[event["name"]] += event["dur"]
                kinds[kind_of(event["name"])] += event["dur"]
    lengths = [end - start for start, end in marks]
    kernels = [event["dur"] for own in chosen.values() for event in own if event["cat"].lower() == "kernel"]
    return {
        "steps": len(marks),
        "lengths": lengths,
        "whole": sum(lengths) / len(lengths) if lengths else parts["span"],
        **{name: parts[name] / count for name in ("busy", "communication", "exposed", "copies")},
        "kinds": {name: value / count for name, value in kinds.most_common(6)},
        "longest": {name: value / count for name, value in longest.most_common(3)},
        "kernels": len(kernels) / count,
        "median": statistics.median(kernels) if kernels else 0.0,
        "without_launch": without,
        "allocations": Counter(
            event["name"] for event in events if re.fullmatch(r"(cuda|hip)(Malloc|Free)(Async)?", str(event.get("name")))
        ),
        "stacks": sum(str(event.get("cat")) == "python_function" for event in events),
    }


def time(microseconds: float) -> str:
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= scale:
            return f"{microseconds / scale:.3g} {unit}"
    return f"{microseconds:.3g} us"


def block(found: dict[str, Any]) -> str:
    """The figures as two items of a Markdown list."""
    whole = found["whole"] or 1.0
    steps = (
        f"{found['steps']} steps of {time(min(found['lengths']))} to {time(max(found['lengths']))}"
        if found["lengths"]
        else "no step marks"
    )
    of = f"mean {time(found['whole'])}" if found["lengths"] else f"{time(found['whole'])} from the first device event to the last"
    parts = [f"busy {time(found['busy'])} ({found['busy'] / whole:.0%})"]
    if found["communication"]:
        parts.append(f"communication {time(found['communication'])}, alone for {time(found['exposed'])}")
    if found["copies"]:
        parts.append(f"copies {time(found['copies'])}")
    if found["kernels"]:
        parts.append(f"{found['kernels']:,.0f} kernels, median {time(found['median'])}")
    if found["without_launch"]:
        parts.append(f"{found['without_launch']:,} device events without a recorded launch")
    if found["allocations"]:
        parts.append(", ".join(f"{number} {name}" for name, number in sorted(found["allocations"].items())))
    if found["stacks"]:
        parts.append("Python stacks")
    kinds = ", ".join(f"{name} {time(value)}" for name, value in found["kinds"].items())
    names = "; ".join(f"`{name[:60]}` {time(value)}" for name, value in found["longest"].items())
    lines = [f"Raw events: {steps}, {of}; {'; '.join(parts)}", f"Kernels by their names: {kinds}; longest: {names}" if kinds else ""]
    return "\n".join(
        textwrap.fill(line, 136, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for line in lines
        if line
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--page", type=Path, help="page whose marked blocks are replaced")
    options = parser.parse_args()
    paths = sorted(path for path in options.directory.iterdir() if path.name.endswith((".json", ".json.gz")))
    blocks = {path.name.partition(".json")[0].removesuffix(".pt.trace"): block(figures(path)) for path in paths}
    if options.page is None:
        for name, text in blocks.items():
            print(f"## {name}\n{text}\n")
        return
    page = re.sub(
        r"<!-- raw: ([^\n]*?) -->\n.*?<!-- end -->",
        lambda found: f"<!-- raw: {found[1]} -->\n{blocks[found[1]]}\n<!-- end -->" if found[1] in blocks else found[0],
        options.page.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    options.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
