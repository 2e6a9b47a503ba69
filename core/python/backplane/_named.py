"""Runs by name: what Python gives becomes values, and what the session made becomes Python's, with few calls for plain arrays."""

from __future__ import annotations

from ctypes import byref, c_char, c_char_p
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from . import _library as lib
from ._errors import InvalidArgument, nearest
from ._options import RunOptions
from ._types import TypeOfValue, element_of_dtype
from ._values import Value, array_at, dims_of, pointers, python_of, shape_of, value_of

COPIED_BYTES = 16 << 10  # results up to here are copied; of larger ones the arrays are views of the session's values
_POINTER_BYTES = 8


class _Fetch:
    """What is known of an output before it is made: its dtype, and where the model fixes it its shape."""

    __slots__ = ("dtype", "shape", "bytes")

    def __init__(self, type: TypeOfValue, shape: Optional[List[Any]]):
        self.dtype = type.dtype
        fixed = shape is not None and all(isinstance(size, int) for size in shape)
        self.shape: Optional[Tuple[int, ...]] = tuple(shape) if fixed and shape is not None else None
        self.bytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize if self.dtype and self.shape else -1


class NamedRuns:
    """The runs by name of one session. Any threads at a time."""

    def __init__(self, inputs: List[Any], outputs: List[Any]):
        self.types: Dict[str, TypeOfValue] = {value.name: TypeOfValue(value.type) for value in inputs}
        self.output_names: List[str] = [output.name for output in outputs]
        self._known: Dict[str, _Fetch] = {output.name: _Fetch(TypeOfValue(output.type), output.shape) for output in outputs}
        self._all = [self._known[name] for name in self.output_names]
        self._words: Dict[Any, Any] = {}

    def run(self, handle: int, output_names: Any, feed: Any, options: Optional[RunOptions],
            path: Optional[bytes] = None) -> Tuple[Any, List[Any]]:
        """The values that were made, by address, which the caller must take; and what a run that is not over needs."""
        if type(feed) is not dict and not isinstance(feed, Mapping):
            raise InvalidArgument(f"input_feed is a dict of names and arrays, not a {type(feed).__name__}")
        if isinstance(output_names, (str, bytes)):
            raise InvalidArgument(f"output_names is a list of names: [{output_names!r}]")
        count = len(feed)
        feeds = pointers(count)()
        keep: List[Any] = []  # arrays and values that must live as long as the run; another thread may change `feed`
        borrowed: List[int] = []
        try:
            self._fill(feed, feeds, keep, borrowed)
            names = self.words(tuple(feed))
            fetch_names, number = None, len(self.output_names)
            if output_names:
                fetch_names, number = self.words(tuple(output_names)), len(output_names)
            elif path is not None:
                number = lib.session_path_output_count(handle, path)
            fetches = pointers(number)()
            if path is None:
                status = lib.session_run_with(handle, None if options is None else options._handle, names, feeds, count,
                                              fetch_names, fetches, number)
            else:
                status = lib.session_run_path(handle, path, names, feeds, count, fetch_names, fetches, number)
            if status is not None:
                lib.check(status)
            if options is not None and not options._synchronize:
                keep += [Value(pointer) for pointer in borrowed]
                borrowed = []
            return fetches, keep
        finally:
            for pointer in borrowed:
                lib.value_destroy(pointer)

    def _fill(self, feed: Mapping[str, Any], feeds: Any, keep: List[Any], borrowed: List[int],
              _array=np.ndarray, _borrow=lib.value_borrow, _from=c_char.from_buffer) -> None:
        for place, (name, data) in enumerate(feed.items()):
            type_of = self.types.get(name)
            if type(data) is _array and type_of is not None and type_of.number and data.dtype == type_of.dtype:
                try:
                    memory = byref(_from(data))
                except (TypeError, ValueError):  # not contiguous, read only, or empty
                    pass
                else:
                    keep.append(data)
                    shape = data.shape
                    status = _borrow(type_of.number, dims_of(shape), len(shape), memory, data.nbytes,
                                     byref(feeds, place * _POINTER_BYTES))
                    if status is not None:
                        lib.check(status)
                    borrowed.append(feeds[place])
                    continue
            value = data if isinstance(data, Value) else self._value(name, type_of, data)
            keep.append(value)
            feeds[place] = value._pointer()

    def _value(self, name: Any, type_of: Optional[TypeOfValue], data: Any) -> Value:
        if type_of is not None:
            return value_of(data, type_of, f"the input '{name}'")
        # An inner value of the model, or nothing; the library says which.
        if isinstance(data, np.ndarray) and isinstance(name, str) and element_of_dtype(data.dtype) is not None:
            return Value.from_numpy(data)
        raise InvalidArgument(f"the model has no input {name!r}; {nearest(str(name), self.types)}")

    def type_of(self, name: str) -> TypeOfValue:
        """The type of an input; InvalidArgument where there is none of this name."""
        try:
            return self.types[name]
        except KeyError:
            raise InvalidArgument(f"the model has no input '{name}'; {nearest(str(name), self.types)}") from None

    def words(self, names: Tuple[str, ...]) -> Any:
        """The C strings of these names, kept for later runs."""
        known = self._words.get(names)
        if known is None:
            if len(self._words) >= 256:
                self._words.clear()
            encoded = [lib.encode(name) for name in names]
            known = self._words[names] = ((c_char_p * len(encoded))(*encoded), encoded)
        return known[0]

    def results(self, output_names: Any, fetches: Any) -> List[Any]:
        """Of all fetched values, what they are in Python."""
        if output_names:
            wanted = [self._known.get(name) for name in output_names]
        elif len(fetches) == len(self._all):
            wanted = self._all
        else:  # of a path
            wanted = [None] * len(fetches)
        taken = list(fetches)
        made: List[Any] = []
        try:
            for known in wanted:
                pointer = taken[len(made)]
                made.append(_plain_result(pointer, known) if known is not None and known.dtype is not None
                            else result_of(Value(pointer)))
            return made
        finally:  # one failed: nobody will ask for those after it
            for pointer in taken[len(made) + 1:]:
                lib.value_destroy(pointer)


def _plain_result(pointer: int, known: _Fetch) -> Any:
    """The array of a tensor whose dtype is known; takes the value over."""
    address = lib.value_data(pointer)
    size = lib.value_bytes(pointer)
    if not address or size == 0:
        return result_of(Value(pointer))
    shape = known.shape if size == known.bytes and known.shape is not None else shape_of(pointer)
    if size > COPIED_BYTES:
        return array_at(address, shape, known.dtype, Value(pointer))
    made = np.ndarray(shape, known.dtype, lib.memory_at(address, size, lib.WRITABLE)).copy()
    lib.value_destroy(pointer)
    return made


def result_of(value: Value) -> Any:
    """What a run's value is for its caller: small arrays have memory of their own, so that the value's goes at once."""
    made = python_of(value)
    if type(made) is np.ndarray and made.base is not None and made.nbytes <= COPIED_BYTES:
        return made.copy()
    return made
