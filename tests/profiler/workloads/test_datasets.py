"""Labelled images: what comes from a folder, what is synthetic, and how both are named."""

import pytest
import torch

from rooflines.errors import DataError, WorkloadError
from rooflines.profiler.workloads.datasets import KINDS, check_batch, find_dataset, make_loader


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


def test_a_loader_for_training_has_whole_batches_in_an_order_of_its_seed():
    images = find_dataset("cifar10", train_samples=10).train
    loader, again = (make_loader(images, 4, workers=0, pin_memory=False, seed=3, training=True) for _ in range(2))
    epochs = [[labels.tolist() for _, labels in loader] for _ in range(2)]
    assert [len(labels) for epoch in epochs for labels in epoch] == [4] * 4
    assert epochs == [[labels.tolist() for _, labels in again] for _ in range(2)]
    with pytest.raises(WorkloadError, match="10 training images, fewer than a batch of 11"):
        check_batch(images, 11)
