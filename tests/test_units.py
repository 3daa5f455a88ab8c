"""Numbers with prefixes: three figures, the right prefix, at every edge."""

import math

import pytest

from rooflines.units import binary_bytes, counted, interval, known_to, percent, plus_minus, quantity, scale, seconds, si, significant


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1, "1.00"), (12.345, "12.3"), (123.45, "123"), (1234.5, "1230"), (0.012345, "0.0123"), (9.999, "10.0"),
     (-9.999, "-10.0"),
     (99.95, "100"), (float("inf"), "inf"), (float("nan"), "nan")],
)  # fmt: skip
def test_significant(value, text):
    assert significant(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(4.6e11, "FLOP/s", "460 GFLOP/s"), (0, "B/s", "0 B/s"), (1, "B", "1.00 B"), (999, "B", "999 B"), (999.9, "B", "1.00 kB"),
     (999_999, "B", "1.00 MB"), (1.1e-6, "s", "1.10 µs"), (9.996e-7, "s", "1.00 µs"), (5e-10, "s", "0.500 ns"),
     (2.5e15, "FLOP", "2.50 PFLOP"),
     (3e18, "FLOP", "3000 PFLOP"), (-4.6e11, "W", "-460 GW"), (1500, "", "1.50 k")],
)  # fmt: skip
def test_si(value, unit, text):
    assert si(value, unit) == text


@pytest.mark.parametrize(
    ("value", "expected"), [(4.6e11, (1e9, "G")), (1, (1.0, "")), (0, (1.0, "")), (0.02, (1e-3, "m")), (math.inf, (1.0, ""))]
)
def test_scale(value, expected):
    assert scale(value) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [(2**30, "1.00 GiB"), (0, "0 B"), (1, "1.00 B"), (1536, "1.50 KiB"), (4 * 10**15, "3.55 PiB"), (25e9, "23.3 GiB")],
)
def test_binary_bytes(value, text):
    assert binary_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.434, "1.43 s"), (0.0123, "12.3 ms"), (4.5e-6, "4.50 µs"), (125, "2 min 05 s"), (119, "119 s"), (120, "2 min 00 s"), (0, "0 s")],
)
def test_seconds(value, text):
    assert seconds(value) == text


@pytest.mark.parametrize(("value", "digits", "text"), [
    (0.783, 0, "78 %"),
    (0, 0, "0 %"),
    (0.001, 0, "<1 %"),
    (0.0004, 1, "<0.1 %"),
    (0.0006, 1, "0.1 %"),
    (1, 0, "100 %"),
    (-0.5, 0, "-50 %"),
])  # fmt: skip
def test_percent(value, digits, text):
    assert percent(value, digits) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (12345, "12,345 steps")])
def test_counted(number, text):
    assert counted(number, "step") == text


@pytest.mark.parametrize(("low", "high", "text"), [
    (0.98, 1.03, "±3 %"),
    (0.5, 2.0, "±100 %"),
    (0.13, 6.62, "95 % interval 130 ms to 6.62 s"),
    (0.0, 6.62, "95 % interval at most 6.62 s"),
])  # fmt: skip
def test_an_interval_wider_than_its_value_is_written_by_its_ends(low, high, text):
    assert plus_minus(1.0, low, high, seconds) == text


def test_an_interval_with_one_end():
    assert interval(1.2, None) == "at least 1.20"
    assert interval(None, None) == ""


@pytest.mark.parametrize(("error", "text"), [(0.4, "known to ±40 % only"), (5.62, "not known")])
def test_how_well_a_value_is_known(error, text):
    assert known_to(error) == text


def test_a_quantity_has_the_prefix_of_its_unit_and_a_count_all_its_digits():
    assert [quantity(value, "") for value in (8, 8.0, 32_768, 36.24, 2304.4)] == ["8", "8.00", "32,768", "36.2", "2,300"]
    assert [quantity(3.24e12, "FLOP"), quantity(2**30, "B"), quantity(0.00532, "s")] == ["3.24 TFLOP", "1.00 GiB", "5.32 ms"]
