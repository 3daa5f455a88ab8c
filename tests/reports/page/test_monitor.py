"""A monitored program in a terminal, as a page and in TensorBoard: on machines that tests do not have, and where little is known."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from rooflines.profiler.monitor.monitored import Ending, Monitored, MonitorFile, program_name, since
from rooflines.profiler.records import Environment
from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.reports.page import measured
from rooflines.reports.page.monitor import headline, host_rows, title
from rooflines.reports.page.monitor import page as page_of
from rooflines.reports.page.monitor import timeline as timeline_of
from rooflines.reports.render import html, tensorboard
from rooflines.roofline.judge.usage.device_usage import analyze_monitored
from tests.printing import curves, in_terminal
from tests.usage_samples import BEGAN_NS, COUNTERS, gpu_samples, host_samples, machine_samples

SECOND_NS = 1_000_000_000
HOSTILE = "</script><script>alert(1)</script>\x1b[31m"


def monitored(samples, **changes):
    facts = MonitorFile(
        status="complete", created="2026-11-20T10:00:00+00:00", program="python train.py",
        command=("python", "train.py", "--key", "4711"),
        pid=7, period_s=0.1, began_ns=BEGAN_NS, ended_ns=BEGAN_NS + 5 * SECOND_NS,
        ending=Ending(exit_code=0, wall_s=5.0, user_cpu_s=6.0, system_cpu_s=1.5, largest_rss_bytes=3 << 30),
        environment=Environment(rooflines="0", device="cpu", device_name="a CPU", cpu="a CPU", cpu_threads=2, memory_bytes=24 << 30),
        gpus={"cuda:0": "NVIDIA H100", "cuda:1": "NVIDIA H100"}, counters=COUNTERS,
    )  # fmt: skip
    return Monitored(directory=Path("nowhere"), facts=replace(facts, **changes), samples=tuple(samples))


def analysis(samples=(), **changes):
    return analyze_monitored(monitored(samples, **changes))


def printed(found, width=80):
    return in_terminal(page_of(found), width, color_system=None)


def test_the_table_on_a_machine_with_two_gpus():
    text = printed(analysis(machine_samples()))
    lines = text.splitlines()
    assert lines[0].startswith("python train.py · 5.00 s · exit code 0  ")
    assert max(map(len, lines)) <= 80
    cells = {line.strip().split("  ")[0]: line for line in reversed(lines)}
    # 7.5 s of the processors in 5 s, by the system's account and not by the samples' 1.3.
    assert re.search(r"cores busy +1\.50 +1\.50 +of 2", cells["cores busy"])
    assert re.search(r"CPU time +7\.50 s  20 % in the system", cells["CPU time"])
    assert "3.00 GiB" in cells["resident memory"]
    assert re.search(r"CPU power +90\.0 W .*450 J \(±", cells["CPU power"])
    assert re.search(r"1\.68 kJ ±2 % +33\d W +35\d W +350 W +94 %", cells["cuda:0"])
    assert re.search(r"1\d\d W +1\d\d W +350 W +14 %", cells["cuda:1"])
    assert "throttled for 1.10 s (software power cap 22 %)" in " ".join(text.split())
    assert "cuda:0, cuda:1: NVIDIA H100" in text
    assert "4711" not in text
    assert "\x1b" not in text


def part_of_the_host(device, watts):
    """A RAPL counter beside that of the packages."""
    return [
        replace(one, device=device, energy_j=watts * ((one.time_ns - BEGAN_NS) / SECOND_NS + 100))
        for one in host_samples()
        if one.source == "rapl"
    ]


PARTS = (*part_of_the_host("dram", 10), *part_of_the_host("psys", 180))


@pytest.mark.ci
def test_memory_and_board_are_rows_of_the_host_and_no_gpus():
    found = analysis((*gpu_samples(process_memory_bytes=5 << 30), *host_samples(), *PARTS))
    rows = {row.name: row for row in host_rows(found)}
    assert [rows[name].mean for name in ("CPU power", "memory power", "board power")] == ["90.0 W", "10.0 W", "180 W"]
    assert rows["memory power"].total.startswith("50.0 J (±")
    # What a GPU holds for the program is told, also beside counters of the host that know of no memory.
    (table,) = (table for table in page_of(found).tables() if table.name == "devices")
    (row,) = table.rows
    assert row.cells[0] == "cuda:0"
    assert row.cells[[(one.label, one.unit) for one in table.columns].index(("memory", "this run"))] == "5.00 GiB"
    assert "dram" not in headline(found)
    assert "psys" not in headline(found)
    page = html.render(page_of(found))
    assert ">cuda:0: " in page
    assert "<p>dram: " not in page


def test_a_lost_gpu_was_throttled_for_its_share_of_the_time_until_then():
    until = BEGAN_NS + 2 * SECOND_NS
    held = [
        replace(one, throttle_reasons="software power cap" if one.time_ns >= until - SECOND_NS // 2 else "")
        for one in gpu_samples()
        if one.time_ns < until
    ]
    found = analysis(held, ended_ns=BEGAN_NS + 60 * SECOND_NS)
    text = printed(found)
    assert "(software power cap 25 %)" in text  # ten readings of forty
    assert "its samples end before the window does." in " ".join(text.split())


@pytest.mark.ci
def test_without_a_gpu_there_is_no_table_of_gpus_and_with_some_one_sentence():
    found = analysis((*host_samples(), *PARTS))
    assert "GPUs" not in printed(found)
    assert "Devices, from their samples" not in html.render(page_of(found))
    found = analysis(machine_samples())
    assert "Devices, from their samples" in html.render(page_of(found))
    assert headline(found).startswith(
        "Used 1.50 of 2 cores on average and up to 3.00 GiB of memory. cuda:0 was busy 94 % of the time and used 1.68 kJ"
    )


@pytest.mark.parametrize(
    ("largest", "peak", "remark"),
    [(5 << 30, "5.00 GiB", "its largest process (kernel)"), (None, "3.00 GiB", "RSS of all its processes")],
)
def test_the_kernels_peak_counts_where_readings_missed_it(largest, peak, remark):
    ending = Ending(exit_code=0, wall_s=5.0, user_cpu_s=6.0, system_cpu_s=1.5, largest_rss_bytes=largest)
    resident = next(row for row in host_rows(analysis(host_samples(), ending=ending)) if row.name == "resident memory")
    assert (resident.peak, resident.remark) == (peak, remark)


def test_what_is_not_measured_is_said():
    # What is not measured is not in the table and a line says why.
    bare = [DeviceSample(time_ns=BEGAN_NS + index * SECOND_NS, source="psutil", process_rss_bytes=1 << 20) for index in range(5)]
    text = printed(analysis(bare, ending=None, notes=("No GPU is sampled: NVML is not available.",)))
    assert [line.strip().split("  ")[0] for line in text.splitlines()[4:7]] == ["Resource usage", "mean", "resident memory"]
    assert "CPU power is not measured: this system shows no RAPL energy counters." in text
    assert "No GPU is sampled: NVML is not available." in text
    assert "GPU  " not in text
    kept = printed(analysis(bare, notes=("CPU power is not sampled: permission denied.",)))
    assert kept.count("CPU power") == 1
    # Energy that cannot be told and nothing sampled are said.
    short = [sample for sample in gpu_samples() if 0 <= sample.time_ns - BEGAN_NS < SECOND_NS // 4]
    assert "cuda:0: no joules, because " in printed(analysis(short, ended_ns=BEGAN_NS + SECOND_NS // 4))
    found = analysis()
    assert found.usage is None
    assert "Nothing was sampled: the program ended before the first reading." in " ".join(printed(found).split())
    assert "Nothing was sampled" in html.render(page_of(found))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    text = printed(analysis(machine_samples(), program=HOSTILE), width)
    assert max(map(len, text.splitlines())) <= width


def test_title_and_timeline():
    # The title says how it ended.
    assert title(analysis(ending=Ending(exit_code=137, signal=9, wall_s=1.0, user_cpu_s=0, system_cpu_s=0))).endswith(
        "ended by SIGKILL"
    )
    assert title(analysis(attached=True, ending=None, program="postgres")) == "postgres · watched for 5.00 s"
    assert title(analysis(show_command=True)).startswith("python train.py --key 4711 · ")
    # The timeline has a row for the program itself.
    timeline = timeline_of(analysis(machine_samples()))
    first = timeline.rows[0]
    assert (first.name, first.unit) == ("the program keeps busy", "cores")
    assert set(first.lines[0].y) == {1.3}
    assert timeline.window_text == ""
    assert timeline.marks == ()
    assert timeline_of(analysis(gpu_samples())).rows[0].name == "power"


@pytest.mark.ci
def test_the_page_is_whole_and_fetches_nothing():
    page = html.render(page_of(analysis(machine_samples())))
    for part in ("verdict", "host", "usage", "machine", "method"):
        assert f'<section id="{part}"' in page
    assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?!#|data:)[^\"']*", page)
    assert "url(" not in page.replace("url(#", "")
    assert "default-src 'none'" in page
    assert "4711" not in page
    assert "cuda:1" in page


@pytest.mark.ci
def test_the_page_of_names_and_cut_off_directories():
    # Names cannot leave their place in the page.
    gpus = tuple(replace(sample, device=HOSTILE) for sample in gpu_samples())
    page = html.render(page_of(analysis((*gpus, *host_samples()), program=HOSTILE, gpus={HOSTILE: HOSTILE}, notes=(HOSTILE,))))
    assert "<script>alert(1)" not in page
    # A directory that was cut off says so.
    found = analysis(host_samples(), status="running", ended_ns=None, ending=None)
    assert found.window_s == pytest.approx(6.0)
    assert "cut off" in html.render(page_of(found))


def test_tensorboard_shows_every_series(tmp_path):
    whole = monitored(machine_samples())
    found = analyze_monitored(whole)
    for _ in range(2):  # writing again replaces the file
        path = tensorboard.write(page_of(found), tmp_path / "report", measured.of_program(found, whole.samples))
    assert [path] == list(tmp_path.iterdir())
    events = curves(path, size_guidance={"scalars": 0})
    tags = set(events.Tags()["scalars"])
    assert {"cuda:0/power_w", "cuda:1/gpu_utilization", "host/process_rss_bytes", "summary/wall_s", "summary/cuda:0/energy_j"} <= tags
    assert [event.value for event in events.Scalars("summary/cpu_s")] == [7.5]
    powers = [sample.power_w for sample in whole.samples if sample.device == "cuda:0"]
    assert [event.value for event in events.Scalars("cuda:0/power_w")] == pytest.approx(powers)


def test_a_long_series_is_thinned_and_a_short_one_beside_it_is_not():
    long = [DeviceSample(time_ns=index, source="psutil") for index in range(3 * measured.MOST_READINGS)]
    short = [DeviceSample(time_ns=index, source="rapl") for index in range(7)]
    kept = measured.thinned([*long, *short])
    assert [sample.time_ns for sample in kept if sample.source == "psutil"] == list(range(0, len(long), 3))
    assert [sample for sample in kept if sample.source == "rapl"] == short


@pytest.mark.parametrize(("command", "name"), [
    (["/usr/bin/python3", "-u", "dir/train.py", "--key", "4711"], "python3 train.py"),
    (["python", "-m", "pkg.main", "4711"], "python -m pkg.main"),
    (["python", "-c", "print(4711)"], "python"),
    (["python", "-W", "4711", "x.py"], "python"),
    (["bash", "-c", "curl -H 4711"], "bash"),
    (["./solver", "4711.txt"], "solver"),
    (["node", "server.js", "4711"], "node server.js"),
    (["python3.13t", "-OO", "-sm", "4711"], "python3.13t"),
    (["python", "-m"], "python"),
    (["python", "-m", "print 4711"], "python"),
    (["python", "-X", "4711.py", "x.py"], "python"),
    (["bash", "-ex", "build.sh", "4711"], "bash build.sh"),
    (["bash", "-o", "4711.x", "build.sh"], "bash"),
    (["bash", "-s", "4711.x"], "bash"),
    (["bash", "my script 4711.sh"], "bash"),
    (["node", "-r", "4711.js", "server.js"], "node"),
    (["sha256sum", "4711.txt"], "sha256sum"),
    (["perl", "-w", "x.pl", "4711"], "perl x.pl"),
])  # fmt: skip
def test_a_name_holds_no_argument(command, name):
    assert program_name(command) == name


@pytest.mark.parametrize("code", ["export TOKEN=4711; python train.py", "4711.py"])
@pytest.mark.parametrize(
    "words",
    ["bash -c", "bash -lc", "bash -l -c", "sh -ec", "zsh -xc", "python -c", "python -uc", "python -u -c", "perl -e", "perl -E",
     "perl -ne", "perl -wpe", "ruby -ne", "node -e", "node -p", "node -pe", "node --eval", "Rscript -e", "julia -E", "julia --eval"],
)  # fmt: skip
def test_a_name_holds_no_code(words, code):
    assert program_name([*words.split(), code]) == words.split()[0]


def test_what_stood_in_the_programs_place_before_it_is_not_its_own():
    def sample(time_ns, **fields):
        return DeviceSample(time_ns=time_ns, source="psutil", **fields)

    before = [
        sample(1, process_rss_bytes=9, process_read_bytes=0),
        sample(2, process_rss_bytes=9, process_read_bytes=4, cpu_utilization=0.5),
    ]
    after = [sample(5, process_rss_bytes=1, process_read_bytes=6)]
    assert since(3, [*before, *after]) == (sample(2, process_read_bytes=4, cpu_utilization=0.5), *after)
    assert since(None, before) == tuple(before)
