"""The input pipeline of the paper's PyTorch runs: one image at a time through transforms, in the process that trains."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflines.profiler.others import OthersMeter
from rooflines.studies import data, network_result, networks
from rooflines.sweeps.records import Result

if TYPE_CHECKING:
    from rooflines.sweeps.worker import Channel


class LoaderOptions(networks.DataOptions, frozen=True, kw_only=True):
    """Options of a training through the loader: ``batches`` at most."""

    batch_size: networks.Positive
    batches: networks.Positive
    learning_rate: float
    momentum: float


def train_through_loader(task: dict[str, Any], directory: Path, channel: Channel) -> Result:
    """Run the point of ``task``: the loader alone, then the training behind it and how long each batch is waited for."""
    job = networks.read_options(task["point"]["options"], LoaderOptions)
    batches = batches_of(job)
    channel.stage("the paper's loader alone", batches)
    loader, label = papers_loader(job, batches)
    others, begun = OthersMeter(), time.perf_counter()
    alone = 0
    for x, _ in loader:
        alone += len(x)
        channel.advance()
    alone_s = time.perf_counter() - begun
    network = networks.network(job.backend, job.learning_rate, job.momentum, job.seed)
    channel.stage("training with the paper's loader", batches)
    samples, input_s = 0, 0.0
    for x, y in loader:
        network.step(network.resident(x.numpy()), network.resident(y.numpy()))
        break
    begun = last = time.perf_counter()
    for x, y in loader:
        input_s += time.perf_counter() - last
        network.step(network.resident(x.numpy()), network.resident(y.numpy()))
        samples += len(x)
        channel.advance()
        last = time.perf_counter()
    seconds = last - begun
    network.close()
    values = {
        "samples_per_s": samples / seconds, "input_fraction": input_s / seconds, "alone_samples_per_s": alone / alone_s,
        "timed_samples": samples, "others_cores": others.cores(),
    }  # fmt: skip
    return network_result.make_result(task, directory, values, data=label)


def batches_of(job: LoaderOptions) -> int:
    """Return how many batches the loader gives: no more than there are samples for."""
    return min(job.batches, -(-job.samples // job.batch_size))


def papers_loader(job: LoaderOptions, batches: int) -> tuple[Any, str]:
    """A ``DataLoader`` that makes each sample as torchvision's MNIST class does, and the label of its data.

    For every index a PIL image is made of the stored bytes, turned into a tensor and normalised, and the samples are stacked into a
    batch; no worker processes, as the paper had it. It ends after ``batches`` batches.
    """
    import torch
    from PIL import Image
    from torchvision import transforms

    name = data.or_synthetic(job.data, job.data_dir)
    images = data.load(name, job.data_dir, seed=job.seed, train_samples=batches * job.batch_size, test_samples=1)
    pixels, classes = torch.from_numpy(images.train_images), images.train_classes
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((data.MEAN,), (data.STANDARD_DEVIATION,))])

    class Images(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return len(pixels)

        def __getitem__(self, index: int) -> tuple[Any, int]:
            return transform(Image.fromarray(pixels[index].numpy())), int(classes[index])

    generator = torch.Generator().manual_seed(job.seed)
    loader = torch.utils.data.DataLoader(Images(), batch_size=job.batch_size, shuffle=True, generator=generator)
    return loader, f"{images.facts.label}, {len(pixels):,} samples for training"
