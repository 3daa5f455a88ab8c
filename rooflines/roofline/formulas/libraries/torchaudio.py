"""torchaudio's own operators: the loss of transducers, alignment to a text, and recursive filters.

Order of arguments: pytorch/audio (src/libtorchaudio: rnnt/compute.cpp at cc592e0, forced_align/compute.cpp at a9d80ea, lfilter.cpp at
c4bd42f). Sequences may be shorter than the longest one, which is data.
"""

from __future__ import annotations

from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, size, size_of, written
from rooflines.roofline.formulas.costs import LOG_ADD, TRANSCENDENTAL
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import formula

LONGEST: Final = "all sequences are as long as the longest"


@formula("torchaudio::rnnt_loss", "torchaudio::rnnt_loss_forward", category="other")
def _transducer(signature: Signature) -> Work:
    """Logits [b, times, targets + 1, classes]: the sum of each row's exponentials, the sums of all paths to and from each place, and as
    the gradient exp of the logit and both sums, less that of the step taken."""
    args = Arguments(signature, "logits targets logit_lengths target_lengths")
    logits, targets = args.tensor("logits"), args.tensor("targets")
    places = prod(logits.shape[:-1])
    return Work(
        other_flops=logits.numel * (2 * TRANSCENDENTAL + 5) + places * 2 * (LOG_ADD + 2),
        bytes_read=size(logits, targets, args.tensor("logit_lengths"), args.tensor("target_lengths")),
        bytes_written=written(logits) + logits.shape[0] * size_of(logits.dtype),
        precision=precision_of(logits.dtype),
        assumption=LONGEST if logits.shape[0] > 1 else "",
    )


_ROWS: Final[dict[str, Pass]] = {
    # The best path through the symbols and the blanks between them, of all times [b, times, classes]: which of three came before, and
    # the largest sum, which is subtracted.
    "torchaudio::forced_align": Pass(
        "read log_probs[b times classes], read targets[*rows symbols]",
        other="b * times * (2 * symbols + 1) * 5",
        reads="min(log_probs.n, b * times * (symbols + 1)) * log_probs.item + targets.size",
        writes="b * times * targets.item",
    ),
    # [b, channels, samples], each less its predecessors times coefficients [channels, order].
    "torchaudio::_lfilter_core_loop": Pass(
        "read input, read coefficients[*channels order]", other="input.n * 2 * (order - 1)", result="input"
    ),
}
register(_ROWS, "other")
