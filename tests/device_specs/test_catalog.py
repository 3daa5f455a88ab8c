"""The data sheets: each file is whole and agrees with itself, and each name a driver prints finds its own device or none."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rooflines.device_specs import catalog, detect
from rooflines.errors import DataError, UsageError

pytestmark = pytest.mark.unit

FILES = sorted((Path(catalog.__file__).parent / "data").glob("*.toml"))
EPYC = "AMD EPYC 7763 64-Core Processor"
XEON = "Intel(R) Xeon(R) Platinum 8480+"


def sheet(name):
    return next(one for one in catalog.sheets() if one.name == name)


@pytest.fixture
def machine(monkeypatch):
    """Pretend that this machine has the CPU ``name``."""

    def pretend(name, cores, isa=("avx2", "fma"), usable=None):
        monkeypatch.setattr(detect, "cpu", lambda: detect.Cpu(name=name, machine="x86_64", physical_cores=cores, isa=isa))
        monkeypatch.setattr(detect, "usable_cpus", lambda: tuple(range(usable or 2 * cores)))

    return pretend


# --- the files ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_valid_and_every_figure_has_a_source(path):
    read = catalog.read_sheet(path)
    for figure in (*read.compute, read.memory, read.units, *read.clocks.values()):
        assert read.cited(figure)
    # what is computed from something unconfirmed is itself unconfirmed
    for rate in read.compute:
        assert rate.unconfirmed or not (rate.derived and read.clocks[rate.clock].unconfirmed)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_units_x_rate_x_clock_is_the_listed_rate(path):
    read = catalog.read_sheet(path)
    assert "fp32" in {rate.precision for rate in read.compute}
    for rate in read.compute:
        computed = read.units.count * rate.per_cycle * read.hertz(rate)
        agrees = computed == pytest.approx(rate.per_second, rel=0.03)
        assert agrees != bool(rate.differs), f"{rate.precision} {rate.engine}: {computed:.4g} against {rate.per_second:.4g}"


def test_no_two_files_are_of_one_device():
    assert len(FILES) == 14
    assert len({one.name for one in catalog.sheets()}) == len(FILES)


# FLOP per SM and cycle on the vector units, FMA = 2: CUDA C++ Best Practices Guide, "Throughput of Native Arithmetic Instructions"
PER_SM = {"7.0": (128, 64), "7.5": (128, 4), "8.0": (128, 64), "8.6": (256, 4), "8.9": (256, 4), "9.0": (256, 128)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_vector_rates_are_those_of_the_compute_capability(path):
    read = catalog.read_sheet(path)
    if read.vendor == "NVIDIA":
        rates = {(rate.precision, rate.engine): rate.per_cycle for rate in read.compute}
        assert (rates["fp32", "vector"], rates["fp64", "vector"]) == PER_SM[read.compute_capability]
        # neither Volta nor Turing has them in hardware
        assert (("bf16", "matrix") in rates) == (float(read.compute_capability) >= 8)


# --- names -------------------------------------------------------------------------------------------------------------------------

# as torch.cuda.get_device_name, nvidia-smi (older drivers leave out "NVIDIA ") and ROCm print them
PRINTED = {
    "NVIDIA H200": "H200 SXM5",
    "NVIDIA H200 NVL": None,
    "NVIDIA H20": None,
    "NVIDIA GH200 480GB": None,
    "NVIDIA H100 80GB HBM3": "H100 SXM5 80GB",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 NVL": None,
    "NVIDIA H100": None,
    "NVIDIA H800": None,
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": None,
    "NVIDIA A100-SXM4-80GB": "A100-SXM4-80GB",
    "A100-SXM4-40GB": "A100-SXM4-40GB",
    "NVIDIA A100-SXM4-40GB": "A100-SXM4-40GB",
    "NVIDIA A100-SXM4-40GB MIG 3g.20gb": None,
    "NVIDIA A100-SXM-64GB": None,
    "NVIDIA A100-PCIE-40GB": None,
    "NVIDIA A100 80GB PCIe": None,
    "NVIDIA A800-SXM4-80GB": None,
    "NVIDIA A10G": "A10G",
    "NVIDIA A10": None,
    "NVIDIA L4": "L4",
    "NVIDIA L40": None,
    "NVIDIA L40S": None,
    "Tesla T4": "Tesla T4",
    "NVIDIA T4": "Tesla T4",
    "NVIDIA T400": None,
    "Tesla T40": None,
    "Tesla V100-SXM2-16GB": "Tesla V100 SXM2 16GB",
    "Tesla V100-SXM2-16GB-N": None,
    "Tesla V100-SXM2-32GB": None,
    "Tesla V100-SXM3-32GB": None,
    "Tesla V100-PCIE-16GB": None,
    "Tesla V100S-PCIE-32GB": None,
    "NVIDIA GeForce RTX 4090": "GeForce RTX 4090",
    "NVIDIA GeForce RTX 4090 D": None,
    "NVIDIA GeForce RTX 4090 Laptop GPU": None,
    "NVIDIA GeForce RTX 4080 SUPER": None,
    "GeForce RTX 3090": "GeForce RTX 3090",
    "NVIDIA GeForce RTX 3090": "GeForce RTX 3090",
    "NVIDIA GeForce RTX 3090 Ti": None,
    "NVIDIA GeForce RTX 2080 with Max-Q Design": None,
    "AMD Instinct MI300X": "Instinct MI300X",
    "AMD Instinct MI300X VF": "Instinct MI300X",
    "AMD Instinct MI300X OAM": "Instinct MI300X",
    "AMD Instinct MI300X HF": None,
    "AMD Instinct MI300A": None,
    "AMD Instinct MI308X": None,
    "AMD Radeon Graphics": None,
    "AMD EPYC 7763 64-Core Processor": "EPYC 7763",
    "AMD EPYC 7763 64-Core Processor  ": "EPYC 7763",
    "AMD EPYC 7763": "EPYC 7763",
    "AMD EPYC 7763v": None,
    "AMD EPYC 7713 64-Core Processor": None,
    "AMD EPYC": None,
    "Intel(R) Xeon(R) Platinum 8480+": "Xeon Platinum 8480+",
    "Intel(R) Xeon(R) Platinum 8480C": "Xeon Platinum 8480+",
    "Intel(R) Xeon(R) Platinum 8480CL": None,
    "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz": None,
    "Intel(R) Xeon(R) Platinum 8468": None,
    "": None,
}


@pytest.mark.parametrize(("printed", "expected"), PRINTED.items(), ids=lambda value: value or "none")
def test_printed_name_is_its_own_device_or_unknown(printed, expected):
    if expected is None:
        with pytest.raises(UsageError, match=r"^no data sheet for "):
            catalog.look_up(printed, cores=4)
        return
    found = catalog.look_up(printed, cores=4)
    assert found.device == printed.strip()
    [match] = [one for one in catalog.sheets() if one.matches(printed.strip())]
    assert match.name == expected
    assert found.kind == match.kind


def test_unknown_device_names_its_neighbours_and_the_way_out():
    with pytest.raises(UsageError) as caught:
        catalog.look_up("NVIDIA GeForce RTX 4090 D")
    near = "nearest: GeForce RTX 4090, GeForce RTX 3090"
    assert caught.value.message == f"no data sheet for 'NVIDIA GeForce RTX 4090 D'; {near}."
    assert "--ceilings measured" in caught.value.hint
    assert catalog.nearest("NVIDIA A100-SXM4-80GB MIG 3g.40gb")[0] == "A100-SXM4-80GB"
    assert catalog.nearest("Tenstorrent Wormhole") == ()


# --- ceilings ----------------------------------------------------------------------------------------------------------------------


def test_ceilings_of_an_h100():
    found = catalog.look_up("NVIDIA H100 80GB HBM3")
    assert found.kind == "cuda"
    assert found.compute("bf16", "matrix").value == 989.4e12  # dense; the sheet prints 1979, sparse
    assert found.compute("bf16", "matrix").accumulate == "fp32"
    assert found.compute("tf32", "matrix").value == 494.7e12
    assert found.compute("fp32", "vector").value == 67e12
    assert found.compute("fp64", "matrix").value == 67e12
    assert (found.compute("int8", "matrix").value, found.compute("int8", "matrix").unit) == (1978.9e12, "OP/s")
    memory = found.outermost_memory()
    assert (memory.level, memory.value, memory.capacity_bytes) == ("HBM", 3350e9, None)
    assert {one.source.kind for one in found.ceilings} == {"spec"}
    assert found.latency() is None


def test_geforce_matrix_roof_is_the_fp32_accumulate_rate():
    found = catalog.look_up("NVIDIA GeForce RTX 4090")
    assert {rate.accumulate for rate in sheet("GeForce RTX 4090").compute if rate.precision == "fp16"} == {"fp16", "fp32"}
    assert found.compute("fp16", "matrix").value == 165.2e12
    assert found.compute("fp8", "matrix").value == 330.3e12
    assert found.outermost_memory().level == "DRAM"


def test_computed_and_unconfirmed_figures_say_so():
    source = catalog.look_up("NVIDIA A10G").compute("int8", "matrix").source
    assert source.kind == "derived"
    assert source.detail.startswith("80 SM x 2048 OP/cycle x 1.71 GHz; ")
    assert source.detail.endswith("; unconfirmed")


def test_a_slice_of_a_cpu_computes_by_its_cores(machine):
    machine(EPYC, cores=16)
    found = catalog.look_up(EPYC)
    peak = found.compute("fp32", "vector")
    assert peak.value == pytest.approx(16 * 32 * 2.45e9, rel=1e-3)
    assert peak.source.kind == "derived"
    assert peak.source.detail.startswith("16 of 64 cores x 32 FLOP/cycle x 2.45 GHz (base clock, turbo exceeds it); ")
    memory = found.outermost_memory()
    assert (memory.value, memory.source.kind) == (204.8e9, "spec")
    assert memory.source.detail.startswith("the whole chip's, not scaled to 16 of 64 cores; ")


def test_cores_that_this_process_may_not_use_do_not_count(machine):
    machine(EPYC, cores=64, usable=8)
    assert catalog.look_up(EPYC).compute("fp32", "vector").value == pytest.approx(8 * 32 * 2.45e9, rel=1e-3)


def test_two_chips_have_two_memories(machine):
    machine(XEON, cores=112, isa=("avx512f", "amx_bf16"))
    found = catalog.look_up(XEON)
    assert found.compute("fp32", "vector").value == pytest.approx(112 * 64 * 2.0e9)
    assert found.compute("fp32", "vector").source.detail.startswith("112 cores (2 chips of 56) x ")
    assert found.outermost_memory().value == 2 * 307.2e9
    assert found.outermost_memory().source.kind == "derived"


def test_an_instruction_set_that_is_hidden_is_no_roof(machine):
    machine(XEON, cores=56, isa=("avx512f",))
    found = catalog.look_up(XEON)
    assert found.compute("fp32", "vector") is not None
    assert found.compute("bf16", "matrix") is None
    machine(XEON, cores=56, isa=("avx512f", "amx_bf16"))
    assert catalog.look_up(XEON).compute("bf16", "matrix").value == 114.7e12


def test_cores_of_a_run_from_elsewhere_must_be_given(machine):
    machine("some other CPU", cores=2)
    with pytest.raises(UsageError, match="how many of its 64 cores"):
        catalog.look_up(EPYC)
    assert catalog.look_up(EPYC, cores=32).compute("fp32", "vector").value == pytest.approx(5.018e12 / 2)


# --- what does not fit -------------------------------------------------------------------------------------------------------------

BROKEN = {
    "unit": ("tflop_per_s = 156,", "", r"a\.toml .*tf32 is given as `tflop_per_s`.*\$\.compute\[3\]"),
    "infinite": ("gb_per_s = 2039", "gb_per_s = inf", r"a\.toml .*\$\.memory\.gb_per_s"),
    "no number": ("gb_per_s = 2039", "gb_per_s = nan", r"a\.toml .*\$\.memory\.gb_per_s"),
    "number": ("gb_per_s = 2039", 'gb_per_s = "2039"', r"a\.toml .*\$\.memory\.gb_per_s"),
    "positive": ("gb_per_s = 2039", "gb_per_s = 0", r"a\.toml .*\$\.memory\.gb_per_s"),
    "precision": ('precision = "tf32"', 'precision = "tf16"', r"a\.toml .*\$\.compute\[3\]\.precision"),
    "no source": ('count = 108\nsource = ["ampere-blog", "gpumap"]', "count = 108", r"a\.toml .*`source`.*\$\.units"),
    "unknown source": ('source = ["ampere-blog", "gpumap"]', 'source = ["x"]', r"a\.toml .*'x' is not in `sources`"),
    "unused source": ("[sources]", '[sources]\nx = "y"', r"a\.toml .*'x' is in `sources` but"),
    "unknown field": ("[memory]", "[memory]\nbus_bits = 5120", r"a\.toml .*`bus_bits`.*\$\.memory"),
    "clock": ('clock = "boost"', 'clock = "turbo"', r"a\.toml .*'turbo'"),
    "twice": ('precision = "tf32", engine = "matrix"', 'precision = "fp32", engine = "vector"', r"a\.toml .*twice"),
    "pattern": ("['(NVIDIA )?", "['(NVIDIA ?", r"a\.toml .*`names` has .*no regular expression"),
    "toml": ("[memory]", "[memory", r"a\.toml is not TOML: .*line"),
}


@pytest.mark.parametrize(("old", "new", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused_by_name_and_field(tmp_path, old, new, message):
    text = next(path for path in FILES if path.stem == "a100_sxm_80gb").read_text()
    assert old in text
    (tmp_path / "a.toml").write_text(text.replace(old, new))
    with pytest.raises(DataError) as caught:
        catalog.read_sheet(tmp_path / "a.toml")
    assert re.search(message, caught.value.message)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"a\.toml: No such file"):
        catalog.read_sheet(tmp_path / "a.toml")


def test_the_catalogue_needs_neither_torch_nor_numpy():
    code = (
        "import sys; from rooflines.device_specs.catalog import look_up; look_up('NVIDIA H200'); "
        "print([name for name in ('torch', 'numpy', 'numba') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
