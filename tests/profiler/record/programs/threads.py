"""Threads and executors that run operators: each function is a program, chosen by the first argument."""

import asyncio
import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

import torch
from small import network, train


def async_executor():
    """asyncio with a model that runs in the executor of the loop."""
    model = network().eval()

    def predict(number):
        with torch.inference_mode():
            return round(model(torch.full((1, 8), float(number))).sum().item(), 6)

    async def serve():
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*(loop.run_in_executor(None, predict, number) for number in range(16)))

    print(asyncio.run(serve()))


def compiled_in_thread():
    """A compiled function with a graph break, in a thread and in the main one."""

    def function(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return (y @ y).sum()

    compiled = torch.compile(function, backend="eager")

    def work(name):
        for number in range(12):
            print(name, round(compiled(torch.full((8, 8), float(number))).item(), 5))

    thread = threading.Thread(target=work, args=("thread",))
    thread.start()
    thread.join()
    work("main")
    print(torch._dynamo.utils.counters["graph_break"].total(), "graph breaks")


def serves():
    """A server in a thread, and a client that asks it."""
    model = network().eval()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            with torch.inference_mode():
                answer = model(torch.full((1, 8), float(self.path[1:]))).tolist()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    for number in range(20):
        with urlopen(f"http://127.0.0.1:{server.server_port}/{number}") as answer:
            print([[round(value, 5) for value in row] for row in json.load(answer)])
    server.shutdown()
    thread.join()


def thread_and_main():
    """A thread that runs operators while the main thread trains, and a daemon that is alive at the end."""
    stop, sums = threading.Event(), []

    def work():
        weight = torch.eye(16)
        while not stop.is_set():
            sums.append((weight @ weight).sum().item())

    thread = threading.Thread(target=work)
    thread.start()
    train()
    stop.set()
    thread.join()
    print(set(sums))
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


def thread_pool():
    """Operators in a thread pool only."""
    model = network().eval()

    def work(number):
        with torch.no_grad():
            return model(torch.full((4, 8), float(number))).sum().item()

    with ThreadPoolExecutor(3) as pool:
        print(*pool.map(work, range(20)), sep="\n")


def train_in_thread():
    """Training in a thread that is not the main one."""
    thread = threading.Thread(target=train, name="trainer")
    thread.start()
    thread.join()
    print(sorted(one.name for one in threading.enumerate()))


def two_threads():
    """Two threads that train at once, each a network and random generator of its own."""
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


globals()[sys.argv.pop(1)]()
