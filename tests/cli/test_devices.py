"""``rooflines devices``: the list, one device, data, a user's own sheet, and what is refused."""

import csv
import io
import json
from pathlib import Path

import pytest

from rooflines.device_specs import catalog
from tests.commands import call, mounted

DOCUMENTED = (Path(__file__).parents[2] / "docs" / "devices.md").read_text().split("```toml\n")[1].split("```")[0]


@pytest.fixture
def ask(tmp_path, capsys, monkeypatch):
    """``rooflines devices ARGUMENTS`` on a terminal of 80 columns, with an empty configuration directory."""
    monkeypatch.setenv("ROOFLINES_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "mine.toml").write_text(DOCUMENTED)
    return lambda *arguments: call(capsys, monkeypatch, "devices", *arguments)


def listed(answer):
    return [row["device"] for row in csv.DictReader(io.StringIO(answer.out)) if row["figure"] == "bandwidth"]


def test_the_list_has_every_device_and_fits_80_columns(ask):
    answer = ask()
    assert answer.code == 0
    assert max(map(len, answer.out.splitlines())) <= 80
    for name in ("H100 SXM5 80GB", "Apple M3 Pro (14-core GPU)", "EPYC 9654", "Arc B580", "Graviton4"):
        assert f"\n  {name} " in answer.out
    assert f"{len(catalog.sheets())} devices" in answer.out
    (row,) = [line for line in answer.out.splitlines() if line.startswith("  H200 SXM5")]
    assert row.split()[2:] == ["141", "4800", "67.0", "989", "1979", "700"]
    (row,) = [line for line in answer.out.splitlines() if line.startswith("  GeForce RTX 4090  ")]
    assert row.split()[3:] == ["24", "1008", "82.6", "165", "661", "450"]  # FP32 accumulate: 165, not 330


@pytest.mark.parametrize(("filters", "holds"), [
    (["--vendor", "apple"], lambda sheet: sheet.vendor == "Apple"),
    (["--kind", "cpu"], lambda sheet: sheet.kind == "cpu"),
    (["--kind", "gpu", "--vendor", "Intel"], lambda sheet: sheet.kind == "xpu"),
    (["--architecture", "hopper"], lambda sheet: "Hopper" in sheet.architecture),
    (["--architecture", "8.9"], lambda sheet: sheet.compute_capability == "8.9"),
    (["--min-bandwidth", "3000"], lambda sheet: sheet.memory.gb_per_s >= 3000),
    (["--min-memory", "100", "--kind", "cuda"], lambda sheet: sheet.kind == "cuda" and sheet.memory.capacity_gb >= 100),
    (["--precision", "fp8"], lambda sheet: sheet.rate("fp8", "matrix") is not None),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")  # fmt: skip
def test_filters(ask, filters, holds):
    names = listed(ask(*filters, "--format", "csv"))
    assert sorted(names) == sorted(one.name for one in catalog.sheets() if holds(one))
    assert names


def test_one_device_has_every_figure_with_its_source(ask):
    answer = ask("NVIDIA A10G")
    assert answer.code == 0
    assert max(map(len, answer.out.splitlines())) <= 80
    (sheet,) = [one for one in catalog.sheets() if one.name == "A10G"]
    for rate in sheet.compute:
        assert f"{rate.tflop_per_s or rate.top_per_s:g}" in answer.out
    for text in ("80 SM", "600 GB/s", "24 GB GDDR6", "300 W", "1710 MHz", "derived, unconfirmed", "Printed as NVIDIA A10G", "no roof"):
        assert text in answer.out
    unwrapped = " ".join(answer.out.split())
    for number, text in enumerate(sheet.sources.values(), 1):
        assert f"[{number}] {' '.join(text.split())}" in unwrapped


@pytest.mark.parametrize(("words", "names"), [
    (["rtx", "4090"], ["GeForce RTX 4090"]),
    (["rtx", "4070", "ti"], ["GeForce RTX 4070 Ti"]),
    (["4090 laptop"], ["GeForce RTX 4090 Laptop GPU"]),
    (["l4"], ["L4"]),
    (["RTX 3080"], ["GeForce RTX 3080 (10GB)", "GeForce RTX 3080 (12GB)"]),
    (["NVIDIA GeForce RTX 3080"], ["GeForce RTX 3080 (10GB)", "GeForce RTX 3080 (12GB)"]),
    (["Apple M1 Max (24-core GPU)"], ["Apple M1 Max (24-core GPU)"]),
    (["mi300x"], ["Instinct MI300X"]),
    (["AMD EPYC 7763 64-Core Processor"], ["EPYC 7763"]),
], ids=str)  # fmt: skip
def test_a_device_is_found_by_printed_name_by_its_own_and_by_words(ask, words, names):
    assert listed(ask(*words, "--format", "csv")) == names


@pytest.mark.ci
def test_sheets_are_shown_as_table_json_and_csv(ask):
    # A slice is shown as its device.
    out = " ".join(ask("NVIDIA A100-SXM4-40GB MIG 1g.5gb").out.split())
    assert out.startswith("A100-SXM4-40GB NVIDIA")
    assert "The name is that of a slice, 1g.5gb" in out
    # Json holds the sheets.
    found = json.loads(ask("H200", "--format", "json").out)
    names = [one["name"] for one in found]
    assert names == ["H200 SXM5"]
    memory = found[0]["memory"]
    assert (memory["technology"], memory["gb_per_s"], memory["capacity_gb"], memory["unconfirmed"]) == ("HBM3e", 4800, 141, False)
    assert set(memory["source"]) <= set(found[0]["sources"])
    assert found[0]["user"] is False
    assert len(json.loads(ask("--format", "json").out)) == len(catalog.sheets())
    # Csv has a row a figure in base units.
    rows = list(csv.DictReader(io.StringIO(ask("--format", "csv").out)))
    assert len(rows) > 1400
    assert all(row["source"] and row["unit"] and float(row["value"]) > 0 for row in rows)
    (bf16,) = [row for row in rows if row["device"] == "H100 SXM5 80GB" and row["precision"] == "bf16"]
    assert (float(bf16["value"]), bf16["unit"], bf16["accumulate"], bf16["derived"]) == (989.4e12, "FLOP/s", "fp32", "false")


@pytest.mark.ci
def test_a_sheet_of_ones_own_is_added_listed_and_removed(ask, tmp_path):
    answer = ask("--add", tmp_path / "mine.toml")
    kept = tmp_path / "config" / "devices" / "our_accelerator.toml"
    assert (answer.code, answer.out) == (0, f"saved Our accelerator in {kept}\n")
    assert "Our accelerator (yours)" in ask("--vendor", "example").out
    assert "your own sheet" in ask("Example Accelerator 1").out
    assert json.loads(ask("accelerator", "--format", "json").out)[0]["user"] is True
    answer = ask("--remove", "Our accelerator")
    assert (answer.code, answer.out) == (0, f"removed {kept}\n")
    assert ask("Example Accelerator 1").code == 2


@pytest.mark.parametrize(("arguments", "message", "hint"), [
    (["NVIDIA GeForce RTX 4090 D"], "no data sheet for 'NVIDIA GeForce RTX 4090 D'.", "Nearest: GeForce RTX 4090, "),
    (["4090 d"], "no data sheet for '4090 d'.", "Nearest: GeForce RTX 4090, "),
    (["Tenstorrent Wormhole"], "no data sheet for 'Tenstorrent Wormhole'.", "rooflines devices lists all."),
    (["--vendor", "nvidea"], "no device matches all of these filters.", "Vendors: AMD, AWS, Apple, Intel, NVIDIA."),
    (["--architecture", "zan"], "no device matches all of these filters.", "Architectures: Ada, "),
    (["--vendor", "apple", "--min-bandwidth", "9000"], "no device matches all of these filters.", "Remove one of the filters."),
    (["--kind", "tpu"], "invalid value for '--kind'", "See rooflines devices --help."),
    (["H200", "--remove", "H200"], "NAME, --add and --remove cannot be combined.", "Give one of them."),
    (["--remove", "H200 SXM5"], "no user data sheet is named 'H200 SXM5'.", "There are none."),
    (["--add", "nothing.toml"], "cannot read the data sheet 'nothing.toml': No such file or directory.", ""),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")  # fmt: skip
def test_what_cannot_be_done_is_one_line_and_a_hint(ask, arguments, message, hint):
    answer = ask(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.complaint[0].startswith(f"rooflines: {message}")
    assert len(answer.complaint) == (2 if hint else 1)
    if hint:
        assert answer.complaint[1].startswith(f"  {hint}")


def test_a_bad_file_names_its_field(ask, tmp_path):
    (tmp_path / "bad.toml").write_text(DOCUMENTED.replace("gb_per_s = 1600", 'gb_per_s = "1600"'))
    answer = ask("--add", tmp_path / "bad.toml")
    message = f"the data sheet '{tmp_path / 'bad.toml'}' is not valid: Expected `float | null`, got `str`"
    assert answer.code == 2
    assert answer.complaint[0].replace("float | null", "float").startswith(f"rooflines: {message.replace('float | null', 'float')}")
    assert "$.memory.gb_per_s" in answer.complaint[0]


def test_a_read_only_directory_is_one_line(ask, tmp_path):
    (tmp_path / "config").mkdir()
    with mounted("-t", "tmpfs", "-o", "ro", "tmpfs", tmp_path / "config"):
        answer = ask("--add", tmp_path / "mine.toml")
        assert answer.code == 2
        assert answer.complaint[0].endswith("Read-only file system.")
        assert ask("H200").code == 0


def test_a_file_is_written_in_the_format_of_its_suffix(ask, tmp_path):
    assert ask("H200", "-o", tmp_path / "sheet.pdf").out == ""
    assert (tmp_path / "sheet.pdf").read_bytes().startswith(b"%PDF")
