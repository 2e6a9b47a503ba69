#!/usr/bin/env python3
"""Row C1 of core/SESSION.md by the command line: a library by option, key and file, and a function in the model."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

BUILD = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"])
PROGRAM = BUILD / "bin/backplane"
LIBRARY = BUILD / "lib/backplane/custom_ops/windowed_mean.so"
DOMAIN = "backplane.examples"
OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1), helper.make_opsetid("model", 1)]


def save(file, nodes, functions=()):
    graph = helper.make_graph(nodes, "ways", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=OPSETS, functions=functions), file)


def windowed():
    return [helper.make_node("WindowedMean", ["x"], ["y"], "mean", domain=DOMAIN, window=2)]


def run(folder, *options):
    made = subprocess.run([str(PROGRAM), "run", str(folder / "m.onnx"), "--input", f"x={folder / 'x.npy'}",
                           "--output-dir", str(folder / "out"), "--json", *map(str, options)],
                          capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return made.returncode, made.stderr
    return 0, np.load(json.loads(made.stdout)["outputs"][0]["file"]).tolist()


def c1_a_library_by_the_option(folder):
    save(folder / "m.onnx", windowed())
    return run(folder, "--custom-ops", LIBRARY), (0, [2, 4])


def c1_a_library_by_the_key(folder):
    save(folder / "m.onnx", windowed())
    return run(folder, "--set", f"custom_ops={LIBRARY}"), (0, [2, 4])


def c1_a_library_by_a_file(folder):
    save(folder / "m.onnx", windowed())
    (folder / "settings.toml").write_text(f'custom_ops = ["{LIBRARY}"]\n')
    return run(folder, "--config", folder / "settings.toml"), (0, [2, 4])


def c1_without_it_the_operator_is_named(folder):
    save(folder / "m.onnx", windowed())
    code, text = run(folder)
    return (code, "WindowedMean" in text and text.count("\n") == 1), (2, True)


def c1_a_function_of_the_model(folder):
    triple = helper.make_function("model", "Triple", ["a"], ["b"],
                                  [helper.make_node("Add", ["a", "a"], ["t"]), helper.make_node("Add", ["t", "a"], ["b"])],
                                  [helper.make_opsetid("", 21)])
    save(folder / "m.onnx", [helper.make_node("Triple", ["x"], ["y"], "triple", domain="model")], [triple])
    return run(folder), (0, [3, 9, 15])


def c1_a_function_of_the_model_may_use_a_library(folder):
    smooth = helper.make_function("model", "Smooth", ["a"], ["b"],
                                  [helper.make_node("WindowedMean", ["a"], ["t"], domain=DOMAIN, window=2),
                                   helper.make_node("Neg", ["t"], ["b"])],
                                  [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)])
    save(folder / "m.onnx", [helper.make_node("Smooth", ["x"], ["y"], "smooth", domain="model")], [smooth])
    return run(folder, "--custom-ops", LIBRARY), (0, [-2, -4])


def c3_a_key_for_an_operator_that_nobody_replaces(folder):
    save(folder / "m.onnx", windowed())
    code, text = run(folder, "--custom-ops", LIBRARY, "--set", "replace_ops=Relu")
    return (code, "'Relu'" in text), (2, True)


def main():
    cases = [function for name, function in globals().items() if name.startswith(("c1_", "c3_"))]
    failed = 0
    for case in cases:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            np.save(folder / "x.npy", np.array([1, 3, 5], np.float32))
            got, wanted = case(folder)
        failed += got != wanted
        print(f"{'ok    ' if got == wanted else 'FAILED'} {case.__name__}{'' if got == wanted else f': {got}'}")
    print(f"{len(cases) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
