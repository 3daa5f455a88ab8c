"""What new memory costs."""

import mmap

import pytest

from rooflines.kernels.micro.page_fault import page_s

needs_advice = pytest.mark.skipif(not hasattr(mmap, "MADV_NOHUGEPAGE"), reason="Linux lets a process choose its pages")


@needs_advice
def test_every_page_is_taken_from_the_system():
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    assert page_s() > 0
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert taken >= 5 * (64 << 20) // mmap.PAGESIZE


def test_nothing_is_said_where_the_kind_of_pages_cannot_be_chosen(monkeypatch):
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    assert page_s(huge=True) is None
