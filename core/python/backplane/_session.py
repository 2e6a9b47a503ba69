"""Sessions: a model that is loaded, placed and ready to run."""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from ctypes import c_int64
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from . import _library as lib
from ._binding import IOBinding
from ._environment import environment, scores
from ._errors import Error, InvalidArgument, Unsupported, refusal
from ._named import NamedRuns, check_call, result_of
from ._onnx_runtime import OF_ONNX_RUNTIME, optional_of, their_name, warn_of_absent
from ._options import RunOptions, SessionOptions, options_with, path_of
from ._quick import ReadyRuns
from ._values import Value, addresses_in, python_of

_INPUTS, _OUTPUTS, _OVERRIDABLE = range(3)


class NodeArg:
    """An input or output of a model.

    name; type: as "tensor(float)"; shape: a list with, for each dimension, its size, the name of its symbol, or None where nothing
    is known; None where not even the rank is.
    """

    __slots__ = ("name", "type", "shape")

    def __init__(self, name: str, type: str, shape: Optional[List[Union[int, str, None]]]):
        self.name, self.type, self.shape = name, type, shape

    def __repr__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


class ModelMetadata:
    """What a model says of itself: texts are "" where it says nothing."""

    __slots__ = ("producer_name", "producer_version", "graph_name", "graph_description", "domain", "description", "version",
                 "ir_version", "opset", "custom_metadata_map")

    def __init__(self, session: int):
        texts = [lib.decode(lib.session_text(session, which)) for which in range(6)]
        (self.producer_name, self.producer_version, self.domain, self.description, self.graph_name,
         self.graph_description) = texts
        self.version: int = lib.session_model_version(session)
        self.ir_version: int = lib.session_ir_version(session)
        self.opset: int = lib.session_opset(session, None)
        keys = [lib.session_metadata_key(session, place) for place in range(lib.session_metadata_count(session))]
        self.custom_metadata_map: Dict[str, str] = {
            lib.decode(key): lib.decode(lib.session_metadata(session, key)) for key in keys}


_OF_THIS_PROCESS = {"_handle", "_ready", "_pending", "_inputs", "_outputs", "_overridable", "_named"}  # of a session's attributes
_sessions: "weakref.WeakSet[InferenceSession]" = weakref.WeakSet()


class InferenceSession:
    """A model that is loaded, placed on devices and ready to run.

    model: a path, the bytes of a model, or an onnx.ModelProto. A model with external data has it beside its file; for bytes the
        option "external_data" names the folder.
    sess_options: SessionOptions; copied.
    providers: in order of preference, names of ours ("cpu", "opencl", "cuda"; "opencl:1" is its second device, "cuda?" may be
        missing) or of ONNX Runtime's ("CPUExecutionProvider", "CUDAExecutionProvider"; any but the CPU's may be missing, with a
        warning), each also as a pair with options. Without, the option "providers" holds, whose default is all that have a device.
    provider_options: a dict for each provider, where they are not given in pairs.
    disabled_optimizers: names of graph passes, as option "disabled_passes". enable_fallback: False is how it is, True is an error.

    Threads: any number may run it at a time; the interpreter goes on with other threads meanwhile. In the child of a fork the session
    cannot be used; make a new one there.
    Pickling: a session is pickled as its path (made absolute) or its bytes, with its options, and made again where it is read, in the
    environment of that process. What `save` asked for, and what ran, stays behind.
    Interrupts: Ctrl-C is seen when the run has returned. Where runs are so long that they must be ended before, run in a thread
    and call `RunOptions.cancel()` from another one.
    Errors: a class of exceptions for each kind, all of them `backplane.Error`; the message says what to do.
    """

    def __init__(self, path_or_bytes: Any, sess_options: Optional[SessionOptions] = None,
                 providers: Optional[Sequence[Any]] = None,
                 provider_options: Optional[Sequence[Dict[str, Any]]] = None, *,
                 disabled_optimizers: Optional[Sequence[str]] = None, enable_fallback: bool = False):
        self._handle: Optional[int] = None
        path = path_of(path_or_bytes)
        self._path = None if path is None else os.path.abspath(path)  # another process may have another folder
        self._model = _bytes_of(path_or_bytes) if path is None else b""
        self._given = options_with(sess_options, None, None)
        if disabled_optimizers:
            self._given.set("disabled_passes", ",".join(disabled_optimizers))
        if enable_fallback:
            self.enable_fallback()
        self._open(path, options_with(self._given, providers, provider_options), _their_names(providers))

    def _open(self, path: Optional[bytes], options: SessionOptions, theirs: Dict[str, str]) -> None:
        """Makes the library's session; where that fails, what there was before is left. `theirs`: see _their_names."""
        options.obey_entries()
        theirs = {**_their_names(options._provider_options), **theirs}
        optional = optional_of(theirs.values())
        if optional:
            warn_of_absent(optional, list(scores()))
        if path is not None:
            handle = lib.made(lib.session_create, environment(), path, options._handle)
        else:  # the library reads from these bytes as long as its session lives
            handle = lib.made(lib.session_create_from_memory, environment(), self._model, len(self._model), options._handle)
        before, self._handle = self._handle, handle
        if before:
            lib.session_destroy(before)
        self._options, self._theirs = options, theirs
        self._ready = ReadyRuns()
        self._pending: List[Any] = []
        self._inputs, self._outputs, self._overridable = (self._list(which) for which in range(3))
        self._named = NamedRuns(self._overridable + self._inputs, self._outputs)
        _sessions.add(self)

    def __getstate__(self) -> Dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _OF_THIS_PROCESS}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self._handle = None
        self.__dict__.update(state)
        self._open(self._path, self._options, self._theirs)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(refusal(type(self).__name__, name))

    def __del__(self, _destroy=lib.session_destroy):
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            _destroy(handle)

    def _open_handle(self) -> int:
        if not self._handle:
            raise Error("the session was made before the process was forked, and its threads are the parent's: make one in the child")
        return self._handle

    # ---- The model ----

    def get_inputs(self) -> List[NodeArg]:
        """The inputs that a run must be fed."""
        return list(self._inputs)

    def get_outputs(self) -> List[NodeArg]:
        """The outputs, in the order in which `run` gives them."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> List[NodeArg]:
        """Initializers that a run may be fed instead of what the model has."""
        return list(self._overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says of itself."""
        return ModelMetadata(self._open_handle())

    def get_providers(self) -> List[str]:
        """The providers of the session in order of preference, of optional ones those that have a device, and the CPU where nodes fell
        back to it. They are named as they were asked for; those that nobody named by ONNX Runtime's names, where it has one. Where
        each node went, and why, is in `explain`."""
        asked, there = self.option("providers"), scores()
        entries = [] if asked == "auto" else [(entry.partition(":")[0].rstrip("?"), "?" in entry) for entry in asked.split(",")]
        names = [self._theirs.get(name, name) for name, is_optional in entries if name in there or not is_optional]
        if asked == "auto":
            names = [their_name(name) for name, score in there.items() if score > 0]
        falls = "cpu" in (name.partition(":")[0] for name in self.statistics()["nodes_on"])
        if falls and "cpu" not in names:
            names.append("CPUExecutionProvider")
        return list(dict.fromkeys(names))

    def get_provider_options(self) -> Dict[str, Dict[str, str]]:
        """The options that each provider was given."""
        given = self._options._provider_options
        return {name: dict(given.get(name, {})) for name in self.get_providers()}

    def set_providers(self, providers: Optional[Sequence[Any]] = None,
                      provider_options: Optional[Sequence[Dict[str, Any]]] = None) -> None:
        """Makes the session again with other providers, given as when it was made; None: all that have a device. Where that fails the
        session stays as it was. No other thread may use it meanwhile. Bindings stay those of the session before."""
        self._open_handle()
        self._open(self._path, options_with(self._given, providers, provider_options), _their_names(providers))

    def disable_fallback(self) -> None:
        """Nothing to do: a run that fails is not tried again on other providers. Which providers nodes go to that their first one does
        not take is the option "fallback"."""

    def enable_fallback(self) -> None:
        """Unsupported: ONNX Runtime makes a session that fails again with other providers, and prints that it did."""
        raise Unsupported("a session does not go on with other providers when one fails; name those that may be missing as 'cuda?', "
                          "or catch the error and call set_providers")

    @property
    def _model_path(self) -> Optional[str]:
        """As ONNX Runtime's programs ask for it: where the model was read from; None for bytes."""
        return None if self._path is None else lib.decode(self._path)

    def get_session_options(self) -> SessionOptions:
        """A copy of the options that the session was made with."""
        return self._options.copy()

    # ---- Runs ----

    def run(self, output_names: Optional[Sequence[str]], input_feed: Mapping[str, Any],
            run_options: Optional[RunOptions] = None) -> List[Any]:
        """Runs the model; the outputs as a list.

        output_names: outputs, or any inner values, by name; None or empty: all outputs.
        input_feed: by name, an array or a Value; numbers and lists of Python's where the input's type says what they are; lists for
            sequences, dicts for maps, None for optionals without an element. An array must have the input's dtype: nothing is
            cast. It may have any strides; contiguous ones are read where they lie. Nobody may write it meanwhile.
        run_options: RunOptions.

        Results are arrays (of str for strings), lists, dicts, or None for an optional without an element. They are the caller's own:
        no later run changes them, and they may outlive the session.
        """
        if run_options is None or run_options._synchronize:
            results = self._ready.run(tuple(output_names) if output_names else None, input_feed, run_options)
            if results is not None:
                return results
        return self._run_by_name(output_names, input_feed, run_options)

    def _run_by_name(self, output_names: Any, feed: Any, options: Optional[RunOptions]) -> List[Any]:
        handle = self._open_handle()
        if options is not None and not options._synchronize:
            return [python_of(value) for value in self._run_on(output_names, feed, options)]  # views: what is in them comes later
        results = self._named.run(handle, output_names, feed, options)
        key = tuple(output_names) if output_names else None
        self._ready.consider(handle, key, feed, list(key or self._named.output_names), results)
        return results

    def _run_on(self, output_names: Any, feed: Any, options: RunOptions) -> List[Value]:
        """A run that goes on after the call."""
        values, keep = self._named.run_of_values(self._open_handle(), output_names, feed, options)
        self._pending.append(keep)
        return values

    def run_with_ort_values(self, output_names: Optional[Sequence[str]], input_dict_ort_values: Mapping[str, Any],
                            run_options: Optional[RunOptions] = None) -> List[Value]:
        """As `run`, with results as values. Sequences among them may share elements with each other, and with values that were fed."""
        if run_options is not None and not run_options._synchronize:
            return self._run_on(output_names, input_dict_ort_values, run_options)
        return self._named.run_to_values(self._open_handle(), output_names, input_dict_ort_values, run_options)

    run_with_values = run_with_ort_values

    def run_async(self, output_names: Optional[Sequence[str]], input_feed: Mapping[str, Any],
                  callback: Callable[[List[Any], Any, str], None], user_data: Any = None,
                  run_options: Optional[RunOptions] = None) -> None:
        """As `run`, in a thread of its own; returns at once. That thread calls `callback(results, user_data, error)`: `error` is "" for a
        run that succeeded, else what it failed with, and there are no results. Arrays must not be written before."""
        check_call(output_names, input_feed)
        if not callable(callback):
            raise InvalidArgument(f"callback is a function of (results, user_data, error), not a {type(callback).__name__}")
        self._open_handle()
        names, feed = list(output_names or ()), dict(input_feed)

        def work() -> None:
            """The thread's."""
            results: List[Any] = []
            problem = ""
            try:
                results = self.run(names, feed, run_options)
            except Exception as error:  # the callback's to handle, whatever it is
                problem = str(error) or type(error).__name__
            callback(results, user_data, problem)

        threading.Thread(target=work, name="backplane.run_async").start()

    def run_path(self, path: str, output_names: Optional[Sequence[str]], input_feed: Mapping[str, Any]) -> List[Any]:
        """Runs a path through the model, which options "path.NAME.inputs", "path.NAME.outputs" ... describe. NotFound for one that the
        session does not have."""
        values, _ = self._named.run_of_values(self._open_handle(), output_names, input_feed, path=lib.encode(path))
        taken = addresses_in(input_feed.values())
        return [result_of(value, taken) for value in values]

    def get_paths(self) -> List[str]:
        """The paths that the session has."""
        handle = self._open_handle()
        return [lib.decode(lib.session_path_name(handle, place)) for place in range(lib.session_path_count(handle))]

    def io_binding(self) -> IOBinding:
        """A binding: inputs and outputs that stay between runs."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Optional[RunOptions] = None) -> None:
        """Runs with what is bound."""
        iobinding.run(run_options)

    def synchronize(self) -> None:
        """Waits for what runs with RunOptions.synchronize = False left going on; their results may be read then."""
        lib.check(lib.session_synchronize(self._open_handle()))
        self._pending.clear()

    # ---- What it says of itself ----

    def explain(self) -> Dict[str, Any]:
        """All that is known of the model and its placement: "nodes" with their provider and the reasons of those that did not get
        them, "copies" with their causes, "remarks", "options" and more; the form of `backplane inspect --json`."""
        return json.loads(lib.text_from(lib.session_explain, self._open_handle()))

    def statistics(self) -> Dict[str, Any]:
        """Figures: "load_ms", "plan_ms", "plans", "arena_bytes", "nodes_on" (nodes by provider), "copies" and more."""
        return json.loads(lib.text_from(lib.session_statistics, self._open_handle()))

    def memory(self) -> Dict[str, Any]:
        """What lies where: "arenas", "plans" with the place of each value, "weights"."""
        return json.loads(lib.text_from(lib.session_memory, self._open_handle()))

    def trace(self) -> Dict[str, Any]:
        """The spans of all runs since the last call, as Chrome and Perfetto read them. The session must have been made with
        SessionOptions.enable_profiling."""
        return json.loads(lib.text_from(lib.session_trace, self._open_handle()))

    def end_profiling(self) -> str:
        """Writes `trace()` to a file named after SessionOptions.profile_file_prefix; its path."""
        file = f"{self._options.profile_file_prefix}{os.getpid()}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"
        with open(file, "w", encoding="utf-8") as out:
            json.dump(self.trace(), out)
        return file

    def save_plan(self, path: Any) -> None:
        """Writes what was decided, and packed weights. A session of the same model with the option "saved_plan" is ready sooner."""
        lib.check(lib.session_save_plan(self._open_handle(), lib.encode(path)))

    def save(self, names: Sequence[str]) -> None:
        """Values of the model that are readable after every run by `saved`, whatever it fetches; an empty list ends it."""
        array, _ = lib.words(names)
        lib.check(lib.session_save(self._open_handle(), array, len(array)))
        # Quick runs save apart from those by name.
        self._ready.drop()
        self._ready.paused = bool(names)

    def saved(self, name: str) -> Any:
        """What the last `run` saved under a name; None before the first. To be read: that run's results may have the same memory."""
        pointer = lib.made(lib.session_saved, self._open_handle(), lib.encode(name))
        return python_of(Value(pointer)) if pointer else None

    def option(self, key: str) -> str:
        """What an option is for this session; "entry.KEY" is what was kept there."""
        return lib.text_from(lib.session_option, self._open_handle(), lib.encode(key))

    def quantization(self, value: str, parameter: str) -> Optional[str]:
        """The tensor that the model's annotations name as a parameter ("SCALE_TENSOR") of a value."""
        found = lib.session_quantization(self._open_handle(), lib.encode(value), lib.encode(parameter))
        return lib.decode(found) if found else None

    def _list(self, which: int) -> List[NodeArg]:
        handle = self._open_handle()
        rows = []
        for place in range(lib.session_count(handle, which)):
            rank = lib.session_rank(handle, which, place)
            dims = (c_int64 * rank).from_address(lib.session_dims(handle, which, place)) if rank > 0 else ()
            symbols = [lib.session_symbol(handle, which, place, axis) for axis in range(max(rank, 0))]
            shape = None if rank < 0 else [
                size if size >= 0 else lib.decode(symbol) or None for size, symbol in zip(dims, symbols)]
            rows.append(NodeArg(lib.decode(lib.session_name(handle, which, place)),
                                lib.decode(lib.session_type(handle, which, place)), shape))
        return rows


def _their_names(providers: Any) -> Dict[str, str]:
    """By our names of providers those by which they were asked for, where these are ONNX Runtime's."""
    entries = [providers] if isinstance(providers, str) else (providers or [])
    names = [entry[0] if isinstance(entry, (tuple, list)) else entry for entry in entries]
    return {OF_ONNX_RUNTIME[name].rstrip("?"): name for name in names if name in OF_ONNX_RUNTIME}


def _bytes_of(model: Any) -> bytes:
    if isinstance(model, bytes):
        return model
    if isinstance(model, (bytearray, memoryview)):
        return bytes(model)
    if hasattr(model, "SerializeToString"):
        return model.SerializeToString()
    raise InvalidArgument(f"a model is a path, bytes or an onnx.ModelProto, not a {type(model).__name__}")


def _abandon() -> None:
    """In the child of a fork: the sessions' threads are not there, so nothing of them can be used or ended."""
    for session in list(_sessions):
        session._handle = None
        session._ready.abandon()


os.register_at_fork(after_in_child=_abandon)
