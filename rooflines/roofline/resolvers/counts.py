"""The count of every operator event of a trace, worked out once per distinct signature, with what the trace leaves out filled in."""

from __future__ import annotations

import numpy as np

from rooflines.profiler.noted import NotedCall
from rooflines.profiler.trace.calls import OPTIMIZER, Calls
from rooflines.profiler.trace.nesting import covered
from rooflines.profiler.trace.records import OPERATOR, Int64s, Trace
from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.profiler.trace.windows import inside, step_window
from rooflines.roofline.resolvers.compiled import CompiledCalls
from rooflines.roofline.resolvers.related_calls import infer
from rooflines.roofline.work import CallCount, count
from rooflines.roofline.work.decomposed import SOMETIMES_DECOMPOSED


class Counts:
    """The count of every operator event, worked out once per distinct signature.

    Where the inputs do not determine the work (``aten::index``, lists of tensors whose dtype the trace lacks) the bytes that the call
    allocated and kept are its output, and calls that kept different amounts are different variants of the signature. Lists of more
    than 30 tensors are left out of traces; in the optimizer they are the parameters, shared among the calls that a step makes. Under
    autocast an operator casts its arguments and calls itself with them: the outer call only dispatches.
    """

    def __init__(
        self, trace: Trace, calls: Calls, parameter_elements: int | None, parameter_dtype: str, noted: tuple[NotedCall, ...]
    ) -> None:
        self.variants: list[tuple[Signature, CallCount]] = [(signature, count(signature)) for signature in trace.signatures]
        self.of_event = trace.host.signature.astype(np.int64)
        self.inferred: dict[int, str] = {}
        self._known: dict[tuple[int, int | None, int | None], int] = {}
        self._trace = trace
        self._calls = calls
        # Where no shapes were recorded, the few operators that allocations tell of would stand for all.
        if trace.shapes_recorded:
            self._from_allocations()
        self._from_other_calls()
        if parameter_elements is not None:
            self._from_parameters(parameter_elements, parameter_dtype)
        self._from_notes(noted)
        self._pass_through_to_itself()

    def __getitem__(self, event: int) -> CallCount:
        return self.variants[int(self.of_event[event])][1]

    def take(self, compiled: CompiledCalls) -> None:
        """What compiled code's kernels count takes the place of what their names say."""
        known = compiled.of_event >= 0
        self.of_event[known] = compiled.of_event[known] + len(self.variants)
        self.variants += compiled.variants

    def _variant(
        self, code: int, output_bytes: int | None = None, parameter_elements: int | None = None, parameter_dtype: str = "float32"
    ) -> int:
        """The index of the signature ``code`` counted with these hints."""
        key = (code, output_bytes, parameter_elements)
        if key not in self._known:
            self._known[key] = len(self.variants)
            signature = self._trace.signatures[code]
            self.variants.append((signature, count(signature, output_bytes, parameter_elements, parameter_dtype)))
        return self._known[key]

    def _from_allocations(self) -> None:
        unclear = [code for code, (signature, found) in enumerate(self.variants) if _needs_output(signature, found)]
        host, memory = self._trace.host, self._trace.memory
        # Of the device whose time is divided: a call may allocate on the host as well.
        ours = (memory.device_type != 0) == bool(len(self._trace.device))
        if not unclear or not ours.any():
            return
        order = np.flatnonzero(ours)
        order = order[np.argsort(memory.thread[order], kind="stable")]
        threads, first = np.unique(memory.thread[order], return_index=True)
        by_thread = {
            thread: (memory.time_ns[part], np.cumsum(memory.size_bytes[part]))
            for thread, part in zip(threads.tolist(), np.split(order, first[1:]), strict=True)
        }
        for event in np.flatnonzero(np.isin(host.signature, unclear)).tolist():
            thread = int(host.thread[event])
            if thread not in by_thread:
                continue
            times, total = by_thread[thread]
            first, last = np.searchsorted(times, (host.start_ns[event], self._calls.end_ns[event]))
            kept = int(total[last - 1] if last else 0) - int(total[first - 1] if first else 0)
            if kept > 0:
                self.of_event[event] = self._variant(int(host.signature[event]), output_bytes=kept)

    def _from_other_calls(self) -> None:
        """Old traces hold shapes and nothing else; ``inferred.py`` knows where in the trace the rest stands."""
        unknown = np.array([*(found.kind == "unknown" for _, found in self.variants), False])
        for events, clues in infer(self._trace, self._calls, unknown[self.of_event]):
            signature = self._trace.signatures[int(self._trace.host.signature[events[0]])]
            outputs = None
            for clue in clues:
                signature, outputs = clue.fill(signature), clue.outputs or outputs
            found = count(signature, outputs=outputs)
            if found.kind != "unknown":
                self.inferred[len(self.variants)] = "; ".join(dict.fromkeys(clue.source for clue in clues))
                self.of_event[events] = len(self.variants)
                self.variants.append((signature, found))

    def _from_parameters(self, elements: int, dtype: str) -> None:
        host, calls = self._trace.host, self._calls
        steps = max(1, len(calls.steps))
        for code, signature in enumerate(self._trace.signatures):
            if signature.arg(0) != () or not signature.name.startswith(("aten::_foreach_", "aten::_fused_", "aten::_amp_foreach_")):
                continue
            events = np.flatnonzero((host.signature == code) & (calls.phase == OPTIMIZER))
            if len(events):
                self.of_event[events] = self._variant(code, None, elements * steps // len(events), dtype)

    def _from_notes(self, noted: tuple[NotedCall, ...]) -> None:
        """Every step makes the noted calls in the noted order; where the trace has another number of them, nothing is concluded."""
        host, calls = self._trace.host, self._calls
        if not noted or not len(host):
            return
        steps = step_window(self._trace, calls)
        in_steps = (host.kind == OPERATOR) & (True if steps is None else inside(host.start_ns, steps))
        explicit = np.array([*(found.kind == "counted" and not found.decomposes for _, found in self.variants), False])
        names = sorted({call.name for call in noted})
        codes = np.array([names.index(name) if name in names else -1 for name in self._trace.names])[host.name]
        # The calls that a dispatch mode sees: not those that another operator makes for itself.
        seen = in_steps & (codes >= 0) & ~covered(in_steps & ((codes >= 0) | explicit[self.of_event]), calls.after)
        for code, name in enumerate(names):
            listed = [call for call in noted if call.name == name]
            events = np.flatnonzero(seen & (codes == code))
            events = events[np.argsort(host.start_ns[events], kind="stable")]
            if len(events) != len(listed) * (1 if steps is None else len(calls.steps)):
                continue
            for place, call in enumerate(listed):
                self.of_event[events[place :: len(listed)]] = len(self.variants)
                signature = call.signature
                self.variants.append((signature, count(signature, outputs=call.results)))

    def pass_through(self, events: Int64s) -> None:
        """These operators only dispatch: their work is that of operators below them."""
        codes, place = np.unique(self.of_event[events], return_inverse=True)
        self.of_event[events] = len(self.variants) + place.reshape(-1)
        for code in codes.tolist():
            self.variants.append((self.variants[code][0], CallCount("composite", None, "other")))

    def _pass_through_to_itself(self) -> None:
        """What calls an operator of its own name: under autocast the same call with other dtypes, else the overload with a kernel."""
        host, calls, signatures = self._trace.host, self._calls, self._trace.signatures
        above = np.where(calls.parent >= 0, calls.operator[np.maximum(calls.parent, 0)], -1) if len(host) else calls.parent
        itself = (host.kind == OPERATOR) & (above >= 0)
        if len(host):
            itself &= host.name == host.name[np.maximum(above, 0)]
        pairs, pair_of = np.unique(
            np.stack((host.signature[above[itself]], host.signature[itself]), axis=1), axis=0, return_inverse=True
        )
        passed = np.array([_hands_on(signatures[outer], signatures[inner]) for outer, inner in pairs.tolist()], bool)
        self.pass_through(np.unique(above[itself][passed[pair_of.reshape(-1)]]) if len(pairs) else np.empty(0, np.int64))


def _hands_on(outer: Signature, inner: Signature) -> bool:
    """Whether a call only hands its arguments on to another of the same name."""
    if outer.name.removeprefix("aten::") in SOMETIMES_DECOMPOSED:
        return True
    before, after = outer.tensors, inner.tensors
    cast = [tensor.dtype for tensor in before] != [tensor.dtype for tensor in after]
    return cast and [tensor.shape for tensor in before] == [tensor.shape for tensor in after]


def _needs_output(signature: Signature, found: CallCount) -> bool:
    """Whether what the call allocated says more than its signature: the dtype of a list, a result whose size the device decides."""
    if found.kind == "unknown" or any(isinstance(arg, tuple) and arg and isinstance(arg[0], TensorArg) for arg in signature.args):
        return True
    return count(signature, output_bytes=1) != found
