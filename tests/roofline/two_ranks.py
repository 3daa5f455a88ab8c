"""Two ranks on a processor, whose products DTensor and FSDP2 divide: ``python -m tests.roofline.two_ranks DIRECTORY`` writes a trace of
each kind and rank."""

import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def work(rank, directory):
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    parallel = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32))
    parallelize_module(parallel, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    sharded = nn.Sequential(nn.Linear(64, 48), nn.Linear(48, 16))
    for layer in (*sharded, sharded):
        fully_shard(layer, mesh=mesh)
    inputs = torch.randn(20, 64)
    for name, network in (("parallel", parallel), ("sharded", sharded)):
        network(inputs).sum().backward()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
            network(inputs).sum().backward()
        profiler.export_chrome_trace(f"{directory}/{name}{rank}.json")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, (sys.argv[1],), nprocs=2)
