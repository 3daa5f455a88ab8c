"""Small calls of operators that torch's own samples leave out, each by name: kernels, optimizers, lists, quantized numbers, boxes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # registers quantized_decomposed's operators
import torchvision  # noqa: F401  (registers torchvision's)
from torch import Tensor
from torch.nn import functional
from torch.ops import _quantized, aten, mkldnn, onednn, prims, quantized
from torch.ops import torchvision as vision

from tests.roofline.formulas.oracle import quantized_engine

Call = Callable[[], object]


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Between 0.1 and 1.1."""
    return (torch.rand(shape) + 0.1).to(dtype)


def different(count: int, *shape: int) -> Tensor:
    """Indices below ``count``, each at most once."""
    return torch.randperm(count)[: torch.Size(shape).numel()].reshape(shape)


def layouts() -> dict[str, Call]:
    """Expanded, overlapping, transposed, strided, mixed, channels last."""
    x, row = rand(2, 3, 4, 5), rand(5)
    expanded = rand(1, 3, 1, 5).expand(2, 3, 4, 5)
    windows = rand(10).unfold(0, 4, 1)  # [7, 4], overlapping
    gaps = rand(12).unfold(0, 2, 5)  # [3, 2] of 0 1 5 6 10 11
    last = rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    half = rand(2, 3, 4, 5, dtype=torch.bfloat16)
    return {
        "add expanded": lambda: x + expanded,
        "add broadcast": lambda: x + row,
        "add broadcast both": lambda: rand(4, 1) + row,
        "add overlapping": lambda: windows + rand(7, 4),
        "mul gaps": lambda: gaps * gaps,
        "sum overlapping": lambda: windows.sum(1),
        "sum gaps": lambda: gaps.sum(),
        "sum expanded": lambda: expanded.sum(0),
        "softmax transposed": lambda: x.transpose(1, 3).softmax(-1),
        "relu strided": lambda: x[:, ::2, 1:].relu(),
        "relu in place on a view": lambda: x.clone()[:, 1].relu_(),
        "relu channels last": lambda: last.relu(),
        "add mixed": lambda: x + half,
        "add mixed in place": lambda: half.clone().add_(x),
        "div integers": lambda: torch.arange(6) / torch.arange(1, 7),
        "add to integers": lambda: torch.arange(6) + 1.5,
        "mm transposed": lambda: rand(4, 3).t() @ rand(4, 5),
        "mm overlapping": lambda: windows @ rand(4, 2),
        "bmm expanded": lambda: rand(3, 4, 5) @ rand(1, 5, 2).expand(3, 5, 2),
        "conv channels last": lambda: functional.conv2d(last, rand(4, 3, 2, 2).to(memory_format=torch.channels_last)),
        "conv channels last of contiguous": lambda: functional.conv2d(x, rand(4, 3, 2, 2).to(memory_format=torch.channels_last)),
        "conv expanded": lambda: functional.conv2d(expanded, rand(4, 3, 2, 2), rand(4)),
        "clone expanded": lambda: expanded.clone(memory_format=torch.contiguous_format),
        "clone preserving": lambda: expanded.clone(),
        "copy to a part": lambda: x.clone()[:, :, 1:3].copy_(row),
        "copy casting": lambda: torch.empty(2, 3, 4, 5).copy_(half),
        "cast": lambda: x.to(torch.bfloat16),
        "channels last copy": lambda: x.contiguous(memory_format=torch.channels_last),
        "cat mixed": lambda: torch.cat([x, half], 1),
        "cat expanded": lambda: torch.cat([x, expanded]),
        "batch norm channels last": lambda: functional.batch_norm(last, rand(3), rand(3)),
        "layer norm of halves": lambda: functional.layer_norm(half, (5,), rand(5), rand(5)),
        "max pool channels last": lambda: functional.max_pool2d(last, 2, return_indices=True),
        "fill a view": lambda: x.clone()[0].fill_(1.0),
        "zero a view": lambda: x.clone()[..., 1:2].zero_(),
        "bernoulli in place": lambda: x.clone().bernoulli_(0.3),
        "bernoulli of": lambda: rand(3, 3).clamp(0, 1).bernoulli(),
    }


def gathers() -> dict[str, Call]:
    """Rows and elements by indices that are all different, so that what is read is exact."""
    table, wide = rand(11, 6), rand(4, 10)
    rows = different(11, 3)
    columns = torch.stack([different(10, 3) for _ in range(4)])
    picks = different(24, 5)
    logits, images = rand(5, 7), rand(2, 4, 3, 3)
    classes, pixels = torch.randint(0, 7, (5,)), torch.randint(0, 4, (2, 3, 3))
    return {
        "index rows": lambda: table[rows],
        "index two": lambda: table[rows, different(6, 3)],
        "index outer": lambda: table[rows[:, None], different(6, 2)],
        "index mask": lambda: table[table > 0.6],
        "index row mask": lambda: table[torch.arange(11) % 2 == 0],
        "index put rows": lambda: table.clone().index_put_((rows,), rand(3, 6)),
        "index put accumulate": lambda: table.clone().index_put_((rows,), rand(3, 6), accumulate=True),
        "index put broadcast": lambda: table.clone().index_put_((rows,), rand(6)),
        "index put new": lambda: table.index_put((rows, different(6, 3)), rand(3)),
        "unsafe index": lambda: aten._unsafe_index(table, [rows]),
        "unsafe index put": lambda: aten._unsafe_index_put(table, [rows], rand(3, 6), True),
        "index put impl": lambda: aten._index_put_impl_(table.clone(), [rows], rand(3, 6), True, False),
        "index put impl new": lambda: aten._index_put_impl(table, [rows], rand(3, 6), False, False),
        "index select": lambda: table.index_select(0, rows),
        "index select columns": lambda: table.index_select(1, different(6, 2)),
        "gather": lambda: wide.gather(1, columns),
        "take": lambda: rand(4, 6).take(picks),
        "take along": lambda: torch.take_along_dim(wide, columns, 1),
        "put": lambda: rand(4, 6).put_(picks, rand(5)),
        "put accumulate": lambda: rand(4, 6).put_(picks, rand(5), accumulate=True),
        "scatter": lambda: wide.scatter(1, columns, rand(4, 3)),
        "scatter in place": lambda: wide.clone().scatter_(1, columns, rand(4, 3)),
        "scatter wider source": lambda: wide.clone().scatter_(1, columns, rand(4, 5)),
        "scatter number": lambda: wide.clone().scatter_(1, columns, 2.0),
        "scatter multiplied": lambda: wide.clone().scatter_(1, columns, rand(4, 3), reduce="multiply"),
        "scatter add": lambda: wide.clone().scatter_add_(1, columns, rand(4, 3)),
        "scatter add new": lambda: wide.scatter_add(1, columns, rand(4, 3)),
        "scatter reduce": lambda: wide.clone().scatter_reduce_(1, columns, rand(4, 3), "amax"),
        "scatter reduce new": lambda: wide.scatter_reduce(1, columns, rand(4, 3), "sum", include_self=False),
        "index add": lambda: table.clone().index_add_(0, rows, rand(3, 6)),
        "index add new": lambda: table.index_add(0, rows, rand(3, 6), alpha=2),
        "index copy": lambda: table.clone().index_copy_(0, rows, rand(3, 6)),
        "index copy new": lambda: table.index_copy(0, rows, rand(3, 6)),
        "index fill": lambda: table.clone().index_fill_(0, rows, 1.0),
        "index fill new": lambda: table.index_fill(0, rows, 1.0),
        "index reduce": lambda: table.clone().index_reduce_(0, rows, rand(3, 6), "prod"),
        "index reduce new": lambda: table.index_reduce(0, rows, rand(3, 6), "amax", include_self=False),
        "embedding": lambda: functional.embedding(rows, table),
        "embedding backward": lambda: aten.embedding_dense_backward(rand(3, 6), rows, 11, -1, False),
        "embedding backward padded": lambda: aten.embedding_dense_backward(rand(3, 6), different(10, 3), 11, 10, False),
        "embedding backward scaled": lambda: aten.embedding_dense_backward(rand(3, 6), rows, 11, -1, True),
        "embedding renorm": lambda: aten.embedding_renorm_(10 * table, rows, 1.0, 2.0),
        "embedding renorm new": lambda: aten.embedding_renorm(10 * table, rows, 1.0, 2.0),
        "nll loss": lambda: functional.nll_loss(logits, classes),
        "nll loss each": lambda: functional.nll_loss(logits, classes, reduction="none"),
        "nll loss weighted": lambda: functional.nll_loss(logits, classes, rand(7)),
        "nll loss of images": lambda: functional.nll_loss(images, pixels),
        "nll loss of images weighted": lambda: functional.nll_loss(images, pixels, rand(4)),
    }


def bags() -> dict[str, Call]:
    """Sums, means and maxima of the rows of a table."""
    table = rand(11, 6).requires_grad_()
    indices, offsets = different(11, 8), torch.tensor([0, 3, 4])
    weights = rand(8).requires_grad_()
    found: dict[str, Call] = {}
    for mode in ("sum", "mean", "max"):
        found[f"embedding bag {mode}"] = lambda mode=mode: functional.embedding_bag(indices, table, offsets, mode=mode).sum().backward()
        found[f"embedding bag {mode} inference"] = lambda mode=mode: functional.embedding_bag(
            indices, table.detach(), offsets, mode=mode
        )
    found["embedding bag weighted"] = lambda: (
        functional.embedding_bag(indices, table, offsets, mode="sum", per_sample_weights=weights).sum().backward()
    )
    found["embedding bag dense"] = lambda: aten._embedding_bag_dense_backward(
        rand(2, 6), torch.tensor([1, 3, 5]), torch.tensor([0, 0, 1]), torch.tensor([2, 1]), torch.tensor([0]), 11, False, 0, None
    )
    found["embedding bag last offset"] = lambda: functional.embedding_bag(
        indices, table.detach(), torch.tensor([0, 3, 8]), mode="sum", include_last_offset=True
    )
    found["embedding bag forward only"] = lambda: aten._embedding_bag_forward_only(table.detach(), indices, offsets, False, 0)
    return found


def convolutions() -> dict[str, Call]:
    """Strides that jump, groups, dilation, transposed, and the kernels behind them."""
    x, w, b = rand(1, 4, 5, 6), rand(6, 4, 3, 3), rand(6)
    volume, filters = rand(1, 2, 3, 4, 3), rand(3, 2, 2, 2, 2)
    conv = functional.conv2d
    three = (3, 3)

    def backward(**options: Any) -> Call:
        weight = rand(6, 4 // options.get("groups", 1), 3, 3)

        def call() -> None:
            given, kernel, bias = x.clone().requires_grad_(), weight.clone().requires_grad_(), b.clone().requires_grad_()
            result = conv(given, kernel, bias, **options)
            result.backward(rand(*result.shape))

        return call

    grad = rand(1, 6, 3, 4)
    return {
        "conv": lambda: conv(x, w, b),
        "conv 1x1 stride 2": lambda: conv(x, rand(6, 4, 1, 1), stride=2),
        "conv 2x2 stride 3": lambda: conv(x, rand(6, 4, 2, 2), stride=3),
        "conv dilated": lambda: conv(x, w, b, dilation=2),
        "conv dilated and strided": lambda: conv(x, rand(6, 4, 2, 2), dilation=2, stride=2),
        "conv grouped": lambda: conv(x, rand(6, 2, 3, 3), b, groups=2, padding=1),
        "conv depthwise": lambda: conv(x, rand(4, 1, 3, 3), padding=1, groups=4),
        "conv large padding": lambda: conv(x, w, padding=2, stride=4),
        "conv same": lambda: conv(x, w, padding="same"),
        "conv1d": lambda: functional.conv1d(rand(2, 3, 8), rand(4, 3, 3), stride=2),
        "conv3d": lambda: functional.conv3d(volume, filters, stride=(1, 2, 1)),
        "conv halves": lambda: conv(x.bfloat16(), w.bfloat16(), b.bfloat16()),
        "conv transposed": lambda: functional.conv_transpose2d(x, rand(4, 3, 3, 3), stride=2, output_padding=1),
        "conv transposed grouped": lambda: functional.conv_transpose2d(x, rand(4, 3, 2, 2), groups=2, padding=1),
        "conv backward": backward(),
        "conv backward grouped": backward(groups=2, padding=1),
        "conv backward strided": backward(stride=2),
        "conv backward weight only": lambda: conv(x, w.clone().requires_grad_()).sum().backward(),
        "conv backward input only": lambda: conv(x.clone().requires_grad_(), w).sum().backward(),
        "_convolution": lambda: aten._convolution(
            x, w, b, [2, 2], [0, 0], [1, 1], False, [0, 0], 1, False, False, False, False
        ),
        "conv_tbc": lambda: torch.conv_tbc(rand(6, 2, 3), rand(2, 3, 4), rand(4), 1),
        "mkldnn_convolution": lambda: aten.mkldnn_convolution(x, w, b, (1, 1), (2, 2), (1, 1), 1),
        "_slow_conv2d_forward": lambda: aten._slow_conv2d_forward(x, w, three, b, (1, 1), (1, 1)),
        "_slow_conv2d_forward no bias": lambda: aten._slow_conv2d_forward(x, w, three, None, (3, 3), (0, 0)),
        "_slow_conv2d_backward": lambda: aten._slow_conv2d_backward.grad_input(
            grad, x, w, three, (1, 1), (0, 0), grad_input=torch.empty(1, 4, 5, 6), grad_weight=torch.empty(6, 4, 3, 3),
            grad_bias=torch.empty(6),
        ),
        "_slow_conv2d_backward mask": lambda: aten._slow_conv2d_backward.output_mask(
            grad, x, w, three, (1, 1), (0, 0), (False, True, True)
        ),
        "slow_conv3d": lambda: aten.slow_conv3d_forward(volume, filters, (2, 2, 2), rand(3), (1, 1, 1), (0, 0, 0)),
        "slow_conv_dilated2d": lambda: aten.slow_conv_dilated2d(x, w, three, b, (1, 1), (0, 0), (2, 2)),
        "slow_conv_dilated3d": lambda: aten.slow_conv_dilated3d(volume, filters, (2, 2, 2), rand(3), (1, 1, 1), (1, 1, 1), (2, 2, 2)),
        "slow_conv_transpose2d": lambda: aten.slow_conv_transpose2d(x, rand(4, 5, 3, 3), three, rand(5), (2, 2)),
        "slow_conv_transpose3d": lambda: aten.slow_conv_transpose3d(volume, rand(2, 3, 2, 2, 2), (2, 2, 2), rand(3)),
        "mkldnn pointwise": lambda: mkldnn._convolution_pointwise(
            x, w, b, (0, 0), (1, 1), (1, 1), 1, "relu", [], ""
        ),
        "mkldnn pointwise binary": lambda: mkldnn._convolution_pointwise.binary(
            x, grad, w, b, (0, 0), (1, 1), (1, 1), 1, "add", None, None, [], None
        ),
        "mkldnn pointwise in place": lambda: mkldnn._convolution_pointwise_.binary(
            grad.clone(), x, w, b, (0, 0), (1, 1), (1, 1), 1, "add", None, None, [], None
        ),
        "mkldnn transposed pointwise": lambda: mkldnn._convolution_transpose_pointwise(
            x, rand(4, 5, 3, 3), rand(5), (0, 0), (0, 0), (2, 2), (1, 1), 1, "relu", [], ""
        ),
    }  # fmt: skip


def products() -> dict[str, Call]:
    """Matrix products of every form that a CPU has."""
    a, b = rand(5, 8), rand(8, 4)
    small = torch.randint(-5, 5, (32, 16), dtype=torch.int8)

    def eight(*shape: int) -> Tensor:
        return rand(*shape).to(torch.float8_e4m3fn)

    return {
        "addmm beta 0": lambda: torch.addmm(rand(5, 4), a, b, beta=0),
        "_addmm_activation": lambda: aten._addmm_activation(rand(4), a, b, use_gelu=True),
        "_int_mm": lambda: torch._int_mm(small, small.t().contiguous()),
        "_int_mm transposed": lambda: torch._int_mm(small, small.t()),
        "_scaled_mm": lambda: torch._scaled_mm(
            eight(16, 32), eight(48, 32).t(), torch.tensor(2.0), torch.tensor(0.5), out_dtype=torch.bfloat16
        ),
        "_weight_int8pack_mm": lambda: aten._weight_int8pack_mm(
            rand(4, 32, dtype=torch.bfloat16), torch.randint(-5, 5, (16, 32), dtype=torch.int8), rand(16, dtype=torch.bfloat16)
        ),
        "_grouped_mm": lambda: aten._grouped_mm(
            rand(8, 16, dtype=torch.bfloat16), rand(2, 16, 8, dtype=torch.bfloat16), torch.tensor([3, 8], dtype=torch.int32)
        ),
        "_scaled_mm_v2": lambda: aten._scaled_mm_v2(
            eight(16, 32), eight(48, 32).t(), [torch.tensor(2.0)], [0], [0], [torch.tensor(0.5)], [0], [0], None, torch.bfloat16
        ),
        "int4 pack": lambda: aten._convert_weight_to_int4pack_for_cpu(torch.randint(0, 15, (32, 64), dtype=torch.int32), 2),
        "int4 mm": lambda: aten._weight_int4pack_mm_for_cpu(
            rand(4, 64, dtype=torch.bfloat16),
            aten._convert_weight_to_int4pack_for_cpu(torch.randint(0, 15, (32, 64), dtype=torch.int32), 2),
            32,
            rand(2, 32, 2, dtype=torch.bfloat16),
        ),
        "4 bits dynamically": lambda: aten._dyn_quant_matmul_4bit(
            rand(4, 64),
            aten._dyn_quant_pack_4bit_weight(torch.randint(0, 255, (32, 32), dtype=torch.uint8), rand(32), None, 64, 64, 32),
            64,
            64,
            32,
        ),
        "_euclidean_dist": lambda: aten._euclidean_dist(rand(5, 3), rand(4, 3)),
        "affine grid": lambda: functional.affine_grid(rand(2, 2, 3), [2, 1, 3, 4], align_corners=False),
        "mkldnn linear pointwise": lambda: mkldnn._linear_pointwise(a, rand(4, 8), rand(4), "relu", [], ""),
        "mkldnn linear binary": lambda: mkldnn._linear_pointwise.binary(a, rand(5, 4), rand(4, 8), rand(4), "add"),
        "_mm_plus_mm": lambda: torch.ops.inductor._mm_plus_mm(a, b, rand(5, 3), rand(3, 4), torch.empty(5, 4)),
        "_compute_linear_combination": lambda: aten._compute_linear_combination(rand(3, 4, 4), rand(2, 3)),
        "_cholesky_solve_helper": lambda: aten._cholesky_solve_helper(rand(4, 2), rand(4, 4).tril(), False),
        "_linalg_eigvals": lambda: aten._linalg_eigvals(rand(4, 4)),
    }


def attentions() -> dict[str, Call]:
    """The CPU's fused attention and the fused layers."""
    heads = [rand(2, 3, 5, 4) for _ in range(3)]
    x, width = rand(2, 5, 8), 8
    layer = (rand(24, 8), rand(24), rand(8, 8), rand(8))

    def training(**options: Any) -> Call:
        def call() -> None:
            query, key, value = (tensor.clone().requires_grad_() for tensor in heads)
            result = functional.scaled_dot_product_attention(query, key, value, **options)
            result.backward(rand(*result.shape))

        return call

    return {
        "attention": lambda: functional.scaled_dot_product_attention(*heads),
        "attention causal": lambda: functional.scaled_dot_product_attention(*heads, is_causal=True),
        "attention longer keys": lambda: functional.scaled_dot_product_attention(rand(1, 2, 3, 4), rand(1, 2, 7, 4), rand(1, 2, 7, 4)),
        "attention masked": lambda: functional.scaled_dot_product_attention(*heads, attn_mask=rand(5, 5)),
        "attention masked by broadcast": lambda: functional.scaled_dot_product_attention(*heads, attn_mask=rand(2, 1, 5, 5)),
        "attention grouped": lambda: functional.scaled_dot_product_attention(
            rand(1, 4, 5, 4), rand(1, 2, 5, 4), rand(1, 2, 5, 4), enable_gqa=True
        ),
        "attention training": training(),
        "attention training causal": training(is_causal=True),
        "attention training masked": training(attn_mask=rand(5, 5)),
        "attention of halves": lambda: functional.scaled_dot_product_attention(*[tensor.bfloat16() for tensor in heads]),
        "rescale": lambda: aten._transform_bias_rescale_qkv(rand(2, 5, 24), rand(24), 2),
        "multi head": lambda: aten._native_multi_head_attention(x, x, x, width, 2, *layer, None, False),
        "multi head weights": lambda: aten._native_multi_head_attention(x, x, x, width, 2, *layer, None, True, True),
        "encoder layer": lambda: aten._transformer_encoder_layer_fwd(
            x, width, 2, *layer, True, False, 1e-5, rand(8), rand(8), rand(8), rand(8), rand(16, 8), rand(16), rand(8, 16), rand(8)
        ),
    }


def recurrent() -> dict[str, Call]:
    """LSTM and GRU: the fused CPU kernel and the cells."""
    lstm, gru = torch.nn.LSTM(3, 4, num_layers=2), torch.nn.GRU(3, 4)

    def training(network: torch.nn.Module) -> None:
        result, _ = network(rand(5, 2, 3).requires_grad_())
        result.backward(rand(*result.shape))

    def layer(train: bool) -> object:
        return aten.mkldnn_rnn_layer(
            rand(5, 2, 3), rand(16, 3), rand(16, 4), rand(16), rand(16), rand(1, 2, 4), rand(1, 2, 4), False, [], 2, 4, 1, True, False,
            False, train,
        )  # fmt: skip

    def rnn_training() -> None:
        given = rand(5, 2, 3), rand(16, 3), rand(16, 4), rand(16), rand(16), rand(1, 2, 4), rand(1, 2, 4)
        result, hidden, cell, workspace = aten.mkldnn_rnn_layer(*given, False, [], 2, 4, 1, True, False, False, True)
        aten.mkldnn_rnn_layer_backward(
            *given, result, hidden, cell, rand(5, 2, 4), rand(1, 2, 4), rand(1, 2, 4), False, 2, 4, 1, True, True, False, [], False,
            workspace,
        )  # fmt: skip

    return {
        "rnn layer training": rnn_training,
        "lstm": lambda: lstm(rand(5, 2, 3)),
        "lstm training": lambda: training(lstm),
        "gru training": lambda: training(gru),
        "rnn layer inference": lambda: layer(False),
        "packed": lambda: torch.nn.utils.rnn.pack_padded_sequence(rand(5, 2, 3), torch.tensor([5, 3])),
    }


def lists() -> dict[str, Call]:
    """Every ``_foreach`` operator, its arguments made from the schema."""
    found: dict[str, Call] = {}
    for name in sorted(name for name in dir(aten) if name.startswith("_foreach_")):
        packet = getattr(aten, name)
        for overload in packet.overloads():
            operator = getattr(packet, overload)
            if not any(argument.is_out for argument in operator._schema.arguments):
                found[f"{name} {overload}"] = _on_lists(operator)
    return found


def _on_lists(operator: Any) -> Call:
    def argument(name: str, kind: str) -> Any:
        if kind in ("List[Tensor]", "List[Optional[Tensor]]"):
            return [rand(3, 3), rand(2, 2)] if operator.name().startswith("aten::_foreach_mm") else [rand(3, 2), rand(4)]
        return {
            "Tensor": rand() if "addc" not in operator.name() else rand(2),
            "List[number]": [1.5, 2.0],
            "number": 1.5,
            "List[int]": [1, 2],
        }.get(kind)

    def call() -> object:
        positional, keywords = [], {}
        for field in operator._schema.arguments:
            if field.has_default_value():
                continue
            value = argument(field.name, str(field.type))
            if field.kwarg_only:
                keywords[field.name] = value
            else:
                positional.append(value)
        return operator(*positional, **keywords)

    return call


def optimizers() -> dict[str, Call]:
    """Every torch.optim optimizer one tensor at a time, on lists and fused, two steps each; and what AMP does."""
    found: dict[str, Call] = {}
    for kind, options in _OPTIMIZERS:
        for form in ({"foreach": False}, {"foreach": True}, {"fused": True}):
            if "fused" in form and kind not in ("SGD", "Adam", "AdamW", "Adagrad"):
                continue
            found[f"{kind} {options} {form}"] = _steps(kind, {**options, **form})
    scale, inverse, found_inf = torch.tensor(4.0), torch.tensor(0.25), torch.zeros(())
    found["unscale"] = lambda: aten._amp_foreach_non_finite_check_and_unscale_([rand(3, 2), rand(4)], found_inf.clone(), inverse)
    found["unscale new"] = lambda: aten._amp_foreach_non_finite_check_and_unscale([rand(3, 2), rand(4)], found_inf, inverse)
    found["update scale"] = lambda: aten._amp_update_scale_(
        scale.clone(), torch.zeros(1, dtype=torch.int32), torch.zeros(1), 2.0, 0.5, 1
    )
    found["fused Adam in a scaled step"] = lambda: aten._fused_adam_(
        [rand(3, 2)], [rand(3, 2)], [rand(3, 2)], [rand(3, 2)], [], [torch.tensor(1.0)], lr=0.1, beta1=0.9, beta2=0.99,
        weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False, grad_scale=torch.tensor([2.0]), found_inf=torch.zeros(1),
    )  # fmt: skip
    found["fused Adam with a tensor rate"] = lambda: aten._fused_adamw_.tensor_lr(
        [rand(3, 2)], [rand(3, 2)], [rand(3, 2)], [rand(3, 2)], [rand(3, 2)], [torch.tensor(1.0)], lr=torch.tensor(0.1), beta1=0.9,
        beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=True, maximize=False,
    )  # fmt: skip
    found["fused SGD new"] = lambda: aten._fused_sgd(
        [rand(3, 2)], [rand(3, 2)], [rand(3, 2)], weight_decay=0.1, momentum=0.9, lr=0.1, dampening=0.0, nesterov=True, maximize=False,
        is_first_step=False,
    )  # fmt: skip
    return found


_OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adam", {}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {}),
    ("Adagrad", {}),
    ("Adadelta", {}),
    ("Adamax", {}),
    ("ASGD", {}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("RMSprop", {"momentum": 0.9, "centered": True}),
    ("Rprop", {}),
]


def _steps(kind: str, options: dict[str, Any]) -> Call:
    def call() -> None:
        parameters = [torch.nn.Parameter(rand(3, 2)), torch.nn.Parameter(rand(4))]
        optimizer = getattr(torch.optim, kind)(parameters, **options)
        for _ in range(2):
            for parameter in parameters:
                parameter.grad = rand(*parameter.shape)
            optimizer.step()

    return call


def norms() -> dict[str, Call]:
    """Batch norms in their many forms, layer, group and weight norm."""
    x, channels = rand(2, 3, 4), [rand(3) for _ in range(4)]
    return {
        "_batch_norm_no_update": lambda: aten._batch_norm_no_update(x, *channels, 0.1, 1e-5),
        "_batch_norm_with_update": lambda: aten._batch_norm_with_update(x, *(tensor.clone() for tensor in channels), 0.1, 1e-5),
        "_batch_norm_with_update_functional": lambda: aten._batch_norm_with_update_functional(x, *channels, 0.1, 1e-5),
        "_native_batch_norm_legit": lambda: aten._native_batch_norm_legit(x, *(t.clone() for t in channels), True, 0.1, 1e-5),
        "_native_batch_norm_legit_functional": lambda: aten._native_batch_norm_legit_functional(x, *channels, True, 0.1, 1e-5),
        "_native_batch_norm_legit_no_training": lambda: aten._native_batch_norm_legit_no_training(x, *channels, 0.1, 1e-5),
        "batch_norm_stats": lambda: aten.batch_norm_update_stats(x, channels[0].clone(), channels[1].clone(), 0.1),
        "weight norm": lambda: aten._weight_norm_interface(rand(4, 5), rand(4, 1), 0),
        "weight norm backward": lambda: aten._weight_norm_interface_backward(rand(4, 5), rand(4, 5), rand(4, 1), rand(4, 1), 0),
    }


def pools() -> dict[str, Call]:
    """Windows that jump over positions."""
    x, volume = rand(1, 2, 7, 6), rand(1, 2, 4, 5, 4)
    return {
        "max pool 2d": lambda: functional.max_pool2d(x, 2, 3, return_indices=True),
        "max pool 3d": lambda: functional.max_pool3d(volume, 2, 3, return_indices=True),
        "avg pool 2d": lambda: functional.avg_pool2d(x, 2, 3),
        "avg pool 3d": lambda: functional.avg_pool3d(volume, 2, 3),
        "adaptive 3d backward": lambda: aten.adaptive_avg_pool3d_backward.grad_input(
            rand(1, 2, 2, 2, 2), volume, grad_input=torch.empty(1, 2, 4, 5, 4)
        ),
    }


def movements() -> dict[str, Call]:
    """Copies, windows, paddings, resampling, random numbers and new tensors."""
    x, image = rand(4, 5), rand(1, 2, 4, 6)
    mask = torch.rand(4, 5) > 0.5
    return {
        "slice scatter": lambda: torch.slice_scatter(x, rand(4, 2), 1, 1, 3),
        "select copy": lambda: torch.select_copy(x, 0, 1),
        "slice copy": lambda: torch.slice_copy(x, 0, 1, 3),
        "split copy": lambda: torch.split_copy(x, 2),
        "detach copy": lambda: torch.detach_copy(x),
        "conj copy": lambda: torch._conj_copy(torch.complex(x, x)),
        "neg view copy": lambda: torch._neg_view_copy(x),
        "complex copies": lambda: torch.view_as_real_copy(torch.view_as_complex_copy(rand(3, 2))),
        "reshape copy": lambda: aten._reshape_copy(x, [20]),
        "reshape alias copy": lambda: aten._reshape_alias_copy(x, [20], [1]),
        "lift fresh copy": lambda: aten.lift_fresh_copy(x),
        "to copy": lambda: aten._to_copy(x, dtype=torch.float64),
        "stack": lambda: torch.stack([x, x]),
        "_stack": lambda: aten._stack([x, x]),
        "im2col": lambda: functional.unfold(image, 2),
        "im2col with gaps": lambda: functional.unfold(image, 2, stride=3),
        "col2im": lambda: functional.fold(rand(1, 8, 15), (4, 6), 2),
        "channel shuffle": lambda: aten.native_channel_shuffle(rand(1, 4, 2, 2), 2),
        "bicubic aa": lambda: functional.interpolate(image, (3, 4), mode="bicubic", antialias=True),
        "bilinear aa training": lambda: functional.interpolate(
            image.clone().requires_grad_(), (3, 4), mode="bilinear", antialias=True
        ).sum().backward(),
        "bicubic aa training": lambda: functional.interpolate(
            image.clone().requires_grad_(), (3, 4), mode="bicubic", antialias=True
        ).sum().backward(),
        "lanczos": lambda: aten._upsample_lanczos2d_aa(image, [3, 4], False),
        "lanczos backward": lambda: aten._upsample_lanczos2d_aa_backward(rand(1, 2, 3, 4), [3, 4], [1, 2, 4, 6], False),
        "nearest exact 3d": lambda: functional.interpolate(
            rand(1, 2, 3, 3, 3).requires_grad_(), (4, 2, 3), mode="nearest-exact"
        ).sum().backward(),
        "grid sampler fallback": lambda: aten._grid_sampler_2d_cpu_fallback(image, 2 * rand(1, 3, 3, 2) - 1, 0, 0, False),
        "grid sampler fallback backward": lambda: aten._grid_sampler_2d_cpu_fallback_backward(
            rand(1, 2, 3, 3), image, 2 * rand(1, 3, 3, 2) - 1, 0, 0, False
        ),
        "masked scatter": lambda: x.clone().masked_scatter_(mask, rand(20)),
        "triangles": lambda: (torch.tril_indices(3, 4), torch.triu_indices(3, 4, 1)),
        "zeros of another": lambda: aten._new_zeros_with_same_feature_meta(x, rand(2, 3)),
        "nested strides": lambda: aten._nested_compute_contiguous_strides_offsets(torch.tensor([[3, 2], [1, 2]])),
        "left aligned": lambda: aten._nested_tensor_from_mask_left_aligned(rand(2, 4, 3), torch.arange(4) < torch.tensor([[2], [3]])),
        "sparse validation": lambda: aten._validate_compressed_sparse_indices(
            True, torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1]), 2, 2, 3
        ),
        "range": lambda: torch.ops.aten.range(1, 5),
        "scalar tensor": lambda: torch.scalar_tensor(2.0),
        "windows": lambda: [
            torch.bartlett_window(8), torch.blackman_window(8), torch.hamming_window(8), torch.hann_window(8), torch.kaiser_window(8),
        ],
        "fftfreq": lambda: (torch.fft.fftfreq(6), torch.fft.rfftfreq(6)),
        "native dropout": lambda: torch.native_dropout(x, 0.5, True),
        "native dropout inference": lambda: torch.native_dropout(x, 0.5, False),
        "dropout training": lambda: functional.dropout(x.clone().requires_grad_(), 0.5).sum().backward(),
        "random": lambda: (torch.empty(8).random_(), aten.random(x), aten.random.to(x, 5)),
        "randperm": lambda: torch.randperm(8),
        "poisson": lambda: torch.poisson(x),
        "binomial": lambda: torch.binomial(10 * x.round(), x.clamp(0, 1)),
        "gamma": lambda: (torch._standard_gamma(x), torch._standard_gamma_grad(x, x)),
        "dirichlet": lambda: (torch._sample_dirichlet(x), torch._dirichlet_grad(x, x, 2 * x)),
        "normal functional": lambda: aten.normal_functional(x),
        "rrelu functional": lambda: aten.rrelu_with_noise_functional(x - 0.5, torch.empty(4, 5), training=True),
        "glu jvp": lambda: aten.glu_jvp(rand(4, 3), rand(4, 6), rand(4, 6), 1),
        "glu backward jvp": lambda: aten.glu_backward_jvp(rand(4, 6), rand(4, 3), rand(4, 6), rand(4, 3), rand(4, 6), 1),
        "add relu": lambda: (torch._add_relu(x, x - 1), torch._add_relu(x, 2.0), aten._add_relu_(x.clone(), x - 1)),
        "shifts": lambda: (torch.arange(4) << torch.arange(4), torch.arange(4) >> 1, aten.__ilshift__(torch.arange(4), 1)),
        "shift in place": lambda: aten.__irshift__(torch.arange(8), torch.ones(8, dtype=torch.int64)),
        "masked softmax": lambda: torch._masked_softmax(rand(2, 5), torch.rand(2, 5) > 0.5, 1, 1),
        "masked softmax backward": lambda: aten._masked_softmax_backward(rand(2, 5), rand(2, 5), torch.rand(2, 5) > 0.5, 1),
        "aminmax": lambda: (aten._aminmax(x), aten._aminmax.dim(x, 1), x.aminmax(dim=0)),
        "all any": lambda: (aten._is_all_true(mask), aten._is_any_true(mask)),
        "_logcumsumexp": lambda: aten._logcumsumexp(x, 1),
        "powsum": lambda: aten.linalg__powsum(x, 2, [1]),
        "unique": lambda: torch.unique(torch.randint(0, 5, (12,)), return_inverse=True, return_counts=True),
        "unique dim": lambda: torch.unique(torch.randint(0, 2, (6, 2)), dim=0, return_inverse=True),
        "unique dim consecutive": lambda: torch.unique_consecutive(torch.randint(0, 2, (6, 2)), dim=0),
        "unique dim consecutive by name": lambda: aten.unique_dim_consecutive(torch.randint(0, 2, (6, 2)), 0, True, True),
        "unique consecutive": lambda: torch.unique_consecutive(torch.randint(0, 2, (9,)), return_counts=True),
        "searchsorted": lambda: torch.searchsorted(torch.arange(9.0), rand(3)),
        "cummax helper": lambda: aten._cummax_helper(x, torch.empty(4, 5), torch.empty(4, 5, dtype=torch.int64), 1),
        "cummin helper": lambda: aten._cummin_helper(x, torch.empty(4, 5), torch.empty(4, 5, dtype=torch.int64), 1),
        "histogramdd": lambda: torch.histogramdd(rand(9, 2), [3, 2]),
        "histogramdd of edges": lambda: torch.histogramdd(rand(9, 2), [torch.arange(4.0), torch.arange(3.0)]),
        "ctc": lambda: functional.ctc_loss(
            rand(6, 2, 5).log_softmax(-1).requires_grad_(), torch.randint(1, 5, (2, 3)), [6, 6], [3, 2]
        ).backward(),
        "philox": lambda: _philox(x),
        "convert": lambda: (
            prims.convert_element_type(x, torch.float16),
            prims.iota(6, start=0, step=2, dtype=torch.int64, device="cpu", requires_grad=False),
        ),
        "jagged": lambda: aten._jagged_to_padded_dense_forward(rand(7, 3), [torch.tensor([0, 3, 7])], [4], 0.0),
        "dense to jagged": lambda: aten._padded_dense_to_jagged_forward(rand(2, 4, 3), [torch.tensor([0, 3, 7])], 7),
        "sparse indices": lambda: (
            aten._convert_indices_from_coo_to_csr(torch.tensor([0, 0, 1, 3]), 4),
            aten._convert_indices_from_csr_to_coo(torch.tensor([0, 2, 3, 4]), torch.tensor([0, 2, 1, 1])),
        ),
        "split sizes": lambda: torch.unsafe_split_with_sizes(x, [2, 3], 1),
    }  # fmt: skip


def _philox(x: Tensor) -> object:
    key = torch.zeros(2, dtype=torch.uint64)
    return aten._philox_key_split(key, 3), aten._philox_key_fold_in(key, 7), aten._philox_uniform(x, key), aten._philox_normal(x, key)


def boxes() -> dict[str, Call]:
    """torchvision's own operators."""
    image = rand(2, 8, 6, 6)
    rois = torch.tensor([[0, 0.0, 0.0, 5.0, 5.0], [1, 1.0, 1.0, 4.0, 5.0]])
    corners = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.1, 0.1, 2.0, 2.0], [3.0, 3.0, 5.0, 5.0]])
    weight, offset, mask = rand(4, 8, 3, 3), rand(2, 18, 4, 4), rand(2, 9, 4, 4)
    geometry = (1, 1, 0, 0, 1, 1, 1, 1)

    def channels(pooled: Callable[[], tuple[Tensor, Tensor]]) -> Tensor:
        return pooled()[1]

    return {
        "nms": lambda: vision.nms(corners, torch.tensor([0.9, 0.8, 0.7]), 0.5),
        "roi_align": lambda: vision.roi_align(image, rois, 1.0, 2, 2, 2, False),
        "roi_align backward": lambda: vision._roi_align_backward(rand(2, 8, 2, 2), rois, 1.0, 2, 2, 2, 8, 6, 6, 2, False),
        "roi_pool": lambda: vision.roi_pool(image, rois, 1.0, 2, 2),
        "roi_pool backward": lambda: vision._roi_pool_backward(
            rand(2, 8, 2, 2), rois, channels(lambda: vision.roi_pool(image, rois, 1.0, 2, 2)), 1.0, 2, 2, 2, 8, 6, 6
        ),
        "ps_roi_align": lambda: vision.ps_roi_align(image, rois, 1.0, 2, 2, 2),
        "ps_roi_align backward": lambda: vision._ps_roi_align_backward(
            rand(2, 2, 2, 2), rois, channels(lambda: vision.ps_roi_align(image, rois, 1.0, 2, 2, 2)), 1.0, 2, 2, 2, 2, 8, 6, 6
        ),
        "ps_roi_pool": lambda: vision.ps_roi_pool(image, rois, 1.0, 2, 2),
        "ps_roi_pool backward": lambda: vision._ps_roi_pool_backward(
            rand(2, 2, 2, 2), rois, channels(lambda: vision.ps_roi_pool(image, rois, 1.0, 2, 2)), 1.0, 2, 2, 2, 8, 6, 6
        ),
        "deform_conv2d": lambda: vision.deform_conv2d(image, weight, offset, mask, rand(4), *geometry, True),
        "deform_conv2d without mask": lambda: vision.deform_conv2d(image, weight, offset, torch.zeros(2, 1), rand(4), *geometry, False),
        "deform_conv2d backward": lambda: vision._deform_conv2d_backward(
            rand(2, 4, 4, 4), image, weight, offset, mask, rand(4), *geometry, True
        ),
    }


def quantizations() -> dict[str, Call]:
    """Eager quantized operators, with packed weights, and fake quantization."""
    x = rand(2, 4, 6, 6) - 0.5
    q = torch.quantize_per_tensor(x, 0.02, 30, torch.quint8)
    flat = torch.quantize_per_tensor(rand(5, 8), 0.02, 3, torch.quint8)
    w = torch.quantize_per_tensor(rand(4, 8), 0.02, 0, torch.qint8)
    kernel = torch.quantize_per_channel(rand(6, 4, 3, 3), rand(6).double(), torch.zeros(6, dtype=torch.int64), 0, torch.qint8)
    steps, zeros = rand(4), torch.zeros(4, dtype=torch.int32)
    on = torch.ones(1, dtype=torch.int64)

    def linear(operator: Any, *rest: Any) -> Call:
        def call() -> object:
            with quantized_engine("onednn"):
                return operator(flat, quantized.linear_prepack(w, rand(4)), 0.1, 0, *rest)

        return call

    def conv(operator: Any, *rest: Any) -> Call:
        def call() -> object:
            with quantized_engine("onednn"):
                packed = quantized.conv2d_prepack(kernel, rand(6), [1, 1], [0, 0], [1, 1], 1)
                return operator(q, *rest, packed, 0.1, 0)

        return call

    total = torch.quantize_per_tensor(rand(2, 6, 4, 4), 0.02, 3, torch.quint8)
    row, cube = (torch.quantize_per_tensor(rand(*shape), 0.02, 3, torch.quint8) for shape in ((2, 4, 6), (1, 2, 4, 4, 4)))
    taps, filters = (torch.quantize_per_tensor(rand(*shape), 0.02, 0, torch.qint8) for shape in ((6, 4, 3), (6, 2, 2, 2, 2)))
    one, three = ([1], [0], [1], 1), ([1, 1, 1], [0, 0, 0], [1, 1, 1], 1)

    def transposed(dimensions: int) -> Call:
        given = torch.quantize_per_tensor(rand(1, 4, *(4,) * dimensions), 0.02, 3, torch.quint8)
        weight = torch.quantize_per_tensor(rand(4, 3, *(2,) * dimensions), 0.02, 0, torch.qint8)
        ones, zero = [1] * dimensions, [0] * dimensions

        def call() -> None:
            with quantized_engine("onednn"):
                packed = getattr(quantized, f"conv_transpose{dimensions}d_prepack")(weight, rand(3), ones, zero, zero, ones, 1)
                getattr(quantized, f"conv_transpose{dimensions}d")(given, packed, 0.1, 0)
                getattr(quantized, f"conv_transpose{dimensions}d_dynamic")(given.dequantize(), packed)

        return call

    def cell(name: str, gates: int) -> Call:
        def call() -> None:
            weights = [
                quantized.linear_prepack(torch.quantize_per_tensor(rand(4 * gates, width), 0.02, 0, torch.qint8), rand(4 * gates))
                for width in (3, 4)
            ]
            state = [rand(2, 4), rand(2, 4)] if gates == 4 else rand(2, 4)
            getattr(quantized, name)(rand(2, 3), state, *weights, rand(4 * gates), rand(4 * gates))

        return call

    def other_transposed() -> None:
        for dimensions in (1, 2, 3):
            weight = torch.quantize_per_tensor(rand(4, 3, *(2,) * dimensions), 0.02, 0, torch.qint8)
            ones, zero = [1] * dimensions, [0] * dimensions
            with quantized_engine("onednn"):
                packed = getattr(_quantized, f"conv_transpose{dimensions}d_prepack")(weight, rand(3), ones, zero, zero, ones, 1)
                if dimensions < 3:
                    given = torch.quantize_per_tensor(rand(1, 4, *(4,) * dimensions), 0.02, 3, torch.quint8)
                    getattr(_quantized, f"conv_transpose{dimensions}d")(given, packed, 0.1, 0)

    codes = torch.randint(0, 50, (2, 4, 3, 3), dtype=torch.uint8)
    decomposed = torch.ops.quantized_decomposed
    found: dict[str, Call] = {
        "quantize": lambda: torch.quantize_per_tensor(x, 0.02, 3, torch.qint8),
        "quantize by tensors": lambda: torch.quantize_per_tensor(x, torch.tensor(0.02), torch.tensor(3), torch.quint8),
        "quantize channels": lambda: torch.quantize_per_channel(x, steps, zeros, 1, torch.qint8),
        "quantize dynamically": lambda: torch.quantize_per_tensor_dynamic(x, torch.quint8, False),
        "dequantize": lambda: q.dequantize(),
        "dequantize channels": lambda: kernel.dequantize(),
        "int_repr": lambda: q.int_repr(),
        "make": lambda: torch._make_per_tensor_quantized_tensor(q.int_repr(), 0.02, 3),
        "make channels": lambda: torch._make_per_channel_quantized_tensor(
            kernel.int_repr(), rand(6).double(), torch.zeros(6, dtype=torch.int64), 0
        ),
        "linear": linear(quantized.linear),
        "linear relu": linear(quantized.linear_relu),
        "linear leaky relu": linear(quantized.linear_leaky_relu, 0.1),
        "linear tanh": linear(quantized.linear_tanh),
        "linear dynamic": lambda: quantized.linear_dynamic(rand(5, 8), quantized.linear_prepack(w, rand(4))),
        "linear dynamic relu": lambda: quantized.linear_relu_dynamic(rand(5, 8), quantized.linear_prepack(w, rand(4))),
        "linear dynamic fp16": lambda: quantized.linear_dynamic_fp16(rand(5, 8), quantized.linear_prepack_fp16(rand(4, 8), rand(4))),
        "linear relu dynamic fp16": lambda: quantized.linear_relu_dynamic_fp16(
            rand(5, 8), quantized.linear_prepack_fp16(rand(4, 8), rand(4))
        ),
        "conv": conv(quantized.conv2d.new),
        "conv relu": conv(quantized.conv2d_relu.new),
        "conv add": conv(quantized.conv2d_add, total),
        "conv add relu": conv(quantized.conv2d_add_relu, total),
        "conv dynamic": lambda: quantized.conv2d_dynamic(
            x, quantized.conv2d_prepack(kernel, rand(6), [1, 1], [0, 0], [1, 1], 1)
        ),
        "conv1d": lambda: quantized.conv1d(
            torch.quantize_per_tensor(rand(2, 4, 6), 0.02, 3, torch.quint8),
            quantized.conv1d_prepack(
                torch.quantize_per_tensor(rand(6, 4, 3), 0.02, 0, torch.qint8), rand(6), [1], [0], [1], 1
            ), 0.1, 0,
        ),
        "add": lambda: quantized.add(q, q, 0.1, 0),
        "add relu": lambda: quantized.add_relu(q, q, 0.1, 0),
        "mul": lambda: quantized.mul(q, q, 0.1, 0),
        "mul relu": lambda: quantized.mul_relu(q, q, 0.1, 0),
        "add out": lambda: quantized.add_out(q, q, q.clone()),
        "add relu out": lambda: quantized.add_relu_out(q, q, q.clone()),
        "mul out": lambda: quantized.mul_out(q, q, q.clone()),
        "mul relu out": lambda: quantized.mul_relu_out(q, q, q.clone()),
        "add number": lambda: quantized.add_scalar(q, 0.5),
        "add number relu": lambda: quantized.add_scalar_relu(q, 0.5),
        "mul number": lambda: quantized.mul_scalar(q, 0.5),
        "mul number relu": lambda: quantized.mul_scalar_relu(q, 0.5),
        "mul number out": lambda: quantized.mul_scalar_out(q, 0.5, q.clone()),
        "mul number relu out": lambda: quantized.mul_scalar_relu_out(q, 0.5, q.clone()),
        "add number out": lambda: quantized.add_scalar_out(q, 0.5, q.clone()),
        "add number relu out": lambda: quantized.add_scalar_relu_out(q, 0.5, q.clone()),
        "matmul": lambda: quantized.matmul(
            flat, torch.quantize_per_tensor(rand(8, 4), 0.02, 0, torch.quint8), 0.1, 0
        ),
        "cat": lambda: quantized.cat([q, q], 1, 0.1, 0),
        "cat relu": lambda: quantized.cat_relu([q, q], 1, 0.1, 0),
        "cat out": lambda: quantized.cat_out([q, q], 1, torch.cat([q, q], 1)),
        "cat relu out": lambda: quantized.cat_relu_out([q, q], 1, torch.cat([q, q], 1)),
        "celu": lambda: quantized.celu(q, 0.1, 0),
        "elu": lambda: quantized.elu(q, 0.1, 0),
        "clamp": lambda: quantized.clamp(q, 0.1, 0.5),
        "hardswish": lambda: quantized.hardswish(q, 0.1, 0),
        "leaky_relu": lambda: quantized.leaky_relu(q, 0.1, False, 0.1, 0),
        "prelu": lambda: quantized.prelu(q, torch.quantize_per_tensor(rand(4), 0.02, 0, torch.quint8), 0.01, 100),
        "relu6": lambda: quantized.relu6(q),
        "relu": lambda: q.relu(),
        "sigmoid": lambda: quantized.sigmoid(q, 0.01, 0),
        "softmax": lambda: quantized.softmax(flat, 1, 0.01, 0),
        "threshold": lambda: quantized.threshold(q, 0.3, 0.1),
        "max pool": lambda: quantized.max_pool2d(q, [2, 2], [2, 2], [0, 0], [1, 1], False),
        "max pool 1d": lambda: quantized.max_pool1d(
            torch.quantize_per_tensor(rand(2, 4, 6), 0.02, 3, torch.quint8), [2], [2], [0], [1], False
        ),
        "quantized_max_pool2d": lambda: torch.quantized_max_pool2d(q, (2, 2)),
        "quantized_max_pool1d": lambda: torch.quantized_max_pool1d(
            torch.quantize_per_tensor(rand(2, 4, 6), 0.02, 3, torch.quint8), [2]
        ),
        "quantized_max_pool3d": lambda: torch.quantized_max_pool3d(
            torch.quantize_per_tensor(rand(1, 2, 4, 4, 4), 0.02, 3, torch.quint8), (2, 2, 2)
        ),
        "adaptive avg pool": lambda: functional.adaptive_avg_pool2d(q, (2, 2)),
        "batch norm": lambda: quantized.batch_norm2d(q, *(rand(4) for _ in range(4)), 1e-5, 0.1, 0),
        "batch norm 1d": lambda: quantized.batch_norm1d(row, *(rand(4) for _ in range(4)), 1e-5, 0.1, 0),
        "batch norm 1d relu": lambda: quantized.batch_norm1d_relu(row, *(rand(4) for _ in range(4)), 1e-5, 0.1, 0),
        "batch norm 3d": lambda: quantized.batch_norm3d(cube, *(rand(2) for _ in range(4)), 1e-5, 0.1, 0),
        "batch norm 3d relu": lambda: quantized.batch_norm3d_relu(cube, *(rand(2) for _ in range(4)), 1e-5, 0.1, 0),
        "batch norm relu": lambda: quantized.batch_norm2d_relu(q, *(rand(4) for _ in range(4)), 1e-5, 0.1, 0),
        "batch norm any": lambda: quantized.batch_norm(q, *(rand(4) for _ in range(4)), 1e-5, 0.1, 0),
        "batch norm any relu": lambda: quantized.batch_norm_relu(q, *(rand(4) for _ in range(4)), 1e-5, 0.1, 0),
        "batch norm aten": lambda: aten.quantized_batch_norm(q, *(rand(4) for _ in range(4)), 1e-5, 0.1, 0),
        "group norm": lambda: quantized.group_norm(q, 2, rand(4), rand(4), 1e-5, 0.1, 0),
        "instance norm": lambda: quantized.instance_norm(q, rand(4), rand(4), 1e-5, 0.1, 0),
        "layer norm": lambda: quantized.layer_norm(q, [6], rand(6), rand(6), 1e-5, 0.1, 0),
        "fake": lambda: torch.fake_quantize_per_tensor_affine(x, 0.02, 3, 0, 255),
        "fake by tensors": lambda: torch.fake_quantize_per_tensor_affine(
            x, torch.tensor(0.02), torch.tensor(3, dtype=torch.int32), 0, 20
        ),
        "fake channels": lambda: torch.fake_quantize_per_channel_affine(x, 0.01 * steps, zeros, 1, -10, 20),
        "fake training": lambda: torch.fake_quantize_per_tensor_affine(x.clone().requires_grad_(), 0.02, 3, 0, 255).sum().backward(),
        "fake learnable": lambda: torch._fake_quantize_learnable_per_tensor_affine(
            x.clone().requires_grad_(), torch.tensor([0.02]).requires_grad_(), torch.tensor([3.0]).requires_grad_(), 0, 255
        ).sum().backward(),
        "fake learnable channels": lambda: torch._fake_quantize_learnable_per_channel_affine(
            x.clone().requires_grad_(), steps.clone().requires_grad_(), zeros.float().requires_grad_(), 1, -128, 127
        ).sum().backward(),
        "observer": lambda: aten._fused_moving_avg_obs_fq_helper(
            x, on, on, torch.zeros(1), torch.ones(1), torch.ones(1), torch.zeros(1, dtype=torch.int32), 0.01, 0, 255, 0
        ),
        "observer new": lambda: aten._fused_moving_avg_obs_fq_helper_functional(
            x, on, on, torch.zeros(1), torch.ones(1), torch.ones(1), torch.zeros(1, dtype=torch.int32), 0.01, 0, 255, 0
        ),
        "conv1d relu": lambda: quantized.conv1d_relu(row, quantized.conv1d_prepack(taps, rand(6), *one), 0.1, 0),
        "conv1d dynamic": lambda: quantized.conv1d_dynamic(row.dequantize(), quantized.conv1d_prepack(taps, rand(6), *one)),
        "conv3d": lambda: quantized.conv3d.new(cube, quantized.conv3d_prepack(filters, rand(6), *three), 0.1, 0),
        "conv3d relu": lambda: quantized.conv3d_relu.new(cube, quantized.conv3d_prepack(filters, rand(6), *three), 0.1, 0),
        "conv3d dynamic": lambda: quantized.conv3d_dynamic(cube.dequantize(), quantized.conv3d_prepack(filters, rand(6), *three)),
        "conv transposed 1d": transposed(1),
        "conv transposed": transposed(2),
        "conv transposed 3d": transposed(3),
        "lstm cell": cell("quantized_lstm_cell_dynamic", 4),
        "gru cell": cell("quantized_gru_cell_dynamic", 3),
        "rnn relu cell": cell("quantized_rnn_relu_cell_dynamic", 1),
        "rnn tanh cell": cell("quantized_rnn_tanh_cell_dynamic", 1),
        "linear unpacked fp16": lambda: quantized.linear_dynamic_fp16_unpacked_weight(rand(5, 8), rand(4, 8), rand(4)),
        "linear quantizing": lambda: quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            rand(5, 8), 0.02, 3, quantized.linear_prepack(w, rand(4))
        ),
        "linear quantizing relu": lambda: quantized.linear_with_input_q_dq_qweight_dq_relu_output_fp32(
            rand(5, 8), 0.02, 3, quantized.linear_prepack(w, rand(4))
        ),
        "other names": lambda: (
            _quantized.linear(flat, _quantized.linear_prepack(w, rand(4)), 0.1, 0),
            _quantized.linear_dynamic(rand(5, 8), _quantized.linear_prepack(w, rand(4))),
            _quantized.linear_prepack_fp16(rand(4, 8), rand(4)),
            _quantized.conv2d(q, _quantized.conv2d_prepack(kernel, rand(6), [1, 1], [0, 0], [1, 1], 1), 0.1, 0),
            _quantized.conv2d_relu(q, _quantized.conv2d_prepack(kernel, rand(6), [1, 1], [0, 0], [1, 1], 1), 0.1, 0),
            quantized.conv_prepack(kernel, rand(6), [1, 1], [0, 0], [1, 1], 1),
            _quantized.add(q, q, 0.1, 0),
        ),
        "other names, 3d": lambda: _quantized.conv3d_prepack(filters, rand(6), *three),
        "other names, transposed": other_transposed,
        "dropout": lambda: quantized.dropout(q, 0.1, 0, 0.5, True),
        "parameters": lambda: (q.q_scale(), q.q_zero_point(), q.qscheme()),
        "parameters of channels": lambda: (
            kernel.q_per_channel_scales(), kernel.q_per_channel_zero_points(), kernel.q_per_channel_axis(),
        ),
        "empty": lambda: (
            torch._empty_per_channel_affine_quantized(
                [6, 2], scales=rand(6).double(), zero_points=torch.zeros(6, dtype=torch.int64), axis=0, dtype=torch.qint8
            ),
            torch.empty_quantized([2, 3], q),
        ),
        "unpack": lambda: quantized.linear_unpack(quantized.linear_prepack(w, rand(4))),
        "wrapped": lambda: _quantized.wrapped_quantized_linear(
            rand(5, 8), torch.tensor(0.1), torch.tensor(0), rand(4, 8), torch.tensor(0.01), torch.tensor(0), rand(4),
            torch.tensor(0.01), torch.tensor(0), 4,
        ),
        "onednn add": lambda: onednn.qadd(codes, 0.1, 0, codes, 0.1, 0, 0.1, 0, torch.uint8),
        "onednn add relu": lambda: onednn.qadd_relu(codes, 0.1, 0, codes, 0.1, 0, 0.1, 0, torch.uint8),
        "onednn mul": lambda: onednn.qmul(codes, 0.1, 0, codes, 0.1, 0, 0.1, 0, torch.uint8),
        "onednn batch norm": lambda: onednn.qbatch_norm2d(
            codes, 0.1, 0, *(rand(4) for _ in range(4)), 1e-5, 0.1, 0, torch.uint8
        ),
        "bfloat16 rows": lambda: torch.ops.quantization._Bfloat16QuantizedToFloat(
            torch.ops.quantization._FloatToBfloat16Quantized(rand(4, 8))
        ),
        "decomposed": lambda: decomposed.dequantize_per_tensor(
            decomposed.quantize_per_tensor(x, 0.02, 3, 0, 255, torch.uint8), 0.02, 3, 0, 255, torch.uint8
        ),
        "decomposed channels": lambda: decomposed.dequantize_per_channel(
            decomposed.quantize_per_channel(x, steps, zeros, 1, 0, 20, torch.uint8), steps, zeros, 1, 0, 20, torch.uint8
        ),
        "decomposed tokens": lambda: decomposed.dequantize_per_token(
            decomposed.quantize_per_token(rand(4, 8), rand(4, 1), torch.zeros(4, 1, dtype=torch.int32), -20, 20, torch.int8),
            rand(4, 1), torch.zeros(4, 1, dtype=torch.int32), -20, 20, torch.int8, torch.float32,
        ),
        "decomposed parameters": lambda: (
            decomposed.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8),
            decomposed.choose_qparams_symmetric.tensor(x, -128, 127, 1e-5, torch.int8),
        ),
    }  # fmt: skip
    return found


def quantized_tables() -> dict[str, Call]:
    """Embeddings of 8, 4 and 2 bits."""
    table, indices, offsets = rand(9, 16), different(9, 4), torch.tensor([0, 3])
    found: dict[str, Call] = {}
    for bits in ("byte", "4bit", "2bit"):
        pack, unpack = getattr(quantized, f"embedding_bag_{bits}_prepack"), getattr(quantized, f"embedding_bag_{bits}_unpack")
        bag = getattr(quantized, f"embedding_bag_{bits}_rowwise_offsets")
        limited = getattr(quantized, f"embedding_bag_{bits}_prepack_with_rowwise_min_max")
        found[f"pack {bits}"] = lambda pack=pack, unpack=unpack: unpack(pack(table))
        found[f"pack {bits} limited"] = lambda limited=limited: limited(table, torch.tensor([[0.0, 1.2]]).repeat(9, 1))
        found[f"bag {bits}"] = lambda pack=pack, bag=bag: bag(pack(table), indices, offsets)
    codes = torch.quantize_per_channel(table, rand(9), torch.zeros(9), 0, torch.quint8)
    found["byte"] = lambda: quantized.embedding_byte(quantized.embedding_bag_prepack(codes), indices)
    found["byte bag"] = lambda: quantized.embedding_bag_byte(quantized.embedding_bag_prepack(codes), indices, offsets)
    small = torch.quantize_per_channel(table, rand(9), torch.zeros(9), 0, torch.quint4x2)
    found["4bit"] = lambda: quantized.embedding_4bit(quantized.embedding_bag_prepack(small), indices)
    found["4bit bag"] = lambda: quantized.embedding_bag_4bit(quantized.embedding_bag_prepack(small), indices, offsets)
    return found


def inductor() -> dict[str, Call]:
    """What only torch.compile calls."""
    import torch._inductor.inductor_prims  # registers them

    image, x = rand(1, 2, 6, 6), rand(4, 5)
    device = torch.device("cpu")

    def pool() -> None:
        _, offsets = prims._low_memory_max_pool_with_offsets(image, [2, 2], [2, 2], [0, 0], [1, 1], False)
        prims._low_memory_max_pool_offsets_to_indices(offsets, [2, 2], [6, 6], [2, 2], [0, 0], [1, 1])

    return {
        "seeds": lambda: (prims.inductor_seeds(3, device), prims.inductor_seed(device)),
        "lookup": lambda: prims.inductor_lookup_seed(torch.arange(3), 1),
        "random": lambda: prims.inductor_random([4, 5], torch.tensor(7), "rand"),
        "randint": lambda: prims.inductor_randint(0, 5, [4, 5], torch.tensor(7)),
        "stride order": lambda: prims.inductor_force_stride_order(x, [1, 4]),
        "fma": lambda: prims.fma(x, x, x),
        "pool": pool,
        "softmax": lambda: prims.prepare_softmax_online(x, 1),
    }


def primitives() -> dict[str, Call]:
    """What decompositions written in Python call."""
    x, whole = rand(4, 5), torch.arange(1, 21)
    of_one = (
        "abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc exp exp2 expm1 floor isfinite lgamma log log10 log1p log2"
        " neg reciprocal round rsqrt sign signbit sin sinh sqrt tan tanh trunc"
    )
    of_two = "add atan2 div eq fmax fmin fmod ge gt hypot igamma igammac le lt maximum minimum mul ne nextafter pow remainder sub"
    of_integers = "bitwise_and bitwise_or bitwise_xor gcd"
    return {
        **{name: partial(getattr(prims, name), x) for name in of_one.split()},
        **{name: partial(getattr(prims, name), x, x) for name in of_two.split()},
        **{name: partial(getattr(prims, name), whole, whole) for name in of_integers.split()},
        "bitwise_not": lambda: prims.bitwise_not(whole),
        "where": lambda: prims.where(x > 0.5, x, -x),
    }


GROUPS: dict[str, Callable[[], dict[str, Call]]] = {
    group.__name__: group
    for group in (
        layouts, gathers, bags, convolutions, products, attentions, recurrent, lists, optimizers, norms, pools, movements, boxes,
        quantizations, quantized_tables, inductor, primitives,
    )
}  # fmt: skip
