"""Exceptions: one class for each code of the library's statuses, all of them `Error`."""

from __future__ import annotations

from typing import Dict, Optional, Type


class Error(Exception):
    """What the library reports. `str(error)` is its message, which names the file, node, value or option, and what to do.

    `code` is the number of the status (`BACKPLANE_INVALID_ARGUMENT` and the others of backplane.h).
    """

    code = 8


class InvalidArgument(Error, ValueError):
    """The request, the model or a feed is wrong: mend it."""

    code = 1


class Unsupported(Error):
    """No provider handles it; the message has the reason of each."""

    code = 2


class NotFound(Error, LookupError):
    """A file, a key or a path through a model that is not there."""

    code = 3


class OutOfMemory(Error, MemoryError):
    """Memory of the host or a device is exhausted. The session stays usable."""

    code = 4


class DeviceLost(Error):
    """A device is gone: make a new session."""

    code = 5


class Cancelled(Error):
    """The run was ended by `RunOptions.cancel()`. The session stays usable."""

    code = 6


class Failed(Error, RuntimeError):
    """The model cannot be computed with these values, or a file cannot be written."""

    code = 7


class Internal(Error, RuntimeError):
    """A mistake of the library's own."""

    code = 8


class Unimplemented(Error, NotImplementedError):
    """A part of an interface that a plugin leaves out."""

    code = 9


class Incompatible(Error):
    """A file or plugin of another version."""

    code = 10


class Timeout(Error, TimeoutError):
    """Something took longer than it may."""

    code = 11


class FileFailed(Error, OSError):
    """A file could not be written (a full disk), or changed while it was in use."""

    code = 12


_BY_CODE: Dict[int, Type[Error]] = {
    kind.code: kind
    for kind in (InvalidArgument, Unsupported, NotFound, OutOfMemory, DeviceLost, Cancelled, Failed, Internal,
                 Unimplemented, Incompatible, Timeout, FileFailed)}


def error_of(code: int, message: str) -> Error:
    """The exception for a status."""
    kind = _BY_CODE.get(code)
    if kind is None:
        kind = Error
    error = kind(message)
    error.code = code
    return error


def nearest(word: str, known) -> str:
    """A sentence that names the nearest known word, or all of them."""
    import difflib

    close: Optional[list] = difflib.get_close_matches(word, list(known), 1, 0.5)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(sorted(known))}"


# What programs written for ONNX Runtime may ask for in vain, and what to do instead.
_REFUSED = {
    "set_seed": "set the attribute \"seed\" of the model's random nodes",
    "set_global_thread_pool_sizes": "call configure_environment(threads=N) before the first session",
    "get_profiling_start_time_ns": "times of a trace count from its first span",
    "create_and_register_allocator": "memory is limited by the option \"memory_limit\", and kept or not by \"arena\"",
    "enable_telemetry_events": "nothing is ever sent",
    "add_initializer": "feed it as an input of the run where the model lists it as one, or change the model with onnx",
    "add_external_initializers": "give the contents of files by add_external_data",
    "run_with_ortvaluevector": "run_with_ort_values takes a dict",
    "print_debug_info": "see describe_plugins() and get_build_info()",
    "SparseTensor": "sessions take and give dense tensors alone",
    "LoraAdapter": "feed the weights as inputs of the model",
    "OrtDevice": "devices are told by name, as IOBinding.bind_output(name, \"cuda\", 0)",
    "OrtMemoryInfo": "devices are told by name, as IOBinding.bind_output(name, \"cuda\", 0)",
}
_REFUSED.update({name: _REFUSED[like] for name, like in (
    ("create_and_register_allocator_v2", "create_and_register_allocator"), ("OrtArenaCfg", "create_and_register_allocator"),
    ("add_active_adapter", "LoraAdapter"))})


def refusal(of: str, name: str) -> str:
    """The message of an AttributeError."""
    instead = _REFUSED.get(name)
    return f"{of} has no attribute '{name}'" + (f", which ONNX Runtime has: {instead}" if instead else "")
