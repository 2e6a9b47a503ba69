#!/usr/bin/env python3
"""Write models again in float16: weights, constants, inputs and outputs.

  half_models.py MODELS OUT [NAME ...]

MODELS holds NAME.onnx and NAME.inputs/INPUT.npy, as export_models.py writes them; OUT gets the same as NAME_fp16.
Operators that have no float16 in ONNX are not looked for: such a model does not load.
Needs: numpy, onnx (PyPI).
"""
import argparse
import pathlib

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

LARGEST = np.finfo(np.float16).max


def narrow(tensor):
    if tensor.data_type != TensorProto.FLOAT:
        return
    elements = np.clip(numpy_helper.to_array(tensor), -LARGEST, LARGEST).astype(np.float16)
    tensor.CopyFrom(numpy_helper.from_array(elements, tensor.name))


def narrow_model(model):
    graph = model.graph
    for tensor in graph.initializer:
        narrow(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                narrow(attribute.t)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
    del graph.value_info[:]
    for value in [*graph.input, *graph.output]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    for path in sorted(arguments.models.glob("*.onnx")):
        if arguments.names and path.stem not in arguments.names:
            continue
        model = onnx.load(path)
        narrow_model(model)
        folder = arguments.out / f"{path.stem}_fp16.inputs"
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(model, arguments.out / f"{path.stem}_fp16.onnx")
        for file in path.with_suffix(".inputs").glob("*.npy"):
            elements = np.load(file)
            np.save(folder / file.name, elements.astype(np.float16) if elements.dtype == np.float32 else elements)


if __name__ == "__main__":
    main()
