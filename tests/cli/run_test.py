#!/usr/bin/env python3
"""backplane run: feeds, fetches, the files it writes, and how it fails."""

import json
import os
import resource
import signal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import program
from program import X, model, node, value


def two_step_model():
    nodes = [node("Relu", ["x"], ["r"], name="first"), node("Add", ["r", "r"], ["y"], name="second")]
    return model(nodes, [value("x")], [value("y")])


class Run(program.ProgramTest):
    def setUp(self):
        super().setUp()
        self.model = self.save(two_step_model())
        self.x = f"x={self.save(X, 'x.npy')}"

    def test_outputs_are_written_and_listed(self):
        made = self.json_of("run", self.model, "--input", self.x, "--output-dir", "out")
        self.assertEqual(set(made), {"outputs", "run_ms"})
        self.assertGreater(made["run_ms"], 0)
        self.assertEqual(made["outputs"], [{"name": "y", "type": "tensor(float)", "shape": [2, 3], "file": "out/y.npy"}])
        np.testing.assert_array_equal(np.load(self.folder / "out/y.npy"), 2 * np.maximum(X, 0))
        self.assertEqual(self.files(self.folder / "out"), ["y.npy"])

    def test_without_a_folder_nothing_is_written(self):
        before = self.files()
        made = self.json_of("run", self.model, "--input", self.x)
        self.assertIsNone(made["outputs"][0]["file"])
        self.assertEqual(self.files(), before)
        self.assertIn("tensor(float)", self.succeed("run", self.model, "--input", self.x))

    def test_inner_values_can_be_fetched(self):
        made = self.json_of("run", self.model, "--input", self.x, "--output", "r", "--output", "y", "--output-dir", "o")
        self.assertEqual([o["name"] for o in made["outputs"]], ["r", "y"])
        np.testing.assert_array_equal(np.load(self.folder / "o/r.npy"), np.maximum(X, 0))
        self.fail_with(2, ["'yy'"], "run", self.model, "--input", self.x, "--output", "yy")

    def test_runs_start_at_inner_values_and_take_only_what_they_need(self):
        made = self.json_of("run", self.model, "--input", "r=x.npy", "--output-dir", "o")
        self.assertEqual(made["outputs"][0]["name"], "y")
        np.testing.assert_array_equal(np.load(self.folder / "o/y.npy"), 2 * X)
        path = self.save(model([node("Relu", ["a"], ["y"]), node("Add", ["a", "b"], ["z"])],
                               [value("a"), value("b"), value("unused")], [value("y"), value("z")]), "two.onnx")
        self.succeed("run", path, "--input", "a=x.npy", "--output", "y")
        self.succeed("run", path, "--input", "a=x.npy", "--input", "b=x.npy")
        self.fail_with(2, ["'b' tensor(float) [2,3]", "not fed"], "run", path, "--input", "a=x.npy")
        constant = model([node("Add", ["x", "w"], ["y"])], [value("x")], [value("y")],
                         [numpy_helper.from_array(X, "w")])
        self.fail_with(2, ["'w'", "initializer", "does not list it"], "run", self.save(constant, "w.onnx"), "--input",
                       self.x, "--input", "w=x.npy")

    def test_optional_inputs_may_be_left_out(self):
        kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 3]))
        path = self.save(model([node("OptionalHasElement", ["o"], ["y"])], [helper.make_value_info("o", kind)],
                               [value("y", TensorProto.BOOL, ())], opset=18), "optional.onnx")
        self.json_of("run", path, "--output-dir", "o")
        self.assertFalse(np.load(self.folder / "o/y.npy"))
        self.succeed("bench", path, "--runs", "1")

    def test_missing_inputs_are_named_with_type_and_shape(self):
        dynamic = model([node("Add", ["a", "b"], ["y"])],
                        [value("a", shape=("batch", 3)), value("b", shape=(1, 3))], [value("y", shape=None)])
        path = self.save(dynamic, "add.onnx")
        self.fail_with(2, ["'a' tensor(float) [batch,3]", "'b' tensor(float) [1,3]"], "run", path)
        self.fail_with(2, ["'b'"], "run", path, "--input", f"a={self.folder}/x.npy")

    def test_wrong_names(self):
        self.fail_with(2, ["'xx'", "did you mean 'x'"], "run", self.model, "--input", "xx=x.npy")
        self.fail_with(2, ["NAME=FILE"], "run", self.model, "--input", "x.npy")
        self.fail_with(2, ["--input", "'x'", "twice"], "run", self.model, "--input", self.x, "--input", self.x)
        self.fail_with(2, ["no value 'rr'", "did you mean 'r'"], "run", self.model, "--input", self.x, "--output", "rr")
        self.fail_with(2, ["no value 'nothing'", "its outputs are 'y'"], "run", self.model, "--input", self.x, "--output", "nothing")
        self.fail_with(2, ["--output", "'y'", "twice"], "run", self.model, "--input", self.x, "--output", "y", "--output", "r",
                       "--output", "y")

    def test_names_may_hold_an_equals_sign(self):
        path = self.save(model([node("Relu", ["a=b"], ["y"])], [value("a=b"), value("a")], [value("y")]))
        made = self.json_of("run", path, "--input", "a=b=x.npy", "--input", "a=x.npy")
        self.assertEqual(made["outputs"][0]["shape"], [2, 3])

    def test_wrong_feeds_name_the_value(self):
        for array in (X.astype(np.float64), X[0], X[:1]):
            np.save(self.folder / "bad.npy", array)
            self.fail_with(2, ["'x'"], "run", self.model, "--input", "x=bad.npy")

    def test_files_that_cannot_be_read(self):
        self.fail_with(2, ["'x'", "none.npy"], "run", self.model, "--input", "x=none.npy")
        (self.folder / "folder.npy").mkdir()
        self.fail_with(2, ["'x'", "is a folder"], "run", self.model, "--input", "x=folder.npy")
        self.save("text", "x.txt")
        self.fail_with(2, ["x.txt", ".npy", ".pb"], "run", self.model, "--input", "x=x.txt")
        self.save(b"\xff\xff\xff", "x.pb")
        self.fail_with(2, ["'x'", "x.pb"], "run", self.model, "--input", "x=x.pb")
        self.save(b"", "x.pb")
        self.fail_with(2, ["'x.pb' is empty"], "run", self.model, "--input", "x=x.pb")
        self.save(numpy_helper.from_list([X], "several").SerializeToString(), "x.pb")
        self.fail_with(2, ["'x.pb'", "it was read as what the model wants, a tensor(float)"], "run", self.model, "--input", "x=x.pb")

    def test_serialized_tensors_are_read(self):
        self.save(numpy_helper.from_array(X, "some name"), "x.pb")
        self.json_of("run", self.model, "--input", "x=x.pb", "--output-dir", "o")
        np.testing.assert_array_equal(np.load(self.folder / "o/y.npy"), 2 * np.maximum(X, 0))

    def test_a_pipe_is_a_file(self):
        os.mkfifo(self.folder / "pipe.npy")
        content = (self.folder / "x.npy").read_bytes()
        if os.fork() == 0:
            (self.folder / "pipe.npy").write_bytes(content)
            os._exit(0)
        self.json_of("run", self.model, "--input", "x=pipe.npy")
        os.wait()

    def test_unsafe_names_and_clashes(self):
        outputs = ["a/b", "a b", "a_b", "ä", "..", "x" * 300]
        nodes = [node("Relu", ["x"], [name]) for name in outputs]
        path = self.save(model(nodes, [value("x")], [value(name) for name in outputs]))
        made = self.json_of("run", path, "--input", self.x, "--output-dir", "o")
        files = [entry["file"] for entry in made["outputs"]]
        self.assertEqual(files[:5], ["o/a_b.npy", "o/a_b_1.npy", "o/a_b_2.npy", "o/_.npy", "o/...npy"])
        self.assertEqual(len(self.files(self.folder / "o")), len(outputs))
        self.assertEqual([entry["name"] for entry in made["outputs"]], outputs)

    def test_a_failed_kernel_is_a_failed_run(self):
        path = self.save(program.fault_model("fail"))
        self.fail_with(3, ["the_fault", "told to fail"], "run", path, "--input", self.x, "--custom-ops", program.FAULTS,
                       "--output-dir", "o")
        self.assertEqual(self.files(self.folder / "o"), [])

    def test_a_run_past_its_deadline_is_a_failed_run(self):
        body = helper.make_graph([node("Identity", ["go"], ["on"]), node("Neg", ["v"], ["w"])], "turn",
                                 [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()), value("v")],
                                 [value("on", TensorProto.BOOL, ()), value("w")])
        path = self.save(model([node("Loop", ["", "", "x"], ["y"], name="endless", body=body)], [value("x")], [value("y")]))
        self.fail_with(3, ["node 'endless' (Loop)", "the run's deadline passed: its option timeout_ms is 200"], "run", path,
                       "--input", self.x, "--timeout", "0.2", "--output-dir", "o")
        self.assertEqual(self.files(self.folder / "o"), [])
        for wrong in ("-1", "soon"):
            self.fail_with(2, ["--timeout"], "run", path, "--input", self.x, "--timeout", wrong)
        quick = self.save(program.relu_model((2, 3)))
        self.json_of("run", quick, "--input", self.x, "--timeout", "600")

    def test_values_that_turn_out_wrong_on_the_way_are_a_failed_run(self):
        """Shapes that need values of the run are planned while it runs: it has begun then. What depends on small inputs alone is known
        before."""
        wide = f"x={self.save(np.ones(1000, np.float32), 'wide.npy')}"
        relu, total = node("Relu", ["x"], ["a"]), node("ReduceSum", ["a"], ["n"], keepdims=0)
        body = helper.make_graph([node("Identity", ["go"], ["on"]), node("Range", ["zero", "i", "one"], ["w"])], "turn",
                                 [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ())],
                                 [value("on", TensorProto.BOOL, ()), value("w", TensorProto.INT64, None)],
                                 [numpy_helper.from_array(np.array(number), name)
                                  for name, number in (("zero", 0), ("one", 1))])
        count = numpy_helper.from_array(np.array(3), "count")
        rows = [("Range", [relu, total, node("Range", ["n", "n", "zeros"], ["y"])],
                 [numpy_helper.from_array(np.array(0, np.float32), "zeros")], TensorProto.FLOAT, "delta is 0"),
                ("Reshape", [node("NonZero", ["x"], ["i"]), node("Reshape", ["i", "count"], ["y"])],
                 [numpy_helper.from_array(np.array([7]), "count")], TensorProto.INT64, "cannot become [7]"),
                ("Loop", [node("Loop", ["count", ""], ["y"], body=body)], [count], TensorProto.INT64, "turn 1 of its body")]
        for op, nodes, constants, kind, words in rows:
            with self.subTest(op):
                path = self.save(model(nodes, [value("x", shape=(1000,))], [value("y", kind, None)], constants))
                self.fail_with(3, [f"({op})", words], "run", path, "--input", wide, "--providers", "cpu")

    def test_sizes_that_no_memory_has_are_a_failed_run_that_names_the_value(self):
        path = self.save(model([node("Expand", ["v", "s"], ["y"], name="wide"), node("ReduceMax", ["y"], ["z"])],
                               [value("v", shape=(1,)), value("s", TensorProto.INT64, (2,))],
                               [value("y", shape=None), value("z", shape=None)]))
        np.save(self.folder / "v.npy", np.ones(1, np.float32))
        np.save(self.folder / "s.npy", np.array([1 << 20, 1 << 20]))
        for output in ("y", "z"):
            self.fail_with(3, ["'y'", "'wide'", f"{1 << 42} bytes"], "run", path, "--input", "v=v.npy", "--input", "s=s.npy",
                           "--output", output, "--providers", "cpu")
        self.fail_with(3, ["input 'x'", f"{1 << 42} bytes"], "bench", self.save(program.relu_model((1 << 20, 1 << 20))))

    def test_a_crash_is_a_failed_run(self):
        path = self.save(program.fault_model("abort"))
        self.fail_with(3, ["crashed: aborted (SIGABRT) in node 'the_fault' (backplane.tests::Fault) on cpu; ", "backplane check"],
                       "run", path, "--input", self.x, "--custom-ops", program.FAULTS, "--output-dir", "o")
        self.assertEqual(self.files(self.folder / "o"), [])

    def test_a_crash_of_another_thread_is_a_failed_run(self):
        path = self.save(program.fault_model("crash_in_loop"))
        self.fail_with(3, ["crashed", "(SIGSEGV) in node 'the_fault' (backplane.tests::Fault) on cpu; "], "run", path,
                       "--input", self.x, "--custom-ops", program.FAULTS, "--threads", "2",
                       environment={name: os.environ.get(name, "") + ":handle_segv=0" for name in program.SANITIZERS})

    def test_an_interrupt_while_it_computes_is_a_failed_run(self):
        path = self.save(program.fault_model("hang"))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number.name):
                folder = self.folder / number.name
                self.interrupt(number, folder.exists, "run", path, "--input", self.x, "--custom-ops", program.FAULTS,
                               "--output-dir", number.name)
                self.assertEqual(self.files(folder), [])

    def test_an_interrupt_while_it_writes_leaves_no_half_of_a_file(self):
        """The profile is a pipe that nobody reads: the other file is written, and not yet in its place."""
        self.save(np.zeros(1), "o/y.npy")
        before = (self.folder / "o/y.npy").read_bytes()
        os.mkfifo(self.folder / "trace")
        self.interrupt(signal.SIGINT, lambda: len(self.files(self.folder / "o")) > 1, "run", self.model, "--input", self.x,
                       "--output-dir", "o", "--profile", "trace")
        self.assertEqual(self.files(self.folder / "o"), ["y.npy"])
        self.assertEqual((self.folder / "o/y.npy").read_bytes(), before)

    def test_an_interrupt_while_the_library_writes_leaves_no_half_of_a_file(self):
        environment = {**os.environ, "LD_PRELOAD": str(program.ENDLESS_FSYNC),
                       "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        for key in ("save_plan", "optimized_model_path"):
            with self.subTest(key):
                folder = self.folder / key
                folder.mkdir()
                self.interrupt(signal.SIGTERM, lambda folder=folder: self.files(folder), "run", self.model, "--input", self.x,
                               "--set", f"{key}={key}/file", env=environment)
                self.assertEqual(self.files(folder), [])

    def test_16_bits_are_widened_whatever_the_model_imports(self):
        """Casts that are inserted have all types, even if the model's ai.onnx is older than they are, or is not imported."""
        half = TensorProto.FLOAT16
        old = model([node("MatMul", ["x", "w"], ["y"])], [value("x", half), value("w", half, (3, 2))],
                    [value("y", half, (2, 2))], opset=5)
        product = helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", K=3, N=2, bits=8, block_size=16)
        graph = helper.make_graph([product], "g", [value("x", half)], [value("y", half, (2, 2))], [
            numpy_helper.from_array(np.full((2, 1, 16), 130, np.uint8), "b"), numpy_helper.from_array(np.ones(2, np.float16), "s")])
        alone = helper.make_model(graph, opset_imports=[helper.make_opsetid("com.microsoft", 1)], ir_version=8)
        feeds = [f"x={self.save(X.astype(np.float16), 'x16.npy')}", f"w={self.save(np.full((3, 2), 2, np.float16), 'w16.npy')}"]
        for each, inputs in ((old, feeds), (alone, feeds[:1])):
            path = self.save(each)
            words = [word for feed in inputs for word in ("--input", feed)]
            self.succeed("run", path, *words, "--providers", "cpu", "--output-dir", "wide")
            np.testing.assert_array_equal(np.load(self.folder / "wide/y.npy"), np.repeat(2 * X.sum(1, keepdims=True), 2, 1))
            self.assertIn("(widened)", self.succeed("inspect", path, "--providers", "cpu", "--explain"))

    def test_profile_is_a_trace(self):
        self.succeed("run", self.model, "--input", self.x, "--profile", "trace.json")
        trace = json.loads((self.folder / "trace.json").read_text())
        spans = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
        self.assertTrue(spans)
        self.fail_with(2, ["--profile"], "run", self.model, "--input", self.x, "--profile", "nowhere/trace.json")
        self.fail_with(2, ["--profile: '-'"], "run", self.model, "--input", self.x, "--profile", "-")
        (self.folder / "link").symlink_to(self.model)
        self.fail_with(2, ["--profile", "what the command reads"], "run", self.model, "--input", self.x, "--profile", "link")

    def test_a_profile_does_not_replace_an_output(self):
        (self.folder / "o").mkdir()
        self.fail_with(2, ["o/../o/y.npy", "two of the files"], "run", self.model, "--input", self.x, "--output-dir", "o", "--profile",
                       "o/../o/y.npy")
        self.assertEqual(self.files(self.folder / "o"), [])

    def test_nothing_is_written_over_what_is_read(self):
        weights = helper.make_tensor("w", TensorProto.FLOAT, (3,), np.ones(3, np.float32).tobytes(), raw=True)
        outside = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=(3,), data_location=TensorProto.EXTERNAL)
        outside.external_data.add(key="location", value="w.bin")
        self.save(weights.raw_data, "w.bin")
        path = self.save(model([node("Add", ["x", "w"], ["y"])], [value("x")], [value("y")], [outside]), "e.onnx")
        self.save("log_level = 'error'\n", "c.toml")
        os.link(self.folder / "w.bin", self.folder / "hard.bin")
        before = {name: (self.folder / name).read_bytes() for name in self.files()}
        for file, what in (("w.bin", "weights"), ("hard.bin", "weights"), ("c.toml", "configuration"), ("x.npy", "an input"),
                           ("e.onnx", "the model")):
            self.fail_with(2, ["--profile", file, what], "run", path, "--input", self.x, "--config", "c.toml", "--profile", file)
        self.fail_with(2, ["--profile", "c.toml"], "run", path, "--input", self.x, "--profile", "c.toml",
                       environment={"BACKPLANE_CONFIG": "c.toml"})
        for option in ("save_plan", "optimized_model_path"):
            for file in ("w.bin", "hard.bin", "c.toml"):
                self.fail_with(2, [option, file], "run", path, "--input", self.x, "--config", "c.toml", "--set", f"{option}={file}")
        self.fail_with(2, ["p", "save_plan"], "run", path, "--input", self.x, "--set", "save_plan=p", "--set", "optimized_model_path=./p")
        self.assertEqual({name: (self.folder / name).read_bytes() for name in self.files()}, before)
        self.fail_with(2, ["--profile", "plan that is saved"], "run", path, "--input", self.x, "--set", "save_plan=p", "--profile", "p")
        self.save(X, "o/y.npy")
        self.fail_with(2, ["--output-dir", "o/y.npy", "an input"], "run", path, "--input", "x=o/y.npy", "--output-dir", "o")
        self.save(X, "o/w.npy")
        self.fail_with(2, ["--output-dir", "o/w.npy", "an input"], "run", path, "--input", "x=o/w.npy", "--output-dir", "o",
                       "--output", "w")
        np.testing.assert_array_equal(np.load(self.folder / "o/w.npy"), X)

    def test_files_that_are_replaced_hand_on_their_permissions(self):
        (self.folder / "o").mkdir()
        for name in ("o/y.npy", "trace", "plan"):
            self.save("old", name)
            (self.folder / name).chmod(0o600)
        os.symlink("later", self.folder / "link")
        for trace in ("trace", "link"):
            self.succeed("run", self.model, "--input", self.x, "--output-dir", "o", "--profile", trace, "--set", "save_plan=plan")
        for name in ("o/y.npy", "trace", "plan"):
            self.assertEqual((self.folder / name).stat().st_mode & 0o777, 0o600, name)
        self.assertTrue((self.folder / "link").is_symlink())
        self.assertTrue((self.folder / "later").is_file())
        if os.geteuid() != 0:
            (self.folder / "o/y.npy").chmod(0o444)
            self.fail_with(2, ["o/y.npy", "cannot be written"], "run", self.model, "--input", self.x, "--output-dir", "o")

    def test_output_folders_that_cannot_be(self):
        self.save("text", "file")
        self.fail_with(2, ["--output-dir", "'file'"], "run", self.model, "--input", self.x, "--output-dir", "file")
        self.fail_with(2, ["--output-dir"], "run", self.model, "--input", self.x, "--output-dir", "file/below")
        (self.folder / "o/y.npy").mkdir(parents=True)
        self.fail_with(2, ["--output-dir", "o/y.npy' is a folder"], "run", self.model, "--input", self.x, "--output-dir", "o")

    def test_a_full_disk_leaves_nothing(self):
        big = self.save(model([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["z"])], [value("x", shape=(300, 300))],
                              [value("y", shape=(300, 300)), value("z", shape=(300, 300))]))
        self.save(np.ones((300, 300), np.float32), "big.npy")

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

        self.fail_with(3, ["y.npy"], "run", big, "--input", "x=big.npy", "--output-dir", "o", preexec_fn=limit)
        self.assertEqual(self.files(self.folder / "o"), [])

    def test_devices_are_written_in_place(self):
        os.mkfifo(self.folder / "trace")
        if os.fork() == 0:
            text = (self.folder / "trace").read_text()
            os._exit(0 if "traceEvents" in text else 1)
        self.succeed("run", self.model, "--input", self.x, "--profile", "trace")
        self.assertEqual(os.wait()[1], 0)
        self.assertTrue((self.folder / "trace").is_fifo())

    def test_a_link_stays_a_link(self):
        (self.folder / "o").mkdir()
        self.save("old", "target.npy")
        os.symlink("../target.npy", self.folder / "o/y.npy")
        self.succeed("run", self.model, "--input", self.x, "--output-dir", "o")
        self.assertTrue((self.folder / "o/y.npy").is_symlink())
        np.testing.assert_array_equal(np.load(self.folder / "target.npy"), 2 * np.maximum(X, 0))


class Types(program.ProgramTest):
    """Values of every type come out as they went in."""

    def round_trip(self, dtype, file, shape=(2, 3)):
        path = self.save(program.identity_model(dtype, shape))
        made = self.json_of("run", path, "--input", f"x={file}", "--output-dir", "o")
        return self.folder / made["outputs"][0]["file"]

    def test_types_of_numpy(self):
        for dtype in ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                      "uint64", "bool", "complex64", "complex128"):
            with self.subTest(dtype):
                array = (np.arange(6).reshape(2, 3) % 5).astype(dtype)
                np.save(self.folder / "x.npy", array)
                file = self.round_trip(helper.np_dtype_to_tensor_dtype(array.dtype), "x.npy")
                self.assertEqual(file.suffix, ".npy")
                self.assertEqual(np.load(file).dtype, array.dtype)
                np.testing.assert_array_equal(np.load(file), array)

    def test_elements_are_shown_exactly(self):
        for array in (np.array([2**63 - 1, -2**63], np.int64), np.array([2**64 - 1, 0], np.uint64),
                      np.array([2**31 - 1, -2**31], np.int32), np.array([2**32 - 1, 0], np.uint32)):
            with self.subTest(array.dtype):
                np.save(self.folder / "x.npy", array)
                path = self.save(program.identity_model(helper.np_dtype_to_tensor_dtype(array.dtype), (2,)))
                self.assertIn(f"  {array[0]} {array[1]}\n", self.succeed("run", path, "--input", "x=x.npy"))
        np.save(self.folder / "x.npy", np.array([0.1, 1 / 3]))
        path = self.save(program.identity_model(TensorProto.DOUBLE, (2,)))
        self.assertIn("  0.1 0.3333333333333333\n", self.succeed("run", path, "--input", "x=x.npy"))
        np.save(self.folder / "x.npy", np.array([0.1, 1 / 3], np.float32))
        path = self.save(program.identity_model(TensorProto.FLOAT, (2,)))
        self.assertIn("  0.1 0.33333334\n", self.succeed("run", path, "--input", "x=x.npy"))

    def test_types_that_numpy_lacks(self):
        for dtype in (TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.INT4):
            with self.subTest(dtype):
                tensor = helper.make_tensor("x", dtype, (2, 3), [1, 2, 3, 4, 5, 6])
                self.save(tensor, "x.pb")
                file = self.round_trip(dtype, "x.pb")
                self.assertEqual(file.suffix, ".pb")
                got = onnx.load_tensor(file)
                self.assertEqual(got.data_type, dtype)
                np.testing.assert_array_equal(numpy_helper.to_array(got), numpy_helper.to_array(tensor))

    def test_strings_from_text_and_bytes(self):
        for array in (np.array(["", "a", "längst"]), np.array([b"", b"a", b"bc"])):
            np.save(self.folder / "x.npy", array)
            got = numpy_helper.to_array(onnx.load_tensor(self.round_trip(TensorProto.STRING, "x.npy", (3,))))
            self.assertEqual([str(s) for s in got], [s if isinstance(s, str) else s.decode() for s in array.tolist()])

    def test_axis_and_byte_orders(self):
        array = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
        for variant in (np.asfortranarray(array), array.astype(">i4"), np.asfortranarray(array.astype(">i4"))):
            np.save(self.folder / "x.npy", variant)
            np.testing.assert_array_equal(np.load(self.round_trip(TensorProto.INT32, "x.npy", (2, 3, 4))), array)

    def test_scalars_and_empty_tensors(self):
        for array in (np.array(3, np.float32), np.zeros((0, 3), np.float32), np.zeros((2, 0), np.float32, order="F")):
            np.save(self.folder / "x.npy", array)
            got = np.load(self.round_trip(TensorProto.FLOAT, "x.npy", array.shape))
            self.assertEqual(got.shape, array.shape)
            np.testing.assert_array_equal(got, array)


class BrokenArrays(program.ProgramTest):
    """.npy files that are none."""

    def setUp(self):
        super().setUp()
        self.model = self.save(program.relu_model())

    def refuse(self, content, *mentions):
        self.save(content, "x.npy")
        self.fail_with(2, ["x.npy", *mentions], "run", self.model, "--input", "x=x.npy")

    @staticmethod
    def array(header, data=b"\0" * 24, version=1):
        text = header.encode() + b"\n"
        length = len(text).to_bytes(2 if version == 1 else 4, "little")
        return b"\x93NUMPY" + bytes([version, 0]) + length + text + data

    def test_versions_two_and_three_are_read(self):
        header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
        for version in (1, 2, 3):
            self.save(self.array(header, version=version), "x.npy")
            self.succeed("run", self.model, "--input", "x=x.npy")
        self.refuse(self.array(header, version=4), "version 4")

    def test_no_npy(self):
        self.refuse(b"", "empty")
        self.refuse(b"P", "no .npy file")
        self.refuse(b"PK\x03\x04" + b"\0" * 100, "no .npy file")
        self.refuse(b"\x93NUMPY", "header")
        self.refuse(b"\x93NUMPY\x01\x00\xff\xff{", "header")

    def test_headers(self):
        good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
        for old, new in (("(2, 3)", "(2, -3)"), ("(2, 3)", "(2, x)"), ("(2, 3)", "(2 3)"), ("(2, 3)", "2"),
                         ("(2, 3)", "(99999999999999999999,)"), ("(2, 3)", "(" + "1," * 40 + ")"), ("False", "Maybe"),
                         ("'descr'", "'other'"), ("}", ""), ("}", "} }"), ("'<f4'", "f4"), ("'<f4'", "'<f4")):
            with self.subTest(new=new):
                self.refuse(self.array(good.replace(old, new)), "header")

    def test_sizes(self):
        header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
        self.refuse(self.array(header, b"\0" * 23), "23 bytes", "[2,3]", "24")
        self.refuse(self.array(header, b"\0" * 25), "25 bytes")
        huge = header.replace("(2, 3)", "(4000000000, 4000000000, 4000000000)")
        self.refuse(self.array(huge), "larger than any file")
        self.refuse(self.array(header.replace("(2, 3)", "(1000000000000,)")), "24 bytes")

    def test_element_types(self):
        for descr, mention in (("'|O'", "Python objects"), ("'<m8[ns]'", "m8"), ("'<f16'", "f16"), ("'|V3'", "V3"),
                               ("[('a', '<f4')]", "records"), ("'<U0'", "U0"), ("'<U99999999999'", "U99")):
            header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': (2, 3), }}"
            self.refuse(self.array(header), mention)


if __name__ == "__main__":
    program.main()
