"""Graphs, images and sound: PyTorch Geometric (pyg-lib, torch-scatter, torch-sparse and torch-cluster), deformable convolutions and
attention (autograd functions of detectron2, MMCV and Deformable DETR with no operator inside), and torchaudio.

How many groups a scatter makes is data, unless it is given their number or a result. Samplers of neighborhoods walk a graph on the CPU
and have no formula. A sparse product has no matrix to multiply: it gathers, multiplies and adds rows. Returned indices are int64.
"""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas.resample import point_cost
from rooflines.roofline.formulas.tables import table
from rooflines.roofline.formulas.vision import CORNERS, deformable, deformable_gradients

# A row of the matrix [.., columns, width] for each number of the sparse one, times the number if it has values.
_SPARSE: Final = "read ends, read columns, read values?, {}read matrix[*outer nodes width]"
# A squared distance and a compare for each pair of an example; tensors may say where the examples of a batch end.
_POINTS: Final = "read points[n *depth], read asking[m *same], read ends?, read asking_ends?"


_DEFORMED: Final = "read self[n c h w], read offset[n shifts oh ow], {}read weight[o g kh kw]"
_PLAIN, _MASKED = _DEFORMED.format(""), _DEFORMED.format("view mask, ")
_SAMPLE: Final = 2 * CORNERS + 2
_POINTS_VISION: Final = "points[batch queries heads levels taps two]"
_READ: Final = f"selected(values, weights.n * d * {CORNERS}) + shapes.size + starts.size + points.size + weights.size"


_TABLE: Final = f"""
[reduction pyg:: torch_scatter::]
# One operation for each element; a mean divides each result; a minimum or a maximum also returns where it was, as int64. Groups follow
# each other along the last dimension of the index, those of a scatter perhaps along another one.
scatter_sum scatter_mul: read source, read index, dim=-1, read out?, groups=None; wide = source.item; results = out.n if out else
    source.n // max(source[dim], 1) * groups if isinstance(value('groups'), int) else returned('number of groups not recorded') //
    wide; other = source.n; writes = results * wide; precision = source
scatter_mean like scatter_sum: ; other = source.n + results
scatter_min scatter_max like scatter_sum: ; wide = source.item + 8
segment_sum_coo like scatter_sum: read source, read index, read out?, groups=None; results = out.n if out else source.n //
    max(source[index.rank - 1], 1) * groups if isinstance(value('groups'), int) else returned('number of groups not recorded') //
    wide
segment_mean_coo like segment_sum_coo: ; other = source.n + results
segment_min_coo segment_max_coo like segment_sum_coo: ; wide = source.item + 8
# The index has the ends of the groups, one more than there are.
segment_sum_csr like scatter_sum: read source, read index, read out?;
    results = out.n if out else source.n // max(source[index.rank - 1], 1) * (index[-1] - 1)
segment_mean_csr like segment_sum_csr: ; other = source.n + results
segment_min_csr segment_max_csr like segment_sum_csr: ; wide = source.item + 8
[copy]
pyg::gather_coo torch_scatter::gather_coo: read source, read index; made = source.n // max(source[index.rank - 1], 1) * index[-1];
    reads = selected(source, made) + index.size; writes = made * source.item
# As many copies of a row as its group has members: the last number of the ends.
pyg::gather_csr torch_scatter::gather_csr: read source, read ends, write out?; reads = source.size + ends.size;
    writes = 0 if out else returned('number of members not recorded')
[reduction]
pyg::softmax_csr: read source, read ends -> source; cost = SOFTMAX; per = source
pyg::softmax_csr_backward: read out, read grad, read ends -> out; cost = SOFTMAX_BACKWARD; per = out
torch_sparse::spmm_sum: row, {_SPARSE.format("column_ends, order, ")}; made = (ends.n - 1) * outer * width;
    taken = columns.n * outer * width; other = taken * (1 + bool(values));
    reads = ends.size + columns.size + values.size + selected(matrix, taken); writes = made * matrix.item; precision = matrix
torch_sparse::spmm_mean like torch_sparse::spmm_sum: row, {_SPARSE.format("counts, column_ends, order, ")};
    other = taken * (1 + bool(values)) + made
torch_sparse::spmm_min torch_sparse::spmm_max like torch_sparse::spmm_sum: {_SPARSE.format("")}; writes = made * (matrix.item + 8)
# n log2(n) compares: the indices in order, and where each of them was.
pyg::index_sort: read indices -> indices; other = indices.n * (indices.n - 1).bit_length(); writes = 8 * indices.n; precision = none
# A list of pairs: of each point that asks and its k nearest ones.
torch_cluster::knn pyg::knn: {_POINTS}, k=1; examples = max(ends.n - 1, 1); other = n * m // examples * 3 * depth;
    writes = 8 * 2 * m * k; assumption = examples have equally many points; given = examples > 1
torch_cluster::nearest pyg::nearest: {_POINTS}; examples = max(ends.n - 1, 1); other = n * m // examples * 3 * depth; writes = 8 * n;
    assumption = examples have equally many points; given = examples > 1
# All pairs nearer than a distance.
torch_cluster::radius pyg::radius: {_POINTS}; examples = max(ends.n - 1, 1); other = n * m // examples * 3 * depth;
    writes = returned('number of pairs not recorded'); assumption = examples have equally many points; given = examples > 1
# Point after point the one farthest from those that are chosen: a distance and a minimum for each point and each chosen one.
torch_cluster::fps pyg::fps: read points[n *depth], read ends; made = returned('number of chosen points not recorded');
    examples = max(ends.n - 1, 1); other = made // 8 * n // examples * (3 * depth + 2); writes = made;
    assumption = examples have equally many points; given = examples > 1
[element-wise]
# Rows of two tensors at their indices, added, subtracted, multiplied or divided.
pyg::sampled_op: read left[rows *rest], read right, read left_index?, read right_index?;
    made = (left_index.n if left_index else right_index.n if right_index else rows) * rest; other = made;
    reads = selected(left, made) + selected(right, made) + left_index.size + right_index.size; writes = made * left.item
[matmul]
pyg::grouped_matmul: read left+, read right+; fits = len(left) == len(right);
    matrix = sum(2 * a.numel * b.shape[-1] for a, b in zip(left.tensors, right.tensors));
    writes = left.item * sum(prod(a.shape[:-1]) * b.shape[-1] for a, b in zip(left.tensors, right.tensors));
    assumption = numbers of float32, because traces leave out the dtype of lists; given = left.dtype == 'float32'
pyg::segment_matmul: read left[t k], read ends, read right[groups k n]; matrix = 2 * t * k * n; writes = t * n * left.item
[attention functions]
# Bilinear samples of ``values`` [b, places, h, d] at ``points`` [b, queries, h, levels, points, 2], each with a weight.
MultiScaleDeformableAttnFunction MultiScaleDeformableAttentionFunction MSDeformAttnFunction: read values[b places h d], read shapes,
    read starts, read {_POINTS_VISION}, read weights; other = weights.n * (d * {_SAMPLE} + {point_cost(2)}); reads = {_READ};
    writes = batch * queries * heads * d * values.item
# The samples again: for the gradient of a weight their product with the gradient, which goes to each sample's corners, and for that
# of a point what moving it would change.
MultiScaleDeformableAttnFunctionBackward MultiScaleDeformableAttentionFunctionBackward MSDeformAttnFunctionBackward: read grad,
    update values[b places h d], read shapes, read starts, update {_POINTS_VISION}, update weights;
    other = weights.n * (d * {_SAMPLE + 2 * CORNERS + 1 + CORNERS * (1 + 2 * 2)} + {point_cost(2)}); reads = grad.size + {_READ};
    precision = values
[other]
# Logits [b, times, targets + 1, classes]: the sum of each row's exponentials, the sums of all paths to and from each place, and as
# the gradient exp of the logit and both sums, less that of the step taken.
torchaudio::rnnt_loss torchaudio::rnnt_loss_forward: read logits[b *places classes], read targets, read logit_lengths,
    read target_lengths -> logits; other = logits.n * (2 * TRANSCENDENTAL + 5) + b * places * 2 * (LOG_ADD + 2);
    writes = b * logits.item; assumption = all sequences are as long as the longest; given = b > 1
# The best path through the symbols and the blanks between them, of all times [b, times, classes]: which of three came before, and
# the largest sum, which is subtracted.
torchaudio::forced_align: read log_probs[b times classes], read targets[*rows symbols]; other = b * times * (2 * symbols + 1) * 5;
    reads = min(log_probs.n, b * times * (symbols + 1)) * log_probs.item + targets.size; writes = b * times * targets.item
# [b, channels, samples], each less its predecessors times coefficients [channels, order].
torchaudio::_lfilter_core_loop: read input, read coefficients[*channels order] -> input; other = input.n * 2 * (order - 1)
[convolution]
_DeformConv DeformConv2dFunction: {deformable(_PLAIN, "0", bias="0")}
_ModulatedDeformConv ModulatedDeformConv2dFunction: {deformable(f"{_MASKED}, read bias?", "1")}
[convolution with_gradient]
_DeformConvBackward DeformConv2dFunctionBackward: {deformable_gradients(f"read grad, {_PLAIN}", "0", "")}
_ModulatedDeformConvBackward ModulatedDeformConv2dFunctionBackward:
    {deformable_gradients(f"read grad, {_MASKED}, view bias?", "1", "mask bias")}
"""
table(_TABLE)
