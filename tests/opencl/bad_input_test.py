"""The OpenCL provider where something is missing or wrong: what its user sees through the program."""

import os
import pathlib
import resource
import sys
import unittest

import numpy as np
from onnx import TensorProto, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import program  # noqa: E402
from program import X, model, node, relu_model, value  # noqa: E402

NO_DRIVER = {"OCL_ICD_VENDORS": "/nonexistent"}
EXPECTED = np.maximum(X, 0)


class BadInput(program.ProgramTest):
    def setUp(self):
        super().setUp()
        rows = [row for row in self.json_of("providers") if row["provider"] == "opencl"]
        if not rows or not rows[0]["devices"]:
            self.skipTest(rows[0]["reason"] if rows else "the build has no OpenCL provider")
        self.x = f"x={self.save(X, 'x.npy')}"

    def run_relu(self, *options, **more):
        made = self.run_program("run", self.save(relu_model()), "--input", self.x, "--output-dir", "out", *options, **more)
        self.assertEqual(made.returncode, 0, made.stderr.decode())
        np.testing.assert_array_equal(np.load(self.folder / "out/y.npy"), EXPECTED)
        return made.stderr.decode()

    def test_without_a_driver_the_provider_is_listed_with_the_reason(self):
        row = next(row for row in self.json_of("providers", environment=NO_DRIVER) if row["provider"] == "opencl")
        self.assertEqual((row["status"], row["devices"]), ("loaded", []))
        self.assertIn("no OpenCL platform", row["reason"])

    def test_without_a_driver_asking_for_the_provider_is_an_error_that_says_what_to_install(self):
        for providers in ("opencl", "opencl,cpu"):
            self.fail_with(2, ["opencl.so", "no OpenCL platform", "pocl-opencl-icd"], "run", self.save(relu_model()),
                           "--input", self.x, "--providers", providers, environment=NO_DRIVER)

    def test_without_a_driver_the_other_providers_work(self):
        self.run_relu(environment=NO_DRIVER)

    def test_a_driver_without_devices_is_told_why_where_that_is_known(self):
        nowhere = {"POCL_CACHE_DIR": "/proc/nothing", "XDG_CACHE_HOME": "/proc/nothing"}
        row = next(row for row in self.json_of("providers", environment=nowhere) if row["provider"] == "opencl")
        if row["devices"]:
            self.skipTest("the driver needs no cache folder")
        for text in ("Portable Computing Language", "cannot write its cache folder", "POCL_CACHE_DIR"):
            self.assertIn(text, row["reason"])

    @unittest.skipIf(any(name in os.environ for name in program.SANITIZERS), "a sanitizer's own data are more")
    def test_a_process_of_little_memory_goes_on_without_the_provider(self):
        few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_DATA, (64 << 20, 64 << 20))}
        self.run_relu(**few)
        self.fail_with(2, ["opencl.so", "67108864 bytes of data", "ulimit -d"], "run", self.save(relu_model()), "--input", self.x,
                       "--providers", "opencl", **few)

    def test_a_device_that_is_not_there(self):
        self.fail_with(2, ["opencl", "no device 7"], "run", self.save(relu_model()), "--input", self.x, "--providers",
                       "opencl:7")

    def test_an_unknown_option_and_a_handle_that_is_none(self):
        for option, text in (("tilez=1", "tiles"), ("user_context=twelve", "user_context"), ("tiles=some", "tiles")):
            self.fail_with(2, ["opencl", text], "run", self.save(relu_model()), "--input", self.x, "--providers", "opencl",
                           "--set", f"provider.opencl.{option}")

    def test_a_cache_folder_that_cannot_be_written_is_a_warning(self):
        for folder in ("/proc/nothing", "x.npy/below_a_file"):
            text = self.run_relu("--providers", "opencl", "--set", f"provider.opencl.cache_dir={folder}")
            self.assertIn("warning", text)
            self.assertIn(folder, text)

    def test_that_there_is_no_folder_for_a_cache_is_a_warning(self):
        nowhere = {"HOME": "", "XDG_CACHE_HOME": "", "POCL_CACHE_DIR": str(self.folder / "pocl")}
        text = self.run_relu("--providers", "opencl", environment=nowhere)
        self.assertIn("neither XDG_CACHE_HOME nor HOME is a folder", text)
        self.assertIn("opencl", text)
        self.assertNotIn("XDG", self.run_relu("--providers", "opencl", "--set", "provider.opencl.cache_dir=off", environment=nowhere))

    def test_programs_are_kept_where_the_option_says(self):
        self.assertEqual(self.run_relu("--providers", "opencl", "--set", "provider.opencl.cache_dir=kept"), "")
        self.assertEqual(len(self.files(self.folder / "kept")), 1)

    def test_what_has_no_kernel_is_refused_by_forbid_and_warned_of_by_default(self):
        made = self.save(model([node("NonZero", ["x"], ["y"], name="the_node")], [value("x")],
                               [value("y", TensorProto.INT64, (2, None))]))
        arguments = ("run", made, "--input", self.x, "--output-dir", "out", "--providers", "opencl")
        self.fail_with(2, ["the_node", "NonZero", "opencl"], *arguments, "--fallback", "forbid")
        text = self.run_program(*arguments).stderr.decode()
        self.assertIn("the_node", text)
        self.assertEqual(np.load(self.folder / "out/y.npy").shape, (2, 6))

    def test_an_index_out_of_range_fails_the_run_and_names_the_node(self):
        index = numpy_helper.from_array(np.array([0, 5], np.int64), "index")
        made = self.save(model([node("Gather", ["x", "i"], ["y"], name="the_gather")],
                               [value("x"), value("i", TensorProto.INT64, (2,))], [value("y", shape=(2, 3))]))
        self.save(index.SerializeToString(), "i.pb")
        self.fail_with(3, ["the_gather", "outside"], "run", made, "--input", self.x, "--input", "i=i.pb",
                       "--providers", "opencl")

    def test_a_precision_that_it_does_not_offer(self):
        self.fail_with(2, ["fp16"], "run", self.save(relu_model()), "--input", self.x, "--providers", "opencl",
                       "--precision", "fp16")


if __name__ == "__main__":
    program.main()
