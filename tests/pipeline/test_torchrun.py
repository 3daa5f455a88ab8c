"""Several ranks of one job, started by torchrun: each records its own run, all end with the same step, one report reads them."""

import json
import shutil
import subprocess
import sys
import textwrap

import pytest

import rooflines
from tests.commands import environment, run, write_ceilings

# Takes seconds to compile or to start.
pytestmark = pytest.mark.ci

TRAINS = """
    import os, sys
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 14 * 14, 4))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    made = 0
    try:
        while made < 400:
            if rank == 1 and made == int(os.environ.get("KILLED_AT", -1)):
                os.kill(os.getpid(), 9)
            if rank == 0 and made % 10 == 5:  # one rank alone evaluates, which must not change its number of steps
                model.eval()
                with torch.no_grad():
                    network(torch.randn(2, 3, 16, 16))
                model.train()
            optimizer.zero_grad()
            model(torch.randn(2, 3, 16, 16)).sum().backward()
            made += 1
            optimizer.step()
    finally:
        with open(f"steps{rank}", "w") as file:
            file.write(str(made))
"""


def job(folder, **extra):
    """Run the script as two ranks; the exit code and what was printed."""
    (folder / "train.py").write_text(textwrap.dedent(TRAINS))
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "rooflines", "profile", "train.py"]
    options = ["-o", "job", "--device", "cpu", "--formats", "json", "--ceilings", str(write_ceilings(folder))]
    done = subprocess.run(
        [sys.executable, *command, *options], cwd=folder, env={**environment(), **extra}, capture_output=True, text=True, timeout=240
    )
    return done.returncode, done.stdout, done.stderr


def test_two_ranks_make_two_runs_that_end_with_the_same_step_and_one_report(tmp_path):
    code, out, err = job(tmp_path)
    assert code == 0, err
    runs = [rooflines.load(tmp_path / "job" / f"rank{rank}") for rank in (0, 1)]
    first, second = (run.facts.steps for run in runs)
    assert [run.facts.status for run in runs] == ["complete", "complete"]
    assert len(first.warmup_ns) == len(second.warmup_ns) == 10
    assert first.rule == "8 warm-up steps, the same on every rank"
    assert (tmp_path / "steps0").read_text() == (tmp_path / "steps1").read_text()
    assert out.count("Operators") == 1, "one rank speaks for all"
    assert "all ranks rooflines analyze job" in out
    answer = run("analyze", "job", "-o", "ranks.json", cwd=tmp_path)
    assert answer.code == 0, answer
    ranks = json.loads((tmp_path / "ranks.json").read_text())
    assert (ranks["world_size"], [row["rank"] for row in ranks["ranks"]]) == (2, [0, 1])
    assert all(row["communication_s"] > 0 for row in ranks["ranks"])
    assert run("report", "job", "-o", "report", cwd=tmp_path).code == 0
    assert (tmp_path / "report" / "report.html").is_file()


OWN_LOOP = """
    import sys
    import torch
    import torch.distributed as dist
    from rooflines.integrations.session import Session

    dist.init_process_group("gloo")
    session = Session("job", steps=2, warmup=1, ceilings=sys.argv[1], formats=["json"], device="cpu")
    session._begin("loop")
    for _ in range(8):
        torch.randn(64, 64).sum()
        session._step()
    session.close()
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_one_rank_prints_where_its_report_is(tmp_path):
    (tmp_path / "loop.py").write_text(textwrap.dedent(OWN_LOOP))
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "loop.py", str(write_ceilings(tmp_path))]
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "job" / "rank1" / "analysis.json").is_file()
    assert done.stdout.split() == ["report", "job/rank0/analysis.json"]


@pytest.fixture(scope="module")
def killed_job(tmp_path_factory):
    """A job whose second rank was killed at its twelfth step: its folder, and what it left."""
    folder = tmp_path_factory.mktemp("killed")
    return folder, job(folder, KILLED_AT="12")


@pytest.fixture
def killed(killed_job, tmp_path):
    """The code and errors of that job, with a copy of its folder to work in."""
    folder, (code, _, err) = killed_job
    shutil.copytree(folder / "job", tmp_path / "job")
    return code, err


def test_a_rank_that_is_killed_leaves_what_it_had_and_nothing_hangs(killed, tmp_path):
    code, err = killed
    assert code != 0, err
    recorded = rooflines.load(tmp_path / "job" / "rank1")
    assert (recorded.facts.status, recorded.facts.steps.traced) == ("running", "early")
    assert rooflines.analyze(recorded).operators
    answer = run("analyze", "job", cwd=tmp_path)
    assert answer.code == 0, answer
    assert run("analyze", "job/rank1", cwd=tmp_path).code == 0


@pytest.mark.usefixtures("killed")
def test_of_a_job_with_one_trace_that_run_is_analyzed(tmp_path):
    for file in (tmp_path / "job" / "rank0").glob("*.gz"):
        file.unlink()
    facts = json.loads((tmp_path / "job" / "rank0" / "run.json").read_text())
    facts.pop("trace", None)
    (tmp_path / "job" / "rank0" / "run.json").write_text(json.dumps(facts))
    answer = run("analyze", "job", "--format", "json", cwd=tmp_path)
    assert answer.code == 0, answer
    assert json.loads(answer.out)["workload"]["name"] == "train.py"
