"""Sheets of a user's own: kept whole or not at all, refused by the field that does not fit, and before those of the package."""

import os
import re
from pathlib import Path

import pytest

from rooflines.device_specs import catalog, user_sheets
from rooflines.errors import DataError, OutputError, UsageError

DOCUMENTED = (Path(__file__).parents[2] / "docs" / "devices.md").read_text().split("```toml\n")[1].split("```")[0]


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    """The directory in which sheets are kept, empty at first."""
    monkeypatch.setenv("ROOFLINES_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config" / "devices"


def write(path, **changes):
    """The documented sheet at ``path`` with lines changed: ``name='"X"'`` replaces the first line that sets it."""
    text = DOCUMENTED
    for key, value in changes.items():
        text, count = re.subn(rf"(?m)^{key} = .*$", lambda match, key=key, value=value: f"{key} = {value}", text, count=1)
        assert count, key
    path.write_text(text)
    return path


def test_the_documented_sheet_is_kept_found_and_removed(tmp_path, kept):
    sheet, path = user_sheets.add(write(tmp_path / "mine.toml"))
    assert path == kept / "our_accelerator.toml"
    assert path.read_text() == DOCUMENTED
    assert user_sheets.user_sheets() == (sheet,)
    found = catalog.look_up("EXAMPLE accelerator 1")
    assert found.compute("bf16", "matrix").value == 163.8e12
    assert found.outermost_memory().value == 1600e9
    assert {one.source.kind for one in found.ceilings} == {"user"}
    assert user_sheets.remove("our accelerator") == path
    assert user_sheets.user_sheets() == ()
    with pytest.raises(UsageError, match="no data sheet"):
        catalog.look_up("Example Accelerator 1")


def test_a_users_sheet_comes_before_ours(tmp_path):
    ours = catalog.look_up("NVIDIA H200")
    user_sheets.add(write(tmp_path / "a.toml", name='"Our H200"', vendor='"NVIDIA"', names='["NVIDIA H200"]'))
    mine = catalog.look_up("NVIDIA H200")
    assert mine.compute("bf16", "matrix").value == 163.8e12 != ours.compute("bf16", "matrix").value
    # but only for what it is: another memory is another device
    assert catalog.look_up("NVIDIA H200", multiprocessors=132, memory_bytes=140 * 2**30).compute("bf16", "matrix").value == 989.4e12


def test_adding_again_replaces(tmp_path, kept):
    user_sheets.add(write(tmp_path / "a.toml"))
    user_sheets.add(write(tmp_path / "a.toml", gb_per_s="1700"))
    assert [path.name for path in kept.iterdir()] == ["our_accelerator.toml"]
    assert catalog.look_up("Example Accelerator 1").outermost_memory().value == 1700e9


def test_two_sheets_of_one_name_must_be_told_apart(tmp_path):
    user_sheets.add(write(tmp_path / "a.toml"))
    with pytest.raises(UsageError) as caught:
        user_sheets.add(write(tmp_path / "b.toml", name='"Another"'))
    assert "user data sheet 'Our accelerator' already matches 'example accelerator 1'" in caught.value.message
    assert caught.value.hint == "Remove it first: rooflines devices --remove 'Our accelerator'"
    user_sheets.add(write(tmp_path / "b.toml", name='"Another"', capacity_gb="32"))
    assert catalog.look_up("Example Accelerator 1", memory_bytes=32 * 2**30).compute("fp32", "vector").value == 20e12


# what is wrong, and where the message says it is
WRONG = {
    "not TOML": ("[memory]", "[memory", r"is not TOML: .*line 13"),
    "missing": ("gb_per_s = 1600\n", "", r"missing required field `gb_per_s` - at `\$\.memory`"),
    "misspelt": ("gb_per_s = 1600", "gbps = 1600", r"unknown field `gbps` - at `\$\.memory`"),
    "wrong type": ("count = 100", 'count = "100"', r"Expected `int`, got `str` - at `\$\.units\.count`"),
    "negative": ("mhz = 1600", "mhz = -1600", r"Expected `float` > 0.* - at `\$\.clocks\[...\]\.mhz`"),
    "no number": ("gb_per_s = 1600", "gb_per_s = nan", r"at `\$\.memory\.gb_per_s`"),
    "unused source": ("[sources]", '[sources]\nx = "y"', r"'x' is in `sources` but"),
    "twice": ('"bf16", engine = "matrix"', '"fp32", engine = "vector"', r"twice"),
    "infinite": ("tflop_per_s = 20,", "tflop_per_s = inf,", r"at `\$\.compute\[0\]\.tflop_per_s`"),
    "unit": ("top_per_s = 327.7", "tflop_per_s = 327.7", r"a rate of int8 must be given as `top_per_s` only - at `\$\.compute\[2\]`"),
    "precision": ('"bf16", engine', '"bf17", engine', r"Invalid enum value 'bf17' - at `\$\.compute\[1\]\.precision`"),
    "kind": ('kind = "cuda"', 'kind = "gpu"', r"Invalid enum value 'gpu' - at `\$\.kind`"),
    "clock": ('clock = "boost"', 'clock = "turbo"', r"refers to the clock 'turbo', which is not in `clocks`"),
    "half a product": ('per_cycle = 1024, clock = "boost", ', "per_cycle = 1024, ", r"`per_cycle` and `clock` must be given together"),
    "no source": ('count = 100\nsource = ["sheet"]', "count = 100", r"missing required field `source` - at `\$\.units`"),
    "unknown source": ('count = 100\nsource = ["sheet"]', 'count = 100\nsource = ["page"]', r"the source 'page' is not in `sources`"),
    "no names": ('names = ["Example Accelerator 1"]', "names = []", r"has no `names`\."),
    "empty name": ('names = ["Example Accelerator 1"]', 'names = ["NVIDIA"]', r"`names` contains 'NVIDIA', which is not a device name"),
}


@pytest.mark.parametrize(("old", "new", "message"), WRONG.values(), ids=WRONG)
def test_a_bad_file_is_refused_by_its_field_and_nothing_is_kept(tmp_path, kept, old, new, message):
    assert old in DOCUMENTED
    (tmp_path / "bad.toml").write_text(DOCUMENTED.replace(old, new))
    with pytest.raises((DataError, UsageError)) as caught:
        user_sheets.add(tmp_path / "bad.toml")
    assert re.search(message, caught.value.message)
    assert f"'{tmp_path / 'bad.toml'}'" in caught.value.message
    assert not kept.exists()


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"nothing\.toml': No such file"):
        user_sheets.add(tmp_path / "nothing.toml")
    with pytest.raises(DataError, match=r"Is a directory"):
        user_sheets.add(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"bytes\.toml' is not TOML"):
        user_sheets.add(tmp_path / "bytes.toml")


def test_removing_what_is_not_there_says_what_is(tmp_path):
    with pytest.raises(UsageError) as caught:
        user_sheets.remove("nothing")
    assert (caught.value.message, caught.value.hint) == ("no user data sheet is named 'nothing'.", "There are none.")
    user_sheets.add(write(tmp_path / "a.toml"))
    with pytest.raises(UsageError, match="There are: our_accelerator"):
        user_sheets.remove("H200 SXM5")  # ours cannot be removed


def test_a_kept_file_that_was_spoilt_is_named_and_can_be_removed(tmp_path):
    _, path = user_sheets.add(write(tmp_path / "a.toml"))
    path.write_text("name = 1\n")
    with pytest.raises(DataError) as caught:
        catalog.look_up("NVIDIA H200")
    assert str(path) in caught.value.message
    assert caught.value.hint == "Fix it or remove it: rooflines devices --remove our_accelerator"
    assert user_sheets.remove("our_accelerator") == path
    catalog.look_up("NVIDIA H200")


def test_a_place_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ROOFLINES_CONFIG_DIR", str(tmp_path / "file"))
    with pytest.raises(OutputError) as caught:
        user_sheets.add(write(tmp_path / "a.toml"))
    assert caught.value.message == f"cannot save the data sheet in '{tmp_path / 'file' / 'devices'}': Not a directory."
    assert "ROOFLINES_CONFIG_DIR" in caught.value.hint


def test_an_interrupt_leaves_the_old_file_and_nothing_else(tmp_path, kept, monkeypatch):
    user_sheets.add(write(tmp_path / "a.toml"))

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        user_sheets.add(write(tmp_path / "a.toml", gb_per_s="1700"))
    assert [path.name for path in kept.iterdir()] == ["our_accelerator.toml"]
    assert (kept / "our_accelerator.toml").read_text() == DOCUMENTED
