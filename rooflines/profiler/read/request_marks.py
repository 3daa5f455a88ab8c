"""Marks of servers around the steps of their engine: requests, tokens and lengths of sequences.

Each server has one function, with the source of its format. Values that a format does not contain are None. A
name with numbers that no batch can have is not a mark, and neither is a step without requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Literal, NamedTuple

from rooflines.profiler.read.records import STEP_PREFIX

Kind = Literal["prefill", "decode", "mixed"]
KINDS: tuple[Kind, ...] = ("prefill", "decode", "mixed")

_MOST_REQUESTS, _MOST_TOKENS = 1 << 20, 1 << 32


@dataclass(frozen=True, slots=True)
class RequestMark:
    """The batch of one step."""

    #: In ``prefill`` a request computes tokens of its prompt, in ``decode`` it generates; ``mixed`` is
    #: both.
    kind: Kind
    requests: int
    #: Tokens that are computed.
    tokens: int | None = None
    #: Tokens that they may attend to, the ones in the KV cache included.
    keys: int | None = None
    #: Sum of tokens² over the requests.
    tokens_squared: int | None = None
    #: Sum of tokens × keys over the requests.
    tokens_times_keys: int | None = None
    #: Requests that generate.
    decode_requests: int | None = None
    #: Requests and these four sums of prefill and of decode in a mixed batch.
    parts: tuple[tuple[int, ...], ...] | None = None
    #: Whether tokens of the step may be rejected or belong to a draft model, so that it is not known how
    #: many it generates.
    is_draft: bool = False

    def completed_by(self, other: RequestMark) -> RequestMark:
        """Return this mark completed by ``other``, a mark of the same step; unchanged if their batches
        differ."""
        names = [field.name for field in fields(self) if field.name != "is_draft"]
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in names}
        if any(own != said for own, said in pairs.values() if own is not None and said is not None):
            return self
        said_too = {name: said for name, (own, said) in pairs.items() if own is None}
        return replace(self, **said_too, is_draft=self.is_draft or other.is_draft)


class _Group(NamedTuple):
    """The requests of one kind in a step: how many, and sums over them."""

    requests: int
    tokens: int | None = None
    keys: int | None = None
    squared: int | None = None
    product: int | None = None

    @property
    def is_possible(self) -> bool:
        """Return whether a batch can have these sums: every request computes at least one token and attends
        to all of its tokens."""
        tokens, keys = self.tokens, self.keys
        if self.requests > _MOST_REQUESTS or (
            tokens is not None and not self.requests <= tokens <= _MOST_TOKENS
        ):
            return False
        if keys is not None and not (tokens or self.requests) <= keys <= _MOST_REQUESTS * _MOST_TOKENS:
            return False
        if tokens is None or self.squared is None:
            return True
        spread = tokens * tokens <= self.requests * self.squared and self.squared <= tokens * tokens
        return spread and (
            self.product is None or keys is None or self.squared <= self.product <= tokens * keys
        )


def request_mark(name: str) -> RequestMark | None:
    """The batch that an annotation of this name marks; None for any other annotation."""
    start = name[:8]
    return next(
        (
            mark
            for prefix, parse in _SERVERS
            if start.startswith(prefix) and (mark := parse(name)) is not None
        ),
        None,
    )


# The range of a phase of a generation: a part of a step, which is the whole generation.
PHASE_PREFIXES = ("rooflines.prefill: ", "rooflines.decode: ")
_PHASE = re.compile(
    r"rooflines\.(prefill|decode): requests=(\d{1,9})&tokens=(\d{1,18})&keys=(\d{1,18})", re.ASCII
)


def phase_name(kind: Kind, requests: int, tokens: int, keys: int) -> str:
    """The name of the range that marks a phase: ``rooflines.decode: requests=2&tokens=2&keys=130``."""
    return f"rooflines.{kind}: requests={requests}&tokens={tokens}&keys={keys}"


def phase_mark(name: str) -> RequestMark | None:
    """The batch of the phase that a range of this name marks; None for any other range."""
    match = _PHASE.fullmatch(name)
    if match is None:
        return None
    group = _Group(*(int(number) for number in match.groups()[1:]))
    return _mark(group, None) if match[1] == "prefill" else _mark(None, group)


def is_step_mark(name: str) -> bool:
    """Whether an annotation of this name may be a step: the profiler's, or a server's."""
    return name.startswith(STEP_PREFIX) or request_mark(name) is not None


def _mark(prefill: _Group | None, decode: _Group | None, is_draft: bool = False) -> RequestMark | None:
    groups = [group for group in (prefill, decode) if group is not None and any(group)]
    if not groups or not all(group.requests and group.is_possible for group in groups):
        return None
    sums = _Group(*map(_sum, zip(*groups, strict=True)))  # type: ignore[arg-type]
    kind: Kind = "mixed" if len(groups) == 2 else "prefill" if groups[0] is prefill else "decode"
    parts = tuple(tuple(value for value in group if value is not None) for group in groups)
    drafts = is_draft or (decode is not None and (decode.tokens or 0) > decode.requests)
    return RequestMark(
        kind,
        *sums,
        decode_requests=decode.requests if decode is not None and kind != "prefill" else None,
        parts=parts if kind == "mixed" and all(len(part) == len(sums) for part in parts) else None,
        is_draft=drafts,
    )


def _sum(values: tuple[int | None, ...]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


# --- vLLM -------------------------------------------------------------------------------------------------


# vllm/v1/worker/gpu_worker.py, annotate_profile: execute_context_1(512)_generation_8(8) is requests(tokens);
# forks add a second number. With ProfilerConfig.detailed_trace_annotation (vLLM pull request 37524), and in
# SGLang's and others' patches of the same origin:
# execute_40_context_1(sq8sk8sqsq64sqsk64)_generation_32(sq32sk55086sqsq32sqsk55086), sums over requests of
# queries (sq) and keys (sk).
_NUMBER = r"(\d{1,18})"
_SUMS = rf"sq{_NUMBER}sk{_NUMBER}sqsq{_NUMBER}sqsk{_NUMBER}"
_REQUESTS = rf"{_NUMBER}\((?:{_SUMS}|{_NUMBER}(?:_\d{{1,18}})?)\)"
_VLLM = re.compile(rf"execute_(?:\d{{1,18}}_)?context_{_REQUESTS}_generation_{_REQUESTS}", re.ASCII)


def _vllm(name: str) -> RequestMark | None:
    match = _VLLM.fullmatch(name)
    if match is None:
        return None
    numbers = [None if text is None else int(text) for text in match.groups()]
    prefill, decode = (
        _Group(requests or 0, queries if tokens is None else tokens, keys, squared, product)
        for requests, queries, keys, squared, product, tokens in (numbers[:6], numbers[6:])
    )
    return _mark(prefill, decode)


# --- SGLang -----------------------------------------------------------------------------------------------

# python/sglang/srt/model_executor/model_runner.py, build_step_span_name (pull request 23419): step[EXTEND
# bs=15 toks=15360], step[DECODE bs=32], step[TARGET_VERIFY bs=8]; with roofline_annotations (pull request
# 24911) c_ sums of the prompts and g_ sums of the generating requests: step[MIXED bs=66 c=2 g=64 c_sq=2048
# c_sk=2048 c_sqsq=2097152 c_sqsk=2097152 g_sq=64 g_sk=65600 ...].
_SGLANG = re.compile(r"step\[([A-Za-z_]+)((?: [^\s\]]+)*)\]")
_FIELD = re.compile(r"(\w+)=(\d{1,18})", re.ASCII)
_SGLANG_KINDS: dict[str, Kind] = {
    "EXTEND": "prefill",
    "PREFILL": "prefill",
    "SPLIT_PREFILL": "prefill",
    "DECODE": "decode",
    "MIXED": "mixed",
    "TARGET_VERIFY": "decode",
    "DRAFT_EXTEND": "decode",
    "DRAFT_EXTEND_V2": "decode",
}


def _sglang(name: str) -> RequestMark | None:
    match = _SGLANG.fullmatch(name)
    mode = match[1].upper() if match else ""
    kind = _SGLANG_KINDS.get(mode)
    if match is None or kind is None:
        return None
    said = {key: int(value) for key, value in _FIELD.findall(match[2])}
    requests = said.get("bs")
    if not requests:
        return None
    if kind == "mixed":
        split = "c" in said and "g" in said
        if not split:
            return _unsplit(_Group(requests, said.get("toks")))
        return _mark(_sglang_group(said, "c", said["c"]), _sglang_group(said, "g", said["g"]))
    if kind == "prefill":
        return _mark(_sglang_group(said, "c", requests), None)
    # A draft's verification is written with the sums of prompts. ForwardMode.DECODE computes one token for
    # each request.
    group = _sglang_group(said, "c" if "c_sq" in said or "c_sk" in said else "g", requests)
    tokens = requests if group.tokens is None and mode == "DECODE" else group.tokens
    return _mark(None, group._replace(tokens=tokens), is_draft=mode != "DECODE")


def _sglang_group(said: dict[str, int], prefix: str, requests: int) -> _Group:
    tokens = said.get(f"{prefix}_sq", said.get("toks"))
    return _Group(requests, tokens, *(said.get(f"{prefix}_{name}") for name in ("sk", "sqsq", "sqsk")))


def _unsplit(both: _Group, decode_requests: int | None = None, is_draft: bool = False) -> RequestMark | None:
    """A mixed batch of which only the sums over all requests are known."""
    return (
        RequestMark("mixed", *both, decode_requests=decode_requests, is_draft=is_draft)
        if both.is_possible
        else None
    )


# --- ATOM -------------------------------------------------------------------------------------------------

# ROCm/ATOM, atom/model_engine/model_runner.py, run_model: prefill[bs=2 tok=14721 ctx=[7803, 6918]],
# decode[bs=117/128 tok=117 d=117] (117 requests in a graph for 128); with ATOM_ENABLE_DETAILED_ANNOTATION
# (pull request 477) sk, sqsq and sqsk over all requests: decode[bs=128 tok=384 p=2 d=126 sqsq=132612
# sqsk=1114112 sk=258048] with 2 prompts.
_ATOM = re.compile(r"(prefill|decode)\[(bs=\d{1,9}(?:/\d{1,9})? tok=.*)\]", re.DOTALL)


def _atom(name: str) -> RequestMark | None:
    match = _ATOM.fullmatch(name)
    said = {key: int(value) for key, value in _FIELD.findall(match[2])} if match else {}
    if match is None or not said.get("bs"):
        return None
    group = _Group(said["bs"], said.get("tok"), said.get("sk"), said.get("sqsq"), said.get("sqsk"))
    if match[1] == "prefill":
        return _mark(group, None)
    is_draft = "spec" in said
    if said.get("p"):
        return _unsplit(group, said.get("d"), is_draft)
    return _mark(None, group, is_draft)


# --- TensorRT-LLM -----------------------------------------------------------------------------------------

# tensorrt_llm/_torch/pyexecutor/py_executor.py, _forward_step: [Executor] _forward_step 12: 1 ctx reqs, 31
# gen reqs; newer versions have the tokens of the prompts between them.
_TENSORRT = re.compile(
    r"\[Executor\] _forward_step \d+: (\d{1,9}) ctx reqs, (?:(\d{1,18}) ctx tokens, )?(\d{1,9}) gen reqs",
    re.ASCII,
)


def _tensorrt(name: str) -> RequestMark | None:
    match = _TENSORRT.fullmatch(name)
    if match is None:
        return None
    tokens = int(match[2]) if match[2] is not None and int(match[1]) else None
    return _mark(_Group(int(match[1]), tokens), _Group(int(match[3])))


_SERVERS: tuple[tuple[str, Callable[[str], RequestMark | None]], ...] = (
    ("execute_", _vllm),
    ("step[", _sglang),
    ("prefill[", _atom),
    ("decode[", _atom),
    ("[Executo", _tensorrt),
)
