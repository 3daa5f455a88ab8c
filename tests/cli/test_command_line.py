"""The command line: what it prints, what it refuses and how, and what it leaves on disk."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys

import psutil
import pytest
import torch

import rooflines
from rooflines.cli.app import app
from tests.commands import Answer, call, command, environment, mounted, quick, run, start, write_ceilings
from tests.processes import samplers_of, wait_until

FACTORIES = """
import torch
from torch import nn

class Raises(nn.Module):
    def forward(self, x):
        return self.inner(x)
    def inner(self, x):
        raise KeyError("lost")

class Huge(nn.Module):
    def forward(self, x):
        return x + torch.empty(10**15)

def mlp(batch_size):
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.randn(batch_size, 8)

def raises():
    try:
        {}["weights"]
    except KeyError as error:
        raise ValueError("no weights here") from error

def leaves(): raise SystemExit(4)
def nothing(): return None
def three(): return nn.Linear(1, 1), 2, 3
def huge_factory(): return torch.empty(10**15)
def raising_module(): return Raises(), torch.randn(1, 2)
def huge_module(batch_size): return Huge(), torch.randn(batch_size, 2)
def wrong_input(): return nn.Linear(8, 8), torch.randn(1, 3)

def third_raises():
    calls = []
    def step():
        calls.append(torch.randn(8, 8) @ torch.randn(8, 8))
        if len(calls) == 3:
            raise RuntimeError("third time")
    return step

def slow():
    import time
    weight = torch.randn(8, 8)
    def step():
        with open("steps", "a") as file:
            file.write(".")
        for _ in range(10):
            weight @ weight
            time.sleep(0.01)
    return step
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty working directory with a file of factories."""
    (tmp_path / "models.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ask(place, capsys, monkeypatch):
    """``rooflines profile ARGUMENTS`` in this process, as a run of few steps on the CPU."""
    options = quick(place)

    def profile(*arguments: object) -> Answer:
        return call(capsys, monkeypatch, "profile", *options, *arguments)

    return profile


def refused(answer: Answer, message: str, hint: str = "") -> None:
    """Exit code 2, one line that says ``message``, one indented line that says ``hint``."""
    assert answer.code == 2, answer
    assert message in answer.complaint[0]
    assert len(answer.complaint) <= 2
    if hint:
        assert hint in answer.complaint[1]
        assert answer.complaint[1].startswith("  ")
    assert answer.out == ""


# --- refused before anything runs --------------------------------------------------------------------------------------------------

REFUSED = [
    (["--model", "resnet5"], "unknown model 'resnet5'", "Did you mean resnet50"),
    (["--model", "ResNet-50"], "unknown model 'ResNet-50'", "Did you mean resnet50"),
    (["--model", "qqqqzzzz"], "unknown model 'qqqqzzzz'", "list_models"),
    (["--model", "tf:resnet50"], "unknown kind of model 'tf:resnet50'", "timm:NAME"),
    (["--model", "squeezenet1_1", "--device", "nonsense"], "unknown device 'nonsense'", "auto, cpu, cuda"),
    (["--model", "squeezenet1_1", "--device", "cuda:x"], "unknown device 'cuda:x'", "auto, cpu, cuda"),
    (["--model", "squeezenet1_1", "--batch-size", "0"], "--batch-size must be at least 1, got 0", "--batch-size 8"),
    (["--model", "squeezenet1_1", "--image-size", "0"], "--image-size must be at least 1, got 0", "--image-size 224"),
    (["--model", "squeezenet1_1", "--image-size", "abc"], "'--image-size'", "rooflines profile --help"),
    (["--model", "squeezenet1_1", "--sequence-length", "0"], "--sequence-length must be at least 1, got 0", "128"),
    (["--model", "squeezenet1_1", "--threads", "0"], "--threads must be at least 1, got 0", "--threads 2"),
    (["--model", "squeezenet1_1", "--seed", "-1"], "--seed must be between", "--seed 0"),
    (["--model", "squeezenet1_1", "--precision", "fp8"], "'fp8' is not one of", "rooflines profile --help"),
    (["--model", "squeezenet1_1", "--precision", "bfloat16"], "'bfloat16' is not one of", "Did you mean bf16?"),
    (["--model", "squeezenet1_1", "--mode", "train"], "'train' is not one of", "Did you mean training?"),
    (["--model", "squeezenet1_1", "--mode", "inferense"], "'inferense' is not one of", "Did you mean inference?"),
    (["--model", "squeezenet1_1", "--device", "gpu"], "unknown device 'gpu'", "Did you mean cuda?"),
    (["--model", "squeezenet1_1", "--batch-size", "8,16"], "'8,16' is not a valid int",
     "A sweep takes lists: rooflines sweep "),
    (["--model", "squeezenet1_1", "--precision", "tf32"], "tf32 is available on NVIDIA GPUs only", "Use fp32"),
    (["--model", "squeezenet1_1", "--steps", "0"], "--steps must be at least 1, got 0", "Omit it"),
    (["--model", "squeezenet1_1", "--warmup", "-1"], "--warmup must be at least 0, got -1", "Omit it"),
    (["--model", "squeezenet1_1", "--formats", "html,doc"], "unknown report format 'doc'", "html, pdf, markdown"),
    (["--model", "squeezenet1_1", "--ceilings", "none.json"], "--ceilings none.json: file not found", "measured, spec"),
    (["--model", "squeezenet1_1", "--ceilings", "MI3000X"], "--ceilings MI3000X is neither a file nor", "Instinct MI300X"),
    (["--model", "squeezenet1_1", "--ceilings", "models.py"], '"models.py" is not JSON', "ceilings"),
    (["--modle", "squeezenet1_1"], "no such option: --modle", "rooflines profile --help"),
    (["--model", "squeezenet1_1", "train.py"], "--model squeezenet1_1 cannot be combined with train.py", "one of them"),
    (["--model", "alexnet", "--image-size", "32"], "alexnet does not accept images of 32 x 32", "Omit --image-size"),
    (["--model", "inception_v3", "--image-size", "64"], "inception_v3 does not accept images of 64 x 64", "Omit --image-size"),
    (["--model", "vit_b_16", "--image-size", "100"], "vit_b_16 does not accept images of 100 x 100", "Omit --image-size"),
    (["--model", "swin_t", "--image-size", "2"], "swin_t does not accept images of 2 x 2", "Omit --image-size"),
    (["--model", "densenet121", "--image-size", "16"], "densenet121 does not accept images of 16 x 16", "Omit --image-size"),
    (["--model", "timm:vgg11", "--image-size", "16"], "timm:vgg11 does not accept images of 16 x 16", "Omit --image-size"),
    (["--model", "hf:swin", "--image-size", "64"], "hf:swin does not accept images of 64 x 64", "Omit --image-size"),
    (["--model", "hf:bert", "--image-size", "64"], "hf:bert takes tokens", "--sequence-length"),
    (["--model", "hf:bertt"], "unknown model 'hf:bertt'", "Did you mean hf:bert?"),
    (["--model", "timm:resnet19"], "unknown model 'timm:resnet19'", "Did you mean timm:resnet"),
    (["--model", "resnet18", "--mode", "training", "--image-size", "16"], "cannot train on a batch of 1", "--batch-size 2"),
    (["--model", "alexnet", "-o", "run.html"], "--output 'run.html' is the name of a file", "Give a directory, with --formats html"),
    (["models.py:nothing"], "the factory models.py:nothing returned NoneType", "Return (module, inputs)"),
    (["models.py:three"], "returned tuple of Linear, int, int", "Return (module, inputs)"),
    (["models.py:mlpp"], "has no function 'mlpp'", "Did you mean mlp?"),
    (["models.py:mlp", "--channels-last"], "does not apply to models.py:mlp", "Remove --channels-last"),
    (["models.py:slow", "--channels-last"], "--channels-last does not apply to the step function", "(module, inputs)"),
    (["models.py:slow", "--compile", "on"], "--compile does not apply to the step function", "(module, inputs)"),
    (["model.py:mlp"], "no such file: 'model.py'", "path/to/file.py:factory"),
    (["model.py"], "no such script: 'model.py'", "Did you mean models.py?"),
    (["--model", "models.py"], "a model was expected, and 'models.py' is a script", "rooflines profile models.py"),
    (["ceilings.json"], "a model was expected, and 'ceilings.json' is a file", "Give the name of a model, or FILE.py:FUNCTION"),
    (["models.py:mlp", "extra"], "unexpected argument 'extra'", "after --"),
    (["models.py", "--lr", "1"], "no such option: --lr", "rooflines profile train.py -- --epochs 2"),
    (["models.py", "--image-size", "64"], "--image-size does not apply to scripts", "script's own arguments"),
    (["models.py", "--mode", "training"], "--mode does not apply to scripts", "script's own arguments"),
]  # fmt: skip


# Models that are built before their size is refused, as one of torchvision, of timm and of transformers is anyway.
SLOW = {"inception_v3", "swin_t", "densenet121", "vit_b_16"}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [pytest.param(*case, id=" ".join(case[0]), marks=pytest.mark.slow if SLOW & {*case[0]} else ()) for case in REFUSED],
)
def test_what_cannot_be_done_gets_one_line_a_hint_and_exit_code_2_and_leaves_nothing(ask, place, arguments, message, hint):
    answer = ask("-o", "out", *arguments)
    refused(answer, message, hint)
    assert "Traceback" not in answer.err
    assert not (place / "out").exists()
    assert not (place / "runs").exists()


def test_nothing_to_profile(place, capsys, monkeypatch):
    refused(call(capsys, monkeypatch, "profile"), "no model or script was given", "rooflines profile --model resnet50")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there(ask):
    refused(ask("--model", "squeezenet1_1", "--device", "cuda"), "--device cuda: ", "Use --device cpu")


# --- the output directory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("output", "message"), [
    ("full", "the output directory 'full' is not empty (1 entry)"),
    ("file", "the output 'file' is a file, not a directory"),
    ("file/below", "cannot write the output directory 'file/below': Not a directory"),
    pytest.param("/proc/rooflines", "cannot write the output directory '/proc/rooflines'",
                 marks=pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")),
])  # fmt: skip
def test_an_output_that_cannot_be_used_is_refused_before_the_model_is_built(ask, place, output, message):
    (place / "full").mkdir()
    (place / "full" / "thing").touch()
    (place / "file").touch()
    answer = ask("--model", "nonsense", "-o", output)  # would be refused too, had it been looked at
    refused(answer, message, "Choose another --output")
    assert "building" not in answer.err
    assert [path.name for path in (place / "full").iterdir()] == ["thing"]


def test_an_output_on_a_read_only_file_system_is_refused(ask, place):
    (place / "frozen").mkdir()
    with mounted("-t", "tmpfs", "-o", "ro", "tmpfs", place / "frozen"):
        refused(
            ask("--model", "squeezenet1_1", "-o", "frozen/run"),
            "cannot write the output directory 'frozen/run': Read-only file system",
            "another",
        )


@pytest.mark.ci
def test_a_full_disk_is_one_line_and_the_run_says_that_it_failed(place):
    (place / "small").mkdir()
    with mounted("-t", "tmpfs", "-o", "size=48k", "tmpfs", place / "small"):
        answer = run("profile", "--model", "squeezenet1_1", "--image-size", "64", *quick(place), "-o", "small/run", cwd=place)
        assert answer.code == 2, answer
        assert "cannot write the trace" in answer.complaint[0]
        assert "No space left on device" in answer.complaint[0]
        assert "disk is not full" in answer.complaint[1]
        assert "Traceback" not in answer.err
        assert rooflines.load(place / "small" / "run").facts.status in ("failed", "running")
        # What was sampled until then stays, to be read from there.
        left = {path.name for path in (place / "small" / "run").glob(".*.json*")} - {".samples.jsonl"}
        assert not left, "half a trace was left"


# --- the user's own code fails -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "message", "last", "frame"), [
    ("raises", "the factory models.py:raises raised: ValueError: no weights here", "ValueError: no weights here", "in raises"),
    ("raising_module", "models.py:raising_module raised KeyError: 'lost'", "KeyError: 'lost'", "in inner"),
    ("wrong_input", "models.py:wrong_input raised RuntimeError: mat1 and mat2 shapes", "RuntimeError: mat1 and mat2", "in forward"),
    ("third_raises", "models.py:third_raises raised RuntimeError: third time", "RuntimeError: third time", "in step"),
])  # fmt: skip
def test_user_code_that_raises_shows_its_traceback_and_then_our_line(ask, place, name, message, last, frame):
    answer = ask(f"models.py:{name}", "-o", "out")
    refused(answer, message)
    above = answer.err[: answer.err.index("rooflines: ")]
    if name != "wrong_input":  # torch's own frames only: they are said in our line
        assert frame in above
        assert last in above.splitlines()
        assert f"{os.path.dirname(rooflines.__file__)}/" not in above, "our frames are not the user's concern"


@pytest.mark.parametrize(("name", "message", "above"), [
    ("models.py:raises", "ValueError: no weights here", ("KeyError: 'weights'", "direct cause")),
    ("models.py:leaves", "the factory models.py:leaves raised: SystemExit: 4", ()),
    ("broken.py:f", "the file 'broken.py' raised during import: SyntaxError", ("def f(:",)),
    ("needy.py:f", "ModuleNotFoundError: No module named 'no_such_package'", ('needy.py", line 1',)),
])  # fmt: skip
def test_a_factory_and_a_file_that_raise_show_where_and_why(ask, place, name, message, above):
    (place / "broken.py").write_text("def f(:\n")
    (place / "needy.py").write_text("import no_such_package\n")
    answer = ask(name)
    refused(answer, message)
    assert all(words in answer.err for words in above)


# --- out of memory -----------------------------------------------------------------------------------------------------------------


def test_out_of_memory_says_what_was_asked_what_was_free_and_what_to_try(ask, place):
    answer = ask("models.py:huge_module", "--batch-size", "8", "-o", "out")
    refused(answer, "out of memory in models.py:huge_module (inference, batch 8): 3.55 PiB asked for, ", "Try a smaller input.")
    assert "GiB free on the host" in answer.complaint[0]
    assert "'out'" in answer.complaint[1]
    facts = rooflines.load("out").facts
    assert facts.status == "failed"
    assert "allocate" in (facts.error or "")
    refused(ask("models.py:huge_factory"), "out of memory in models.py:huge_factory (inference): 3.55 PiB asked for")


LIMITED = """
import resource, runpy, sys
import torch, torchvision  # their libraries take address space that is not the run's
import rooflines.cli
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (600 << 20),) * 2)
sys.argv = ["rooflines", *sys.argv[1:]]
rooflines.cli.main()
"""


@pytest.mark.ci
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and RLIMIT_AS")
def test_out_of_memory_under_a_limit_names_the_limit(place):
    (place / "wide.py").write_text(
        "import torch\n"
        "def wide():\n"
        "    kept = []\n"
        "    return lambda: kept.append(torch.ones(50 << 20, dtype=torch.uint8))\n"
    )  # fmt: skip
    line = [sys.executable, "-c", LIMITED, "profile", "wide.py:wide", *quick(place), "--steps", "50", "-o", "out"]
    done = subprocess.run(line, cwd=place, env=environment(), capture_output=True, text=True, timeout=300)
    answer = Answer(done.returncode, done.stdout, done.stderr)
    refused(answer, "out of memory in wide.py:wide (inference): 50.0 MiB asked for, ", "Try a smaller input.")
    assert "(ulimit -v)" in answer.complaint[0]
    facts = rooflines.load(place / "out").facts
    assert facts.status == "failed"
    assert facts.steps is not None
    assert facts.steps.timed_ns, "the steps that fitted were lost"


# --- corrupt run directories -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run of a small network, recorded once through the command line."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "models.py").write_text(FACTORIES)
    answer = run("profile", "models.py:mlp", "--batch-size", "4", *quick(folder), "-o", "run", cwd=folder)
    assert answer.code == 0, answer
    return folder / "run"


def edit_run(change):
    def spoil(directory):
        plain = json.loads((directory / "run.json").read_text())
        change(plain)
        (directory / "run.json").write_text(json.dumps(plain))

    return spoil


def trace_of(directory):
    (trace,) = directory.glob("*.pt.trace.json.gz")
    return trace


def remove_trace_and_facts(directory):
    trace_of(directory).unlink()
    (directory / "run.json").unlink()


CORRUPT = [
    (lambda d: (d / "run.json").write_text("{"), "is corrupt: run.json"),
    (lambda d: (d / "run.json").write_bytes(b"\xff\xfe{}"), "is corrupt: run.json"),
    (lambda d: (d / "run.json").write_text("[1, 2]"), "is corrupt: run.json: Expected `object`, got `array`"),
    (lambda d: (d / "run.json").write_text('{"name": "package"}'), "has schema ''"),
    (edit_run(lambda p: p.update(schema="rooflines.run/9")), "has schema 'rooflines.run/9'; this version of rooflines reads"),
    (edit_run(lambda p: p["workload"].update(batch_size="four")), "is corrupt: run.json: Expected `int | null`, got `str`"),
    (edit_run(lambda p: p.update(trace="../../etc/passwd")), "is not a file name"),
    (remove_trace_and_facts, "is not a run directory: it has no run.json"),
    (lambda d: shutil.rmtree(d), "no such run or trace: 'run'"),
    (lambda d: (d / "samples.parquet").write_bytes(b"PAR1 no PAR1"), "contains no valid device samples"),
    (lambda d: trace_of(d).unlink(), "cannot read the trace 'run/models.py-mlp.pt.trace.json.gz': No such file or directory"),
    (lambda d: trace_of(d).write_bytes(trace_of(d).read_bytes()[:-200]), "is a damaged gzip file: unexpected end of file"),
    (lambda d: trace_of(d).write_bytes(gzip.compress(b"not a trace")), "is not a PyTorch trace: JSON is malformed"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "message"), CORRUPT, ids=[case[1] + f" {i}" for i, case in enumerate(CORRUPT)])
@pytest.mark.parametrize("verb", ["analyze", "report"])
def test_a_corrupt_run_directory_gets_one_line(recorded, place, capsys, monkeypatch, spoil, message, verb):
    shutil.copytree(recorded, place / "run")
    spoil(place / "run")
    before = (place / "run" / "analysis.json").read_bytes() if (place / "run").exists() else None
    answer = call(capsys, monkeypatch, verb, "run")
    refused(answer, message)
    if before is not None:
        assert (place / "run" / "analysis.json").read_bytes() == before, "a failed analysis replaced the last good one"


# --- what a run leaves, and reading it again ---------------------------------------------------------------------------------------


def test_a_run_directory_holds_what_it_should_and_says_what_made_it(recorded):
    names = {path.name for path in recorded.iterdir()}
    assert {"run.json", "analysis.json", "operators.parquet", "models.py-mlp.pt.trace.json.gz"} <= names
    assert not [name for name in names if name.startswith(".")], "temporary files were left"
    facts = rooflines.load(recorded).facts
    assert facts.status == "complete"
    assert facts.settings.command.startswith("rooflines profile models.py:mlp --batch-size 4 --ceilings ")
    assert facts.workload.batch_size == 4
    assert json.loads((recorded / "analysis.json").read_text())["command"] == facts.settings.command


def test_analyze_prints_json_and_derives_the_same_again(recorded, place, capsys, monkeypatch):
    shutil.copytree(recorded, place / "run")
    first = json.loads((place / "run" / "analysis.json").read_text())
    answer = call(capsys, monkeypatch, "analyze", "run", "--format", "json")
    assert answer.code == 0
    assert json.loads(answer.out) == first
    assert json.loads((place / "run" / "analysis.json").read_text()) == first


def test_analyze_with_other_ceilings_and_elsewhere_leaves_the_run_alone(recorded, place, capsys, monkeypatch):
    before = (recorded / "analysis.json").read_bytes()
    answer = call(capsys, monkeypatch, "analyze", recorded, "--ceilings", write_ceilings(place), "-o", "other.json")
    assert answer.code == 0, answer
    assert json.loads((place / "other.json").read_text())["schema"] == "rooflines.analysis/2"
    assert (recorded / "analysis.json").read_bytes() == before
    refused(
        call(capsys, monkeypatch, "analyze", recorded, "-o", "no/such/other.json"), "directory not found: 'no/such'", "another file"
    )


def test_report_writes_the_formats_asked_for(recorded, place, capsys, monkeypatch):
    shutil.copytree(recorded, place / "run")
    answer = call(capsys, monkeypatch, "report", "run", "--formats", "csv,json")
    assert answer.code == 0, answer
    assert [line.split()[0] for line in answer.out.splitlines()] == ["analysis", "csv", "json"]
    assert (place / "run" / "operators.csv").is_file()
    refused(call(capsys, monkeypatch, "report", "run", "--formats", "doc"), "unknown report format 'doc'")


def test_quiet_prints_the_path_only(ask):
    answer = ask("models.py:mlp", "-o", "out", "--quiet")
    assert (answer.code, answer.out, answer.err) == (0, f"{os.path.join('out', 'analysis.json')}\n", "")


# --- interrupted and killed --------------------------------------------------------------------------------------------------------


def steps_taken(place):
    return (place / "steps").stat().st_size if (place / "steps").exists() else 0


STAGES = {
    "warm-up": (["--warmup", "1000"], "warming up"),
    "timed": (["--warmup", "1", "--steps", "1000"], "timing steps with the profiler off"),
    "traced": (["--warmup", "1", "--steps", "1"], "tracing"),
}


def run_until(place, stage):
    """A run of slow steps, in the second step of ``stage``."""
    options, line = STAGES[stage]
    ceilings = write_ceilings(place)
    process = start(
        "profile", "models.py:slow", "--device", "cpu", "--ceilings", ceilings, "--formats", "json", "-o", "out", *options, cwd=place
    )
    assert process.stderr is not None
    for text in process.stderr:
        if text.rstrip().endswith(line):
            break
    else:
        raise AssertionError("the run ended before that stage")
    taken = steps_taken(place)
    wait_until(lambda: process.poll() is not None or steps_taken(place) >= taken + 2)
    assert process.poll() is None, process.communicate()
    return process


@pytest.mark.ci
@pytest.mark.parametrize("stage", STAGES)
def test_ctrl_c_leaves_a_run_that_loads_and_no_process(place, stage):
    process = run_until(place, stage)
    children = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    complaint = [line for line in err.splitlines() if line.startswith("rooflines: ")]
    assert complaint == ["rooflines: interrupted; the partial run is in 'out'."]
    assert "rooflines analyze out" in err
    facts = rooflines.load(place / "out").facts
    assert facts.status == "interrupted"
    assert facts.steps is not None
    assert facts.steps.warmup_ns
    assert bool(facts.steps.timed_ns) == (stage != "warm-up")
    assert not psutil.wait_procs(children, timeout=60)[1], "a sampler outlived the run"
    assert rooflines.analyze(place / "out").workload.name == "models.py:slow"


@pytest.mark.ci
def test_a_killed_run_says_that_it_was_running_and_its_sampler_ends(place):
    process = run_until(place, "timed")
    children = samplers_of(process.pid)
    assert children, "no sampler ran"
    process.kill()
    process.communicate(timeout=60)
    facts = rooflines.load(place / "out").facts
    assert facts.status == "running"
    assert facts.steps.warmup_ns, "what had been recorded is there"
    assert not psutil.wait_procs(children, timeout=60)[1], "the sampler outlived a killed run"
    assert rooflines.analyze(place / "out").operators == ()


# --- the front door ----------------------------------------------------------------------------------------------------------------


def test_help_version_and_no_command(place, capsys, monkeypatch):
    assert call(capsys, monkeypatch, "--version") == Answer(0, f"{rooflines.__version__}\n", "")
    assert call(capsys, monkeypatch).code == 0
    answer = call(capsys, monkeypatch, "profile", "--help")
    assert answer.code == 0
    for group in ("Workload", "Execution", "Measurement", "Output"):
        assert group in answer.out
    refused(call(capsys, monkeypatch, "profil"), "no such command 'profil'", "rooflines --help")


@pytest.mark.ci
def test_the_installed_command_and_the_module_are_the_same(place):
    installed = os.path.join(os.path.dirname(sys.executable), "rooflines")
    if not os.path.exists(installed):
        pytest.skip("the package is not installed as a command")
    outputs = [
        subprocess.run([*line, "--help"], capture_output=True, text=True, env=environment()) for line in ([installed], command())
    ]
    assert outputs[0].stdout == outputs[1].stdout
    assert [done.returncode for done in outputs] == [0, 0]


# --- names of files that are not UTF-8 ---------------------------------------------------------------------------------------------


@pytest.mark.ci
def test_a_file_whose_name_is_not_utf_8_is_recorded_read_and_written(place):
    path, trace = os.fsdecode(b"caf\xe9.py"), os.fsdecode(b"caf\xe9.json.gz")
    (place / "models.py").rename(place / path)
    answer = run("profile", f"{path}:mlp", *quick(place), "--formats", "html,json,csv,markdown", "-o", "out", cwd=place)
    assert (answer.code, answer.complaint) == (0, [])
    recorded = json.loads((place / "out" / "run.json").read_text())
    assert recorded["workload"]["name"] == "caf\\xe9.py:mlp"
    shutil.copy(next((place / "out").glob("*.pt.trace.json.gz")), place / trace)
    answer = run("report", trace, "--formats", "pdf", "-o", "reports", "--ceilings", place / "ceilings.json", cwd=place)
    assert (answer.code, answer.complaint) == (0, [])
    page = os.fsdecode(b"caf\xe9.html")
    answer = run("count", "resnet18", "-o", page, cwd=place)
    assert (answer.code, (place / page).is_file()) == (0, True)


@pytest.mark.ci
def test_where_a_name_must_be_utf_8_one_line_says_so(place):
    output = os.fsdecode(b"caf\xe9")
    refused(run("profile", "models.py:mlp", *quick(place), "-o", output, cwd=place), r"directory 'caf\\xe9' is not UTF-8", "--output")
    (place / "models.py").rename(place / f"{output}.py")
    answer = run("sweep", "--model", f"{output}.py:mlp", "--batch-size", "1,2", cwd=place)
    refused(answer, "a file name that is not UTF-8 cannot be used here", "Rename it")


@pytest.mark.parametrize("name", ["profile", "train", "sweep", "tune", "study environments"])
def test_every_command_that_measures_writes_a_page_and_a_pdf(name, capsys, monkeypatch):
    answer = call(capsys, monkeypatch, *name.split(), "--help")
    assert "default: html,pdf" in " ".join(answer.out.replace("│", " ").replace("(", "").split())


def test_help_is_wrapped_by_the_terminal_and_not_by_our_source(capsys, monkeypatch):
    answer = call(capsys, monkeypatch, "check", "--help")
    text = " ".join(answer.out.split())
    assert "or the working tree with a commit, and fail if it is slower." in text
    paragraphs = [command.help.split("\n\n") for command in app.registered_commands if command.help]
    assert paragraphs
    assert not [text for texts in paragraphs for text in texts if "\n" in text]
