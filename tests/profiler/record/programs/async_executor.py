"""asyncio with a model that runs in the executor of the loop."""

import asyncio

import torch
from small import network

model = network().eval()


def predict(number):
    with torch.inference_mode():
        return round(model(torch.full((1, 8), float(number))).sum().item(), 6)


async def serve():
    loop = asyncio.get_running_loop()
    return await asyncio.gather(*(loop.run_in_executor(None, predict, number) for number in range(16)))


print(asyncio.run(serve()))
