"""The shared library: where it is looked for, and its functions with their argument types."""

from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import c_char_p, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from typing import Iterator, List, Tuple

from ._errors import error_of

NAME = "libbackplane.so.1"
PACKAGE = pathlib.Path(__file__).resolve().parent

# Result and arguments of each function that the package calls. Pointers of every kind are c_void_p, which takes
# arrays, byref(), numbers and None; a status is None where the call succeeded.
_STATUS, _P, _S, _N = c_void_p, c_void_p, c_char_p, c_size_t
_FUNCTIONS = {
    "version": (_S, []),
    "status_code": (c_int32, [_P]),
    "status_message": (_S, [_P]),
    "status_free": (None, [_P]),
    "string_data": (c_void_p, [_P]),
    "string_size": (c_uint64, [_P]),
    "string_destroy": (None, [_P]),
    "options_create": (_STATUS, [_P]),
    "options_destroy": (None, [_P]),
    "options_set": (_STATUS, [_P, _S, _S]),
    "options_get": (_STATUS, [_P, _S, _P]),
    "options_read_file": (_STATUS, [_P, _S]),
    "options_read_environment": (_STATUS, [_P]),
    "options_append_provider": (_STATUS, [_P, _S, _P, _P, _N]),
    "options_register_custom_ops": (_STATUS, [_P, _S]),
    "options_add_placement": (_STATUS, [_P, _S, _S]),
    "options_add_external_data": (_STATUS, [_P, _S, _P, c_uint64]),
    "environment_create": (_STATUS, [_P, _P, _P, _P]),
    "environment_destroy": (None, [_P]),
    "environment_set_log_level": (_STATUS, [_P, _S]),
    "environment_register_custom_ops": (_STATUS, [_P, _S]),
    "environment_providers": (_STATUS, [_P, _P]),
    "value_create": (_STATUS, [c_int32, _P, _N, _P]),
    "value_borrow": (_STATUS, [c_int32, _P, _N, _P, c_uint64, _P]),
    "value_borrow_const": (_STATUS, [c_int32, _P, _N, _P, c_uint64, _P]),
    "value_destroy": (None, [_P]),
    "value_type": (_S, [_P]),
    "value_dtype": (c_int32, [_P]),
    "value_rank": (c_size_t, [_P]),
    "value_dims": (c_void_p, [_P]),
    "value_data": (c_void_p, [_P]),
    "value_bytes": (c_uint64, [_P]),
    "value_read_strings": (_STATUS, [_P, c_uint64, c_uint64, _P, _P, c_uint64]),
    "value_write_strings": (_STATUS, [_P, c_uint64, c_uint64, _P, _S, c_uint64]),
    "value_element_count": (c_uint64, [_P]),
    "value_element": (_STATUS, [_P, c_uint64, _P]),
    "value_create_sequence": (_STATUS, [_S, _P, _N, _P]),
    "value_create_optional": (_STATUS, [_S, _P, _P]),
    "value_create_map": (_STATUS, [_S, _P, _P, _P]),
    "value_kind": (c_int32, [_P]),
    "value_device": (_S, [_P]),
    "value_copy_to_host": (_STATUS, [_P, _P]),
    "value_borrow_on": (_STATUS, [_P, _S, c_int32, _P, _N, c_uint64, c_uint64, c_uint64, _P]),
    "session_create": (_STATUS, [_P, _S, _P, _P]),
    "session_create_from_memory": (_STATUS, [_P, _P, c_uint64, _P, _P]),
    "session_destroy": (None, [_P]),
    "session_count": (c_size_t, [_P, c_int32]),
    "session_name": (_S, [_P, c_int32, _N]),
    "session_type": (_S, [_P, c_int32, _N]),
    "session_rank": (c_int32, [_P, c_int32, _N]),
    "session_dims": (c_void_p, [_P, c_int32, _N]),
    "session_symbol": (_S, [_P, c_int32, _N, c_int32]),
    "session_text": (_S, [_P, c_int32]),
    "session_model_version": (c_int64, [_P]),
    "session_ir_version": (c_int64, [_P]),
    "session_opset": (c_int64, [_P, _S]),
    "session_metadata_count": (c_size_t, [_P]),
    "session_metadata_key": (_S, [_P, _N]),
    "session_metadata": (_S, [_P, _S]),
    "session_quantization": (_S, [_P, _S, _S]),
    "session_explain": (_STATUS, [_P, _P]),
    "session_statistics": (_STATUS, [_P, _P]),
    "session_memory": (_STATUS, [_P, _P]),
    "session_trace": (_STATUS, [_P, _P]),
    "session_option": (_STATUS, [_P, _S, _P]),
    "session_save_plan": (_STATUS, [_P, _S]),
    "session_run_with": (_STATUS, [_P, _P, _P, _P, _N, _P, _P, _N]),
    "session_run_tensors": (_STATUS, [_P, _P, _P, _N, _P, _N]),
    "session_path_count": (c_size_t, [_P]),
    "session_path_name": (_S, [_P, _N]),
    "session_path_output_count": (c_size_t, [_P, _S]),
    "session_run_path": (_STATUS, [_P, _S, _P, _P, _N, _P, _P, _N]),
    "session_synchronize": (_STATUS, [_P]),
    "session_save": (_STATUS, [_P, _P, _N]),
    "session_saved": (_STATUS, [_P, _S, _P]),
    "binding_create": (_STATUS, [_P, _P]),
    "binding_destroy": (None, [_P]),
    "binding_bind_input": (_STATUS, [_P, _S, _P]),
    "binding_bind_output": (_STATUS, [_P, _S, _P]),
    "binding_bind_output_to": (_STATUS, [_P, _S, _S]),
    "binding_take_output": (_STATUS, [_P, _S, _P]),
    "binding_clear_inputs": (_STATUS, [_P]),
    "binding_clear_outputs": (_STATUS, [_P]),
    "binding_resize": (_STATUS, [_P, _S, _P, _N]),
    "binding_input": (_STATUS, [_P, _S, _P]),
    "binding_run": (_STATUS, [_P]),
    "binding_run_with": (_STATUS, [_P, _P]),
    "binding_output": (c_void_p, [_P, _S]),
    "run_options_create": (_STATUS, [_P]),
    "run_options_destroy": (None, [_P]),
    "run_options_set": (_STATUS, [_P, _S, _S]),
    "run_options_get": (_STATUS, [_P, _S, _P]),
    "run_options_set_cancel": (_STATUS, [_P, _P]),
    "cancel_create": (_STATUS, [_P]),
    "cancel_destroy": (None, [_P]),
    "cancel_request": (_STATUS, [_P]),
    "cancel_reset": (_STATUS, [_P]),
    "cancel_is_requested": (c_int32, [_P]),
}


def _places() -> Iterator[str]:
    """Where the library may be, best first."""
    named = os.environ.get("BACKPLANE_LIBRARY")
    if named:
        yield os.path.join(named, NAME) if os.path.isdir(named) else named
        return
    yield str(PACKAGE / "lib" / NAME)  # a wheel
    yield str(PACKAGE.parent.parent / NAME)  # an installed tree: lib/python/backplane beside lib/libbackplane.so.1
    yield str(PACKAGE.parents[2] / "build/release/lib" / NAME)  # the source tree: core/python/backplane
    yield NAME  # where the loader looks


from_fallback: List[str] = []  # libraries that a wheel brings, and that the system has not


def _load_bundled() -> None:
    """Loads the libraries that a wheel brings, so that libbackplane and its plugins find them by name."""
    waiting = sorted((PACKAGE / "lib/bundled").glob("*.so*"))
    for file in sorted((PACKAGE / "lib/fallback").glob("*.so*")):
        try:
            ctypes.CDLL(file.name)  # the system's goes before ours: others in the process may need a newer one
        except OSError:
            waiting.append(file)
            from_fallback.append(file.name)
    while waiting:  # in the order of what they need, which nobody wrote down
        left: List[pathlib.Path] = []
        problem = None
        for file in waiting:
            try:
                ctypes.CDLL(str(file))
            except OSError as error:
                left.append(file)
                problem = error
        if len(left) == len(waiting):
            raise ImportError(f"backplane: a library of the package cannot be loaded: {problem}")
        waiting = left


def _open() -> Tuple[ctypes.CDLL, str]:
    tried: List[str] = []
    for place in _places():
        if os.path.sep in place and not os.path.exists(place):
            tried.append(f"{place} (not there)")
            continue
        try:
            if place.startswith(str(PACKAGE)):
                _load_bundled()
            return ctypes.CDLL(place), place
        except OSError as error:
            tried.append(f"{place} ({error})")
    raise ImportError(f"backplane: no {NAME}. Tried: " + "; ".join(tried) + ". Set BACKPLANE_LIBRARY to its file or folder.")


_dll, file = _open()


def _declared(name: str):
    """A function of the library with its types."""
    result, arguments = _FUNCTIONS[name]
    try:
        function = getattr(_dll, f"backplane_{name}")
    except AttributeError:
        raise ImportError(f"backplane: {file} has no function backplane_{name}: it is older than this package") from None
    function.restype = result
    function.argtypes = arguments
    return function


for _name in _FUNCTIONS:
    globals()[_name] = _declared(_name)


# A copy of the bytes at an address, as a bytearray.
bytearray_of = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, ctypes.c_ssize_t)(("PyByteArray_FromStringAndSize", ctypes.pythonapi))
_MOST_KEPT = 16
_INT64S = [c_int64 * count for count in range(_MOST_KEPT)]


def int64s(address: int, count: int) -> Tuple[int, ...]:
    """So many int64_t at an address."""
    if count == 0:
        return ()
    kind = _INT64S[count] if count < _MOST_KEPT else c_int64 * count
    return tuple(kind.from_address(address)[:])


def check(status) -> None:
    """Raises what a status says; does nothing for success."""
    if status is None:
        return
    code = globals()["status_code"](status)
    message = globals()["status_message"](status).decode("utf-8", "replace")
    globals()["status_free"](status)
    raise error_of(code, message)


def encode(text) -> bytes:
    """A text as the library takes it. Paths and names may hold bytes that are no UTF-8."""
    word = os.fsencode(text) if isinstance(text, os.PathLike) else text
    if isinstance(word, str):
        word = word.encode("utf-8", "surrogateescape")
    if not isinstance(word, bytes):
        raise TypeError(f"a text was expected, not {type(text).__name__}")
    if b"\0" in word:
        raise ValueError(f"a text cannot hold the character 0: {text!r}")
    return word


def decode(word) -> str:
    """A text of the library's; None is empty."""
    return word.decode("utf-8", "surrogateescape") if word else ""


def take_string(handle) -> str:
    """The text of a backplane_string, which ends."""
    functions = globals()
    try:
        return decode(ctypes.string_at(functions["string_data"](handle), functions["string_size"](handle)))
    finally:
        functions["string_destroy"](handle)


def text_from(function, *arguments) -> str:
    """Calls a function whose last argument is an out parameter for a text."""
    out = c_void_p()
    check(function(*arguments, ctypes.byref(out)))
    return take_string(out)


def made(function, *arguments) -> int:
    """Calls a function whose last argument is an out parameter for an object: the object's address."""
    out = c_void_p()
    check(function(*arguments, ctypes.byref(out)))
    return out.value or 0


def words(texts) -> Tuple[ctypes.Array, List[bytes]]:
    """An array of C strings, and what keeps them."""
    encoded = [encode(text) for text in texts]
    return (c_char_p * len(encoded))(*encoded), encoded


__all__ = ["bytearray_of", "check", "decode", "encode", "file", "int64s", "made", "take_string", "text_from", "words", *_FUNCTIONS]
