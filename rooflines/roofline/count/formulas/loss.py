"""Losses, forward and backward."""

from __future__ import annotations

from rooflines.profiler.read.signature import Argument
from rooflines.roofline.count.formulas.arguments import every
from rooflines.roofline.count.formulas.rows import Tensors, named

# Connectionist temporal classification (Graves et al. 2006): log_probs [t, n, c]; a target of l labels has 2
# l + 1 states, blanks between them, and every state of every step is reached from up to three.


@named
def ctc_states(log_probs: Tensors, targets: Tensors, given: Argument, labels: Argument) -> tuple[int, int]:
    """States over all samples and steps, and the elements of ``log_probs`` that they look at, at most each of
    a step once.

    Lengths that are in a tensor are data: then every sample is as long as its rows.
    """
    steps = log_probs[0]
    classes = log_probs[-1]
    samples = log_probs[1] if log_probs.rank == 3 else 1
    # labels of a sample: a row of [n, l], or an even share of targets that follow one another
    length = targets[-1] if targets.rank > 1 else -(-targets.n // max(samples, 1))
    lengths = [(steps, length) for _ in every(samples)]
    if isinstance(given, tuple) and isinstance(labels, tuple):
        lengths = list(zip(given, labels, strict=True))
    states = sum(time * (2 * count + 1) for time, count in lengths)
    return states, sum(time * min(count + 1, classes) for time, count in lengths)
