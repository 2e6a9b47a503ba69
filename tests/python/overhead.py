#!/usr/bin/env python3
"""Microseconds of a session.run from Python, ONNX Runtime's and ours in turn, at one thread: the figures of core/python/README.md.

The median of three rounds, of each the least of five means. The third column is with RunOptions, which are runs by name.
"""

import statistics
import timeit

import suite
from suite import helper, mlp, model, np, one_node, tensor

import backplane
import onnxruntime


def relu(count):
    data = one_node("Relu", [tensor("x", 1, ["N"])], [tensor("y", 1, ["N"])])
    return f"Relu of {4 * count // 1024} KiB", data, {"x": np.ones(count, np.float32)}


def many(count):
    data = model([helper.make_node("Add", [f"x{i}", f"x{i}"], [f"y{i}"]) for i in range(count)],
                 [tensor(f"x{i}", 1, [4]) for i in range(count)], [tensor(f"y{i}", 1, [4]) for i in range(count)])
    return f"{count} inputs, {count} outputs", data, {f"x{i}": np.ones(4, np.float32) for i in range(count)}


def session_of(library, data, provider):
    options = library.SessionOptions()
    options.intra_op_num_threads = 1
    return library.InferenceSession(data, options, providers=[provider])


def microseconds(call):
    count = max(20, int(0.02 / min(timeit.repeat(call, number=5, repeat=5)) * 5))
    return min(timeit.repeat(call, number=count, repeat=5)) / count * 1e6


def main():
    digits = (suite.DIGITS / "digits.onnx").read_bytes()
    cases = [("MLP, 16 to 8", mlp(1), {"x": np.ones((1, 16), np.float32)}),
             ("digits", digits, {"image": np.ones((1, 1, 8, 8), np.float32)}), many(8),
             *(relu(count) for count in (256, 16 << 10, 64 << 10, 1 << 20))]
    print("| model | ONNX Runtime | Backplane | by name |\n|---|---:|---:|---:|")
    for name, data, feed in cases:
        theirs = session_of(onnxruntime, data, "CPUExecutionProvider")
        ours = session_of(backplane, data, "cpu")
        for _ in range(3):
            for one, other in zip(theirs.run(None, feed), ours.run(None, feed)):
                np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
        options = backplane.RunOptions()
        rounds = [(microseconds(lambda: theirs.run(None, feed)), microseconds(lambda: ours.run(None, feed)),
                   microseconds(lambda: ours.run(None, feed, options))) for _ in range(3)]
        print(f"| {name} | " + " | ".join(f"{statistics.median(column):.3g}" for column in zip(*rounds)) + " |")


if __name__ == "__main__":
    main()
