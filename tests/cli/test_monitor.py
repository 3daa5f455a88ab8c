"""rooflines monitor: real programs are run, watched, interrupted and killed, and so is the monitor itself."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from rooflines.pipeline.monitoring import _find_process, choose_gpus
from rooflines.profiler.directory import JOURNAL_FILE
from rooflines.profiler.monitor.monitored import load
from rooflines.profiler.samplers.storage import read_journal
from tests.commands import call, command, environment, start
from tests.processes import ended, wait_until

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX system")

TIMEOUT_S = 120
QUICK = ["--gpus", "none", "--output", "out", "--formats", "json", "--period", "0.05"]
BUSY = "import time\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass"
TOKEN = "sk-this-is-no-token-4711"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rooflines(*arguments, given=None):
    return subprocess.run(
        command(*arguments), input=given, env=environment() | {"COLUMNS": "80"}, capture_output=True, text=True, timeout=TIMEOUT_S
    )


def monitor(*arguments, given=None):
    """``rooflines monitor QUICK ARGUMENTS``; what it left."""
    return rooflines("monitor", *QUICK, *arguments, given=given)


def by_code(code, *arguments):
    """What a new Python that runs ``code`` leaves."""
    line = [sys.executable, "-c", code, *arguments]
    return subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S)


def python(code, *arguments):
    return ["--", sys.executable, "-c", code, *arguments]


@contextlib.contextmanager
def started(*arguments):
    """The same as ``monitor``, left running in a session of its own, of which nothing remains."""
    process = start("monitor", *QUICK, *arguments, cwd=Path.cwd())
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def facts(directory="out"):
    return json.loads(Path(directory, "monitor.json").read_text())


def analysis(directory="out"):
    return json.loads(Path(directory, "analysis.json").read_text())


def devices():
    return {device["device"]: device for device in analysis()["usage"]["devices"]}


def host():
    return devices()["host"]


# --- the program is as it is alone


@pytest.mark.ci
def test_input_output_and_exit_code_are_the_programs(place):
    code = "import sys; text = sys.stdin.read(); print(text.upper(), end=''); print(sys.argv[1:], file=sys.stderr); sys.exit(3)"
    done = monitor("--quiet", *python(code, "--quiet", "--", "x y"), given="hello\n")
    assert (done.returncode, done.stdout) == (3, "HELLO\n")
    assert done.stderr == "['--quiet', '--', 'x y']\nout/analysis.json\n"
    assert facts()["ending"]["exit_code"] == 3
    assert facts()["status"] == "complete"
    # The dashes may be left out, and options behind the program are its own. A signal that kills it gives the exit code of a shell.
    done = monitor("--output", "killed", "sh", "-c", 'echo "$0 $*"; kill -9 $$', "--pid", "--", "3")
    assert (done.returncode, done.stdout) == (128 + 9, "--pid -- 3\n")
    assert "ended by SIGKILL" in done.stderr
    assert facts("killed")["ending"]["signal"] == 9


@pytest.mark.ci
def test_signal_dispositions_and_descriptors_are_those_of_a_shell(place):
    code = (
        "import signal, os\n"
        "print([signal.getsignal(n).name for n in (signal.SIGPIPE, signal.SIGTERM, signal.SIGHUP)], sorted(os.listdir('/dev/fd')))"
    )
    alone = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    watched = monitor("--quiet", "--", sys.executable, "-S", "-c", code)
    assert watched.stdout == alone.stdout


@pytest.mark.ci
def test_children_that_we_were_told_to_forget_are_waited_for_and_the_program_is_told_the_same(place):
    code = "import signal, sys; print(signal.getsignal(signal.SIGCHLD).name); sys.exit(3)"
    for action in ("SIG_IGN", "SIG_DFL"):
        starter = f"import os, signal, sys; signal.signal(signal.SIGCHLD, signal.{action}); os.execv(sys.executable, sys.argv[1:])"
        done = by_code(starter, *command("monitor", *QUICK, "--quiet", "--output", action, *python(code)))
        assert (done.returncode, done.stdout) == (3, f"{action}\n"), done.stderr
        assert facts(action)["ending"]["exit_code"] == 3


@pytest.mark.ci
def test_a_command_that_cannot_run(place, capsys, monkeypatch):
    for name, code, words in (
        ("no-such-program", 127, "command not found: 'no-such-program'."),
        ("./folder", 126, "cannot run "),
        ("./plain", 126, "cannot run "),
        ("./format", 126, "cannot run "),
    ):
        Path("folder").mkdir(exist_ok=True)
        Path("plain").write_text("hello")
        Path("format").write_text("hello")
        Path("format").chmod(0o755)
        done = call(capsys, monkeypatch, "monitor", *QUICK, "--", name, "--x")
        assert (done.code, done.out, len(done.err.splitlines())) == (code, "", 2)
        assert done.err.startswith(f"rooflines: {words}")
        assert not Path("out").exists()


def test_a_directory_with_something_in_it_is_left_alone(place, capsys, monkeypatch):
    Path("out").mkdir()
    Path("out/mine").write_text("precious")
    done = call(capsys, monkeypatch, "monitor", *QUICK, "--", "touch", "ran")
    assert done.code == 2
    assert "is not empty" in done.err
    assert os.listdir("out") == ["mine"]
    assert not Path("ran").exists()


# --- what is refused before anything runs


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "no command and no --pid was given."),
    (["--pid", "1", "--", "touch", "ran"], "--pid 1 cannot be combined with a command."),
    (["--duration", "3", "--", "touch", "ran"], "--duration requires --pid."),
    (["--period", "0", "--", "touch", "ran"], "--period must be above 0 and at most 3600 s, got 0 s."),
    (["--period", "inf", "--", "touch", "ran"], "--period must be above 0 and at most 3600 s, got inf s."),
    (["--period", "1e11", "--pid", "4194305"], "--period must be above 0 and at most 3600 s, got 1e+11 s."),
    (["--formats", "doc", "--", "touch", "ran"], "unknown report format 'doc'."),
    (["--gpus", ",", "--", "touch", "ran"], "--gpus , is not a list of GPUs."),
    (["--pid", "4194305"], "process 4194305 not found."),
    (["--pid", "-3"], "process -3 not found."),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")  # fmt: skip
def test_what_is_refused(place, arguments, message, capsys, monkeypatch):
    done = call(capsys, monkeypatch, "monitor", *QUICK, *arguments)
    assert done.code == 2
    first, hint = done.err.splitlines()
    assert first == f"rooflines: {message}"
    assert hint.startswith("  ")
    assert not Path("ran").exists()
    assert not Path("out").exists()


@pytest.mark.ci
def test_arguments_that_are_no_text_are_passed_on_and_kept_readable(place):
    Path(os.fsdecode(b"caf\xe9.py")).write_text("import sys; print(ascii(sys.argv[1]))")
    done = monitor(
        "--quiet", "--show-command", "--formats", "html", "--", sys.executable, os.fsdecode(b"caf\xe9.py"), os.fsdecode(b"\xff")
    )
    assert (done.returncode, done.stdout) == (0, "'\\udcff'\n")
    assert facts()["command"] == [sys.executable, "caf\\xe9.py", "\\xff"]
    assert facts()["program"].endswith(" caf\\xe9.py")
    assert analysis()["command"][2] == "\\xff"


@pytest.mark.parametrize("existed", [True, False])
def test_nothing_is_left_of_what_fails_before_the_program_begins(place, existed):
    if existed:
        Path("out").mkdir()
    code = (
        "from pathlib import Path\nfrom rooflines.pipeline import monitoring\n"
        "class Broken(monitoring.SamplerProcess):\n"
        "    def start(self): super().start(); raise RuntimeError('broken')\n"
        "monitoring.SamplerProcess = Broken\n"
        "monitoring.monitor(['touch', 'ran'], output=Path('out'), gpus='none')"
    )
    done = by_code(code)
    assert done.stderr.endswith("RuntimeError: broken\n")
    assert os.listdir(".") == (["out"] if existed else [])
    assert not existed or not os.listdir("out")


# --- what it took


@pytest.mark.ci
def test_the_processor_time_and_memory_of_a_program_and_its_children(place):
    child = f"held = bytearray(b'x') * {150 << 20}; import time; time.sleep(0.5)\n{BUSY}"
    done = monitor(*python(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"))
    assert done.returncode == 0
    ending = facts()["ending"]
    assert 0.6 <= ending["user_cpu_s"] + ending["system_cpu_s"] < 2
    assert 150 << 20 < ending["largest_rss_bytes"] < 260 << 20
    peak = host()["gauges"]["process_rss_bytes"]["highest"]
    assert 150 << 20 < peak < 300 << 20
    assert "resident memory" in done.stderr
    assert "cores busy" in done.stderr
    assert done.stdout == ""


@pytest.mark.ci
def test_a_program_is_sampled_from_its_first_moment(place):
    """Its sampler is ready before it begins, and what was there before it is not counted as its own."""
    monitor("--", "sleep", "1")
    held = [sample.process_rss_bytes for sample in load(Path("out")).samples if sample.process_rss_bytes]
    assert len(held) >= 2
    # A copy of the monitor's interpreter stood in its place before.
    assert max(held) < 8 << 20
    assert "largest_rss_bytes" not in facts()["ending"]


@pytest.mark.ci
def test_a_program_that_is_over_at_once(place):
    done = monitor("--", "true")
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert lines[0].startswith("true · ")
    assert " · exit code 0" in lines[0]
    assert lines[-2:] == ["report    out/analysis.json", "rebuild   rooflines report out"]


@pytest.mark.ci
def test_reports_are_written_again_and_derived_anew(place, capsys, monkeypatch):
    done = monitor("--json", "--formats", "html,csv,tensorboard", *python(BUSY, TOKEN))
    files, before = set(os.listdir("out")), analysis()
    assert json.loads(done.stderr) == before
    assert before["schema"] == "rooflines.monitor-analysis/1"
    assert {"monitor.json", "analysis.json", "report.html", "samples.csv", "samples.parquet"} < files
    assert JOURNAL_FILE not in files
    for name in ("analysis.json", "report.html"):
        Path("out", name).unlink()

    again = call(capsys, monkeypatch, "report", "out")
    assert again.code == 0, again.err
    assert [line.split()[0] for line in again.out.splitlines()] == ["analysis", "html", "json", "csv", "tensorboard"]
    assert analysis() == before
    assert {name.partition("tfevents")[0] for name in os.listdir("out")} == {
        name.partition("tfevents")[0] for name in (*files, "report.json")
    }
    assert json.loads(call(capsys, monkeypatch, "analyze", "out", "--format", "json").out) == before
    monkeypatch.setenv("COLUMNS", "80")
    lines = call(capsys, monkeypatch, "analyze", "out").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("cores busy" in line for line in lines)
    assert not any("None" in line or "nan" in line for line in lines)
    assert call(capsys, monkeypatch, "report", "out", "--output", "other", "--formats", "html").code == 0
    assert sorted(os.listdir("other")) == ["analysis.json", "report.html"]
    for refused in (["report", "out", "--formats", "doc"], ["analyze", "out", "--ceilings", "spec"], ["analyze", "out", "out"]):
        answer = call(capsys, monkeypatch, *refused)
        assert answer.code == 2, refused
        assert len(answer.err.splitlines()) == 2
    # The arguments may hold secrets: they are in the facts of the run and nowhere else.
    assert TOKEN in Path("out/monitor.json").read_text()
    assert [path.name for path in Path("out").iterdir() if TOKEN.encode() in path.read_bytes()] == ["monitor.json"]


@pytest.mark.ci
def test_the_arguments_are_shown_where_that_is_asked(place):
    done = monitor("--show-command", "--formats", "html", "--", "echo", TOKEN)
    assert TOKEN in done.stderr
    assert TOKEN in Path("out/report.html").read_text()


@pytest.mark.parametrize(("content", "complaint"), [
    ("{", "is corrupt: monitor.json: "),
    ("[]", "is corrupt: monitor.json: "),
    ('{"schema": "rooflines.monitor/9"}', "has schema 'rooflines.monitor/9'; this version of rooflines reads 'rooflines.monitor/1'."),
    ('{"schema": "rooflines.monitor/1"}', "is corrupt: monitor.json: Object missing required field "),
])  # fmt: skip
def test_a_corrupt_directory_is_one_sentence(place, content, complaint, capsys, monkeypatch):
    Path("out").mkdir()
    Path("out/monitor.json").write_text(content)
    answer = call(capsys, monkeypatch, "report", "out")
    assert answer.code == 2
    assert answer.err.startswith(f"rooflines: the monitored program in 'out' {complaint}")
    assert len(answer.err.splitlines()) == 2


# --- interrupted and killed

HANDLES = (
    "import signal, sys, time\n"
    "try: print('ready', flush=True); time.sleep(600)\n"
    "except KeyboardInterrupt: time.sleep(0.3); print('cleaned up', flush=True); sys.exit(5)"
)
WAITS = "import time; print('ready', flush=True); time.sleep(600)"


@pytest.mark.ci
def test_ctrl_c_is_the_programs_affair(place):
    with started("--quiet", *python(HANDLES)) as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out, err) == (5, "cleaned up\n", "out/analysis.json\n")
    assert facts()["status"] == "complete"
    assert host()["gauges"]["process_threads"]["highest"] >= 1


# Runs a command in a terminal of its own, types a line, and Ctrl-C as soon as that has been read. In a process of its own: this one has
# threads, which do not survive a fork.
TERMINAL = """
import json, os, pty, sys
process, terminal = pty.fork()
if process == 0:
    os.execv(sys.argv[1], sys.argv[1:])
os.write(terminal, b"typed\\n")
text = b""
try:
    while read := os.read(terminal, 4096):
        if b"True True typed" in text + read and b"True True typed" not in text:
            os.write(terminal, b"\\x03")
        text += read
except OSError:  # Linux: no process has the terminal open
    pass
print(json.dumps([text.decode(), os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])]))
"""


@pytest.mark.ci
def test_a_terminal_is_the_programs_own(place):
    """Its foreground group, its input and its Ctrl-C."""
    code = "import os, time\nprint(os.isatty(0), os.tcgetpgrp(0) == os.getpgrp(), input(), flush=True)\ntime.sleep(600)"
    text, exit_code = json.loads(by_code(TERMINAL, *command("monitor", *QUICK, "--quiet", *python(code))).stdout)
    assert exit_code == 128 + signal.SIGINT
    assert "KeyboardInterrupt" in text
    assert text.endswith("out/analysis.json\r\n")


@pytest.mark.ci
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_monitor_reaches_the_program(place, number):
    with started(*python(WAITS)) as process:
        process.stdout.readline()
        process.send_signal(number)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 128 + number
    assert facts()["ending"]["signal"] == number
    assert ended(facts()["pid"])


@pytest.mark.ci
def test_a_monitor_that_is_killed_leaves_the_program_running_and_its_samples(place):
    with started(*python(WAITS)) as process:
        process.stdout.readline()
        wait_until(lambda: len(read_journal(Path("out", JOURNAL_FILE)).samples) > 5)
        program = facts()["pid"]
        sampler = next(child for child in psutil.Process(process.pid).children() if child.pid != program)
        process.kill()
        process.wait()
        wait_until(lambda: ended(sampler.pid))
        assert not ended(program)
        taken = len(read_journal(Path("out", JOURNAL_FILE)).samples)
        report = rooflines("report", "out", "--formats", "html,csv")
    assert report.returncode == 0, report.stderr
    assert facts()["status"] == "running"
    assert analysis()["status"] == "running"
    assert host()["readings"] > 3
    assert "cut off" in Path("out/report.html").read_text()
    assert len(Path("out/samples.csv").read_text().splitlines()) <= taken + 1
    assert "The monitor has not ended" in rooflines("analyze", "out").stdout


@pytest.mark.ci
def test_a_full_disk_costs_the_reports_and_not_what_was_sampled(place):
    limited = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", *command("monitor", *QUICK, "--", "sleep", "2")]
    done = subprocess.run(limited, env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2
    assert done.stderr.startswith("rooflines: cannot write the samples in 'out': ")
    assert len(done.stderr.splitlines()) == 2
    assert facts()["ending"]["exit_code"] == 0
    assert any("File too large" in note for note in facts()["notes"])
    again = rooflines("report", "out", "--formats", "json")
    assert again.returncode == 0, again.stderr
    assert host()["readings"] >= 2


@pytest.mark.ci
def test_a_disk_that_is_full_when_the_program_begins_is_no_reason_to_leave_it(place):
    code = (
        "import sys\nfrom rooflines.pipeline import monitoring\nfrom rooflines.errors import OutputError\nsave = monitoring.save\n"
        "def full(directory, facts, samples=None):\n"
        "    if facts.began_ns and not facts.ending: raise OutputError('full')\n"
        "    return save(directory, facts, samples)\n"
        "monitoring.save = full\n"
        "from pathlib import Path\n"
        "monitoring.monitor(['sh', '-c', 'sleep 0.5; touch ran'], output=Path('out'), gpus='none')\n"
        "assert Path('ran').exists()"
    )
    done = by_code(code)
    assert (done.returncode, done.stderr) == (0, "")
    assert facts()["ending"]["exit_code"] == 0
    assert facts()["status"] == "complete"


# --- attached


@contextlib.contextmanager
def running(code):
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        try:
            child.stdout.readline()
            yield child
        finally:
            child.kill()


@pytest.mark.ci
def test_attached_until_the_process_ends(place):
    with running(WAITS) as child, started("--pid", child.pid) as process:
        wait_until(lambda: len(read_journal(Path("out", JOURNAL_FILE)).samples) > 3)
        child.terminate()
        out, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert "watched for" in out
    assert facts()["attached"]
    assert "command" not in facts() or facts()["command"] == []
    assert facts()["pid"] == child.pid
    assert host()["gauges"]["process_rss_bytes"]["highest"] > 1 << 20


@pytest.mark.ci
def test_attached_for_a_while(place):
    with running(WAITS) as child:
        begun = time.monotonic()
        done = monitor("--pid", child.pid, "--duration", "0.5", "--quiet")
        assert child.poll() is None
    assert (done.returncode, done.stdout) == (0, "out/analysis.json\n")
    assert 0.5 <= analysis()["window_s"] <= time.monotonic() - begun


@pytest.mark.ci
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_attached_until_interrupted(place, number):
    with running(WAITS) as child:
        with started("--pid", child.pid, "--quiet") as process:
            wait_until(lambda: len(read_journal(Path("out", JOURNAL_FILE)).samples) > 3)
            process.send_signal(number)
            out, err = process.communicate(timeout=TIMEOUT_S)
        assert child.poll() is None
    assert (process.returncode, out, err) == (0, "out/analysis.json\n", "")
    assert facts()["status"] == "complete"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else")
def test_what_a_process_of_somebody_else_keeps_to_itself(place):
    with running(WAITS) as child:
        os.seteuid(65534)
        try:
            _, name, notes = _find_process(child.pid)
        finally:
            os.seteuid(0)
    assert name.startswith("python")
    assert notes == (f"Process {child.pid} belongs to root: its unique memory (USS) and I/O are not readable.",)


# --- GPUs, of a stand-in for NVIDIA's driver

GPUS = """
gpu
name Stand-in H100
power square 100 300 0.5
limit constant 700
utilization constant 0.97
memory_used constant 3221225472
temperature constant 61
sm_clock constant 1.2e9
throttle constant 0x4
update energy 0.05
gpu
name Stand-in H100
power constant 60
utilization constant 0
memory_used constant 1048576
"""


@pytest.mark.ci
def test_every_gpu_is_sampled_with_its_energy(place, stand_in):
    stand_in(GPUS)
    done = monitor("--gpus", "all", "--", "sleep", "3")
    assert done.returncode == 0
    assert set(devices()) == {"host", "gpu0", "gpu1"}
    assert facts()["gpus"] == {"gpu0": "Stand-in H100", "gpu1": "Stand-in H100"}
    energy, seconds = devices()["gpu0"]["energy"], analysis()["window_s"]
    # 200 W on average; the window may cut a period of the square in the middle.
    assert energy["energy_j"] == pytest.approx(200 * seconds, abs=energy["error_j"] + 100 * 0.25)
    assert energy["error_j"] < 0.13 * energy["energy_j"]
    lines = done.stderr.splitlines()
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if line.strip().startswith("gpu0 "))
    assert " 97 % " in row
    text = " ".join(done.stderr.split())
    assert "gpu0, gpu1: Stand-in H100" in text
    assert "(software power cap 100 %)" in text


@pytest.mark.ci
def test_one_gpu_can_be_chosen_by_its_number(place, stand_in):
    stand_in(GPUS)
    assert monitor("--gpus", "1", "--", "sleep", "0.5").returncode == 0
    assert set(devices()) == {"host", "gpu1"}
    refused = monitor("--gpus", "7", "--output", "other", "--", "touch", "ran")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[0] == "rooflines: GPU 7 not found: NVML finds 2."
    assert not Path("ran").exists()


SLICED = """
gpu
memory_used constant 1
slice MIG-a0 3 20e9 5e9
slice MIG-a1 4 20e9 5e9
gpu
memory_used constant 1
slice MIG-b0 3 20e9 5e9
slice MIG-b1 4 20e9 5e9
"""


def test_slices_are_chosen_beside_each_other_and_beside_gpus(stand_in_here):
    stand_in_here(SLICED)
    assert choose_gpus("MIG-a0,MIG-b0") == {"gpu0/mig0": "MIG-a0", "gpu1/mig0": "MIG-b0"}
    chosen = choose_gpus("0,1,MIG-b1")
    assert list(chosen) == ["gpu0", "gpu1", "gpu1/mig1"]
    assert choose_gpus(f"{chosen['gpu1']},MIG-a1") == {"gpu1": chosen["gpu1"], "gpu0/mig1": "MIG-a1"}


@pytest.mark.ci
def test_a_gpu_that_falls_off_the_bus_ends_its_series_and_not_the_program(place, stand_in):
    stand_in(GPUS.replace("power constant 60", f"power constant 60\nlost_by {place / 'lost'}"))
    waits = (
        "import time\nfrom pathlib import Path\n"
        f"def said(text, times): return Path('out', {JOURNAL_FILE!r}).read_text().count(text) >= times\n"
        "while not (said('gpu0', 2) and said('gpu1', 2)): time.sleep(0.02)\n"
        "open('lost', 'w').close()\n"
        "while not said('gpu1 stopped', 1): time.sleep(0.02)\n"
        "print('done')"
    )
    done = monitor("--gpus", "all", *python(waits))
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert any("gpu1" in note and "lost" in note.lower() for note in facts()["notes"]), facts()["notes"]
    assert devices()["gpu1"]["readings"] < devices()["gpu0"]["readings"]
    assert facts()["gpus"] == {"gpu0": "Stand-in H100"}  # the one that is left keeps its name


@pytest.mark.ci
def test_what_one_gpu_may_not_say_another_says_in_an_old_driver_s_words(place, stand_in):
    """The first may not be read at all but for its memory; the second knows neither fields nor event reasons."""
    denied = ("TotalEnergyConsumption", "FieldValues", "PowerUsage", "UtilizationRates", "Temperature", "ClockInfo")
    unknown = ("FieldValues", "MemoryInfo_v2", "CurrentClocksEventReasons", "TotalEnergyConsumption")
    old = GPUS.partition("gpu\n")[2].partition("gpu\n")[0].replace("power square 100 300 0.5", "power constant 200\ncapability 7.0")
    stand_in(
        f"{GPUS.partition('gpu')[0]}gpu\nname Secret\nmemory_used constant 1e9\n"
        + "".join(f"error nvmlDeviceGet{name} NO_PERMISSION\n" for name in denied)
        + f"gpu\n{old}"
        + "".join(f"error nvmlDeviceGet{name} FUNCTION_NOT_FOUND\n" for name in unknown)
    )
    done = monitor("--gpus", "all", "--", "sleep", "1.5")
    assert done.returncode == 0
    (note,) = facts()["notes"]
    assert note.startswith("Not readable on gpu0 by this user (Insufficient Permissions): energy, ")
    assert set(devices()["gpu0"]["gauges"]) == {"memory_used_bytes", "memory_total_bytes"}
    # Of the time between the first and the last reading: a busy machine may start the sampler late in the window.
    read_ns = [sample.time_ns for sample in load(Path("out")).samples if sample.device == "gpu1"]
    assert devices()["gpu1"]["energy"]["energy_j"] == pytest.approx(200 * (read_ns[-1] - read_ns[0]) / 1e9, rel=0.05)
    assert devices()["gpu1"]["throttled"][0]["reason"] == "software power cap"
    text = " ".join(done.stderr.split())
    assert "gpu0: Secret" in text
    assert "gpu1: Stand-in H100" in text


# --- what it costs


@pytest.mark.ci
def test_monitoring_loads_nothing_heavy_and_its_reports_need_no_torch(place):
    heavy = ("torch", "numpy", "pandas", "pyarrow", "matplotlib", "numba", "tensorboard", "pynvml")
    code = (
        "import rooflines.pipeline.monitoring, rooflines.cli, sys\n"
        f"print([name for name in {heavy!r} if name in sys.modules])\n"
        "sys.argv = ['rooflines', 'monitor', '--output', 'out', '--quiet', '--', 'sleep', '0.3']\n"
        "try: rooflines.cli.main()\nexcept SystemExit as end: assert not end.code\n"
        "print([name for name in ('torch', 'numba') if name in sys.modules])"
    )
    done = by_code(code)
    assert done.stdout == "[]\n[]\n", done.stderr
    assert Path("out/report.html").exists()
