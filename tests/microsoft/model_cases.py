"""Models of one operator with feeds, and what ONNX Runtime makes of them, as ONNX backend test folders."""
import json
from dataclasses import dataclass, field
from typing import Callable, Optional

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HALF_RTOL, HALF_ATOL = 2e-2, 2e-2
NEWEST_IR = 10


@dataclass
class Case:
    """One node. An input is an array, or None where it is left out; `outputs` says which outputs the model reads."""

    name: str
    op: str
    inputs: list
    attributes: dict = field(default_factory=dict)
    outputs: tuple = (True,)
    domain: str = "com.microsoft"
    constants: tuple = ()  # inputs that are initializers
    open_axes: Optional[dict] = None  # by input: axes of unknown size in the symbolic form; None: all but the last
    expected: Optional[Callable] = None  # of the inputs, where ONNX Runtime has no kernel for CPUs
    opset: int = 21
    rtol: float = 1e-4
    atol: float = 1e-5
    half: bool = False  # also in float16, compared with what float32 gives
    forms: tuple = ("static", "symbolic")
    half_forms: tuple = ("static",)
    narrow: bool = False  # its floats of 16 bits are not widened, which leaves it to the operator's body


def value_info(name, array, open_axes, symbolic):
    dims = [f"{name}_{axis}" if symbolic and axis in open_axes else size for axis, size in enumerate(array.shape)]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims)


def model_of(case, arrays, symbolic):
    inputs, initializers, names = [], [], []
    for k, array in enumerate(arrays):
        names.append("" if array is None else f"x{k}")
        if array is None:
            continue
        if k in case.constants:
            initializers.append(numpy_helper.from_array(array, names[-1]))
            continue
        if case.open_axes is None:
            axes = range(array.ndim - 1)
        else:
            axes = case.open_axes.get(k, ())
        inputs.append(value_info(names[-1], array, axes, symbolic))
    while names and not names[-1]:
        names.pop()
    outputs = [f"y{k}" if wanted else "" for k, wanted in enumerate(case.outputs)]
    node = helper.make_node(case.op, names, outputs, name="node", domain=case.domain, **case.attributes)
    infos = [helper.make_empty_tensor_value_info(name) for name in outputs if name]
    graph = helper.make_graph([node], "graph", inputs, infos, initializers)
    imports = [helper.make_opsetid("", case.opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=NEWEST_IR)


def run(model, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    serialized = model if isinstance(model, bytes) else model.SerializeToString()
    session = onnxruntime.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def feeds_of(case, arrays):
    return {f"x{k}": array for k, array in enumerate(arrays) if array is not None and k not in case.constants}


def as_type(array, dtype):
    return array.astype(dtype) if array is not None and array.dtype == np.float32 else array


def expected_of(case, arrays=None):
    arrays = case.inputs if arrays is None else arrays
    if case.expected is not None:
        made = case.expected(*arrays)
        return list(made) if isinstance(made, tuple) else [made]
    return run(model_of(case, arrays, False), feeds_of(case, arrays))


def set_types(model, outputs):
    for info, array in zip(model.graph.output, outputs):
        info.CopyFrom(helper.make_tensor_value_info(info.name, helper.np_dtype_to_tensor_dtype(array.dtype), None))


def write_folder(folder, model, inputs, outputs, rtol, atol):
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    (folder / "data.json").write_text(json.dumps({"rtol": rtol, "atol": atol}))
    for word, arrays in (("input", inputs), ("output", outputs)):
        for k, array in enumerate(arrays):
            (data / f"{word}_{k}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())


def write_case(case, folder):
    """Writes the case in all its forms; returns their names."""
    outputs = expected_of(case)
    names = []
    for form in case.forms:
        model = model_of(case, case.inputs, form == "symbolic")
        set_types(model, outputs)
        feeds = list(feeds_of(case, case.inputs).values())
        names.append(f"{case.op}.{case.name}.{form}")
        write_folder(folder / names[-1], model, feeds, outputs, case.rtol, case.atol)
    if case.half:
        halves = [as_type(array, np.float16) for array in case.inputs]
        rounded = [None if half is None else half.astype(np.float32) if half.dtype == np.float16 else half for half in halves]
        exact = expected_of(case, rounded)
        exact = [as_type(array, np.float16) for array in exact]
        for form in case.half_forms:
            model = model_of(case, halves, form == "symbolic")
            set_types(model, exact)
            names.append(f"{case.op}.{case.name}.half" + ("" if form == "static" else f".{form}"))
            write_folder(folder / names[-1], model, list(feeds_of(case, halves).values()), exact, HALF_RTOL, HALF_ATOL)
    return names


def reals(*shape, seed=0, scale=1.0):
    random = np.random.default_rng([seed, *shape])
    return (scale * random.standard_normal(shape)).astype(np.float32)


def whole(low, high, *shape, seed=0, dtype=np.int64):
    random = np.random.default_rng([seed, *shape])
    return random.integers(low, high, shape).astype(dtype)
