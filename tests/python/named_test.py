#!/usr/bin/env python3
"""Runs by name: shapes that change, options, large results, whatever arrays there are; compared with NumPy."""

import threading
import unittest
from unittest import mock

import suite
from suite import TensorProto, helper, mlp, mlp_by_numpy, model, np, tensor

import backplane
from backplane import InferenceSession, InvalidArgument, RunOptions, SessionOptions, Value, _named, _quick


def sums():
    """total = a + b of [N,M] doubles, first = a row of ids: an output of fixed shape, one of another type."""
    nodes = [helper.make_node("Add", ["a", "b"], ["total"]), helper.make_node("ReduceSum", ["total"], ["all"], keepdims=0),
             helper.make_node("Shape", ["ids"], ["size"])]
    inputs = [tensor("a", TensorProto.DOUBLE, ["N", "M"]), tensor("b", TensorProto.DOUBLE, ["N", "M"]),
              tensor("ids", TensorProto.INT64, ["K"])]
    outputs = [tensor("total", TensorProto.DOUBLE, ["N", "M"]), tensor("all", TensorProto.DOUBLE, []),
               tensor("size", TensorProto.INT64, [1])]
    return model(nodes, inputs, outputs)


def shapes():
    return [(rows, columns) for rows in range(1, 12) for columns in (1, 3, 700)]


class ChangingShapes(unittest.TestCase):
    def setUp(self):
        self.session = InferenceSession(sums(), providers=["cpu"])
        self.random = np.random.default_rng(11)

    def check(self, a, b, ids, options=None):
        total, all_of, size = self.session.run(None, {"ids": ids, "b": b, "a": a}, options)
        np.testing.assert_array_equal(total, a + b)
        self.assertEqual((total.dtype, all_of.shape, size.tolist()), (np.float64, (), [len(ids)]))
        np.testing.assert_allclose(all_of, (a + b).sum(), rtol=1e-9, atol=1e-9)
        self.assertTrue(total.flags.writeable)
        return total

    def test_every_run_of_another_shape(self):
        kept = []
        for options in (None, RunOptions()):
            for shape in shapes():
                a, b = self.random.standard_normal((2, *shape))
                kept.append((self.check(a, b, np.arange(shape[0]), options), a + b))
        for total, expected in kept:
            np.testing.assert_array_equal(total, expected)

    def test_plain_arrays_make_no_values(self):
        with mock.patch.object(_named, "value_of", side_effect=AssertionError("a value was made of an array")), \
                mock.patch.object(_named.lib, "session_run_with", side_effect=AssertionError("another function was called")):
            for shape in shapes():
                a, b = self.random.standard_normal((2, *shape))
                self.check(a, b, np.arange(3))

    def test_arrays_of_every_layout(self):
        whole = self.random.standard_normal((8, 12))
        frozen = whole[:4].copy()
        frozen.flags.writeable = False
        for a in (whole[::2, ::3], whole.T, whole[:, ::-1], np.asfortranarray(whole), frozen, whole[:0], whole.astype(">f8"),
                  np.ones((1, 1)), whole[3:5, 2:4].copy()):
            self.check(a, np.ones(a.shape), np.arange(2))
            self.check(np.ones(a.shape), a, np.arange(0), RunOptions())

    def test_lists_numbers_and_values_mix_with_arrays(self):
        a = np.ones((2, 2))
        for b in ([[1.0, 2], [3, 4]], Value.from_numpy(np.eye(2)), Value.of([[5, 6], [7, 8]], "tensor(double)")):
            expected = a + (b.numpy() if isinstance(b, Value) else np.array(b))
            total = self.session.run(["total"], {"a": a, "b": b, "ids": [1, 2]})[0]
            np.testing.assert_array_equal(total, expected)
        made = self.session.run_with_ort_values(["size", "total"], {"a": a, "b": a, "ids": np.arange(5)})
        self.assertEqual((made[0].numpy().tolist(), made[1].shape()), ([5], [2, 2]))

    def test_inner_values_and_chosen_outputs(self):
        session = InferenceSession(mlp())
        for rows in range(1, 25):
            x = self.random.standard_normal((rows, 16)).astype(np.float32)
            y, h = session.run(["y", "h"], {"x": x})
            np.testing.assert_allclose(y, mlp_by_numpy(mlp(), x), rtol=1e-3, atol=1e-4)
            again = session.run(["y"], {"h": h})[0]
            np.testing.assert_allclose(again, y, rtol=1e-3, atol=1e-4)

    def test_errors_leave_the_session_as_it_was(self):
        a = np.ones((2, 2))
        for feed, names, message in [({"a": a, "b": a}, None, "ids"),
                                     ({"a": a, "b": np.ones((3, 3)), "ids": np.arange(1)}, None, "'M'|'N'|shape"),
                                     ({"a": a, "b": a.astype(np.float32), "ids": np.arange(1)}, None, "'b'.*double"),
                                     ({"a": a[0], "b": a, "ids": np.arange(1)}, None, "'a'"),
                                     ({"a": a, "b": a, "ids": np.arange(1)}, ["totl"], "'totl'.*total")]:
            for _ in range(3):
                with self.assertRaisesRegex(InvalidArgument, message):
                    self.session.run(names, feed)
            self.check(a, a, np.arange(1))

    def test_threads(self):
        problems = []

        def work(seed):
            random = np.random.default_rng(seed)
            try:
                for _ in range(60):
                    a, b = random.standard_normal((2, int(random.integers(1, 40)), 2))
                    self.check(a, b, np.arange(int(random.integers(0, 4))), RunOptions() if seed % 2 else None)
            except BaseException as problem:  # the main thread reports it
                problems.append(problem)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(problems, [])


class Shapes(unittest.TestCase):
    """Of results: those of the values, whatever the model says of them."""

    def test_a_shape_that_inference_gets_wrong_is_believed_nowhere(self):
        for size in (6, 60_000):  # copied, and as a view
            session = InferenceSession(suite.identity(TensorProto.FLOAT, ["N", 1]))
            x = np.arange(size, dtype=np.float32).reshape(size, 1)
            for claimed in ([2 * size, 1], [size // 2, 1], [size], [1 << 40, 1 << 10]):
                session._named = _named.NamedRuns(session.get_inputs(), [backplane.NodeArg("y", "tensor(float)", claimed)])
                for _ in range(4):
                    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
                np.testing.assert_array_equal(session.run(["y"], {"x": x}, RunOptions())[0], x)

    def test_sizes_that_a_model_declares_wrongly_are_believed_nowhere(self):
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        cases = [("Reshape", x, [4, 3], [3, 4]), ("Reshape", x, [4, 3], [3, 5]),
                 ("Expand", np.ones((1, 1000), np.float32), [20, 1000], [10, 1000]),  # declared shorter, and longer
                 ("Expand", np.ones((1, 1000), np.float32), [8, 1000], [100, 1000])]
        for operator, x, true, declared in cases:
            session = InferenceSession(model([helper.make_node(operator, ["x", "shape"], ["y"])],
                                             [tensor("x", 1, list(x.shape)), tensor("shape", 7, [None])], [tensor("y", 1, declared)]))
            feeds = {"x": x, "shape": np.array(true)}
            expected = x.reshape(true) if operator == "Reshape" else np.broadcast_to(x, true)
            for _ in range(4):
                np.testing.assert_array_equal(session.run(None, feeds)[0], expected)
                np.testing.assert_array_equal(session.run(None, feeds, RunOptions())[0], expected)

    def test_windows_that_begin_in_the_padding(self):
        nodes = [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[1, 1], strides=[2, 2], ceil_mode=1)]
        x = np.random.default_rng(5).standard_normal((1, 16384, 2, 2)).astype(np.float32)
        for channels in (3, 16384):
            shape = [1, channels, 2, 2]
            session = InferenceSession(model(nodes, [tensor("x", 1, shape)], [tensor("y", 1, None)], opset=17))
            y = session.run(None, {"x": x[:, :channels].copy()})[0]
            np.testing.assert_array_equal(y, x[:, :channels, ::2, ::2])
            self.assertEqual(session.get_outputs()[0].shape, list(y.shape))

    def test_spectra_are_onesided_unless_the_node_says_otherwise(self):
        length, step, frame = 1600, 160, 400
        numbers = [suite.numpy_helper.from_array(np.array(number), name) for name, number in (("step", step), ("frame", frame))]
        x = np.random.default_rng(6).standard_normal(length).astype(np.float32)
        frames = np.stack([x[begin:begin + frame] for begin in range(0, length - frame + 1, step)])
        for extra, fourier in (({}, np.fft.rfft), ({"onesided": 0}, np.fft.fft)):
            nodes = [helper.make_node("STFT", ["x", "step", "", "frame"], ["y"], **extra), helper.make_node("Shape", ["y"], ["shape"])]
            session = InferenceSession(model(nodes, [tensor("x", 1, [1, length, 1])], [tensor("y", 1, None), tensor("shape", 7, [4])],
                                             numbers))
            expected = fourier(frames)
            for _ in range(3):
                y, shape = session.run(None, {"x": x.reshape(1, -1, 1)})
                np.testing.assert_allclose(y[0, ..., 0] + 1j * y[0, ..., 1], expected, rtol=1e-3, atol=1e-3)
                self.assertEqual((shape.tolist(), session.get_outputs()[0].shape), ([1, *expected.shape, 2], list(y.shape)))


class Kinds(unittest.TestCase):
    """Of runs that are made quick."""

    def setUp(self):
        for bound in ("LEAST_KINDS", "MOST_KINDS"):
            few = mock.patch.object(_quick, bound, 16)
            few.start()
            self.addCleanup(few.stop)
        self.session = InferenceSession(mlp())
        self.made = 0

    def run_all(self, rows):
        make = _quick.QuickRun

        def count(*arguments):
            self.made += 1
            return make(*arguments)

        with mock.patch.object(_quick, "QuickRun", side_effect=count):
            for row in rows:
                x = np.full((row, 16), row, np.float32)
                np.testing.assert_allclose(self.session.run(None, {"x": x})[0], mlp_by_numpy(mlp(), x), rtol=1e-3, atol=1e-2)

    def test_of_shapes_that_never_stay_few_are_made(self):
        self.run_all([1 + i % 40 for i in range(2000)])
        self.assertLess(self.made, 130)

    def test_of_a_small_model_more_stay(self):
        with mock.patch.object(_quick, "MOST_KINDS", 24):
            self.run_all([1 + i % 24 for i in range(300)])
            self.assertEqual(self.made, 24)
            with mock.patch.object(_quick, "MOST_NODES", 1):
                self.session, self.made = InferenceSession(mlp()), 0
                self.run_all([1 + i % 24 for i in range(60)])
                self.assertEqual(self.made, 16)

    def test_those_that_serve_stay(self):
        self.run_all([1 + i % 16 for i in range(200)])
        self.assertEqual(self.made, 16)
        self.run_all([1 + i % 16 if i % 10 else 100 + i % 7 for i in range(1000)])
        self.assertEqual(self.made, 16)

    def test_fewer_are_kept_of_large_arrays(self):
        with mock.patch.object(_quick, "MOST_KEPT_BYTES", 3 * 4 * (16 + 8)):  # rows of x and y
            self.run_all([1, 1, 2, 2, 3, 3, 4, 4])
            self.assertEqual(self.made, 2)

    def test_new_ones_come_when_the_old_ones_serve_no_more(self):
        self.run_all([1 + i % 16 for i in range(200)])
        self.run_all([50 + i % 3 for i in range(1000)])
        self.assertEqual(self.made, 19)


class WithOptions(unittest.TestCase):
    X = np.random.default_rng(1).standard_normal((3, 16)).astype(np.float32)

    def test_runs_with_options_are_quick_and_heed_them(self):
        options = SessionOptions()
        options.enable_profiling = True
        session = InferenceSession(mlp(), options)
        for _ in range(3):
            session.run(None, {"x": self.X})
        session.trace()
        tagged = RunOptions()
        tagged.run_tag = "evening"
        with mock.patch.object(_named.lib, "session_run_tensors", side_effect=AssertionError("the run was not quick")):
            y = session.run(None, {"x": self.X}, tagged)[0]
            np.testing.assert_allclose(y, mlp_by_numpy(mlp(), self.X), rtol=1e-3, atol=1e-4)
            self.assertIn("evening", {event["name"] for event in session.trace()["traceEvents"]})
            tagged.terminate = True
            with self.assertRaises(backplane.Cancelled):
                session.run(None, {"x": self.X}, tagged)
        tagged.terminate = False
        for _ in range(3):
            self.assertEqual(session.run(None, {"x": self.X}, tagged)[0].shape, (3, 8))

    def test_runs_with_options_become_quick(self):
        session = InferenceSession(mlp())
        for _ in range(3):
            session.run(None, {"x": self.X}, RunOptions())
        self.assertTrue(session._ready.latest)
        self.assertIsInstance(session._ready.latest[None].free[0], _quick.QuickRun)

    def test_all_nodes_are_run_where_the_options_say_so(self):
        nodes = [helper.make_node("Sqrt", ["x"], ["root"]), helper.make_node("Neg", ["x"], ["minus"])]
        options = SessionOptions()
        options.enable_profiling = True
        session = InferenceSession(model(nodes, [tensor("x", 1, [2])], [tensor("root", 1, [2]), tensor("minus", 1, [2])]), options)
        every = RunOptions()
        every.only_execute_path_to_fetches = False
        x = np.ones(2, np.float32)
        for expected, given in ((1, None), (2, every), (1, None), (2, every), (2, every)):
            for _ in range(3):
                session.trace()
                self.assertEqual(session.run(["root"], {"x": x}, given)[0].tolist(), [1, 1])
                spans = [event for event in session.trace()["traceEvents"] if event["ph"] == "X" and event.get("cat") == "node"]
                self.assertEqual(len(spans), expected, spans)


if __name__ == "__main__":
    suite.main()
