"""torchaudio's own operators: the loss of transducers, alignment to a text, and recursive filters.

Order of arguments: pytorch/audio (src/libtorchaudio: rnnt/compute.cpp at cc592e0, forced_align/compute.cpp at a9d80ea, lfilter.cpp at
c4bd42f). Sequences may be shorter than the longest one, which is data.
"""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas.rows import Row, register

LONGEST: Final = "all sequences are as long as the longest"


_ROWS: Final[dict[str, Row]] = {
    # Logits [b, times, targets + 1, classes]: the sum of each row's exponentials, the sums of all paths to and from each place, and as
    # the gradient exp of the logit and both sums, less that of the step taken.
    "torchaudio::rnnt_loss torchaudio::rnnt_loss_forward": Row(
        "read logits[b *places classes], read targets, read logit_lengths, read target_lengths",
        other="logits.n * (2 * TRANSCENDENTAL + 5) + b * places * 2 * (LOG_ADD + 2)",
        result="logits",
        writes="b * logits.item",
        assumption=LONGEST,
        given="b > 1",
    ),
    # The best path through the symbols and the blanks between them, of all times [b, times, classes]: which of three came before, and
    # the largest sum, which is subtracted.
    "torchaudio::forced_align": Row(
        "read log_probs[b times classes], read targets[*rows symbols]",
        other="b * times * (2 * symbols + 1) * 5",
        reads="min(log_probs.n, b * times * (symbols + 1)) * log_probs.item + targets.size",
        writes="b * times * targets.item",
    ),
    # [b, channels, samples], each less its predecessors times coefficients [channels, order].
    "torchaudio::_lfilter_core_loop": Row(
        "read input, read coefficients[*channels order]", other="input.n * 2 * (order - 1)", result="input"
    ),
}
register(_ROWS, "other")
