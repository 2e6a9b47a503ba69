#!/usr/bin/env python3
"""Write ONNX's nine light networks with random weights, as backend test folders.

  make_light_models.py OUT [--only NAME...]

The `onnx` wheel carries nine classic image networks without their weights: ConstantOfShape nodes
stand in for them, so that every filter is one repeated number and an output hardly depends on the
arithmetic. Here each weight is drawn at random instead, in the size that its reader needs to keep
the values in range. OUT/light_NAME gets model.onnx, test_data_set_0/{input,output}_K.pb and
data.json; K counts the graph inputs, which in these old models (IR 3) list the weights too. The
expected outputs are ONNX Runtime's with every optimisation off.

The same always comes out. All nine take 1.3 GB. Needs: onnx, onnxruntime, numpy.
"""
import argparse
import json
import pathlib
import sys
import zlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LIGHT_FOLDER = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
PREFIX = "light_"
RTOL = 1e-3
ATOL_OF_GREATEST = 1e-4  # atol, as a part of the greatest output


# How to draw a weight, by the operator that reads it and the position at which it does.
def he_filter(random, shape):
    return random.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / np.prod(shape[1:])))


def near(centre, spread):
    def draw(random, shape):
        return np.float32(centre) + np.float32(spread) * random.standard_normal(shape, np.float32)

    return draw


def variance(random, shape):
    return random.uniform(0.8, 1.25, shape).astype(np.float32)


DRAW = {
    ("Conv", 1): he_filter,
    ("Conv", 2): near(0, 0.02),
    ("Gemm", 1): he_filter,  # all of these are [outputs, inputs], with transB set
    ("Gemm", 2): near(0, 0.02),
    ("BatchNormalization", 1): near(1, 0.1),
    ("BatchNormalization", 2): near(0, 0.1),
    ("BatchNormalization", 3): near(0, 0.1),
    ("BatchNormalization", 4): variance,
    ("Mul", 1): near(1, 0.1),
    ("Add", 1): near(0, 0.1),
}
PASSES_ON = ("Unsqueeze", "Reshape")  # a weight may go through these on its way to its reader


class WeightMaker:
    """Draws the weights of one network; each depends on the network's and its own name alone."""

    def __init__(self, name, graph):
        self.name = name
        self.readers = {}
        for node in graph.node:
            for position, value in enumerate(node.input):
                self.readers.setdefault(value, []).append((node, position))

    def draw_of(self, value):
        """How to draw what goes by the name `value`; None where it is no weight."""
        for node, position in self.readers.get(value, []):
            if node.op_type in PASSES_ON and position == 0:
                return self.draw_of(node.output[0])
            return DRAW.get((node.op_type, position))
        return None

    def make(self, value, shape):
        draw = self.draw_of(value)
        if draw is None:
            sys.exit(f"make_light_models: {self.name}: nothing known of the reader of '{value}'")
        random = np.random.default_rng(zlib.crc32(f"{self.name}/{value}".encode()))
        return numpy_helper.from_array(draw(random, tuple(shape)), value)


def replace_weights(name, graph):
    """Make every weight an initializer with random values, and drop what nobody reads then."""
    maker = WeightMaker(name, graph)
    stored = {tensor.name: tensor for tensor in graph.initializer}
    kept_nodes, weights = [], {}
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shape = numpy_helper.to_array(stored[node.input[0]])
            weights[node.output[0]] = maker.make(node.output[0], shape)
        else:
            kept_nodes.append(node)
    read = {value for node in kept_nodes for value in node.input}
    for tensor in graph.initializer:
        if tensor.name in read:
            is_weight = tensor.data_type == TensorProto.FLOAT
            weights[tensor.name] = maker.make(tensor.name, tensor.dims) if is_weight else tensor

    inputs = [i for i in graph.input if i.name in weights or i.name not in stored]
    listed = {i.name for i in inputs}
    inputs += [
        helper.make_tensor_value_info(t.name, t.data_type, t.dims)
        for t in weights.values()
        if t.name not in listed
    ]
    for field, items in (
        (graph.node, kept_nodes),
        (graph.initializer, list(weights.values())),
        (graph.input, inputs),
    ):
        del field[:]
        field.extend(items)


def run(model, feeds, fetch=None):
    """The outputs of the model as written, or the inner value `fetch` alone."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if fetch is not None:
        observed = onnx.ModelProto()
        observed.CopyFrom(model)
        del observed.graph.output[:]
        observed.graph.output.append(helper.make_tensor_value_info(fetch, TensorProto.FLOAT, None))
        model = observed
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


def tame_last_layer(model, feeds):
    """Scale the last layer so that its outputs are about 1: a softmax over large ones is 0 and 1.

    The factor is a power of two, so that another machine's last bits do not change the model.
    """
    last = next(n for n in reversed(model.graph.node) if n.op_type in ("Conv", "Gemm"))
    (outputs,) = run(model, feeds, last.output[0])
    factor = np.float32(2.0 ** -np.round(np.log2(outputs.std())))
    for tensor in model.graph.initializer:
        if tensor.name in last.input[1:]:
            values = numpy_helper.to_array(tensor) * factor
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def picture(random, shape):
    """Coarse squares under fine noise. Noise alone would be averaged away before the last layer."""
    side = 32
    coarse = random.uniform(-2, 2, (*shape[:2], shape[2] // side, shape[3] // side))
    squares = np.kron(coarse, np.ones((side, side)))
    return (squares + random.uniform(-0.5, 0.5, shape)).astype(np.float32)


def write_case(name, folder):
    model = onnx.load(LIGHT_FOLDER / f"{PREFIX}{name}.onnx")
    graph = model.graph
    replace_weights(name, graph)
    weights = {tensor.name for tensor in graph.initializer}
    ((position, info),) = [(k, i) for k, i in enumerate(graph.input) if i.name not in weights]
    shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
    feeds = {info.name: picture(np.random.default_rng(zlib.crc32(f"{name} input".encode())), shape)}
    tame_last_layer(model, feeds)
    outputs = run(model, feeds)

    data = folder / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    for old in data.glob("*.pb"):
        old.unlink()
    onnx.save(model, folder / "model.onnx")
    tensors = {f"input_{position}": numpy_helper.from_array(feeds[info.name], info.name)}
    for k, (output, values) in enumerate(zip(graph.output, outputs)):
        tensors[f"output_{k}"] = numpy_helper.from_array(values, output.name)
    for file_name, tensor in tensors.items():
        (data / f"{file_name}.pb").write_bytes(tensor.SerializeToString())
    greatest = max(float(np.abs(v).max()) for v in outputs)
    tolerance = {"rtol": RTOL, "atol": float(f"{ATOL_OF_GREATEST * greatest:.0e}")}
    (folder / "data.json").write_text(json.dumps(tolerance) + "\n")
    spread = ", ".join(f"{v.shape} from {v.min():.3g} to {v.max():.3g}" for v in outputs)
    print(f"{PREFIX}{name}: {len(graph.node)} nodes, output {spread}", flush=True)


def main():
    names = sorted(p.stem[len(PREFIX) :] for p in LIGHT_FOLDER.glob(f"{PREFIX}*.onnx"))
    if not names:
        sys.exit(f"make_light_models: onnx {onnx.__version__} has no models in {LIGHT_FOLDER}")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", default=names, metavar="NAME", choices=names)
    arguments = parser.parse_args()
    for name in arguments.only:
        write_case(name, arguments.out / f"{PREFIX}{name}")


if __name__ == "__main__":
    main()
