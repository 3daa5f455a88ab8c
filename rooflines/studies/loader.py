"""The input pipeline of the paper's PyTorch runs: one image at a time through transforms, in the process that trains."""

from __future__ import annotations

from typing import Any

from rooflines.studies import data
from rooflines.studies.records import DataFacts, DataName


def papers_loader(name: DataName, data_dir: str | None, batch_size: int, batches: int, seed: int) -> tuple[Any, DataFacts]:
    """A ``DataLoader`` that makes each sample as torchvision's MNIST class does, and the facts of its data.

    For every index a PIL image is made of the stored bytes, turned into a tensor and normalised, and the samples are stacked into a
    batch; no worker processes, as the paper had it. It ends after ``batches`` batches.
    """
    import torch
    from PIL import Image
    from torchvision import transforms

    images = data.load(name, data_dir, seed=seed, train_samples=batches * batch_size, test_samples=1)
    pixels, classes = torch.from_numpy(images.train_images), images.train_classes
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((data.MEAN,), (data.STANDARD_DEVIATION,))])

    class Images(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return len(pixels)

        def __getitem__(self, index: int) -> tuple[Any, int]:
            return transform(Image.fromarray(pixels[index].numpy())), int(classes[index])

    generator = torch.Generator().manual_seed(seed)
    loader = torch.utils.data.DataLoader(Images(), batch_size=batch_size, shuffle=True, generator=generator)
    return loader, images.facts
