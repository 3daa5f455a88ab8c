"""Labeled images by name: torchvision's data sets from a folder, scikit-learn's digits, or synthetic images
of the same size.

Nothing is downloaded. A name without a folder gives synthetic images of the same number, size, encoding and
classes, and each figure of it is labeled as synthetic.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rooflines.arguments import arg
from rooflines.errors import DataError, WorkloadError
from rooflines.profiler.workloads.image_files import SPLIT_SEED, Images, read_images

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Transform: TypeAlias = Callable[[Any], Any]
DIGITS_TEST = 360
# Networks for photographs halve an image five times; smaller ones are scaled up.
SMALLEST = 32
# Different synthetic images; further samples repeat them, as their pixels do not change how long anything
# takes.
_POOL = 512
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class Kind(NamedTuple):
    """A data set: its name, what it is of, and the transforms of the papers that used it."""

    title: str
    size: int
    channels: int
    classes: int
    train: int
    test: int
    #: Mean of pixels from 0 to 1.
    mean: tuple[float, ...]
    #: Standard deviation of pixels from 0 to 1.
    deviation: tuple[float, ...]
    #: Padding in pixels before a random crop, in training.
    crop: int = 0
    #: Whether half of the images are mirrored, in training.
    flip: bool = False
    #: Whether images are JPEG files, which a loader decodes.
    encoded: bool = False


KINDS = {
    "cifar10": Kind(
        "CIFAR-10",
        32,
        3,
        10,
        50_000,
        10_000,
        (0.4914, 0.4822, 0.4465),
        (0.2470, 0.2435, 0.2616),
        crop=4,
        flip=True,
    ),
    "cifar100": Kind(
        "CIFAR-100",
        32,
        3,
        100,
        50_000,
        10_000,
        (0.5071, 0.4865, 0.4409),
        (0.2673, 0.2564, 0.2762),
        crop=4,
        flip=True,
    ),
    "tiny-imagenet": Kind("Tiny-ImageNet", 64, 3, 200, 100_000, 10_000, *_IMAGENET, flip=True, encoded=True),
    "mnist": Kind("MNIST", 28, 1, 10, 60_000, 10_000, (0.1307,), (0.3081,)),
    "folder": Kind("image folder", 224, 3, 2, 8_000, 2_000, *_IMAGENET, flip=True, encoded=True),
    "digits": Kind("scikit-learn's digits", 8, 1, 10, 1_437, DIGITS_TEST, (0.305,), (0.376,)),
}


class DataSet(NamedTuple):
    """Images to train and to test with, as torch data sets of (tensor [C, H, W], class)."""

    name: str
    #: What the images are, in words.
    label: str
    #: Whether the labels mean something, so that accuracy does.
    real: bool
    classes: int
    #: Height and width.
    size: int
    train: Any
    test: Any


def find_dataset(
    name: str,
    data_dir: str | None = None,
    *,
    image_size: int | None = None,
    train_samples: int | None = None,
    test_samples: int | None = None,
    seed: int = 0,
) -> DataSet:
    """Return the data set ``name`` from ``data_dir``, at most ``train_samples`` and ``test_samples`` of it.

    Images are scaled to ``image_size``, without it to 32 pixels if they are smaller. Images of one channel
    are repeated to three. Without ``data_dir``, only ``digits`` is real. Raises WorkloadError for an unknown
    name, DataError where the folder does not hold the data.
    """
    if name not in KINDS:
        raise WorkloadError(f"unknown data {name!r}.", hint=f"Choose one of {', '.join(KINDS)}.")
    kind = KINDS[name]
    real = name == "digits" or data_dir is not None
    remark = ""
    if name == "digits":
        train, test = (Images(images.round().astype("uint8"), labels) for images, labels in held_out_digits())
    elif data_dir is not None:
        train, test, remark = read_images(name, data_dir, kind.title)
    else:
        train = _synthetic(kind, train_samples or kind.train, seed)
        test = _synthetic(kind, test_samples or kind.test, seed, offset=1)
    classes = len(train.classes) or kind.classes
    size = image_size or max(kind.size, SMALLEST)
    if name == "digits":
        label = f"scikit-learn's 8x8 digits scaled to {size}x{size}"
    elif real:
        label = f"images in {Path(str(data_dir)).name}" if name == "folder" else kind.title
    else:
        what = "JPEG images of 224x224" if name == "folder" else f"images of the size of {kind.title}"
        label = f"synthetic {what} (accuracy not meaningful)"
    label += f" ({remark})" if remark else ""
    return DataSet(
        name=name,
        label=label,
        real=real,
        classes=classes,
        size=size,
        train=_Transformed(train, train_samples, _transform(kind, size, training=True)),
        test=_Transformed(test, test_samples, _transform(kind, size, training=False)),
    )


class _Transformed:
    """At most ``samples`` of the images, as tensors."""

    def __init__(self, images: Images, samples: int | None, transform: Transform) -> None:
        import numpy as np

        self._images, self._transform = images, transform
        self._chosen: Any = range(len(images))
        if samples is not None and samples < len(images):
            self._chosen = np.random.default_rng(SPLIT_SEED).permutation(len(images))[:samples]

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image, label = self._images[int(self._chosen[index])]
        return self._transform(image), label


def _transform(kind: Kind, size: int, *, training: bool) -> Transform:
    """The papers' transforms: crop and flip in training, scaling where another size is asked for,
    normalization."""
    from torchvision import transforms

    steps: list[Any] = []
    mean, deviation = kind.mean, kind.deviation
    if kind.channels == 1:
        steps.append(transforms.Grayscale(3))
        mean, deviation = mean * 3, deviation * 3
    if kind.title == KINDS["folder"].title:
        enlarged = round(size * 256 / 224)
        steps += (
            [transforms.RandomResizedCrop(size)]
            if training
            else [transforms.Resize(enlarged), transforms.CenterCrop(size)]
        )
    else:
        if kind.crop and training:
            steps.append(transforms.RandomCrop(kind.size, padding=kind.crop))
        if size != kind.size:
            steps.append(transforms.Resize((size, size)))
    if kind.flip and training:
        steps.append(transforms.RandomHorizontalFlip())
    steps += [transforms.ToTensor(), transforms.Normalize(mean, deviation)]
    composed: Transform = transforms.Compose(steps)
    return composed


def held_out_digits() -> tuple[tuple[NDArray[np.float64], NDArray[np.int64]], ...]:
    """scikit-learn's digits [N, 8, 8] from 0 to 255 with their classes: those to train with, and those to
    test with."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError(
            "scikit-learn's digits are not available: scikit-learn is not installed.",
            hint=f"pip install 'rooflines[studies]', or {arg('data_dir')} with a data set.",
        ) from None
    import numpy as np

    digits = load_digits()
    images, labels = digits.images * (255 / 16), digits.target.astype(np.int64)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(images))
    return tuple((images[part], labels[part]) for part in (order[DIGITS_TEST:], order[:DIGITS_TEST]))


def _synthetic(kind: Kind, count: int, seed: int, offset: int = 0) -> Images:
    """A blurred random picture for each class, with noise: separable, so that a loss falls."""
    import numpy as np

    coarse = np.random.default_rng(seed).integers(0, 192, (kind.classes, 4, 4, kind.channels), np.uint8)
    times = -(-kind.size // 4)
    pictures = coarse.repeat(times, axis=1).repeat(times, axis=2)[:, : kind.size, : kind.size]
    generator = np.random.default_rng((seed, offset + 1))
    distinct = min(count, _POOL)
    labels = generator.integers(0, kind.classes, distinct)
    images = pictures[labels] + generator.integers(
        0, 64, (distinct, kind.size, kind.size, kind.channels), np.uint8
    )
    if not kind.encoded:
        return Images(images[..., 0] if kind.channels == 1 else images, labels, count=count)
    from PIL import Image

    files = [io.BytesIO() for _ in images]
    for image, file in zip(images, files, strict=True):
        Image.fromarray(image).save(file, "JPEG", quality=90)
    return Images([file.getvalue() for file in files], labels, count=count)


def check_batch(images: Any, batch_size: int) -> None:
    """Raise WorkloadError where the training images do not fill a batch."""
    if len(images) < batch_size:
        raise WorkloadError(
            f"the data has {len(images)} training images, fewer than a batch of {batch_size}.",
            hint=f"Use a smaller {arg('batch_size')}.",
        )


def make_loader(
    images: Any, batch_size: int, *, workers: int, pin_memory: bool, seed: int, training: bool
) -> Any:
    """Return a ``DataLoader`` of ``images``: shuffled and without an incomplete batch for training, in order
    for tests."""
    import torch

    return torch.utils.data.DataLoader(
        images,
        batch_size=batch_size,
        shuffle=training,
        drop_last=training,
        num_workers=workers,
        pin_memory=pin_memory,
        persistent_workers=workers > 0,
        generator=torch.Generator().manual_seed(seed),
    )
