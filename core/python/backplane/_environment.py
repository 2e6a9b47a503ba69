"""What the sessions of a process share: log, threads, plugins, packed weights. Made when it is first needed."""

from __future__ import annotations

import atexit
import json
import os
import threading
from typing import Any, Dict, List, Optional

from . import _library as lib
from ._errors import Error, InvalidArgument, nearest

_lock = threading.Lock()
_handle: Optional[int] = None
_given: Dict[str, str] = {}

# ONNX Runtime's names of providers, and ours. Its sessions go on without a device that is not there, and warn: so does '?'.
OF_ONNX_RUNTIME = {"CPUExecutionProvider": "cpu", "CUDAExecutionProvider": "cuda?"}
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
    global _handle
    with _lock:
        if _handle is None:
            options = lib.made(lib.options_create)
            try:
                lib.check(lib.options_read_environment(options))
                for key, value in _given.items():
                    lib.check(lib.options_set(options, lib.encode(key), lib.encode(value)))
                _handle = lib.made(lib.environment_create, options, None, None)
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
    if severity not in _LEVELS:
        raise InvalidArgument(f"severity {severity} is none of 0 to 4")
    lib.check(lib.environment_set_log_level(environment(), lib.encode(_LEVELS[severity])))


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
    names: List[str] = []
    for name in scores():
        names.append(name)
        names += [theirs for theirs, ours in OF_ONNX_RUNTIME.items() if ours.rstrip("?") == name]
    return names


def get_all_providers() -> List[str]:
    """The names of providers whose plugins are loaded, with a device or without."""
    return sorted({row["provider"] for row in describe_plugins() if row["provider"]})


def get_device() -> str:
    """"GPU" where CUDA has a device, else "CPU"; as ONNX Runtime says it."""
    return "GPU" if "cuda" in scores() else "CPU"


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
