"""State-space layers and linear attention of a generation as servers compute them: one kernel for the scan
over a prompt, and one for a step of it.

transformers runs a scan of plain operators, token by token or chunk by chunk, where the libraries with the
kernels (mamba-ssm, flash-linear-attention) are not installed. Here each of these functions is one operator,
whose formula is in ``count/formulas/libraries/scans.rows``. The state of a sequence stays between its tokens.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rooflines.profiler.hooks.replaced import replaced

if TYPE_CHECKING:
    import torch

# The operators and what they read, of which the last is the state.
_OPTIONAL = "Tensor? d, Tensor? z, Tensor? state"
_SCHEMAS = {
    "selective_scan": f"Tensor u, Tensor delta, Tensor a, Tensor b, Tensor c, {_OPTIONAL}",
    "state_space_scan": f"Tensor x, Tensor dt, Tensor a, Tensor b, Tensor c, {_OPTIONAL}",
    "delta_rule": "Tensor q, Tensor k, Tensor v, Tensor g, Tensor beta, Tensor? state",
}


@contextlib.contextmanager
def one_scan(generator: Any) -> Iterator[None]:
    """Inside, the scans of a causal model of transformers are one operator each."""
    network: Any = getattr(generator, "network", None)
    files = {type(module).__module__ for module in network.modules()} if network is not None else set()
    with contextlib.ExitStack() as stack:
        for file in files:
            for name, by in _SCANS.items():
                stack.enter_context(replaced(name, _instead(by), sys.modules[file]))
            for name in _CONVOLUTIONS:
                stack.enter_context(replaced(name, _unwrapped, sys.modules[file]))
        yield


def _instead(by: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda _: by


def _unwrapped(convolution: Any) -> Any:
    """The function itself, without the advice to install a library."""
    return getattr(convolution, "__wrapped__", convolution)


@functools.cache
def _operators() -> Any:
    """The operators, which compute nothing: they exist on fake tensors."""
    import torch

    for name, reads in _SCHEMAS.items():
        torch.library.define(f"rooflines::{name}", f"({reads}) -> (Tensor, Tensor)")
        torch.library.register_fake(f"rooflines::{name}", _SHAPES[name])
    return torch.ops.rooflines


def _selective_shapes(u: Any, delta: Any, a: Any, b: Any, c: Any, d: Any, z: Any, state: Any) -> Any:
    new = state.new_empty(state.shape) if state is not None else a.new_empty(u.shape[0], *a.shape)
    return u.new_empty(u.shape), new


def _space_shapes(x: Any, dt: Any, a: Any, b: Any, c: Any, d: Any, z: Any, state: Any) -> Any:
    batch, _, heads, depth = x.shape
    new = state.new_empty(state.shape) if state is not None else a.new_empty(batch, heads, depth, b.shape[-1])
    return x.new_empty(x.shape), new


def _delta_shapes(q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> Any:
    batch, _, heads, width = v.shape
    new = state.new_empty(state.shape) if state is not None else g.new_empty(batch, heads, k.shape[-1], width)
    return v.new_empty(v.shape), new


_SHAPES: dict[str, Callable[..., Any]] = {
    "selective_scan": _selective_shapes,
    "state_space_scan": _space_shapes,
    "delta_rule": _delta_shapes,
}


def _selective_scan(
    u: torch.Tensor,
    delta: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    *_: Any,
    return_last_state: bool = False,
    **others: Any,
) -> Any:
    """u, delta, z [batch, depth, steps], a [depth, states], b, c [batch, states, steps]"""
    found, state = _operators().selective_scan(u, delta, a, b, c, D, z, None)
    return (found, state) if return_last_state else found


def _selective_update(
    state: torch.Tensor,
    u: torch.Tensor,
    delta: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    **others: Any,
) -> torch.Tensor:
    """state [batch, depth, states], u, delta, z [batch, depth], b, c [batch, states]"""
    gate = None if z is None else z[..., None]
    found, _ = _operators().selective_scan(
        u[..., None], delta[..., None], a, b[..., None], c[..., None], D, gate, state
    )
    return found[..., 0]  # type: ignore[no-any-return]


def _space_scan(
    x: torch.Tensor,
    dt: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    *_: Any,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    return_final_states: bool = False,
    **others: Any,
) -> Any:
    """x, z [batch, steps, heads, depth], dt [batch, steps, heads], a [heads], b, c [batch, steps, groups,
    states]"""
    found, state = _operators().state_space_scan(x, dt, a, b, c, D, z, initial_states)
    return (found, state) if return_final_states else found


def _space_update(
    state: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    D: torch.Tensor | None = None,
    *_: Any,
    z: torch.Tensor | None = None,
    **others: Any,
) -> torch.Tensor:
    """state [batch, heads, depth, states], x, dt, z [batch, heads, depth], a [heads, depth, states], D
    [heads, depth], b, c [batch, groups, states]; dt, a and D have one number for each head"""
    each = None if D is None else D[:, 0]
    gate = None if z is None else z[:, None]
    found, _ = _operators().state_space_scan(
        x[:, None], dt[:, None, :, 0], a[:, 0, 0], b[:, None], c[:, None], each, gate, state
    )
    return found[:, 0]  # type: ignore[no-any-return]


def _delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    *_: Any,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    **others: Any,
) -> Any:
    """query, key [batch, steps, key heads, depth], value [batch, steps, heads, width], g [batch, steps,
    heads] or [batch, steps, heads, depth]"""
    found, state = _operators().delta_rule(query, key, value, g, beta, initial_state)
    return found, state if output_final_state else None


_CONVOLUTIONS = ("causal_conv1d_fn", "causal_conv1d_update")
# By the names that the functions have in transformers.
_SCANS: dict[str, Callable[..., Any]] = {
    "mamba_selective_scan": _selective_scan,
    "mamba_selective_state_update": _selective_update,
    "mamba2_chunk_scan": _space_scan,
    "mamba2_selective_state_update": _space_update,
    "torch_chunk_gated_delta_rule": _delta_rule,
    "torch_recurrent_gated_delta_rule": _delta_rule,
    "chunk_kimi_delta_attention": _delta_rule,
    "recurrent_kimi_delta_attention": _delta_rule,
}
