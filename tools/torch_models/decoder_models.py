#!/usr/bin/env python3
"""Write language models that decode: one token at a time, keys and values of earlier ones handed in and out.

  decoder_models.py OUT [--size tiny|smollm] [--forms exported,genai_int4,...]

OUT gets FORM.onnx, with random weights, in the two graphs that such models come in: `exported` is what PyTorch's exporter
leaves of a Llama (ONNX's operators alone), `genai` what ONNX Runtime's model builder writes (GroupQueryAttention,
SkipSimplifiedLayerNormalization); `_int4` has its products' weights in blocks of 4 bits (MatMulNBits), `_bf16` in float, but such
as bfloat16 holds: a model that was trained in bfloat16, as most are, and exported in float.
compare_decoding.py runs them. Needs: numpy, onnx (PyPI).
"""
import argparse
import dataclasses
import math
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BLOCK = 32  # weights that share a scale
LONGEST = 4096


@dataclasses.dataclass
class Size:
    layers: int
    hidden: int
    heads: int
    key_heads: int
    inner: int
    words: int

    @property
    def head(self):
        return self.hidden // self.heads


SIZES = {"tiny": Size(2, 64, 4, 2, 160, 300), "smollm": Size(30, 576, 9, 3, 1536, 49152)}


class Builder:
    """Nodes in order; each call of an operator's name appends one and returns its output's name."""

    def __init__(self, size, weights):
        self.size, self.weights = size, weights
        self.nodes, self.constants, self.inputs, self.outputs = [], [], [], []
        self.random = np.random.default_rng(7)
        self.kept = {}

    def op(self, kind, *inputs, outputs=1, domain="", **attributes):
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=f"{kind}_{len(self.nodes)}", domain=domain,
                                           **attributes))
        return names[0] if outputs == 1 else names

    def __getattr__(self, kind):
        return lambda *inputs, **rest: self.op(kind, *inputs, **rest)

    def microsoft(self, kind, *inputs, **rest):
        return self.op(kind, *inputs, domain="com.microsoft", **rest)

    def constant(self, value, dtype=np.float32):
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if array.size > 64 or key not in self.kept:
            name = f"c{len(self.constants)}"
            self.constants.append(numpy_helper.from_array(array, name))
            if array.size > 64:
                return name
            self.kept[key] = name
        return self.kept[key]

    def ints(self, *values):
        return self.constant(list(values), np.int64)

    def input(self, name, kind, dims):
        self.inputs.append(helper.make_tensor_value_info(name, kind, dims))
        return name

    def output(self, name, value, dims):
        for node in self.nodes:  # its maker and its readers, as exporters do
            for values in (node.input, node.output):
                values[:] = [name if each == value else each for each in values]
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))
        return name

    def dim(self, value, axis):
        return self.Unsqueeze(self.Gather(self.Shape(value), self.constant(axis, np.int64), axis=0), self.ints(0))

    def product(self, x, depth, columns):
        if self.weights == "int4":
            weights = self.random.integers(0, 256, (columns, depth // BLOCK, BLOCK // 2), dtype=np.uint8)
            scales = (self.random.random((columns, depth // BLOCK)) + 0.5) / (4.6 * math.sqrt(depth))
            return self.microsoft("MatMulNBits", x, self.constant(weights, np.uint8), self.constant(scales), K=depth,
                                  N=columns, bits=4, block_size=BLOCK, accuracy_level=4)
        weights = self.random.standard_normal((depth, columns), dtype=np.float32) / np.float32(math.sqrt(depth))
        if self.weights == "bf16":
            weights = (weights.view(np.uint32) & 0xFFFF0000).view(np.float32)
        return self.MatMul(x, self.constant(weights))

    def vector(self, count):
        return self.constant(1 + 0.1 * self.random.standard_normal(count))

    def past(self, layer):
        dims = ["batch_size", self.size.key_heads, "past_sequence_length", self.size.head]
        return [self.input(f"past_key_values.{layer}.{what}", TensorProto.FLOAT, dims) for what in ("key", "value")]

    def present(self, layer, keys, values):
        dims = ["batch_size", self.size.key_heads, "total_sequence_length", self.size.head]
        return [self.output(f"present.{layer}.key", keys, dims), self.output(f"present.{layer}.value", values, dims)]

    def model(self):
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, self.outputs, self.constants)
        imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=9)


def frequencies(size):
    return 1.0 / 10000 ** (np.arange(0, size.head, 2, dtype=np.float64) / size.head)


class Exported(Builder):
    """As PyTorch's exporter writes it: shapes computed in the graph, the mask added, heads repeated by Expand."""

    def norm(self, x):
        mean = self.ReduceMean(self.Pow(x, self.constant(2.0)), self.ints(-1), keepdims=1)
        root = self.Sqrt(self.Add(mean, self.constant(1e-5)))
        return self.Mul(self.vector(self.size.hidden), self.Mul(x, self.Div(self.constant(1.0), root)))

    def split_heads(self, x, count):
        shape = self.Concat(self.dim(x, 0), self.dim(x, 1), self.ints(count), self.ints(self.size.head), axis=0)
        return self.Transpose(self.Reshape(x, shape), perm=[0, 2, 1, 3])

    def rotated(self, x, cos, sin):
        half, end = self.size.head // 2, 2**63 - 1
        first = self.Slice(x, self.ints(0), self.ints(half), self.ints(3), self.ints(1))
        second = self.Slice(x, self.ints(half), self.ints(end), self.ints(3), self.ints(1))
        turned = self.Concat(self.Neg(second), first, axis=-1)
        return self.Add(self.Mul(x, cos), self.Mul(turned, sin))

    def repeated(self, x):
        groups = self.size.heads // self.size.key_heads
        before, length, last = self.dim(x, 0), self.dim(x, 2), self.ints(self.size.head)
        wide = self.Concat(before, self.ints(self.size.key_heads), self.ints(groups), length, last, axis=0)
        flat = self.Concat(before, self.ints(self.size.heads), length, last, axis=0)
        return self.Reshape(self.Expand(self.Unsqueeze(x, self.ints(2)), wide), flat)

    def mask(self, ids, attention):
        zero, one = self.constant(0, np.int64), self.constant(1, np.int64)
        length = self.Gather(self.Shape(ids), one, axis=0)
        total = self.Gather(self.Shape(attention), one, axis=0)
        rows = self.Unsqueeze(self.Range(self.Sub(total, length), total, one), self.ints(1))
        allowed = self.LessOrEqual(self.Unsqueeze(self.Range(zero, total, one), self.ints(0)), rows)
        seen = self.Cast(self.Unsqueeze(attention, self.ints(1, 2)), to=TensorProto.BOOL)
        allowed = self.And(self.Unsqueeze(allowed, self.ints(0, 1)), seen)
        return self.Where(allowed, self.constant(0.0), self.constant(np.finfo(np.float32).min))

    def rotations(self, positions):
        column = self.constant(frequencies(self.size).reshape(1, -1, 1))
        row = self.Cast(self.Unsqueeze(positions, self.ints(1)), to=TensorProto.FLOAT)
        angles = self.Transpose(self.MatMul(column, row), perm=[0, 2, 1])
        both = self.Concat(angles, angles, axis=-1)
        return [self.Unsqueeze(self.op(kind, both), self.ints(1)) for kind in ("Cos", "Sin")]

    def attention(self, layer, x, mask, turns):
        size, narrow = self.size, self.size.key_heads * self.size.head
        q = self.split_heads(self.product(x, size.hidden, size.hidden), size.heads)
        k = self.split_heads(self.product(x, size.hidden, narrow), size.key_heads)
        v = self.split_heads(self.product(x, size.hidden, narrow), size.key_heads)
        past_keys, past_values = self.past(layer)
        keys = self.Concat(past_keys, self.rotated(k, *turns), axis=-2)
        values = self.Concat(past_values, v, axis=-2)
        keys, values = self.present(layer, keys, values)
        scores = self.MatMul(self.rotated(q, *turns), self.Transpose(self.repeated(keys), perm=[0, 1, 3, 2]))
        scaled = self.Mul(scores, self.constant(1 / math.sqrt(size.head)))
        weights = self.Softmax(self.Add(scaled, mask), axis=-1)
        rows = self.Transpose(self.MatMul(weights, self.repeated(values)), perm=[0, 2, 1, 3])
        shape = self.Concat(self.dim(x, 0), self.dim(x, 1), self.ints(size.hidden), axis=0)
        return self.product(self.Reshape(rows, shape), size.hidden, size.hidden)

    def build(self):
        size = self.size
        ids = self.input("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"])
        attention = self.input("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"])
        positions = self.input("position_ids", TensorProto.INT64, ["batch_size", "sequence_length"])
        table = self.random.standard_normal((size.words, size.hidden), dtype=np.float32)
        x = self.Gather(self.constant(table), ids)
        mask, turns = self.mask(ids, attention), self.rotations(positions)
        for layer in range(size.layers):
            x = self.Add(x, self.attention(layer, self.norm(x), mask, turns))
            y = self.norm(x)
            gate = self.product(y, size.hidden, size.inner)
            y = self.Mul(self.Mul(gate, self.Sigmoid(gate)), self.product(y, size.hidden, size.inner))
            x = self.Add(x, self.product(y, size.inner, size.hidden))
        self.output("logits", self.product(self.norm(x), size.hidden, size.words),
                    ["batch_size", "sequence_length", size.words])
        return self.model()


class GenAi(Builder):
    """As ONNX Runtime's model builder writes it."""

    def skip(self, x, y):
        made = self.microsoft("SkipSimplifiedLayerNormalization", x, y, self.vector(self.size.hidden), outputs=4,
                              epsilon=1e-5)
        self.nodes[-1].output[1] = self.nodes[-1].output[2] = ""
        return made[0], made[3]

    def build(self):
        size = self.size
        ids = self.input("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"])
        attention = self.input("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"])
        summed = self.Sub(self.ReduceSum(attention, self.ints(1), keepdims=0), self.ints(1))
        lengths = self.Cast(summed, to=TensorProto.INT32)
        total = self.Cast(self.Gather(self.Shape(attention), self.constant(1, np.int64), axis=0), to=TensorProto.INT32)
        angles = np.outer(np.arange(LONGEST), frequencies(size))
        turns = [self.constant(np.cos(angles)), self.constant(np.sin(angles))]
        table = self.random.standard_normal((size.words, size.hidden), dtype=np.float32)
        sum_ = self.Gather(self.constant(table), ids)
        x = self.SimplifiedLayerNormalization(sum_, self.vector(size.hidden), axis=-1, epsilon=1e-5)
        for layer in range(size.layers):
            narrow = size.key_heads * size.head
            q, k, v = (self.product(x, size.hidden, columns) for columns in (size.hidden, narrow, narrow))
            rows, keys, values = self.microsoft(
                "GroupQueryAttention", q, k, v, *self.past(layer), lengths, total, *turns, outputs=3,
                num_heads=size.heads, kv_num_heads=size.key_heads, do_rotary=1, scale=1 / math.sqrt(size.head))
            self.present(layer, keys, values)
            x, sum_ = self.skip(sum_, self.product(rows, size.hidden, size.hidden))
            gate = self.product(x, size.hidden, size.inner)
            y = self.Mul(self.Mul(gate, self.Sigmoid(gate)), self.product(x, size.hidden, size.inner))
            x, sum_ = self.skip(sum_, self.product(y, size.inner, size.hidden))
        self.output("logits", self.product(x, size.hidden, size.words), ["batch_size", "sequence_length", size.words])
        return self.model()


FORMS = {"exported": Exported, "exported_bf16": Exported, "exported_int4": Exported, "genai": GenAi, "genai_bf16": GenAi,
         "genai_int4": GenAi}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--size", choices=SIZES, default="smollm")
    parser.add_argument("--forms", default=",".join(FORMS))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for form in arguments.forms.split(","):
        weights = form.partition("_")[2]
        onnx.save(FORMS[form](SIZES[arguments.size], weights).build(), arguments.out / f"{form}.onnx")


if __name__ == "__main__":
    main()
