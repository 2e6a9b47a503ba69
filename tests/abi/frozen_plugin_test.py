#!/usr/bin/env python3
"""A plugin of the first day (tests/fixtures/frozen_v1) in today's host: rules that were enforced later take nothing from it.

It has no options, no table of copies and no capabilities of them (its device works on host memory), schemas and kernels
without shapes that depend on data, versions up to INT32_MAX, and says that it was built with ABI 1.0.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

BUILD = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"])


def backplane(*arguments):
    return subprocess.run([str(BUILD / "bin/backplane"), *map(str, arguments)], capture_output=True, text=True, check=False)


def answer(*arguments):
    made = backplane(*arguments, "--json")
    assert made.returncode == 0, made.stdout + made.stderr
    return json.loads(made.stdout)


def save(file, **halve):
    """y = -x / 2, or divided by the attribute `by`."""
    nodes = [helper.make_node("Neg", ["x"], ["n"], "negative"),
             helper.make_node("Halve", ["n"], ["y"], "half", domain="frozen.v1", **halve)]
    graph = helper.make_graph(nodes, "frozen", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])])
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 21), helper.make_opsetid("frozen.v1", 1)]), file)


def check(folder):
    plugin = pathlib.Path(shutil.copy(BUILD / "tests/fixtures/frozen_v1.so", folder))
    row = next(row for row in answer("providers", "--plugin-path", folder) if row["file"] == str(plugin))
    assert (row["status"], row["abi"], row["kernels"], len(row["devices"])) == ("loaded", "1.0", 2, 1), row

    report = answer("check", plugin)
    assert report["failed"] == 0 and report["passed"] > 0, report

    np.save(folder / "x.npy", np.array([1, -2, 8], np.float32))
    model = folder / "m.onnx"
    for provider, divisor in (("frozen_v1", 4.0), ("cpu", 2.0)):
        save(model, **({} if provider == "cpu" else {"by": divisor}))
        chosen = ["--plugin-path", folder, "--custom-ops", plugin, "--providers", provider, "--set", "optimization=none"]
        answer("run", model, "--input", f"x={folder / 'x.npy'}", "--output-dir", folder / "out", *chosen)
        assert np.load(folder / "out/y.npy").tolist() == [-1 / divisor, 2 / divisor, -8 / divisor]
        placed = {node["name"]: node["provider"] for node in answer("inspect", model, *chosen)["nodes"]}
        assert placed == {"negative": provider, "half": provider}, placed

    save(model, by=0.0)
    refused = backplane("run", model, "--input", f"x={folder / 'x.npy'}", "--output-dir", folder / "out", *chosen)
    assert refused.returncode == 2 and "attribute 'by' is 0" in refused.stderr, refused


def main():
    with tempfile.TemporaryDirectory() as name:
        check(pathlib.Path(name).resolve())
    print("1 passed, 0 failed, 0 skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
