"""Random graphs of nested If, Loop and Scan give what ONNX Runtime gives.

  cases.py [--seed N] [--count N] [--keep FOLDER] [--providers LIST --plugins FOLDER]

Each graph is a case of its own: a model, its inputs, and the outputs of ONNX Runtime, checked by `backplane verify`.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

PROGRAM = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"]) / "bin/backplane"
SHAPE = [2, 3]
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name, element, shape):
    return helper.make_tensor_value_info(name, element, shape)


class Scope:
    """A graph that is being written, and the values of SHAPE that its nodes may read."""

    def __init__(self, case, values):
        self.case, self.nodes, self.values, self.initializers = case, [], list(values), []

    def node(self, op, inputs, outputs=1, element=None, **attributes):
        names = [self.case.name(op.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=self.case.name("node"), **attributes))
        return names if outputs > 1 else names[0]

    def constant(self, array):
        name = self.case.name("const")
        if self.case.rng.random() < 0.5:
            self.initializers.append(numpy_helper.from_array(array, name))
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
        return name

    def pick(self):
        return self.case.rng.choice(self.values)

    def keep(self, name):
        self.values.append(name)
        return name


class Case:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.count = 0
        self.opset = self.rng.choice([13, 16, 17, 21])

    def name(self, stem):
        self.count += 1
        return f"{stem}_{self.count}"

    # Nodes that take values of SHAPE and leave one.

    def simple(self, scope):
        op = self.rng.choice(["Add", "Sub", "Max", "Min", "Neg", "Abs", "Mul"])
        inputs = [scope.pick()] if op in ("Neg", "Abs") else [scope.pick(), scope.pick()]
        return scope.keep(scope.node("Tanh", [scope.node(op, inputs)]))

    def condition(self, scope):
        kind = self.rng.random()
        if kind < 0.3:
            return "flag"
        if kind < 0.4:
            return scope.constant(numpy.array(self.rng.random() < 0.5))
        total = scope.node("ReduceMax", [scope.pick()], keepdims=0)
        return scope.node("Greater", [total, scope.constant(numpy.float32(self.rng.uniform(-0.5, 0.9)))])

    def merged(self, scope, stack):
        """Something of any number of rows, as a value of SHAPE."""
        axes = scope.constant(numpy.array([0], numpy.int64))
        row = scope.node("ReduceSum", [stack, axes], keepdims=1)
        return scope.keep(scope.node("Tanh", [scope.node("Add", [row, scope.pick()])]))

    def body(self, scope, depth, size):
        for _ in range(size):
            self.step(scope, depth)

    def conditional(self, scope, depth):
        outputs = self.rng.randint(1, 2)
        odd = self.rng.random() < 0.3  # branches of other shapes
        branches = []
        for _ in range(2):
            inner = Scope(self, scope.values)
            self.body(inner, depth + 1, self.rng.randint(0, 2))
            results = []
            for k in range(outputs):
                if odd and k == 0:
                    result = inner.node("Concat", [inner.pick() for _ in range(self.rng.randint(1, 3))], axis=0)
                elif self.rng.random() < 0.2:
                    result = inner.constant(numpy.full(SHAPE, self.rng.uniform(-1, 1), numpy.float32))
                else:
                    result = inner.node("Identity", [inner.pick()])
                results.append(result)
            branches.append(self.graph(inner, [], [info(r, FLOAT, [None, 3] if odd and k == 0 else SHAPE) for k, r in enumerate(results)]))
        made = scope.node("If", [self.condition(scope)], outputs, then_branch=branches[0], else_branch=branches[1])
        made = [made] if outputs == 1 else made
        for k, name in enumerate(made):
            if odd and k == 0:
                self.merged(scope, name)
            else:
                scope.keep(name)

    def loop(self, scope, depth):
        carried = self.rng.randint(0, 3)
        stacked = self.rng.randint(0 if carried else 1, 2)
        number, go_on = self.name("turn"), self.name("go")
        values = [self.name("carried") for _ in range(carried)]
        grows = carried > 0 and self.rng.random() < 0.2
        inner = Scope(self, scope.values + values[1 if grows else 0:])
        self.body(inner, depth + 1, self.rng.randint(1, 2))
        limit = self.rng.randint(0, 4)
        by_condition = self.rng.random() < 0.4
        if by_condition:
            following = inner.node("Less", [number, inner.constant(numpy.array(limit, numpy.int64))])
        else:
            following = inner.node("Identity", [go_on])
        results = []
        for k in range(carried):
            if grows and k == 0:
                results.append(inner.node("Concat", [values[0], inner.pick()], axis=0))
            else:
                results.append(self.rng.choice([inner.pick(), values[k]]) if self.rng.random() < 0.5 else inner.pick())
        results += [inner.pick() for _ in range(stacked)]
        # ONNX Runtime wants each output of a graph to be made in it, and once.
        results = [inner.node("Identity", [r]) if r not in values or results.count(r) > 1 else r for r in results]
        outputs = [info(following, BOOL, [])] + [info(r, FLOAT, [None, 3] if grows and k == 0 else SHAPE) for k, r in enumerate(results)]
        inputs = [info(number, INT64, []), info(go_on, BOOL, [])]
        inputs += [info(v, FLOAT, [None, 3] if grows and k == 0 else SHAPE) for k, v in enumerate(values)]
        trips = "" if by_condition and self.rng.random() < 0.5 else self.rng.choice(
            ["turns", scope.constant(numpy.array(limit, numpy.int64))])
        start = self.rng.choice(["", self.condition(scope)])
        made = scope.node("Loop", [trips, start] + [scope.pick() for _ in values], carried + stacked,
                          body=self.graph(inner, inputs, outputs))
        made = [made] if carried + stacked == 1 else made
        for k, name in enumerate(made):
            if k >= carried:
                axes = scope.constant(numpy.array([0], numpy.int64))
                scope.keep(scope.node("Tanh", [scope.node("ReduceSum", [name, axes], keepdims=0)]))
            elif grows and k == 0:
                self.merged(scope, name)
            else:
                scope.keep(name)

    def scan(self, scope, depth):
        axis = self.rng.randint(0, 1)
        rest = SHAPE[1 - axis]
        axes = scope.constant(numpy.array([axis], numpy.int64))
        start = scope.node("ReduceSum", [scope.pick(), axes], keepdims=0)
        inner = Scope(self, scope.values)
        if self.rng.random() < 0.5:
            self.body(inner, depth + 1, 1)
        state, slice_ = self.name("state"), self.name("slice")
        inner_axes = inner.constant(numpy.array([axis], numpy.int64))
        outer = inner.node("ReduceSum", [inner.pick(), inner_axes], keepdims=0)
        following = inner.node("Tanh", [inner.node("Add", [state, inner.node("Mul", [slice_, outer])])])
        row = inner.node("Sub", [following, slice_])
        body = self.graph(inner, [info(state, FLOAT, [rest]), info(slice_, FLOAT, [rest])],
                          [info(following, FLOAT, [rest]), info(row, FLOAT, [rest])])
        last, rows = scope.node("Scan", [start, scope.pick()], 2, body=body, num_scan_inputs=1,
                                scan_input_axes=[axis - 2 * self.rng.randint(0, 1)], scan_output_axes=[axis],
                                scan_input_directions=[self.rng.randint(0, 1)], scan_output_directions=[self.rng.randint(0, 1)])
        scope.keep(rows)
        spread = scope.node("Unsqueeze", [last, axes])
        scope.keep(scope.node("Tanh", [scope.node("Add", [spread, scope.pick()])]))

    def step(self, scope, depth):
        kinds = [self.simple] if depth >= 3 else [self.conditional, self.loop, self.scan]
        kind = self.rng.choice(kinds + [self.simple] * (1 + depth))
        if kind == self.simple:
            kind(scope)
        else:
            kind(scope, depth)

    def graph(self, scope, inputs, outputs):
        return helper.make_graph(scope.nodes, self.name("graph"), inputs, outputs, scope.initializers)

    def model(self):
        main = Scope(self, ["x", "w"])
        self.body(main, 0, self.rng.randint(2, 4))
        outputs = sorted(set(main.values[-3:]) - {"x", "w"}) or [self.simple(main)]
        inputs = [info("x", FLOAT, SHAPE), info("w", FLOAT, SHAPE), info("flag", BOOL, []), info("turns", INT64, [])]
        graph = self.graph(main, inputs, [info(name, FLOAT, SHAPE) for name in outputs])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        onnx.checker.check_model(model)
        return model


def write_case(folder, seed):
    case = Case(seed)
    model = case.model()
    random_values = numpy.random.default_rng(seed)
    feeds = {
        "x": random_values.uniform(-1, 1, SHAPE).astype(numpy.float32),
        "w": random_values.uniform(-1, 1, SHAPE).astype(numpy.float32),
        "flag": numpy.array(bool(random_values.integers(2))),
        "turns": numpy.array(random_values.integers(0, 4), numpy.int64),
    }
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    used = {i.name for i in session.get_inputs()}
    wanted = session.run(None, {name: value for name, value in feeds.items() if name in used})
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "data.json").write_text(json.dumps({"rtol": 1e-4, "atol": 1e-5}))
    for k, value in enumerate(model.graph.input):
        (data / f"input_{k}.pb").write_bytes(numpy_helper.from_array(feeds[value.name], value.name).SerializeToString())
    for k, (value, array) in enumerate(zip(model.graph.output, wanted)):
        (data / f"output_{k}.pb").write_bytes(numpy_helper.from_array(array, value.name).SerializeToString())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--keep", type=pathlib.Path, help="leaves the cases there")
    parser.add_argument("--providers", default="cpu")
    parser.add_argument("--plugins", type=pathlib.Path, help="where their plugins lie, below the build folder")
    arguments = parser.parse_args()
    choice = ["--providers", arguments.providers, "--fallback", "allow"]
    if arguments.plugins:
        choice += ["--plugin-path", PROGRAM.parent.parent / arguments.plugins]
    print(f"seeds {arguments.seed} to {arguments.seed + arguments.count - 1}")
    skipped = 0
    with tempfile.TemporaryDirectory(prefix="backplane_control_flow_") as temporary:
        folder = arguments.keep or pathlib.Path(temporary)
        for seed in range(arguments.seed, arguments.seed + arguments.count):
            try:
                write_case(folder / f"seed_{seed}", seed)
            except Exception as error:  # a graph that the reference refuses tells nothing
                skipped += 1
                print(f"seed {seed}: no reference: {str(error).splitlines()[0][:150]}")
        done = subprocess.run([PROGRAM, "verify", folder, "--json", "-", *choice], capture_output=True, text=True, check=False, timeout=500)
        if done.returncode not in (0, 1):
            sys.exit(f"verify ended with {done.returncode}: {done.stderr}")
        results = json.loads(done.stdout)
    failed = {case: result for case, result in sorted(results.items()) if result["status"] != "pass"}
    for case, result in failed.items():
        print(f"{case}: {result['status']}: {result['reason']}")
    if skipped * 10 > arguments.count:
        print(f"{skipped} of {arguments.count} graphs have no reference: too many to say anything")
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed, {skipped} skipped")
    sys.exit(bool(failed) or skipped * 10 > arguments.count)


if __name__ == "__main__":
    main()
