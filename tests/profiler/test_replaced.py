"""Replaced attributes are restored, unless something else has replaced them in the meantime."""

import contextlib
from types import SimpleNamespace

from rooflines.profiler.hooks.replaced import replaced


def test_all_owners_get_ours_and_get_theirs_back():
    first, second = SimpleNamespace(name=1), SimpleNamespace(name=1)
    with replaced("name", lambda value: value + 1, first, second):
        assert (first.name, second.name) == (2, 2)
    assert (first.name, second.name) == (1, 1)


def test_what_another_tool_has_put_there_stays():
    owner = SimpleNamespace(name=print)
    with replaced("name", lambda call: lambda *arguments: call(*arguments), owner):
        later = owner.name = lambda: 3
    assert owner.name is later


def test_an_attribute_that_is_not_there_is_not_made_and_an_error_puts_theirs_back():
    owner = SimpleNamespace(name=None)  # which is an attribute
    with replaced("other", lambda _: 2, owner):
        assert not hasattr(owner, "other")
    with contextlib.suppress(KeyError), replaced("name", lambda _: 2, owner):
        assert owner.name == 2
        raise KeyError
    assert owner.name is None
