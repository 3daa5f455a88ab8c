"""The images of the studies: what is there, what takes its place, and that it is labelled."""

import importlib.util

import numpy as np
import pytest

from rooflines.errors import DataError
from rooflines.studies import data
from tests import image_data

needs_digits = pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="scikit-learn is not installed")


def test_mnist_is_read_from_the_folder(tmp_path):
    found = data.load("mnist", str(image_data.mnist(tmp_path)), train_samples=20)
    assert found.train_images.shape == (20, 28, 28)
    assert found.test_classes.shape == (12,)
    assert found.facts.label.startswith("MNIST (not the published files")
    np.testing.assert_array_equal(found.train_images, image_data.digits(30)[0][:20])


def test_a_folder_without_mnist_says_what_was_expected(tmp_path):
    with pytest.raises(DataError, match="holds no MNIST that can be read") as raised:
        data.load("mnist", str(tmp_path))
    assert "train.csv" in raised.value.hint
    with pytest.raises(DataError, match="requires a folder"):
        data.load("mnist")


def test_synthetic_images_have_mnists_size_and_say_that_they_mean_nothing():
    found = data.load("synthetic", train_samples=500, test_samples=100)
    assert (found.train_images.shape, found.test_images.shape) == ((500, 28, 28), (100, 28, 28))
    assert "accuracy not meaningful" in found.facts.label
    assert set(found.train_classes) == set(range(10))
    same = data.load("synthetic", train_samples=500, test_samples=100)
    np.testing.assert_array_equal(found.train_images, same.train_images)
    other = data.load("synthetic", seed=1, train_samples=500, test_samples=100)
    assert (found.train_images != other.train_images).any()


@needs_digits
def test_digits_are_split_alike_everywhere():
    found = data.load("digits")
    assert (len(found.train_images), len(found.test_images)) == (1437, 360)
    assert "not MNIST" in found.facts.label
    np.testing.assert_array_equal(found.test_classes[:8], data.load("digits", seed=5).test_classes[:8])


def test_scaling_up_keeps_a_flat_image_flat_inside_mnists_border():
    grown = data.scaled_up(np.full((2, 8, 8), 200, np.float32))
    assert (grown[:, 4:24, 4:24] == 200).all()
    assert grown.sum() == 2 * 400 * 200


def test_scaling_up_is_bilinear():
    # A ramp stays one: from pixel centre to pixel centre it rises by 8 / 20 of a step of the small image.
    ramp = np.broadcast_to(np.arange(8, dtype=np.float32) * 20, (1, 8, 8))
    row = data.scaled_up(ramp)[0, 14, 4:24].astype(int)
    assert (np.diff(row)[1:-1] == 8).all()


def test_normalising_is_the_papers():
    images = np.zeros((1, 28, 28), np.uint8)
    images[0, 0, 0] = 255
    found = data.normalised(images)
    assert found.shape == (1, 1, 28, 28)
    assert found.dtype == np.float32
    assert found[0, 0, 0, 0] == pytest.approx((1 - 0.1307) / 0.3081, rel=1e-6)
    assert found[0, 0, 1, 1] == pytest.approx(-0.1307 / 0.3081, rel=1e-6)


@pytest.mark.parametrize(("count", "batch", "filled"), [(60_000, 512, 60_416), (512, 512, 512), (3, 8, 8)])
def test_sets_are_filled_up_to_whole_batches_from_their_start(count, batch, filled):
    order = data.padded(count, batch)
    assert len(order) == filled
    np.testing.assert_array_equal(order[:count], np.arange(count))
    np.testing.assert_array_equal(order[count:], np.arange(filled - count) % count)
