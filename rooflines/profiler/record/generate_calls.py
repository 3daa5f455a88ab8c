"""Calls of ``model.generate(...)`` (transformers) in a program: each is one generation, and its forwards are
prefill or decode.

The method is wrapped when the program imports it. Before each forward, ``generate`` asks the model for the
inputs (``prepare_inputs_for_generation``): there a phase ends, with the choice of its token, and the next one
begins. A forward is prefill until the KV cache holds the prompts.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from rooflines.profiler.hooks.generation_phases import generating
from rooflines.profiler.hooks.guard import Guard
from rooflines.profiler.hooks.replaced import Function, replaced, when_imported
from rooflines.profiler.read.request_marks import Kind
from rooflines.profiler.records import GenerationSizes, Numbers, Workload
from rooflines.profiler.workloads.causal_models import generation_sizes
from rooflines.profiler.workloads.generation import TokenClock


class GenerateCalls:
    """Context manager that marks the phases of ``generate()`` and calls ``on_end`` with the model when a call
    has ended.

    ``is_watched`` says whether the calling thread counts. ``is_active`` is true during a call,
    ``generations`` gets the token times of each. ``lengths`` are the sequences of all calls so far, the
    tokens of each prompt and the new ones (None where they differ), ``sizes`` those of the model.
    """

    def __init__(self, on_end: Callable[[Any], None], is_watched: Callable[[], bool], guard: Guard) -> None:
        self._guard = guard
        self.generations: list[Numbers] = []
        self.lengths: tuple[int, int, int] | None = None
        self.sizes: GenerationSizes | None = None
        self.is_active = False
        self._on_end, self._is_watched = on_end, is_watched
        self._phase = contextlib.ExitStack()
        self._patched = contextlib.ExitStack()

    def __enter__(self) -> GenerateCalls:
        self._patched.enter_context(when_imported("transformers.generation.utils", self._wrap))
        return self

    def __exit__(self, *_: object) -> None:
        self.leave_phase()
        self._patched.close()

    def described(self, workload: Workload) -> Workload:
        """``workload`` with the lengths of the calls so far."""
        requests, prompt, new = self.lengths or (None, None, None)
        return msgspec.structs.replace(
            workload, batch_size=requests, unit="sequences", prompt_length=prompt, new_tokens=new
        )

    def leave_phase(self) -> None:
        """End the range of the phase: the profiler stops."""
        self._phase.close()

    def _wrap(self) -> None:
        mixin = sys.modules["transformers.generation.utils"].GenerationMixin
        self._patched.enter_context(replaced("generate", self._watching, mixin))

    def _watching(self, original: Function) -> Function:
        @self._guard.about
        def clock_of(model: Any) -> TokenClock | None:
            return (
                None
                if self.is_active or not self._is_watched() or model.config.is_encoder_decoder
                else TokenClock(model.device)
            )

        @functools.wraps(original)
        def generate(model: Any, *arguments: Any, **keywords: Any) -> Any:
            if (clock := clock_of(model)) is None:
                return original(model, *arguments, **keywords)
            return self._generate(model, clock, functools.partial(original, model, *arguments, **keywords))

        return generate

    def _generate(self, model: Any, clock: TokenClock, call: Callable[[], Any]) -> Any:
        prepare = model.prepare_inputs_for_generation
        clock.generations = self.generations
        seen: list[tuple[int, int, int]] = []  # sequences, tokens and keys of each forward
        prompt, cache = 0, None

        @functools.wraps(prepare)
        def prepared(input_ids: Any, *arguments: Any, **keywords: Any) -> Any:
            inputs = prepare(input_ids, *arguments, **keywords)
            note(model, input_ids, inputs)
            return inputs

        @self._guard.about
        def note(_: Any, input_ids: Any, inputs: Any) -> None:
            nonlocal prompt, cache
            if not seen:
                prompt = input_ids.shape[1]
            computed, cache = inputs.get("input_ids"), inputs.get("past_key_values")
            tokens = computed.shape[1] if computed is not None else inputs["inputs_embeds"].shape[1]
            held = int(cache.get_seq_length()) if cache is not None else 0
            is_prompt = held + tokens <= prompt or not seen
            self.leave_phase()
            if seen and seen[-1][2] >= prompt:
                clock.ready()
            requests, keys = len(input_ids), held + tokens
            seen.append((requests, tokens, keys))
            kind: Kind = "prefill" if is_prompt else "decode"
            self._phase.enter_context(
                generating(kind, requests=requests, tokens=requests * tokens, keys=requests * keys)
            )

        self.is_active = True
        model.prepare_inputs_for_generation = prepared
        clock.begin()
        try:
            result = call()
        finally:
            self.is_active = False
            del model.prepare_inputs_for_generation
            self.leave_phase()

        @self._guard.about
        def ended(_: Any) -> None:
            nonlocal cache
            clock.ready()
            clock.end()
            lengths = seen[-1][0], prompt, sum(keys >= prompt for _, _, keys in seen)
            first = self.sizes is None
            if (
                first or lengths != self.lengths
            ):  # the last call that differs, which is not the program's first one to warm up
                self.sizes = generation_sizes(model, cache)
                self.lengths = lengths if first else None
            cache = None

        if seen:
            ended(model)
        self._guard.about(self._on_end)(model)
        return result
