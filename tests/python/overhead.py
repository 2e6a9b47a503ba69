#!/usr/bin/env python3
"""Microseconds of a session.run from Python, ONNX Runtime's and ours in turn, at one thread: the figures of core/python/README.md.

The least mean of many short rounds, in which all columns take turns: what else runs on the machine then counts little. Columns of
changing shapes have another shape in every run, 40 in turn or as many as the argument says, of at most as many elements.
"""

import itertools
import sys
import time

import suite
from suite import helper, mlp, model, np, one_node, tensor

import backplane
import onnxruntime


SHAPES = int(sys.argv[1]) if len(sys.argv) > 1 else 40


def relu(count):
    data = one_node("Relu", [tensor("x", 1, ["N"])], [tensor("y", 1, ["N"])])
    whole = np.ones(count, np.float32)
    return f"Relu of {4 * count // 1024} KiB", data, [{"x": whole[:count - i].copy()} for i in range(SHAPES)]


def many(count):
    data = model([helper.make_node("Add", [f"x{i}", f"x{i}"], [f"y{i}"]) for i in range(count)],
                 [tensor(f"x{i}", 1, ["N"]) for i in range(count)], [tensor(f"y{i}", 1, ["N"]) for i in range(count)])
    feeds = [{f"x{i}": np.ones(SHAPES - k, np.float32) for i in range(count)} for k in range(SHAPES)]
    return f"{count} inputs, {count} outputs", data, feeds


def layers():
    return "MLP, 16 to 8", mlp(), [{"x": np.ones((1 + i, 16), np.float32)} for i in range(SHAPES)]


def session_of(library, data, provider):
    options = library.SessionOptions()
    options.intra_op_num_threads = 1
    return library.InferenceSession(data, options, providers=[provider])


ROUNDS, ROUND_NS = 150, 1_000_000


def microseconds(calls):
    """Of each call."""
    counts, least = [], [float("inf")] * len(calls)
    for call in calls:
        begin = time.perf_counter_ns()
        for _ in range(2 * SHAPES):
            call()
        counts.append(SHAPES * max(1, ROUND_NS * 2 // (time.perf_counter_ns() - begin)))  # all shapes come as often
    for _ in range(ROUNDS):
        for which, (call, count) in enumerate(zip(calls, counts)):
            begin = time.perf_counter_ns()
            for _ in range(count):
                call()
            least[which] = min(least[which], (time.perf_counter_ns() - begin) / count / 1000)
    return least


def ways(session, feeds):
    """Calls to be measured: of equal shapes, of changing ones."""
    turn = itertools.cycle(feeds)
    return [lambda: session.run(None, feeds[0]), lambda: session.run(None, next(turn))] if len(feeds) > 1 else [
        lambda: session.run(None, feeds[0])]


def main():
    digits = (suite.DIGITS / "digits.onnx").read_bytes()
    cases = [layers(), ("digits", digits, [{"image": np.ones((1, 1, 8, 8), np.float32)}]), many(8),
             *(relu(count) for count in (256, 16 << 10, 64 << 10, 1 << 20))]
    print("| model | ONNX Runtime | changing shapes | Backplane | with RunOptions | changing shapes |\n|---|---:|---:|---:|---:|---:|")
    for name, data, feeds in cases:
        theirs = session_of(onnxruntime, data, "CPUExecutionProvider")
        ours = session_of(backplane, data, "cpu")
        for feed in feeds[:1] * 3 + feeds + feeds:
            for one, other in zip(theirs.run(None, feed), ours.run(None, feed)):
                np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
        options = backplane.RunOptions()
        calls = ways(theirs, feeds)
        calls += ways(ours, feeds)[:1] + [lambda: ours.run(None, feeds[0], options)] + ways(ours, feeds)[1:]
        figures = [f"{least:.3g}" for least in microseconds(calls)]
        if len(feeds) == 1:
            figures = [figures[0], "", *figures[1:], ""]
        print(f"| {name} | " + " | ".join(figures) + " |")


if __name__ == "__main__":
    main()
