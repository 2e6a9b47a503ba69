#!/usr/bin/env python3
"""Saved models (rows G1, L2, D3 of core/SESSION.md): what is saved, ONNX's checker accepts, and it computes the same.

Models are saved in two ways: loaded as a graph and saved again, and by the option optimized_model_path at levels none and
basic. On models made here, ONNX Runtime computes with the saved one what it computes with the original. The networks of
$BACKPLANE_TEST_MODELS pass the checker, load in ONNX Runtime and keep inputs and outputs. Of the node cases of
$BACKPLANE_TEST_NODE_CASES (every 8th; all with BACKPLANE_TEST_FULL=1), saved as graphs, the checker and `backplane verify` say
what they say of the original. Networks and cases are left out where their folder is not given.
"""

import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

BUILD = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"])
PROGRAM = BUILD / "bin/backplane"
FULL = os.environ.get("BACKPLANE_TEST_FULL") == "1"


class Library:
    """The functions of backplane.h that load and save graphs."""

    def __init__(self):
        self.lib = ctypes.CDLL(str(BUILD / "lib/libbackplane.so"))
        for name in ("environment_create", "graph_load", "graph_save"):
            getattr(self.lib, "backplane_" + name).restype = ctypes.c_void_p
        self.lib.backplane_status_message.restype = ctypes.c_char_p
        self.environment = ctypes.c_void_p()
        assert self.message(self.lib.backplane_environment_create(None, None, None,
                                                                  ctypes.byref(self.environment))) is None

    def message(self, status):
        if not status:
            return None
        text = self.lib.backplane_status_message(ctypes.c_void_p(status)).decode()
        self.lib.backplane_status_free(ctypes.c_void_p(status))
        return text

    def save(self, model, target):
        graph = ctypes.c_void_p()
        reason = self.message(self.lib.backplane_graph_load(self.environment, str(model).encode(), None,
                                                            ctypes.byref(graph)))
        reason = reason or self.message(self.lib.backplane_graph_save(graph, str(target).encode(), 0))
        self.lib.backplane_graph_destroy(graph)
        return reason


LIBRARY = Library()
UNSUPPORTED = "no session can be made of the original either"


def inspect(model, *settings):
    """Makes a session; the reason why not, or None."""
    arguments = [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run([PROGRAM, "inspect", model, "--json", *arguments], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def save(model, target, level):
    """Saves the model in one of the ways; the reason why not, or None."""
    if level == "graph":
        return LIBRARY.save(model, target)
    reason = inspect(model, f"optimization={level}", f"optimized_model_path={target}")
    return UNSUPPORTED if reason and inspect(model) else reason


def reference(path, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def value(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def made_models():
    """(name, model, feeds)"""
    random = np.random.default_rng(7)
    x = random.standard_normal((2, 3, 8, 8)).astype(np.float32)
    w = numpy_helper.from_array(random.standard_normal((4, 3, 3, 3)).astype(np.float32), "w")
    scale = numpy_helper.from_array(np.array([2, 3, 4, 5], np.float32).reshape(4, 1, 1), "scale")
    unused = numpy_helper.from_array(np.zeros(3, np.float32), "unused")
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
             helper.make_node("Neg", ["scale"], ["folded"]),
             helper.make_node("Mul", ["c", "folded"], ["m"]),
             helper.make_node("Identity", ["m"], ["i"]),
             helper.make_node("Relu", ["i"], ["y"]),
             helper.make_node("Shape", ["y"], ["s"])]
    for version in (3, 8):
        inputs = [value("x", TensorProto.FLOAT, ["n", 3, 8, 8])]
        if version == 3:
            inputs += [value(t.name, TensorProto.FLOAT, t.dims) for t in (w, scale, unused)]
        graph = helper.make_graph(nodes, "net", inputs, [value("y", TensorProto.FLOAT, ["n", 4, 8, 8]),
                                                         value("s", TensorProto.INT64, [4])], [w, scale, unused])
        opset = 8 if version == 3 else 17
        yield f"net_ir{version}", helper.make_model(graph, ir_version=version,
                                                    opset_imports=[helper.make_opsetid("", opset)]), {"x": x}
    body = helper.make_graph([helper.make_node("Constant", [], ["step"], value_float=0.5),
                              helper.make_node("Mul", ["step", "scaled"], ["grown"]),
                              helper.make_node("Add", ["before", "grown"], ["after"]),
                              helper.make_node("Identity", ["go"], ["go_on"])], "body",
                             [value("k", TensorProto.INT64, []), value("go", TensorProto.BOOL, []),
                              value("before", TensorProto.FLOAT, [3])],
                             [value("go_on", TensorProto.BOOL, []), value("after", TensorProto.FLOAT, [3])])
    count = numpy_helper.from_array(np.array(4, np.int64), "count")
    go = numpy_helper.from_array(np.array(True), "start")
    for version in (3, 8):
        listed = [value("count", TensorProto.INT64, []), value("start", TensorProto.BOOL, [])] if version == 3 else []
        loop = helper.make_graph([helper.make_node("Add", ["v", "v"], ["scaled"]),
                                  helper.make_node("Loop", ["count", "start", "v"], ["out"], body=body)], "loop",
                                 [value("v", TensorProto.FLOAT, [3])] + listed, [value("out", TensorProto.FLOAT, [3])],
                                 [count, go])
        yield f"loop_ir{version}", helper.make_model(loop, ir_version=version, opset_imports=[
            helper.make_opsetid("", 13)]), {"v": np.arange(3, dtype=np.float32)}


def names(values):
    return [v.name for v in values]


def check_made(folder, problems):
    count = 0
    for name, model, feeds in made_models():
        source = folder / f"{name}.onnx"
        onnx.save(model, source)
        wanted = reference(source, feeds)
        for level in ("graph", "none", "basic"):
            count += 1
            target = folder / f"{name}_{level}.onnx"
            reason = save(source, target, level)
            if reason == UNSUPPORTED:
                print(f"{name} {level}: {reason}")
                continue
            if reason:
                problems.append(f"{name} {level}: {reason}")
                continue
            try:
                onnx.checker.check_model(str(target), full_check=True)
                saved = onnx.load(target)
                for got, want in zip(reference(target, feeds), wanted):
                    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
                used = {t.name for t in saved.graph.initializer}
                inputs = [n for n in names(saved.graph.input) if n not in used]
                assert inputs == list(feeds), f"inputs are {inputs}"
                assert names(saved.graph.output) == names(model.graph.output)
                assert level != "basic" or not any(n.op_type == "Identity" for n in saved.graph.node)
            except Exception as error:  # whatever a checker or runtime says
                problems.append(f"{name} {level}: {error}")
    return count


def check_networks(folder, problems):
    place = os.environ.get("BACKPLANE_TEST_MODELS")
    models = sorted(pathlib.Path(place).glob("*.onnx")) if place else []
    if not models:
        print("BACKPLANE_TEST_MODELS is not set: the networks are left out")
    for source in models:
        if source.stat().st_size > 120 << 20 and not FULL:
            continue
        for level in ("graph", "none", "basic"):
            target = folder / f"network_{level}.onnx"
            reason = save(source, target, level)
            try:
                assert reason is None, reason
                onnx.checker.check_model(str(target))
                original, saved = onnx.load(source), onnx.load(target)
                initializers = {t.name for t in original.graph.initializer}
                left = {t.name for t in saved.graph.initializer}
                assert [n for n in names(saved.graph.input) if n not in left] == \
                    [n for n in names(original.graph.input) if n not in initializers], "other inputs"
                assert names(saved.graph.output) == names(original.graph.output), "other outputs"
                onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"])
            except Exception as error:  # whatever a checker or runtime says
                problems.append(f"{source.name} {level}: {str(error)[:300]}")
    return len(models)


def verify(folder):
    done = subprocess.run([PROGRAM, "verify", folder, "--json", "-"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"verify ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def check_node_cases(folder, problems):
    """Cases that pass as they are must pass when they are saved and loaded."""
    place = os.environ.get("BACKPLANE_TEST_NODE_CASES")
    cases = sorted(p.parent for p in pathlib.Path(place).glob("*/model.onnx")) if place else []
    if not cases:
        print("BACKPLANE_TEST_NODE_CASES is not set: the node cases are left out")
        return 0
    cases = cases if FULL else cases[::8]
    before, after = folder / "before", folder / "after"
    for case in cases:
        for root in (before, after):
            shutil.copytree(case, root / case.name)
    refused = {}
    for case in cases:
        target = after / case.name / "model.onnx"
        reason = save(case / "model.onnx", target, "graph")
        if reason:
            refused[case.name] = reason
            continue
        try:
            onnx.checker.check_model(str(target))
        except Exception as error:  # whatever the checker says
            if not checked(case / "model.onnx"):
                continue
            problems.append(f"{case.name}: the saved model fails the checker: {str(error)[:300]}")
    first, second = verify(before), verify(after)
    for name, result in first.items():
        if result["status"] != "pass":
            continue
        if name in refused:
            problems.append(f"{name}: passes, but is not saved: {refused[name]}")
        elif second[name]["status"] != "pass":
            problems.append(f"{name}: saved and loaded: {second[name]['status']}: {second[name]['reason']}")
    return len(cases)


def checked(path):
    try:
        onnx.checker.check_model(str(path))
        return True
    except Exception:  # the original is wrong already
        return False


def edits():
    """(name, edit) of a saved model whose convolution is the provider's own."""
    def convolution(model):
        return next(n for n in model.graph.node if n.op_type == "Conv")

    def weight(model):
        return next(t for t in model.graph.initializer if t.name == convolution(model).input[1])

    def attribute(model):
        for entry in convolution(model).attribute:
            if entry.type == onnx.AttributeProto.INTS:
                entry.ints[0] += 1

    def second_bias(model):
        model.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), "of_one"))
        node = convolution(model)
        node.input.extend([""] * (3 - len(node.input)))
        node.input[2] = "of_one"

    def half_weight(model):
        halves = numpy_helper.to_array(weight(model)).astype(np.float16)
        weight(model).CopyFrom(numpy_helper.from_array(halves, weight(model).name))

    def drop_hash(model):
        kept = [p for p in model.metadata_props if p.key != "backplane.private_contents"]
        del model.metadata_props[:]
        model.metadata_props.extend(kept)

    yield "an attribute", attribute
    yield "no weight", lambda model: convolution(model).input.__setitem__(1, "")
    yield "another bias", second_bias
    yield "a weight of 16 bits", half_weight
    yield "dims of the weight", lambda model: weight(model).dims.__setitem__(0, weight(model).dims[0] - 1)
    yield "the type of x", lambda model: setattr(model.graph.input[0].type.tensor_type, "elem_type", TensorProto.UINT8)
    yield "the opset", lambda model: setattr(model.opset_import[0], "version", model.opset_import[0].version + 1)
    yield "no hash", drop_hash


def check_edited(folder, problems):
    """What holds a provider's own operators loads as it was saved, stored anew too, and is refused once it is edited."""
    random = np.random.default_rng(3)
    weight = numpy_helper.from_array(random.standard_normal((8, 3, 3, 3)).astype(np.float32), "w")
    large = numpy_helper.from_array(random.standard_normal((16, 8, 3, 3)).astype(np.float32), "large")
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "first", pads=[1, 1, 1, 1]),
             helper.make_node("Relu", ["c"], ["r"], "relu"),
             helper.make_node("Conv", ["r", "large"], ["y"], "second", pads=[1, 1, 1, 1])]
    source, target = folder / "fused_source.onnx", folder / "fused.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "net", [value("x", TensorProto.FLOAT, [1, 3, 8, 8])],
                                                  [value("y", TensorProto.FLOAT, [1, 16, 8, 8])], [weight, large]),
                                ir_version=8, opset_imports=[helper.make_opsetid("", 18)]), source)
    reason = inspect(source, f"optimized_model_path={target}")
    saved = onnx.load(target)
    assert any(n.domain for n in saved.graph.node), "the provider was expected to fuse"
    anew = folder / "fused_anew.onnx"
    onnx.save(saved, anew)
    outside = folder / "fused_outside.onnx"
    onnx.save(onnx.load(target), outside, save_as_external_data=True, location="fused_outside.bin")
    for path in (target, anew, outside):
        reason = reason or inspect(path)
        if reason:
            problems.append(f"{path.name}: {reason}")
    count = 3
    for name, edit in edits():
        count += 1
        model = onnx.load(target)
        edit(model)
        edited = folder / "edited.onnx"
        onnx.save(model, edited)
        reason = inspect(edited) or "loads"
        if "edited.onnx" not in reason or "was edited after it was saved" not in reason or "made from" not in reason:
            problems.append(f"edited ({name}): {reason}")
    return count


def main():
    problems = []
    with tempfile.TemporaryDirectory(prefix="backplane_save_") as name:
        folder = pathlib.Path(name)
        checks = (check_made, check_edited, check_networks, check_node_cases)
        count = sum(check(folder, problems) for check in checks)
    for problem in problems:
        print(problem)
    print(f"{count - len(problems)} passed, {len(problems)} failed, 0 skipped")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
