"""Labelled images: what comes from a folder, what is synthetic, and how both are named."""

from __future__ import annotations

import pytest
import torch

from rooflines.errors import DataError, WorkloadError
from rooflines.profiler.workloads.datasets import KINDS, Feed, find_dataset


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "tiny-imagenet", "mnist", "folder"])
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


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "tiny-imagenet", "folder"])
def test_a_folder_without_the_data_is_named_with_what_was_expected(tmp_path, name):
    with pytest.raises(DataError, match=r"holds no .* that can be read") as refused:
        find_dataset(name, str(tmp_path))
    assert "FOLDER" in refused.value.hint
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
