#!/usr/bin/env python3
"""backplane bench: its figures, and the counting of allocations."""

import numpy as np
from onnx import TensorProto

import program
from program import X, model, node, value

FIELDS = ["model", "providers", "threads", "precision", "load_ms", "plan_ms", "first_run_ms", "runs", "runs_per_s",
          "median_ms", "min_ms", "p90_ms", "peak_rss_mb", "steady_allocations", "arena_bytes"]
SANITIZED = "ASAN_OPTIONS" in program.os.environ  # then malloc is the sanitizer's


class Bench(program.ProgramTest):
    def setUp(self):
        super().setUp()
        self.model = self.save(program.relu_model())

    def bench(self, *arguments):
        return self.json_of("bench", *arguments, "--warmup", 2, "--runs", 20)

    def test_fields(self):
        made = self.bench(self.model)
        self.assertEqual(list(made), FIELDS)
        self.assertEqual(made["model"], str(self.model))
        self.assertEqual(made["providers"], ["cpu"])
        self.assertEqual(made["runs"], 20)
        self.assertEqual(made["precision"], "fp32")
        for field in ("load_ms", "plan_ms", "first_run_ms", "runs_per_s", "median_ms", "min_ms", "peak_rss_mb"):
            self.assertGreater(made[field], 0, field)
        self.assertLessEqual(made["min_ms"], made["median_ms"])
        self.assertLessEqual(made["median_ms"], made["p90_ms"])
        self.assertIsInstance(made["arena_bytes"], dict)

    def test_the_steady_state_allocates_nothing(self):
        self.assertEqual(self.bench(self.model)["steady_allocations"], None if SANITIZED else 0)

    def test_allocations_are_counted(self):
        path = self.save(program.fault_model("allocate"), "allocate.onnx")
        made = self.bench(path, "--custom-ops", program.FAULTS)
        self.assertEqual(made["steady_allocations"], None if SANITIZED else 3 * 10)

    def test_threads_are_told(self):
        self.assertEqual(self.bench(self.model, "--threads", 1)["threads"], 1)
        self.assertEqual(self.bench(self.model, "--threads", 2)["threads"], 2)

    def test_sessions_and_callers(self):
        made = self.bench(self.model, "--sessions", 2, "--callers", 3)
        self.assertEqual(made["runs"], 20)
        self.assertEqual(made["steady_allocations"], None if SANITIZED else 0)

    def test_sessions_tell_what_memory_they_share(self):
        alone = self.bench(self.model)
        self.assertNotIn("session_memory", alone)
        memory = self.bench(self.model, "--sessions", 3)["session_memory"]
        self.assertEqual(memory["sessions"], 3)
        self.assertGreater(memory["one_mb"], 0)
        self.assertGreaterEqual(memory["all_mb"], memory["one_mb"])

    def test_default_counts_take_about_a_second(self):
        made = self.json_of("bench", self.model)
        self.assertGreater(made["runs"], 100)

    def test_given_inputs_and_symbols_are_used(self):
        dynamic = self.save(model([node("Add", ["a", "b"], ["y"])],
                                  [value("a", shape=("n", 3)), value("b", shape=("n", 3))], [value("y", shape=None)]))
        np.save(self.folder / "a.npy", X)
        made = self.run_program("bench", dynamic, "--input", "a=a.npy", "--runs", "3", "--json")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(made.stderr, b"", "b takes its size from a")
        made = self.run_program("bench", dynamic, "--runs", "3", "--json")
        self.assertIn(b"'n' is taken as 1", made.stderr)
        made = self.run_program("bench", dynamic, "--runs", "3", "--dim", "n=4", "--json")
        self.assertEqual(made.stderr, b"")

    def test_planning_for_new_sizes_is_measured(self):
        dynamic = self.save(model([node("Relu", ["a"], ["y"])], [value("a", shape=("n", 3))], [value("y", shape=None)]))
        made = self.bench(dynamic, "--replan", "n=5")
        self.assertGreater(made["replan_ms"], 0)
        self.assertNotIn("replan_ms", self.bench(dynamic, "--dim", "n=5"))
        self.assertIn("plan for a new size", self.succeed("bench", dynamic, "--runs", 3, "--replan", "n=5"))
        self.fail_with(2, ["--replan", "'m'", "'n'"], "bench", dynamic, "--replan", "m=5")
        self.fail_with(2, ["--replan", "NAME=N"], "bench", dynamic, "--replan", "n=1")
        self.fail_with(2, ["--replan", "NAME=N"], "bench", dynamic, "--replan", "5")

    def test_runs_of_growing_sizes_are_measured(self):
        growing = self.save(model([node("Relu", ["past"], ["y"]), node("Abs", ["mask"], ["z"])],
                                  [value("past", shape=("p", 3)), value("mask", shape=("t",))],
                                  [value("y", shape=None), value("z", shape=None)]))
        made = self.bench(growing, "--grow", "p=4:9", "--grow", "t=5:10")
        self.assertEqual(made["growing_runs"], 6)
        self.assertGreater(made["growing_ms"], 0)
        self.assertGreaterEqual(made["growing_p90_ms"], made["growing_ms"])
        self.assertNotIn("growing_ms", self.bench(growing, "--dim", "p=2", "--dim", "t=2"))
        self.assertIn("run of a new size", self.succeed("bench", growing, "--runs", 3, "--grow", "p=1:1", "--dim", "t=3"))
        self.fail_with(2, ["--grow", "'q'", "'p'"], "bench", growing, "--grow", "q=1:2")
        self.fail_with(2, ["--grow", "'p'", "twice"], "bench", growing, "--grow", "p=1:2", "--grow", "p=1:2")
        self.fail_with(2, ["--grow", "another number of sizes"], "bench", growing, "--grow", "p=1:2", "--grow", "t=1:3")
        for wrong in ("p", "p=1", "p=2:1", "p=0:1", "p=1:2x", "p=1x:2", "=1:2"):
            self.fail_with(2, ["--grow", "NAME=FROM:TO"], "bench", growing, "--grow", wrong)

    def test_inputs_of_every_type_are_made_up(self):
        names = ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16",
                 "UINT32", "UINT64", "BOOL", "STRING", "COMPLEX64", "COMPLEX128", "FLOAT8E5M2", "FLOAT4E2M1", "INT4"]
        for name in names:
            with self.subTest(name):
                path = self.save(program.identity_model(getattr(TensorProto, name)))
                self.assertEqual(self.bench(path)["runs"], 20)

    def test_the_table_is_for_people(self):
        text = self.succeed("bench", self.model, "--runs", 3)
        self.assertIn("median", text)
        self.assertIn("allocations in 10 runs", text)

    def test_threads_that_do_not_start_are_a_failed_run(self):
        if program.os.geteuid() != 0:
            self.skipTest("a limit of processes counts those of a user: it needs one who has none")
        self.folder.chmod(0o755)
        shell = ["bash", "-c", 'ulimit -u 3; exec "$0" bench model.onnx --threads 1 --callers 8 --runs 3', str(program.PROGRAM)]
        made = program.subprocess.run(shell, cwd=self.folder, capture_output=True, check=False, timeout=60, user=65534)
        self.assertEqual(made.returncode, 3, made.stderr)
        self.assertRegex(made.stderr.decode(), "^backplane: cannot start 8 threads, only [0-7]: ")

    def test_whole_numbers_may_have_zeros_in_front(self):
        self.assertEqual(self.json_of("bench", self.model, "--warmup", 1, "--runs", "010")["runs"], 10)

    def test_failures(self):
        self.fail_with(2, ["--callers 2", "--sessions 5"], "bench", self.model, "--callers", 2, "--sessions", 5)
        path = self.save(program.fault_model("fail"))
        self.fail_with(3, ["the_fault", "told to fail"], "bench", path, "--custom-ops", program.FAULTS)
        self.fail_with(3, ["told to fail"], "bench", path, "--custom-ops", program.FAULTS, "--callers", 3)
        self.fail_with(2, ["bench_none.onnx"], "bench", "bench_none.onnx")


if __name__ == "__main__":
    program.main()
