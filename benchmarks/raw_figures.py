"""Figures of traces from their raw events alone, to compare verdicts with (docs/traces.md); does not import the package.

``python benchmarks/raw_figures.py DIR`` writes for each trace in DIR, into ``benchmarks/results/verdicts.md`` between
``<!-- raw: NAME -->`` and ``<!-- end -->``: the steps and their length by ``ProfilerStep`` marks, busy and idle time as unions of
intervals, communication and the part of it that nothing else overlaps, copies, kernels by the kind that their names state, the longest
kernels, and device events without a launch. Events belong to the step in which the host launched them (correlation id); without marks
the whole trace, from the first device event to the last, is one. A folder in DIR holds the ranks of one job: transfer and waiting.
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
PAGE = Path(__file__).parent / "results" / "verdicts.md"
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
HOST_CALLS = ("cuda_runtime", "cuda_driver", "runtime", "hip_runtime")
COMMUNICATION = re.compile(
    r"nccl|rccl|nvshmem|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|deep_ep|\bep::|multimem|one_?shot|two_?shot", re.IGNORECASE
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


def category(event: dict[str, Any]) -> str:
    return str(event.get("cat", "")).lower()


def communicates(event: dict[str, Any]) -> bool:
    return category(event) == "kernel" and COMMUNICATION.search(event["name"]) is not None


def kind_of(name: str) -> str:
    return next((kind for kind, pattern in KINDS if pattern.search(name)), "other")


def figures(path: Path) -> dict[str, Any]:
    """The figures of one trace; times are microseconds a step, or of the whole trace where no step is marked."""
    events = read(path)
    device = [event for event in events if category(event) in DEVICE]
    launched = {
        event["args"]["correlation"]: float(event["ts"])
        for event in events
        if category(event) in HOST_CALLS and "correlation" in event.get("args", {})
    }
    marks = sorted(
        interval(event)
        for event in events
        if re.fullmatch(r"ProfilerStep#\d+", str(event.get("name"))) and category(event) in ("user_annotation", "cpu_op", "operator")
    )
    chosen: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in device:
        at = launched.get(event.get("args", {}).get("correlation"))
        if not marks:
            chosen[0].append(event)
        elif at is not None and marks[0][0] <= at <= marks[-1][1]:
            chosen[max(i for i, (start, _) in enumerate(marks) if start <= at)].append(event)
    count = len(marks) or 1
    parts: Counter[str] = Counter()
    longest: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    # What was launched before the recording runs first.
    first = min((float(event["ts"]) for own in chosen.values() for event in own), default=0.0)
    earlier = [interval(event) for event in device if event.get("args", {}).get("correlation") not in launched]
    spans, before = [], max((end for start, end in earlier if start < first), default=0.0) if marks else 0.0
    for number, own in sorted(chosen.items()):
        every = [interval(event) for event in own]
        talks = [interval(event) for event in own if communicates(event)]
        # A step lasts from its mark, or from the end of the work before it, to the end of its own work.
        begin = max(before, marks[number][0] if marks else min(start for start, _ in every))
        before = max(end for _, end in every)
        spans.append(before - begin)
        parts["busy"] += length(every)
        parts["communication"] += length(talks)
        parts["exposed"] += length(every) - length([interval(event) for event in own if not communicates(event)])
        parts["copies"] += length([interval(event) for event in own if category(event) == "gpu_memcpy"])
        for event in own:
            if category(event) == "kernel":
                longest[event["name"]] += event["dur"]
                kinds[kind_of(event["name"])] += event["dur"]
    kernels = [event["dur"] for own in chosen.values() for event in own if category(event) == "kernel"]
    return {
        "steps": len(marks),
        "spans": spans,
        "whole": sum(spans) / count,
        **{name: parts[name] / count for name in ("busy", "communication", "exposed", "copies")},
        "kinds": {name: value / count for name, value in kinds.most_common(6)},
        "longest": {name: value / count for name, value in longest.most_common(3)},
        "kernels": len(kernels) / count,
        "median": statistics.median(kernels) if kernels else 0.0,
        "without_launch": sum(event.get("args", {}).get("correlation") not in launched for event in device),
        "allocations": Counter(
            event["name"] for event in events if re.fullmatch(r"(cuda|hip)(Malloc|Free)(Async)?", str(event.get("name")))
        ),
        "stacks": any(category(event) == "python_function" for event in events),
    }


def waits(paths: list[Path]) -> str:
    """What the ranks of one job wait for, where the k-th communication kernel of each is one collective.

    The first collective brings the ranks together: a rank waits there because the last one's recording began later, as far as that one
    has not worked longer since its first event.
    """
    ranks = []
    for path in paths:
        events = read(path)
        began = min(float(event["ts"]) for event in events)
        ranks.append((began, sorted(interval(event) for event in events if category(event) in DEVICE and communicates(event))))
    number = min(len(calls) for _, calls in ranks)
    transfer = start = steps = 0.0
    for k in range(number):
        lasting = [calls[k][1] - calls[k][0] for _, calls in ranks]
        last = lasting.index(min(lasting))
        transfer += lasting[last]
        for (began, calls), own in zip(ranks, lasting, strict=True):
            waited = own - lasting[last]
            longer = (ranks[last][1][k][0] - ranks[last][0]) - (calls[k][0] - began)
            apart = waited - min(waited, max(0.0, longer)) if k == 0 else 0.0
            start, steps = start + apart, steps + waited - apart
    each = len(ranks)
    text = (
        f"Raw events: {each} ranks, {number} collectives; in the mean over the ranks {time(transfer)} transfer (the shortest kernel of "
        f"each), {time(start / each)} waiting at the first one because the recordings began apart, {time(steps / each)} other waiting"
    )
    return wrapped(text)


def time(microseconds: float) -> str:
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= scale:
            return f"{microseconds / scale:.3g} {unit}"
    return f"{microseconds:.3g} us"


def wrapped(line: str) -> str:
    """An item of a Markdown list."""
    return textwrap.fill(line, 136, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def block(found: dict[str, Any]) -> str:
    """The figures as two items of a Markdown list."""
    whole, spans = found["whole"] or 1.0, found["spans"]
    if found["steps"]:
        number = f"{found['steps']} steps of {time(min(spans))} to {time(max(spans))}, mean" if found["steps"] > 1 else "one step of"
        steps = f"{number} {time(whole)}"
    else:
        steps = f"no step marks, {time(whole)} from the first device event to the last"
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
    lines = [f"Raw events: {steps}; {'; '.join(parts)}"]
    return "\n".join(map(wrapped, [*lines, f"Kernels by their names: {kinds}; longest: {names}"] if kinds else lines))


def blocks_of(directory: Path) -> dict[str, str]:
    """The block of every trace in ``directory``, and of every folder of ranks in it."""
    found = {}
    for path in sorted(directory.iterdir()):
        if path.is_dir():
            found[path.name] = waits(sorted(path.glob("*.json*")))
        elif path.name.endswith((".json", ".json.gz")):
            found[path.name.partition(".json")[0]] = block(figures(path))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    options = parser.parse_args()
    blocks = blocks_of(options.directory)
    page = re.sub(
        r"<!-- raw: ([^\n]*?) -->\n.*?<!-- end -->",
        lambda found: f"<!-- raw: {found[1]} -->\n{blocks[found[1]]}\n<!-- end -->" if found[1] in blocks else found[0],
        PAGE.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
