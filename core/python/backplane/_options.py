"""Options of sessions and of runs."""

from __future__ import annotations

import enum
import os
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import _library as lib
from ._environment import provider_word, text_of
from ._errors import InvalidArgument, NotFound, Unsupported, refusal
from ._onnx_runtime import FORMATS, NO_CPU, OF_ONNX_RUNTIME, OPTION_OF_ENTRY, options_with_meaning, warn_of_entry


class GraphOptimizationLevel(enum.IntEnum):
    """How much a session changes the graph: option "optimization"."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Whether steps that do not depend on each other run at the same time: option "execution_mode"."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """Which of the orders that the graph allows: option "execution_order"."""

    DEFAULT = 0
    PRIORITY_BASED = 1


_OPTIMIZATION = {0: "none", 1: "basic", 2: "extended", 3: "all", 99: "all"}
_SEVERITY = {-1: "environment", 0: "debug", 1: "info", 2: "warning", 3: "error", 4: "off"}


def _option(key: str, meaning: str, words: Optional[Dict[int, str]] = None, kind: Any = str) -> property:
    """An attribute that is an option of the library's; `words`: what numbers of ONNX Runtime's are called there."""

    def get(self):
        text = self.get(key)
        if words is not None:
            found = [number for number, word in words.items() if word == text or (word, text) == ("debug", "trace")]
            return kind(found[-1]) if found else text
        if kind is bool:
            return text == "true"
        return int(text or 0) if kind is int else text

    def set(self, value):
        if words is not None and value not in words:
            raise InvalidArgument(f"{key} cannot be {value!r}; known: {', '.join(str(number) for number in words)}")
        if kind is bool and not isinstance(value, (bool, int)):
            raise InvalidArgument(f"{key} is True or False, not {value!r}")
        word = words[value] if words is not None else bool(value) if kind is bool else value
        self.set(key, "trace" if word == "debug" and self._verbosity > 0 else word)

    return property(get, set, doc=f'{meaning} (option "{key}")')


def _set_verbosity(options: Any, level: int) -> None:
    options._verbosity = int(level)
    if options._verbosity > 0 and options.get("log_level") == "debug":
        options.set("log_level", "trace")


_LOG_VERBOSITY = property(lambda options: options._verbosity, _set_verbosity,
                          doc="Above 0, with log_severity_level 0: everything is logged.")


class SessionOptions:
    """Options of a session. Every key of backplane.h is taken by `set(key, value)`; the attributes are those that are used most.

    An attribute, key or value that nobody knows is an error at once. Options are copied when a session is made: what is
    changed later changes the next session. Threads: one at a time.
    """

    __slots__ = ("_handle", "_calls", "_set", "_verbosity", "_keep", "_provider_options", "profile_file_prefix",
                 "use_per_session_threads")

    def __init__(self) -> None:
        self._handle = lib.made(lib.options_create)
        self._calls: List[Tuple[str, Tuple[Any, ...]]] = []  # what was called, to be done again: functions and arguments
        self._set: Dict[str, str] = {}
        self._verbosity = 0
        self._keep: List[Any] = []  # what the library borrows
        self._provider_options: Dict[str, Dict[str, str]] = {}
        self.profile_file_prefix = "backplane_profile_"
        # Either way sessions take threads of one pool, as many as intra_op_num_threads says; see configure_environment.
        self.use_per_session_threads = True

    def __del__(self, _destroy=lib.options_destroy):
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            _destroy(handle)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(refusal("SessionOptions", name))

    def _call(self, function: str, *arguments: Any) -> None:
        """Arguments are bytes, numbers, and tuples of bytes."""
        given = [lib.words(one) if isinstance(one, tuple) else (one, one) for one in arguments]
        lib.check(getattr(lib, function)(self._handle, *[array for array, _ in given]))
        self._calls.append((function, arguments))
        self._keep += given

    def __getstate__(self) -> Dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if name not in ("_handle", "_keep")}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__()
        for function, arguments in state["_calls"]:
            self._call(function, *arguments)
        for name, value in state.items():
            if name != "_calls":
                setattr(self, name, dict(value) if isinstance(value, dict) else value)  # copy.copy gives what the other one has

    def set(self, key: str, value: Any) -> None:
        """Sets any key of backplane.h ("place", "memory_limit.cuda", "path.NAME.inputs", "provider.NAME.OPTION" ...). Numbers and
        booleans may be given as such, lists of paths as lists."""
        text = text_of(value)
        self._call("options_set", lib.encode(key), lib.encode(text))
        self._set[key] = text

    def get(self, key: str) -> str:
        """What a key is set to, or its default. NotFound for a key with a name in it ("dim.N") that is not set."""
        return lib.text_from(lib.options_get, self._handle, lib.encode(key))

    def read_file(self, path: Any) -> None:
        """Reads a configuration file (TOML)."""
        self._call("options_read_file", lib.encode(path))

    def read_environment(self) -> None:
        """Takes what BACKPLANE_CONFIG, BACKPLANE_PROVIDERS and BACKPLANE_PLUGIN_PATH say."""
        self._call("options_read_environment")

    def place(self, pattern: str, provider: str) -> None:
        """A rule: nodes that fit the pattern (a name with '*', "op:NAME", "domain:NAME", "between:VALUE..VALUE") go to this provider, or
        nowhere. The first rule that fits counts."""
        self._call("options_add_placement", lib.encode(pattern), lib.encode(provider))

    def append_provider(self, name: str, options: Optional[Dict[str, Any]] = None) -> None:
        """The next provider in the order of preference, with options of its own. Options of ONNX Runtime's that say nothing here, of a
        provider under its name, are left out with a warning."""
        word, options = provider_word(name), options_with_meaning(name, dict(options or {}))
        if "device_id" in options:  # ONNX Runtime's
            base, mark = word.rstrip("?"), "?" if word.endswith("?") else ""
            word = f"{base}{mark}:{int(options.pop('device_id'))}"
        if name in OF_ONNX_RUNTIME and "gpu_mem_limit" in options:
            self.set(f"memory_limit.{word.partition('?')[0].partition(':')[0]}", options.pop("gpu_mem_limit"))
        words = {key: text_of(value) for key, value in options.items()}
        self._call("options_append_provider", lib.encode(word), tuple(lib.encode(key) for key in words),
                   tuple(lib.encode(value) for value in words.values()), len(words))
        self._provider_options[name] = words

    add_provider = append_provider

    def has_providers(self) -> bool:
        """Whether the options say which providers a session takes."""
        return self.get("providers") != "auto"

    def register_custom_ops_library(self, path: Any) -> None:
        """A library of custom operators; it is loaded when a session is made."""
        self._call("options_register_custom_ops", lib.encode(path))

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """The size of a symbolic dimension."""
        self.set(f"dim.{name}", int(size))

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """The size of dimensions with a denotation, such as DATA_BATCH."""
        self.set(f"dim_denotation.{denotation}", int(size))

    def add_session_config_entry(self, key: str, value: str) -> None:
        """A text that is kept with the session. Of ONNX Runtime's entries that change results or files some set what they mean, once a
        session is made: "session.disable_cpu_ep_fallback" the option "fallback", "session.model_external_initializers_file_folder_path"
        "external_data", "session.set_denormal_as_zero" "denormals_as_zero". Others that would do something else here, or nothing, are
        errors or warned of."""
        if key in FORMATS and value.upper() != "ONNX":
            raise Unsupported(f"'{key}' cannot be '{value}': models are read and written in ONNX's format alone")
        warn_of_entry(key, value)
        self.set(f"entry.{key}", value)

    def obey_entries(self) -> None:
        """Of the package's own use, of a session's copy: does what entries of ONNX Runtime's say."""
        for entry, (option, words) in OPTION_OF_ENTRY.items():
            value = self._set.get(f"entry.{entry}")
            if value:
                self.set(option, words.get(value, value))
        if self._set.get(f"entry.{NO_CPU}") != "1":
            return
        asked = self.get("providers")
        if asked == "auto" or "cpu" in [word.partition(":")[0].rstrip("?") for word in asked.split(",")]:
            raise InvalidArgument(f"'{NO_CPU}' says that no node may go to the CPU, which is among the providers; name others alone")
        self.set("fallback", "forbid")

    def get_session_config_entry(self, key: str) -> str:
        """What was kept under a key; NotFound where nothing was."""
        return _entry_of(self, key)

    def has_session_config_entry(self, key: str) -> bool:
        """Whether something is kept under a key."""
        try:
            self.get_session_config_entry(key)
        except NotFound:
            return False
        return True

    def add_external_data(self, location: str, data: bytes) -> None:
        """Contents of external data by the location that the model gives it; they come before files. The bytes are kept, not
        copied."""
        data = bytes(data)
        self._call("options_add_external_data", lib.encode(location), data, len(data))

    def add_external_initializers_from_files_in_memory(self, names: Sequence[str], buffers: Sequence[bytes],
                                                       lengths: Optional[Sequence[int]] = None) -> None:
        """As add_external_data, for several files."""
        sizes = lengths or [len(buffer) for buffer in buffers]
        for name, buffer, size in zip(names, buffers, sizes):
            self.add_external_data(name, bytes(buffer[:size]))

    intra_op_num_threads = _option("threads", "Threads of the session's loops; 0: the pool's.", kind=int)
    inter_op_num_threads = _option("inter_op_threads", "Threads for steps that run at the same time.", kind=int)
    execution_mode = _option("execution_mode", "ExecutionMode.", {0: "sequential", 1: "parallel"}, ExecutionMode)
    execution_order = _option("execution_order", "ExecutionOrder.", {0: "default", 1: "priority"}, ExecutionOrder)
    graph_optimization_level = _option("optimization", "GraphOptimizationLevel.", _OPTIMIZATION, GraphOptimizationLevel)
    enable_profiling = _option("profile", "Whether runs are traced, see InferenceSession.trace.", kind=bool)
    enable_mem_pattern = _option("memory_pattern", "Whether values of a run share memory by their lifetimes.", kind=bool)
    enable_mem_reuse = enable_mem_pattern  # one switch here
    enable_cpu_mem_arena = _option("arena", "Whether a run's memory is kept for the next one.", kind=bool)
    use_deterministic_compute = _option("deterministic", "The same bits in every run, whatever it costs.", kind=bool)
    optimized_model_filepath = _option("optimized_model_path", "File to save the optimized model to.")
    log_severity_level = _option("log_level", "0 debug, 1 info, 2 warnings, 3 errors, 4 nothing; -1: the environment's.", _SEVERITY,
                                 int)
    logid = property(lambda self: self._set.get("entry.logid", ""), lambda self, text: self.set("entry.logid", text),
                     doc="A name for the session, kept as its entry \"logid\".")

    log_verbosity_level = _LOG_VERBOSITY

    def copy(self) -> "SessionOptions":
        """Options of their own with the same settings."""
        made = SessionOptions()
        made.__setstate__(self.__getstate__())
        return made


class RunOptions:
    """Options of runs. They may serve many runs, also at a time, and are not changed while one of these goes on; `cancel` and
    `terminate` may be used at any time, from any thread."""

    __slots__ = ("_handle", "_cancel", "_synchronize", "_verbosity", "_set")

    def __init__(self) -> None:
        self._cancel = None
        self._handle = lib.made(lib.run_options_create)
        self._cancel = lib.made(lib.cancel_create)
        lib.check(lib.run_options_set_cancel(self._handle, self._cancel))
        self._synchronize, self._verbosity = True, 0
        self._set: Dict[str, str] = {}

    def __del__(self, _destroy=lib.run_options_destroy, _destroy_cancel=lib.cancel_destroy):
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            _destroy(handle)
        cancel, self._cancel = getattr(self, "_cancel", None), None
        if cancel:
            _destroy_cancel(cancel)

    def set(self, key: str, value: Any) -> None:
        """Sets a key of host/run.h: tag, log_level, only_path_to_fetches, shrink_arenas, synchronize, timeout_ms, entry.NAME."""
        text = text_of(value)
        lib.check(lib.run_options_set(self._handle, lib.encode(key), lib.encode(text)))
        self._set[key] = text
        if key == "synchronize":
            self._synchronize = self.get(key) == "true"

    def get(self, key: str) -> str:
        """What a key is set to."""
        return lib.text_from(lib.run_options_get, self._handle, lib.encode(key))

    def __getstate__(self) -> Dict[str, Any]:
        return {"_set": self._set, "_verbosity": self._verbosity}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__()
        for key, value in state["_set"].items():
            self.set(key, value)
        self._verbosity = state["_verbosity"]

    log_verbosity_level = _LOG_VERBOSITY

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(refusal("RunOptions", name))

    def cancel(self) -> None:
        """Ends the runs that have these options, within the kernel that is running, on a device when it has done the few that it was
        given: they raise Cancelled. Runs that begin later end at once, until `reset`."""
        lib.check(lib.cancel_request(self._cancel))

    def reset(self) -> None:
        """Takes a `cancel` back."""
        lib.check(lib.cancel_reset(self._cancel))

    @property
    def terminate(self) -> bool:
        """True ends the runs, as `cancel`; False lets later ones go on, as `reset`."""
        return bool(lib.cancel_is_requested(self._cancel))

    @terminate.setter
    def terminate(self, on: bool) -> None:
        (self.cancel if on else self.reset)()

    @property
    def timeout(self) -> Optional[float]:
        """Seconds that a run may take, counted from its call: past them it ends as by `cancel`, and raises Timeout.
        None: any time."""
        ms = self.get("timeout_ms")
        return float(ms) / 1000 if ms else None

    @timeout.setter
    def timeout(self, seconds: Optional[float]) -> None:
        self.set("timeout_ms", "" if seconds is None else f"{float(seconds) * 1000:.6f}")

    def add_run_config_entry(self, key: str, value: str) -> None:
        """A text that is shown with the run in traces. ONNX Runtime's "memory.enable_memory_arena_shrinkage" and
        "disable_synchronize_execution_providers" set what they mean here, too."""
        if key == "memory.enable_memory_arena_shrinkage":
            self.set("shrink_arenas", True)
        elif key == "disable_synchronize_execution_providers":
            self.set("synchronize", value != "1")
        self.set(f"entry.{key}", value)

    def get_run_config_entry(self, key: str) -> str:
        """What was set under a key; NotFound where nothing was."""
        return _entry_of(self, key)

    only_execute_path_to_fetches = _option("only_path_to_fetches", "Whether only what the fetches need is run.", kind=bool)
    synchronize = _option("synchronize", "False: run() may return while devices work, see InferenceSession.synchronize.", kind=bool)
    log_severity_level = _option("log_level", "As of SessionOptions; -1: the session's.", {**_SEVERITY, -1: ""}, int)
    run_tag = _option("tag", "A name for the run in traces and in the log.")
    logid = run_tag


class _NoEntry(NotFound, RuntimeError):
    """As ONNX Runtime's, a RuntimeError."""


def _entry_of(options: Any, key: str) -> str:
    try:
        return options.get(f"entry.{key}")
    except NotFound as error:
        raise _NoEntry(str(error)) from None


def options_with(given: Optional[SessionOptions], providers: Optional[Sequence[Any]],
                 provider_options: Optional[Sequence[Dict[str, Any]]]) -> SessionOptions:
    """A copy of the options with a list of providers, each a name or a pair (name, options)."""
    if given is not None and not isinstance(given, SessionOptions):
        raise InvalidArgument(f"sess_options is a {type(given).__name__}, not SessionOptions of this package")
    options = given.copy() if given is not None else SessionOptions()
    if provider_options is not None and len(provider_options) != len(providers or ()):
        raise InvalidArgument(f"provider_options has {len(provider_options)} entries, and providers {len(providers or ())}")
    if isinstance(providers, (str, bytes)):
        providers = [providers]
    seen = set()
    for place, entry in enumerate(providers or ()):
        name, more = entry if isinstance(entry, (tuple, list)) else (entry, None)
        if more is not None and provider_options is not None and provider_options[place]:
            raise InvalidArgument(f"options of the provider '{name}' are given twice: as a pair, and in provider_options")
        more = more or (provider_options[place] if provider_options else None) or {}
        known = f"{provider_word(name).rstrip('?')} {more.get('device_id', '')}"
        if known not in seen:  # get_available_providers() has two names for one
            options.append_provider(name, more)
        seen.add(known)
    return options


def path_of(model: Any) -> Optional[bytes]:
    """The path that a model is given by; None for its bytes."""
    return lib.encode(model) if isinstance(model, (str, os.PathLike)) else None


