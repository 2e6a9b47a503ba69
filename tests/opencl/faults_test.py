"""The OpenCL provider where the device, its compiler, its memory or the disk fails in the middle of something.

The calls fail in a library that is loaded before OpenCL's (opencl_faults.cpp); the program is run as
its user does.
"""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
from onnx import numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import program  # noqa: E402
from program import BUILD, X, model, node, value  # noqa: E402

FAULTS = BUILD / "tests/opencl/opencl_faults.so"
GONE, NO_MEMORY, NO_BUILD = -2, -4, -11
WEIGHTS = numpy_helper.from_array(np.eye(3, dtype=np.float32), "w")
EXPECTED = np.maximum(X, 0)


def two_kernels():
    """A product whose weights are uploaded, and what does not fuse with it."""
    return model([node("MatMul", ["x", "w"], ["m"], name="the_product"),
                  node("Relu", ["m"], ["r"], name="the_relu"),
                  node("Transpose", ["r"], ["t"], name="first_turn"), node("Transpose", ["t"], ["y"], name="second_turn")],
                 [value("x")], [value("y")], [WEIGHTS])


class Faults(program.ProgramTest):
    def setUp(self):
        super().setUp()
        rows = [row for row in self.json_of("providers") if row["provider"] == "opencl"]
        if not rows or not rows[0]["devices"]:
            self.skipTest(rows[0]["reason"] if rows else "the build has no OpenCL provider")
        self.device = rows[0]["devices"][0]["name"]
        self.save(X, "x.npy")
        self.save(two_kernels())

    def command(self, *options, providers="opencl"):
        return ("run", "model.onnx", "--input", "x=x.npy", "--output-dir", "out", "--providers", providers, *options)

    def fault(self, call, first, code):
        # The sanitizers' libraries want to be first; leaks of a driver that fails are its own.
        return {"LD_PRELOAD": str(FAULTS), "BACKPLANE_OPENCL_FAULT": f"{call} {first} {code}",
                "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}

    def check_output(self):
        np.testing.assert_array_equal(np.load(self.folder / "out/y.npy"), EXPECTED)

    def test_a_device_that_vanishes_at_any_call_is_one_clear_error(self):
        for first in range(1, 200):
            made = self.run_program(*self.command(), environment=self.fault("*", first, GONE))
            if made.returncode == 0:
                break
            with self.subTest(call=first):
                line = made.stderr.decode()
                self.assertIn(made.returncode, (2, 3), line)
                self.assertEqual(line.count("\n"), 1, line)
                self.assertIn("CL_DEVICE_NOT_AVAILABLE", line)
                self.assertRegex(line, "(?i)opencl|" + re.escape(self.device))
                self.assertFalse((self.folder / "out/y.npy").exists())
        self.assertGreater(first, 8, "the calls were not made to fail")
        self.check_output()

    def test_a_device_that_vanishes_under_a_launch_names_the_node_and_is_a_failed_run(self):
        for first, name in ((1, "the_product"), (2, "first_turn"), (3, "second_turn")):
            self.fail_with(3, [name, "CL_DEVICE_NOT_AVAILABLE", "clEnqueueNDRangeKernel"], *self.command(),
                           environment=self.fault("clEnqueueNDRangeKernel", first, GONE))

    def test_a_device_that_vanishes_is_not_replaced_by_another(self):
        self.fail_with(3, ["CL_DEVICE_NOT_AVAILABLE"], *self.command("--fallback", "allow", providers="opencl,cpu"),
                       environment=self.fault("clEnqueueNDRangeKernel", 2, GONE))

    def test_a_device_that_vanishes_while_it_is_waited_for(self):
        self.fail_with(3, ["CL_DEVICE_NOT_AVAILABLE"], *self.command(), environment=self.fault("clFinish", 1, GONE))

    def test_a_queue_out_of_order_whose_launches_wait_for_nothing_gives_wrong_results(self):
        """So that the test of such queues would see an access that the provider forgets."""
        tests = [str(BUILD / "tests/opencl_device"), "--gtest_filter=OpenClQueue.GivesResultsAsIfInOrder"]
        plain = subprocess.run(tests, capture_output=True, check=False, timeout=120)
        self.assertEqual(plain.returncode, 0, plain.stdout.decode())
        if b"[  SKIPPED ]" in plain.stdout:
            self.skipTest("the device has no queues out of order")
        environment = {**os.environ, **self.fault("none", 1, GONE), "BACKPLANE_OPENCL_NO_WAITS": "1"}
        for _ in range(5):  # commands may by chance end one after the other
            broken = subprocess.run(tests, capture_output=True, check=False, timeout=120, env=environment)
            if broken.returncode != 0:
                break
        self.assertEqual(broken.returncode, 1, broken.stderr.decode())
        self.assertIn(b"GivesResultsAsIfInOrder", broken.stdout)

    def test_a_kernel_that_does_not_compile_is_an_error_that_says_so(self):
        line = self.fail_with(2, ["does not compile", self.device],
                              *self.command("--set", "provider.opencl.cache_dir=off"),
                              environment=self.fault("clBuildProgram", 1, NO_BUILD))
        self.assertRegex(line, "the_product|_turn")

    def test_a_device_without_memory_left(self):
        for first in range(1, 40):
            made = self.run_program(*self.command(), environment=self.fault("clCreateBuffer", first, NO_MEMORY))
            if made.returncode == 0:
                break
            line = made.stderr.decode()
            with self.subTest(call=first):
                self.assertIn(made.returncode, (2, 3), line)
                self.assertEqual(line.count("\n"), 1, line)
                self.assertIn("CL_MEM_OBJECT_ALLOCATION_FAILURE", line)
        self.assertGreater(first, 1, "the calls were not made to fail")
        self.check_output()

    def test_a_cache_folder_on_a_full_disk_is_a_warning(self):
        made = self.run_program(*self.command("--set", "provider.opencl.cache_dir=full_disk"),
                                environment={**self.fault("none", 0, 0), "BACKPLANE_FULL_FOLDER": "full_disk"})
        text = made.stderr.decode()
        self.assertEqual(made.returncode, 0, text)
        self.assertEqual(text.count("programs cannot be kept"), 1, text)
        self.assertIn("full_disk", text)
        self.assertEqual(self.files(self.folder / "full_disk"), [], "a part of an entry was left")
        self.check_output()


if __name__ == "__main__":
    program.main()
