#!/usr/bin/env python3
"""Sessions: what they say of a model, options and providers, errors and their messages, runs with options, bindings, paths, forks."""

import json
import os
import pathlib
import tempfile
import threading
import time
import unittest

import suite
from suite import DIGITS, TensorProto, helper, mlp, mlp_by_numpy, model, np, numpy_helper, one_node, tensor

import backplane
from backplane import InferenceSession, InvalidArgument, RunOptions, SessionOptions, Value

X = np.random.default_rng(1).standard_normal((3, 16)).astype(np.float32)


class Models(unittest.TestCase):
    def test_a_model_is_a_path_bytes_or_a_proto(self):
        data = mlp()
        expected = mlp_by_numpy(data, X)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "mödel.onnx"
            file.write_bytes(data)
            for given in (file, str(file), data, bytearray(data), memoryview(data), suite.onnx.load_from_string(data)):
                np.testing.assert_allclose(InferenceSession(given).run(None, {"x": X})[0], expected, rtol=1e-4, atol=1e-5)
        with self.assertRaisesRegex(InvalidArgument, "a path, bytes or an onnx.ModelProto, not a list"):
            InferenceSession([1])

    def test_errors_name_the_file_and_have_classes(self):
        with self.assertRaisesRegex(backplane.NotFound, "not_there.onnx"):
            InferenceSession("not_there.onnx")
        with self.assertRaises(backplane.Error):
            InferenceSession(b"this is no model")
        with self.assertRaisesRegex(backplane.Error, "NoSuchOperator"):
            InferenceSession(one_node("NoSuchOperator", [tensor("x", 1, [1])], [tensor("y", 1, [1])]))

    def test_inputs_and_outputs_have_types_and_shapes(self):
        weights = numpy_helper.from_array(np.ones(2, np.float32), "w")
        session = InferenceSession(model(
            [helper.make_node("Add", ["x", "w"], ["y"])], [tensor("x", 1, ["batch", None, 2]), tensor("w", 1, [2])],
            [tensor("y", 1, None)], [weights]))
        (x,), (y,), (w,) = session.get_inputs(), session.get_outputs(), session.get_overridable_initializers()
        self.assertEqual((x.name, x.type, x.shape[0], x.shape[2]), ("x", "tensor(float)", "batch", 2))
        self.assertEqual((w.name, w.shape), ("w", [2]))
        self.assertEqual(y.type, "tensor(float)")
        fed = session.run(None, {"x": np.zeros((1, 1, 2), np.float32), "w": np.array([3, 4], np.float32)})[0]
        self.assertEqual(fed.tolist(), [[[3, 4]]])
        scalar = InferenceSession(suite.identity(1, []))
        self.assertEqual(scalar.get_inputs()[0].shape, [])
        unknown = InferenceSession(suite.identity(1, [None, 3]))
        self.assertEqual(unknown.get_inputs()[0].shape, [None, 3])

    def test_metadata(self):
        data = suite.onnx.load_from_string(mlp())
        data.producer_name, data.domain, data.model_version, data.doc_string = "suite", "org.example", 7, "two layers"
        helper.set_model_props(data, {"labels": "0,1", "ä": "ö"})
        meta = InferenceSession(data).get_modelmeta()
        self.assertEqual((meta.producer_name, meta.domain, meta.version, meta.description, meta.graph_name),
                         ("suite", "org.example", 7, "two layers", "test"))
        self.assertEqual(meta.custom_metadata_map, {"labels": "0,1", "ä": "ö"})
        self.assertEqual((meta.opset, meta.ir_version), (21, 10))


class Calls(unittest.TestCase):
    def setUp(self):
        self.session = InferenceSession(mlp())

    def test_outputs_are_chosen_by_name(self):
        y, r = self.session.run(["y", "r"], {"x": X})
        self.assertEqual((y.shape, r.shape), ((3, 8), (3, 32)))
        self.assertEqual(len(self.session.run([], {"x": X})), 1)

    def test_wrong_calls_say_what_is_wrong(self):
        cases = [
            (None, {}, "'x'"),
            (None, {"X1": X}, "no input 'X1'|'X1'"),
            (["z"], {"x": X}, "'z'"),
            ("y", {"x": X}, r"output_names is a list of names: \['y'\]"),
            (None, [X], "dict of names and arrays, not a list"),
            (None, {"x": X[:, :5]}, r"'x'.*16"),
            (None, {"x": X[0]}, "'x'"),
            (None, {"x": None}, "'x'"),
            (None, {"y y": 3}, "no input 'y y'; .*x"),
        ]
        for names, feed, message in cases:
            for _ in range(3):  # also when quick runs are ready
                with self.subTest(message=message), self.assertRaisesRegex(InvalidArgument, message):
                    self.session.run(names, feed)
            self.session.run(None, {"x": X})

    def test_shapes_may_change_from_run_to_run(self):
        for count in (1, 1, 1, 3, 1, 3, 3, 3, 0, 0, 0, 2, 1):
            x = X[:count]
            np.testing.assert_allclose(self.session.run(None, {"x": x})[0], mlp_by_numpy(mlp(), x), rtol=1e-4, atol=1e-5)

    def test_outputs_whose_shape_depends_on_data(self):
        session = InferenceSession(one_node("NonZero", [tensor("x", 1, ["N"])], [tensor("y", 7, [1, "M"])]))
        random = np.random.default_rng(5)
        for _ in range(20):
            x = random.integers(0, 2, 10).astype(np.float32)
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.nonzero(x))

    def test_results_of_earlier_runs_stay(self):
        kept = [self.session.run(None, {"x": X + i})[0] for i in range(6)]
        for i, y in enumerate(kept):
            np.testing.assert_allclose(y, mlp_by_numpy(mlp(), X + i), rtol=1e-3, atol=1e-4)

    def test_values_and_arrays_mix(self):
        made = self.session.run_with_ort_values(["y"], {"x": Value.from_numpy(X)})
        self.assertIsInstance(made[0], Value)
        np.testing.assert_allclose(made[0].numpy(), mlp_by_numpy(mlp(), X), rtol=1e-4, atol=1e-5)

    def test_saved_values(self):
        for _ in range(3):
            self.session.run(None, {"x": X})
        self.session.save(["h"])
        self.assertIsNone(self.session.saved("h"))
        for i in range(4):
            self.session.run(None, {"x": X * i})
            self.assertEqual(self.session.saved("h").shape, (3, 32))
        hidden = self.session.run(["h"], {"x": X * 3})[0]
        np.testing.assert_allclose(self.session.saved("h"), hidden, rtol=1e-5)
        with self.assertRaisesRegex(InvalidArgument, "nothing"):
            self.session.save(["nothing"])


class Options(unittest.TestCase):
    def test_attributes_are_options(self):
        options = SessionOptions()
        options.intra_op_num_threads = 2
        options.inter_op_num_threads = 1
        options.execution_mode = backplane.ExecutionMode.ORT_PARALLEL
        options.graph_optimization_level = backplane.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.enable_profiling = True
        options.log_severity_level = 3
        options.add_free_dimension_override_by_name("N", 3)
        options.add_session_config_entry("my.key", "text")
        self.assertEqual([options.get(key) for key in ("threads", "execution_mode", "optimization", "profile", "log_level", "dim.N")],
                         ["2", "parallel", "basic", "true", "error", "3"])
        self.assertEqual((options.intra_op_num_threads, options.execution_mode, options.enable_profiling),
                         (2, backplane.ExecutionMode.ORT_PARALLEL, True))
        self.assertEqual(options.graph_optimization_level, backplane.GraphOptimizationLevel.ORT_ENABLE_BASIC)
        session = InferenceSession(mlp(), options, ["cpu"])
        self.assertEqual((session.option("threads"), session.option("entry.my.key")), ("2", "text"))
        self.assertEqual(session.get_session_options().get_session_config_entry("my.key"), "text")
        self.assertEqual(session.get_inputs()[0].shape, [3, 16])

    def test_what_nobody_knows_is_an_error_at_once(self):
        options = SessionOptions()
        with self.assertRaises(AttributeError):
            options.intra_op_threads = 2
        with self.assertRaises(AttributeError):
            RunOptions().log_level = 2
        with self.assertRaisesRegex(InvalidArgument, "threads"):
            options.set("thread", 2)
        with self.assertRaises(InvalidArgument):
            options.set("threads", "many")
        with self.assertRaisesRegex(InvalidArgument, "known: 0, 1"):
            options.execution_mode = 7
        self.assertFalse(options.has_session_config_entry("x"))

    def test_options_of_a_session_are_a_copy(self):
        options = SessionOptions()
        InferenceSession(mlp(), options, ["cpu"])
        self.assertEqual(options.get("providers"), "auto")

    def test_providers_by_both_names(self):
        for given, expected in [(["cpu"], ["cpu"]), (["CPUExecutionProvider"], ["CPUExecutionProvider"]), ("cpu", ["cpu"]),
                                ([("cpu", {})], ["cpu"]), (["cpu", "CPUExecutionProvider"], ["CPUExecutionProvider"])]:
            self.assertEqual(InferenceSession(mlp(), providers=given).get_providers(), expected)
        available = backplane.get_available_providers()
        self.assertIn("CPUExecutionProvider", available)
        self.assertEqual(available.index("CPUExecutionProvider"), available.index("cpu") + 1)

    def test_all_available_providers_are_what_a_session_takes_by_itself_first(self):
        every = InferenceSession(mlp(), providers=backplane.get_available_providers())
        of_nodes = [{node["provider"] for node in session.explain()["nodes"]} for session in (InferenceSession(mlp()), every)]
        self.assertEqual(of_nodes[0], of_nodes[1])
        for given, message in [(["TensorrtsExecutionProvider"], "'TensorrtsExecutionProvider'.*did you mean 'TensorrtExecutionProvider'"),
                               (["CPUExecutionProvder"], "CPUExecutionProvder"),
                               (["cqu"], "cpu"), ([3], "a name or a pair"), ([("cpu", {"no_option": 1})], "no_option")]:
            with self.assertRaisesRegex(backplane.Error, message):
                InferenceSession(mlp(), providers=given)
        with self.assertRaisesRegex(InvalidArgument, "CPUExecutionProvider"):
            InferenceSession(mlp(), providers=["CPUExecutionProvder" + "ExecutionProvider"])
        with self.assertRaisesRegex(InvalidArgument, "provider_options has 2 entries"):
            InferenceSession(mlp(), providers=["cpu"], provider_options=[{}, {}])

    def test_a_gpu_that_is_not_there_is_left_out_as_others_do(self):
        if "cuda" in backplane.get_available_providers():
            self.skipTest("there is a CUDA device")
        with self.assertWarnsRegex(UserWarning, "goes on without CUDAExecutionProvider: .*there are cpu") as warned:
            session = InferenceSession(mlp(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
        self.assertEqual(warned.filename, __file__)
        self.assertEqual(session.get_providers(), ["CPUExecutionProvider"])
        with self.assertRaises(backplane.Error):  # by our name it is meant
            InferenceSession(mlp(), providers=["cuda", "cpu"])

    def test_provider_options_reach_the_provider(self):
        options = [row["options"] for row in backplane.describe_plugins() if row["provider"] == "cpu"][0]
        known = next((option for option in options if option["default"]), None)
        self.assertIsNotNone(known)
        session = InferenceSession(mlp(), providers=[("cpu", {known["name"]: known["default"]})])
        self.assertEqual(session.get_provider_options(), {"cpu": {known["name"]: known["default"]}})

    def test_the_environment_is_configured_before_it_is_made(self):
        InferenceSession(mlp())
        with self.assertRaisesRegex(backplane.Error, "made already"):
            backplane.configure_environment(threads=2)
        self.assertEqual(suite.run_python(
            "import backplane, suite\nbackplane.configure_environment(threads=1, log_level='error')\n"
            "print(backplane.InferenceSession(suite.mlp()).statistics()['threads'])").strip(), "1")
        suite.run_python("import backplane\ntry:\n    backplane.configure_environment(thread=1)\nexcept backplane.InvalidArgument as e:\n"
                         "    assert 'threads' in str(e), e\nelse:\n    raise SystemExit(1)")

    def test_a_custom_operator_library(self):
        library = suite.BUILD / "lib/backplane/custom_ops/windowed_mean.so"
        if not library.exists():
            self.skipTest(f"{library.name} is not built")
        data = model([helper.make_node("WindowedMean", ["x"], ["y"], domain="backplane.examples", window=2)],
                     [tensor("x", 1, [3])], [tensor("y", 1, [2])], domains=[("backplane.examples", 1)])
        options = SessionOptions()
        options.register_custom_ops_library(library)
        y = InferenceSession(data, options).run(None, {"x": np.array([1, 3, 5], np.float32)})[0]
        self.assertEqual(y.tolist(), [2, 4])


class RunOptionsTest(unittest.TestCase):
    def test_a_run_is_cancelled_from_another_thread(self):
        session = InferenceSession(suite.long_model())
        options = RunOptions()
        timer = threading.Timer(0.3, options.cancel)
        timer.start()
        begin = time.monotonic()
        with self.assertRaises(backplane.Cancelled):
            session.run(None, {"x": np.zeros(1000, np.float32)}, options)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertTrue(options.terminate)
        other = InferenceSession(mlp())
        with self.assertRaises(backplane.Cancelled):
            other.run(None, {"x": X}, options)
        options.terminate = False
        other.run(None, {"x": X}, options)

    def test_a_run_ends_at_its_deadline(self):
        session = InferenceSession(suite.long_model())
        options = RunOptions()
        self.assertIsNone(options.timeout)
        options.timeout = 0.3
        self.assertEqual(options.timeout, 0.3)
        begin = time.monotonic()
        with self.assertRaisesRegex(backplane.Timeout, "node .*timeout_ms is 300"):
            session.run(None, {"x": np.zeros(1000, np.float32)}, options)
        self.assertGreaterEqual(time.monotonic() - begin, 0.3)
        self.assertLess(time.monotonic() - begin, 20)
        other = InferenceSession(mlp())
        options.timeout = 600
        other.run(None, {"x": X}, options)
        options.timeout = 0
        with self.assertRaises(backplane.Timeout):
            other.run(None, {"x": X}, options)
        options.timeout = None
        other.run(None, {"x": X}, options)
        for wrong in (-1, float("nan")):
            with self.assertRaises(backplane.InvalidArgument):
                options.timeout = wrong

    def test_attributes_and_entries(self):
        options = RunOptions()
        options.run_tag = "first"
        options.only_execute_path_to_fetches = False
        options.log_severity_level = 2
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self.assertEqual((options.get("tag"), options.only_execute_path_to_fetches, options.log_severity_level,
                          options.get("shrink_arenas")), ("first", False, 2, "true"))
        InferenceSession(mlp()).run(None, {"x": X}, options)

    def test_runs_that_are_not_waited_for(self):
        session = InferenceSession(mlp())
        options = RunOptions()
        options.synchronize = False
        y = session.run(None, {"x": X}, options)[0]
        session.synchronize()
        np.testing.assert_allclose(y, mlp_by_numpy(mlp(), X), rtol=1e-4, atol=1e-5)


class Bindings(unittest.TestCase):
    def setUp(self):
        self.session = InferenceSession(mlp())
        self.binding = self.session.io_binding()
        self.expected = mlp_by_numpy(mlp(), X)

    def test_outputs_are_written_again_in_the_same_memory(self):
        x = X.copy()
        self.binding.bind_cpu_input("x", x)
        self.binding.bind_output("y")
        self.session.run_with_iobinding(self.binding)
        first = self.binding.get_outputs()[0]
        address, before = first.data_ptr(), first.numpy()
        x[:] = 0
        self.session.run_with_iobinding(self.binding)
        self.assertEqual(self.binding.get_outputs()[0].data_ptr(), address)
        np.testing.assert_allclose(before, self.expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(self.binding.copy_outputs_to_cpu()[0], mlp_by_numpy(mlp(), x), rtol=1e-4, atol=1e-5)

    def test_an_array_is_written(self):
        y = np.zeros((3, 8), np.float32)
        self.binding.bind_cpu_input("x", X)
        self.binding.bind_cpu_output("y", y)
        self.binding.run()
        np.testing.assert_allclose(y, self.expected, rtol=1e-4, atol=1e-5)
        self.binding.bind_cpu_output("y", np.zeros((2, 8), np.float32))
        with self.assertRaisesRegex(InvalidArgument, "'y'"):
            self.binding.run()
        frozen = np.zeros((3, 8), np.float32)
        frozen.flags.writeable = False
        unaligned = np.frombuffer(bytearray(97), np.float32, 24, 1).reshape(3, 8)
        for wrong in (np.zeros((8, 3), np.float32).T, frozen, unaligned, np.zeros((3, 8), ">f4"),
                      np.full((3, 8), "", object), [[0.0] * 8] * 3):
            with self.assertRaisesRegex(InvalidArgument, "'y'.*contiguous, aligned array.*numpy.empty"):
                self.binding.bind_cpu_output("y", wrong)

    def test_memory_by_address(self):
        x, y = X.copy(), np.zeros((3, 8), np.float32)
        self.binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
        self.binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
        self.session.run_with_iobinding(self.binding)
        np.testing.assert_allclose(y, self.expected, rtol=1e-4, atol=1e-5)

    def test_what_is_bound_is_kept_and_forgotten(self):
        self.binding.bind_ortvalue_input("x", Value.from_numpy(X.copy()))  # nobody else has it
        self.binding.bind_output("r")
        self.binding.bind_output("y")
        self.binding.run()
        self.assertEqual([value.shape() for value in self.binding.get_outputs()], [[3, 32], [3, 8]])
        self.binding.clear_binding_outputs()
        self.binding.run()
        self.assertEqual([value.shape() for value in self.binding.get_outputs()], [[3, 8]])
        self.binding.clear_binding_inputs()
        with self.assertRaisesRegex(InvalidArgument, "'x'"):
            self.binding.run()
        with self.assertRaisesRegex(InvalidArgument, "did you mean|known: x"):
            self.binding.bind_cpu_input("X", X)

    def test_a_larger_output_does_not_leave_arrays_without_memory(self):
        self.binding.bind_cpu_input("x", X[:1])
        self.binding.run()
        kept = self.binding.get_outputs()[0]
        small = kept.numpy()
        self.binding.bind_cpu_input("x", np.tile(X, (1000, 1)))
        self.binding.run()
        np.testing.assert_allclose(small, self.expected[:1], rtol=1e-4, atol=1e-5)
        self.assertEqual(kept.numpy().shape, (3000, 8))


class Reports(unittest.TestCase):
    def test_explain_statistics_and_memory_are_dicts(self):
        session = InferenceSession(mlp(), providers=["cpu"])
        session.run(None, {"x": X})
        nodes = {node["name"]: node["provider"] for node in session.explain()["nodes"]}
        self.assertEqual(nodes, {"first": "cpu", "relu": "cpu", "second": "cpu"})
        self.assertEqual(session.statistics()["nodes_on"], {"cpu": 3})
        self.assertIn("arenas", session.memory())

    def test_traces(self):
        options = SessionOptions()
        options.enable_profiling = True
        with tempfile.TemporaryDirectory() as folder:
            options.profile_file_prefix = f"{folder}/trace"
            session = InferenceSession(mlp(), options)
            session.run(None, {"x": X})
            self.assertIn("traceEvents", session.trace())
            session.run(None, {"x": X})
            written = session.end_profiling()
            self.assertTrue(json.loads(pathlib.Path(written).read_text(encoding="utf-8"))["traceEvents"])
        with self.assertRaises(InvalidArgument):
            InferenceSession(mlp()).trace()

    def test_a_saved_plan_opens_a_session(self):
        with tempfile.TemporaryDirectory() as folder:
            InferenceSession(str(DIGITS / "digits.onnx")).save_plan(f"{folder}/plan")
            options = SessionOptions()
            options.set("saved_plan", f"{folder}/plan")
            session = InferenceSession(str(DIGITS / "digits.onnx"), options)
            self.assertTrue(session.statistics()["reopened"])

    def test_paths(self):
        options = SessionOptions()
        options.set("path.half.inputs", "x")
        options.set("path.half.outputs", "r")
        session = InferenceSession(mlp(), options)
        self.assertEqual(session.get_paths(), ["half"])
        self.assertEqual(session.run_path("half", None, {"x": X})[0].shape, (3, 32))
        with self.assertRaises(backplane.NotFound):
            session.run_path("whole", None, {"x": X})


class Forks(unittest.TestCase):
    def test_a_child_makes_its_own_session(self):
        suite.run_python(
            "import os, suite, backplane\nfrom session_test import X\n"
            "session = backplane.InferenceSession(suite.mlp())\n"
            "for _ in range(4): session.run(None, {'x': X})\n"
            "binding = session.io_binding()\nbinding.bind_cpu_input('x', X)\nbinding.bind_output('y')\nbinding.run()\n"
            "value, output = backplane.Value.from_numpy(X), binding.get_outputs()[0]\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    try:\n        session.run(None, {'x': X})\n        os._exit(3)\n"
            "    except backplane.Error as error:\n        assert 'forked' in str(error)\n"
            "    for call in (binding.run, lambda: session.run_with_iobinding(binding), lambda: binding.bind_cpu_input('x', X),\n"
            "                 lambda: binding.bind_ortvalue_input('x', value), lambda: binding.bind_output('y'),\n"
            "                 lambda: binding.bind_output('y', 'cuda'), lambda: binding.bind_ortvalue_output('y', value),\n"
            "                 lambda: binding.bind_cpu_output('y', X), binding.clear_binding_inputs, binding.copy_outputs_to_cpu,\n"
            "                 output.numpy, output.shape):\n"
            "        try:\n            call()\n            os._exit(4)\n"
            "        except backplane.Error as error:\n            assert 'forked' in str(error)\n"
            "    assert value.numpy().shape == (3, 16)\n"
            "    del session, binding, output\n"
            "    own = backplane.InferenceSession(suite.mlp())\n"
            "    for _ in range(4): assert own.run(None, {'x': X})[0].shape == (3, 8)\n"
            "    os._exit(0)\n"
            "assert os.waitpid(child, 0)[1] == 0\n"
            "session.run(None, {'x': X})\n")


if __name__ == "__main__":
    assert os.environ.get("BACKPLANE_LIBRARY")
    suite.main()
