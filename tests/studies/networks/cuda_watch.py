"""Finds races in Numba's CUDA simulator: every access of every thread to an array is checked against those of the others.

Two accesses to one place, at least one of them a write, need an order: in a block a barrier between them, between the blocks of
a launch nothing can give one. The simulator runs the threads one after the other as it likes and shows none of this. Reported as
well: reads of shared memory that nobody wrote, places before the begin of an array (which NumPy takes for places at its end), and
barriers that not all threads of a block reach, or that they reach on different lines.
"""

import sys
import threading
from contextlib import contextmanager

import numpy as np
from numba.cuda.simulator import kernel, kernelapi
from numba.cuda.simulator.cudadrv import devicearray
from numba.np import numpy_support


class Watch:
    """What was found in the launches so far: one line each, the first of a kind in a launch."""

    def __init__(self):
        self.faults = []
        self.lock = threading.RLock()
        self.accesses = 0
        self.launched()

    def launched(self):
        self.cells = {}
        self.barriers = {}

    def fault(self, what):
        if what not in self.faults:
            self.faults.append(what)

    def shared(self, array, at, write):
        me, block, epoch = whoami()
        with self.lock:
            self.accesses += 1
            if array.block != block:
                array.block, array.state = block, {}
            if at < 0:
                self.fault(f"{array.where}: before the begin")
            if at not in array.state and not write:
                self.fault(f"{array.where}: read but not written")
            entry = array.state.get(at)
            if entry is None or entry[0] != epoch:
                entry = array.state[at] = [epoch, None, set()]
            _, writer, readers = entry
            if writer not in (None, me) or (write and readers - {me}):
                self.fault(f"{array.where}: two threads at one place without a barrier between")
            if write:
                entry[1] = me
            else:
                readers.add(me)

    def device(self, name, address, at, write):
        me, block, epoch = whoami()

        def in_order(other):
            return other[1] == block and (other[0] == me or other[2] != epoch)

        with self.lock:
            self.accesses += 1
            if at < 0:
                self.fault(f"{name}: before the begin")
            writer, readers = self.cells.setdefault(address, [None, set()])
            others = ({writer} if writer else set()) | (readers if write else set())
            if not all(in_order(other) for other in others):
                self.fault(f"{name}: two threads at one place without an order")
            if write:
                self.cells[address] = [(me, block, epoch), set()]
            else:
                readers.add((me, block, epoch))

    def barrier(self, line):
        _, block, epoch = whoami()
        with self.lock:
            lines = self.barriers.setdefault((block, epoch), [])
            lines.append(line)

    def ended(self, threads):
        for lines in self.barriers.values():
            if len(lines) != threads or len(set(lines)) > 1:
                self.fault(f"barrier on lines {sorted(set(lines))}: {len(lines)} of {threads} threads")


class Shared:
    """An array in shared memory, the same for all threads of a block."""

    def __init__(self, watch, shape, kind, where):
        self.watch, self.where, self.block, self.state = watch, where, None, {}
        self.array = np.empty(shape, kind)

    def __getitem__(self, at):
        self.watch.shared(self, at, False)
        return self.array[at]

    def __setitem__(self, at, value):
        self.watch.shared(self, at, True)
        self.array[at] = value


def whoami():
    thread = threading.current_thread()
    return thread.thread_id, tuple(thread.blockIdx), getattr(thread, "epoch", 0)


@contextmanager
def watched():
    """Everything launched in here is watched; yields the ``Watch``."""
    watch = Watch()
    array, inside = kernelapi.FakeCUDAShared, devicearray.FakeWithinKernelCUDAArray
    module, launch = kernelapi.FakeCUDAModule, kernel.FakeCUDAKernel
    before = (array.array, inside.__getitem__, inside.__setitem__, module.syncthreads, launch.__call__)

    def shared_array(self, shape, dtype):
        frame = sys._getframe(1)
        with watch.lock:  # the simulator's own may give two threads one each
            if frame.f_lineno not in self._allocations:
                where = f"shared memory of {frame.f_code.co_qualname if hasattr(frame.f_code, 'co_qualname') else frame.f_lineno}"
                made = Shared(watch, shape, numpy_support.as_dtype(dtype), f"{where} line {frame.f_lineno}")
                self._allocations[frame.f_lineno] = made
            return self._allocations[frame.f_lineno]

    def place(self, at):
        numbers = self._item._ary
        return numbers.__array_interface__["data"][0] + int(at) * numbers.itemsize

    def read(self, at):
        if np.ndim(at) == 0 and not isinstance(at, (str, slice)):
            watch.device("device memory", place(self, at), at, False)
        return before[1](self, at)

    def write(self, at, value):
        watch.device("device memory", place(self, at), at, True)
        before[2](self, at, value)

    def syncthreads(self):
        watch.barrier(sys._getframe(1).f_lineno)
        before[3](self)
        thread = threading.current_thread()
        thread.epoch = getattr(thread, "epoch", 0) + 1

    def call(self, *arguments):
        watch.launched()
        before[4](self, *arguments)
        watch.ended(int(np.prod(self.block_dim)))

    def patch(functions):
        array.array, inside.__getitem__, inside.__setitem__, module.syncthreads, launch.__call__ = functions

    patch((shared_array, read, write, syncthreads, call))
    try:
        yield watch
    finally:
        patch(before)
