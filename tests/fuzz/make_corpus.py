#!/usr/bin/env python3
"""Writes the models that mutations begin with: ONNX's node cases, whose inputs become initializers, so that a session over
them can be run as it is, and the broken and odd models of the import tests.

  make_corpus.py FOLDER [--count N]     N of them, spread over all; default: all
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import warnings

from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

MOST_BYTES = 4096  # of a model: what is larger is slow, and finds nothing that is not found in small ones
BAD_MODELS = pathlib.Path(__file__).resolve().parents[1] / "data/make_bad_models.py"


def closed(case):
    """The case's model with its first inputs as initializers, where these are tensors."""
    model = case.model
    model.ir_version = max(model.ir_version, 4)  # before, an initializer of an input's name fixed the input
    inputs = case.data_sets[0][0] if case.data_sets else []
    for value, info in zip(inputs, model.graph.input):
        if info.type.WhichOneof("value") != "tensor_type":
            continue
        tensor = TensorProto()
        tensor.CopyFrom(value if isinstance(value, TensorProto) else numpy_helper.from_array(value))
        tensor.name = info.name
        model.graph.initializer.append(tensor)
    return model.SerializeToString()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, help="how many are written")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of NumPy, about cases that divide by zero
    models = {case.name: closed(case) for case in load_model_tests(kind="node")}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, BAD_MODELS, folder], check=True, stdout=subprocess.DEVNULL)
        models.update((file.stem, file.read_bytes()) for file in pathlib.Path(folder, "models").glob("*.onnx"))
    names = sorted(name for name, model in models.items() if len(model) <= MOST_BYTES)
    count = min(arguments.count or len(names), len(names))
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for at in range(count):
        name = names[at * len(names) // count]
        (arguments.folder / f"{name}.onnx").write_bytes(models[name])
    print(f"{count} models in {arguments.folder}")


if __name__ == "__main__":
    main()
