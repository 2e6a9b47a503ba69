"""What the tests of the Python package share: where the package and its library are, models, and how a file is run."""

import os
import pathlib
import sys
import unittest

SOURCE = pathlib.Path(os.environ.get("BACKPLANE_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("BACKPLANE_BUILD_DIR", SOURCE / "build/release"))
os.environ.setdefault("BACKPLANE_LIBRARY", str(BUILD / "lib"))
sys.path.insert(0, str(SOURCE / "core/python"))

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

DIGITS = SOURCE / "tests/data/digits"


def tensor(name, element, shape):
    """The declaration of a tensor."""
    return helper.make_tensor_value_info(name, element, shape)


def value(name, type_proto):
    """The declaration of a value of any type."""
    return helper.make_value_info(name, type_proto)


def model(nodes, inputs, outputs, initializers=(), opset=21, domains=(), **more):
    """The bytes of a model."""
    graph = helper.make_graph(list(nodes), "test", list(inputs), list(outputs), list(initializers))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(*domain) for domain in domains)]
    return helper.make_model(graph, ir_version=11 if opset > 21 else 10, opset_imports=opsets, **more).SerializeToString()


def one_node(op_type, inputs, outputs, opset=21, **attributes):
    """A model of one node, whose inputs and outputs are declarations."""
    node = helper.make_node(op_type, [one.name for one in inputs], [one.name for one in outputs], **attributes)
    return model([node], inputs, outputs, opset=opset)


def identity(element, shape, opset=24):
    """y = x, a tensor of this type."""
    return one_node("Identity", [tensor("x", element, shape)], [tensor("y", element, shape)], opset)


def mlp(batch=None, width=16):
    """Two layers: x of [batch, width] to y of [batch, 8]."""
    random = np.random.default_rng(7)
    weights = [("w1", (width, 32)), ("b1", (32,)), ("w2", (32, 8)), ("b2", (8,))]
    initializers = [numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name) for name, shape in weights]
    nodes = [helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], "first"), helper.make_node("Relu", ["h"], ["r"], "relu"),
             helper.make_node("Gemm", ["r", "w2", "b2"], ["y"], "second")]
    batch = "N" if batch is None else batch
    return model(nodes, [tensor("x", TensorProto.FLOAT, [batch, width])], [tensor("y", TensorProto.FLOAT, [batch, 8])],
                 initializers)


def mlp_by_numpy(model_bytes, x):
    """What the network computes."""
    weights = {one.name: numpy_helper.to_array(one) for one in onnx.load_from_string(model_bytes).graph.initializer}
    return np.maximum(x @ weights["w1"] + weights["b1"], 0) @ weights["w2"] + weights["b2"]


def long_model():
    """A loop that takes minutes."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["c_out"]), helper.make_node("Sin", ["v"], ["v_out"])], "body",
        [tensor("i", TensorProto.INT64, []), tensor("c", TensorProto.BOOL, []), tensor("v", TensorProto.FLOAT, [1000])],
        [tensor("c_out", TensorProto.BOOL, []), tensor("v_out", TensorProto.FLOAT, [1000])])
    trips = numpy_helper.from_array(np.array(10**9), "trips")
    on = numpy_helper.from_array(np.array(True), "on")
    return model([helper.make_node("Loop", ["trips", "on", "x"], ["y"], "loop", body=body)],
                 [tensor("x", TensorProto.FLOAT, [1000])], [tensor("y", TensorProto.FLOAT, [1000])], [trips, on])


def run_python(code, **environment):
    """Runs a program in a process of its own, which sees the package; raises with what it printed."""
    import subprocess

    paths = ":".join([str(SOURCE / "core/python"), str(SOURCE / "tests/python")])
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": paths, **environment})
    if made.returncode != 0:
        raise AssertionError(f"exit code {made.returncode}\n{made.stdout}{made.stderr}")
    return made.stdout


def main():
    """Runs the cases of the file; the last line has their numbers, as tools/test reads them."""
    result = unittest.main("__main__", exit=False, verbosity=1).result
    failed = len({getattr(case, "test_case", case).id() for case, _ in result.failures + result.errors})
    skipped = len(result.skipped)
    for case, reason in result.skipped:
        print(f"skipped: {case}: {reason}")
    print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)
