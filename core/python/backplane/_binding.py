"""Bindings: inputs and outputs that stay between runs."""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from . import _library as lib
from ._errors import InvalidArgument
from ._types import element_of
from ._values import Value, dims_of, not_copied, own, python_of, value_of


class _Output(Value):
    """An output of a binding. It belongs to the binding until that is told of the output again, which lets go of the value that it
    stands for then: as long as its memory changes with the next run, arrays of it are copies."""

    __slots__ = ("_binding", "_name")

    def __init__(self, binding: "IOBinding", name: str):
        super().__init__(0)
        self._binding, self._name = binding, name

    def _pointer(self) -> Optional[int]:
        pointer = self._handle or lib.binding_output(self._binding._open_handle(), lib.encode(self._name))
        if not pointer:
            raise InvalidArgument(f"no run of the binding has made the output '{self._name}' yet")
        return pointer

    def _let_go(self) -> bool:
        """The value is this one's own from now on; the binding makes another. False where no run has made one."""
        name = lib.encode(self._name)
        if lib.binding_output(self._binding._open_handle(), name):
            self._handle = lib.made(lib.binding_take_output, self._binding._open_handle(), name)
        return bool(self._handle)

    def data_ptr(self) -> int:
        """The address, until the next run of the binding where the value is the binding's."""
        return super().data_ptr()

    def numpy(self) -> Any:
        """What the last run made, copied where the next one writes over it."""
        made = python_of(self)
        return made if self._handle else own(made)

    to_python = numpy


class IOBinding:
    """Inputs and outputs that stay between runs: `session.io_binding()`. Names are looked up once, and with equal shapes a run
    allocates nothing.

    Ownership: the binding keeps arrays and values that are bound to it. Outputs that it was given no memory for are its own, and
    are written again by each run. Where `bind_output` is called again, or outputs are cleared, values of `get_outputs` that are
    still there stay as they are, and the next run makes others: so one run's output may be an input of the next. Threads:
    one at a time; many bindings of a session may run at a time.
    """

    def __init__(self, session: Any):
        self._handle = None
        self._session = session
        self._handle = lib.made(lib.binding_create, session._open_handle())
        self._inputs: Dict[str, Value] = {}
        self._outputs: Dict[str, Any] = {}  # a value; None for one of the binding's own
        self._given: "weakref.WeakValueDictionary[str, _Output]" = weakref.WeakValueDictionary()  # of get_outputs

    def __del__(self, _destroy=lib.binding_destroy):
        handle, self._handle = getattr(self, "_handle", None), None
        if handle and self._session._handle:  # not in the child of a fork
            _destroy(handle)

    __reduce__ = not_copied("a backplane.IOBinding", "make another one with session.io_binding()")

    def _open_handle(self) -> int:
        if not self._session._handle:  # in the child of a fork
            self._session._open_handle()
        return self._handle

    # ---- Inputs ----

    def bind_cpu_input(self, name: str, array: Any) -> None:
        """Binds an array (or a list, a dict, as `run` takes it). Contiguous, aligned ones are not copied: what is written to the array is
        what the next run reads."""
        self.bind_ortvalue_input(name, value_of(array, self._session._named.type_of(name), f"the input '{name}'"))

    def bind_input(self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int],
                   buffer_ptr: int) -> None:
        """Binds memory of the caller's, which must stay until it is replaced: an address of the host's, or with device_type "cuda" or
        "opencl" a CUdeviceptr or a cl_mem of a device of the session."""
        self.bind_ortvalue_input(name, self._borrow(device_type, device_id, element_type, shape, buffer_ptr))

    def bind_ortvalue_input(self, name: str, value: Value) -> None:
        """Binds a value."""
        lib.check(lib.binding_bind_input(self._open_handle(), lib.encode(name), value._pointer()))
        self._inputs[name] = value

    bind_value_input = bind_ortvalue_input

    def clear_binding_inputs(self) -> None:
        """Forgets all inputs."""
        lib.check(lib.binding_clear_inputs(self._open_handle()))
        self._inputs.clear()

    # ---- Outputs ----

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None,
                    shape: Optional[Sequence[int]] = None, buffer_ptr: Optional[int] = None) -> None:
        """The next runs make this output, in memory of the binding's own, or of a device of the session ("cuda", "opencl"), or at
        `buffer_ptr`, which must stay. Where no output is bound, runs make all of the model's, in host memory. Called again, values
        that `get_outputs` gave of it stay as they are."""
        if buffer_ptr is not None:
            self.bind_ortvalue_output(name, self._borrow(device_type, device_id, element_type, shape, buffer_ptr))
            return
        self._let_go(name)
        if device_type.lower() == "cpu":
            lib.check(lib.binding_bind_output(self._open_handle(), lib.encode(name), None))
        else:
            lib.check(lib.binding_bind_output_to(self._open_handle(), lib.encode(name), _device(device_type, device_id)))
        self._outputs[name] = None

    def bind_ortvalue_output(self, name: str, value: Value) -> None:
        """Runs write this value, which must have the type and shape that they make."""
        self._let_go(name)
        lib.check(lib.binding_bind_output(self._open_handle(), lib.encode(name), value._pointer()))
        self._outputs[name] = value

    bind_value_output = bind_ortvalue_output

    def bind_cpu_output(self, name: str, array: np.ndarray) -> None:
        """Runs write this array: contiguous, aligned, and of the shape and dtype that they make."""
        value = Value.from_numpy(array) if isinstance(array, np.ndarray) and array.flags.writeable else None
        if value is None or array.size and value.data_ptr() != array.ctypes.data:  # what is written to a copy is never seen
            raise InvalidArgument(f"the output '{name}' is written to a contiguous, aligned array of numbers that can be written: give "
                                  "numpy.empty(shape, dtype), or bind_output(name) and take copy_outputs_to_cpu()")
        self.bind_ortvalue_output(name, value)

    def clear_binding_outputs(self) -> None:
        """Forgets all outputs. Values that `get_outputs` gave stay as they are."""
        for name in list(self._given):
            self._let_go(name)
        lib.check(lib.binding_clear_outputs(self._open_handle()))
        self._outputs.clear()

    # ---- Results ----

    def _names(self) -> List[str]:
        return list(self._outputs) or [output.name for output in self._session.get_outputs()]

    def get_outputs(self) -> List[Value]:
        """What the last run made, in the order in which outputs were bound. Values of the binding's own show what its latest run made."""
        return [self._outputs.get(name) or self._own(name) for name in self._names()]

    def get_outputs_as_ortvaluevector(self) -> List[Value]:
        """As get_outputs."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> List[Any]:
        """Arrays of their own with what the last run made."""
        return [own(python_of(value)) for value in self.get_outputs()]

    def synchronize_inputs(self) -> None:
        """Nothing to do: a binding's inputs are in place when it runs."""

    def synchronize_outputs(self) -> None:
        """Waits for what runs with synchronize=False left going on."""
        self._session.synchronize()

    def run(self, run_options: Optional[Any] = None) -> None:
        """`session.run_with_iobinding(binding, run_options)`."""
        lib.check(lib.binding_run_with(self._open_handle(), None if run_options is None else run_options._handle))

    # ---- Inside ----

    def _borrow(self, device_type: str, device_id: int, element_type: Any, shape: Any, address: int) -> Value:
        element = element_of(element_type)
        dims = tuple(int(size) for size in shape)
        count = int(np.prod(dims, dtype=np.int64))
        size = element.bytes_of(count)
        if device_type.lower() == "cpu":
            return Value(lib.made(lib.value_borrow, element.number, dims_of(dims), len(dims), int(address), size))
        return Value(lib.made(lib.value_borrow_on, self._session._open_handle(), _device(device_type, device_id), element.number,
                              dims_of(dims), len(dims), int(address), 0, size))

    def _own(self, name: str) -> _Output:
        """The value that stands for an output of the binding's own: one at a time."""
        known = self._given.get(name)
        if known is None:
            known = self._given[name] = _Output(self, name)
        return known

    def _let_go(self, name: str) -> None:
        """What somebody has of an output of the binding's own is theirs, as it is; another is made where nobody has any."""
        known = self._given.get(name)
        if known is not None and known._let_go():
            del self._given[name]


def _device(device_type: str, device_id: int) -> bytes:
    """A device as sessions name it: "cuda" is the only one of its provider, "cuda:1" one of several."""
    return lib.encode(device_type.lower() if device_id == 0 else f"{device_type.lower()}:{device_id}")
