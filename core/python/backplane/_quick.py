"""Small runs that are done often: a binding with memory of its own, so that a run is a copy in, a call, a copy out.

A run by name makes a value of each input and output. For a model of some microseconds that costs more than the
model does; below some hundred kilobytes copying costs less. Larger inputs are read where they lie: they are bound again only
when an array comes that is another than the last one.
"""

from __future__ import annotations

import json
from ctypes import addressof, c_char
from typing import Any, Dict, List, Optional, Set, Tuple

import numpy as np

from . import _library as lib
from ._errors import InvalidArgument
from ._values import Value, not_copied

MOST_BYTES = 256 << 10  # of all outputs, which are copied
LENT_BYTES = 32 << 10  # from here on an input is not copied,
MOST_LENT_BYTES = 4 << 20  # and from here on it would keep too much memory
_NOTHING = (0, None)
MOST_READY = 32  # of one kind of run, which is how many threads can do it this way
LEAST_KINDS, MOST_KINDS = 64, 256  # that may be ready: each keeps its plan, of which MOST_NODES nodes may be kept
MOST_NODES = 4096
MOST_KEPT_BYTES = 64 << 20  # of the arrays of all kinds
REST, LONGEST_REST = 64, 8192  # runs by name before new kinds are made, after all had to go
_ALIGNMENT = 64

def _aligned(shape: Tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.zeros(size + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return np.ndarray(shape, dtype, memory, begin)


class QuickRun:
    """A binding whose inputs and outputs are arrays of its own. One thread at a time."""

    __slots__ = ("binding", "inputs", "count", "copies", "lent", "nbytes", "_keep")
    __reduce__ = not_copied("a quick run", "its session makes others")

    def __init__(self, session: int, feeds: Dict[str, np.ndarray], fetches: Dict[str, np.ndarray]):
        self.binding = None
        self.binding = lib.made(lib.binding_create, session)
        self._keep: List[Value] = []
        self.inputs = []
        self.nbytes = 0  # of arrays that it keeps
        self.lent: Dict[str, Tuple[int, Any]] = {}  # the address and array of each input that is not copied
        for name, array in feeds.items():
            place = None
            if array.nbytes >= LENT_BYTES:
                self.nbytes += array.nbytes
            else:
                place = _aligned(array.shape, array.dtype)
                self._bind(lib.binding_bind_input, name, place)
            self.inputs.append((name, place, array.dtype, array.shape))
        self.count = len(self.inputs)
        self.copies = []
        for name, array in fetches.items():
            place = _aligned(array.shape, array.dtype)
            self._bind(lib.binding_bind_output, name, place)
            self.copies.append(place.copy)

    def _bind(self, function: Any, name: str, place: np.ndarray) -> None:
        value = Value.from_numpy(place)
        lib.check(function(self.binding, lib.encode(name), value._handle))
        self.nbytes += place.nbytes
        self._keep.append(value)

    def __del__(self, _destroy=lib.binding_destroy):
        binding, self.binding = getattr(self, "binding", None), None
        if binding:
            _destroy(binding)

    def run(self, feed: Any, options: Any, _run=lib.binding_run_with, _array=np.ndarray) -> Optional[List[np.ndarray]]:
        """The outputs as new arrays; None where the feeds are not of the kind and shape that this was made for."""
        if len(feed) != self.count:
            return None
        for name, place, dtype, shape in self.inputs:
            try:
                array = feed[name]
            except (KeyError, TypeError):
                return None
            if type(array) is not _array or array.shape != shape or array.dtype != dtype:
                return None
            if place is not None:
                place[...] = array
            elif not self._lend(name, array):
                return None
        status = _run(self.binding, None if options is None else options._handle)
        if status is not None:
            lib.check(status)
        return [copy() for copy in self.copies]

    def _lend(self, name: str, array: np.ndarray) -> bool:
        """Binds the array's own memory; False where it cannot be lent as it is. The array is kept until the next one is bound: a device
        that works on host memory has a view of it as long."""
        try:
            address = addressof(c_char.from_buffer(array))
        except (TypeError, ValueError):  # strides, or read only
            return False
        if self.lent.get(name, _NOTHING)[0] != address:
            if address % min(8, array.itemsize):  # the value would be a copy
                return False
            value = Value.from_numpy(array)
            lib.check(lib.binding_bind_input(self.binding, lib.encode(name), value._handle))
            self.lent[name] = (address, array)
        return True


class ReadyRuns:
    """Quick runs of one session, by the names of outputs and the shapes of feeds that they were made for."""

    def __init__(self) -> None:
        self.latest: Dict[Any, _Ready] = {}  # by the names of outputs, which is all that is looked up for a run like the last one
        self._kinds: Dict[Any, _Ready] = {}
        self._seen: Set[Any] = set()
        self._bytes = 0  # of the arrays that their runs keep
        self.paused = False
        self._hits = 0
        self._rest, self._next_rest = 0, REST
        self._most_kinds: Optional[int] = None  # None: not asked yet

    def drop(self) -> None:
        """Forgets them, as do runs that go on now."""
        self.latest.clear()
        self._kinds.clear()
        self._seen.clear()
        self._bytes = 0

    def abandon(self) -> None:
        """In the child of a fork, where nothing of the parent's session can be ended."""
        for ready in self._kinds.values():
            for quick in ready.free:
                quick.binding = None
        self.drop()

    def run(self, key: Any, feed: Any, options: Any) -> Optional[List[np.ndarray]]:
        """The outputs; None where no quick run is there for such feeds."""
        ready = self.latest.get(key)
        if ready is None:
            return None
        results = ready.run(feed, options)
        if results is None and len(self._kinds) > 1:
            other = self._kinds.get((key, _shapes_of(feed)))
            if other is not None and other is not ready:
                self.latest[key] = other
                results = other.run(feed, options)
        if results is not None:
            self._hits += 1
        return results

    def _make_room(self) -> None:
        """When there are as many kinds as may be: keeps them where they serve. Else all go, and for a while no run makes one: where
        shapes never come again, making them costs more than runs by name."""
        if self._hits >= len(self._kinds):
            self._hits, self._rest, self._next_rest = 0, REST, REST
            return
        self.drop()
        self._hits, self._rest, self._next_rest = 0, self._next_rest, min(2 * self._next_rest, LONGEST_REST)

    def consider(self, session: int, key: Any, feed: Any, names: List[str], results: List[Any]) -> None:
        """After a run by name: makes a quick run for its kind once it has come twice."""
        if self.paused:
            return
        if self._rest > 0:
            self._rest -= 1
            return
        shapes = _shapes_of(feed)
        if shapes is None:
            return
        kind = (key, shapes)
        ready = self._kinds.get(kind)
        if ready is None:
            if kind not in self._seen:
                if len(self._seen) >= 2 * MOST_KINDS:
                    self._seen.clear()
                self._seen.add(kind)
                return
            if len(self._kinds) >= LEAST_KINDS and self._most_kinds is None:
                nodes = json.loads(lib.text_from(lib.session_statistics, session))["nodes_on"]
                self._most_kinds = min(max(MOST_NODES // max(sum(nodes.values()), 1), LEAST_KINDS), MOST_KINDS)
            if len(self._kinds) >= (self._most_kinds or LEAST_KINDS) or self._bytes >= MOST_KEPT_BYTES:
                self._make_room()
                return
            ready = self._kinds[kind] = _Ready(_may_be_quick(list(feed.values()), results, names))
        if ready.possible and len(ready.free) < MOST_READY:
            try:
                quick = QuickRun(session, feed, dict(zip(names, results)))
                self._bytes += quick.nbytes
                ready.free.append(quick)
                self.latest[key] = ready
            except InvalidArgument:
                ready.possible = False


class _Ready:
    """Quick runs of one kind, of which each thread takes its own."""

    __slots__ = ("possible", "free")

    def __init__(self, possible: bool):
        self.possible = possible
        self.free: List[QuickRun] = []

    def run(self, feed: Any, options: Any) -> Optional[List[np.ndarray]]:
        """The outputs; None where all are taken, or the feeds are of another kind."""
        try:
            quick = self.free.pop()
        except IndexError:
            return None
        try:
            results = quick.run(feed, options)
        except InvalidArgument:  # outputs of another shape than the last ones: not of the shapes alone
            self.possible = False
            self.free.clear()
            return None
        self.free.append(quick)
        return results


def _shapes_of(feed: Any) -> Optional[Tuple[Any, ...]]:
    """What a kind of feeds is known by; None where not all are arrays."""
    try:
        return tuple([(name, array.shape, array.dtype) for name, array in feed.items()])
    except AttributeError:
        return None


def _may_be_quick(feeds: List[Any], results: List[Any], names: List[str]) -> bool:
    if len(set(names)) != len(names):
        return False
    return all(type(array) is np.ndarray and array.dtype.kind in "biufc" and array.dtype.isnative and not array.dtype.metadata
               for array in feeds + results) and sum(array.nbytes for array in results) <= MOST_BYTES and all(
                   array.nbytes < MOST_LENT_BYTES for array in feeds)
