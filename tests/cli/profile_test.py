#!/usr/bin/env python3
"""The trace of `run --profile`: what Chrome's trace event format and Perfetto ask of it, and what L8 promises."""

import json

import numpy as np

import program
from program import X, model, node, value

# https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: "Complete" and "Metadata" events.
COMPLETE = {"name": str, "cat": str, "ph": str, "ts": (int, float), "dur": (int, float), "pid": int, "tid": int, "args": dict}
CATEGORIES = {"session", "run", "node", "copy"}
STEPS = {"opening providers", "registering operators", "reading the model", "optimizing the graph",
         "placing nodes and creating kernels", "plan"}


class Profile(program.ProgramTest):
    def setUp(self):
        super().setUp()
        nodes = [node("Relu", ["x"], ["a"], name="first"), node("Sigmoid", ["a"], ["y"], name="second")]
        feed = f"x={self.save(X, 'x.npy')}"
        path = self.save(model(nodes, [value("x")], [value("y")]))
        self.succeed("run", path, "--input", feed, "--profile", "trace.json", "--set", "optimization=none")
        self.trace = json.loads((self.folder / "trace.json").read_text())

    def test_events_fit_the_format(self):
        self.assertEqual(set(self.trace), {"traceEvents", "displayTimeUnit"})
        self.assertIn(self.trace["displayTimeUnit"], ("ms", "ns"))
        for event in self.trace["traceEvents"]:
            self.assertIn(event["ph"], ("X", "M"), event)
            if event["ph"] == "M":
                self.assertIn(event["name"], ("process_name", "thread_name"))
                self.assertIsInstance(event["args"]["name"], str)
                continue
            self.assertEqual(set(event), set(COMPLETE), event)
            for key, kind in COMPLETE.items():
                self.assertIsInstance(event[key], kind, event)
            self.assertGreaterEqual(event["ts"], 0)
            self.assertGreaterEqual(event["dur"], 0)
            self.assertIn(event["cat"], CATEGORIES)
            self.assertTrue(all(isinstance(text, str) for text in event["args"].values()), event)

    def test_spans_of_a_lane_nest(self):
        lanes = {}
        for event in self.trace["traceEvents"]:
            if event["ph"] == "X":
                lanes.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"], event["name"]))
        for spans in lanes.values():
            open_spans = []
            for begin, end, name in spans:
                while open_spans and open_spans[-1] <= begin:
                    open_spans.pop()
                self.assertTrue(not open_spans or end <= open_spans[-1] + 0.001, f"{name} crosses another span")
                open_spans.append(end)

    def test_it_holds_session_steps_the_run_and_its_nodes_on_named_lanes(self):
        events = [event for event in self.trace["traceEvents"] if event["ph"] == "X"]
        names = {category: [e["name"] for e in events if e["cat"] == category] for category in CATEGORIES}
        self.assertLessEqual(STEPS, set(names["session"]))
        self.assertEqual(names["run"], ["run"])
        self.assertTrue(names["node"])
        lanes = {e["tid"]: e["args"]["name"] for e in self.trace["traceEvents"] if e["name"] == "thread_name"}
        self.assertEqual({e["tid"] for e in events}, set(lanes))
        run = next(e for e in events if e["cat"] == "run")
        for event in events:
            if event["cat"] == "node":
                self.assertEqual(lanes[event["tid"]], "cpu")
                self.assertGreaterEqual(event["ts"], run["ts"])
                self.assertLessEqual(event["ts"] + event["dur"], run["ts"] + run["dur"] + 0.001)

    def test_nodes_say_how_much_they_compute(self):
        path = self.save(model([node("MatMul", ["x", "x"], ["y"], name="product")], [value("x", shape=(8, 8))], [value("y")]))
        feed = f"x={self.save(np.ones((8, 8), np.float32), 'square.npy')}"
        self.succeed("run", path, "--input", feed, "--profile", "product.json")
        events = json.loads((self.folder / "product.json").read_text())["traceEvents"]
        args = next(e["args"] for e in events if e["name"] == "product" and e["cat"] == "node")
        self.assertEqual(args["flops"], str(2 * 8 * 8 * 8))
        self.assertEqual(args["bytes"], str(2 * 8 * 8 * 4))  # both matrices


if __name__ == "__main__":
    program.main()
