#!/usr/bin/env python3
"""backplane inspect and providers: JSON forms, tables, drawings."""

import json
import re
import shutil
import subprocess

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import program
from program import model, node, value


def small_model():
    weight = numpy_helper.from_array(np.ones(3, np.float32), "w")
    nodes = [node("Relu", ["x"], ["r"], name="same"), node("Add", ["r", "w"], ["a"], name="same"),
             node("Identity", ["a"], ["y"])]
    return model(nodes, [value("x", shape=("n", 3)), value("w", shape=(3,))], [value("y", shape=("n", 3))], [weight])


class Inspect(program.ProgramTest):
    def setUp(self):
        super().setUp()
        self.model = self.save(small_model())

    def test_json_has_the_contracts_form(self):
        made = self.json_of("inspect", self.model)
        self.assertEqual(made["ir_version"], 8)
        self.assertEqual(made["opsets"][""], 17)
        self.assertEqual(made["inputs"], [{"name": "x", "type": "tensor(float)", "shape": ["n", 3]}])
        self.assertEqual(made["outputs"], [{"name": "y", "type": "tensor(float)", "shape": ["n", 3]}])
        self.assertEqual(made["overridable_initializers"], [{"name": "w", "type": "tensor(float)", "shape": [3]}])
        self.assertEqual([n["op"] for n in made["nodes"]], ["Relu", "Add", "Identity"])
        for key in ("name", "op", "domain", "provider", "kernel", "fused_into", "reasons"):
            self.assertIn(key, made["nodes"][0])
        for key in ("subgraphs", "copies", "order"):
            self.assertIsInstance(made[key], list)
        self.assertIsInstance(made["arena_bytes"], dict)

    def test_node_names_are_made_unique(self):
        names = [n["name"] for n in self.json_of("inspect", self.model)["nodes"]]
        self.assertEqual(len(set(names)), 3)
        self.assertEqual(names[0], "same")
        self.assertRegex(names[2], r"^Identity_\d+$")

    def test_constants_that_would_fill_the_memory_stay_nodes(self):
        weight = numpy_helper.from_array(np.ones(1024, np.float32), "c0")
        joins = [node("Concat", [f"c{i}", f"c{i}"], [f"c{i + 1}"], name=f"join{i}", axis=0) for i in range(22)]
        bomb = model(joins + [node("ReduceSum", ["c22"], ["sum"], keepdims=0), node("Add", ["x", "sum"], ["y"])],
                     [value("x")], [value("y")], [weight])
        nodes = self.json_of("inspect", self.save(bomb, "bomb.onnx"), "--providers", "cpu")["nodes"]
        joined = [n["name"] for n in nodes if n["op"] == "Concat" and n["provider"] == "cpu"]
        self.assertGreaterEqual(len(joined), 5)  # of 22; the last one has 16 GiB
        self.assertIn("join21", joined)

    def test_tables(self):
        text = self.succeed("inspect", self.model)
        for part in ("IR version 8", "input", "[n,3]", "overridable", "cpu"):
            self.assertIn(part, text)
        self.assertNotIn("same", text)
        text = self.succeed("inspect", self.model, "--explain")
        self.assertIn("same", text)
        self.assertIn("Relu", text)

    def test_nodes_are_told_in_the_order_in_which_they_run(self):
        backwards = model([node("Add", ["r", "s"], ["y"], name="third"), node("Sqrt", ["r"], ["s"], name="second"),
                           node("Relu", ["x"], ["r"], name="first")], [value("x")], [value("y")])
        path = self.save(backwards, "backwards.onnx")
        text = self.succeed("inspect", path, "--explain")
        self.assertEqual(re.findall(r"^  (first|second|third) ", text, re.M), ["first", "second", "third"])
        self.assertEqual(self.json_of("inspect", path)["order"], ["first", "second", "third"])

    def test_metadata_is_shown(self):
        described = small_model()
        for key, text in (("author", "somebody"), ("labels", "cat\n" * 100)):
            helper.set_model_props(described, {**{p.key: p.value for p in described.metadata_props}, key: text})
        text = self.succeed("inspect", self.save(described, "described.onnx"))
        self.assertRegex(text, r"(?m)^author +somebody$")
        self.assertRegex(text, r"(?m)^labels +cat cat .* \.\.\.$")
        self.assertNotIn("metadata", self.succeed("inspect", self.model))

    def test_two_files_of_one_name_are_an_error(self):
        self.fail_with(2, ["--html", "what the command reads"], "inspect", self.model, "--html", self.model)
        self.fail_with(2, ["'x.html'", "two of the files"], "inspect", self.model, "--dot", self.folder / "x.html", "--html", "x.html")
        self.assertNotIn("x.html", self.files())
        self.save('{"traceEvents": []}', "trace")
        self.fail_with(2, ["--html", "the trace"], "inspect", self.model, "--profile", "trace", "--html", "trace")
        self.save("log_level = 'error'", "c.toml")
        self.fail_with(2, ["--dot", "the configuration"], "inspect", self.model, "--config", "c.toml", "--dot", "c.toml")

    def test_json_is_the_same_with_explain(self):
        self.assertEqual(self.json_of("inspect", self.model), self.json_of("inspect", self.model, "--explain"))

    def test_dot_draws_the_graph(self):
        self.succeed("inspect", self.model, "--dot", "g.dot")
        text = (self.folder / "g.dot").read_text()
        self.assertTrue(text.startswith("digraph"))
        self.assertEqual(len(re.findall(r"^  node\d+ \[", text, re.M)), 2, "Relu and Add; Identity is optimized away")
        for edge in ('"inputs x" -> node0', '"overridable_initializers w" -> node1', "node0 -> node1",
                     'node1 -> "outputs y"'):
            self.assertIn(edge, text)
        if shutil.which("dot"):
            subprocess.run(["dot", "-Tsvg", "-o", "/dev/null", str(self.folder / "g.dot")], check=True)

    def test_dot_quotes_names(self):
        path = self.save(model([node("Relu", ["x"], ["y"], name='a"b\\c\nd')], [value("x")], [value("y")]))
        self.succeed("inspect", path, "--dot", "g.dot")
        self.assertIn('a\\"b\\\\c d', (self.folder / "g.dot").read_text())

    def test_dot_to_nowhere(self):
        self.fail_with(2, ["--dot", "nowhere"], "inspect", self.model, "--dot", "nowhere/g.dot")
        self.fail_with(2, ["--dot", "folder"], "inspect", self.model, "--dot", ".")

    def test_names_that_are_not_text(self):
        path = self.save(model([node("Relu", ["x"], ["y"], name="\u0007\u001b[31mred")], [value("x")], [value("y")]))
        self.assertNotIn("\u001b", self.succeed("inspect", path, "--explain"))
        json.loads(self.succeed("inspect", path, "--json"))

    def test_forbid_names_node_and_reasons(self):
        path = self.save(model([node("Fault", ["x"], ["y"], name="lonely", domain="backplane.tests")], [value("x")],
                               [value("y")]))
        self.fail_with(2, ["lonely", "Fault"], "inspect", path, "--fallback", "forbid")


class Providers(program.ProgramTest):
    def test_json(self):
        rows = self.json_of("providers")
        for row in rows:  # sessions check their kernels only where a model has the operator
            self.assertNotIn("refused", row["reason"] or "")
        loaded = {row["provider"]: row for row in rows if row["status"] == "loaded"}
        self.assertIn("cpu", loaded)
        row = loaded["cpu"]
        for key in ("file", "status", "reason", "abi", "provider", "version", "devices", "kernels"):
            self.assertIn(key, row)
        self.assertGreater(row["kernels"], 0)
        for key in ("id", "name", "memory_bytes"):
            self.assertIn(key, row["devices"][0])

    def test_a_broken_plugin_is_a_row(self):
        (self.folder / "plugins").mkdir()
        self.save("not a shared object", "plugins/broken.so")
        rows = self.json_of("providers", "--plugin-path", "plugins")
        broken = [row for row in rows if row["file"].endswith("broken.so")]
        self.assertEqual(len(broken), 1)
        self.assertEqual(broken[0]["status"], "refused")
        self.assertTrue(broken[0]["reason"])
        self.assertIn("broken.so", self.succeed("providers", "--plugin-path", "plugins"))

    def test_the_variable_names_folders(self):
        (self.folder / "plugins").mkdir()
        self.save("not a shared object", "plugins/broken.so")
        rows = self.json_of("providers", environment={"BACKPLANE_PLUGIN_PATH": str(self.folder / "plugins")})
        self.assertTrue(any(row["file"].endswith("broken.so") for row in rows))
        for wrong, why in (("nowhere", "No such file"), ("plugins/broken.so", "Not a directory")):
            path = str(self.folder / wrong)
            rows = self.json_of("providers", environment={"BACKPLANE_PLUGIN_PATH": path})
            row, = [row for row in rows if row["file"] == path]
            self.assertEqual(row["status"], "refused")
            self.assertIn(why, row["reason"])
            made = self.run_program("inspect", self.save(program.relu_model()), environment={"BACKPLANE_PLUGIN_PATH": path})
            self.assertEqual(made.returncode, 0)
            self.assertIn(f"'{path}' is no folder", made.stderr.decode())


if __name__ == "__main__":
    program.main()
