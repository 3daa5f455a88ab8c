"""The zip for a bug report: planted names and secrets are in none of its files, also not in compressed ones."""

import gzip
import json
import math
import random
import time
import zipfile

import pytest

from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.profiler.samplers.storage import write_samples
from tests.gpu import evidence
from tests.gpu import redaction as redacting
from tests.gpu.redaction import Redaction

PLANTED = {
    "host": "falcon-7", "user": "wendeline", "home": "/srv/people/wendeline", "token": "s3cr3t-t0ken", "address": "10.11.12.13",
    "shape": "hf_abcdefghijklmnopqrst",
}  # fmt: skip
EVERYTHING = " ".join(PLANTED.values())


@pytest.fixture
def redaction():
    return Redaction([PLANTED["host"]], [PLANTED["user"]], [PLANTED["home"]], [PLANTED["token"]])


@pytest.fixture
def folder(tmp_path):
    """A folder of evidence with everything planted in each file, a run and what a check collects."""
    place = tmp_path / "gpu_check_x-1"
    run = place / "profiles" / PLANTED["user"]
    run.mkdir(parents=True)
    facts = {
        "environment": {"host": PLANTED["host"]},
        "settings": {"command": f"cd {PLANTED['home']} && rooflines profile --model {EVERYTHING}"},
    }
    (run / "run.json").write_text(json.dumps(facts))
    (run / "analysis.json").write_text(json.dumps({"notes": [EVERYTHING], "value": 1}))
    trace = {"traceName": f"{PLANTED['home']}/t.json", "hostname": PLANTED["host"], "traceEvents": [{"name": EVERYTHING, "ts": 1.5}]}
    (run / "x.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
    (run / "report.html").write_text(EVERYTHING)
    (run / "operators.parquet").write_bytes(EVERYTHING.encode())
    write_samples(
        [DeviceSample(time_ns=1, source="nvml", device="cuda:0", power_w=320.0, throttle_reasons=EVERYTHING)], run / "samples.parquet"
    )
    for name in ("log.txt", "counters.csv", "samples.jsonl", "packages.txt", "nvidia-smi.txt"):
        (place / name).write_text(f"line\n{EVERYTHING}\n")
    (tmp_path / "gpu_check_x.json").write_text(json.dumps({"found": EVERYTHING}))
    return place


def contents(path):
    """Every file of the zip with its name, compressed ones unpacked, as one text each."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            yield name, (gzip.decompress(content) if name.endswith(".gz") else content).decode()


def bundle(folder, redaction, **options):
    target = folder.with_suffix(".zip")
    files = [folder.parent / "gpu_check_x.json"]
    return target, redacting.bundle(files, folder, target, redaction, until=options.pop("until", math.inf), **options)


def test_nothing_planted_is_in_the_zip_and_what_is_no_secret_stays(folder, redaction):
    # Nothing planted is in the zip.
    target, omitted = bundle(folder, redaction)
    found = dict(contents(target))
    assert len(found) == 11
    for name, text in found.items():
        for what, secret in PLANTED.items():
            assert secret not in text, f"the {what} is in {name}"
            assert secret not in name
    raw = target.read_bytes()
    assert all(secret.encode() not in raw for secret in PLANTED.values())  # names, comments and directories of the zip itself
    # What is no secret stays.
    place = "gpu_check_x-1/profiles/(user)"
    assert json.loads(found[f"{place}/x.pt.trace.json.gz"])["traceEvents"][0]["ts"] == 1.5
    assert json.loads(found[f"{place}/analysis.json"])["value"] == 1
    assert "rooflines profile --model" in json.loads(found[f"{place}/run.json"])["settings"]["command"]
    (sample,) = found[f"{place}/samples.jsonl"].splitlines()  # the table of samples, as a text
    assert json.loads(sample)["power_w"] == 320.0
    # the folder itself keeps everything as it was
    assert PLANTED["host"] in (folder / "log.txt").read_text()
    # What cannot be redacted is left out and listed.
    assert len(omitted) == 2
    listed = found["gpu_check_x-1/left_out.txt"].splitlines()
    assert listed == omitted
    assert any("report.html: " in line for line in listed)
    assert any("operators.parquet: " in line for line in listed)


def test_what_is_too_large_or_cut_off_is_left_out_alone(folder, redaction):
    # A large trace leaves out nothing but itself.
    (folder / "large.txt").write_text(random.Random(0).randbytes(50_000).hex())
    _, omitted = bundle(folder, redaction, most_bytes=10_000)
    assert [line for line in omitted if "would exceed" in line] == ["gpu_check_x-1/large.txt: the zip would exceed 0 MB"]
    _, omitted = bundle(folder, redaction, until=time.monotonic() - 1)
    assert all("no time was left" in line for line in omitted)
    # As of a run that was stopped while it wrote its trace.
    trace = folder / "profiles" / PLANTED["user"] / "x.pt.trace.json.gz"
    trace.write_bytes(trace.read_bytes()[:-12])
    _, omitted = bundle(folder, redaction)
    assert [line for line in omitted if "cannot be read" in line] == [
        "gpu_check_x-1/profiles/(user)/x.pt.trace.json.gz: cannot be read: EOFError"
    ]


def test_facts_are_collected_without_addresses_and_without_a_driver(monkeypatch):
    # Packages have versions and no addresses.
    found = evidence.packages()
    assert any(line.startswith("torch==") for line in found)
    assert found == sorted(found)
    assert not any("://" in line or " @ " in line for line in found)
    # Facts are collected without a driver.
    monkeypatch.setattr(evidence.shutil, "which", lambda name: None)
    assert evidence.driver_facts() == "nvidia-smi is not installed\n"
