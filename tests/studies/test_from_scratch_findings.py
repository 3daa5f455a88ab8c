"""What the from-scratch study concludes from given numbers, and what it is asked."""

import msgspec
import pytest

from rooflines.errors import UsageError
from rooflines.units import seconds
from rooflines_studies.from_scratch.page import sentences
from rooflines_studies.from_scratch.train import GRADIENTS, MATRIX, RELU, SOFTMAX, UPDATE, grouped, parse_size, parse_widths
from rooflines_studies.network_runs import bounded
from tests.studies.samples import CEILINGS, MEMORY, SIZES, around, library_result, operator, study

OPERATORS = bounded(
    (
        operator("matrix product", "dense1", time_s=6e-3, size=20_000_000),
        operator("relu", "dense1", time_s=1e-3, flops=100_000, matrix_flops=0),
        operator("softmax", "loss", time_s=1e-3, flops=100_000, matrix_flops=0),
        operator("weight gradient", "dense1", time_s=8e-3, phase="backward"),
        operator("softmax gradient", "loss", time_s=2e-3, flops=100_000, matrix_flops=0, phase="backward"),
        operator("relu gradient", "dense1", time_s=1e-3, flops=100_000, matrix_flops=0, phase="backward"),
        operator("gradient descent", "dense1.weight", time_s=1e-3, flops=100_000, matrix_flops=0, phase="optimizer"),
    ),
    CEILINGS,
)


def test_operators_fall_under_the_papers_headings():
    found = grouped(OPERATORS)
    assert found == pytest.approx({MATRIX: 14e-3, RELU: 2e-3, SOFTMAX: 1e-3, GRADIENTS: 2e-3, "bias": 0, UPDATE: 1e-3})
    assert sum(found.values()) == pytest.approx(sum(one.time_s for one in OPERATORS))


def test_findings():
    numpy = library_result(operators=OPERATORS, memory=MEMORY, sizes=SIZES)
    said = list(sentences([numpy, library_result("torch-cpu", iteration_s=0.08)]))
    assert said[0].startswith(
        "numpy takes 40.0 ms per iteration of 59,000 samples. Matrix products take 70 % of the time of its operators"
    )
    text = "\n".join(said)
    assert "numpy, time of the operators of an iteration: matrix multiplication 70 %" in text
    assert "the components add up to the total growth of 230 MB (0.2 % difference)" in text
    assert "7.9 MB of parameters are the 7,940 weights of the network, which take 31.8 kB in float32" in text
    assert "47.1 MB of input are one byte for each value of 60,000 rows of 785, pixels and class" in text
    assert "59,000 images take 185 MB" in text
    # Intervals of a factor of 1.05 to either side: those of a ratio are a factor of 1.05 * 1.05.
    assert "torch-cpu takes 2.00 (1.81 to 2.21) times as long as numpy." in text
    assert "numpy's hidden layer of 100 units (10,000 samples) takes 2.00 (1.81 to 2.21) times as long as one of 10." in text
    assert "numpy takes 0.473 (0.450 to 0.496) times as long as the paper's (84.6 ms an iteration)." in text  # 40 / 84.6
    assert "do not decide" not in text
    assert "differ by at most 0.0e+00" in text


@pytest.mark.parametrize(
    "spread",
    [None, 2.5],  # a single round has no interval; in several, the narrow layer took from 4 to 25 ms and the wide one from 8 to 50
)
def test_what_the_rounds_do_not_decide_is_no_finding(spread):
    sizes = [msgspec.structs.replace(size, iteration=around(size.iteration.value, spread)) for size in SIZES]
    numpy = library_result(sizes=sizes, spread=spread)
    text = "\n".join(sentences([numpy, library_result("torch-cpu", iteration_s=0.08, spread=spread)]))
    assert "times as long" not in text
    assert (
        "The rounds do not decide: numpy compared with the paper's (84.6 ms an iteration); torch-cpu compared with numpy; numpy's "
        "hidden layer of 100 units (10,000 samples) compared with one of 10. At least three rounds (--repeats) on an idle machine can."
    ) in text


@pytest.mark.parametrize(("count", "paper"), [(500, True), (60, False)])
def test_totals_stand_next_to_the_papers_only_for_as_many_iterations(count, paper, tmp_path):
    _, page = study(tmp_path, library_result(losses=(1.0,) * count), name="from-scratch")
    times = next(table for table in page.tables() if table.name == "times")
    assert [(column.label, column.unit) for column in times.columns[1:]] == [("numpy", "here"), ("numpy", "paper"), ("cupy", "paper")]
    total, iteration = times.rows[:2]
    assert total.cells == ("500 iterations", seconds(count * 0.04) if paper else None, "42.3 s", "15.1 s")
    assert iteration.cells == ("an iteration", "40.0 ms", "84.6 ms", "30.2 ms")


def test_memory_that_does_not_add_up_is_said():
    wrong = msgspec.structs.replace(MEMORY, total=400_000_000)
    text = "\n".join(sentences([library_result(memory=wrong)]))
    assert "do not add up to the total growth of 400 MB" in text


@pytest.mark.parametrize(
    ("factor", "said"), [(1 + 1e-5, "so all compute the same function"), (1.01, "so they do not compute the same function")]
)
def test_curves_tell_whether_libraries_compute_the_same(factor, said):
    losses = (2.3, 1.2, 0.6)
    other = library_result("torch-cpu", losses=tuple(factor * loss for loss in losses))
    (sentence,) = [one for one in sentences([library_result(losses=losses), other]) if "loss curves" in one]
    assert f"at most {abs(factor - 1):.1e}, {said}." in sentence


def test_curves_of_different_data_are_not_compared():
    other = msgspec.structs.replace(library_result("torch-cpu", losses=(9.0, 9.0, 9.0)), accuracy=None)
    text = "\n".join(sentences([library_result(), other]))
    assert "After 3 iterations on scikit-learn's 8x8 digits by 784-128-10: numpy 80.0 % of the held-out" in text
    assert "loss curves" not in text


@pytest.mark.parametrize("total", [0, -5_000_000])
def test_memory_that_did_not_grow_tells_nothing(total):
    shrunk = msgspec.structs.replace(MEMORY, total=total)
    said = list(sentences([library_result(memory=shrunk)]))
    assert said
    assert not any(one.startswith("Memory of") for one in said)


def test_a_size_is_read():
    assert parse_size("784-10-10@59000") == ((784, 10, 10), 59_000)
    assert parse_size("784-128-64-10@1_000") == ((784, 128, 64, 10), 1_000)
    for text in ("", "784-10-10", "784-10-10@", "784-x-10@5", "784@5", "784-10-10@0", "784-10-3@5"):
        with pytest.raises(UsageError):
            parse_size(text)
    with pytest.raises(UsageError, match="has too few layers"):
        parse_widths("784")
