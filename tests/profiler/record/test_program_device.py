"""The device of a program: chosen from facts about it, and looked for without opening a context on a GPU."""

from pathlib import Path

import pytest
import torch
from torch import nn

from rooflines.device_specs.records import Ceilings
from rooflines.pipeline.ceilings import given_ceilings
from rooflines.pipeline.options import ProfileOptions
from rooflines.pipeline.recording import profile_script, record
from rooflines.profiler import options
from rooflines.profiler.hooks.guard import Guard
from rooflines.profiler.hooks.module_hooks import ModuleRanges
from rooflines.profiler.progress import Silent
from rooflines.profiler.record.device import gpus_of, program_device
from rooflines.profiler.record.tracer import Tracer
from rooflines.profiler.records import Environment, Run, RunFile, Workload
from tests.samples import ceilings

MB = 1 << 20
LOOP = Workload(name="m", mode="training", source="loop")


@pytest.mark.parametrize(("facts", "gpus"), [
    # nothing of torch's on a GPU
    (({}, {}, None, None), ()),
    (({"cpu": 10}, {}, None, 3), ()),
    (({"cpu": 10}, {}, 0, None), ()),  # it has asked CUDA something
    (({"meta": 10}, {}, None, None), ()),
    # a script on cuda:1, where the current GPU is 0 all the time
    (({"cuda:1": 10}, {1: 50 * MB}, 0, None), (1,)),
    (({}, {1: 50 * MB}, 0, None), (1,)),
    # rank 2, which holds a little memory on GPU 0 because it loaded its checkpoint there
    (({"cuda:2": 10}, {0: 90 * MB, 2: 50 * MB}, 2, 2), (2, 0)),
    (({}, {0: 2 * MB, 2: 500 * MB}, 0, 2), (2, 0)),
    # DataParallel: parameters on the first, copies on all
    (({"cuda:0": 10}, {0: 9, 1: 9, 2: 9}, 0, None), (0, 1, 2)),
    # a model split over two GPUs, and parameters of which a part stays on the CPU
    (({"cuda:0": 10, "cuda:1": 11}, {0: 9, 1: 9}, 0, None), (1, 0)),
    (({"cpu": 1000, "cuda:1": 1}, {1: 9}, 0, None), (1,)),
    # parameters on the CPU, computed on a GPU
    (({"cpu": 1000}, {3: 9}, 3, None), (3,)),
    # equals: the local rank, then the current one, then the first; a local rank above what the rank sees does not count
    (({}, {0: 9, 1: 9}, 0, 1), (1, 0)),
    (({}, {0: 9, 1: 9}, 1, None), (1, 0)),
    (({}, {0: 9}, 0, 5), (0,)),
    # memory that is not torch's
    (({}, {}, 2, 1), (2,)),
    (({"meta": 10}, {}, 2, None), (2,)),
])  # fmt: skip
def test_the_first_gpu_is_the_one_with_most_of_the_work(facts, gpus):
    assert gpus_of(*facts) == gpus


@pytest.mark.parametrize(("rank", "visible", "chosen"), [("", 4, 0), ("3", 4, 3), ("3", 1, 0), ("x", 2, 0)])
def test_a_rank_uses_its_own_gpu_where_it_sees_it(monkeypatch, rank, visible, chosen):
    monkeypatch.setenv("LOCAL_RANK", rank)
    assert options._own_gpu(visible) == chosen


def test_auto_waits_for_the_program_where_there_is_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert program_device("auto") is None
    assert program_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert program_device("auto") == options.find_device("auto")


def test_the_data_sheet_is_that_of_the_device_that_the_run_shows(monkeypatch):
    """Not that of GPU 0, and looked up after the run."""
    asked = []
    monkeypatch.setattr("rooflines.pipeline.ceilings.find_device", torch.device)
    monkeypatch.setattr("rooflines.device_specs.live.known", asked.append)
    sheet = given_ceilings("spec", None)
    assert asked == []
    facts = RunFile(workload=LOOP, environment=Environment(rooflines="0", device="cuda:3", device_name="GPU"))
    sheet(Run(directory=Path(), facts=facts), False, Silent())
    assert asked == ["cuda:3"]


def test_parameters_are_counted_where_they_are():
    on_cpu, on_meta = nn.Linear(3, 2), nn.Linear(5, 1, bias=False, device="meta")
    optimizer = torch.optim.SGD([{"params": on_cpu.parameters()}, {"params": on_meta.parameters()}], lr=0.1)
    tracer = Tracer(lambda: torch.device("cpu"), cuda=False, steps=1, modules=ModuleRanges(), guard=Guard())
    tracer.start()
    on_cpu(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    tracer.step()
    assert tracer.placed_elements == {"cpu": 3 * 2 + 2, "meta": 5}


@pytest.fixture
def gpu_that_is_not_to_be_touched(monkeypatch):
    """A machine with a GPU, on which opening a context fails the test."""

    def opened(*_):
        raise AssertionError("a context was opened on a GPU")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("_lazy_init", "synchronize", "current_device", "get_device_properties", "get_device_name"):
        monkeypatch.setattr(torch.cuda, name, opened)


def train(steps, ended=lambda: None):
    network = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(steps):
        network(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        ended()
    network(torch.ones(2, 4))


def train_in_a_loop(steps, directory):
    with record(directory, ceilings="spec", formats=("json",)) as recording:
        train(steps, recording.step)
    return recording.run


def train_in_a_script(steps, directory):
    script = directory.with_suffix(".py")
    script.write_text(f"from tests.profiler.record.test_program_device import train\ntrain({steps})\n")
    return profile_script(script, [], ProfileOptions(output=directory, ceilings="spec", formats=("json",)))


@pytest.mark.ci
@pytest.mark.usefixtures("gpu_that_is_not_to_be_touched")
@pytest.mark.parametrize("run", [train_in_a_loop, train_in_a_script])
@pytest.mark.parametrize("steps", [0, 30])
def test_a_program_on_the_cpu_touches_no_gpu(tmp_path, monkeypatch, run, steps):
    monkeypatch.setattr("rooflines.pipeline.recording.given_ceilings", lambda *_: lambda *_: ceilings_here())
    facts = run(steps, tmp_path / "run").facts
    assert facts.environment.device == "cpu"
    assert (facts.steps.traced == "program") == (steps == 0)
    assert facts.steps.clock == "perf_counter"
    assert facts.tf32 is None


def ceilings_here():
    return Ceilings(device="here", kind="cpu", ceilings=ceilings())
