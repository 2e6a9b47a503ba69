"""Small runs that are done often: a binding with memory of its own for everything, so that a run is a copy in, a call, a copy out.

A run by name makes a value of each input and output. For a model of some microseconds that costs more than the
model does; below some hundred kilobytes copying costs less.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from . import _library as lib
from ._errors import InvalidArgument
from ._values import Value

MOST_BYTES = 128 << 10  # of inputs and outputs together; see the measurement in core/python/README.md
MOST_READY = 32  # of one set of names and shapes, which is how many threads can run it this way
_ALIGNMENT = 64

Shapes = Tuple[Tuple[str, Tuple[int, ...]], ...]


def _aligned(shape: Tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.zeros(size + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return np.ndarray(shape, dtype, memory, begin)


class QuickRun:
    """A binding whose inputs and outputs are arrays of its own. One thread at a time."""

    __slots__ = ("binding", "inputs", "count", "copies", "_keep")

    def __init__(self, session: int, feeds: Dict[str, np.ndarray], fetches: Dict[str, np.ndarray]):
        self.binding = None
        self.binding = lib.made(lib.binding_create, session)
        self._keep: List[Value] = []
        self.inputs = []
        for name, array in feeds.items():
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
        self._keep.append(value)

    def __del__(self, _destroy=lib.binding_destroy):
        binding, self.binding = getattr(self, "binding", None), None
        if binding:
            _destroy(binding)

    def run(self, feed: Any, _run=lib.binding_run, _array=np.ndarray) -> Optional[List[np.ndarray]]:
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
            place[...] = array
        status = _run(self.binding)
        if status is not None:
            lib.check(status)
        return [copy() for copy in self.copies]


class ReadyRuns:
    """Quick runs of one session, by the names of outputs and the shapes of feeds that they were made for."""

    def __init__(self) -> None:
        self.by_names: Dict[Any, _Ready] = {}
        self._seen: Dict[Any, Shapes] = {}
        self.paused = False

    def drop(self) -> None:
        """Forgets them, as do runs that go on now."""
        self.by_names = {}
        self._seen = {}

    def abandon(self) -> None:
        """In the child of a fork, where nothing of the parent's session can be ended."""
        for ready in self.by_names.values():
            for quick in ready.free:
                quick.binding = None
        self.drop()

    def consider(self, session: int, key: Any, feed: Any, names: List[str], results: List[Any]) -> None:
        """After a run by name: makes a quick run for its kind once it has come twice in a row."""
        if self.paused or not all(type(array) is np.ndarray for array in feed.values()):
            return
        shapes = tuple((name, array.shape) for name, array in feed.items())
        ready = self.by_names.get(key)
        if ready is None or ready.shapes != shapes:
            if self._seen.get(key) != shapes:
                if len(self._seen) >= 64:
                    self._seen.clear()
                self._seen[key] = shapes
                return
            if len(self.by_names) >= 64:
                self.by_names.clear()
            ready = self.by_names[key] = _Ready(shapes, _may_be_quick(list(feed.values()) + results, names))
        if ready.possible and len(ready.free) < MOST_READY:
            try:
                ready.free.append(QuickRun(session, feed, dict(zip(names, results))))
            except InvalidArgument:
                ready.possible = False


class _Ready:
    __slots__ = ("shapes", "possible", "free")

    def __init__(self, shapes: Shapes, possible: bool):
        self.shapes, self.possible = shapes, possible
        self.free: List[QuickRun] = []


def _may_be_quick(arrays: List[Any], names: List[str]) -> bool:
    if len(set(names)) != len(names):
        return False
    return all(type(array) is np.ndarray and array.dtype.kind in "biufc" and array.dtype.isnative and not array.dtype.metadata
               for array in arrays) and sum(array.nbytes for array in arrays) <= MOST_BYTES


