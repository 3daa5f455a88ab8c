"""The lists of operators that PyTorch decomposes, against the dispatcher of the installed torch."""

from __future__ import annotations

import torch

from rooflines.roofline.count.formulas.counter import registered
from rooflines.roofline.count.formulas.decomposed import DECOMPOSED, SOMETIMES_DECOMPOSED
from tests.marks import recent_torch

has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key


def overloads() -> dict[str, list[bool]]:
    """Name -> for each overload, out and named-dimension forms aside, whether it has no kernel of its own on a CPU."""
    found: dict[str, list[bool]] = {}
    for full in torch._C._dispatch_get_all_op_names():
        name, _, overload = full.removeprefix("aten::").partition(".")
        if not full.startswith("aten::") or any(mark in overload for mark in ("out", "imname", "names")):
            continue
        if has_kernel(full, "CompositeImplicitAutograd"):
            found.setdefault(name, []).append(not has_kernel(full, "CPU"))
        elif torch._C._dispatch_has_kernel(full):
            found.setdefault(name, []).append(False)
    return found


OVERLOADS = overloads()


@recent_torch
def test_what_is_decomposed_is_listed():
    """Names that this torch does not know belong to another version and stay."""
    decomposed = {name for name, flags in OVERLOADS.items() if all(flags) and not name.startswith("_test_")}
    assert decomposed == DECOMPOSED & set(OVERLOADS)
    assert all(any(OVERLOADS[name]) and not all(OVERLOADS[name]) for name in SOMETIMES_DECOMPOSED & set(OVERLOADS))


@recent_torch
def test_every_operator_with_a_kernel_has_a_formula():
    """A dispatch mode sees it and nothing below it: without a formula a recording would miss its work. Torch's own tests have some."""
    explicit = {name for name, flags in OVERLOADS.items() if not all(flags) and not name.startswith("_test_")}
    assert explicit - {name.removeprefix("aten::") for name in registered()} == {"_foobar"}
