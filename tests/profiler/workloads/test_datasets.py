"""Labelled images: what comes from a folder, what is synthetic, and how both are named."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from rooflines.errors import DataError, WorkloadError
from rooflines.profiler.workloads.datasets import KINDS, find_dataset
from rooflines.profiler.workloads.feed import Feed


def picture(value, size=(40, 30)):
    return Image.fromarray(np.full((*size, 3), value, np.uint8))


@pytest.mark.parametrize("name", ["cifar10", "tiny-imagenet", "mnist", "folder"])
def test_synthetic_images_have_the_published_sizes_and_say_so(name):
    kind, data = KINDS[name], find_dataset(name, channels=3)
    assert (len(data.train), len(data.test), data.classes) == (kind.train, kind.test, kind.classes)
    assert not data.real
    assert data.label.startswith("synthetic")
    image, label = data.train[len(data.train) - 1]
    assert image.shape == (3, data.size, data.size)
    assert 0 <= label < kind.classes


def test_synthetic_images_depend_on_the_seed_only():
    first, again, other = (find_dataset("cifar10", seed=seed) for seed in (1, 1, 2))
    torch.testing.assert_close(first.test[3][0], again.test[3][0], rtol=0, atol=0)
    assert not torch.equal(first.test[3][0], other.test[3][0])


def test_digits_are_real_and_the_split_is_fixed():
    pytest.importorskip("sklearn")
    data = find_dataset("digits", train_samples=100)
    assert data.real
    assert data.label == "scikit-learn's 8x8 digits scaled to 32x32"
    assert (len(data.train), len(data.test)) == (100, 360)
    assert data.train[0][0].shape == (3, 32, 32)
    assert find_dataset("digits", channels=1, image_size=8).test[0][0].shape == (1, 8, 8)


def test_an_image_folder(tmp_path):
    for part, count in (("train", 3), ("val", 2)):
        for number, name in enumerate(("cat", "dog")):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for index in range(count):
                picture(100 * number).save(folder / f"{index}.png")
    data = find_dataset("folder", str(tmp_path), image_size=32)
    assert (len(data.train), len(data.test), data.classes, data.real) == (6, 4, 2, True)
    assert data.label == f"images in {tmp_path.name}"
    assert [label for _, label in (data.test[index] for index in range(4))] == [0, 0, 1, 1]


def test_tiny_imagenet_has_its_validation_classes_in_a_file(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    for name in ("n01", "n02"):
        (root / "train" / name / "images").mkdir(parents=True)
        picture(0, (64, 64)).save(root / "train" / name / "images" / "a.JPEG")
    (root / "val" / "images").mkdir(parents=True)
    for index in range(3):
        picture(index, (64, 64)).save(root / "val" / "images" / f"val_{index}.JPEG")
    rows = [f"val_{index}.JPEG\tn0{1 + index % 2}\t0\t0\t1\t1" for index in range(3)]
    (root / "val" / "val_annotations.txt").write_text("\n".join(rows) + "\n")
    data = find_dataset("tiny-imagenet", str(tmp_path))
    assert [data.test[index][1] for index in range(3)] == [0, 1, 0]
    assert data.test[0][0].shape == (3, 64, 64)


def test_cifar10_is_read_and_a_part_of_it_is_the_same_everywhere(tmp_path, monkeypatch):
    from torchvision.datasets import CIFAR10

    monkeypatch.setattr(CIFAR10, "_check_integrity", lambda self: True)  # ours has other pixels than the published files
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        batch = {"data": generator.integers(0, 256, (20, 3072), np.uint8), "labels": [index % 10 for index in range(20)]}
        (folder / name).write_bytes(pickle.dumps(batch))
    monkeypatch.setattr(CIFAR10, "_load_meta", lambda self: None)
    data = find_dataset("cifar10", str(tmp_path), train_samples=30, test_samples=5)
    assert (len(data.train), len(data.test), data.label) == (30, 5, "CIFAR-10")
    again = find_dataset("cifar10", str(tmp_path), train_samples=30, test_samples=5)
    assert [data.test[index][1] for index in range(5)] == [again.test[index][1] for index in range(5)]


@pytest.mark.parametrize("name", ["cifar10", "mnist", "tiny-imagenet", "folder"])
def test_a_folder_without_the_data_is_named_with_what_was_expected(tmp_path, name):
    with pytest.raises(DataError, match="can be read in") as refused:
        find_dataset(name, str(tmp_path))
    assert "FOLDER/" in refused.value.hint
    with pytest.raises(DataError, match="is not a directory"):
        find_dataset(name, str(tmp_path / "missing"))


def test_a_feed_has_whole_batches_without_end_in_an_order_of_its_seed():
    images = find_dataset("cifar10", train_samples=10).train
    feed, again = (Feed(images, 4, torch.device("cpu"), lambda x: x.double(), seed=3) for _ in range(2))
    labels = [feed()[1] for _ in range(5)]
    assert all(len(one) == 4 for one in labels)
    assert all(torch.equal(one, again()[1]) for one in labels)
    assert feed()[0].dtype == torch.float64
    with pytest.raises(WorkloadError, match="10 images, fewer than a batch of 11"):
        Feed(images, 11, torch.device("cpu"), lambda x: x)
