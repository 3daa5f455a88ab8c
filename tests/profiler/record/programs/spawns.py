"""Processes that torch spawns, one with an exit code."""

import sys

import torch.multiprocessing as mp
from small import train


def work(rank):
    print(f"rank {rank}", __name__, sys.argv[1:], flush=True)
    train(3, f"rank {rank} ") if rank == 0 else None
    sys.stdout.flush()


def end():
    raise SystemExit(9)


if __name__ == "__main__":
    train(10)
    sys.stdout.flush()
    mp.spawn(work, nprocs=1)
    process = mp.get_context("spawn").Process(target=end)
    process.start()
    process.join()
    print("exit code", process.exitcode)
