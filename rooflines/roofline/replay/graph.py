"""The dependencies of a recorded window: which launches, pieces of work and waits each piece of work had to
wait for.

The host does its work in the recorded order and hands over launches; in a wait it goes on when the work
that it waits for has ended. A piece of work begins when its launch has arrived, what is before it on its
stream has ended, and so has the work of another stream that it waits for. Such a wait is noted in the trace
(``Trace.stream_waits``), else read from the calls that make it (an event recorded, a stream that waits for
it), and where there are none, from work that begins as another stream's ends. Short lags between these are
the device's and have their medians.
What begins later than its dependencies explain keeps the rest as recorded (``WindowGraph.kept_ns``).

Times are float64 nanoseconds since the window began. Host times are *work time*: the time of the host without
the time that it spent in waits before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rooflines.profiler.read.distinct import distinct_rows
from rooflines.profiler.read.records import RUNTIME, Int32s, Int64s, Mask
from rooflines.profiler.tree.idle import LONGEST_ARRIVAL_NS, waiting
from rooflines.profiler.tree.tree import Calls
from rooflines.profiler.tree.windows import at_launch
from rooflines.roofline.count.counts import places_of, unset
from rooflines.roofline.uncertainty import Floats

# Clocks of host and device, and of two streams, differ by this much.
_NOISE_NS = 5_000
# What begins this soon after something else has ended may have waited for it.
NEAR_NS = 15_000
# Where a trace does not show them: from a launch to the begin of its work, between two pieces of work,
# and from the end of work to the end of the wait for it.
_ARRIVAL_NS = 5_000.0
_NEXT_NS = 1_000.0
_RETURN_NS = 5_000.0
# A call that waits for nothing takes about this long.
_CALL_NS = 2_000.0


class StreamRun(NamedTuple):
    """Pieces of work one after another on a stream, whose launches are known when the run begins: places
    in the columns of ``WindowGraph``."""

    first: int
    end: int
    #: the run before it on its stream ends with this place (-1: none)
    before: int


@dataclass(frozen=True, slots=True)
class WindowGraph:
    """Columns of the window's pieces of work, run by run; of its waits; and the order in which to replay
    them."""

    #: device event of each piece
    event: Int64s
    #: how long each lasts
    lasting_ns: Floats
    #: work time of the host when it handed each over (-inf: not in the trace)
    launch_ns: Floats
    #: waits before that
    waits_before: Int64s
    #: from the launch to the earliest begin, from the end of the piece before to the begin, and what neither
    #: explains
    arrival_ns: Floats
    next_ns: Floats
    kept_ns: Floats
    #: the piece on another stream that each waits for (-1: none), and from its end to the begin
    after: Int64s
    after_ns: Floats
    #: work time of the host when each wait begins, what the call itself takes, the piece that it waits
    #: for, and from its end to that of the wait
    wait_ns: Floats
    call_ns: Floats
    target: Int64s
    return_ns: Floats
    #: whether each wait is that of a copy for itself, and its begin and end as recorded
    copies: Mask
    waits: Floats
    #: runs and waits (as ``~wait``) in an order in which each follows all that it depends on
    order: tuple[StreamRun | int, ...]
    #: work time of the host when it has made its last launch, and the waits before
    host_ns: float
    host_waits: int
    #: whether each piece is of the window; others are kept when they were
    launched: Mask
    #: when the window ended, as recorded
    end_ns: float
    #: when the window began in the trace
    begin_ns: int
    #: of a thread: when its own work before each piece began and ended, which takes the place of ``next_ns``
    own_ns: Floats | None = None

    def work_time(self, times: Floats) -> Floats:
        """The host's work time at ``times`` since the window began; it stands still in a wait."""
        begun = np.searchsorted(self.waits[:, 0], times, side="right")
        spent = np.concatenate(([0.0], np.cumsum(self.waits[:, 1] - self.waits[:, 0])))
        left = np.maximum(0.0, np.append(self.waits[:, 1], -np.inf)[begun - 1] - times)
        work: Floats = times - spent[begun] + left
        return work


class _Work(NamedTuple):
    """The pieces of work stream by stream, in the order in which they ran."""

    event: Int64s
    stream: Int64s
    start: Floats
    end: Floats
    #: when the host handed each over (-inf: not in the trace)
    launch: Floats
    #: whether its launch is known
    launched: Mask
    #: the piece before it on its stream (-1: none)
    before: Int64s
    #: when each host event began
    host: Floats


class _Noted(NamedTuple):
    """Waits that the trace notes, with what they wait for in the window."""

    #: the host event that makes each, and the device and the stream that wait (-1: the host)
    call: Int64s
    device: Int32s
    stream: Int64s
    #: the last piece on the awaited stream that was handed over before the event was recorded (-1: none)
    target: Int64s


class _Waits(NamedTuple):
    """The waits of the host, one after another: begin and end, the piece waited for (-1: none that the
    trace shows), and whether that is what the waiting call itself copies."""

    begin: Floats
    end: Floats
    target: Int64s
    copies: Mask


def graph_of(
    calls: Calls, window: tuple[int, int], belongs: Mask, host_end_ns: int | None = None
) -> WindowGraph | None:
    """The dependencies of the device events that ``belong`` to the window; what else ran in it stays when
    it was. The window ends with its work, or with the host at ``host_end_ns``. None without a recorded
    launch."""
    begin_ns, end_ns = window
    work = _work(calls, begin_ns, end_ns, belongs)
    if not work.launched.any():
        return None
    late = work.start - work.launch
    ended = np.append(work.end, -np.inf)
    gap = work.start - ended[work.before]
    alone = work.launched & (gap > NEAR_NS) & (late > 0) & (late < LONGEST_ARRIVAL_NS)
    arrival = np.where(work.launched, np.minimum(_usual(late[alone], _ARRIVAL_NS), late), 0.0)
    queued = (gap >= 0) & (gap < NEAR_NS) & (late > NEAR_NS)
    following = np.minimum(_usual(gap[queued], _NEXT_NS), gap)
    earliest = np.maximum(work.launch + arrival, work.start - gap + following)
    noted = _noted(calls, work)
    after = _waited_for(calls, work, work.start - earliest, noted)
    after_ns = np.where(after >= 0, np.minimum(_NEXT_NS, work.start - work.end[after]), 0.0)
    rest = work.start - np.maximum(earliest, ended[after] + after_ns)
    waits = _waits(calls, begin_ns, end_ns, work, noted)
    lasting = waits.end - waits.begin
    spent = np.concatenate(([0.0], np.cumsum(lasting)))
    waits_before = np.where(work.launched, np.searchsorted(waits.end, work.launch, side="right"), 0)
    of_piece, of_wait, after, target = _levels(work, after, waits, waits_before)
    waited = ended[target]
    binding = waited > waits.begin
    back = waits.end - waited
    usual_return = _usual(back[binding & (back >= 0) & (back < NEAR_NS)], _RETURN_NS)
    last = float(work.launch[work.launched].max())
    host_end = last if host_end_ns is None else max(last, float(host_end_ns - begin_ns))
    host_waits = int(np.searchsorted(waits.end, host_end, side="right"))
    return WindowGraph(
        event=work.event,
        lasting_ns=work.end - work.start,
        launch_ns=work.launch - spent[waits_before],
        waits_before=waits_before,
        arrival_ns=arrival,
        next_ns=following,
        kept_ns=np.where(rest > NEAR_NS, rest, 0.0),
        launched=work.launched,
        after=after,
        after_ns=after_ns,
        wait_ns=waits.begin - spent[:-1],
        call_ns=np.where(binding, np.minimum(_CALL_NS, lasting), lasting),
        target=target,
        return_ns=np.where(binding & (back > NEAR_NS), back, usual_return),
        copies=waits.copies & (target >= 0),
        order=_order(work, of_piece, of_wait),
        host_ns=host_end - float(spent[host_waits]),
        host_waits=host_waits,
        waits=np.stack((waits.begin, waits.end), axis=1),
        end_ns=float(end_ns - begin_ns),
        begin_ns=begin_ns,
    )


def _usual(lags: Floats, otherwise: float) -> float:
    """The median of what was seen, or what is usual elsewhere."""
    return float(np.partition(lags, len(lags) // 2)[len(lags) // 2]) if len(lags) else otherwise


def _work(calls: Calls, begin_ns: int, end_ns: int, belongs: Mask) -> _Work:
    device = calls.trace.device
    event = np.flatnonzero(belongs | ((device.start_ns >= begin_ns) & (device.start_ns < end_ns)))
    _, stream = distinct_rows(device.device[event], device.stream[event])
    order = np.lexsort((device.end_ns[event], device.start_ns[event], stream))
    event = event[order]
    stream = stream[order]
    start, end = ((each[event] - begin_ns).astype(np.float64) for each in (device.start_ns, device.end_ns))
    launched = belongs[event] & (calls.launch[event] >= 0)
    before = np.where(np.diff(stream, prepend=-1) == 0, np.arange(len(event)) - 1, -1)
    # What others launched, and what nothing is before, begins when it did; what was launched before the
    # window is there from its begin on.
    host: Floats = np.subtract(calls.trace.host.start_ns, begin_ns, dtype=np.float64)
    recorded = np.where(launched, np.maximum(at_launch(host, calls.launch[event]), 0.0), start)
    launch: Floats = np.where(launched | ~belongs[event] | (before < 0), recorded, -np.inf)
    return _Work(event, stream, start, end, launch, launched, before, host)


def _lanes(calls: Calls, work: _Work) -> list[tuple[int, int, Int64s]]:
    """Device, stream and pieces of each stream."""
    device = calls.trace.device
    return [
        (int(device.device[at]), int(device.stream[at]), lane)
        for _, lane in places_of(work.stream)
        for at in work.event[lane[:1]]
    ]


def _noted(calls: Calls, work: _Work) -> _Noted:
    host = calls.trace.host
    waits = calls.trace.stream_waits
    runtime = np.flatnonzero(host.kind == RUNTIME) if len(waits) else np.zeros(0, np.int64)
    called = dict(zip(host.correlation[runtime].tolist(), runtime.tolist(), strict=True))
    pairs = zip(waits.correlation.tolist(), waits.recorded.tolist(), strict=True)
    ends = [(called.get(call, -1), called.get(call if record < 0 else record, -1)) for call, record in pairs]
    call, record = np.array(ends, np.int64).reshape(-1, 2).T
    target = unset(len(call))
    for device, stream, pieces in _lanes(calls, work):
        here = np.flatnonzero((waits.device == device) & (waits.awaited == stream) & (record >= 0))
        recorded = work.host[record[here]]
        last = np.searchsorted(np.maximum.accumulate(work.launch[pieces]), recorded, side="right") - 1
        target[here] = np.append(pieces, -1)[last]
    known = call >= 0
    return _Noted(call[known], waits.device[known], waits.stream[known], target[known])


def _after_noted(calls: Calls, work: _Work, noted: _Noted) -> Int64s:
    """What each piece waits for on another stream by what is noted, -1 for nothing: the first piece that was
    handed to the stream after it was told to wait."""
    found = unset(len(work.event))
    told = work.host[noted.call]
    for device, stream, pieces in _lanes(calls, work):
        of_lane = np.flatnonzero((noted.device == device) & (noted.stream == stream) & (noted.target >= 0))
        place = np.searchsorted(np.maximum.accumulate(work.launch[pieces]), told[of_lane], side="right")
        inside = place < len(pieces)
        first = pieces[place[inside]]
        target = noted.target[of_lane[inside]]
        # Of several the one that ends last.
        order = np.argsort(work.end[target], kind="stable")
        first = first[order]
        target = target[order]
        fits = (work.end[target] <= work.start[first] + _NOISE_NS) & (
            work.stream[target] != work.stream[first]
        )
        found[first[fits]] = target[fits]
    return found


def _waited_for(calls: Calls, work: _Work, unexplained: Floats, noted: _Noted) -> Int64s:
    """The piece of another stream that each piece waited for, -1 for none.

    That is what is noted, else what was handed to the other streams before an event was recorded that the
    next launch waits for; or for a begin that nothing else explains the piece that ended then.
    """
    found = _after_noted(calls, work, noted)
    lanes = _lanes(calls, work)
    if len(lanes) < 2:
        return found
    late = np.flatnonzero((unexplained > NEAR_NS) & work.launched & (found < 0))
    searches = [(late, False, work.start[late])]
    # Kineto with CUDA 12.9 and later notes such waits without what they wait for (pytorch/kineto#1552).
    if not (noted.stream >= 0).any():
        first, until = _first_after_waits(calls, work)
        searches.insert(0, (first, True, until))
    for *_, pieces in lanes:
        for those, by_launch, limit in searches:
            others = work.stream[those] != work.stream[pieces[0]]
            column = np.maximum.accumulate((work.launch if by_launch else work.end)[pieces])
            tolerance = 0 if by_launch else _NOISE_NS
            last = np.searchsorted(column, limit[others] + tolerance, side="right") - 1
            at = np.append(pieces, -1)[last]
            mine = those[others]
            fits = (at >= 0) & (work.end[at] <= work.start[mine] + _NOISE_NS)
            if not by_launch:
                fits &= (work.end[at] >= work.start[mine] - NEAR_NS) & (work.launch[at] <= work.launch[mine])
            fits &= (found[mine] < 0) | (work.end[at] > work.end[found[mine]])
            found[mine[fits]] = at[fits]
    return found


def _first_after_waits(calls: Calls, work: _Work) -> tuple[Int64s, Floats]:
    """The first piece that each thread launched after it had let a stream wait for an event, and when that
    event had been recorded."""
    host = calls.trace.host
    wait = np.flatnonzero(calls.trace.named(lambda name: "StreamWaitEvent" in name, RUNTIME))
    record = np.flatnonzero(calls.trace.named(lambda name: "EventRecord" in name, RUNTIME))
    launched = np.flatnonzero(work.launched)
    # Host events are sorted by thread and start, so that places compare as times within one thread.
    by_call = launched[np.argsort(calls.launch[work.event[launched]], kind="stable")]
    launching = calls.launch[work.event[by_call]]
    following = np.searchsorted(launching, wait)
    made = np.searchsorted(record, wait) - 1
    known = (following < len(launching)) & (made >= 0)
    wait = wait[known]
    following = following[known]
    made = record[made[known]]
    same = (host.thread[launching[following]] == host.thread[wait]) & (host.thread[made] == host.thread[wait])
    return by_call[following[same]], work.host[made[same]]


def _waits(calls: Calls, begin_ns: int, end_ns: int, work: _Work, noted: _Noted) -> _Waits:
    """The calls in which the host waits for the device; of those that overlap, on several threads, the
    one that ends last."""
    host = calls.trace.host
    events = np.flatnonzero(waiting(calls) & (host.end_ns > begin_ns) & (host.start_ns < end_ns))
    events = events[np.argsort(host.start_ns[events], kind="stable")]
    begin = host.start_ns[events] - float(begin_ns)
    end = host.end_ns[events] - float(begin_ns)
    reached = np.maximum.accumulate(end)
    opens = np.append(True, begin[1:] >= reached[:-1])[: len(end)]
    last = np.flatnonzero(np.append(opens[1:], True)[: len(end)])
    ends = reached[last]
    begins = begin[opens]
    closing = events[last]
    by_end = np.argsort(work.end, kind="stable")
    at = np.searchsorted(work.end[by_end], ends + _NOISE_NS, side="right") - 1
    target = np.append(by_end, -1)[at]
    # What was launched later cannot be what was waited for; a copy waits for itself.
    pieces = dict(zip(calls.launch[work.event].tolist(), range(len(work.event)), strict=True))
    own = np.array([pieces.get(one, -1) for one in closing.tolist()], np.int64)
    target = np.where(own >= 0, own, np.where(work.launch[target] > ends, -1, target))
    of_call = dict(zip(noted.call.tolist(), noted.target.tolist(), strict=True))
    said = np.array([of_call.get(one, -1) for one in closing.tolist()], np.int64)
    target = np.where((own < 0) & (said >= 0) & (work.end[said] <= ends + _NOISE_NS), said, target)
    return _Waits(begins, ends, target, own >= 0)


def _levels(
    work: _Work, after: Int64s, waits: _Waits, waits_before: Int64s
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """The levels of pieces and waits, and ``after`` and the targets without what clocks that differ turn
    round.

    A piece that waits for another stream is a level above what it waits for, and so is a wait of the
    host; what follows on the stream or is launched later is no lower. So a level can be replayed once
    those below it are.
    """
    keys = np.maximum(work.start, work.launch)
    for _, pieces in places_of(work.stream):
        keys[pieces] = np.maximum.accumulate(keys[pieces])
    # The last place is that of none.
    of_piece = [-1] * (len(keys) + 1)
    of_wait = [0] * (len(waits.end) + 1)
    on_stream = [0] * (int(work.stream.max()) + 1)
    host = 0
    afters = after.tolist()
    targets = waits.target.tolist()
    streams = work.stream.tolist()
    launched_behind = waits_before.tolist()
    every = np.concatenate((keys, waits.end))
    for at in np.argsort(every, kind="stable").tolist():
        wait = at - len(keys)
        if wait >= 0:
            awaited = of_piece[targets[wait]]
            if awaited < 0:
                targets[wait] = -1
            of_wait[wait] = host = max(host, awaited + 1)
            continue
        awaited = of_piece[afters[at]]
        if awaited < 0:
            afters[at] = -1
        behind = of_wait[launched_behind[at] - 1]
        of_piece[at] = on_stream[streams[at]] = max(on_stream[streams[at]], behind, awaited + 1)
    found = (np.array(each, np.int64) for each in (of_piece[:-1], of_wait[:-1], afters, targets))
    return next(found), next(found), next(found), next(found)


def _order(work: _Work, of_piece: Int64s, of_wait: Int64s) -> tuple[StreamRun | int, ...]:
    """Waits (as ``~wait``) and runs, level by level."""
    opens = np.flatnonzero((np.diff(work.stream, prepend=-1) != 0) | (np.diff(of_piece, prepend=-1) != 0))
    ends = np.append(opens[1:], len(of_piece))
    runs = zip(opens.tolist(), ends.tolist(), work.before[opens].tolist(), strict=True)
    steps: list[tuple[int, bool, StreamRun | int]] = [
        (level, False, ~wait) for wait, level in enumerate(of_wait.tolist())
    ]
    steps += [
        (level, True, StreamRun(*run)) for level, run in zip(of_piece[opens].tolist(), runs, strict=True)
    ]
    return tuple(step for *_, step in sorted(steps, key=lambda each: each[:2]))
