"""Processes that a recorded program starts: each that runs PyTorch is recorded, and all run as they do alone."""

import json
import subprocess
import sys
import textwrap

import pytest

import rooflines
from rooflines.profiler.record.children import starts_python
from tests.commands import environment, quick, run

# Two products forward, two for the weights and one for the input of the second layer.
FLOPS = 5 * 2 * 8 * 64 * 64
TRAINS = """
    import torch

    def trains(steps, network=None):
        network = network or torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 64, bias=False))
        optimizer = torch.optim.SGD(network.parameters(), 1e-3)
        for _ in range(steps):
            optimizer.zero_grad()
            network(torch.randn(8, 64)).sum().backward()
            optimizer.step()
"""


def flops(directory):
    return sum(row.flops for row in rooflines.analyze(directory).operators if row.name.endswith("mm"))


def recorded(folder, source):
    """Our answer to the program."""
    (folder / "work.py").write_text(textwrap.dedent(TRAINS))
    (folder / "program.py").write_text(textwrap.dedent(source))
    # By its whole path: processes spawned from a fork look for it in the directory that the fork began in.
    answer = run("profile", folder / "program.py", *quick(folder), "-o", "out", cwd=folder)
    assert answer.code == 0, answer
    return answer


@pytest.mark.ci
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_two_workers_of_ddp_are_one_job(tmp_path, method):
    answer = recorded(
        tmp_path,
        """
        import socket, torch
        import torch.distributed as dist
        import torch.multiprocessing as mp
        from work import trains

        def worker(rank, port):
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
            network = torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 64, bias=False))
            trains(40, torch.nn.parallel.DistributedDataParallel(network))
            dist.destroy_process_group()

        if __name__ == "__main__":
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            mp.start_processes(worker, args=(port,), nprocs=2, start_method="METHOD")
            print("END", flush=True)
        """.replace("METHOD", method),
    )
    assert answer.out.startswith("END\n2 ranks")
    ranks = json.loads((tmp_path / "out" / "ranks.json").read_text())
    assert (ranks["world_size"], [row["rank"] for row in ranks["ranks"]]) == (2, [0, 1])
    assert all(row["communication_s"] > 0 for row in ranks["ranks"])
    assert [flops(tmp_path / "out" / f"rank{rank}") for rank in (0, 1)] == [FLOPS, FLOPS]
    assert {rooflines.load(tmp_path / "out" / f"rank{rank}").facts.status for rank in (0, 1)} == {"complete"}
    assert run("analyze", "out", cwd=tmp_path).out.startswith("2 ranks")


FORKED = """
    import multiprocessing, os, signal
    from work import torch, trains

    def is_killed():
        trains(6)
        os.kill(os.getpid(), signal.SIGKILL)

    def is_killed_at_once():
        torch.nn.Linear(2, 2)(torch.ones(2))
        os.kill(os.getpid(), signal.SIGKILL)

    class Items(torch.utils.data.Dataset):
        def __len__(self):
            return 4
        def __getitem__(self, index):
            return torch.nn.Linear(8, 8)(torch.ones(8)).detach()

    fork = multiprocessing.get_context("fork")
    for target in (is_killed, is_killed_at_once):
        process = fork.Process(target=target, name=target.__name__)
        process.start()
        process.join()
        print(process.exitcode, flush=True)
    if (child := os.fork()) == 0:
        trains(6)
        os._exit(7)
    print(os.waitpid(child, 0)[1] >> 8)
    for batch in torch.utils.data.DataLoader(Items(), num_workers=1):
        pass
    print("END", flush=True)
"""


@pytest.mark.ci
def test_forked_children_are_recorded_however_they_end_and_workers_of_loaders_are_not(tmp_path):
    answer = recorded(tmp_path, FORKED)
    assert answer.out.startswith("-9\n-9\n7\nEND\n2 ranks"), answer
    runs = sorted((tmp_path / "out").glob("rank*"))
    assert [path.name for path in runs] == ["rank0", "rank1", "ranks.json"], "in the order in which they began"
    assert [rooflines.load(path).facts.status for path in runs[:2]] == ["running", "complete"]
    assert [flops(path) for path in runs[:2]] == [FLOPS, FLOPS]
    assert "is_killed_at_once" in json.loads(runs[2].read_text())["notes"][-1]


STARTED = """
    import multiprocessing, os, subprocess, sys
    from concurrent.futures import ProcessPoolExecutor
    import torch

    def infers(number):
        with torch.no_grad():
            return torch.nn.Linear(64, 64)(torch.randn(8, 64)).shape[0] + number

    if __name__ == "__main__":
        print(subprocess.run(["env"], capture_output=True, text=True).stdout)
        shown = "import os, sys; print(sys.argv, sys.path, sorted(os.environ))"
        print(subprocess.run([sys.executable, "-c", shown, "x"], capture_output=True, text=True).stdout)
        print(subprocess.run([sys.executable, "-c", "import sys; from work import trains; trains(6); sys.exit(5)"]).returncode)
        print(subprocess.run(f"{sys.executable} -c 'from work import trains; trains(6)' && echo done", shell=True).returncode)
        with ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")) as pool:
            print(sum(pool.map(infers, range(30))))
        print("END", flush=True)
"""


@pytest.mark.slow
def test_programs_that_are_started_find_everything_as_it_is_without_us_and_are_recorded(tmp_path):
    answer = recorded(tmp_path, STARTED)
    alone = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120)
    assert alone.stdout.splitlines()[-5:] == ["5", "done", "0", str(8 * 30 + sum(range(30))), "END"]
    assert answer.out.startswith(alone.stdout), answer
    assert [flops(tmp_path / "out" / rank) for rank in ("rank0", "rank1", "rank2")] == [FLOPS, FLOPS, 2 * 8 * 64 * 64 + 8 * 64]


@pytest.mark.slow
def test_a_program_that_makes_steps_itself_names_the_runs_of_its_children(tmp_path):
    answer = recorded(
        tmp_path,
        """
        import multiprocessing
        from work import trains

        if __name__ == "__main__":
            process = multiprocessing.get_context("fork").Process(target=trains, args=(30,))
            process.start()  # and is not joined
            trains(4)
            print("END", flush=True)
        """,
    )
    assert answer.out.startswith("END\nprogram.py · training")
    facts = rooflines.load(tmp_path / "out").facts
    assert "a process that the program started was recorded, too: rooflines analyze out/rank0" in facts.notes
    assert flops(tmp_path / "out" / "rank0") == FLOPS


@pytest.mark.parametrize(("words", "starts"), [
    ([sys.executable, "train.py"], True),
    ([sys.executable, "-u", "-m", "train"], True),
    ([sys.executable, "-X", "dev", "train.py"], True),
    ([sys.executable, "-I", "train.py"], False),
    ([sys.executable, "-sE", "train.py"], False),
    ([sys.executable, "-m", "rooflines", "profile", "train.py"], False),
    (["/bin/sh", "-c", f"{sys.executable} train.py"], True),
    (["/bin/bash", "-c", f"cd runs && X=1 {sys.executable} train.py | tee log"], True),
    (["/bin/sh", "-c", "/home/me/rooflines/env/bin/python train.py"], True),
    (["/bin/sh", "-c", "/home/me/env/bin/rooflines profile --python train.py"], False),
    (["/bin/sh", "-c", f"{sys.executable} -m rooflines profile train.py"], False),
    (["/bin/sh", "-c", f"{sys.executable} train.py; env"], False),
    (["/bin/sh", "-c", "env"], False),
    (["/usr/bin/env"], False),
])  # fmt: skip
def test_only_python_programs_are_given_the_start_up_file(words, starts):
    assert starts_python(words, [words[0].encode()]) is starts


@pytest.mark.parametrize(("text", "starts"), [
    ("#!/usr/bin/env python3\n", True),
    ("#!/bin/sh\necho python\n", False),
    ("#!/usr/bin/python3 -I\n", False),
])  # fmt: skip
def test_scripts_are_told_by_their_first_lines(tmp_path, text, starts):
    (tmp_path / "script").write_text(text)
    assert starts_python(["script"], [tmp_path / "missing", tmp_path / "script"]) is starts
