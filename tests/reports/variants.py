"""The sample analysis bent in the ways that reports meet: partial, empty, hostile, large."""

import random

from msgspec.structs import replace

from rooflines.device_specs.records import Ceiling, Source
from rooflines.profiler.records import Environment, Workload
from rooflines.roofline.analysis import CATEGORIES, Analysis, Kernel, ModuleRow, OperatorRow, Unmodeled
from tests.samples import analysis as sample
from tests.samples import ceilings

HOSTILE = "<script>alert(1)</script>"


def replaced(**fields: object) -> Analysis:
    """The sample with some fields changed."""
    return replace(sample(), **fields)


def empty() -> Analysis:
    """Nothing but what cannot be missing."""
    return Analysis(
        workload=Workload(name="nothing", mode="inference"),
        environment=Environment(host="", os="", python="", rooflines="", torch="", device="cpu", device_name=""),
    )


def partial() -> dict[str, Analysis]:
    """Every way in which a part can be missing, by name."""
    nothing = {
        "operators": (), "modules": (), "totals": None, "timeline": None, "step_breakdown": None, "bound_breakdown": None,
        "coverage": None, "findings": (), "memory": None, "verdict": "",
    }  # fmt: skip
    unjudged = tuple(
        replace(
            row, attainable_flop_per_s=None, lower_bound_s=None, efficiency=None, headroom_s=None, bound="unknown", memory_level=None
        )
        for row in sample().operators
    )
    countless = tuple(
        replace(row, flops=0, matrix_flops=0, bytes=0, intensity_flop_per_byte=None, flop_per_s=None, byte_per_s=None)
        for row in unjudged
    )
    return {
        "empty": empty(),
        "steps only": replaced(**nothing, status="interrupted"),
        "no operators": replaced(operators=(), modules=(), status="failed"),
        "no ceilings": replaced(ceilings=(), operators=unjudged, totals=None, findings=()),
        "no counts": replaced(operators=countless, ceilings=()),
        "one roof": replaced(ceilings=ceilings()[:1]),
        "no steps": replaced(steps=None, basis=replace(sample().basis, per="trace")),
        "one step": replaced(steps=replace(sample().steps, count=1, durations_s=(0.08,), median_s=0.08, ci95_s=(0.08, 0.08))),
        "still running": replaced(status="running", command="", created="", notes=()),
    }


def hostile() -> Analysis:
    """Names, paths and words that are markup; a trace can hold them."""
    rows = tuple(
        replace(row, name=f"{HOSTILE}{number}", module=f"a.<img src=x onerror=alert(2)>.{number}", shapes="4x<b>4</b>")
        for number, row in enumerate(sample().operators)
    )
    modules = (replace(sample().modules[0], path="</td><script>alert(3)</script>", type='"><i>'),)
    return replaced(
        operators=rows, modules=modules, verdict=HOSTILE, command=f"rooflines {HOSTILE} <!-- {{{{ 7 * 7 }}}}", notes=(HOSTILE,),
        workload=replace(sample().workload, name="</title><script>alert(4)</script>"),
    )  # fmt: skip


def long_names() -> Analysis:
    """Names, paths and values of one word that is wider than a phone."""
    word = "a_directory_of_one_very_long_word_that_no_browser_breaks_by_itself" * 2
    findings = (replace(sample().findings[0], title=word, evidence=word, suggestion=f"rooflines profile {word}"),)
    return replaced(
        findings=findings, notes=(word,), command=f"rooflines profile {word}.py", verdict=word,
        workload=replace(sample().workload, name=word),
    )  # fmt: skip


def repeated() -> Analysis:
    """Twelve layers of which each has the same two operators, and a kernel that no operator launched."""
    model = sample().operators[3]
    product = Kernel(name="ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn", calls=1, time_s=1e-4, streams=(7,))
    rows = tuple(
        replace(
            model, name=name, module=f"layers.{layer}.{part}", time_s=time_s + layer * 1e-6, lower_bound_s=time_s / 2, efficiency=0.5,
            headroom_s=time_s / 2 + layer * 1e-6, flag=None, kernels=(product,) if part == "attention" else (),
        )
        for layer in range(12)
        for name, part, time_s in (("aten::mm", "attention", 1e-4), ("aten::addmm", "mlp", 2e-4))
    )  # fmt: skip
    orphan = Kernel(
        name="void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)", calls=5, time_s=2e-4
    )
    missing = Unmodeled(name=orphan.name, calls=5, time_s=2e-4, reason="launched outside any operator", kernels=(orphan,))
    return replaced(operators=rows, coverage=replace(sample().coverage, unmodeled=(missing,)))


def large(count: int = 80) -> Analysis:
    """A GPU's training step with ``count`` operator rows, deep module paths and two compute roofs that both matter."""
    random_ = random.Random(7)
    sheet = Source(kind="spec", detail="data sheet of the accelerator", date="2024-03-01")
    measured = Source(kind="measured", detail="64-MiB triad, median of 9", date="2026-11-18")
    roofs = (
        Ceiling(kind="compute", name="FP32 FMA", value=60e12, unit="FLOP/s", source=sheet, precision="fp32", engine="vector"),
        Ceiling(kind="compute", name="BF16 tensor", value=795e12, unit="FLOP/s", source=measured, precision="bf16", engine="matrix",
                accumulate="fp32", spread=0.008),
        Ceiling(kind="compute", name="FP8 tensor", value=1979e12, unit="FLOP/s", source=sheet, precision="fp8", engine="matrix"),
        Ceiling(kind="compute", name="TF32 tensor", value=395e12, unit="FLOP/s", source=measured, precision="tf32", engine="matrix"),
        Ceiling(kind="memory", name="HBM read", value=4.1e12, unit="B/s", source=measured, level="HBM", access="read", spread=0.01),
        Ceiling(kind="memory", name="HBM copy", value=3.8e12, unit="B/s", source=measured, level="HBM", access="copy", spread=0.01),
        Ceiling(kind="memory", name="L2 read", value=9e12, unit="B/s", source=measured, level="L2", access="read",
                capacity_bytes=50 << 20, spread=0.02),
        Ceiling(kind="latency", name="launch", value=2.4e-6, unit="s", source=measured, spread=0.05),
    )  # fmt: skip
    names = {"convolution": "aten::conv2d", "matmul": "aten::addmm", "attention": "aten::_scaled_dot_product_flash_attention_backward",
             "moe": "vllm::inplace_fused_experts", "normalization": "aten::native_layer_norm_backward", "element-wise": "aten::gelu",
             "reduction": "aten::sum",
             "copy": "aten::copy_", "communication": "nccl:all_reduce", "optimizer": "aten::_fused_adamw_",
             "embedding": "aten::embedding", "other": "aten::sort"}  # fmt: skip
    rows = []
    for number in range(count):
        category = CATEGORIES[number % len(CATEGORIES)]
        matrix = category in ("convolution", "matmul", "attention")
        size = int(10 ** random_.uniform(5, 9))
        decades = random_.uniform(1.5, 3.2) if matrix else random_.uniform(-1.2, 0.7)
        flops = 0 if category == "copy" else int(size * 10**decades)
        roof = 795e12 if matrix else 60e12
        lower = max(flops / roof, size / 4.1e12, 2.4e-6)
        time_s = lower / min(1.2, max(0.01, random_.betavariate(3, 3)))
        bound = "latency" if lower == 2.4e-6 else "compute" if flops / roof == lower else "memory"
        rows.append(
            OperatorRow(
                name=names[category],
                module=f"transformer.encoder.layers.{number}.self_attention.output_projection.dense",
                phase=("forward", "backward")[number % 2],
                shapes="32x1024x4096, 4096x4096, 4096", precision="bf16" if matrix else "fp32",
                category=category, calls=1 + number % 4, time_s=time_s, flops=flops, matrix_flops=flops if matrix else 0, bytes=size,
                intensity_flop_per_byte=flops / size if flops else None, flop_per_s=flops / time_s if flops else None,
                byte_per_s=size / time_s, attainable_flop_per_s=min(roof, flops / size * 4.1e12) if flops else None,
                lower_bound_s=lower,
                efficiency=lower / time_s, headroom_s=time_s - lower, bound=bound, memory_level="HBM",
                engine="matrix" if matrix else "vector",
            )
        )  # fmt: skip
    paths = ["", "transformer", "transformer.encoder", "transformer.encoder.layers"]
    paths += [f"transformer.encoder.layers.{number}" for number in range(min(count, 48))]
    paths += [f"transformer.encoder.layers.{number}.self_attention" for number in range(min(count, 48))]
    modules = tuple(
        ModuleRow(path=path, type="TransformerEncoderLayer", calls=1, time_s=0.01, flops=10**12, matrix_flops=10**12, bytes=10**9,
                  lower_bound_s=0.004, efficiency=0.4, headroom_s=0.006, depth=path.count(".") + bool(path))
        for path in paths
    )  # fmt: skip
    time_s, lower = sum(row.time_s for row in rows), sum(row.lower_bound_s or 0 for row in rows)
    totals = replace(
        sample().totals, flops=sum(row.flops for row in rows), bytes=sum(row.bytes for row in rows), time_s=time_s, lower_bound_s=lower,
        efficiency=lower / time_s,
    )  # fmt: skip
    breakdown = {bound: sum(row.time_s for row in rows if row.bound == bound) for bound in ("compute", "memory", "latency")}
    steps = replace(
        sample().steps, count=200, median_s=time_s * 1.1, ci95_s=(time_s * 1.09, time_s * 1.11),
        durations_s=tuple(time_s * random_.gauss(1.1, 0.02) for _ in range(200)),
    )  # fmt: skip
    return replaced(
        operators=tuple(rows), modules=modules, ceilings=roofs, totals=totals, steps=steps,
        timeline=replace(
            sample().timeline, span_s=time_s * 1.1, busy_s=time_s, idle_s=time_s * 0.1, compute_s=time_s
        ),
        bound_breakdown={**breakdown, "communication": time_s * 0.03, "host": time_s * 0.1, "unknown": time_s * 0.02},
        environment=Environment(host="node", os="Linux 6.8", python="3.12.3", rooflines="0.1.0", torch="2.14.1", device="cuda:0",
                                device_name="NVIDIA H200", driver="560.35", cuda="12.6", cpu="Intel Xeon",
                                device_memory_bytes=141 << 30),
    )  # fmt: skip
