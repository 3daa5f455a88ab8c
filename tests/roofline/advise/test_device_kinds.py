"""A vendor is not a kind of device: all rules, on processors and GPUs of each vendor, name only what exists on that kind."""

import functools
import re

import pytest
from msgspec.structs import replace

from rooflines.roofline.advise import categories
from rooflines.roofline.advise.case import Case, device_kind
from rooflines.roofline.advise.findings import RULES
from rooflines.roofline.advise.usage import find_in_usage
from rooflines.roofline.analysis import Basis, HostWork
from tests.roofline.advise.cases import STEP_S, analysis, kernel, row
from tests.roofline.real import TRACES, analysis_of
from tests.usage_samples import machine_analysis

PROCESSORS = (
    "AMD EPYC 9B14", "AMD Ryzen 9 7950X 16-Core Processor", "AMD Instinct MI300A Accelerator", "Intel(R) Xeon(R) Platinum 8480C",
    "Apple M2 Max", "NVIDIA Grace CPU Superchip", "NVIDIA GH200 480GB", "Ampere Altra Max", "Neoverse-V2", "",
)  # fmt: skip
GPUS = {
    ("cuda:0", "NVIDIA H100 80GB HBM3"): "cuda", ("cuda:0", "NVIDIA GeForce RTX 4090"): "cuda",
    ("cuda:1", "AMD Instinct MI300X"): "hip",
    ("cuda:0", "AMD Radeon RX 7900 XTX"): "hip", ("xpu:0", "Intel(R) Data Center GPU Max 1550"): "xpu",
    ("xpu:0", "Intel(R) Arc(TM) A770 Graphics"): "xpu", ("mps", "Apple M2 Max"): "mps",
}  # fmt: skip
DEVICES = {("cpu", name): "cpu" for name in PROCESSORS} | GPUS
# What exists on one kind of device only; the interface torch.cuda is that of both cuda and hip.
NVIDIA = r"nvidia-smi|cuDNN|CUDNN_ATTENTION|FlashAttention 3|CUDA graph|PYTORCH_CUDA_ALLOC|NVLink|TensorRT|tensor cores?"
AMD = r"AITER|ROCm|MIOpen|hipBLAS|HIP graph|PYTORCH_HIP_ALLOC|amd-smi|rocm-smi"
SHARED = r"torch\.cuda|backends\.cudnn|make_graphed|reduce-overhead|a graph|server's graphs|pin_memory|half precision and no"
OTHERS = {"cuda": AMD, "hip": NVIDIA, **dict.fromkeys(("cpu", "xpu", "mps"), f"{NVIDIA}|{AMD}|{SHARED}")}
FLASH = "aten::_scaled_dot_product_flash_attention"


def moved(made, device, name):
    """``made`` as if it had run on another device, whose kernels have other names."""

    def plain(one):
        return replace(one, kernels=(kernel("k"),) if one.kernels and device != "cpu" else ())

    coverage = made.coverage and replace(made.coverage, unmodeled=tuple(map(plain, made.coverage.unmodeled)))
    return replace(
        made, environment=replace(made.environment, device=device, device_name=name),
        operators=tuple(map(plain, made.operators)), coverage=coverage,
        idle_breakdown=None if device == "cpu" else made.idle_breakdown or {"host_bound_s": STEP_S / 2},
    )  # fmt: skip


@functools.cache
def made():
    """Analyses about which most rules have advice: those of the traces, and slow operators of each category on an idle device."""
    slow = [
        row(FLASH if one == "attention" else f"aten::{one}", 0.01, 0.001, category=one, shapes="64x64x64x64, 4096x4096",
            kernels=(kernel("k", grid=(500, 1, 1)),)) for one in categories.CATEGORIES
    ]  # fmt: skip
    unfused = row("aten::_scaled_dot_product_attention_math", 0.01, 0.001, category="attention", kernels=(kernel("k"),))
    work = (HostWork(kind="allocator", name="Malloc", calls=9, idle_s=0.01), HostWork(kind="compiled", name="c", calls=9, idle_s=0.03))
    idle = {"host_bound": 0.05, "kernel_wait": 0.01}
    given = [{"basis": Basis(loader_workers=workers)} for workers in (None, False)]
    return (
        *(analysis_of(path) for path in TRACES),
        *(analysis(one, idle=idle, host_work=work, compiled=compiled) for one in (*slow, unfused) for compiled in (False, True)),
        analysis(*slow[:5], idle=idle, host_work=work),
        *(analysis(idle={"data_loading": 0.05}, **more) for more in given),
    )


@pytest.mark.ci
@pytest.mark.parametrize(("device", "name"), DEVICES)
def test_no_sentence_names_what_another_kind_of_device_has(device, name):
    kind, said = DEVICES[device, name], 0
    for one in (moved(one, device, name) for one in made()):
        assert device_kind(one) == kind
        for rule in RULES:
            advice = rule(Case(one))
            if advice is not None:
                said += 1
                text = f"{advice.title}: {advice.suggestion}"
                assert not re.search(OTHERS[kind], text), (rule.__name__, text)
    assert said > 20


@pytest.mark.parametrize(("device", "name"), GPUS)
def test_the_tools_for_a_throttled_gpu_are_those_of_its_vendor(device, name):
    said = " ".join(finding.suggestion for finding in find_in_usage(moved(machine_analysis(), device, name)))
    assert ("nvidia-smi" in said, "amd-smi" in said) == ((False, True) if GPUS[device, name] == "hip" else (True, False))
