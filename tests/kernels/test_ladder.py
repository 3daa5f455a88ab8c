"""The memory ladder: what a curve says about the caches, on curves made by hand."""

import pytest

from rooflines.kernels.micro.ladder import Point, Reach, curve, reaches
from rooflines.kernels.micro.team import Team

KIB, MIB = 1 << 10, 1 << 20
CACHES = (("L1", 32 * KIB), ("L2", 1 * MIB), ("L3", 32 * MIB))


def ladder(l1=32 * KIB, l2=1 * MIB, l3=32 * MIB, rates=(400e9, 100e9, 30e9, 10e9)):
    """A curve that drops exactly at the given sizes: two points an octave from 8 KiB to 64 MiB."""
    sizes = [round(8 * KIB * 2 ** (number / 2)) for number in range(27)]
    ends = (l1, l2, l3, float("inf"))
    return [Point(size, next(rate for end, rate in zip(ends, rates, strict=True) if size <= end)) for size in sizes]


def test_a_curve_as_stated():
    found = reaches(ladder(), CACHES)
    assert [(reach.level, reach.reach_bytes) for reach in found] == [("L1", 32 * KIB), ("L2", 1 * MIB), ("L3", 32 * MIB)]
    assert not any(reach.contradicts for reach in found)


def test_a_shared_last_cache_ends_early():
    *inner, last = reaches(ladder(l3=8 * MIB), CACHES)
    assert last == Reach("L3", 32 * MIB, 8 * MIB)
    assert last.contradicts
    assert not any(reach.contradicts for reach in inner)


def test_without_a_step_nothing_is_said():
    # behind L2 everything comes at the same rate: the curve cannot tell where L3 ends
    *inner, last = reaches(ladder(rates=(400e9, 100e9, 10e9, 10e9)), CACHES)
    assert last.reach_bytes is None
    assert not last.contradicts
    assert [reach.reach_bytes for reach in inner] == [32 * KIB, 1 * MIB]


def test_a_cache_larger_than_stated():
    (only,) = reaches(ladder(l1=32 * KIB, l2=4 * MIB, l3=4 * MIB, rates=(400e9, 100e9, 100e9, 10e9))[:], (("L2", 1 * MIB),))
    assert only.reach_bytes == 4 * MIB
    assert only.contradicts


def test_half_and_twice_are_within_what_a_curve_can_tell():
    assert not Reach("L2", 1000, 500).contradicts
    assert not Reach("L2", 1000, 2000).contradicts
    assert Reach("L2", 1000, 499).contradicts
    assert Reach("L2", 1000, 2001).contradicts


def test_no_caches_and_no_points():
    assert reaches((), CACHES) == tuple(Reach(level, size, None) for level, size in CACHES)
    assert reaches(ladder(), ()) == ()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_measured_curve_covers_the_sizes_asked_for(threads):
    with Team(threads) as team:
        points = curve(team, 256 * KIB, passes_s=1e-5)
    sizes = [point.working_set_bytes for point in points]
    assert sizes == sorted(set(sizes))
    assert sizes[0] == 8 * KIB * threads
    assert sizes[-1] == 256 * KIB
    assert all(point.byte_per_s > 0 for point in points)
