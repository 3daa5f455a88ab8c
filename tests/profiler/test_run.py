"""The run directory: what it is called, when it may be written, that what is written loads again."""

import json

import pytest

from rooflines.device_specs.records import Ceilings
from rooflines.errors import OutputError, RunError
from rooflines.profiler.directory import JOURNAL_FILE, check_directory, create_directory, default_directory, file_stem, load, save
from rooflines.profiler.records import RUN_SCHEMA, Environment, RunFile, Settings, StepTimes, Workload
from rooflines.profiler.samplers.fields import Counter, DeviceSample
from rooflines.profiler.samplers.storage import Entry, write_entry
from tests.samples import ceilings

FACTS = RunFile(
    status="complete",
    created="2026-11-20T10:55:00+00:00",
    workload=Workload(name="resnet50", mode="training", batch_size=4, unit="images", image_size=224, optimizer="SGD"),
    environment=Environment(
        host="h", os="Linux", python="3.11", rooflines="0.1.0", torch="2.14.1", device="cpu", device_name="a CPU", threads=2
    ),
    settings=Settings(command="rooflines profile --model resnet50", steps=3, warmup=2, seed=7),
    steps=StepTimes(warmup_ns=(9, 8), timed_ns=(7, 6, 5), traced_ns=(8,), settled=True, rule="as asked"),
    ceilings=Ceilings(device="a CPU", kind="cpu", ceilings=ceilings()),
    trace="resnet50.pt.trace.json.gz",
    peak_memory_bytes=1 << 30,
    peak_memory_kind="resident set",
    notes=("one", "two"),
)
SAMPLES = tuple(DeviceSample(time_ns=i, source="psutil", process_rss_bytes=i << 20) for i in range(3))


def test_what_is_saved_loads_again(tmp_path):
    saved = save(tmp_path, FACTS, SAMPLES)
    loaded = load(tmp_path)
    assert loaded == saved
    assert loaded.facts == FACTS
    assert loaded.samples == SAMPLES
    assert loaded.trace_path == tmp_path / "resnet50.pt.trace.json.gz"


def test_what_nobody_measured_is_absent_from_the_file(tmp_path):
    save(tmp_path, FACTS)
    plain = json.loads((tmp_path / "run.json").read_text())
    assert plain["schema"] == RUN_SCHEMA
    assert "driver" not in plain["environment"]
    assert "error" not in plain
    assert load(tmp_path).samples == ()


def test_a_run_that_has_only_begun_loads(tmp_path):
    save(tmp_path, RunFile(workload=FACTS.workload, environment=FACTS.environment))
    loaded = load(tmp_path)
    assert loaded.facts.status == "running"
    assert loaded.trace_path is None


def test_a_run_that_was_killed_has_the_samples_of_its_journal(tmp_path):
    counter = Counter(source="psutil", device="host", field="process_rss_bytes")
    save(tmp_path, RunFile(workload=FACTS.workload, environment=FACTS.environment, notes=("one",)))
    with (tmp_path / JOURNAL_FILE).open("wb") as file:
        for entry in (Entry(problem="No GPU is sampled."), Entry(counter=counter), *(Entry(sample=sample) for sample in SAMPLES)):
            write_entry(file, entry)
        file.write(b'{"sample":{"time_ns"')
    loaded = load(tmp_path)
    assert loaded.samples == SAMPLES
    assert loaded.facts.counters == (counter,)
    assert loaded.facts.notes == ("one", "device samples: No GPU is sampled.")


def test_the_table_counts_where_there_is_one(tmp_path):
    save(tmp_path, FACTS, SAMPLES[:2])
    (tmp_path / JOURNAL_FILE).write_text("left behind\n")
    assert load(tmp_path).samples == SAMPLES[:2]


def test_a_newer_field_does_not_stop_an_older_reader(tmp_path):
    save(tmp_path, FACTS)
    plain = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**plain, "invented_later": 1}))
    assert load(tmp_path).facts == FACTS


def test_writing_where_there_is_no_directory_is_our_error(tmp_path):
    with pytest.raises(OutputError, match="cannot write the run"):
        save(tmp_path / "gone", FACTS, SAMPLES)


def test_another_schema_is_named_before_its_fields_are_read(tmp_path):
    (tmp_path / "run.json").write_text('{"schema": "rooflines.run/2", "workload": 3}')
    with pytest.raises(RunError, match=r"has schema 'rooflines\.run/2'; this version of rooflines reads 'rooflines\.run/1'"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "stem"),
    [("resnet50", "resnet50"), ("hf:org/model", "hf-org-model"), ("../../etc/x.py:f", "etc-x.py-f"), ("...", "run"), ("ü" * 9, "run"),
     ("a" * 200, "a" * 80)],
)  # fmt: skip
def test_file_names_are_plain(name, stem):
    assert file_stem(name) == stem


def test_default_directories_never_collide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = []
    for _ in range(3):
        made.append(default_directory("net", "inference"))
        create_directory(made[-1])
    assert len(set(made)) == 3
    assert all(path.parts[0] == "runs" and path.name.startswith("net-inference-") for path in made)


def test_checking_leaves_nothing_behind(tmp_path):
    check_directory(tmp_path / "a" / "b")
    check_directory(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_used_only_when_empty(tmp_path):
    create_directory(tmp_path / "a" / "b")
    create_directory(tmp_path / "a" / "b")
    with pytest.raises(OutputError, match=r"is not empty \(1 entry\)"):
        create_directory(tmp_path / "a")
