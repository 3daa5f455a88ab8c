"""Counters side by side against closed forms: ours, torch's FlopCounterMode, fvcore, the profiler's with_flops, inductor's estimator.

Every case states its FLOPs (and bytes, where one operator is asked about) as arithmetic on its own sizes; the table shows each tool's
figure divided by that. Writes ``benchmarks/results/counting.md`` and ``counting.json``. Needs the extra ``fvcore``; no GPU.
"""

from __future__ import annotations

import json
import logging
import math
import os
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch
from torch import nn
from torch.nn import functional

RESULTS = Path(__file__).parent / "results"
TOOLS = ("rooflines", "torch", "fvcore", "profiler", "inductor")
RESNET50 = 2 * 4_089_184_256


@dataclass
class Case:
    """A function of ``inputs`` and what it must compute: matrix FLOPs, or all FLOPs where there is no product; and bytes."""

    name: str
    make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    flops: int
    derivation: str
    backward: bool = False
    elements: bool = False
    bytes: int | None = None
    operator: str = ""
    found: dict[str, Any] = field(default_factory=dict)
    found_bytes: dict[str, Any] = field(default_factory=dict)


def convolution(pixels: int, dtype: torch.dtype) -> Case:
    size = torch.empty(0, dtype=dtype).element_size()
    word = {4: "fp32", 2: "bf16"}[size]
    return Case(
        f"conv 3x3 s1 p1 64->64, {pixels} px, {word}",
        lambda: (nn.Conv2d(64, 64, 3, padding=1, bias=False).to(dtype), (torch.randn(1, 64, pixels, pixels, dtype=dtype),)),
        2 * 64 * pixels**2 * 64 * 9,
        "2 x outputs x input channels x 9",
        bytes=size * (2 * 64 * pixels**2 + 64 * 64 * 9),
        operator="aten::convolution",
    )


def product(dtype: torch.dtype) -> Case:
    size = torch.empty(0, dtype=dtype).element_size()
    m, k, n = 256, 512, 128
    word = {4: "fp32", 2: "bf16"}[size]
    return Case(
        f"mm [{m}, {k}] @ [{k}, {n}], {word}",
        lambda: (torch.mm, (torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype))),
        2 * m * k * n,
        "2 m k n",
        bytes=size * (m * k + k * n + m * n),
        operator="aten::mm",
    )


def attention(queries: int, keys: int, causal: bool, groups: int = 1) -> Case:
    batch, heads, depth = 1, 8, 64
    pairs = sum(min(i + 1, keys) for i in range(queries)) if causal else queries * keys

    def make() -> tuple[Callable[..., Any], tuple[Any, ...]]:
        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=groups > 1)

        kv = (batch, heads // groups, keys, depth)
        return attend, (torch.randn(batch, heads, queries, depth), torch.randn(kv), torch.randn(kv))

    name = f"{'causal ' if causal else ''}SDPA on a CPU, {queries} x {keys}{f', {groups} queries a key head' if groups > 1 else ''}"
    return Case(name, make, 2 * 2 * batch * heads * pairs * depth, f"2 products x 2 x heads x {'unmasked ' * causal}pairs x depth")


def cases() -> list[Case]:
    tokens, width, hidden = 16, 64, 256
    steps, batch, inside = 10, 4, 32
    depthwise = 2 * 64 * 28**2 * 9
    encoder = 2 * 2 * tokens * width * (4 * width + 2 * hidden) + 2 * 2 * 2 * tokens**2 * width
    gates = 2 * steps * batch * (inside * hidden + hidden * hidden)

    def no_grad(module: nn.Module) -> Callable[..., Any]:
        def call(*inputs: Any) -> Any:
            with torch.no_grad():
                return module(*inputs)

        return call

    def image(channels: int, pixels: int, gradient: bool = False) -> tuple[torch.Tensor]:
        return (torch.randn(2, channels, pixels, pixels, requires_grad=gradient),)

    return [
        *[convolution(pixels, dtype) for pixels in (56, 28, 14, 7) for dtype in (torch.float32, torch.bfloat16)],
        product(torch.float32),
        product(torch.bfloat16),
        Case("add, bf16", lambda: (torch.add, tuple(torch.randn(1 << 16, dtype=torch.bfloat16) for _ in range(2))), 1 << 16,
             "one an element", elements=True, bytes=3 * 2 * (1 << 16), operator="aten::add"),
        Case("sub, fp32", lambda: (torch.sub, (torch.randn(1 << 16), torch.randn(1 << 16))), 1 << 16, "one an element", elements=True,
             bytes=3 * 4 * (1 << 16), operator="aten::sub"),
        Case("mv [256, 512] @ [512]", lambda: (torch.mv, (torch.randn(256, 512), torch.randn(512))), 2 * 256 * 512, "2 m k",
             bytes=4 * (256 * 512 + 512 + 256), operator="aten::mv"),
        Case("torch._int_mm [64, 32] @ [32, 16]",
             lambda: (torch._int_mm, (torch.ones(64, 32, dtype=torch.int8), torch.ones(32, 16, dtype=torch.int8))),
             2 * 64 * 32 * 16, "2 m k n", bytes=64 * 32 + 32 * 16 + 4 * 64 * 16, operator="aten::_int_mm"),
        Case("conv 3x3 64->64, 28 px, forward and backward", lambda: (nn.Conv2d(64, 64, 3, padding=1, bias=False), image(64, 28, True)),
             3 * 2 * 2 * 64 * 28**2 * 64 * 9, "3 x forward: both gradients are as large", backward=True),
        Case("depthwise conv 3x3, 64 ch, forward", lambda: (nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False), image(64, 28)),
             2 * depthwise, "2 x outputs x 9"),
        Case("depthwise conv 3x3, 64 ch, forward and backward",
             lambda: (nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False), image(64, 28, True)),
             3 * 2 * depthwise, "3 x forward", backward=True),
        Case("grouped conv 3x3, 8 groups, forward and backward",
             lambda: (nn.Conv2d(64, 64, 3, padding=1, groups=8, bias=False), image(64, 28, True)),
             3 * 2 * 2 * 64 * 28**2 * 8 * 9, "3 x 2 x outputs x 8 channels x 9", backward=True),
        Case("transposed conv 2x2 s2 32->16, 14 px", lambda: (nn.ConvTranspose2d(32, 16, 2, stride=2, bias=False), image(32, 14)),
             2 * 2 * 32 * 14**2 * 16 * 4, "2 x inputs x output channels x 4"),
        Case("dilated conv 3x3 d2 p2 32->32, 28 px", lambda: (nn.Conv2d(32, 32, 3, padding=2, dilation=2, bias=False), image(32, 28)),
             2 * 2 * 32 * 28**2 * 32 * 9, "2 x outputs x input channels x 9"),
        attention(256, 256, causal=False),
        attention(256, 256, causal=True),
        attention(64, 256, causal=True),
        attention(256, 256, causal=True, groups=4),
        Case("nn.TransformerEncoderLayer, eval, no_grad",
             lambda: (no_grad(nn.TransformerEncoderLayer(width, 4, hidden, batch_first=True).eval()), (torch.randn(2, tokens, width),)),
             encoder, "tokens x width x (4 projections + 2 hidden layers) + 2 products of attention"),
        Case("nn.MultiheadAttention, eval, no_grad",
             lambda: (no_grad(nn.MultiheadAttention(width, 4, batch_first=True).eval()), (torch.randn(2, tokens, width),) * 3),
             2 * 2 * tokens * width * 4 * width + 2 * 2 * 2 * tokens**2 * width, "4 projections + 2 products"),
        Case("nn.LSTM 32->256, 10 steps", lambda: (nn.LSTM(inside, hidden), (torch.randn(steps, batch, inside),)), 4 * gates,
             "steps x 4 gates x (input + hidden) x hidden"),
        Case("nn.LSTM, forward and backward",
             lambda: (nn.LSTM(inside, hidden), (torch.randn(steps, batch, inside, requires_grad=True),)),
             3 * 4 * gates, "3 x forward", backward=True),
        Case("nn.GRU 32->256, 10 steps", lambda: (nn.GRU(inside, hidden), (torch.randn(steps, batch, inside),)), 3 * gates,
             "steps x 3 gates x (input + hidden) x hidden"),
        Case("ResNet-50, 224 px, forward", lambda: (_resnet(), (torch.randn(1, 3, 224, 224),)), RESNET50,
             "2 x 4.089 G multiply-adds, as published"),
        Case("ResNet-50, 224 px, forward and backward", lambda: (_resnet(), (torch.randn(1, 3, 224, 224),)),
             3 * RESNET50 - 2 * 64 * 112**2 * 3 * 49, "3 x forward, without the gradient of the image", backward=True),
    ]  # fmt: skip


def _resnet() -> nn.Module:
    import torchvision

    return torchvision.models.resnet50().eval()


def measure(case: Case) -> None:
    """Fill in what every tool finds for ``case``."""
    for tool in TOOLS:
        torch.manual_seed(0)
        function, inputs = case.make()

        def step(function: Any = function, inputs: Any = inputs) -> None:
            output = function(*inputs)
            if case.backward:
                (output[0] if isinstance(output, tuple) else output).sum().backward()

        try:
            globals()[f"_{tool}"](case, function, inputs, step)
        except Exception as error:  # a tool that fails on a case is a result
            case.found[tool] = f"error: {type(error).__name__}"


def _rooflines(case: Case, function: Any, inputs: Any, step: Callable[[], None]) -> None:
    import rooflines

    def first(*given: Any) -> Any:
        output = function(*given)
        return output[0] if isinstance(output, tuple) else output

    counted = rooflines.count(first, *inputs, backward=case.backward)
    case.found["rooflines"] = counted.flops if case.elements else counted.matrix_flops
    if case.operator:
        rows = counted.to_dataframe()
        case.found_bytes["rooflines"] = int(rows[rows["name"] == case.operator]["bytes"].sum())


def _torch(case: Case, function: Any, inputs: Any, step: Callable[[], None]) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        step()
    case.found["torch"] = counter.get_total_flops()


def _fvcore(case: Case, function: Any, inputs: Any, step: Callable[[], None]) -> None:
    from fvcore.nn import FlopCountAnalysis

    if case.backward:
        case.found["fvcore"] = "absent: forward only"
        return

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = function if isinstance(function, nn.Module) else None

        def forward(self, *given: Any) -> Any:
            return function(*given)

    analysis = FlopCountAnalysis(Wrapped(), inputs)
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
    case.found["fvcore"] = round(analysis.total())


def _traced(step: Callable[[], None]) -> tuple[int, list[dict[str, Any]]]:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_flops=True) as profiler:
        step()
    with tempfile.TemporaryDirectory() as folder:
        profiler.export_chrome_trace(f"{folder}/trace.json")
        events = json.loads(Path(f"{folder}/trace.json").read_text())["traceEvents"]
    return sum(event.flops or 0 for event in profiler.key_averages()), [event for event in events if event.get("cat") == "cpu_op"]


def _profiler(case: Case, function: Any, inputs: Any, step: Callable[[], None]) -> None:
    case.found["profiler"] = int(_traced(step)[0])


def _inductor(case: Case, function: Any, inputs: Any, step: Callable[[], None]) -> None:
    """``torch._inductor.analysis.profile_analysis`` on the trace's operators: it is made for those that launch a kernel, which are the
    ones below every decomposition; of nested ones (convolution, _convolution) the first that it knows counts."""
    from torch._inductor.analysis.profile_analysis import _calculate_flops, _estimate_gb

    events = sorted(_traced(step)[1], key=lambda event: (event["ts"], -event["dur"]))
    total, until = 0, -math.inf
    for event in events:
        if event["ts"] < until:
            continue
        flops = _calculate_flops(event)
        if flops:
            total, until = total + flops, event["ts"] + event["dur"]
    case.found["inductor"] = int(total)
    if case.operator:
        own = [event for event in events if event["name"] == case.operator]
        case.found_bytes["inductor"] = round(_estimate_gb(own[0]) * 1e9) if own else 0


def ratio(found: Any, truth: int) -> str:
    if isinstance(found, str):
        return found
    if found is None:
        return ""
    if found == truth:
        return "1"
    return f"{found / truth:.3g}" if found else "0"


def table(measured: list[Case], versions: str) -> str:
    lines = [
        "# Counters against closed forms",
        "",
        "Each tool's figure divided by the closed form: 1 is exact to the integer, 0 a count of nothing without a word. fvcore's",
        "unit is a multiply-add, so its 0.5 is right in its own unit. FLOPs are those of matrix products where there are any.",
        "",
        f"Made by `python benchmarks/counting.py` ({versions}).",
        "",
        "## FLOPs",
        "",
        "| case | closed form | " + " | ".join(TOOLS) + " |",
        "|---|---|" + "---:|" * len(TOOLS),
    ]
    for case in measured:
        found = " | ".join(ratio(case.found.get(tool), case.flops) for tool in TOOLS)
        lines.append(f"| {case.name} | {case.derivation} = {case.flops:,} | {found} |")
    lines += [
        "",
        "## Bytes",
        "",
        "Each input read once, the output written once, at their real dtypes. Only these two tools count bytes.",
        "",
    ]
    lines += ["| operator | compulsory bytes | rooflines | inductor |", "|---|---:|---:|---:|"]
    for case in measured:
        if case.bytes is not None:
            found = " | ".join(ratio(case.found_bytes.get(tool), case.bytes) for tool in ("rooflines", "inductor"))
            lines.append(f"| {case.name} | {case.bytes:,} | {found} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, write."""
    import fvcore
    import torchvision

    from rooflines import serial
    from rooflines.profiler.machine.environment import collect_environment

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    measured = cases()
    for case in measured:
        measure(case)
    versions = f"torch {torch.__version__}, torchvision {torchvision.__version__}, fvcore {fvcore.__version__}"
    text = table(measured, versions)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "counting.md").write_text(text)
    plain = [
        {"case": case.name, "flops": case.flops, "found": case.found, "bytes": case.bytes, "found_bytes": case.found_bytes}
        for case in measured
    ]
    facts = {"versions": versions, "environment": serial.to_plain(collect_environment("cpu")), "cases": plain}
    (RESULTS / "counting.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(text)
    wrong = [
        case.name for case in measured if case.found.get("rooflines") != case.flops or case.found_bytes.get("rooflines") != case.bytes
    ]
    if wrong:
        raise SystemExit(f"rooflines differs from the closed form: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
