#!/usr/bin/env python3
"""Who keeps what alive: arrays of sessions that are gone, feeds that are dropped meanwhile, threads, and that nothing leaks."""

import gc
import pathlib
import threading
import time
import unittest
import weakref

import suite
from suite import helper, mlp, mlp_by_numpy, model, np, one_node, tensor

from backplane import Cancelled, InferenceSession, RunOptions, SessionOptions, Value, _quick

LARGE = 300_000  # elements: results of this size are views


def churn():
    """Takes memory that was freed, and writes over it."""
    gc.collect()
    for _ in range(4):
        np.full(LARGE, 77, np.float32)


def resident_kb(what="VmRSS"):
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(what))


def relu():
    return InferenceSession(one_node("Relu", [tensor("x", 1, ["N"])], [tensor("y", 1, ["N"])]))


class Lifetimes(unittest.TestCase):
    def test_arrays_outlive_session_and_value(self):
        session = relu()
        x = np.random.default_rng(0).standard_normal(LARGE).astype(np.float32)
        y = session.run(None, {"x": x})[0]
        part = y[10:20]
        expected = np.maximum(x, 0)
        value = session.run_with_ort_values(None, {"x": x})[0]
        view = value.numpy()
        del session, value
        churn()
        np.testing.assert_array_equal(y, expected)
        np.testing.assert_array_equal(view, expected)
        del y
        churn()
        np.testing.assert_array_equal(part, expected[10:20])

    def test_values_of_unknown_size_are_freed_when_nobody_needs_them(self):
        """Also with sizes that are known: each part of the model that is planned by itself has memory for its own."""
        steps, count = 20, 2_000_000
        nodes = []
        for i in range(steps):
            nodes.append(helper.make_node("Compress", [f"v{i}", "kept"], [f"a{i}"], axis=0))
            nodes.append(helper.make_node("Neg", [f"a{i}"], [f"b{i}"]))
            nodes.append(helper.make_node("Abs", [f"b{i}"], [f"v{i + 1}"]))
        nodes.append(helper.make_node("ReduceSum", [f"v{steps}"], ["y"], keepdims=0))
        session = InferenceSession(
            model(nodes, [tensor("v0", 1, ["N"]), tensor("kept", 9, ["N"])], [tensor("y", 1, [])]), providers=["cpu"])
        feed = {"v0": np.ones(count, np.float32), "kept": np.ones(count, bool)}
        pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
        before = resident_kb("VmHWM")
        self.assertEqual(session.run(None, feed)[0], count)
        mib = (resident_kb("VmHWM") - before) / 1024
        self.assertLess(mib, 0.4 * steps * count * 4 / 2**20)  # all values together, kept, would be three times that and more
        self.assertEqual(session.run(None, feed)[0], count)

    def test_strings_are_read_by_several_later_parts_of_a_model(self):
        nodes = [
            helper.make_node("Compress", ["s", "c"], ["chosen"], axis=0),
            helper.make_node("StringConcat", ["chosen", "chosen"], ["twice"]),
            helper.make_node("Compress", ["twice", "d"], ["fewer"], axis=0),
            helper.make_node("StringConcat", ["fewer", "fewer"], ["again"]),
            helper.make_node("Compress", ["again", "e"], ["one"], axis=0),
            helper.make_node("Shape", ["one"], ["place"]),
            helper.make_node("Gather", ["chosen", "place"], ["late"], axis=0),
            helper.make_node("StringConcat", ["one", "late"], ["y"]),
        ]
        conditions = {"c": [1, 0, 1, 1], "d": [0, 1, 1], "e": [1, 0]}
        session = InferenceSession(
            model(nodes, [tensor("s", 8, ["N"])] + [tensor(name, 9, [name]) for name in conditions],
                  [tensor("y", 8, ["M"])]), providers=["cpu"])
        feed = {name: np.array(values, bool) for name, values in conditions.items()}
        feed["s"] = np.array(["a", "b", "c", "d"], object)
        for _ in range(2):
            self.assertEqual(session.run(None, feed)[0].tolist(), ["ccccc"])

    def test_a_value_is_freed_with_its_last_array(self):
        value = relu().run_with_ort_values(None, {"x": np.ones(LARGE, np.float32)})[0]
        gone = weakref.ref(value)
        array = value.numpy()
        del value
        self.assertIsNotNone(gone())
        del array
        self.assertIsNone(gone())

    def test_a_value_keeps_its_array(self):
        value = Value.from_numpy(np.full(LARGE, 3, np.float32))
        churn()
        self.assertTrue((value.numpy() == 3).all())
        part = Value.from_numpy(np.full((2, LARGE), 4, np.float32)[1])  # of an array that nobody else has
        churn()
        self.assertTrue((part.numpy() == 4).all())

    def test_a_binding_keeps_what_is_bound_and_its_session(self):
        binding = relu().io_binding()
        binding.bind_cpu_input("x", np.full(LARGE, 5, np.float32))
        binding.bind_output("y")
        churn()
        binding.run()
        output = binding.get_outputs()[0]
        del binding
        churn()
        self.assertTrue((output.numpy() == 5).all())

    def test_outputs_stay_when_they_are_bound_again(self):
        session = InferenceSession(model([helper.make_node("Concat", ["past", "x"], ["present"], axis=0)],
                                         [tensor("past", 1, ["P"]), tensor("x", 1, ["N"])], [tensor("present", 1, ["T"])]))
        for size in (1, LARGE):
            for order in ("input first", "output first", "cleared", "cleared outputs"):
                binding = session.io_binding()
                past = Value.from_numpy(np.full(size, -1, np.float32))
                kept = []
                for number in range(3):
                    if order.startswith("cleared"):
                        binding.clear_binding_outputs()
                    if order == "cleared":
                        binding.clear_binding_inputs()
                    binds = [lambda: binding.bind_ortvalue_input("past", past), lambda: binding.bind_output("present")]
                    for bind in binds if order == "input first" else binds[::-1]:
                        bind()
                    binding.bind_cpu_input("x", np.full(1, number, np.float32))
                    session.run_with_iobinding(binding)
                    past = binding.get_outputs()[0]
                    self.assertIs(past, binding.get_outputs()[0])
                    kept.append((past, past.numpy() if number == 1 else None))
                churn()
                expected = np.concatenate([np.full(size, -1), np.arange(3)]).astype(np.float32)
                del binding
                for number, (value, array) in enumerate(kept):
                    np.testing.assert_array_equal(value.numpy(), expected[:size + number + 1], order)
                    if array is not None:
                        np.testing.assert_array_equal(array, expected[:size + number + 1])

    def test_outputs_that_nobody_has_are_not_made_again(self):
        session = relu()
        binding = session.io_binding()
        binding.bind_cpu_input("x", np.ones(LARGE, np.float32))
        places = set()
        for _ in range(5):
            binding.bind_output("y")
            binding.run()
            places.add(binding.get_outputs()[0].data_ptr())
        self.assertEqual(len(places), 1)
        kept = []
        for number in range(5):
            binding.bind_cpu_input("x", np.full(LARGE, number, np.float32))
            binding.bind_output("y")
            binding.run()
            kept.append(binding.get_outputs()[0])
        self.assertEqual([value.numpy()[-1] for value in kept], [0, 1, 2, 3, 4])
        view = kept[0].numpy()  # of the value's memory, now that no run writes it
        self.assertEqual(view.ctypes.data, kept[0].data_ptr())
        del kept, binding, session
        churn()
        self.assertTrue((view == 0).all())

    def test_outputs_without_a_run(self):
        binding = relu().io_binding()
        output = binding.get_outputs()[0]
        for ask in (output.numpy, output.shape, output.data_ptr, output.has_value, lambda: binding.bind_ortvalue_input("x", output)):
            with self.assertRaisesRegex(ValueError, "no run of the binding has made the output 'y'"):
                ask()
        binding.bind_output("y")
        self.assertFalse(output.has_value())
        binding.bind_output("y")
        binding.bind_cpu_input("x", np.array([-1, 2], np.float32))
        binding.run()
        self.assertEqual(output.numpy().tolist(), [0, 2])
        binding.clear_binding_inputs()
        self.assertEqual(binding.get_outputs()[0].numpy().tolist(), [0, 2])
        binding.clear_binding_outputs()
        self.assertEqual(output.numpy().tolist(), [0, 2])
        binding.bind_cpu_input("x", np.array([3], np.float32))
        fixed = np.zeros(1, np.float32)
        binding.bind_cpu_output("y", fixed)
        binding.run()
        self.assertEqual((fixed.tolist(), output.numpy().tolist()), ([3], [0, 2]))

    def test_a_model_of_bytes_is_kept(self):
        weights = np.random.default_rng(2).standard_normal((64, 5000)).astype(np.float32)
        data = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [tensor("x", 1, ["N", 64])], [tensor("y", 1, ["N", 5000])],
                     [suite.numpy_helper.from_array(weights, "w")])
        session = InferenceSession(data)
        del data
        churn()
        x = np.ones((2, 64), np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ weights, rtol=1e-3, atol=1e-3)

    def test_runs_that_go_on_keep_their_feeds(self):
        session = relu()
        options = RunOptions()
        options.set("synchronize", "false")
        y = session.run(None, {"x": np.full(LARGE, 2, np.float32)}, options)[0]
        self.assertTrue(session._pending)
        session.synchronize()
        self.assertFalse(session._pending)
        self.assertTrue((y == 2).all())


    def test_large_inputs_are_read_where_they_are_now(self):
        session = InferenceSession(one_node("ReduceSum", [tensor("x", 1, ["N"])], [tensor("y", 1, [1])]))
        first, second = np.ones(LARGE, np.float32), np.full(LARGE, 2, np.float32)
        for x in (first, first, first, first, second, second, first, second[::-1], first):
            self.assertEqual(session.run(None, {"x": x})[0][0], LARGE * x[0])
        known = []
        for number in range(1, 20):  # arrays that come and go, at one address or another
            x = np.full(LARGE, number, np.float32)
            known.append(weakref.ref(x))
            self.assertEqual(session.run(None, {"x": x})[0][0], LARGE * number)
            del x
        self.assertLessEqual(sum(one() is not None for one in known), 1)  # the last one alone is kept
        x = np.full(LARGE, 3, np.float32)
        session.run(None, {"x": x})
        x.resize(4 * LARGE, refcheck=False)  # moves, and comes back with the same shape
        x.resize(LARGE, refcheck=False)
        x[:] = 4
        self.assertEqual(session.run(None, {"x": x})[0][0], LARGE * 4)


class Threads(unittest.TestCase):
    def test_many_threads_run_one_session(self):
        options = SessionOptions()
        options.intra_op_num_threads = 1
        session = InferenceSession(mlp(), options)
        failures = []

        def work(seed):
            random = np.random.default_rng(seed)
            try:
                for i in range(400):
                    x = random.standard_normal((1 + (i // 40 + seed) % 3, 16)).astype(np.float32)
                    np.testing.assert_allclose(session.run(None, {"x": x})[0], mlp_by_numpy(data, x), rtol=1e-3, atol=1e-3)
            except Exception as error:  # noqa: BLE001: whatever it is, the test reports it
                failures.append(error)

        data = mlp()
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_feeds_are_kept_while_other_threads_go_on(self):
        session = InferenceSession(suite.long_model())
        options = RunOptions()
        feed = {"x": np.zeros(1000, np.float32)}
        self.addCleanup(options.cancel)
        gone = weakref.ref(feed["x"])
        ended = []

        def work():
            try:
                session.run(None, feed, options)
            except Cancelled as error:
                ended.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.3)  # the run has begun, and the interpreter goes on beside it
        feed.clear()
        churn()
        self.assertTrue(thread.is_alive())
        self.assertIsNotNone(gone())
        options.cancel()
        thread.join()
        self.assertEqual(len(ended), 1)
        ended.clear()
        gc.collect()
        self.assertIsNone(gone())


class Leaks(unittest.TestCase):
    def grows(self, call, count):
        for _ in range(count // 10):
            call()
        gc.collect()
        before = resident_kb()
        for _ in range(count):
            call()
        gc.collect()
        return resident_kb() - before

    def test_runs_do_not_leak(self):
        session = InferenceSession(mlp(1))
        x = np.ones((1, 16), np.float32)
        options = RunOptions()
        self.assertLess(self.grows(lambda: session.run(None, {"x": x}), 20000), 1500)
        self.assertLess(self.grows(lambda: session.run(None, {"x": x}, options), 20000), 1500)
        self.assertLess(self.grows(lambda: session.run_with_values(None, {"x": x}), 20000), 1500)

    def test_large_results_views_and_changing_shapes_do_not_leak(self):
        session = relu()
        arrays = [np.ones(20000 + 100 * i, np.float32) for i in range(20)]
        place = [0]

        def call():
            place[0] += 1
            session.run(None, {"x": arrays[place[0] % 20]})

        self.assertLess(self.grows(call, 4000), 6000)

    def test_errors_strings_and_sessions_do_not_leak(self):
        strings = InferenceSession(suite.identity(8, ["N"]))
        texts = np.array(["a" * 100] * 50, object)
        self.assertLess(self.grows(lambda: strings.run(None, {"x": texts}), 2000), 3000)
        session = InferenceSession(mlp())

        def wrong():
            try:
                session.run(None, {"x": np.ones((1, 5), np.float32)})
            except ValueError:
                pass

        self.assertLess(self.grows(wrong, 5000), 1500)
        data, x = mlp(), np.ones((1, 16), np.float32)

        def whole():
            made = InferenceSession(data)
            for _ in range(4):
                made.run(None, {"x": x})

        self.assertLess(self.grows(whole, 100), 6000)

    def test_quick_runs_are_bounded(self):
        session = InferenceSession(mlp(1))
        x = np.ones((1, 16), np.float32)
        for _ in range(10):
            session.run(None, {"x": x})
            session._run_by_name(None, {"x": x}, None)
        free = sum(len(ready.free) for ready in session._ready.latest.values())
        self.assertLessEqual(free, _quick.MOST_READY)
        self.assertGreater(free, 0)


if __name__ == "__main__":
    suite.main()
