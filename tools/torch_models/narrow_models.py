#!/usr/bin/env python3
"""Write models of products with weights of 4 or 8 bits, of the sizes that language models have.

  narrow_models.py OUT [--sizes 4096x4096,...] [--rows 1,4,16,128] [--blocks 32,128] [--levels 0,4] [--bits 4]

OUT gets NAME.onnx and NAME.inputs/x.npy, which compare.py takes: several products of one input by com.microsoft's
MatMulNBits, more of them than a last-level cache holds, with random weights.
Needs: numpy, onnx (PyPI).
"""
import argparse
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper

SIZES = "4096x4096,4096x14336,2048x5632,896x4864"
MODEL_BYTES = 48 << 20  # of weights


def product(depth, columns, block, bits, level, index, random):
    blocks = -(-depth // block)
    weights = random.integers(0, 256, (columns, blocks, block * bits // 8), dtype=np.uint8)
    scales = random.random((columns, blocks), dtype=np.float32) * 0.02 + 0.001
    constants = [onnx.numpy_helper.from_array(weights, f"w{index}"), onnx.numpy_helper.from_array(scales, f"s{index}")]
    node = helper.make_node("MatMulNBits", ["x", f"w{index}", f"s{index}"], [f"y{index}"], domain="com.microsoft",
                            K=depth, N=columns, bits=bits, block_size=block, accuracy_level=level)
    return node, constants


def model(depth, columns, block, bits, level):
    random = np.random.default_rng(depth + columns + block)
    count = max(2, -(-MODEL_BYTES * 8 // (depth * columns * bits)))
    nodes, constants, outputs = [], [], []
    for index in range(count):
        node, made = product(depth, columns, block, bits, level, index, random)
        nodes.append(node)
        constants += made
        outputs.append(helper.make_tensor_value_info(f"y{index}", TensorProto.FLOAT, ["rows", columns]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", depth])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "narrow", [x], outputs, constants)
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--bits", type=int, choices=(4, 8), default=4)
    for name, default in (("rows", "1,4,16,128"), ("blocks", "32,128"), ("levels", "0,4")):
        parser.add_argument("--" + name, type=lambda text: [int(part) for part in text.split(",")], default=default)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for size in arguments.sizes.split(","):
        depth, columns = (int(part) for part in size.split("x"))
        for block in arguments.blocks:
            for level in arguments.levels:
                made = model(depth, columns, block, arguments.bits, level)
                for rows in arguments.rows:
                    name = f"b{arguments.bits}_{size}_block{block}_level{level}_rows{rows}"
                    onnx.save(made, arguments.out / f"{name}.onnx")
                    folder = arguments.out / f"{name}.inputs"
                    folder.mkdir(exist_ok=True)
                    x = np.random.default_rng(rows).standard_normal((rows, depth)).astype(np.float32)
                    np.save(folder / "x.npy", x)


if __name__ == "__main__":
    main()
