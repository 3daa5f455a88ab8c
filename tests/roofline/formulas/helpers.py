"""Real calls of operators and their work."""

from __future__ import annotations

import torch

from rooflines.profiler.calls.signatures import call_signature
from rooflines.profiler.read.signature import from_kineto
from rooflines.roofline.count.formulas import Work, count
from rooflines.roofline.count.formulas.families import files, paragraphs
from tests.roofline.formulas.oracle import tensors_of
from tests.roofline.formulas.traces import operator_events, outermost

PARAGRAPHS = [(path.stem, paragraph) for path in files() for paragraph in paragraphs(path)]
# Operators whose work no arguments tell.
UNCOUNTED = {name for _, paragraph in PARAGRAPHS if "uncounted" in paragraph.heading.options for name in paragraph.operators}


def operators(*families):
    """The operators of the files of these families."""
    return {name for family, paragraph in PARAGRAPHS if family in families for name in paragraph.operators}


def called(func, *args, **kwargs):
    """The work of calling a torch operator with these arguments, and what it returns; nothing is computed with meta tensors."""
    outcome = count(call_signature(func, args, kwargs))
    assert outcome.kind == "counted", outcome
    return outcome.work, func(*args, **kwargs)


def nbytes(*values):
    """Bytes of all tensors in these, and in lists of them."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(values))


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


def work_of_trace(body, path):
    """The work of the outermost counted operators of a trace."""
    total = Work()

    def add(nodes):
        nonlocal total
        for event, children in nodes:
            outcome = count(from_kineto(event["name"], event["args"]))
            if outcome.kind == "counted" and not (outcome.decomposes and children):
                total += outcome.work
            else:
                add(children)

    add(outermost(operator_events(body, path / "trace.json")))
    return total
