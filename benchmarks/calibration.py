"""Fits the coefficients of predicted times to published measurements, and tells how far they are off on what was left out.

``python benchmarks/calibration.py --tables CLONE`` counts the networks of ``published_points.csv`` without running them (some
minutes; ``--counted FILE`` keeps the counts) and reads the kernel tables of github.com/ai-dynamo/aiconfigurator (Apache-2.0; CLONE is
a clone of it, which may be bare). It writes ``rooflines/roofline/predict/coefficients.json`` and
``benchmarks/results/calibration.md``. The tables stay where they are: only the coefficients enter the package.

- *eager* and *compiled* are fitted to whole steps that timm and others measured: the shares of each kind of kernel, so that the sum
  over the operators is the measured time. A prior keeps a share where the fit begins if the networks do not tell it. A host takes no
  longer to launch a call than the step with the least time for each took; steps of few samples are bounded by it.
- *served*: products and attention are fitted to single kernels of the tables, what is left of a token to published decode times.

An error is |predicted - measured| / measured, with the device and a fifth of the networks left out together; the interval is the
quantile of 90 % of these errors in logarithms.
"""

from __future__ import annotations

import argparse
import csv
import io
import pickle
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from msgspec.structs import astuple
from published_points import HERE, POINT, calls_of, options_of
from scipy.optimize import least_squares

import rooflines
from rooflines.device_specs.catalog import ceilings_of, matching
from rooflines.roofline.predict import calibrated
from rooflines.roofline.predict.calibrated import CodeShares, Coefficients, Share, kernel_of, roof_seconds
from rooflines.serial import to_json
from rooflines.units import percent, significant

RESULTS = HERE / "results" / "calibration.md"
PACKAGE = Path(calibrated.__file__).with_name("coefficients.json")
# What is fitted to which points.
CODES = {
    "eager": (
        "timm eager",
        "conv eval/train u39kun fp32",
        "conv eval/train u39kun fp16",
        "resnet50 inference",
        "resnet50 training (DLE)",
    ),
    "compiled": ("timm dynamo",),
}
# Where a fit begins and how far it may go from there, in logarithms: a share of one is the sheet's.
KERNELS = {
    "convolution": (0.7, 0.7),
    "fp32 convolution": (0.5, 0.7),
    "grouped convolution": (0.4, 0.6),
    "depthwise convolution": (0.4, 0.5),
    "matmul": (0.8, 0.85),
    "attention": (0.5, 0.8),
    "element-wise": (1.0, 0.85),
    "normalization": (1.0, 0.85),
    "copy": (1.0, 0.85),
    "reduction": (1.0, 0.85),
}
PRIOR = 0.5
# The least time of a kernel: the smallest products of the tables take 1.5 to 2.5 us.
START_S = 2e-6
# Devices of the tables by the names of their sheets; others of the tables have no published rates in bf16.
DEVICES = {
    "a100_sxm": "NVIDIA A100-SXM4-80GB",
    "h100_sxm": "NVIDIA H100 80GB HBM3",
    "h200_sxm": "NVIDIA H200",
    "l40s": "NVIDIA L40S",
    "b200_sxm": "NVIDIA B200",
    "b300_sxm": "NVIDIA B300",
    "rtx_pro_6000_server": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
}
SAMPLE = 3000
# Steps of so few samples that the host may be the limit.
SMALL = 8


class Counted(NamedTuple):
    """A published time with the calls of its step: kind of kernel, calls, seconds of arithmetic and traffic at the roofs."""

    point: dict[str, str]
    calls: list[tuple[str, float, float, float]]

    @property
    def measured_s(self) -> float:
        return float(self.point["measured_s"])


def counted(points: Sequence[dict[str, str]]) -> Iterator[Counted]:
    """The calls of each point, which has one device."""
    steps = defaultdict(list)
    for point in points:
        steps[tuple(point[name] for name in POINT)].append(point)
    with tempfile.TemporaryDirectory() as configs:
        for number, group in enumerate(steps.values(), 1):
            print(f"counting {number} of {len(steps)}: {group[0]['model']}", file=sys.stderr)
            model, options = options_of(group[0], Path(configs))
            names = list(dict.fromkeys(point["device"] for point in group))
            forecast = rooflines.predict(model, devices=names, **options)
            for point in group:
                roofs = forecast.devices[names.index(point["device"])].device.roofs
                phases = calls_of(point)
                operators = [(one, phases.get(one.phase, 1.0)) for one in forecast.operators if not phases or one.phase in phases]
                yield Counted(point, [(kernel_of(one), one.calls * times, *roof_seconds(one, roofs)) for one, times in operators])


class Fitted(NamedTuple):
    """The shares of each kind of kernel, and what a host takes to launch a call."""

    shares: dict[str, Share]
    launch_s: float = 0.0


def predicted_s(steps: Sequence[Counted], known: Fitted) -> Any:
    """The sum over the calls of each step, or the time to launch them."""
    rows = [
        (number, calls, *times, *astuple(known.shares.get(kernel, known.shares["element-wise"])))
        for number, one in enumerate(steps)
        for kernel, calls, *times in one.calls
    ]
    number, calls, compute_s, memory_s, compute, memory, start_s = np.array(rows).T
    number = number.astype(int)
    times = np.bincount(number, calls * (start_s + np.hypot(compute_s / compute, memory_s / memory)))
    return np.maximum(times, np.bincount(number, calls * known.launch_s))


def fit_steps(steps: Sequence[Counted]) -> Fitted:
    """The shares of each kind of kernel by whole steps, and the time to launch a call where there are small steps."""
    begin = np.log([share for pair in KERNELS.values() for share in pair])
    small = any(float(one.point["batch"]) <= SMALL for one in steps)
    order = {name: number for number, name in enumerate(KERNELS)}
    rows = [
        (number, order.get(kernel, order["element-wise"]), calls, *times)
        for number, one in enumerate(steps)
        for kernel, calls, *times in one.calls
    ]
    number, kernel, calls, compute_s, memory_s = np.array(rows).T
    number, kernel = number.astype(int), kernel.astype(int)
    launched = np.bincount(number, calls)
    measured_s = np.array([one.measured_s for one in steps])
    launch_s = float(np.min(measured_s / launched)) * small

    def errors(values: Any) -> Any:
        compute, memory = np.exp(values).reshape(-1, 2)[kernel].T
        times = np.bincount(number, calls * (START_S + np.hypot(compute_s / compute, memory_s / memory)))
        times = np.maximum(times, launched * launch_s)
        return np.concatenate([np.log(times / measured_s), (values - begin) * PRIOR])

    found = np.exp(least_squares(errors, begin, loss="soft_l1", f_scale=0.15).x)
    pairs = zip(KERNELS, found.reshape(-1, 2).tolist(), strict=True)
    return Fitted({name: Share(*pair, START_S) for name, pair in pairs}, launch_s)


def ratios_of(steps: Sequence[Counted], known: Fitted) -> Any:
    """Predicted over measured time of each step."""
    return predicted_s(steps, known) / np.array([one.measured_s for one in steps])


def left_out(steps: Sequence[Counted], fit: Callable[[Sequence[Counted]], Fitted]) -> dict[str, list[float]]:
    """By device, predicted over measured time of steps whose device and model the fit has not seen."""
    models = sorted({one.point["model"] for one in steps})
    fold = {model: number % 5 for number, model in enumerate(np.random.default_rng(0).permutation(models))}
    found = defaultdict(list)
    for device in sorted({one.point["device"] for one in steps}):
        for number in range(5):
            seen = [one for one in steps if one.point["device"] != device and fold[one.point["model"]] != number]
            held = [one for one in steps if one.point["device"] == device and fold[one.point["model"]] == number]
            if held and seen:
                found[device] += [*ratios_of(held, fit(seen))]
    return found


def tables(clone: Path, kind: str) -> pd.DataFrame:
    """The newest table of vLLM's kernels of each device: seconds of arithmetic and traffic at the roofs, and measured."""
    listed = subprocess.run(
        ["git", "-C", clone, "ls-tree", "-r", "--name-only", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    frames = []
    for device, name in DEVICES.items():
        paths = sorted(path for path in listed if f"/{device}/" in path and "/vllm/" in path and path.endswith(f"{kind}_perf.parquet"))
        text = subprocess.run(["git", "-C", clone, "show", f"HEAD:{paths[-1]}"], check=True, capture_output=True).stdout
        frame = pd.read_parquet(io.BytesIO(text))
        for column in ("gemm_dtype", "attn_dtype", "kv_cache_dtype"):
            if column in frame:
                frame = frame[frame[column].isin(["bfloat16", "float16"])]
        if "window_size" in frame:
            frame = frame[frame["window_size"].fillna(0) <= 0]
        frame = frame[frame["latency"] > 0]
        frame = frame.sample(min(SAMPLE, len(frame)), random_state=0)
        roofs = ceilings_of(matching(name)[0].sheet)
        flops, size = work_of(frame, kind)
        frames.append(
            pd.DataFrame(
                {
                    "device": device,
                    "compute_s": flops / roofs.compute("bf16", "matrix").value,
                    "memory_s": size / roofs.outermost_memory().value,
                    "time_s": frame["latency"].to_numpy() / 1e3,
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def work_of(frame: pd.DataFrame, kind: str) -> tuple[Any, Any]:
    """FLOPs and bytes of the kernels of a table."""
    if kind == "gemm":
        m, n, k = (frame[name].to_numpy(float) for name in "mnk")
        return 2 * m * n * k, 2 * (m * n + m * k + n * k)
    batch, heads, size = (frame[name].to_numpy(float) for name in ("batch_size", "num_heads", "head_dim"))
    kv = frame["num_key_value_heads"].to_numpy(float)
    kv = np.where(kv > 0, kv, heads)
    length = frame["isl"].to_numpy(float)
    if kind == "context_attention":
        return 2 * batch * heads * size * length * (length + 1), 4 * batch * length * size * (heads + kv)
    context = length + frame["step"].to_numpy(float)
    return 4 * batch * heads * size * context, 4 * batch * size * (kv * context + heads)


def fit_kernels(table: pd.DataFrame) -> Share:
    """The shares of one kind of kernel by single kernels."""

    def errors(values: Any) -> Any:
        compute, memory, start = np.exp(values)
        return np.log((start + np.hypot(table["compute_s"] / compute, table["memory_s"] / memory)) / table["time_s"])

    found = least_squares(errors, np.log([0.7, 0.85, 4e-6]), loss="soft_l1", f_scale=0.2).x
    return Share(*(float(value) for value in np.exp(found)))


def kernel_errors(table: pd.DataFrame) -> dict[str, Any]:
    """By device, predicted over measured time of kernels of a device that the fit has not seen."""
    found = {}
    for device, held in table.groupby("device"):
        share = fit_kernels(table[table["device"] != device])
        found[device] = (share.start_s + np.hypot(held["compute_s"] / share.compute, held["memory_s"] / share.memory)) / held["time_s"]
    return found


def wide(ratios: Sequence[float]) -> float:
    """The factor within which 90 % of the ratios lie."""
    return float(np.exp(np.quantile(np.abs(np.log(ratios)), 0.9)))


def row(name: str, of: str, ratios: Sequence[float], within: float) -> str:
    off = np.abs(np.array(ratios) - 1)
    inside = np.mean(np.abs(np.log(ratios)) <= np.log(within))
    return f"| {name} | {of} | {len(off)} | {percent(off.mean())} | {percent(np.median(off))} | {percent(inside)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--counted", type=Path)
    asked = parser.parse_args()
    with (HERE / "published_points.csv").open(newline="", encoding="utf-8") as file:
        points = [one for one in csv.DictReader(file) if one["tp"] == "1"]
    if asked.counted and asked.counted.exists():
        steps = pickle.loads(asked.counted.read_bytes())
    else:
        steps = [*counted(points)]
        if asked.counted:
            asked.counted.write_bytes(pickle.dumps(steps))
    codes, lines = {}, []
    for code, groups in CODES.items():
        own = [one for one in steps if one.point["group"].startswith(groups) and "nhwc" not in one.point["group"]]
        ratios, fitted = left_out(own, fit_steps), fit_steps(own)
        every = [ratio for found in ratios.values() for ratio in found]
        basis = f"{len(own)} steps that timm and others measured ({code}) on {len(ratios)} GPUs"
        codes[code] = CodeShares(fitted.shares, round(wide(every), 3), basis, fitted.launch_s)
        lines += [row(f"{code}: steps", device, found, codes[code].wide) for device, found in (*ratios.items(), ("all", every))]
    shares = {}
    for name, kind in (("matmul", "gemm"), ("prefill attention", "context_attention"), ("attention", "generation_attention")):
        table = tables(asked.tables, kind)
        shares[name] = fit_kernels(table)
        found = kernel_errors(table)
        every = [ratio for each in found.values() for ratio in each]
        lines += [row(f"served: {name}", device, each, wide(every)) for device, each in (*found.items(), ("all", every))]
    served = [one for one in steps if one.point["mode"] == "generate"]

    def with_rest(seen: Sequence[Counted]) -> Fitted:
        return Fitted({**shares, **fit_rest(seen, shares)})

    ratios = left_out(served, with_rest)
    every = [ratio for found in ratios.values() for ratio in found]
    basis = f"kernels of vLLM on {len(DEVICES)} GPUs and {len(served)} published times of prefill and decode"
    codes["served"] = CodeShares(with_rest(served).shares, round(wide(every), 3), basis)
    lines += [
        row("served: prefill and decode", device, found, codes["served"].wide) for device, found in (*ratios.items(), ("all", every))
    ]
    sources = (
        "github.com/huggingface/pytorch-image-models, results/benchmark-infer-amp-nchw-*.csv (Apache-2.0)",
        "github.com/ai-dynamo/aiconfigurator, aic-core/src/aiconfigurator_core/systems/data (Apache-2.0)",
        "the other sources of benchmarks/published_points.csv",
    )
    PACKAGE.write_text(to_json(Coefficients(sources, codes)))
    title = "# Calibrated times of what was left out: the device and the model of a step, the device of a kernel\n"
    head = "| what | device | number | mean error | median error | within the factor of 90 % |\n|---|---|---|---|---|---|"
    factors = "\n".join(f"- {code}: within {significant(found.wide)} times" for code, found in codes.items())
    RESULTS.write_text("\n".join((title, head, *lines, "", factors, "")))
    print(RESULTS.read_text())


def fit_rest(steps: Sequence[Counted], known: dict[str, Share]) -> dict[str, Share]:
    """Fit the share of the bandwidth and the start of all other operators (not products, not attention) in served code to whole
    steps."""

    def shares(values: Any) -> dict[str, Share]:
        memory, start = np.exp(values)
        return {"element-wise": Share(1.0, float(memory), float(start))}

    def errors(values: Any) -> Any:
        every = Fitted({**known, **shares(values)})
        return np.concatenate([np.log(ratios_of(steps, every)), (values - begin) * PRIOR])

    begin = np.log([2.0, 5e-7])
    return shares(least_squares(errors, begin, loss="soft_l1", f_scale=0.15).x)


if __name__ == "__main__":
    main()
