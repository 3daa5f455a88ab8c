"""A small analysis built by hand for tests of reports: a training step with every bound class, a flag and an unmodeled operator."""

from rooflines.device_specs.records import Ceiling, Source
from rooflines.profiler.records import Environment, Workload
from rooflines.roofline.analysis import (
    Analysis,
    Basis,
    Coverage,
    Finding,
    Memory,
    ModuleRow,
    OperatorRow,
    Steps,
    Timeline,
    Totals,
    Unmodeled,
)

MEASURED = Source(kind="measured", detail="numba FMA kernel, 2 threads, median of 7", date="2026-11-20")


def ceilings() -> tuple[Ceiling, ...]:
    return (
        Ceiling(kind="compute", name="FMA fp32", value=460e9, unit="FLOP/s", source=MEASURED, precision="fp32", engine="vector",
                accumulate="fp32", spread=0.004),
        Ceiling(kind="compute", name="FMA fp64", value=230e9, unit="FLOP/s", source=MEASURED, precision="fp64", engine="vector",
                accumulate="fp64", spread=0.004),
        Ceiling(kind="compute", name="GEMM bf16", value=900e9, unit="FLOP/s", source=MEASURED, precision="bf16", engine="matrix",
                accumulate="fp32", spread=0.011),
        Ceiling(kind="memory", name="L2 read", value=410e9, unit="B/s", source=MEASURED, level="L2", access="read",
                capacity_bytes=2 << 20, spread=0.01),
        Ceiling(kind="memory", name="L3 read", value=160e9, unit="B/s", source=MEASURED, level="L3", access="read",
                capacity_bytes=32 << 20, spread=0.02),
        Ceiling(kind="memory", name="DRAM triad", value=45e9, unit="B/s", source=MEASURED, level="DRAM", access="triad", spread=0.015),
        Ceiling(kind="latency", name="operator dispatch", value=1.1e-6, unit="s", source=MEASURED, spread=0.03),
    )  # fmt: skip


def _row(name, module, phase, shapes, category, calls, time_s, flops, matrix_flops, size, bound, level, flag=None):
    roof = 460e9
    bandwidth = {"DRAM": 45e9, "L3": 160e9, "L2": 410e9}[level]
    lower = max(flops / roof, size / bandwidth, calls * 1.1e-6)
    return OperatorRow(
        name=name, module=module, phase=phase, shapes=shapes, precision="fp32", category=category, calls=calls, time_s=time_s,
        flops=flops, matrix_flops=matrix_flops, bytes=size, intensity_flop_per_byte=flops / size if size else None,
        flop_per_s=flops / time_s, byte_per_s=size / time_s,
        attainable_flop_per_s=min(roof, flops / size * bandwidth) if size and flops else None,
        lower_bound_s=lower, efficiency=lower / time_s, headroom_s=time_s - lower, bound=bound, memory_level=level, engine="vector",
        flag=flag,
    )  # fmt: skip


def category_breakdown(rows):
    """The seconds of ``rows`` by category."""
    found = {}
    for row in rows:
        found[row.category] = found.get(row.category, 0.0) + row.time_s
    return found


def analysis() -> Analysis:
    rows = tuple(
        _row(*values)
        for values in (
            ("aten::conv2d", "layer1.0.conv2", "forward", "4x64x56x56, 64x64x3x3", "convolution", 3, 0.0121, 2774532096, 2774532096,
             39354368, "compute", "DRAM"),
            ("aten::conv2d", "conv1", "forward", "4x3x224x224, 64x3x7x7", "convolution", 1, 0.0058, 944111616, 944111616, 15291904,
             "compute", "L3"),
            ("aten::convolution_backward", "layer1.0.conv2", "backward", "4x64x56x56, 4x64x56x56, 64x64x3x3", "convolution", 3, 0.0302,
             5549064192, 5549064192, 59031552, "compute", "DRAM"),
            ("aten::linear", "fc", "forward", "4x2048, 1000x2048, 1000", "matmul", 1, 0.00085, 16388000, 16384000, 8244768, "memory",
             "L3"),
            ("aten::batch_norm", "layer1.0.bn2", "forward", "4x64x56x56, 64, 64", "normalization", 3, 0.0021, 9633792, 0, 38535168,
             "memory", "DRAM"),
            ("aten::native_batch_norm_backward", "layer1.0.bn2", "backward", "4x64x56x56, 4x64x56x56", "normalization", 3, 0.0044,
             24084480, 0, 57802752, "memory", "DRAM"),
            ("aten::relu_", "layer1.0.relu", "forward", "4x64x56x56", "element-wise", 3, 0.00095, 2408448, 0, 19267584, "memory", "L3"),
            ("aten::max_pool2d", "maxpool", "forward", "4x64x112x112", "reduction", 1, 0.0093, 7225344, 0, 16056320, "memory", "L3"),
            ("aten::add_", "layer1.0", "forward", "4x256x56x56, 4x256x56x56", "element-wise", 3, 0.0015, 9633792, 0, 115605504,
             "memory", "DRAM", "finished faster than DRAM allows: its input was still in cache"),
            ("aten::mean", "avgpool", "forward", "4x2048x7x7", "reduction", 1, 0.00012, 401408, 0, 1638400, "memory", "L2"),
            ("aten::add_", "", "optimizer", "64, 64", "optimizer", 320, 0.0013, 40960, 0, 245760, "latency", "L2"),
            ("aten::cross_entropy_loss", "", "forward", "4x1000, 4", "reduction", 1, 0.00006, 40000, 0, 16036, "latency", "L2"),
        )
    )  # fmt: skip
    busy = sum(row.time_s for row in rows) + 0.0006
    lower = sum(row.lower_bound_s or 0 for row in rows)
    time_s = sum(row.time_s for row in rows)
    return Analysis(
        verdict="47.6 images/s (84.0 ms a step, ±2 %). Compute-bound: convolutions take 70 % of the step at 43 % of the peak.",
        workload=Workload(name="resnet50", mode="training", batch_size=4, precision="fp32", unit="images", image_size=224,
                          optimizer="SGD"),
        environment=Environment(host="laptop", os="Linux 6.8", python="3.11.7", rooflines="0.1.0", torch="2.14.1", device="cpu",
                                device_name="AMD EPYC (Zen 5)", cpu="AMD EPYC (Zen 5)", cpu_cores=2, memory_bytes=24 << 30, threads=2),
        command="rooflines profile --model resnet50 --mode training --batch-size 4",
        created="2026-11-20T10:55:00+00:00",
        basis=Basis(per="step", steps=3),
        ceilings=ceilings(),
        steps=Steps(count=12, median_s=0.084, p10_s=0.083, p90_s=0.087, ci95_s=(0.0832, 0.0851), samples_per_s=47.6,
                    profiler_dilation=1.06, warmup_count=6, settled=True, rule="last 3 steps within 5 % of the 3 before",
                    clock="perf_counter", durations_s=(0.084, 0.083, 0.085, 0.0841, 0.0838, 0.087, 0.0843, 0.0835, 0.0829, 0.0846,
                                                       0.084, 0.0842)),
        totals=Totals(flops=sum(r.flops for r in rows), matrix_flops=sum(r.matrix_flops for r in rows),
                      bytes=sum(r.bytes for r in rows), time_s=time_s, lower_bound_s=lower, headroom_s=time_s - lower,
                      efficiency=lower / time_s, peak_memory_bytes=1200 << 20),
        timeline=Timeline(span_s=busy + 0.004, busy_s=busy, idle_s=0.004, compute_s=busy),
        step_breakdown={"cpu_s": busy, "other_s": 0.004},
        bound_breakdown={"compute": 0.04895, "memory": 0.01932, "latency": 0.00136, "unknown": 0.0006, "host": 0.004},
        category_breakdown=category_breakdown(rows) | {"unknown": 0.0006},
        coverage=Coverage(modeled_time_fraction=time_s / busy,
                          unmodeled=(Unmodeled(name="mylib::secret_op", calls=2, time_s=0.0006, reason="no formula"),)),
        operators=rows,
        modules=(
            ModuleRow(path="", type="ResNet", calls=1, time_s=time_s, flops=9e9, matrix_flops=9e9, bytes=4e8, lower_bound_s=lower,
                      efficiency=lower / time_s, headroom_s=time_s - lower, depth=0),
            ModuleRow(path="layer1", type="Sequential", calls=1, time_s=0.0549, flops=8347238400, matrix_flops=8323596288,
                      bytes=329596928, lower_bound_s=0.022, efficiency=0.4, headroom_s=0.0329, depth=1),
            ModuleRow(path="layer1.0", type="Bottleneck", calls=1, time_s=0.0549, flops=8347238400, matrix_flops=8323596288,
                      bytes=329596928, lower_bound_s=0.022, efficiency=0.4, headroom_s=0.0329, depth=2),
            ModuleRow(path="fc", type="Linear", calls=1, time_s=0.00085, flops=16388000, matrix_flops=16384000, bytes=8244768,
                      lower_bound_s=0.00018, efficiency=0.21, headroom_s=0.00067, depth=1),
        ),
        memory=Memory(peak_bytes=1200 << 20, kind="resident set"),
        findings=(
            Finding(title="Run the convolutions in bf16", saves_s=0.021,
                    evidence="convolutions take 48.1 ms a step; this machine's bf16 GEMM reaches 900 GFLOP/s against 460 in fp32",
                    suggestion="rooflines profile --model resnet50 --mode training --precision amp-bf16"),
            Finding(title="The 3x3 max-pool runs at 1 % of its bound", saves_s=0.0092,
                    evidence="aten::max_pool2d takes 9.3 ms where 100 µs would do", suggestion="--channels-last"),
        ),
        notes=("no NVML on this machine: power not measured",),
    )  # fmt: skip
