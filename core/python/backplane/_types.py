"""Element types: their numbers and names in ONNX, and what they are in NumPy.

bfloat16, the types of 8 bits and those of less than a byte are ml_dtypes' where that package is installed. Without it
an array has their bits: uint16 for bfloat16, uint8 for float8 and float4; integers of 4 and 2 bits are int8 or uint8 with
the same numbers. The dtypes of such arrays carry the name: `array.dtype.metadata["element_type"]`.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Optional

import numpy as np

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

STRING = 8


class ElementType:
    """An element type of ONNX.

    number: its TensorProto.DataType; name: as in "tensor(NAME)"; bits: of one element in memory; alignment: in bytes, that the library
    asks of memory; dtype: of arrays that hold it; raw: the integers that hold its bits.
    """

    __slots__ = ("number", "name", "bits", "alignment", "dtype", "raw", "signed", "is_plain")

    def __init__(self, number: int, name: str, bits: int, native: Any, raw: Any = None, signed: bool = False):
        self.number, self.name, self.bits, self.signed = number, name, bits, signed
        self.alignment = max(1, min(8, bits // 8))
        self.is_plain = raw is None and number != STRING  # NumPy's own, as it lies in memory
        self.raw = None if raw is None else np.dtype(raw, metadata={"element_type": name})
        if raw is None:
            self.dtype = np.dtype(native)
        else:
            found = getattr(ml_dtypes, native, None) if ml_dtypes else None
            self.dtype = self.raw if found is None else np.dtype(found)

    def bytes_of(self, count: int) -> int:
        """How many bytes `count` elements take in the library's memory."""
        return (count * self.bits + 7) // 8

    def accepts(self, dtype: np.dtype) -> bool:
        """Whether an array of this dtype holds such elements."""
        return dtype.newbyteorder("=") == self.dtype if dtype.byteorder == ">" else dtype == self.dtype

    def packed(self, array: np.ndarray) -> np.ndarray:
        """Elements of less than a byte, contiguous and one to a byte, as the library has them."""
        per_byte = 8 // self.bits
        bits = (array if array.dtype.kind in "iu" else self._as_bytes(array)).view(np.uint8).reshape(-1) & (2**self.bits - 1)
        padded = np.zeros(-(-bits.size // per_byte) * per_byte, np.uint8)
        padded[: bits.size] = bits
        packed = np.zeros(padded.size // per_byte, np.uint8)
        for place in range(per_byte):
            packed |= padded[place::per_byte] << np.uint8(place * self.bits)
        return packed

    def _as_bytes(self, array: np.ndarray) -> np.ndarray:
        return array.view(np.uint8) if "float" in self.name else array.astype(np.int8 if self.signed else np.uint8)

    def unpacked(self, packed: np.ndarray, count: int) -> np.ndarray:
        """The other way: `count` elements, one to a byte."""
        per_byte = 8 // self.bits
        bits = np.empty(packed.size * per_byte, np.uint8)
        for place in range(per_byte):
            bits[place::per_byte] = (packed >> np.uint8(place * self.bits)) & np.uint8(2**self.bits - 1)
        bits = bits[:count]
        if self.signed:
            top = np.int8(2 ** (self.bits - 1))
            bits = (bits.view(np.int8) ^ top) - top
        if self.dtype is self.raw:
            return bits.view(self.raw)
        return bits.view(self.dtype) if "float" in self.name else bits.astype(self.dtype)


_TYPES = [
    ElementType(1, "float", 32, np.float32), ElementType(2, "uint8", 8, np.uint8), ElementType(3, "int8", 8, np.int8),
    ElementType(4, "uint16", 16, np.uint16), ElementType(5, "int16", 16, np.int16), ElementType(6, "int32", 32, np.int32),
    ElementType(7, "int64", 64, np.int64), ElementType(8, "string", 0, object), ElementType(9, "bool", 8, np.bool_),
    ElementType(10, "float16", 16, np.float16), ElementType(11, "double", 64, np.float64),
    ElementType(12, "uint32", 32, np.uint32), ElementType(13, "uint64", 64, np.uint64),
    ElementType(14, "complex64", 64, np.complex64), ElementType(15, "complex128", 128, np.complex128),
    ElementType(16, "bfloat16", 16, "bfloat16", np.uint16),
    ElementType(17, "float8e4m3fn", 8, "float8_e4m3fn", np.uint8),
    ElementType(18, "float8e4m3fnuz", 8, "float8_e4m3fnuz", np.uint8),
    ElementType(19, "float8e5m2", 8, "float8_e5m2", np.uint8),
    ElementType(20, "float8e5m2fnuz", 8, "float8_e5m2fnuz", np.uint8),
    ElementType(21, "uint4", 4, "uint4", np.uint8), ElementType(22, "int4", 4, "int4", np.int8, signed=True),
    ElementType(23, "float4e2m1", 4, "float4_e2m1fn", np.uint8),
    ElementType(24, "float8e8m0", 8, "float8_e8m0fnu", np.uint8),
    ElementType(25, "uint2", 2, "uint2", np.uint8), ElementType(26, "int2", 2, "int2", np.int8, signed=True),
]
BY_NUMBER: Dict[int, ElementType] = {element.number: element for element in _TYPES}
BY_NAME: Dict[str, ElementType] = {element.name: element for element in _TYPES}
# Of several types with one dtype (raw bits), an array alone does not say which is meant.
_BY_DTYPE: Dict[np.dtype, ElementType] = {
    element.dtype: element for element in _TYPES if element.raw is None or element.dtype is not element.raw}


def element_of_dtype(dtype: np.dtype) -> Optional[ElementType]:
    """What elements an array of this dtype holds; None where ONNX has none such."""
    named = (dtype.metadata or {}).get("element_type")
    if named in BY_NAME:
        return BY_NAME[named]
    if dtype.kind in "UST":
        return BY_NUMBER[STRING]
    return _BY_DTYPE.get(dtype.newbyteorder("=") if dtype.byteorder == ">" else dtype)


def element_of(given: Any) -> ElementType:
    """The element type that a number, a name ("float", "tensor(float)") or a dtype stands for; a ValueError else."""
    if isinstance(given, ElementType):
        return given
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool) and int(given) in BY_NUMBER:
        return BY_NUMBER[int(given)]
    if isinstance(given, str):
        word = given[7:-1] if given.startswith("tensor(") else given
        if word in BY_NAME:
            return BY_NAME[word]
    try:
        found = element_of_dtype(np.dtype(given))
    except TypeError:
        found = None
    if found is None:
        raise ValueError(f"{given!r} is no element type of ONNX; known: {', '.join(BY_NAME)}")
    return found


class TypeOfValue:
    """A type string of ONNX, taken apart: kind "tensor", "seq", "map", "optional" or "other"; for containers `inner`; for
    tensors `element`, with its number, and its dtype where that is NumPy's own; for maps `key`."""

    __slots__ = ("text", "kind", "inner", "element", "key", "number", "dtype")

    def __init__(self, text: str):
        self.text = text
        self.kind, self.inner, self.element, self.key = "other", None, None, None
        self.number, self.dtype = 0, None
        found = re.fullmatch(r"(tensor|seq|optional|map)\((.*)\)", text)
        if not found:
            return
        kind, rest = found.groups()
        if kind == "tensor":
            self.element = BY_NAME.get(rest)
            if self.element is not None and self.element.is_plain:
                self.number, self.dtype = self.element.number, self.element.dtype
        elif kind == "map":
            key, _, rest = rest.partition(",")
            self.key = BY_NAME.get(key.strip())
            self.inner = TypeOfValue(rest.strip())
        else:
            self.inner = TypeOfValue(rest)
        self.kind = kind
