#!/usr/bin/env python3
"""Files that cannot be written whole: exit 3, one line that names the file, and what was there before stays."""

import resource
import signal

import numpy as np

import program
from program import model, node, value

LIMIT = 8192


def limited():
    """No file of this process may become longer than LIMIT bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))


class FullDisk(program.ProgramTest):
    def setUp(self):
        super().setUp()
        long = (100, 100)
        nodes = [node("ReduceSum", ["x"], ["total"], keepdims=0)]
        nodes += [node("Relu" if i % 2 else "Neg", [f"v{i}" if i else "x"], [f"v{i + 1}"], name=f"node_{i}" + "_" * 200)
                  for i in range(100)]
        self.model = self.save(model(nodes, [value("x", shape=long)],
                                     [value("total", shape=()), value("v100", shape=long)]))
        self.x = f"x={self.save(np.ones(long, np.float32), 'x.npy')}"
        self.before = self.files()

    def test_no_output_of_a_run_is_left_when_one_does_not_fit(self):
        self.fail_with(3, ["v100.npy"], "run", self.model, "--input", self.x, "--output-dir", "o", preexec_fn=limited)
        self.assertEqual(self.files(self.folder / "o"), [], "total.npy would have fitted")

    def test_older_outputs_stay_as_they_were(self):
        (self.folder / "o").mkdir()
        for name in ("total.npy", "v100.npy"):
            self.save(b"of an earlier run", f"o/{name}")
        self.fail_with(3, ["v100.npy"], "run", self.model, "--input", self.x, "--output-dir", "o", preexec_fn=limited)
        self.assertEqual(self.files(self.folder / "o"), ["total.npy", "v100.npy"])
        for name in ("total.npy", "v100.npy"):
            self.assertEqual((self.folder / "o" / name).read_bytes(), b"of an earlier run")

    def test_traces(self):
        self.fail_with(3, ["trace.json"], "run", self.model, "--input", self.x, "--profile", "trace.json",
                       preexec_fn=limited)
        self.assertEqual(self.files(), self.before)

    def test_what_a_session_saves(self):
        for option in ("save_plan", "optimized_model_path"):
            self.fail_with(3, ["saved"], "run", self.model, "--input", self.x, "--set", f"{option}=saved", preexec_fn=limited)
            self.fail_with(2, ["nowhere/saved", "folder must exist"], "inspect", self.model, "--set", f"{option}=nowhere/saved")
            self.assertEqual(self.files(), self.before)

    def test_drawings(self):
        self.fail_with(3, ["graph.dot"], "inspect", self.model, "--dot", "graph.dot", preexec_fn=limited)
        self.assertEqual(self.files(), self.before)

    def test_reports(self):
        wrong = [np.zeros((2, 3), np.float32)]
        for i in range(60):
            self.save_case(f"cases/{'a_long_name_' * 8}{i}", program.relu_model(), [program.X], wrong)
        self.fail_with(3, ["report.json"], "verify", "cases", "--json", "report.json", preexec_fn=limited)
        self.assertFalse((self.folder / "report.json").exists())
        self.assertEqual([name for name in self.files() if name not in self.before], ["cases"])

    def test_devices_that_are_full(self):
        self.fail_with(3, ["/dev/full"], "run", self.model, "--input", self.x, "--profile", "/dev/full")
        self.fail_with(3, ["/dev/full"], "inspect", self.model, "--dot", "/dev/full")
        case = self.save_case("cases/a", program.relu_model(), [program.X], [np.maximum(program.X, 0)])
        self.fail_with(3, ["/dev/full"], "verify", case, "--json", "/dev/full")


if __name__ == "__main__":
    program.main()
