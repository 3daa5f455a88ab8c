"""A network exported as one graph whose convolutions and linear layers compute with int8 on an x86 CPU.

torchao's PT2E flow: export, insert observers or fake quantization, convert. What ``torch.compile`` does with
the converted graph, ``lowered`` does for eager mode: it replaces the layers by oneDNN's int8 operators.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from rooflines.profiler.read.signature import Keywords, Positional

_ATEN = torch.ops.aten

# Their functions are fused into the layer before them, but only in the form that inductor decomposes them to.
_FUSED = ("hardtanh", "hardswish", "silu", "gelu", "clamp")
_LAYERS = {
    "conv1d": "default",
    "conv2d": "default",
    "conv3d": "default",
    "conv_transpose1d": "default",
    "conv_transpose2d": "input",
    "conv_transpose3d": "input",
    "linear": "default",
}
# Arguments of aten::batch_norm.
_RUNNING_VAR, _TRAINING, _MOMENTUM, _CUDNN = 4, 5, 6, 8


class Layers(NamedTuple):
    """How many of the convolutions and linear layers of a network are quantized."""

    quantized: int
    total: int


def static_graph(
    network: torch.nn.Module,
    inputs: Positional,
    keywords: Keywords,
    calibration: Iterable[Positional],
) -> tuple[torch.fx.GraphModule, Layers]:
    """Return the graph of ``network`` with int8 between its layers, and what was quantized.

    The ranges of the activations are those of ``inputs`` and of the inputs in ``calibration``. Layers still
    compute in fp32, between operators that dequantize and quantize.
    """
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    with torch.no_grad():
        prepared = prepare_pt2e(_exported(network, inputs, keywords), _quantizer(training=False))
        for batch in (inputs, *calibration):
            prepared(*batch, **keywords)
        layers = _layers(prepared)
        return _for_inference(convert_pt2e(prepared)), layers


def training_graph(
    network: torch.nn.Module, inputs: Positional, keywords: Keywords
) -> tuple[torch.fx.GraphModule, Layers]:
    """Return the graph of ``network`` with fake quantization, which shares its parameters, and what is
    quantized."""
    from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e

    exported = _exported(network, inputs, keywords)
    constants = {
        node.args[_RUNNING_VAR].target: node.args[_MOMENTUM:_CUDNN] for node in _batch_norms(exported)
    }
    prepared = prepare_qat_pt2e(exported, _quantizer(training=True))
    _restore_constants(prepared, constants)
    _start_ranges(prepared, network, inputs, keywords)
    prepared.train = functools.partial(_set_mode, prepared)
    prepared.eval = functools.partial(_set_mode, prepared, False)
    return prepared, _layers(prepared)


def _restore_constants(prepared: torch.fx.GraphModule, constants: dict[Any, tuple[float, float]]) -> None:
    """Set momentum and epsilon of batch norms, by the name of their variance: torchao 0.18 gives torch's
    defaults to those after convolutions, also where it scales the weights by the deviation."""
    for node in _batch_norms(prepared):
        node.args = (*node.args[:_MOMENTUM], *constants[node.args[_RUNNING_VAR].target], *node.args[_CUDNN:])
    for node in prepared.graph.find_nodes(op="call_function", target=_ATEN.add.Tensor):
        variance: Any = node.args[0]
        if variance.op == "get_attr" and variance.target in constants:
            node.update_arg(1, constants[variance.target][1])
    prepared.recompile()


def _start_ranges(
    prepared: torch.fx.GraphModule,
    network: torch.nn.Module,
    inputs: Positional,
    keywords: Keywords,
) -> None:
    """Observe one call, which gives the ranges their first values and their shapes; compiled code is for
    fixed shapes."""
    kept = [(buffer, buffer.clone()) for buffer in network.buffers()]
    devices = {parameter.device for parameter in network.parameters() if parameter.is_cuda}
    with torch.no_grad(), torch.random.fork_rng(devices):
        prepared(*inputs, **keywords)
        for buffer, value in kept:
            buffer.copy_(value)


def _batch_norms(graph: torch.fx.GraphModule) -> list[Any]:
    return list(graph.graph.find_nodes(op="call_function", target=_ATEN.batch_norm.default))


def _set_mode(graph: torch.fx.GraphModule, training: bool = True) -> torch.fx.GraphModule:
    """Do what ``train()`` and ``eval()`` do for a module: dropout, batch norm, and whether ranges are
    observed.

    torchao's own (``allow_exported_model_train_eval``) gives every dropout a probability of 0.5 and leaves
    out batch norms with another epsilon than torch's default.
    """
    from torchao.quantization.pt2e import disable_observer, enable_observer

    switches = {_ATEN.batch_norm.default: _TRAINING}
    for name in ("dropout", "dropout_", "alpha_dropout", "feature_dropout"):
        switches[getattr(_ATEN, name).default] = 2
    for node in graph.graph.nodes:
        if node.target in switches:
            node.update_arg(switches[node.target], training)
    graph.recompile()
    graph.apply(enable_observer if training else disable_observer)
    for module in graph.modules():
        module.training = training
    return graph


def after_training(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return a copy of what ``training_graph`` made as ``static_graph`` makes it, with the ranges seen in
    training."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    with torch.no_grad():
        return _for_inference(convert_pt2e(_set_mode(copy.deepcopy(graph), False)))


def lowered(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return a converted ``graph`` with oneDNN's int8 operators in place of its layers.

    As torchao's ``lower_pt2e_quantized_to_x86``, which in version 0.18 leaves layers of three-dimensional
    inputs and ReLU6 as they are, and lets a layer write its result into another tensor that is still used.
    """
    from torch._inductor.constant_folding import constant_fold
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.fx_passes.freezing_patterns import freezing_passes

    fakes = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    examples = [
        torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device).zero_()
        for fake in fakes
    ]
    codegen: Any = graph.graph._codegen
    inputs, keywords = torch.utils._pytree.tree_unflatten(examples, codegen.pytree_info.in_spec)
    known: Any = torch.export.default_decompositions()
    decompositions = {
        operator: rule for operator, rule in known.items() if torch._export.utils._is_cia_op(operator)
    }
    rules = select_decomp_table()
    for name in _FUSED:
        operator = getattr(_ATEN, name).default
        decompositions[operator] = rules[operator]
    with torch.no_grad():
        exported = torch.export.export(graph, inputs, keywords, strict=True).run_decompositions(
            decompositions
        )
        result = exported.module()
        for node in result.graph.nodes:  # as inductor's patterns have them
            if node.target is _ATEN.t.default:
                node.target, node.args = _ATEN.permute.default, (node.args[0], [1, 0])
            elif node.target is _ATEN.view.default:
                node.target = _ATEN.reshape.default
        result.recompile()
        freezing_passes(result, examples)
        constant_fold(result)
    _keep_operands(result)
    return _for_inference(result)


def _for_inference(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """``graph``, for which ``train()`` and ``eval()`` do nothing; torch's raise an error."""

    methods: Any = graph
    methods.train = lambda training=False: graph
    methods.eval = lambda: graph
    return graph


def _keep_operands(graph: torch.fx.GraphModule) -> None:
    """Copy each tensor that a fused addition takes as its second operand.

    The operator writes its result into that tensor, which other views may share, and reads it as contiguous
    (channels-last for convolutions).
    """
    onednn = torch.ops.onednn
    formats = {
        onednn.qlinear_pointwise.binary: torch.contiguous_format,
        onednn.qlinear_pointwise.binary_tensor: torch.contiguous_format,
        onednn.qconv2d_pointwise.binary: torch.channels_last,
    }
    for node in graph.graph.nodes:
        if node.target in formats:
            operand = node.args[6]
            with graph.graph.inserting_before(node):
                copied = graph.graph.call_function(
                    _ATEN.clone.default, (operand,), {"memory_format": formats[node.target]}
                )
            node.replace_input_with(operand, copied)
    graph.recompile()


def _exported(network: torch.nn.Module, inputs: Positional, keywords: Keywords) -> torch.fx.GraphModule:
    """The graph of ``network`` for these shapes. Without the fused operators of attention, which hide its
    linear layers."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        # The quantizer recognizes layers by what only the strict mode records.
        return torch.export.export(network, inputs, keywords, strict=True).module()
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


def _quantizer(*, training: bool) -> Any:
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
        X86InductorQuantizer,
        get_default_x86_inductor_quantization_config,
    )
    from torchao.utils import should_reduce_range

    settings = get_default_x86_inductor_quantization_config(
        is_qat=training, reduce_range=should_reduce_range(torch.device("cpu"))
    )
    return X86InductorQuantizer().set_global(settings)


def _layers(prepared: torch.fx.GraphModule) -> Layers:
    """What ``prepared`` quantizes: the layers whose weight passes through an observer or a fake
    quantization."""
    kinds = {getattr(getattr(_ATEN, name), overload) for name, overload in _LAYERS.items()}
    layers: list[Any] = [node for node in prepared.graph.nodes if node.target in kinds]
    return Layers(sum(node.args[1].op == "call_module" for node in layers), len(layers))
