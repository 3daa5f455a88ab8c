"""The screen of a recording and of a monitored program, in a real terminal of 80 columns."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rooflines.profiler.record.reported_steps import StepReport, reported_steps
from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.profiler.samplers.storage import JournalEntry, write_entry
from rooflines.profiler.tree.slowest import slowest
from rooflines.reports.render import screen
from rooflines.reports.render.screen import Readings, plain
from tests.commands import command, environment, quick
from tests.traces import parse_trace

WIDTH = 80
# Runs a command in a terminal of its own, in a process of its own: this one has threads, which do not survive a fork.
TERMINAL = """
import fcntl, json, os, pty, struct, sys, termios
process, terminal = pty.fork()
if process == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.execv(sys.argv[1], sys.argv[1:])
text = b""
try:
    while read := os.read(terminal, 4096):
        text += read
except OSError:  # Linux: no process has the terminal open
    pass
print(json.dumps([text.decode(), os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])]))
"""


def in_terminal(*arguments, cwd, **more):
    """What ``rooflines ARGUMENTS`` writes to a terminal, and its exit code."""
    line = [sys.executable, "-c", TERMINAL, *command(*arguments)]
    settings = environment() | {"TERM": "xterm", "COLUMNS": str(WIDTH)} | more
    done = subprocess.run(line, cwd=cwd, env=settings, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def left(text):
    """The lines that ``text`` leaves on a terminal; it may move up and erase what follows."""
    lines, row, column = [""], 0, 0
    for part in re.split(r"(\x1b\[\d*[AK]|[\r\n])", re.sub(r"\x1b\[[\d;]*m|\x1b\[\?25[lh]", "", text)):
        if part == "\r":
            column = 0
        elif part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part == "\x1b[2K":
            lines[row] = ""
        elif moved := re.fullmatch(r"\x1b\[(\d+)A", part):
            row -= int(moved[1])
        else:
            assert "\x1b" not in part
            assert column + len(part) <= WIDTH
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + len(part) :]
            column += len(part)
    return lines


@pytest.mark.ci
def test_a_run_in_a_terminal_shows_its_steps_and_leaves_a_clean_terminal(tmp_path):
    (tmp_path / "train.py").write_text(
        "import sys, time, torch\nnet = torch.nn.Linear(8, 8)\noptimizer = torch.optim.SGD(net.parameters(), 0.01)\n"
        "for i in range(60):\n    net(torch.randn(4, 8)).sum().backward(); optimizer.step(); time.sleep(0.03)\n"
        "    print('step', i); print(f'\\r{i} of 40', end='', file=sys.stderr)\n"
    )
    options = [*quick(tmp_path)[:4], "--warmup", "2", "--steps", "30", "--to-end", "--output", "run"]
    text, code = in_terminal("profile", "train.py", *options, cwd=tmp_path)
    assert code == 0, text
    assert re.search(r"timing steps with the profiler off \d+/30 0:00:\d\d \(0:00:0\d left\) *\r\n━*─+ *\r\n", text)
    assert re.search(r"step time    median \d[\d.]* ms, quartiles ", text)
    assert "cores busy" in text
    assert re.search(r"slowest operators \(self time\) of one traced step.*\r\n  aten::", text)
    lines = left(text)
    assert [line for line in lines if line.startswith("step ")] == [f"step {i}" for i in range(60)]
    assert not any(word in line for line in lines for word in ("timing steps", "step time  ", "slowest operators", "━"))
    assert any(line.startswith("report    run") for line in lines)


def test_without_a_terminal_that_can_draw_there_are_lines(tmp_path):
    text, code = in_terminal("analyze", Path(__file__).parents[2] / "data/traces/cpu_only.json.gz", cwd=tmp_path, TERM="dumb")
    assert code == 0
    assert "\x1b" not in text


PROGRAM = """
import os, sys, time
from rooflines.profiler.record.reported_steps import VARIABLE, StepReport
report = StepReport(os.environ[VARIABLE])
print("\\x1b]0;title\\x07printed", os.isatty(1), flush=True)
for _ in range(200):
    report.step()
    time.sleep(0.01)
sys.exit(3)
"""


@pytest.mark.ci
def test_a_monitored_program_is_shown_with_its_output_and_steps(tmp_path):
    options = ["--live", "--gpus", "none", "--output", "out", "--formats", "json"]
    text, code = in_terminal("monitor", *options, "--", sys.executable, "-c", PROGRAM, cwd=tmp_path, TMPDIR=str(tmp_path))
    assert code == 3, text
    assert re.search(r"steps/s      \d[\d.]* \(\d+ steps\)", text)
    assert "cores busy" in text
    assert "  printed False" in text
    assert "title" not in text
    lines = left(text)
    assert not any("steps/s" in line or "printed" in line for line in lines)
    assert "output    out/output.txt" in lines
    assert (tmp_path / "out/output.txt").read_text().endswith("printed False\n")
    assert not list(tmp_path.glob("rooflines-*"))


@pytest.mark.ci
def test_a_program_that_is_killed_leaves_its_exit_code_and_a_clean_terminal(tmp_path):
    options = ["--live", "--quiet", "--gpus", "none", "--output", "out", "--formats", "json"]
    text, code = in_terminal("monitor", *options, "--", "sh", "-c", "sleep 1; kill -9 $$", cwd=tmp_path)
    assert code == 128 + 9
    assert "cores busy" in text
    assert [line for line in left(text) if line] == ["out/analysis.json"]


@pytest.mark.ci
def test_a_screen_needs_a_terminal(tmp_path):
    line = command("monitor", "--live", "--quiet", "--gpus", "none", "--output", "out", "--formats", "json", "--", "echo", "printed")
    done = subprocess.run(line, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "printed\n")
    assert done.stderr == ("rooflines: --live needs a terminal on standard error; monitoring without a screen.\nout/analysis.json\n")
    assert not (tmp_path / "out/output.txt").exists()


def test_readings_are_the_latest_and_a_minute_of_means(tmp_path, monkeypatch):
    monkeypatch.setattr(screen, "now_ns", lambda: 59 * 10**9)
    journal = tmp_path / "journal"
    with open(journal, "wb") as file:
        readings = Readings(journal)
        for second in range(60):
            busy = 1.0 if second >= 30 else 0.0
            sample = DeviceSample(
                time_ns=second * 10**9, source="nvml", device="gpu0", gpu_utilization=busy, power_w=second, power_limit_w=700.0,
                memory_used_bytes=1 << 30, temperature_c=61.0, sm_clock_hz=1.98e9,
            )  # fmt: skip
            write_entry(file, JournalEntry(sample=sample))
        file.write(b'{"sample":{"time_ns":1')  # still being written
        file.flush()
        head, row = readings.lines()
        assert [head, row] == list(readings.lines())
    assert row.split() == ["gpu0", "100", "%", "▁" * 6 + "█" * 6, "59.0", "W", "▁" * 12, "1.00", "GiB", "61", "°C", "1.98", "GHz"]
    assert max(len(head), len(row)) < WIDTH
    monkeypatch.setattr(screen, "now_ns", lambda: 70 * 10**9)
    assert list(readings.lines()) == []


def test_steps_of_several_processes(tmp_path, monkeypatch):
    assert reported_steps(tmp_path) == ""
    for pid in (1, 2):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        now = iter(range(10, 30, 2 * pid))
        monkeypatch.setattr(time, "monotonic", lambda now=now: next(now))
        report = StepReport(str(tmp_path))
        for _ in range(3):
            report.step()
        assert len(os.listdir(tmp_path)) == pid
    assert reported_steps(tmp_path) == "0.375 (3 steps, mean of 2 processes)"
    for file in tmp_path.iterdir():
        os.utime(file, (time.time() - 60,) * 2)
    (tmp_path / "3").touch()  # being written
    assert reported_steps(tmp_path).startswith("3 steps, none reported for 6")
    gone = StepReport(str(tmp_path / "gone"))
    for _ in range(2):
        gone.step()


def test_the_time_of_an_operator_is_without_those_inside():
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "tid": tid, "ts": ts, "dur": dur}
        for name, tid, ts, dur in (("outer", 1, 0, 10), ("inner", 1, 2, 3), ("inner", 1, 5, 3), ("outer", 2, 1, 6))
    ]
    annotation = {"ph": "X", "cat": "user_annotation", "name": "part", "tid": 1, "ts": 1, "dur": 8}
    trace = parse_trace(json.dumps({"traceEvents": [*events, annotation]}).encode())
    assert slowest(trace, 5) == ("operators (self time)", [("outer", 10e-6, 10 / 16), ("inner", 6e-6, 6 / 16)])
    assert len(slowest(trace, 1)[1]) == 1
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "tid": 7, "ts": 1, "dur": 2}
    trace = parse_trace(json.dumps({"traceEvents": [*events, kernel]}).encode())
    assert slowest(trace, 5) == ("kernels", [("gemm", 2e-6, 1.0)])


@pytest.mark.parametrize("text", ["\x1b[31mred\x1b[0m", "\x1b]0;title\x07red", "r\x1b7ed", "\x9b2Jred"])
def test_text_of_programs_cannot_control_the_terminal(text):
    assert plain(text).strip().replace("2J", "") in ("red", "r ed")
    assert plain(text).isprintable()
