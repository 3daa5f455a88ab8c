"""Sums and groups by key."""

from rooflines.roofline.count.by_key import grouped, longest_first


def test_times_are_summed_by_key_longest_first_and_equals_in_order():
    found = longest_first([("b", 1.0), ("a", 1.0), ("c", 0.5), ("c", 2.0)])
    assert list(found.items()) == [("c", 2.5), ("b", 1.0), ("a", 1.0)]
    assert longest_first([]) == {}


def test_groups_keep_the_order_of_their_items_and_keys():
    assert list(grouped([3, 1, 4, 6, 5], lambda number: number % 2).items()) == [(1, [3, 1, 5]), (0, [4, 6])]
