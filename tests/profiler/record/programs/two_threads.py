"""Two threads that train at once, each a network and random generator of its own."""

import threading

import torch
from small import network

losses = {}


def work(number):
    generator = torch.Generator().manual_seed(number)
    model = models[number]
    optimizer = torch.optim.Adam(model.parameters())
    losses[number] = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        losses[number].append(round(loss.item(), 6))


models = [network(), network()]
threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(losses[0], losses[1], sep="\n")
