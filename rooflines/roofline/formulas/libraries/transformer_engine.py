"""TransformerEngine: softmaxes, rotary embedding and cross entropy, layouts of attention, routing of tokens.

Its modules' functions (``_Linear``) call ``transformer_engine_torch``, an extension whose calls are no operators; which recipe of fp8
they follow is not recorded, and they are not counted.
"""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas.libraries.norms import register_norms
from rooflines.roofline.formulas.libraries.training import SOFTMAX, SOFTMAX_GRADIENT
from rooflines.roofline.formulas.tables import table

register_norms("_LayerNorm", rms=False)  # TransformerEngine 1
register_norms("_RMSNorm", rms=True)


_TABLE: Final = f"""
[element-wise tensors_only]
# Two multiplications and an addition an element; the sine and cosine of each angle.
FusedRoPEFunc: read x, read angles, read starts?, read ends? -> x; cost = 3; per = x; other = 2 * TRANSCENDENTAL * angles.n
# Queries, keys and values that lie together: the first two rotate, all are copied. Their sizes are a list, which traces leave out.
FusedQKVRoPEFunc: read packed, read of_queries, read of_keys -> packed;
    rotated = returned_tensor(0).n + returned_tensor(1).n if returned_tensor(0) else packed.n;
    other = 3 * rotated + 2 * TRANSCENDENTAL * (of_queries.n + of_keys.n); given = not returned_tensor(0);
    assumption = values rotate as well, because their size is not recorded
[element-wise with_gradients]
FusedQKVRoPEFuncBackward: update grads+, packed, read of_queries, read of_keys;
    other = 3 * sum(grad.numel for grad in grads.tensors[:2]) + 2 * TRANSCENDENTAL * (of_queries.n + of_keys.n)
[element-wise with_gradient]
FusedRoPEFuncBackward: update grad, inputs, read angles; cost = 3; per = grad; other = 2 * TRANSCENDENTAL * angles.n
[reduction functions]
te_softmax::scaled_softmax_fwd te_softmax::scaled_masked_softmax_fwd te_softmax::scaled_upper_triang_masked_softmax_fwd
    te_softmax::scaled_aligned_causal_masked_softmax_fwd: {SOFTMAX}
te_softmax::scaled_softmax_bwd te_softmax::scaled_masked_softmax_bwd te_softmax::scaled_upper_triang_masked_softmax_bwd
    te_softmax::scaled_aligned_causal_masked_softmax_bwd: {SOFTMAX_GRADIENT}
[reduction]
# The gradient takes the place of the logits. The function of QuACK that has this name has no number after the labels, and keeps the
# logarithm of each row's sum for its backward.
CrossEntropyFunction: update logits, read target, smoothing=0.0; cost = SOFTMAX + 2; per = logits; writes = 4 * target.n;
    fits = isinstance(value('smoothing'), float); assumption = gradients computed in the forward
    | read logits, read target; cost = SOFTMAX; per = logits; writes = 8 * target.n
[copy]
# Queries, keys and values that lie together in [s, b, heads, 3 * depth], of which the argument is a view of the queries.
te_attention::fa_prepare_fwd: read queries; reads = 3 * queries.n * queries.item; writes = 3 * queries.n * queries.item
te_attention::fa_prepare_bwd: read queries, read keys, read values -> queries keys values;
    reads = queries.n * queries.item + keys.n * keys.item + values.n * values.item
# Packed sequences [tokens, ...] from or to [batch, longest, ...]; places beyond the end of a sequence are not moved.
te_attention::convert_thd_to_bshd te_kv_cache::convert_thd_to_bshd: read self, read ends -> self;
    reads = self.n * self.item + ends.size
te_attention::convert_bshd_to_thd te_kv_cache::convert_bshd_to_thd: read self[batch longest *rest], read ends, tokens;
    reads = tokens * rest * self.item + ends.size; writes = tokens * rest * self.item
# New keys and values into the pages of a cache.
te_kv_cache::copy_to_kv_cache: read keys, read values, key_cache, value_cache, read pages?, read new_lengths?,
    read lengths? -> keys values
[moe tensors_only]
# Logits [tokens, experts]. Scores like these, a byte that says whether a token goes to an expert, scores in float32 for the backward.
# The cost is that of a softmax, and of the choice of the best.
FusedTopkScoreFunction: read logits[tokens experts], read bias? -> logits; cost = SOFTMAX + 1; per = logits;
    writes = (1 + 4) * logits.n; assumption = scores by a softmax, because the name of the function is not recorded
FusedComputeScoresForMoEAuxLoss: read logits[tokens experts], read bias?; cost = SOFTMAX + 1; per = logits;
    writes = (4 + 1 + 4) * logits.n; assumption = scores by a softmax, because the name of the function is not recorded
# The sum over experts of their tokens times the sum of their probabilities.
FusedAuxLoss: read scores, read counts; cost = 1; per = scores counts counts; writes = 8
[moe with_gradient]
FusedTopkScoreFunctionBackward: read grad, write logits[tokens experts]; cost = SOFTMAX_BACKWARD + 1; per = logits;
    reads = grad.size + (4 + 1) * logits.n; precision = logits; assumption = scores by a softmax,
    because the name of the function is not recorded
FusedComputeScoresForMoEAuxLossBackward: read grad, write logits[tokens experts]; cost = SOFTMAX_BACKWARD + 1; per = logits;
    reads = grad.size + 4 * logits.n; precision = logits; assumption = scores by a softmax,
    because the name of the function is not recorded
FusedAuxLossBackward: grad, write scores, read counts; cost = 1; per = scores; reads = counts.size + 8; precision = scores
[element-wise dispatches]
# Whether the gradient is scaled depends on the value of the one that is given.
CrossEntropyFunctionBackward:
"""
table(_TABLE)
