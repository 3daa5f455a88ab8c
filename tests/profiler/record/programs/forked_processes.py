"""Processes and a pool of multiprocessing that are forked, with a queue."""

import multiprocessing as mp

import torch
from small import network, train


def work(queue):
    queue.put(network()(torch.ones(1, 8)).sum().item())


def square(number):
    return float(torch.tensor(number).square())


if __name__ == "__main__":
    context = mp.get_context("fork")
    train(6)
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(round(queue.get(), 6))
    process.join()
    print(process.exitcode)
    with context.Pool(2) as pool:
        print(pool.map(square, range(5)))
    train(10)
