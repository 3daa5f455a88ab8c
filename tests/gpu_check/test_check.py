"""A rehearsal of the whole check on a CPU: what is written, that it is labeled, and that no command can ask for it."""

import json
import zipfile
from dataclasses import dataclass

import msgspec
import pytest

from rooflines.errors import OutputError
from rooflines.gpu_check import PARTS, check, chosen
from rooflines.gpu_check.page import page
from rooflines.gpu_check.records import GpuCheck
from rooflines.reports.render import html
from rooflines.serial import read_json


@dataclass
class Rehearsal:
    result: GpuCheck
    files: check.Files
    said: list[str]


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory):
    said = []
    found = check.find_device("cpu")
    result, files = check.run(chosen("counters"), found, tmp_path_factory.mktemp("check"), progress=said.append)
    return Rehearsal(result, files, said)


def test_the_record_is_labelled_and_what_needs_a_gpu_is_left_out(rehearsal):
    # Parts say their limits.
    (said,) = rehearsal.said
    assert said.startswith("counters: ")
    assert "(up to 5" in said
    assert [part.name for part in rehearsal.result.parts] == ["counters"]
    # The record is labeled and complete.
    found = read_json(rehearsal.files.json, GpuCheck)
    assert rehearsal.files.json.name == "gpu_check_rehearsal.json"
    assert found.rehearsal == "A rehearsal of the code on a CPU: no GPU was checked."
    assert found == rehearsal.result
    assert found.device.environment.host is None
    assert found.evidence == rehearsal.files.evidence.name
    # What needs a gpu is left out with its reason and is not ok.
    assert {part.outcome for part in rehearsal.result.parts} == {"left out"}
    assert all(part.reason for part in rehearsal.result.parts)
    assert not rehearsal.result.failed
    assert page(rehearsal.result).verdict == "GPU check without a result: no check had data."
    # Evidence and zip.
    names = {path.relative_to(rehearsal.files.evidence).as_posix() for path in rehearsal.files.evidence.rglob("*") if path.is_file()}
    assert {"device.json", "packages.txt", "nvidia-smi.txt", "counters/log.txt", "counters/findings.json"} <= names
    with zipfile.ZipFile(rehearsal.files.zip) as archive:
        inside = set(archive.namelist())
    assert {f"{rehearsal.files.evidence.name}/{name}" for name in names} <= inside
    assert {"gpu_check_rehearsal.json", "gpu_check_rehearsal.html"} <= inside


def test_an_output_that_cannot_be_written(rehearsal, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write the GPU check in"):
        check.run((), rehearsal.result.device, tmp_path / "file" / "below", progress=print)


def test_the_record_is_written_after_each_part(rehearsal, tmp_path, monkeypatch):
    """A machine that goes away leaves what was measured."""
    done = []

    def stops(part, device, folder, limit):
        if done:
            raise KeyboardInterrupt
        done.append(part.name)
        return rehearsal.result.parts[0]

    monkeypatch.setattr(check, "run_part", stops)
    with pytest.raises(KeyboardInterrupt):
        check.run(PARTS, rehearsal.result.device, tmp_path, progress=lambda line: None)
    assert [part["name"] for part in json.loads((tmp_path / "gpu_check_rehearsal.json").read_text())["parts"]] == ["counters"]


def test_a_page_that_fails_leaves_something_to_send(rehearsal, tmp_path, monkeypatch):
    def fails(result):
        raise KeyError("a figure")

    monkeypatch.setattr(check, "page", fails)
    with pytest.raises(KeyError):
        check.run((), rehearsal.result.device, tmp_path, progress=print)
    (archive,) = tmp_path.glob("*.zip")
    with zipfile.ZipFile(archive) as inside:
        assert "gpu_check_rehearsal.json" in inside.namelist()


def test_files_carry_the_name_of_the_device(rehearsal, tmp_path, monkeypatch):
    environment = msgspec.structs.replace(rehearsal.result.device.environment, device="cuda:0", device_name="NVIDIA GeForce RTX 4090")
    result, files = check.run((), msgspec.structs.replace(rehearsal.result.device, environment=environment), tmp_path, progress=print)
    assert files.json.name == "gpu_check_nvidia-geforce-rtx-4090.json"
    assert result.rehearsal == ""
    assert check.default_folder().parts[-2:] == ("benchmarks", "results")
    monkeypatch.setattr(check, "checkout", lambda: None)
    assert str(check.default_folder()) == "."


def test_the_page_shows_a_rehearsal_for_what_it_is(rehearsal):
    assert "no GPU was checked" in html.render(page(rehearsal.result))
