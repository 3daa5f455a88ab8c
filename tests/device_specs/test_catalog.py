"""The data sheets: each file is whole and agrees with itself, and each name a driver prints finds its own device or none."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from rooflines.device_specs import catalog, detect
from rooflines.errors import DataError, UsageError

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
    assert "fp32" in {rate.precision for rate in read.compute} or read.name == "Instinct MI308X"  # no two sources agree on it
    for rate in read.compute:
        computed = read.units.count * rate.per_cycle * read.hertz(rate)
        agrees = computed == pytest.approx(rate.per_second, rel=0.03)
        assert agrees != bool(rate.differs), f"{rate.precision} {rate.engine}: {computed:.4g} against {rate.per_second:.4g}"


def test_no_two_files_are_of_one_device():
    assert len(FILES) == 163
    assert len({one.name for one in catalog.sheets()}) == len(FILES)
    assert len(NVIDIA) >= 55


# FLOP per SM and cycle on the vector units, FMA = 2: CUDA C++ Best Practices Guide, "Throughput of Native Arithmetic Instructions"
PER_SM = {
    "3.7": (384, 128), "6.0": (128, 64), "6.1": (256, 8), "7.0": (128, 64), "7.5": (128, 4), "8.0": (128, 64), "8.6": (256, 4),
    "8.9": (256, 4), "9.0": (256, 128), "10.0": (256, 128), "10.3": (256, 4), "12.0": (256, 4), "12.1": (256, 4),
}  # fmt: skip


NVIDIA = [one for one in catalog.sheets() if one.vendor == "NVIDIA" and one.kind == "cuda"]


@pytest.mark.parametrize("read", NVIDIA, ids=lambda one: one.name)
def test_vector_rates_are_those_of_the_compute_capability(read):
    rates = {(rate.precision, rate.engine): rate.per_cycle for rate in read.compute}
    assert (rates["fp32", "vector"], rates["fp64", "vector"]) == PER_SM[read.compute_capability]
    # neither Volta nor Turing has them in hardware
    assert (("bf16", "matrix") in rates) == (float(read.compute_capability) >= 8)


# --- names -------------------------------------------------------------------------------------------------------------------------

# names.txt says how a line reads
LINE = re.compile(r"(?P<printed>.*?)(?: ; (?P<facts>.*))? => (?P<expected>.*)")
LINES = [line for line in (Path(__file__).parent / "names.txt").read_text().splitlines() if not line.startswith("#")]


def facts_of(text):
    """The facts after a name in names.txt: ``kind=cuda units=132 memory=79.1 system=Amazon EC2``."""
    found = dict(re.findall(r"(\w+)=(.*?)(?= \w+=|$)", text or ""))
    return catalog.SheetFacts(
        kind=found.get("kind"),
        units=int(found["units"]) if "units" in found else None,
        memory_bytes=round(float(found["memory"]) * 2**30) if "memory" in found else None,
        system=found.get("system"),
    )


@pytest.mark.parametrize("line", LINES)
def test_printed_name_is_its_own_device_or_unknown(line):
    parts = LINE.fullmatch(line)
    facts = facts_of(parts["facts"])
    if parts["expected"] == "unknown":
        with pytest.raises(UsageError, match=r"^no data sheet for | is needed to choose"):
            catalog.identify(parts["printed"], facts)
        return
    match = catalog.identify(parts["printed"], facts)
    assert match.sheet.name + (f" MIG {match.mig.profile}" if match.mig else "") == parts["expected"]


def test_names_are_many_and_of_both_kinds():
    unknown = sum(line.endswith("=> unknown") for line in LINES)
    assert len(LINES) >= 250
    assert 0.4 < unknown / len(LINES) < 0.6
    # every device of the package is found by a printed name, but for the package of two MI250X dies, which no driver shows as one
    found = {LINE.fullmatch(line)["expected"] for line in LINES}
    sizes = re.compile(r"(?P<chip>Apple M\d( Pro| Max| Ultra)?) \(\d+-core GPU\)")
    missing = {one.name for one in catalog.sheets() if one.name not in found and not sizes.fullmatch(one.name)}
    assert missing == {"Instinct MI250X (both GCDs)"}


@pytest.mark.parametrize("one", [one for one in catalog.sheets() if one.names], ids=lambda one: one.name)
def test_every_device_is_found_by_each_of_its_names_in_every_spelling(one):
    facts = catalog.SheetFacts(
        kind=one.kind, units=one.units.count if one.kind != "cpu" else None, system=one.systems[0] if one.systems else None
    )
    if one.memory.capacity_gb:
        facts = msgspec.structs.replace(facts, memory_bytes=round(one.memory.capacity_gb * 0.99 * 2**30))
    for name in one.names:
        spellings = {
            name,
            name.upper(),
            name.lower(),
            f"  {name.replace(' ', '  ')} ",
            name.replace(" ", "_"),
            name.replace("NVIDIA ", ""),
        }
        spellings |= {name.replace("(R)", "®"), name.replace("(R)", "").replace("(TM)", "")}
        for spelling in spellings:
            assert catalog.identify(spelling, facts).sheet is one, spelling
        # one more letter or digit makes it another device
        for other in (
            f"{name}X",
            f"{name} Ti",
            f"{name} SUPER",
            f"{name} Laptop GPU",
            f"{name} D",
            f"{name}-8Q",
            f"{name} with Max-Q Design",
        ):
            assert not any(match.sheet is one for match in catalog.matching(other, facts)), other


def test_a_device_is_found_without_reading_every_sheet():
    code = (
        "from rooflines.device_specs import catalog\n"
        "read = []\n"
        "catalog._sheet = lambda path: read.append(path.stem) or catalog.read_sheet(path)\n"
        "print(catalog.identify('NVIDIA H100 80GB HBM3').sheet.name, len(read))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    name, number = done.stdout.rsplit(maxsplit=1)
    assert name == "H100 SXM5 80GB"
    assert 1 <= int(number) < len(FILES) / 10


def test_what_is_missing_is_named():
    with pytest.raises(UsageError) as caught:
        catalog.look_up("NVIDIA GeForce RTX 3080")
    assert caught.value.message == (
        "'NVIDIA GeForce RTX 3080' may be GeForce RTX 3080 (10GB) or GeForce RTX 3080 (12GB); "
        "the number of SMs or the size of its memory is needed to choose."
    )
    with pytest.raises(UsageError, match=r"the maker of the machine is needed to choose\."):
        catalog.look_up("Neoverse-V2", cores=72)
    with pytest.raises(UsageError, match=r"the number of GPU cores is needed to choose\."):
        catalog.look_up("Apple M3 Pro")
    with pytest.raises(UsageError, match=r"with 80 units; of that name: GeForce RTX 3080 \(10GB\), GeForce RTX 3080 \(12GB\)"):
        catalog.look_up("NVIDIA GeForce RTX 3080", multiprocessors=80)
    with pytest.raises(UsageError, match=r"^no data sheet for 'NVIDIA GeForce RTX 4090' with 47\.4 GiB of memory; of that name: "):
        catalog.look_up("NVIDIA GeForce RTX 4090", memory_bytes=round(47.4 * 2**30))


def test_devices_of_the_catalogue():
    # Unknown device names its neighbors and the way out.
    with pytest.raises(UsageError) as caught:
        catalog.look_up("NVIDIA GeForce RTX 4090 D")
    assert caught.value.message.startswith("no data sheet for 'NVIDIA GeForce RTX 4090 D'; nearest: GeForce RTX 4090, ")
    assert "ceilings='measured'" in caught.value.hint
    assert catalog.nearest("NVIDIA A100-SXM4-80GB MIG 9g.90gb")[0] == "A100-SXM4-80GB"
    assert catalog.nearest("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz")[0] == "Xeon Platinum 8480+"
    assert catalog.nearest("Tenstorrent Wormhole") == ()
    # Ceilings of an h100.
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
    assert {one.source.kind for one in found.ceilings if one.kind != "link"} == {"spec"}
    assert found.latency() is None


# --- ceilings ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("device", "gb_per_s", "kind", "detail"), [
    ("NVIDIA H100 80GB HBM3", 63.0, "derived", "PCIe 5.0 x16: 32 GT/s x 16 lanes / 8 x 0.985 (line coding), before the headers"),
    ("Tesla V100-SXM2-32GB", 15.75, "derived", "PCIe 3.0 x16: 8 GT/s"),
    ("NVIDIA GeForce RTX 4060", 15.75, "derived", "PCIe 4.0 x8: 16 GT/s x 8 lanes"),
    ("NVIDIA GH200 480GB", 450, "spec", "NVLink-C2C; glennklockwood.com"),
])  # fmt: skip
def test_the_link_to_the_host(device, gb_per_s, kind, detail):
    links = {one.name: one for one in catalog.look_up(device).main("link")}
    assert set(links) == {"H2D", "D2H"}
    for link in links.values():
        assert link.value == pytest.approx(gb_per_s * 1e9, rel=1e-3)
        assert (link.unit, link.level, link.source.kind) == ("B/s", "host", kind)
        assert link.source.detail.startswith(detail)


@pytest.mark.parametrize("name", ["NVIDIA GB200", "NVIDIA GB10", "AMD Instinct MI300A", "Apple M2"])
def test_a_device_beside_the_host_has_no_link_unless_its_sheet_says_how_fast(name):
    units = 10 if name == "Apple M2" else None
    assert catalog.look_up(name, multiprocessors=units).main("link") == ()


def test_rates_of_a_sheet():
    # A slice may have all of the link.
    whole, part = (
        catalog.look_up(f"NVIDIA A100-SXM4-40GB{mig}", multiprocessors=units) for mig, units in (("", None), (" MIG 1g.5gb", 14))
    )
    assert part.main("link") == whole.main("link")
    assert part.main("link")
    # Geforce matrix roof is the fp32 accumulate rate.
    found = catalog.look_up("NVIDIA GeForce RTX 4090")
    assert {rate.accumulate for rate in sheet("GeForce RTX 4090").compute if rate.precision == "fp16"} == {"fp16", "fp32"}
    assert found.compute("fp16", "matrix").value == 165.2e12
    assert found.compute("fp8", "matrix").value == 330.3e12
    assert found.outermost_memory().level == "DRAM"
    # Computed and unconfirmed figures say so.
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


def test_what_of_a_machine_is_counted(machine):
    # Cores that this process may not use do not count.
    machine(EPYC, cores=64, usable=8)
    assert catalog.look_up(EPYC).compute("fp32", "vector").value == pytest.approx(8 * 32 * 2.45e9, rel=1e-3)
    # Two chips have two memories.
    machine(XEON, cores=112, isa=("avx512f", "amx_bf16"))
    found = catalog.look_up(XEON)
    assert found.compute("fp32", "vector").value == pytest.approx(112 * 64 * 2.0e9)
    assert found.compute("fp32", "vector").source.detail.startswith("112 cores (2 chips of 56) x ")
    assert found.outermost_memory().value == 2 * 307.2e9
    assert found.outermost_memory().source.kind == "derived"
    # An instruction set that is hidden is no roof.
    machine(XEON, cores=56, isa=("avx512f",))
    found = catalog.look_up(XEON)
    assert found.compute("fp32", "vector") is not None
    assert found.compute("bf16", "matrix") is None
    machine(XEON, cores=56, isa=("avx512f", "amx_bf16"))
    assert catalog.look_up(XEON).compute("bf16", "matrix").value == 114.7e12
    # Cores of a run from elsewhere must be given.
    machine("some other CPU", cores=2)
    with pytest.raises(UsageError, match=r"the number of active cores \(of 64\)"):
        catalog.look_up(EPYC)
    assert catalog.look_up(EPYC, cores=32).compute("fp32", "vector").value == pytest.approx(5.018e12 / 2)


# --- what does not fit -------------------------------------------------------------------------------------------------------------

BROKEN = {
    "unit": ("tflop_per_s = 156,", "", r"a\.toml .*tf32 must be given as `tflop_per_s`.*\$\.compute\[3\]"),
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
    "names": (
        'names = ["NVIDIA A100-SXM4-80GB"]',
        'names = ["NVIDIA"]',
        r"a\.toml .*`names` contains 'NVIDIA', which is not a device name",
    ),
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
