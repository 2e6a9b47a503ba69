"""Runs by name: what Python gives becomes values, and what the session made becomes Python's, in one call of C for plain arrays."""

from __future__ import annotations

import ctypes
from ctypes import addressof, c_char
from struct import Struct
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from . import _library as lib
from ._errors import InvalidArgument, nearest
from ._options import RunOptions
from ._types import BY_NUMBER, TypeOfValue, element_of_dtype
from ._values import Value, array_at, dims_at, pointers, python_of, value_of

COPIED_BYTES = 16 << 10  # results up to here are copied; of larger ones the arrays are views of the session's values

# A backplane_tensor of host/run.h: struct_size, name, value, data, bytes, dims, rank, dtype, kind.
_TENSOR = "7Q2i"
_TENSOR_BYTES = Struct(_TENSOR).size
_TENSOR_FIELDS = 9
_MOST_PACKED = 64  # of these counts the structs are kept
_structs: Dict[int, Struct] = {}

_each = Struct(_TENSOR).iter_unpack
_DTYPES = {element.number: element.dtype for element in BY_NUMBER.values() if element.is_plain}


def _tensors(count: int) -> Struct:
    """So many of them, as one struct."""
    known = _structs.get(count)
    if known is None:
        known = Struct(_TENSOR * count)
        if count <= _MOST_PACKED:
            _structs[count] = known
    return known


class _Input:
    """What is known of an input: its type, and the address of its name."""

    __slots__ = ("type", "number", "dtype", "address", "_name")

    def __init__(self, name: str, type: TypeOfValue):
        self.type, self.number, self.dtype = type, type.number, type.dtype
        self._name = ctypes.create_string_buffer(lib.encode(name))
        self.address = addressof(self._name)


class _Fetches:
    """What C is told of a list of outputs before a run. Their shapes are what C says after it, whatever the model says of them."""

    __slots__ = ("count", "template", "kind", "_names")

    def __init__(self, names: List[str]):
        self.count = len(names)
        self._names = [ctypes.create_string_buffer(lib.encode(name)) for name in names]
        rows: List[int] = []
        for name in self._names:
            rows += (_TENSOR_BYTES, addressof(name), 0, 0, 0, 0, 0, 0, 0)
        self.template = _tensors(self.count).pack(*rows)
        self.kind = c_char * len(self.template)


class NamedRuns:
    """The runs by name of one session. Any threads at a time."""

    def __init__(self, inputs: List[Any], outputs: List[Any]):
        self.types: Dict[str, TypeOfValue] = {value.name: TypeOfValue(value.type) for value in inputs}
        self.output_names: List[str] = [output.name for output in outputs]
        self._inputs = {name: _Input(name, type) for name, type in self.types.items()}
        self._all = _Fetches(self.output_names)
        self._wanted: Dict[Any, _Fetches] = {}

    def run(self, handle: int, output_names: Any, feed: Any, options: Optional[RunOptions]) -> List[Any]:
        """The outputs, as what they are in Python."""
        fetches = self._run(handle, output_names, feed, options)
        results: List[Any] = []
        try:
            for _, _, pointer, data, size, dims, rank, number, _ in _each(fetches):
                dtype = _DTYPES.get(number)
                if dtype is None or not data or not size:
                    results.append(result_of(Value(pointer)))
                    continue
                shape = lib.int64s(dims, rank)
                if size > COPIED_BYTES:
                    results.append(array_at(data, shape, dtype, Value(pointer)))
                else:
                    results.append(np.ndarray(shape, dtype, lib.bytearray_of(data, size)))
                    lib.value_destroy(pointer)
            return results
        except BaseException:  # of one result: nobody will ask for those after it
            for fields in list(_each(fetches))[len(results) + 1:]:
                lib.value_destroy(fields[2])
            raise

    def run_to_values(self, handle: int, output_names: Any, feed: Any, options: Optional[RunOptions]) -> List[Value]:
        """The outputs as values."""
        fetches = self._run(handle, output_names, feed, options)
        return [Value(fields[2]) for fields in _each(fetches)]

    def _run(self, handle: int, output_names: Any, feed: Any, options: Optional[RunOptions]) -> Any:
        """The fetches as C left them. Their values are the caller's to take."""
        if type(feed) is not dict or output_names is not None:
            check_call(output_names, feed)
        keep: List[Any] = []  # arrays and values that must live as long as the run; another thread may change `feed`
        rows = self._rows_of(feed, keep)
        wanted = self._fetches(output_names) if output_names else self._all
        fetches = wanted.kind.from_buffer_copy(wanted.template)
        count = len(rows) // _TENSOR_FIELDS
        status = lib.session_run_tensors(handle, None if options is None else options._handle, _tensors(count).pack(*rows), count,
                                         fetches, wanted.count)
        if status is not None:
            lib.check(status)
        return fetches

    def _rows_of(self, feed: Mapping[str, Any], keep: List[Any], _array=np.ndarray, _from=c_char.from_buffer,
                 _address=addressof) -> List[int]:
        rows: List[int] = []
        inputs = self._inputs
        for name, data in feed.items():
            known = inputs.get(name)
            if type(data) is _array and known is not None and known.number and data.dtype == known.dtype:
                try:
                    address = _address(_from(data))
                except (TypeError, ValueError):  # not contiguous, read only, or empty
                    pass
                else:
                    shape = data.shape
                    dims, place = dims_at(shape)
                    keep.append((data, dims))
                    rows += (_TENSOR_BYTES, known.address, 0, address, data.nbytes, place, len(shape), known.number, 0)
                    continue
            value = data if isinstance(data, Value) else self._value(name, data)
            if known is None:
                known = _Input(name, TypeOfValue(""))
            keep.append((value, known))
            rows += (_TENSOR_BYTES, known.address, value._pointer() or 0, 0, 0, 0, 0, 0, 0)
        return rows

    def run_of_values(self, handle: int, output_names: Any, feed: Any, options: Optional[RunOptions] = None,
                      path: Optional[bytes] = None) -> Tuple[List[Value], List[Any]]:
        """The outputs as values, of a path, or of a run that may go on after the call; and what such a run needs."""
        check_call(output_names, feed)
        keep = [data if isinstance(data, Value) else self._value(name, data) for name, data in feed.items()]
        feeds = pointers(len(keep))(*[value._pointer() for value in keep])
        names, _ = lib.words(feed)
        fetch_names, number = None, len(self.output_names)
        if output_names:
            fetch_names, _ = lib.words(output_names)
            number = len(fetch_names)
        elif path is not None:
            number = lib.session_path_output_count(handle, path)
        fetches = pointers(number)()
        if path is None:
            lib.check(lib.session_run_with(handle, None if options is None else options._handle, names, feeds, len(keep), fetch_names,
                                           fetches, number))
        else:
            lib.check(lib.session_run_path(handle, path, names, feeds, len(keep), fetch_names, fetches, number))
        return [Value(pointer) for pointer in fetches], keep

    def _value(self, name: Any, data: Any) -> Value:
        type_of = self.types.get(name)
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

    def _fetches(self, names: Any) -> _Fetches:
        key = tuple(names)
        known = self._wanted.get(key)
        if known is None:
            if len(self._wanted) >= 256:
                self._wanted.clear()
            known = self._wanted[key] = _Fetches(list(key))
        return known


def check_call(output_names: Any, feed: Any) -> None:
    """Throws for what is no list of names and no dict."""
    if type(feed) is not dict and not isinstance(feed, Mapping):
        raise InvalidArgument(f"input_feed is a dict of names and arrays, not a {type(feed).__name__}")
    if isinstance(output_names, (str, bytes)):
        raise InvalidArgument(f"output_names is a list of names: [{output_names!r}]")


def result_of(value: Value) -> Any:
    """What a run's value is for its caller: small arrays have memory of their own, so that the value's goes at once."""
    made = python_of(value)
    if type(made) is np.ndarray and made.base is not None and made.nbytes <= COPIED_BYTES:
        return made.copy()
    return made
