"""What the sessions of a process share: log, threads, plugins, packed weights. Made when it is first needed."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import sys
import threading
from typing import Any, Callable, Dict, Iterable, List, Optional

from . import _library as lib
from ._errors import Error, InvalidArgument, nearest
from ._onnx_runtime import OF_ONNX_RUNTIME, their_name

_lock = threading.Lock()
_handle: Optional[int] = None
_given: Dict[str, str] = {}
_severity, _verbosity = 2, 0
_callback: Optional[Callable[[int, str, str, str, str], None]] = None  # of the log
_hands_on = False  # whether the environment asks for it

_LEVELS = {0: "debug", 1: "info", 2: "warning", 3: "error", 4: "off"}


def configure_environment(**settings: Any) -> None:
    """Settings of the environment, before the first session is made: `configure_environment(threads=4, log_level="info")`.

    threads: of the pool that all sessions share, the caller's included; 0: as many as processors.
    spinning: whether idle threads look for work for a while before they sleep; False saves power, and time of others.
    log_level: "trace", "debug", "info", "warning" (default), "error" or "off"; lines go to standard error.
    plugin_path, plugin_exclude, custom_ops: a path or a list of them.
    The environment variables BACKPLANE_CONFIG and BACKPLANE_PLUGIN_PATH are read before these.

    Errors: InvalidArgument for a key or value that the library does not know; Error when a session was made already.
    """
    with _lock:
        if _handle is not None:
            raise Error("the environment was made already; configure_environment must be called before the first session, or "
                        "get_available_providers()")
        words = {f"environment.{key}": text_of(value) for key, value in settings.items()}
        check = lib.made(lib.options_create)
        try:
            for key, value in words.items():
                lib.check(lib.options_set(check, lib.encode(key), lib.encode(value)))
        finally:
            lib.options_destroy(check)
        _given.update(words)


def text_of(value: Any) -> str:
    """A value of an option as the library reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ":".join(os.fspath(one) for one in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def environment() -> int:
    """The environment's handle."""
    global _handle, _hands_on
    with _lock:
        if _handle is None:
            options = lib.made(lib.options_create)
            try:
                lib.check(lib.options_read_environment(options))
                for key, value in _given.items():
                    lib.check(lib.options_set(options, lib.encode(key), lib.encode(value)))
                _handle = lib.made(lib.environment_create, options, _hand_on if _callback is not None else None, None)
                _hands_on = _callback is not None
            finally:
                lib.options_destroy(options)
        return _handle


def _end() -> None:
    global _handle
    handle, _handle = _handle, None
    if handle:
        lib.environment_destroy(handle)  # sessions that live keep it


def _forget() -> None:
    """In the child of a fork: the pool's threads are the parent's, so the child makes an environment of its own."""
    global _handle, _lock
    _lock = threading.Lock()
    _handle = None


atexit.register(_end)
os.register_at_fork(after_in_child=_forget)


def set_default_logger_severity(severity: int) -> None:
    """What is logged from now on: 0 debug, 1 info, 2 warnings, 3 errors, 4 nothing."""
    global _severity
    if severity not in _LEVELS:
        raise InvalidArgument(f"severity {severity} is none of 0 to 4")
    level = "trace" if severity == 0 and _verbosity > 0 else _LEVELS[severity]
    lib.check(lib.environment_set_log_level(environment(), lib.encode(level)))
    _severity = severity


def set_default_logger_verbosity(level: int) -> None:
    """Above 0, with a severity of 0: everything is logged."""
    global _verbosity
    _verbosity = int(level)
    if _severity == 0:
        set_default_logger_severity(0)


def set_default_logger_callback(callback: Optional[Callable[[int, str, str, str, str], None]], severity: int = 2) -> None:
    """What is logged goes to `callback(severity, category, logid, code_location, message)` instead of standard error, with severity 0
    to 3 and empty strings for what Backplane's lines do not have; None: to standard error again. `severity`: as
    set_default_logger_severity.

    Threads: called by whatever thread logs; it should return soon, and must not run a session. What it raises goes to sys.unraisablehook.
    Errors: Error where the environment was made before without a callback, by a session or otherwise.
    """
    global _callback
    if callback is not None and not callable(callback):
        raise InvalidArgument(f"a callback is a function, not a {type(callback).__name__}")
    with _lock:
        if _handle is not None and not _hands_on:
            raise Error("the environment was made already, and logs to standard error; set_default_logger_callback must be called "
                        "before the first session, or get_available_providers()")
        _callback = callback
    if callback is not None:
        set_default_logger_severity(severity)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p)
def _hand_on(_context: Any, level: int, line: bytes) -> None:
    callback, text = _callback, lib.decode(line)
    if callback is None:
        print(text, file=sys.stderr)
    else:
        callback(max(level - 1, 0), "", "", "", text)


def register_custom_ops_library(path: Any) -> None:
    """Loads a library of custom operators for all sessions that are made from now on."""
    lib.check(lib.environment_register_custom_ops(environment(), lib.encode(path)))


def describe_plugins() -> List[Dict[str, Any]]:
    """Every plugin file that was found, and what became of it: "file", "status" ("loaded", "refused"), "reason", "provider",
    "version", "devices" (each "id", "name", "memory_bytes", "score"), "kernels", and the "options" of the provider with their meaning."""
    return json.loads(lib.text_from(lib.environment_providers, environment()))


def scores() -> Dict[str, int]:
    """The score of the best device of each provider that has one, by our names, the greatest first. Those of 0 serve only when they are
    named."""
    best = {row["provider"]: row["devices"][row["best_device"]]["score"] for row in describe_plugins() if row["devices"]}
    return dict(sorted(best.items(), key=lambda pair: -pair[1]))


def get_available_providers() -> List[str]:
    """The providers that have a device here, in the order in which a session takes them that was told nothing, and then those that
    serve only when they are named; each followed by the name that ONNX Runtime has for it: ["cpu", "CPUExecutionProvider"]. A
    session takes either."""
    return _by_both_names(scores())


def _by_both_names(ours: Iterable[str]) -> List[str]:
    names: List[str] = []
    for name in ours:
        names += [name] if their_name(name) == name else [name, their_name(name)]
    return names


def get_all_providers() -> List[str]:
    """The names of providers whose plugins are loaded, with a device or without, by both names as get_available_providers."""
    return _by_both_names(sorted({row["provider"] for row in describe_plugins() if row["provider"]}))


def get_device() -> str:
    """"GPU" where CUDA has a device, else "CPU"; as ONNX Runtime says it."""
    return "GPU" if "cuda" in scores() else "CPU"


def get_build_info() -> str:
    """The library's version and file, in one line."""
    return f"Backplane {get_version_string()}, {lib.file}"


def get_version_string() -> str:
    """The library's version."""
    return lib.decode(lib.version())


def has_collective_ops() -> bool:
    """False: there are no operators over several machines."""
    return False


def disable_telemetry_events() -> None:
    """Nothing to do: nothing is ever sent."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: Optional[str] = None) -> None:
    """Nothing to do: plugins find the libraries of their devices by themselves."""


def provider_word(name: str) -> str:
    """Our name for a provider that was given by ours ("cpu", "opencl:1", "cuda?") or by ONNX Runtime's. Which of ours there are is the
    library's to say."""
    if not isinstance(name, str):
        raise InvalidArgument(f"a provider is a name or a pair (name, options), not {name!r}")
    if name in OF_ONNX_RUNTIME:
        return OF_ONNX_RUNTIME[name]
    if name.endswith("ExecutionProvider"):
        raise InvalidArgument(f"there is no provider '{name}' here; {nearest(name, OF_ONNX_RUNTIME)} "
                              f"Providers of this process: {', '.join(get_all_providers())}")
    return name
