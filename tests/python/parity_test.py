#!/usr/bin/env python3
"""What programs for ONNX Runtime use besides run: pickling, loggers, providers, asynchronous runs, values; as its documentation says."""

import copy
import ctypes
import gc
import multiprocessing
import os
import pathlib
import pickle
import queue
import tempfile
import threading
import unittest
import warnings

import suite
from suite import mlp, mlp_by_numpy, np

import backplane
from backplane import InferenceSession, InvalidArgument, RunOptions, SessionOptions, Value, _types

X = np.random.default_rng(1).standard_normal((3, 16)).astype(np.float32)
EXPECTED = mlp_by_numpy(mlp(), X)


def run_in_child(session):
    """Of the pool's processes."""
    return session.run(None, {"x": X})[0], session.option("entry.my.key"), session.get_providers()


class Tagged(InferenceSession):
    """With an attribute of its own."""


def tuned():
    options = SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("my.key", "kept")
    return options


class Pickling(unittest.TestCase):
    def check(self, session):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], EXPECTED, rtol=1e-4, atol=1e-5)
        self.assertEqual((session.option("threads"), session.option("entry.my.key")), ("1", "kept"))
        self.assertEqual(session.get_providers(), ["CPUExecutionProvider"])

    def test_a_session_of_bytes(self):
        session = InferenceSession(mlp(), tuned(), ["CPUExecutionProvider"])
        self.check(pickle.loads(pickle.dumps(session)))
        for _ in range(3):
            session.run(None, {"x": X})
        self.check(pickle.loads(pickle.dumps(session)))  # with quick runs
        self.check(copy.deepcopy(session))

    def test_a_session_of_a_path(self):
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "model.onnx").write_bytes(mlp())
            try:
                os.chdir(folder)
                made = pickle.dumps(InferenceSession("model.onnx", tuned(), ["CPUExecutionProvider"]))
            finally:
                os.chdir(before)
            self.assertLess(len(made), len(mlp()))
            self.check(pickle.loads(made))
        with self.assertRaisesRegex(backplane.NotFound, "model.onnx"):
            pickle.loads(made)

    def test_a_subclass_keeps_its_attributes(self):
        session = Tagged(mlp(), tuned(), ["CPUExecutionProvider"])
        session.tag = {"a": 1}
        again = pickle.loads(pickle.dumps(session))
        self.assertIsInstance(again, Tagged)
        self.assertEqual(again.tag, {"a": 1})
        self.check(again)

    def test_other_processes_run_it(self):
        session = InferenceSession(mlp(), tuned(), ["CPUExecutionProvider"])
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            y, entry, providers = pool.apply(run_in_child, (session,))
        np.testing.assert_allclose(y, EXPECTED, rtol=1e-4, atol=1e-5)
        self.assertEqual((entry, providers), ("kept", ["CPUExecutionProvider"]))

    def test_options(self):
        options = tuned()
        options.append_provider("CUDAExecutionProvider", {"device_id": 0, "gpu_mem_limit": 1 << 20})
        options.append_provider("cpu")
        options.add_external_data("weights.bin", b"\0\1")
        options.profile_file_prefix = "elsewhere"
        options.place("op:Relu", "cpu")
        again = pickle.loads(pickle.dumps(options))
        for key in ("threads", "providers", "memory_limit.cuda", "place", "entry.my.key"):
            self.assertEqual(again.get(key), options.get(key))
        self.assertEqual(again.profile_file_prefix, "elsewhere")
        for other in (copy.copy(options), copy.deepcopy(options), options.copy()):
            other.logid = "other"
            other.append_provider("opencl?", {})
        self.assertEqual((options.logid, list(options._provider_options)), ("", ["CUDAExecutionProvider", "cpu"]))
        run = RunOptions()
        run.run_tag, run.synchronize = "tag", False
        again = pickle.loads(pickle.dumps(run))
        self.assertEqual((again.run_tag, again.synchronize, again._synchronize), ("tag", False, False))

    def check_copies(self, value, expected, of=str):
        """expected: what the value's copies are in Python; of: what is compared of that."""
        self.assertIs(copy.copy(value), value)
        copies = [pickle.loads(pickle.dumps(value, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
        copies += [copy.deepcopy(value), *copy.deepcopy([value]), copy.deepcopy(copies[-1])]
        for made in copies:
            self.assertEqual((type(made), made.type(), made.device_name()), (Value, value.type(), "cpu"))
            self.assertIsNot(made, value)
        del value
        gc.collect()
        for made in copies:
            self.assertEqual(of(made.numpy()), of(expected))

    def test_values_of_every_type_are_copied_with_their_elements(self):
        for element in _types.BY_NUMBER.values():
            if element.number == _types.STRING:
                continue
            for shape in [(), (3,), (2, 0), (7, 3000)]:
                with self.subTest(element=element.name, shape=shape):
                    value = Value.zeros(shape, element)
                    raw = np.ctypeslib.as_array((ctypes.c_uint8 * value.tensor_size_in_bytes()).from_address(value.data_ptr() or 1))
                    raw[:] = np.arange(raw.size) % 2 if element.name == "bool" else np.arange(raw.size) % 100
                    self.check_copies(value, value.numpy().copy(), lambda array: (array.dtype, array.shape, array.tobytes()))
        texts = np.array([["", "ä"], ["with\0zero", "\udcff"]], object)
        self.check_copies(Value.from_numpy(texts), texts, lambda array: (array.shape, array.tolist()))

    def test_containers_are_copied_with_their_elements(self):
        for type_text, data in [("seq(tensor(float))", [X.tolist(), [], [1.5]]), ("seq(tensor(string))", [["a"], []]),
                                ("optional(tensor(int64))", None), ("optional(tensor(int64))", [1, 2]),
                                ("optional(seq(tensor(float)))", [[1.0]]), ("map(string,tensor(float))", {"a": 1.0, "b": 2.5}),
                                ("seq(map(int64,tensor(float)))", [{1: 2.0}, {}]), ("seq(tensor(uint8))", [])]:
            with self.subTest(type=type_text, data=data):
                value = Value.of(data, type_text)
                self.check_copies(value, value.numpy())

    def test_copies_have_memory_of_their_own(self):
        array = np.ones(9, np.float32)
        array.flags.writeable = False
        value, sequence = Value.from_numpy(array), Value.of([np.ones(9, np.float32)], "seq(tensor(float))")
        for made in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
            made.update_inplace(np.zeros(9, np.float32))
            self.assertEqual((value.numpy().sum(), made.numpy().sum()), (9, 0))
        first, second = copy.deepcopy([sequence, sequence])
        self.assertIs(first, second)
        first.numpy()[0][:] = 0
        self.assertEqual(sequence.numpy()[0].sum(), 9)
        InferenceSession(mlp()).run_with_ort_values(None, {"x": copy.deepcopy(Value.from_numpy(X))})

    def test_bindings_are_not_copied_but_their_outputs_are(self):
        session = InferenceSession(mlp(), tuned(), ["cpu"])
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        output = binding.get_outputs()[0]
        for call in (copy.copy, copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, r"neither copied nor pickled.*session\.io_binding\(\)"):
                call(binding)
        for call in (copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(ValueError, "no run of the binding has made the output 'y'"):
                call(output)
        binding.run()
        kept = pickle.loads(pickle.dumps(output)), copy.deepcopy(output)
        binding.bind_cpu_input("x", X * 0)
        binding.run()
        for made in kept:
            np.testing.assert_allclose(made.numpy(), EXPECTED, rtol=1e-4, atol=1e-5)
        for _ in range(3):
            session.run(None, {"x": X})
        with self.assertRaisesRegex(TypeError, "neither copied nor pickled"):
            copy.copy(session._ready.latest[None].free[0])
        with self.assertRaisesRegex(TypeError, "copy the array"):
            copy.deepcopy(kept[0].numpy().base)


class Loggers(unittest.TestCase):
    def test_a_callback_gets_what_is_logged(self):
        said = suite.run_python(
            "import backplane, suite\nlines = []\n"
            "backplane.set_default_logger_callback(lambda *line: lines.append(line), 0)\n"
            "backplane.set_default_logger_verbosity(1)\n"
            "backplane.InferenceSession(suite.mlp()).run(None, {'x': __import__('numpy').ones((1, 16), 'f')})\n"
            "assert lines and all(len(line) == 5 and 0 <= line[0] <= 3 and line[4] for line in lines), lines\n"
            "assert not any('\\n' in line[4] for line in lines)\n"
            "count = len(lines)\nbackplane.set_default_logger_severity(4)\n"
            "backplane.InferenceSession(suite.mlp())\nassert len(lines) == count\n"
            "backplane.set_default_logger_callback(None)\nbackplane.set_default_logger_severity(0)\n"
            "backplane.InferenceSession(suite.mlp())\nassert len(lines) == count\nprint('done')")
        self.assertEqual(said.strip(), "done")

    def test_a_callback_comes_before_the_first_session(self):
        InferenceSession(mlp())
        with self.assertRaisesRegex(backplane.Error, "before the first session"):
            backplane.set_default_logger_callback(print)
        with self.assertRaisesRegex(InvalidArgument, "a function, not a int"):
            backplane.set_default_logger_callback(3)

    def test_severities_and_verbosities(self):
        for severity in range(5):
            backplane.set_default_logger_severity(severity)
        backplane.set_default_logger_severity(2)
        with self.assertRaises(InvalidArgument):
            backplane.set_default_logger_severity(5)
        for order in ((0, 1), (1, 0)):
            options = SessionOptions()
            for which in order:
                if which:
                    options.log_verbosity_level = 1
                else:
                    options.log_severity_level = 0
            self.assertEqual((options.get("log_level"), options.log_severity_level, options.log_verbosity_level), ("trace", 0, 1))
        run = RunOptions()
        run.log_severity_level, run.log_verbosity_level = 0, 2
        self.assertEqual((run.get("log_level"), run.log_severity_level, run.log_verbosity_level), ("trace", 0, 2))


class Sessions(unittest.TestCase):
    def test_providers_are_set_again(self):
        session = InferenceSession(mlp(), tuned())
        for _ in range(3):
            session.run(None, {"x": X})
        session.set_providers(["CPUExecutionProvider"])
        self.assertEqual((session.get_providers(), session.option("entry.my.key")), (["CPUExecutionProvider"], "kept"))
        np.testing.assert_allclose(session.run(None, {"x": X})[0], EXPECTED, rtol=1e-4, atol=1e-5)
        with self.assertRaises(backplane.Error):
            session.set_providers(["none"])
        self.assertEqual(session.get_providers(), ["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(None, {"x": X})[0], EXPECTED, rtol=1e-4, atol=1e-5)
        session.set_providers(["cpu"], [{}])
        self.assertEqual(session.get_provider_options(), {"cpu": {}})
        session.set_providers()
        self.assertEqual(session.option("providers"), "auto")

    def test_fallback(self):
        session = InferenceSession(mlp(), enable_fallback=False)
        session.disable_fallback()
        with self.assertRaisesRegex(backplane.Unsupported, "set_providers"):
            session.enable_fallback()
        with self.assertRaises(backplane.Unsupported):
            InferenceSession(mlp(), enable_fallback=True)
        with self.assertRaises(TypeError):
            InferenceSession(mlp(), read_config_from_model=1)

    def test_disabled_optimizers(self):
        session = InferenceSession(mlp(), disabled_optimizers=["fold_constants", "eliminate_dead_nodes"])
        self.assertEqual(session.option("disabled_passes"), "fold_constants,eliminate_dead_nodes")
        with self.assertRaisesRegex(InvalidArgument, "ConstantFolding"):
            InferenceSession(mlp(), disabled_optimizers=["ConstantFolding"])

    def test_runs_that_call_back(self):
        session = InferenceSession(mlp())
        results, mark = queue.Queue(), object()

        def done(made, data, error):
            results.put((made, data, error, threading.current_thread()))

        session.run_async(["y"], {"x": X}, done, mark)
        made, data, error, thread = results.get(timeout=60)
        np.testing.assert_allclose(made[0], EXPECTED, rtol=1e-4, atol=1e-5)
        self.assertEqual((data is mark, error), (True, ""))
        self.assertIsNot(thread, threading.current_thread())
        session.run_async(None, {"x": X[:, :3]}, done, None)
        made, data, error, _ = results.get(timeout=60)
        self.assertEqual((made, data), ([], None))
        self.assertRegex(error, "'x'")
        with self.assertRaisesRegex(InvalidArgument, "a list of names"):
            session.run_async("y", {"x": X}, done)
        for wrong in (None, 3):
            with self.assertRaisesRegex(InvalidArgument, r"callback is a function of \(results, user_data, error\), not a"):
                session.run_async(None, {"x": X}, wrong)

    def test_profiling_gives_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            options = SessionOptions()
            options.enable_profiling, options.profile_file_prefix = True, os.path.join(folder, "trace_")
            session = InferenceSession(mlp(), options)
            session.run(None, {"x": X})
            file = session.end_profiling()
            self.assertTrue(file.startswith(os.path.join(folder, "trace_")) and file.endswith(".json"), file)
            self.assertGreater(os.path.getsize(file), 100)

    def test_what_is_not_there_says_what_is(self):
        for thing, name, hint in [(InferenceSession(mlp()), "run_with_ortvaluevector", "run_with_ort_values"),
                                  (SessionOptions(), "add_initializer", "feed it"), (RunOptions(), "add_active_adapter", "inputs"),
                                  (backplane, "set_seed", "seed"), (backplane, "OrtArenaCfg", "memory_limit")]:
            self.assertFalse(hasattr(thing, name))
            with self.assertRaisesRegex(AttributeError, f"'{name}', which ONNX Runtime has: .*{hint}"):
                getattr(thing, name)
        with self.assertRaisesRegex(AttributeError, "backplane has no attribute 'nothing'$"):
            getattr(backplane, "nothing")

    def test_options_that_both_have(self):
        options = SessionOptions()
        self.assertFalse(options.has_providers())
        options.add_provider("CPUExecutionProvider", {})
        self.assertTrue(options.has_providers())
        self.assertTrue(options.enable_mem_reuse)
        options.enable_mem_reuse = False
        self.assertEqual(options.get("memory_pattern"), "false")
        self.assertTrue(options.use_per_session_threads)
        options.use_per_session_threads = False
        self.assertFalse(options.copy().use_per_session_threads)
        self.assertEqual(InferenceSession(mlp(), options).get_providers(), ["CPUExecutionProvider"])
        for missing in (lambda: options.get_session_config_entry("none"), lambda: RunOptions().get_run_config_entry("none")):
            for kind in (RuntimeError, backplane.NotFound):
                with self.assertRaisesRegex(kind, "none"):
                    missing()

    def test_a_model_has_the_path_that_it_was_read_from(self):
        self.assertIsNone(InferenceSession(mlp())._model_path)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model.onnx")
            path.write_bytes(mlp())
            self.assertEqual(InferenceSession(path)._model_path, str(path))

    def test_dimensions_that_nobody_named_have_no_name(self):
        session = InferenceSession(suite.model([suite.helper.make_node("NonZero", ["x"], ["y"])], [suite.tensor("x", 1, ["N", None])],
                                               [suite.tensor("y", 7, None)]))
        self.assertEqual((session.get_inputs()[0].shape, session.get_outputs()[0].shape), (["N", None], [2, None]))

    def test_the_module_says_what_it_is(self):
        self.assertEqual(backplane.get_version_string(), backplane.__version__)
        self.assertIn(backplane.__version__, backplane.get_build_info())
        self.assertIn(backplane.get_device(), ("CPU", "GPU"))
        self.assertFalse(backplane.has_collective_ops())
        backplane.preload_dlls(directory="")
        backplane.disable_telemetry_events()
        self.assertIs(backplane.SessionIOBinding, backplane.IOBinding)


class Providers(unittest.TestCase):
    """Lists of them in programs, and what sessions say of theirs."""

    def test_those_that_are_not_here_are_left_out_with_a_warning(self):
        for absent in ("Tensorrt", "CoreML", "OpenVINO", "Dml", "ROCM", "MIGraphX", "QNN", "Xnnpack"):
            for rest in (["CPUExecutionProvider"], []):
                names = [(f"{absent}ExecutionProvider", {"device_id": 0, "some_option": True}), *rest]
                with self.assertWarnsRegex(UserWarning, f"goes on without {absent}ExecutionProvider") as warned:
                    session = InferenceSession(mlp(), providers=names)
                self.assertEqual((session.get_providers(), warned.filename), (["CPUExecutionProvider"], __file__))
                np.testing.assert_allclose(session.run(None, {"x": X})[0], EXPECTED, rtol=1e-4, atol=1e-5)

    def test_options_of_the_cpus_that_say_nothing_here(self):
        given = {"arena_extend_strategy": "kSameAsRequested"}
        with self.assertWarnsRegex(UserWarning, "CPUExecutionProvider that do nothing here: arena_extend_strategy") as warned:
            session = InferenceSession(mlp(), providers=[("CPUExecutionProvider", given)])
        self.assertEqual((session.get_provider_options(), warned.filename), ({"CPUExecutionProvider": {}}, __file__))
        for name, options in (("cpu", given), ("CPUExecutionProvider", {"arena_extend": 1})):
            with self.assertRaisesRegex(InvalidArgument, next(iter(options))):
                InferenceSession(mlp(), providers=[(name, options)])

    def test_names_that_nobody_gave_are_those_of_onnx_runtime(self):
        self.assertIn("CPUExecutionProvider", InferenceSession(mlp()).get_providers())
        self.assertEqual(InferenceSession(mlp(), providers=["cpu"]).get_providers(), ["cpu"])
        for names in (backplane.get_available_providers(), backplane.get_all_providers()):
            self.assertEqual(names[names.index("cpu") + 1], "CPUExecutionProvider")
        with self.assertWarns(UserWarning):  # nodes fall back to the CPU
            self.assertEqual(InferenceSession(mlp(), providers=["CoreMLExecutionProvider"]).get_providers(), ["CPUExecutionProvider"])


class Entries(unittest.TestCase):
    """Of a session's configuration, as ONNX Runtime has them."""

    def made(self, key, value, providers=None, model=None):
        options = SessionOptions()
        options.add_session_config_entry(key, value)
        session = InferenceSession(mlp() if model is None else model, options, providers)
        self.assertEqual(session.option(f"entry.{key}"), value)
        return session

    def test_no_node_falls_back_to_the_cpu(self):
        key = "session.disable_cpu_ep_fallback"
        with self.assertWarns(UserWarning), self.assertRaisesRegex(backplane.Unsupported, "'first'"):
            self.made(key, "1", ["CoreMLExecutionProvider"])
        for providers in (None, ["cpu"], ["CoreMLExecutionProvider", "CPUExecutionProvider"]):
            with self.assertRaisesRegex(InvalidArgument, f"'{key}' says that no node"):
                self.made(key, "1", providers)
        self.assertEqual(self.made(key, "0").option("fallback"), "warn")

    def test_the_folder_of_external_data(self):
        weights = np.arange(6, dtype=np.float32)
        tensor = suite.numpy_helper.from_array(weights, "w")
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "w.bin").write_bytes(tensor.raw_data)
            suite.onnx.external_data_helper.set_external_data(tensor, "w.bin")
            tensor.ClearField("raw_data")
            data = suite.model([suite.helper.make_node("Add", ["x", "w"], ["y"])], [suite.tensor("x", 1, [6])],
                               [suite.tensor("y", 1, [6])], [tensor])
            session = self.made("session.model_external_initializers_file_folder_path", folder, ["cpu"], data)
            np.testing.assert_array_equal(session.run(None, {"x": weights})[0], 2 * weights)

    def test_denormals_as_zero(self):
        product = suite.model([suite.helper.make_node("Mul", ["x", "x2"], ["y"])], [suite.tensor("x", 1, [5]), suite.tensor("x2", 1, [5])],
                              [suite.tensor("y", 1, [5])])
        feeds = {"x": np.full(5, 1e-40, np.float32), "x2": np.full(5, 1e20, np.float32)}
        for value, count in (("1", 0), ("0", 5)):
            session = self.made("session.set_denormal_as_zero", value, ["cpu"], product)
            self.assertEqual(np.count_nonzero(session.run(None, feeds)[0]), count)
            self.assertEqual(session.option("denormals_as_zero"), "true" if value == "1" else "false")
        with self.assertRaisesRegex(InvalidArgument, "denormals_as_zero.*'yes'"):
            self.made("session.set_denormal_as_zero", "yes")

    def test_what_is_not_done_is_said(self):
        for key, value in (("session.optimized_model_external_initializers_file_name", "w.bin"),
                           ("session.disable_quant_qdq", "1"), ("ep.context_enable", "1")):
            with self.assertWarnsRegex(UserWarning, f"'{key}' is kept and does nothing") as warned:
                SessionOptions().add_session_config_entry(key, value)
            self.assertEqual(warned.filename, __file__)
        for key in ("session.save_model_format", "session.load_model_format"):
            with self.assertRaisesRegex(backplane.Unsupported, f"'{key}' cannot be 'ORT'"):
                SessionOptions().add_session_config_entry(key, "ORT")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.made("session.save_model_format", "ONNX")
            self.made("session.disable_prepacking", "1")


class Values(unittest.TestCase):
    def test_values_of_arrays_and_shapes(self):
        value = Value.ortvalue_from_numpy(X, "cpu", 0)
        self.assertEqual((value.device_name(), value.shape(), value.data_type(), value.is_tensor()),
                         ("cpu", [3, 16], "tensor(float)", True))
        made = Value.ortvalue_from_shape_and_type([3, 16], np.float32, "cpu", 0)
        made.update_inplace(X)
        np.testing.assert_array_equal(made.numpy(), X)
        session = InferenceSession(mlp())
        y = session.run_with_ort_values(["y"], {"x": made})[0]
        np.testing.assert_allclose(y.numpy(), EXPECTED, rtol=1e-4, atol=1e-5)
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", made)
        binding.bind_output("y")
        session.run_with_iobinding(binding, RunOptions())
        np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], EXPECTED, rtol=1e-4, atol=1e-5)
        with self.assertRaisesRegex(InvalidArgument, "host's memory, not on 'cuda'"):
            Value.ortvalue_from_numpy(X, "cuda", 0)


if __name__ == "__main__":
    suite.main()
