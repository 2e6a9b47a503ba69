"""Values: tensors over NumPy's memory or the library's, strings, sequences, maps and optionals, and what each is in Python."""

from __future__ import annotations

import copy
import ctypes
import functools
from array import array as numbers_of
from ctypes import byref, c_int64, c_void_p
from itertools import accumulate
from typing import Any, Callable, Iterable, List, Optional, Sequence, Set, Tuple

import numpy as np

from . import _library as lib
from ._errors import InvalidArgument
from ._types import BY_NUMBER, STRING, ElementType, TypeOfValue, element_of, element_of_dtype

_NONE, _TENSOR, _SEQUENCE, _OPTIONAL, _MAP = range(5)
_CPU = 1  # kDLCPU


@functools.lru_cache(maxsize=4096)
def dims_of(shape: Tuple[int, ...]) -> ctypes.Array:
    """The dims as the library takes them."""
    return (c_int64 * len(shape))(*shape)


@functools.lru_cache(maxsize=4096)
def dims_at(shape: Tuple[int, ...]) -> Tuple[ctypes.Array, int]:
    """The same with their address, which is good as long as they are kept."""
    dims = dims_of(shape)
    return dims, ctypes.addressof(dims)


@functools.lru_cache(maxsize=256)
def pointers(count: int) -> Any:
    """The type of so many pointers. Types of ctypes are costly, and garbage once nobody has them."""
    return c_void_p * count


def not_copied(what: str, instead: str) -> Callable[[Any], Any]:
    """The __reduce__ of what has an address: its copy would end the same thing again, and another process has no such address."""
    def __reduce__(self: Any) -> Any:
        raise TypeError(f"{what} is neither copied nor pickled; {instead}")

    return __reduce__


class _Lent:
    """Memory of a value for an array, which keeps this, and so the value."""

    __slots__ = ("__array_interface__", "owner")
    __reduce__ = not_copied("the memory of a backplane.Value", "copy the array")


def array_at(address: int, shape: Tuple[int, ...], dtype: np.dtype, owner: Any) -> np.ndarray:
    """An array over memory that lives as long as `owner`."""
    lent = _Lent()
    lent.owner = owner
    bits = dtype if dtype.kind != "V" and dtype.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}")
    lent.__array_interface__ = {"shape": shape, "typestr": bits.str, "data": (address, False), "version": 3}
    array = np.asarray(lent)
    return array if bits is dtype else array.view(dtype)


class Value:
    """A value that a session takes or gives; ONNX Runtime's name for it is `OrtValue`, which is this class, too.

    Ownership: `Value.from_numpy` works on the array's own memory and keeps the array alive; values that a session made
    own their memory, and arrays that `numpy()` gives of them keep the value alive. So nothing is copied, and
    nothing is freed while an array or a value needs it.
    Copies: copy.copy gives the value itself; copy.deepcopy and pickle one with memory of its own on the host, which can be written. What
    lies in a device's memory is not copied so: copy `numpy()`.
    Threads: many runs may read a value at a time; whoever writes it (a run that has it as output, `update_inplace`, a write
    to its array) must be alone.
    """

    __slots__ = ("_handle", "_keep", "__weakref__")

    def __init__(self, handle: int, keep: Any = None):
        """Of the package's own use: takes over a backplane_value; `keep` lives as long as this."""
        self._handle = handle
        self._keep = keep

    def __del__(self, _destroy=lib.value_destroy):
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            _destroy(handle)

    def __copy__(self) -> "Value":
        return self

    def __deepcopy__(self, memo: Any) -> "Value":
        _, (type, content) = self.__reduce__()
        return _restored(type, content if self.is_tensor() else copy.deepcopy(content, memo))

    def __reduce__(self) -> Any:
        pointer = self._pointer()
        kind = lib.value_kind(pointer)
        if kind == _NONE:
            raise TypeError("an empty backplane.Value is neither copied nor pickled; an output is there after its run")
        if kind != _TENSOR:
            return _restored, (self.type(), _elements_of(pointer))
        if lib.value_device(pointer):
            raise TypeError(f"a backplane.Value in the memory of '{self.device_name()}' is neither copied nor pickled; copy its numpy(), "
                            "of which Value.from_numpy makes a value")
        if lib.value_dtype(pointer) == STRING:
            return _restored, (self.type(), array_over(self))
        size = lib.value_bytes(pointer)
        data = array_at(lib.value_data(pointer), (size,), np.dtype(np.uint8), self) if size else np.empty(0, np.uint8)
        return _restored, (self.type(), (shape_of(pointer), data))

    # ---- Making values ----

    @staticmethod
    def from_numpy(array: Any, element_type: Any = None) -> "Value":
        """A tensor with the elements of an array.

        The memory is the array's: what is written to one is seen in the other. An array that is not contiguous, not aligned, or not in
        the machine's byte order is copied; so are strings, and elements of less than a byte, of which ONNX packs several in one.
        An array that cannot be written gives a value that can only be an input.

        element_type: a name ("bfloat16"), a number of TensorProto.DataType or a dtype; needed where the dtype does not
        say it, as for bits of bfloat16 in uint16.
        """
        array = np.asarray(array)
        if element_type is None:
            element = element_of_dtype(array.dtype)
            if element is None and array.dtype == object:
                element = BY_NUMBER[STRING]
            if element is None:
                raise InvalidArgument(f"an array of {array.dtype} is no tensor of ONNX; convert it, or name its element_type")
        else:
            element = element_of(element_type)
            _check_bits(array, element)
        return tensor_of(array, element)

    @staticmethod
    def from_dlpack(tensor: Any) -> "Value":
        """A tensor over memory of another library's (torch, jax, cupy ...) on the host, by DLPack; no copy."""
        return Value.from_numpy(np.from_dlpack(tensor))

    @staticmethod
    def zeros(shape: Sequence[int], element_type: Any = np.float32) -> "Value":
        """A tensor of zeros in memory of its own; also one of empty strings."""
        element = element_of(element_type)
        dims = tuple(int(size) for size in shape)
        return Value(lib.made(lib.value_create, element.number, dims_of(dims), len(dims)))

    @staticmethod
    def of(data: Any, type: str) -> "Value":
        """A value of an ONNX type ("seq(tensor(float))", "map(string,tensor(int64))", "optional(tensor(float))" ...) from what it is
        in Python: a list, a dict, None or an element, an array."""
        return value_of(data, TypeOfValue(type), "the value")

    # ONNX Runtime's names.
    @staticmethod
    def ortvalue_from_numpy(numpy_obj: Any, device_type: str = "cpu", device_id: int = 0) -> "Value":
        """As from_numpy. Memory of a device is the session's to give: `IOBinding.bind_output(name, "cuda")`."""
        _check_device(device_type)
        return Value.from_numpy(numpy_obj)

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: Any, onnx_element_type: Any) -> "Value":
        """As from_numpy with an element type."""
        return Value.from_numpy(data, onnx_element_type)

    @staticmethod
    def ortvalue_from_shape_and_type(shape: Sequence[int], element_type: Any, device_type: str = "cpu",
                                     device_id: int = 0) -> "Value":
        """As zeros."""
        _check_device(device_type)
        return Value.zeros(shape, element_type)

    # ---- What it is ----

    def _pointer(self) -> Optional[int]:
        return self._handle

    def type(self) -> str:
        """The ONNX type: "tensor(float)", "seq(tensor(int64))" ..."""
        return lib.decode(lib.value_type(self._pointer()))

    data_type = type

    def element_type(self) -> int:
        """Of a tensor, the number of its TensorProto.DataType; 0 of others."""
        return lib.value_dtype(self._pointer())

    def shape(self) -> List[int]:
        """Of a tensor, its dims."""
        pointer = self._pointer()
        return list(shape_of(pointer))

    def device_name(self) -> str:
        """Where the elements lie: "cpu" is the host's memory, else a device as the session names it."""
        return lib.decode(lib.value_device(self._pointer())) or "cpu"

    def has_value(self) -> bool:
        """False for an optional without an element, and for an output before its run."""
        kind = lib.value_kind(self._pointer())
        return kind != _NONE and (kind != _OPTIONAL or lib.value_element_count(self._pointer()) > 0)

    def is_tensor(self) -> bool:
        """Whether it is a dense tensor."""
        return lib.value_kind(self._pointer()) == _TENSOR

    def is_tensor_sequence(self) -> bool:
        """Whether it is a sequence."""
        return lib.value_kind(self._pointer()) == _SEQUENCE

    def is_sparse_tensor(self) -> bool:
        """False: sessions neither take nor give sparse tensors."""
        return False

    def data_ptr(self) -> int:
        """The address of a tensor's elements in host memory; 0 where it has none. The value must outlive its use."""
        return lib.value_data(self._pointer()) or 0

    def tensor_size_in_bytes(self) -> int:
        """Bytes of a tensor's elements."""
        return lib.value_bytes(self._pointer())

    def __repr__(self) -> str:
        shape = f" of shape {self.shape()}" if self.is_tensor() else ""
        return f"<backplane.Value {self.type() or 'empty'}{shape} on {self.device_name()}>"

    # ---- What is in it ----

    def numpy(self) -> Any:
        """What it is in Python: `to_python`, under the name that ONNX Runtime's users know.

        Of a tensor, an array over the value's own memory, which the array keeps alive. Copies are those of strings
        (an array of str), of elements of less than a byte, and of what lies in a device's memory.
        """
        return python_of(self)

    to_python = numpy

    def update_inplace(self, array: Any) -> None:
        """Copies an array of the same shape and dtype into a tensor."""
        element = BY_NUMBER.get(self.element_type())
        array = np.asarray(array)
        if element is None or not element.is_plain and element.raw is None:
            raise InvalidArgument(f"a {self.type()} is not updated in place; make a new value")
        if not element.accepts(array.dtype) or list(array.shape) != self.shape():
            raise InvalidArgument(f"a {self.type()} of shape {self.shape()} cannot take an array of {array.dtype} of shape "
                                  f"{list(array.shape)}")
        if element.bits < 8:
            packed = element.packed(np.ascontiguousarray(array))
            ctypes.memmove(self.data_ptr(), packed.ctypes.data, packed.nbytes)
            return
        place = python_of(self)
        if not isinstance(self._keep, np.ndarray) or self._keep.flags.writeable:
            place[...] = array
            return
        raise InvalidArgument("the value lies in an array that cannot be written")

    def __array__(self, dtype=None, copy=None):
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(self, **options):
        """The tensor for another library, which keeps it alive; host memory only."""
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (_CPU, 0)


def _check_device(device_type: str) -> None:
    if device_type.lower() != "cpu":
        raise InvalidArgument(f"values are made in the host's memory, not on '{device_type}'; a session copies them where they are "
                              "read. Outputs stay on a device with IOBinding.bind_output(name, device)")


def _check_bits(array: np.ndarray, element: ElementType) -> None:
    if element.number == STRING or element.accepts(array.dtype):
        return
    if element.raw is not None and array.dtype == element.raw:
        return
    raise InvalidArgument(f"an array of {array.dtype} does not hold elements of {element.name}"
                          + ("" if element.raw is None else f", nor their bits, which are {element.raw}"))


# ---- From Python ----

def tensor_of(array: np.ndarray, element: ElementType, name: str = "the array") -> Value:
    """A tensor over an array, which has been checked to hold such elements; `name` begins messages."""
    if element.number == STRING:
        return _strings_of(array, name)
    given, shape, address = array, array.shape, array.ctypes.data
    if not array.flags.c_contiguous or address % element.alignment:
        array = array.copy()
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("="))
    if element.bits < 8:
        array = element.packed(array)
    if array is not given:
        address = array.ctypes.data
    out = c_void_p()
    borrow = lib.value_borrow if array.flags.writeable else lib.value_borrow_const
    lib.check(borrow(element.number, dims_of(shape), len(shape), address, array.nbytes, byref(out)))
    return Value(out.value, array)


def _strings_of(array: np.ndarray, name: str = "the array") -> Value:
    shape = array.shape
    value = Value(lib.made(lib.value_create, STRING, dims_of(shape), len(shape)))
    data, sizes = _block_of(array.ravel().tolist(), name)
    ends = numbers_of("Q", accumulate(sizes))  # of a few, quicker than NumPy's sum
    lib.check(lib.value_write_strings(value._handle, 0, len(sizes), ends.buffer_info()[0], data, len(data)))
    return value


def _block_of(texts: List[Any], name: str) -> Tuple[bytes, List[int]]:
    """The bytes of all texts, side by side, and how many each has."""
    try:
        text = "".join(texts)
        if text.isascii():  # a character is a byte
            return text.encode(), list(map(len, texts))
    except TypeError:
        pass  # bytes, or what is no text
    encoded = [text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text for text in texts]
    for index, text in enumerate(encoded):
        if not isinstance(text, bytes):
            raise InvalidArgument(f"element {index} of {name} is {type(text).__name__}, no text: {text!r}")
    return b"".join(encoded), list(map(len, encoded))


_KINDS = {"b": "b", "i": "iufc", "u": "iufc", "f": "fc", "c": "c"}  # what untyped numbers may become


def array_of(data: Any, element: ElementType, name: str) -> np.ndarray:
    """An array of such elements. Arrays and NumPy's scalars must have the type; lists and numbers of Python's take it where no
    element changes its meaning by that."""
    if isinstance(data, (np.ndarray, np.generic)):
        array = np.asarray(data)
        if element.number == STRING:
            if array.dtype.kind not in "UST" and array.dtype != object:
                raise _wrong_type(name, element, f"an array of {array.dtype}", "strings are arrays of str, bytes or object")
        elif not element.accepts(array.dtype):
            hint = f"convert it with array.astype('{element.dtype.name}')" if element.is_plain else f"its arrays are of {element.dtype}"
            raise _wrong_type(name, element, f"an array of {array.dtype}", hint)
        return array
    if hasattr(data, "__array__") or hasattr(data, "__dlpack__"):  # a tensor of another library
        array = np.asarray(data) if hasattr(data, "__array__") else np.from_dlpack(data)
        return array_of(array, element, name)
    if element.number == STRING:
        array = np.asarray(data, dtype=object)
        return array
    try:
        untyped = np.asarray(data)
    except ValueError as error:  # lists of different lengths
        raise _wrong_type(name, element, "a list that is no tensor", str(error)) from None
    if untyped.size == 0:
        return np.empty(untyped.shape, element.dtype)
    kind = "f" if not element.is_plain and "float" in element.name else element.dtype.kind
    if not element.is_plain and kind == "V":
        kind = "i"
    if kind not in _KINDS.get(untyped.dtype.kind, "") or element.dtype is element.raw and kind == "f":
        raise _wrong_type(name, element, f"a list or number that is {untyped.dtype}", "give an array")
    with np.errstate(all="ignore"):
        array = untyped.astype(element.dtype)
    # Of numbers of 64 bits the way back gives what was there even where the sign is not the same.
    if kind in "iu" and not ((array.astype(untyped.dtype) == untyped) & ((array < 0) == (untyped < 0))).all():
        raise _wrong_type(name, element, "a number that is out of its range", "give numbers that it holds")
    return array


def _wrong_type(name: str, element: ElementType, given: str, hint: str) -> InvalidArgument:
    return InvalidArgument(f"{name} is a tensor({element.name}), and was given {given}: {hint}")


def value_of(data: Any, type: TypeOfValue, name: str) -> Value:
    """A value of the type from Python's objects; `name` begins messages."""
    if isinstance(data, Value):
        return data
    if type.kind == "tensor" and type.element is not None:
        return tensor_of(array_of(data, type.element, name), type.element, name)
    if type.kind == "seq":
        if isinstance(data, (str, bytes, dict)) or not isinstance(data, Iterable):
            raise InvalidArgument(f"{name} is a {type.text}, and was given {_name(data)}: give a list")
        elements = [value_of(one, type.inner, f"element {place} of {name}") for place, one in enumerate(data)]
        handles = pointers(len(elements))(*[element._pointer() for element in elements])
        return Value(lib.made(lib.value_create_sequence, lib.encode(type.text), handles, len(elements)))
    if type.kind == "optional":
        element = None if data is None else value_of(data, type.inner, name)
        return Value(lib.made(lib.value_create_optional, lib.encode(type.text), element and element._pointer()))
    if type.kind == "map" and type.key is not None:
        if not isinstance(data, dict):
            raise InvalidArgument(f"{name} is a {type.text}, and was given {_name(data)}: give a dict")
        return _map_of(data, type, name)
    raise InvalidArgument(f"{name} is a {type.text}, which this package cannot make of {_name(data)}")


def _restored(type_text: str, content: Any) -> Value:
    """The value that Value.__reduce__ took apart."""
    type, word = TypeOfValue(type_text), lib.encode(type_text)
    if type.kind == "tensor":
        if type.element.number == STRING:
            return _strings_of(content)
        shape, data = content
        made = Value.zeros(shape, type.element)
        ctypes.memmove(made.data_ptr(), data.ctypes.data, data.nbytes)
        return made
    handles = [element._handle for element in content]
    if type.kind == "seq":
        return Value(lib.made(lib.value_create_sequence, word, pointers(len(handles))(*handles), len(handles)))
    if type.kind == "optional":
        return Value(lib.made(lib.value_create_optional, word, handles[0] if handles else None))
    return Value(lib.made(lib.value_create_map, word, *handles))


def _map_of(data: dict, type: TypeOfValue, name: str) -> Value:
    keys = tensor_of(array_of(list(data), type.key, f"a key of {name}").reshape(-1), type.key, f"the keys of {name}")
    inner = type.inner
    if inner.kind == "tensor" and inner.element is not None:  # one number for each key
        listed = [one.item() if isinstance(one, (np.ndarray, np.generic)) and np.ndim(one) == 0 else one for one in data.values()]
        for key, one in data.items():
            if isinstance(one, (np.ndarray, np.generic)):
                array_of(one, inner.element, f"the value of {key!r} in {name}")
        values = tensor_of(array_of(listed, inner.element, f"a value of {name}"), inner.element, f"the values of {name}")
    else:
        sequence = TypeOfValue(f"seq({inner.text})")
        values = value_of(list(data.values()), sequence, f"the values of {name}")
    return Value(lib.made(lib.value_create_map, lib.encode(type.text), keys._handle, values._handle))


def _name(data: Any) -> str:
    return "None" if data is None else f"a {type(data).__name__}"


# ---- To Python ----

def shape_of(pointer: Optional[int]) -> Tuple[int, ...]:
    """A tensor's dims."""
    rank = lib.value_rank(pointer)
    return lib.int64s(lib.value_dims(pointer), rank) if rank else ()


def python_of(value: Value, taken: Optional[Set[Optional[int]]] = None) -> Any:
    """An array over the value's memory; a list of a sequence, a dict of a map, None or the element of an optional.

    taken: addresses of elements that others have, to which it adds; an array of such an element is a copy.
    """
    pointer = value._pointer()
    kind = lib.value_kind(pointer)
    if kind == _TENSOR:
        if lib.value_device(pointer):
            value = Value(lib.made(lib.value_copy_to_host, pointer))
        array = array_over(value)
        return array if taken is None or _take(value, taken) else array.copy()
    if kind == _NONE:
        return None
    elements = _elements_of(pointer)
    if kind == _SEQUENCE:
        return [python_of(element, taken) for element in elements]
    if kind == _OPTIONAL:
        return python_of(elements[0], taken) if elements else None
    keys, values = (python_of(element, taken) for element in elements)
    return dict(zip(keys.tolist(), values.tolist() if isinstance(values, np.ndarray) and values.ndim == 1 else values))


def addresses_in(fed: Iterable[Any]) -> Set[Optional[int]]:
    """Where the elements of containers lie that a run is fed as values: what it makes may share them."""
    taken: Set[Optional[int]] = set()
    waiting = [value for value in list(fed) if isinstance(value, Value)]  # a list first: another thread may change what was fed
    while waiting:
        value = waiting.pop()
        pointer = value._pointer()
        if lib.value_kind(pointer) == _TENSOR:
            taken.add(lib.value_data(pointer))
        else:
            waiting += _elements_of(pointer)
    return taken


def _take(tensor: Value, taken: Set[Optional[int]]) -> bool:
    """Adds a tensor; False where it was there."""
    address = lib.value_data(tensor._pointer())
    if address is None or address not in taken:
        taken.add(address)
        return True
    return False


def own(made: Any) -> Any:
    """What python_of gave, with memory of its own."""
    if isinstance(made, np.ndarray):
        return made if made.base is None else made.copy()
    return copy.deepcopy(made)


def _elements_of(pointer: Optional[int]) -> List[Value]:
    """Of a sequence or optional, its elements; of a map, keys and values. They share its memory."""
    return [Value(lib.made(lib.value_element, pointer, place)) for place in range(lib.value_element_count(pointer))]


def array_over(value: Value) -> np.ndarray:
    """The array of a tensor on the host."""
    pointer = value._pointer()
    element = BY_NUMBER[lib.value_dtype(pointer)]
    shape = shape_of(pointer)
    if element.number == STRING:
        return _strings_from(pointer, shape)
    size = lib.value_bytes(pointer)
    address = lib.value_data(pointer)
    if size == 0 or address is None:
        if size:
            raise InvalidArgument(f"the elements of this {value.type()} do not lie in the host's memory")
        return np.empty(shape, element.dtype)
    if element.bits < 8:
        count = int(np.prod(shape, dtype=np.int64))
        return element.unpacked(array_at(address, (size,), np.dtype(np.uint8), value), count).reshape(shape)
    array = array_at(address, shape, element.dtype, value)
    if isinstance(value._keep, np.ndarray) and not value._keep.flags.writeable:
        array.flags.writeable = False
    return array


def _strings_from(pointer: Optional[int], shape: Tuple[int, ...]) -> np.ndarray:
    array = np.empty(shape, object)
    ends = np.zeros(array.size, np.uint64)
    at_ends = ends.ctypes.data
    lib.check(lib.value_read_strings(pointer, 0, array.size, at_ends, None, 0))
    block = ctypes.create_string_buffer(int(ends[-1]) if array.size else 0)
    lib.check(lib.value_read_strings(pointer, 0, array.size, at_ends, block, len(block)))
    data, ends = block.raw, ends.tolist()
    places = zip([0, *ends], ends)
    if data.isascii():  # a byte is a character
        text = data.decode("ascii")
        array.reshape(-1)[:] = [text[begin:end] for begin, end in places]
    else:
        array.reshape(-1)[:] = [data[begin:end].decode("utf-8", "surrogateescape") for begin, end in places]
    return array
