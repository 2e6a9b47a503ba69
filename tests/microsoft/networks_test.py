"""Networks as ONNX Runtime writes them, with its own operators, agree with it; what is not supported says so.

Small encoders, decoders and convolutional networks are saved by ONNX Runtime at its level `extended`, and quantized by
its static quantizer in its own operators (QOperator).
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx
import onnxruntime
from model_cases import reals, run, whole, write_folder
from onnx import TensorProto, helper, numpy_helper

PROGRAM = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"]) / "bin/backplane"
HIDDEN, HEADS, LENGTH = 32, 4, 6
QUANTIZED_ATOL = 0.4  # bytes that are rounded the other way early show in later layers; the operators are compared exactly


class Network:
    """Nodes one after the other."""

    def __init__(self):
        self.nodes, self.weights, self.count = [], [], 0

    def op(self, kind, *inputs, **attributes):
        self.count += 1
        output = f"v{self.count}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], name=f"{kind}_{self.count}", **attributes))
        return output

    def weight(self, array):
        self.count += 1
        self.weights.append(numpy_helper.from_array(array, f"w{self.count}"))
        return f"w{self.count}"

    def ints(self, *numbers):
        return self.weight(np.array(numbers, np.int64))

    def dense(self, x, rows, columns):
        product = self.op("MatMul", x, self.weight(reals(rows, columns, seed=self.count, scale=rows**-0.5)))
        return self.op("Add", product, self.weight(reals(columns, seed=self.count, scale=0.1)))

    def norm(self, x):
        """As exporters before opset 17 write it."""
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        square = self.op("Pow", centred, self.weight(np.array(2, np.float32)))
        variance = self.op("Add", self.op("ReduceMean", square, axes=[-1]), self.weight(np.array(1e-5, np.float32)))
        scaled = self.op("Mul", self.op("Div", centred, self.op("Sqrt", variance)), self.weight(reals(HIDDEN, seed=1) + 1))
        return self.op("Add", scaled, self.weight(reals(HIDDEN, seed=2, scale=0.1)))

    def gelu(self, x):
        inner = self.op("Add", self.op("Erf", self.op("Div", x, self.weight(np.array(2**0.5, np.float32)))),
                        self.weight(np.array(1, np.float32)))
        return self.op("Mul", self.op("Mul", x, inner), self.weight(np.array(0.5, np.float32)))

    def attention(self, x, mask):
        def heads(perm):
            rows = self.op("Reshape", self.dense(x, HIDDEN, HIDDEN), self.ints(0, 0, HEADS, HIDDEN // HEADS))
            return self.op("Transpose", rows, perm=perm)

        scores = self.op("MatMul", heads([0, 2, 1, 3]), heads([0, 2, 3, 1]))
        scores = self.op("Div", scores, self.weight(np.array((HIDDEN // HEADS) ** 0.5, np.float32)))
        weights = self.op("Softmax", self.op("Add", scores, mask), axis=-1)
        y = self.op("Transpose", self.op("MatMul", weights, heads([0, 2, 1, 3])), perm=[0, 2, 1, 3])
        return self.dense(self.op("Reshape", y, self.ints(0, 0, HIDDEN)), HIDDEN, HIDDEN)

    def model(self, inputs, output):
        infos = [helper.make_tensor_value_info(name, kind, dims) for name, kind, dims in inputs]
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "network", infos, [result], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def transformer(batch, length, is_causal):
    network = Network()
    x = network.op("Gather", network.weight(reals(50, HIDDEN)), "ids")
    x = network.norm(network.op("Add", x, network.weight(reals(LENGTH, HIDDEN, seed=1))))
    if is_causal:
        mask = network.weight(np.triu(np.full((LENGTH, LENGTH), -1e4, np.float32), 1))
    else:
        seen = network.op("Cast", network.op("Unsqueeze", "mask", network.ints(1, 2)), to=TensorProto.FLOAT)
        hidden = network.op("Sub", network.weight(np.array(1, np.float32)), seen)
        mask = network.op("Mul", hidden, network.weight(np.array(-1e4, np.float32)))
    for _ in range(2):
        x = network.norm(network.op("Add", network.attention(x, mask), x))
        inner = network.gelu(network.dense(x, HIDDEN, 4 * HIDDEN))
        x = network.norm(network.op("Add", network.dense(inner, 4 * HIDDEN, HIDDEN), x))
    inputs = [("ids", TensorProto.INT64, [batch, length])]
    if not is_causal:
        inputs.append(("mask", TensorProto.INT64, [batch, length]))
    return network.model(inputs, x)


def convolutions():
    network = Network()

    def conv(x, channels, outputs, kernel, **more):
        w = network.weight(reals(outputs, channels // more.get("group", 1), kernel, kernel, seed=network.count,
                                 scale=(channels * kernel) ** -0.5))
        return network.op("Conv", x, w, network.weight(reals(outputs, seed=3, scale=0.1)), pads=[kernel // 2] * 4, **more)

    x = network.op("Relu", conv("image", 3, 8, 3, strides=[2, 2]))
    y = network.op("LeakyRelu", conv(x, 8, 8, 3), alpha=0.1)
    y = network.op("Relu", network.op("Add", conv(y, 8, 8, 3), x))
    gate = network.op("Sigmoid", conv(network.op("GlobalAveragePool", y), 8, 8, 1))
    y = network.op("Mul", y, gate)
    y = network.op("Concat", y, network.op("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), axis=1)
    y = network.op("Flatten", network.op("GlobalAveragePool", y))
    return network.model([("image", TensorProto.FLOAT, [1, 3, 16, 16])],
                         network.op("Gemm", y, network.weight(reals(16, 10)), network.weight(reals(10))))


def networks():
    ids, mask = whole(0, 50, 2, LENGTH), np.array([[1] * LENGTH, [1] * 4 + [0] * (LENGTH - 4)], np.int64)
    yield "encoder", transformer(2, LENGTH, False), {"ids": ids, "mask": mask}
    yield "encoder_symbolic", transformer("batch", LENGTH, False), {"ids": ids, "mask": mask}
    yield "decoder", transformer("batch", LENGTH, True), {"ids": ids}
    yield "convolutions", convolutions(), {"image": reals(1, 3, 16, 16)}


def extended(model, folder):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(folder / "extended.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "extended.onnx")


def quantized(model, feeds, folder, dynamic):
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self):
            self.left = [feeds]

        def get_next(self):
            return self.left.pop() if self.left else None

    source, target = folder / "float.onnx", folder / "bytes.onnx"
    onnx.save(model, source)
    if dynamic:
        # Weights of 7 bits: of more, ONNX Runtime's sums saturate on processors without VNNI.
        quantization.quantize_dynamic(source, target, per_channel=True, reduce_range=True)
        return extended(onnx.load(target), folder)  # its optimizer makes DynamicQuantizeMatMul of them
    quantization.quantize_static(source, target, Reader(), quant_format=quantization.QuantFormat.QOperator, per_channel=True)
    return onnx.load(target)


def own_operators(model):
    return {node.op_type for node in model.graph.node if node.domain == "com.microsoft"}


def write(name, model, feeds, folder, atol):
    expected = run(model, feeds)
    order = [feeds[info.name] for info in model.graph.input]
    write_folder(folder / name, model, order, expected, 1e-3, atol)
    return own_operators(model)


def write_all(folder, scratch):
    found = set()
    for name, model, feeds in networks():
        found |= write(f"{name}_extended", extended(model, scratch), feeds, folder, 1e-4)
        found |= write(f"{name}_bytes", quantized(model, feeds, scratch, False), feeds, folder, QUANTIZED_ATOL)
        if name != "convolutions":
            found |= write(f"{name}_dynamic", quantized(model, feeds, scratch, True), feeds, folder, QUANTIZED_ATOL)
    return found


def one_node(op, inputs=("x",), domain="com.microsoft", **attributes):
    node = helper.make_node(op, list(inputs), ["y"], name="the_node", domain=domain, **attributes)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4, 32]) for name in dict.fromkeys(inputs)]
    graph = helper.make_graph([node], "graph", infos, [helper.make_empty_tensor_value_info("y")])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


REFUSED = {
    "near name": (one_node("SkipLayerNorm"), ["the_node", "SkipLayerNorm", "SkipLayerNormalization"]),
    "unknown": (one_node("BeamSearch"), ["the_node", "BeamSearch", "--custom-ops"]),
    "layout": (one_node("Conv", domain="com.microsoft.nchwc"), ["the_node", "com.microsoft.nchwc", "extended"]),
    "layout on": (one_node("Conv", domain="com.ms.internal.nhwc"), ["the_node", "com.ms.internal.nhwc", "extended"]),
    "attribute": (one_node("QuickGelu", alphabet=1.0), ["the_node", "alphabet"]),
    "missing": (one_node("MultiHeadAttention", ["x", "x", "x"]), ["the_node", "num_heads"]),
    "value": (one_node("MultiHeadAttention", ["x", "x", "x"], num_heads=0), ["the_node", "num_heads is 0"]),
    "activation": (one_node("FusedGemm", ["x", "x"], activation="Sinus"), ["the_node", "FusedGemm"]),
}


def refusals(folder):
    wrong = 0
    for name, (model, mentions) in REFUSED.items():
        path = folder / "refused.onnx"
        path.write_bytes(model.SerializeToString())
        done = subprocess.run([PROGRAM, "inspect", path], capture_output=True, text=True, check=False)
        missing = [word for word in mentions if word not in done.stderr]
        if done.returncode not in (2, 3) or missing or done.stderr.count("\n") > 1:
            wrong += 1
            print(f"{name}: code {done.returncode}, without {missing}: {done.stderr}")
    return wrong


def saved_newer(folder):
    """What a file of the model's opset cannot say is not saved."""
    network = Network()
    x = network.op("SimplifiedLayerNormalization", "x", network.weight(reals(HIDDEN)), axis=-1)
    model = network.model([("x", TensorProto.FLOAT, [2, HIDDEN])], network.op("Relu", network.dense(x, HIDDEN, HIDDEN)))
    path = folder / "newer.onnx"
    path.write_bytes(model.SerializeToString())
    option = f"optimized_model_path={folder / 'saved.onnx'}"
    done = subprocess.run([PROGRAM, "bench", path, "--runs", "1", "--set", option], capture_output=True, text=True, check=False)
    if done.returncode != 0 and "opset 23" in done.stderr and "basic" in done.stderr:
        return 0
    print(f"saving a newer opset: code {done.returncode}: {done.stderr}")
    return 1


FAR_POSITIONS = (4, 99, -5, 2**63 - 1, -2**63)


def far_positions(folder):
    """Positions for which there are no angles are named, however far they are."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 8])
    first = helper.make_tensor_value_info("first", TensorProto.INT64, [1])
    node = helper.make_node("RotaryEmbedding", ["x", "first", "cos", "sin"], ["y"], name="the_node", domain="com.microsoft")
    angles = [numpy_helper.from_array(reals(4, 4), name) for name in ("cos", "sin")]
    graph = helper.make_graph([node], "graph", [x, first], [helper.make_empty_tensor_value_info("y")], angles)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    path = folder / "far.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())
    np.save(folder / "x.npy", reals(1, 2, 8))
    wrong = 0
    for position in FAR_POSITIONS:
        np.save(folder / "first.npy", np.array([position]))
        done = subprocess.run([PROGRAM, "run", path, "--providers", "cpu", "--input", f"x={folder / 'x.npy'}",
                               "--input", f"first={folder / 'first.npy'}"], capture_output=True, text=True, check=False)
        if done.returncode != 3 or not all(words in done.stderr for words in ("the_node", f"position {position} ", "4 rows")):
            wrong += 1
            print(f"position {position}: code {done.returncode}: {done.stderr}")
    return wrong


def main():
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="backplane_microsoft_") as temporary:
        folder, scratch = pathlib.Path(temporary) / "cases", pathlib.Path(temporary)
        folder.mkdir()
        found = write_all(folder, scratch)
        done = subprocess.run([PROGRAM, "verify", folder, "--json", "-"], capture_output=True, text=True, check=False)
        results = json.loads(done.stdout)
        wrong = refusals(scratch) + saved_newer(scratch) + far_positions(scratch)
    failed = {name: result for name, result in results.items() if result["status"] != "pass"}
    for name, result in failed.items():
        print(f"{name}: {json.dumps(result)}")
    wanted = {"SkipLayerNormalization", "BiasGelu", "FusedConv", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QGemm",
              "QLinearConcat", "QLinearSoftmax"}
    if not wanted <= found:
        print(f"ONNX Runtime wrote none of {sorted(wanted - found)}; it wrote {sorted(found)}")
        wrong += 1
    print(f"{len(results) - len(failed) + len(REFUSED) + len(FAR_POSITIONS) + 1 - wrong} passed, {len(failed) + wrong} failed, 0 skipped")
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
