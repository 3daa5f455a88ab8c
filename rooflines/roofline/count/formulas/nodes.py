"""Autograd nodes of libraries: a node is given the gradients of what its forward call returned, and records
nothing else.

Formulas of such nodes are asked with the gradients as a tuple, followed by the arguments of the forward call,
which ``count/library_gradients.py`` finds in the trace. A trace records of a Python function's arguments the
tensors, and from recent versions of torch numbers as well; lists are left out. Formulas therefore take
tensors by their order.
"""

from __future__ import annotations

from rooflines.profiler.read.signature import Signature
from rooflines.roofline.count.formulas.arguments import NotCounted, TensorArgs, listed

FORWARD_NEEDED = "its forward call is not in the trace"


def parts(signature: Signature) -> tuple[TensorArgs, Signature]:
    """The gradients that a node is given, and the arguments of its forward call; raises NotCounted where
    these are not known."""
    if not signature.args or not isinstance(signature.args[0], tuple):
        raise NotCounted(FORWARD_NEEDED)
    gradients = listed(signature.args[0])
    if not gradients:
        raise NotCounted("shapes of the gradients not recorded")
    return gradients, Signature(signature.name, signature.args[1:])


# What the rows of ``rows.py`` are given of such calls.


def tensors_only(signature: Signature) -> Signature:
    """A call of a function with nothing but its tensors, which old traces record alone."""
    return Signature(signature.name, signature.tensors)


def with_gradients(node: Signature) -> Signature:
    """A node with the list of its gradients and the arguments of its forward call, as it is."""
    parts(node)
    return node


def with_gradient(node: Signature) -> Signature:
    """A node with the first of its gradients and the arguments of its forward call."""
    gradients, forward = parts(node)
    return Signature(node.name, (gradients[0], *forward.args))
