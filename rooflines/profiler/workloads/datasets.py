"""Labelled images by name: torchvision's data sets from a folder, scikit-learn's digits, or synthetic images of the same size.

Nothing is downloaded. A name without a folder gives synthetic images of the same number, size, encoding and classes; its label says so
wherever a figure of it is shown.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, get_args

from rooflines.arguments import arg
from rooflines.errors import DataError, WorkloadError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DataName: TypeAlias = Literal["cifar10", "tiny-imagenet", "mnist", "folder", "digits"]
Transform: TypeAlias = Callable[[Any], Any]
# Which samples are taken of a larger set, and which digits are held out, is the same on every machine.
_SPLIT_SEED: Final = 7
DIGITS_TEST: Final = 360
# Networks for photographs halve an image five times; smaller ones are scaled up.
SMALLEST: Final = 32
# Different synthetic images; further samples repeat them, as their pixels do not change how long anything takes.
_POOL: Final = 512
_IMAGENET: Final = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class Kind(NamedTuple):
    """A data set: its name, what it is of, and the transforms of the papers that used it.

    ``crop`` pads by so many pixels and crops at random, ``flip`` mirrors half of the images; both in training only. ``encoded`` images
    are JPEG files, which a loader decodes. ``mean`` and ``deviation`` are those of pixels from 0 to 1.
    """

    title: str
    size: int
    channels: int
    classes: int
    train: int
    test: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    crop: int = 0
    flip: bool = False
    encoded: bool = False


KINDS: Final[dict[str, Kind]] = {
    "cifar10": Kind(
        "CIFAR-10", 32, 3, 10, 50_000, 10_000, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), crop=4, flip=True
    ),
    "tiny-imagenet": Kind("Tiny-ImageNet", 64, 3, 200, 100_000, 10_000, *_IMAGENET, flip=True, encoded=True),
    "mnist": Kind("MNIST", 28, 1, 10, 60_000, 10_000, (0.1307,), (0.3081,)),
    "folder": Kind("an image folder", 224, 3, 2, 8_000, 2_000, *_IMAGENET, flip=True, encoded=True),
    "digits": Kind("scikit-learn's digits", 8, 1, 10, 1_437, DIGITS_TEST, (0.305,), (0.376,)),
}  # fmt: skip


class DataSet(NamedTuple):
    """Images to train and to test with, as torch data sets of (tensor [C, H, W], class). ``size`` is their height and width.

    ``real`` says whether the labels mean something, so that accuracy does; ``label`` says in words what the images are.
    """

    name: str
    label: str
    real: bool
    classes: int
    channels: int
    size: int
    train: Any
    test: Any


def find_dataset(
    name: str,
    data_dir: str | None = None,
    *,
    image_size: int | None = None,
    channels: int = 3,
    train_samples: int | None = None,
    test_samples: int | None = None,
    seed: int = 0,
) -> DataSet:
    """Return the data set ``name`` from ``data_dir``, at most ``train_samples`` and ``test_samples`` of it.

    Images are scaled to ``image_size``, without it to 32 pixels if they are smaller. Images of one channel are repeated to
    ``channels``. Without ``data_dir`` all but ``digits`` are synthetic. Raises WorkloadError for an unknown name, DataError where the
    folder does not hold the data.
    """
    if name not in get_args(DataName):
        raise WorkloadError(f"unknown data {name!r}.", hint=f"Choose one of {', '.join(get_args(DataName))}.")
    kind = KINDS[name]
    real = name == "digits" or data_dir is not None
    if name == "digits":
        train, test = _digits()
    elif data_dir is not None:
        train, test = _from_folder(name, kind, data_dir)
    else:
        train = _synthetic(kind, train_samples or kind.train, seed)
        test = _synthetic(kind, test_samples or kind.test, seed, offset=1)
    classes = len(train.classes) if name == "folder" and real else kind.classes
    size = image_size or max(kind.size, SMALLEST)
    label = kind.title if real else f"synthetic images of the size of {kind.title} (accuracy not meaningful)"
    if name == "digits":
        label = f"scikit-learn's 8x8 digits scaled to {size}x{size}"
    elif name == "folder" and real:
        label = f"images in {Path(str(data_dir)).name}"
    elif name == "folder":
        label = "synthetic JPEG images of 224x224 (accuracy not meaningful)"
    return DataSet(
        name=name, label=label, real=real, classes=classes, channels=max(channels, kind.channels), size=size,
        train=_Transformed(_some(train, train_samples), _transform(kind, size, channels, training=True)),
        test=_Transformed(_some(test, test_samples), _transform(kind, size, channels, training=False)),
    )  # fmt: skip


class _Images:
    """Stored images, decoded one by one: arrays [H, W] or [H, W, C] of bytes, or JPEG files in memory."""

    def __init__(self, images: Sequence[Any], labels: Any, count: int | None = None) -> None:
        self._images, self._labels = images, labels
        self._count = count or len(labels)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        if index >= self._count:
            raise IndexError(index)
        one = self._images[index % len(self._images)]
        image = Image.open(io.BytesIO(one)).convert("RGB") if isinstance(one, bytes) else Image.fromarray(one)
        return image, int(self._labels[index % len(self._labels)])


class _Some:
    """A part of a data set."""

    def __init__(self, whole: Any, indices: Sequence[int]) -> None:
        self._whole, self._indices = whole, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Any:
        return self._whole[self._indices[index]]


class _Transformed:
    """A data set of images as tensors."""

    def __init__(self, images: Any, transform: Transform) -> None:
        self._images, self._transform = images, transform

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image, label = self._images[index]
        return self._transform(image), int(label)


def _some(whole: Any, samples: int | None) -> Any:
    if samples is None or samples >= len(whole):
        return whole
    import numpy as np

    order = np.random.default_rng(_SPLIT_SEED).permutation(len(whole))
    return _Some(whole, [int(index) for index in order[:samples]])


def _transform(kind: Kind, size: int, channels: int, *, training: bool) -> Transform:
    """The papers' transforms: crop and flip in training, scaling where another size is asked for, normalization."""
    from torchvision import transforms

    steps: list[Any] = []
    mean, deviation = kind.mean, kind.deviation
    if kind.channels == 1 and channels > 1:
        steps.append(transforms.Grayscale(channels))
        mean, deviation = mean * channels, deviation * channels
    if kind.title == KINDS["folder"].title:
        enlarged = round(size * 256 / 224)
        steps += [transforms.RandomResizedCrop(size)] if training else [transforms.Resize(enlarged), transforms.CenterCrop(size)]
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


def _digits() -> tuple[Any, Any]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError(
            "scikit-learn's digits are not available: scikit-learn is not installed.", hint="pip install 'rooflines[studies]'"
        ) from None
    import numpy as np

    digits = load_digits()
    images = (digits.images * (255 / 16)).round().astype(np.uint8)
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(images))
    test, train = order[:DIGITS_TEST], order[DIGITS_TEST:]
    return _Images(images[train], labels[train]), _Images(images[test], labels[test])


def _synthetic(kind: Kind, count: int, seed: int, offset: int = 0) -> _Images:
    """A blurred random picture for each class, with noise: separable, so that a loss falls."""
    import numpy as np

    pictures = _pictures(kind, np.random.default_rng(seed))
    generator = np.random.default_rng((seed, offset + 1))
    distinct = min(count, _POOL)
    labels = generator.integers(0, kind.classes, distinct)
    images = pictures[labels] + generator.integers(0, 64, (distinct, kind.size, kind.size, kind.channels), np.uint8)
    if kind.channels == 1:
        return _Images(images[..., 0], labels, count)
    return _Images([_jpeg(image) for image in images] if kind.encoded else images, labels, count)


def _pictures(kind: Kind, generator: np.random.Generator) -> NDArray[np.uint8]:
    import numpy as np

    coarse = generator.integers(0, 192, (kind.classes, 4, 4, kind.channels), np.uint8)
    times = -(-kind.size // 4)
    return coarse.repeat(times, axis=1).repeat(times, axis=2)[:, : kind.size, : kind.size]


def _jpeg(image: NDArray[np.uint8]) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=90)
    return file.getvalue()


def _from_folder(name: str, kind: Kind, data_dir: str) -> tuple[Any, Any]:
    """The training and the test set in ``data_dir``, without transforms."""
    from torchvision import datasets

    folder = Path(data_dir)
    if not folder.is_dir():
        raise DataError(f"{arg('data_dir', data_dir)} is not a directory.", hint=f"Give the folder that contains {kind.title}.")
    try:
        if name == "cifar10":
            return tuple(datasets.CIFAR10(data_dir, train=train) for train in (True, False))
        if name == "mnist":
            return tuple(datasets.MNIST(data_dir, train=train) for train in (True, False))
        if name == "tiny-imagenet":
            folder = next((one for one in (folder / "tiny-imagenet-200", folder) if (one / "train").is_dir()), folder)
            train = datasets.ImageFolder(str(folder / "train"))
            annotations = folder / "val" / "val_annotations.txt"
            test = _annotated(folder / "val" / "images", annotations, train.class_to_idx) if annotations.is_file() else None
            return train, test or datasets.ImageFolder(str(folder / "val"))
        tests = next((one for one in ("test", "val", "valid", "validation") if (folder / one).is_dir()), "test")
        return datasets.ImageFolder(str(folder / "train")), datasets.ImageFolder(str(folder / tests))
    except Exception as error:  # torchvision raises a different type for each kind of missing or corrupt file
        raise DataError(f"no {kind.title} can be read in {data_dir!r}: {_first_line(error)}.", hint=_LAYOUTS[name]) from None


_LAYOUTS: Final = {
    "cifar10": "Expected FOLDER/cifar-10-batches-py, as torchvision.datasets.CIFAR10(FOLDER, download=True) writes it.",
    "mnist": "Expected FOLDER/MNIST/raw, as torchvision.datasets.MNIST(FOLDER, download=True) writes it.",
    "tiny-imagenet": "Expected FOLDER/tiny-imagenet-200/train and val, as in the archive.",
    "folder": "Expected FOLDER/train/CLASS/IMAGE and FOLDER/test/CLASS/IMAGE.",
}


class _Files(_Images):
    """Image files with their classes."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        with Image.open(self._images[index]) as image:
            return image.convert("RGB"), int(self._labels[index])


def _annotated(images: Path, annotations: Path, classes: dict[str, int]) -> _Files:
    """The validation images of Tiny-ImageNet, whose classes are in a file: ``val_0.JPEG<TAB>n03444034<TAB>...``."""
    rows = [line.split("\t")[:2] for line in annotations.read_text().splitlines() if line.strip()]
    return _Files([images / name for name, _ in rows], [classes[label] for _, label in rows])


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
