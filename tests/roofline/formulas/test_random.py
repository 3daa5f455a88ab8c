"""Random numbers: written and not read, of the size and dtype that each form of a factory says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.read.signature import MISSING, Signature
from rooflines.roofline.count.formulas import Work, count
from tests.roofline.formulas.by_hand import tensor, work

X = tensor(3, 5)
FLOAT64 = 7
OPTIONS = (None, None, None, None)  # dtype, layout, device, pin_memory


@given(st.lists(st.integers(0, 6), max_size=4), st.booleans())
def test_rand_and_randn(shape, generator):
    count_of = tensor(*shape).numel
    given_generator = (None,) if generator else ()
    uniform = work("rand", tuple(shape), *given_generator, *OPTIONS)
    assert uniform == Work(0, 2 * count_of, 0, 4 * count_of, "fp32")
    normal = work("randn", tuple(shape), *given_generator, FLOAT64, None, None, None)
    assert normal == Work(0, 22 * count_of, 0, 8 * count_of, "fp64")  # Box and Muller


@pytest.mark.parametrize("bounds", [(9,), (2, 9)])
@pytest.mark.parametrize("generator", [(), (None,)])
def test_integers(bounds, generator):
    assert work("randint", *bounds, (4, 6), *generator, 4, None, None, None) == Work(0, 24, 0, 8 * 24)


def test_permutations():
    assert work("randperm", 10, 4, None, None, None) == Work(0, 10, 0, 80)
    assert work("randperm", 10, tensor(10, dtype="int32")).bytes_written == 40  # out=


def test_a_factory_like_a_tensor_reads_nothing_of_it():
    assert work("rand_like", X, None, None, None, None, None) == Work(0, 30, 0, 60, "fp32")
    assert work("randn_like", X, FLOAT64, None, None, None, None).bytes_written == 120
    assert work("randint_like", X, 0, 10, None, None, None, None, None) == Work(0, 15, 0, 60, "fp32")
    assert work("randint_like", X, tensor(dtype="int64"), None, None, None, None, None).bytes_read == 8  # the bound


def test_a_trace_without_values_leaves_the_numbers_to_what_the_factory_calls():
    assert count(Signature("aten::rand", (MISSING, *OPTIONS))).kind == "composite"


def test_bernoulli_reads_probabilities_that_are_a_tensor():
    assert work("bernoulli", X, None) == Work(0, 15, 60, 60, "fp32")
    assert work("bernoulli", X, 0.5, None) == Work(0, 15, 0, 60, "fp32")
    assert work("bernoulli", X, tensor(5), None) == Work(0, 15, 20, 60, "fp32")
    assert work("bernoulli_", X, 0.5, None) == Work(0, 15, 0, 60, "fp32")
    assert work("bernoulli_", X, X, None).bytes_read == 60


def test_normal_numbers_of_given_means_and_deviations():
    assert work("normal", X, 1.0, None) == Work(0, 22 * 15, 60, 60, "fp32")
    assert work("normal", 0.0, X, None).bytes_read == 60
    assert work("normal", tensor(3, 1), tensor(5), None) == Work(0, 22 * 15, 32, 60, "fp32")
    assert work("normal", 0.0, 1.0, (3, 5), None, None, None, None, None) == Work(0, 22 * 15, 0, 60, "fp32")
    assert work("normal_", X, 0.0, 1.0, None) == Work(0, 22 * 15, 0, 60, "fp32")


def test_functional_forms_take_only_the_shape():
    for name, each in {"uniform": 2, "exponential": 11, "log_normal": 32, "cauchy": 13, "geometric": 11, "random": 1}.items():
        assert work(name, X, None) == work(f"{name}_", X, None) == Work(0, 15 * each, 0, 60, "fp32")


def test_distributions_drawn_by_rejection_read_their_parameters():
    assert work("poisson", X, None) == Work(0, 60 * 15, 60, 60, "fp32")
    assert work("binomial", X, tensor(5), None) == Work(0, 60 * 15, 80, 60, "fp32")
    assert work("_sample_dirichlet", X, None).other_flops == 62 * 15


def test_multinomial():
    weights = tensor(4, 100)
    # a running sum and a division, then for each sample a number and 7 steps of a search among 100
    assert work("multinomial", weights, 3, True, None) == Work(0, 2 * 400 + 4 * 3 * (2 + 7), 1600, 4 * 3 * 8, "fp32")
    # an exponential number for each weight, a division, a compare
    assert work("multinomial", weights, 3, False, None).other_flops == 400 * (11 + 2)
