#!/usr/bin/env python3
"""backplane verify: which folders are cases, what is right, and what each outcome says."""

import json
import math
import os
import signal
import subprocess
import time

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import program
from program import X, model, node, value

RELU = np.maximum(X, 0)


class Cases(program.ProgramTest):
    def verify(self, *arguments, code=0):
        """(lines without the summary, summary, results)"""
        text = self.succeed("verify", *arguments, "--json", "results.json", code=code)
        lines = text.splitlines()
        results = json.loads((self.folder / "results.json").read_text())
        return lines[:-1], lines[-1], results

    def test_a_case_that_passes(self):
        self.save_case("cases/deep/relu", program.relu_model(), [X], [RELU])
        lines, summary, results = self.verify("cases")
        self.assertEqual(lines, [])
        self.assertEqual(summary, "1 passed, 0 failed, 0 skipped")
        self.assertEqual(results, {"deep/relu": {"status": "pass", "reason": "", "max_abs": 0.0, "max_rel": 0.0,
                                                 "nodes_on": {"cpu": 1}, "copies": 0}})

    def test_a_wrong_result_says_where(self):
        want = RELU.copy()
        want[1, 1] = 4
        self.save_case("cases/relu", program.relu_model(), [X], [want])
        self.save_case("cases/right", program.relu_model(), [X], [RELU])
        lines, summary, results = self.verify("cases", code=1)
        self.assertEqual(summary, "1 passed, 1 failed, 0 skipped")
        self.assertEqual(len(lines), 1)
        self.assertIn("wrong: relu: test_data_set_0: output 'y': element [1,1] is 5, should be 4", lines[0])
        self.assertEqual(results["relu"]["max_abs"], 1)
        self.assertEqual(results["relu"]["max_rel"], 0.25)

    def test_json_on_standard_output_is_alone_there(self):
        self.save_case("cases/relu", program.relu_model(), [X], [X])
        made = self.run_program("verify", "cases", "--json", "-")
        self.assertEqual(made.returncode, 1)
        self.assertEqual(json.loads(made.stdout)["relu"]["status"], "wrong")
        self.assertIn(b"0 passed, 1 failed, 0 skipped", made.stderr)

    def test_a_folder_that_is_the_case(self):
        folder = self.save_case("cases/relu", program.relu_model(), [X], [RELU])
        self.assertEqual(list(self.verify(folder)[2]), ["."])

    def test_several_folders(self):
        self.save_case("a/relu", program.relu_model(), [X], [RELU])
        self.save_case("b/relu", program.relu_model(), [X], [X])
        _, summary, results = self.verify("a", "b", code=1)
        self.assertEqual(summary, "1 passed, 1 failed, 0 skipped")
        self.assertEqual(len(results), 2)

    def test_no_case_is_a_wrong_request(self):
        (self.folder / "none").mkdir()
        self.fail_with(2, ["no case", "none"], "verify", "none")
        self.fail_with(2, ["nowhere"], "verify", "nowhere")
        self.save(program.relu_model(), "none/model.onnx")  # a model without data is no case
        self.fail_with(2, ["no case"], "verify", "none")

    def test_the_worst_data_set_counts(self):
        folder = self.save_case("cases/relu", program.relu_model(), [X], [RELU])
        for number, wrong in ((2, 1e-4), (10, 0)):
            other = self.save_case("other", program.relu_model(), [X], [RELU + np.float32(wrong)])
            (other / "test_data_set_0").rename(folder / f"test_data_set_{number}")
        result = self.verify("cases", "--atol", "1e-2")[2]["relu"]
        self.assertAlmostEqual(result["max_abs"], 1e-4, places=6)

    def test_nothing_to_compare_is_skipped(self):
        self.save_case("cases/relu", program.relu_model(), [X], [])
        lines, summary, results = self.verify("cases")
        self.assertEqual(summary, "0 passed, 0 failed, 1 skipped")
        self.assertEqual(results["relu"]["status"], "skipped")
        self.assertTrue(lines[0].startswith("skipped: relu: "))

    def test_a_model_that_nobody_takes_is_refused(self):
        unknown = model([node("NoSuchOperator", ["x"], ["y"], domain="backplane.tests")], [value("x")], [value("y")])
        self.save_case("cases/unknown", unknown, [X], [X])
        _, _, results = self.verify("cases", code=1)
        self.assertEqual(results["unknown"]["status"], "refused")
        self.assertIn("NoSuchOperator", results["unknown"]["reason"])
        self.assertIsNone(results["unknown"]["max_abs"])

    def test_broken_cases_are_errors_of_their_own(self):
        self.save_case("cases/no_input", program.relu_model(), [None], [RELU])
        self.save_case("cases/bad_data", program.relu_model(), [X], [RELU], data="{")
        broken = self.save_case("cases/bad_model", program.relu_model(), [X], [RELU])
        (broken / "model.onnx").write_bytes(b"\xff\xff")
        bad_tensor = self.save_case("cases/bad_tensor", program.relu_model(), [X], [RELU])
        (bad_tensor / "test_data_set_0/output_0.pb").write_bytes(b"\xff\xff")
        self.save_case("cases/right", program.relu_model(), [X], [RELU])
        _, summary, results = self.verify("cases", code=1)
        self.assertEqual(summary, "1 passed, 4 failed, 0 skipped")
        for name, text in (("no_input", "'x'"), ("bad_data", "data.json"), ("bad_model", "model.onnx"),
                           ("bad_tensor", "output_0.pb")):
            self.assertEqual(results[name]["status"], "error")
            self.assertIn(text, results[name]["reason"])
        for data in ({"rtol": -1}, {"atol": -0.5}):
            self.save_case("case", program.relu_model(), [X], [RELU], data=data)
            self.fail_with_reason("data.json", "from 0 on")

    def test_what_cannot_be_read_is_an_error_and_not_left_out(self):
        for name in ("right", "no_model", "no_data", "no_output"):
            self.save_case(f"cases/{name}", program.relu_model(), [X], [RELU])
        for lost in ("no_model/model.onnx", "no_data/test_data_set_1", "no_output/test_data_set_0/output_1.pb"):
            path = self.folder / "cases" / lost
            path.unlink(missing_ok=True)
            path.symlink_to("../annex/objects/not_fetched")
        _, summary, results = self.verify("cases", code=1)
        self.assertEqual(summary, "1 passed, 3 failed, 0 skipped")
        for name, text in (("no_model", "model.onnx' is a link that leads nowhere"),
                           ("no_data", "test_data_set_1' is a link that leads nowhere"), ("no_output", "output_1.pb")):
            self.assertEqual(results[name]["status"], "error")
            self.assertIn(text, results[name]["reason"])

    def test_other_links_that_lead_nowhere_are_no_cases(self):
        folder = self.save_case("cases/relu", program.relu_model(), [X], [RELU])
        for link in (folder / "loop", folder / "test_data_set_0/loop", self.folder / "cases/loop"):
            link.symlink_to("loop")
        (self.folder / "cases/.#notes").symlink_to("somebody@somewhere")
        self.assertEqual(self.verify("cases")[1], "1 passed, 0 failed, 0 skipped")

    def test_folders_without_permission_are_errors(self):
        more = {"user": 65534} if os.geteuid() == 0 else {}
        self.save_case("cases/locked", program.relu_model(), [X], [RELU]).chmod(0)
        self.addCleanup((self.folder / "cases/locked").chmod, 0o700)
        self.save_case("cases/right", program.relu_model(), [X], [RELU])
        self.folder.chmod(0o755)
        text = self.succeed("verify", "cases", code=1, **more)
        self.assertIn("error: locked: 'cases/locked' cannot be read: Permission denied", text)
        self.assertIn("1 passed, 1 failed, 0 skipped", text)

    def test_folders_whose_path_is_too_long_are_errors(self):
        self.save_case("cases/right", program.relu_model(), [X], [RELU])
        inner = os.open(self.folder / "cases", os.O_RDONLY)
        for _ in range(20):
            os.mkdir("d" * 250, dir_fd=inner)
            outer, inner = inner, os.open("d" * 250, os.O_RDONLY, dir_fd=inner)
            os.close(outer)
        os.close(inner)
        lines, summary, _ = self.verify("cases", code=1)
        self.assertEqual(summary, "1 passed, 1 failed, 0 skipped")
        self.assertIn("cannot be read: File name too long", lines[0])

    def test_the_search_needs_few_descriptors(self):
        self.save_case("cases/" + "deep/" * 30 + "relu", program.relu_model(), [X], [RELU])
        shell = ["bash", "-c", 'ulimit -n 20; exec "$0" verify cases --jobs 1', str(program.PROGRAM)]
        made = subprocess.run(shell, cwd=self.folder, capture_output=True, check=False, timeout=60)
        self.assertIn(b"1 passed, 0 failed, 0 skipped", made.stdout, made.stderr)

    def test_keys_are_the_paths_below_the_folder(self):
        self.save_case("elsewhere/real", program.relu_model(), [X], [RELU])
        (self.folder / "cases").mkdir()
        (self.folder / "cases/linked").symlink_to("../elsewhere/real")
        self.save_case("cases/deep/relu", program.relu_model(), [X], [RELU])
        for folder in ("cases", "cases/", "./cases/."):
            self.assertEqual(list(self.verify(folder)[2]), ["deep/relu", "linked"])
        self.assertEqual(list(self.verify("cases", "./cases/", "elsewhere/real")[2]), [".", "deep/relu", "linked"])

    def test_keys_that_differ_in_bytes_alone_stay_apart(self):
        for byte, want in ((b"\xfe", X), (b"\xff", RELU)):
            case = self.save_case("case", program.relu_model(), [X], [want])
            os.makedirs(bytes(self.folder / "cases"), exist_ok=True)
            os.rename(bytes(case), bytes(self.folder / "cases") + b"/" + byte)
        _, _, results = self.verify("cases", code=1)
        self.assertEqual({key: result["status"] for key, result in results.items()}, {"\\xfe": "wrong", "\\xff": "pass"})

    def test_an_interrupt_loses_no_line(self):
        """A case is told when it is done: the one that waits for ever comes after the one that is wrong."""
        self.save_case("cases/1_wrong", program.relu_model(), [X], [RELU + 1])
        self.save_case("cases/2_hangs", program.fault_model("hang"), [X], [X])
        lines = self.folder / "lines"
        with open(lines, "wb") as file:
            self.interrupt(signal.SIGINT, lambda: b"\n" in lines.read_bytes(), "verify", "cases", "--jobs", "1", "--custom-ops",
                           program.FAULTS, "--json", "r.json", stdout=file)
        self.assertRegex(lines.read_text(), r"^wrong: 1_wrong: .*\n$")
        self.assertNotIn("r.json", self.files())

    def test_what_is_done_is_in_the_report_whenever_it_is_ended(self):
        """The results as a whole are there at the end or not at all."""
        self.save_case("cases/1_right", program.relu_model(), [X], [RELU])
        self.save_case("cases/2_hangs", program.fault_model("hang"), [X], [X])
        report = self.folder / "report"
        self.interrupt(signal.SIGINT, lambda: report.exists() and report.stat().st_size > 0, "verify", "cases", "--jobs", "1",
                       "--custom-ops", program.FAULTS, "--json", "r.json", "--report", report)
        self.assertEqual(json.loads(report.read_text()), {"case": "1_right", "status": "pass", "reason": "", "max_abs": 0.0,
                                                          "max_rel": 0.0, "nodes_on": {"cpu": 1}, "copies": 0})
        self.assertNotIn("r.json", self.files())
        self.fail_with(2, ["--report", "the file of --json"], "verify", "cases", "--json", "r.json", "--report", "r.json")
        self.fail_with(2, ["--report", "a part of the case"], "verify", "cases", "--report", "cases/1_right/model.onnx")

    def test_files_that_belong_to_nothing_are_errors(self):
        relu = program.relu_model()
        self.save_case("case", relu, [X, X], [np.maximum(X, 0)])
        self.fail_with_reason("input_1.pb", "1 input")
        self.save_case("case", relu, [X], [np.maximum(X, 0)] * 2)
        (self.folder / "case/test_data_set_0/input_1.pb").unlink()
        self.fail_with_reason("output_1.pb", "1 output")

    def test_a_second_file_for_one_output_is_an_error(self):
        for name in ("output_00.pb", "input_00.pb"):
            self.save_case("case", program.relu_model(), [X], [RELU])
            second = self.save(numpy_helper.from_array(X), f"case/test_data_set_0/{name}")
            self.fail_with_reason(name, "without zeros in front")
            second.unlink()

    def fail_with_reason(self, *words):
        self.succeed("verify", "case", "--json", "r.json", code=1)
        result = json.loads((self.folder / "r.json").read_text())["."]
        self.assertEqual(result["status"], "error")
        for word in words:
            self.assertIn(word, result["reason"])

    def test_inputs_with_initializers_keep_their_numbers(self):
        """IR version 3 lists initializers as inputs: input_1 is the second of the list."""
        weight = helper.make_tensor("w", TensorProto.FLOAT, (2, 3), [1.0] * 6)
        old = model([node("Add", ["x", "w"], ["y"])], [value("w"), value("x")], [value("y")], [weight], ir_version=3,
                    opset=8)
        self.save_case("cases/old", old, [None, X], [X + 1])
        self.assertEqual(self.verify("cases")[1], "1 passed, 0 failed, 0 skipped")

    def test_overridable_initializers_may_be_fed(self):
        weight = helper.make_tensor("w", TensorProto.FLOAT, (2, 3), [1.0] * 6)
        new = model([node("Add", ["x", "w"], ["y"])], [value("w"), value("x")], [value("y")], [weight])
        self.save_case("cases/default", new, [None, X], [X + 1])
        self.save_case("cases/fed", new, [X, X], [X + X])
        self.assertEqual(self.verify("cases")[1], "2 passed, 0 failed, 0 skipped")


class Integers(program.ProgramTest):
    """Equal is equal, beyond 2^53 too; what is told of a difference is exact."""

    def test_large_integers_that_one_double_rounds_alike(self):
        for dtype, largest in ((np.int64, 2**63 - 1), (np.uint64, 2**64 - 1), (np.int32, 2**31 - 1), (np.uint32, 2**32 - 1)):
            with self.subTest(dtype.__name__):
                got = np.array([largest, 1], dtype)
                want = np.array([largest - 1, 1], dtype)
                same = program.identity_model(helper.np_dtype_to_tensor_dtype(got.dtype), (2,))
                self.save_case("case", same, [got], [want])
                line = self.succeed("verify", "case", "--json", "r.json", code=1)
                self.assertIn(f"element [0] is {largest}, should be {largest - 1} (1 of 2 differ)", line)
                self.assertEqual(json.loads((self.folder / "r.json").read_text())["."]["max_abs"], 1)

    def test_the_ends_of_a_range_are_far_apart(self):
        got, want = np.array([-2**63], np.int64), np.array([2**63 - 1], np.int64)
        self.save_case("case", program.identity_model(TensorProto.INT64, (1,)), [got], [want])
        self.succeed("verify", "case", "--json", "r.json", code=1)
        self.assertEqual(json.loads((self.folder / "r.json").read_text())["."]["max_abs"], 2.0**64)

    def test_doubles_are_told_with_all_their_digits(self):
        third = np.array([1 / 3], np.float64)
        self.save_case("case", program.identity_model(TensorProto.DOUBLE, (1,)), [third], [np.nextafter(third, 1)])
        line = self.succeed("verify", "case", "--rtol", "0", "--atol", "0", code=1)
        self.assertIn("is 0.3333333333333333, should be 0.33333333333333337", line)


class Tolerance(program.ProgramTest):
    """An element is right when |got - want| <= atol + rtol * |want|."""

    def status(self, got, want, dtype=None, data=None, arguments=()):
        """What verify makes of an identity that gives `got` where `want` is expected."""
        if not hasattr(got, "SerializeToString"):
            dtype = dtype or helper.np_dtype_to_tensor_dtype(got.dtype)
        shape = got.shape if isinstance(got, np.ndarray) else tuple(got.dims)
        content = program.identity_model(dtype, shape)
        folder = self.save_case("case", content, [got], [want], data)
        self.run_program("verify", folder, *arguments, "--json", "r.json")
        result = json.loads((self.folder / "r.json").read_text())["."]
        return result["status"] if result["status"] in ("pass", "wrong") else result["reason"]

    def check(self, expected, got, want, **more):
        with self.subTest(got=got, want=want, **more):
            self.assertEqual(self.status(got, want, **more), expected)

    def test_defaults_data_and_command_line(self):
        got = np.array([1.0], np.float64)
        self.check("pass", got, np.array([1.0009]))
        self.check("wrong", got, np.array([1.0011]))
        self.check("pass", np.array([0.0]), np.array([0.9e-7]))
        self.check("wrong", np.array([0.0]), np.array([1.1e-7]))
        self.check("pass", got, np.array([1.4]), data={"rtol": 0, "atol": 0.5})
        self.check("wrong", got, np.array([1.4]), data={"rtol": 0, "atol": 0.5}, arguments=("--atol", "0.1"))
        self.check("pass", got, np.array([1.4]), data={"rtol": 0, "atol": 0}, arguments=("--rtol", "0.3"))

    def test_the_relative_part_is_of_what_is_wanted(self):
        self.check("pass", np.array([1.0]), np.array([2.0]), arguments=("--rtol", "0.5", "--atol", "0"))
        self.check("wrong", np.array([2.0]), np.array([1.0]), arguments=("--rtol", "0.5", "--atol", "0"))

    def test_special_values(self):
        nan, inf = math.nan, math.inf
        for got, want, status in ((nan, nan, "pass"), (inf, inf, "pass"), (-inf, -inf, "pass"), (inf, -inf, "wrong"),
                                  (nan, 1, "wrong"), (1, nan, "wrong"), (inf, 1, "wrong"), (1, inf, "wrong"),
                                  (inf, nan, "wrong"), (0.0, -0.0, "pass")):
            self.check(status, np.array([got], np.float32), np.array([want], np.float32), arguments=("--atol", "9"))

    def test_differences_that_are_no_numbers_are_null(self):
        self.status(np.array([math.nan], np.float32), np.array([1], np.float32))
        result = json.loads((self.folder / "r.json").read_text())["."]
        self.assertIsNone(result["max_abs"])

    def test_integers_bools_and_strings_are_exact(self):
        self.check("wrong", np.array([10000], np.int32), np.array([10001], np.int32), arguments=("--atol", "5"))
        big = 2**62
        self.check("wrong", np.array([big], np.int64), np.array([big + 1], np.int64))
        self.check("pass", np.array([big + 1], np.int64), np.array([big + 1], np.int64))
        self.check("wrong", np.array([2**64 - 1], np.uint64), np.array([2**64 - 2], np.uint64))
        self.check("wrong", np.array([True]), np.array([False]))
        strings = [helper.make_tensor("x", TensorProto.STRING, (2,), s) for s in ([b"a", b"b"], [b"a", b"c"])]
        self.check("pass", strings[0], strings[0], dtype=TensorProto.STRING)
        self.check("wrong", strings[0], strings[1], dtype=TensorProto.STRING)

    def test_complex_numbers(self):
        self.check("pass", np.array([1 + 1j], np.complex64), np.array([1 + 1.0009j], np.complex64))
        self.check("wrong", np.array([1 + 1j], np.complex64), np.array([1 + 1.01j], np.complex64))
        self.check("pass", np.array([complex(math.nan, 1)]), np.array([complex(math.nan, 1)]))
        self.check("wrong", np.array([complex(math.inf, 1)]), np.array([complex(-math.inf, 1)]))

    def test_small_floats_are_compared_by_value(self):
        for dtype in (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ,
                      TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ, TensorProto.FLOAT4E2M1,
                      TensorProto.FLOAT8E8M0):
            one, two, four = (helper.make_tensor("x", dtype, (3,), [v, 2, 1]) for v in (1.0, 2.0, 4.0))
            self.check("pass", one, one, dtype=dtype)
            self.check("pass", one, two, dtype=dtype, arguments=("--rtol", "0.5"))
            self.check("wrong", one, four, dtype=dtype, arguments=("--rtol", "0.5"))

    def test_packed_integers(self):
        for dtype in (TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2):
            right = helper.make_tensor("x", dtype, (5,), [0, 1, 0, 1, 1])
            wrong = helper.make_tensor("x", dtype, (5,), [0, 1, 0, 1, 0])
            self.check("pass", right, right, dtype=dtype)
            self.check("wrong", right, wrong, dtype=dtype)

    def test_type_and_shape_must_be_equal(self):
        self.check("wrong", X, X.astype(np.float64))
        self.check("wrong", X, X.reshape(3, 2))
        self.check("wrong", X, X.reshape(1, 2, 3))
        self.check("pass", np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32))
        self.check("wrong", np.zeros((0, 3), np.float32), np.zeros((3, 0), np.float32))


class Isolation(program.ProgramTest):
    """What breaks in one case stays there."""

    def save_fault(self, kind, name=None):
        self.save_case(f"cases/{name or kind}", program.fault_model(kind), [X], [X])

    def verify(self, *arguments, code=1):
        self.succeed("verify", "cases", "--custom-ops", program.FAULTS, "--json", "r.json", *arguments, code=code)
        return json.loads((self.folder / "r.json").read_text())

    def test_a_crash_costs_one_case(self):
        for name in ("a", "c", "e"):
            self.save_fault("none", name)
        self.save_fault("crash", "b")
        self.save_fault("exit", "d")
        for jobs in (1, 2, 8):
            results = self.verify("--jobs", jobs)
            self.assertEqual([r["status"] for r in results.values()], ["pass", "error", "pass", "error", "pass"])
            self.assertIn("signal 11", results["b"]["reason"])
            self.assertIn("exit code 7", results["d"]["reason"])

    def test_only_crashes(self):
        self.save_fault("crash", "a")
        self.save_fault("crash", "b")
        self.assertEqual([r["status"] for r in self.verify().values()], ["error", "error"])

    def test_a_hang_costs_one_case(self):
        self.save_fault("hang", "a")
        self.save_fault("none", "b")
        start = time.monotonic()
        results = self.verify("--timeout", 1)
        self.assertLess(time.monotonic() - start, 30)
        self.assertEqual([r["status"] for r in results.values()], ["error", "pass"])
        self.assertIn("1 s", results["a"]["reason"])

    def test_a_failed_run_is_an_error_of_the_case(self):
        self.save_fault("fail")
        result = self.verify()["fail"]
        self.assertEqual(result["status"], "error")
        self.assertIn("told to fail", result["reason"])

    def test_wrong_requests_are_found_before_the_cases(self):
        self.save_fault("none")
        self.fail_with(2, ["none.so"], "verify", "cases", "--custom-ops", "none.so")
        self.fail_with(2, ["nobody"], "verify", "cases", "--providers", "nobody")
        self.fail_with(2, ["--json", "nowhere"], "verify", "cases", "--json", "nowhere/r.json")
        for part in ("model.onnx", "test_data_set_0/input_0.pb"):
            path, = (self.folder / "cases").rglob(part)
            self.fail_with(2, ["--json", "a part of the case"], "verify", "cases", "--json", path)


class Random(program.ProgramTest):
    def test_random_operators_are_compared_by_type_and_shape(self):
        content = model([node("RandomUniformLike", ["x"], ["y"])], [value("x")], [value("y")])
        self.save_case("case", content, [X], [X])
        text = self.run_program("verify", "case", "--json", "-")
        result = json.loads(text.stdout)["."]
        if result["status"] == "refused":
            self.skipTest("no provider takes RandomUniformLike: " + result["reason"])
        self.assertEqual(result["status"], "pass")
        self.assertIn("random", result["reason"])


if __name__ == "__main__":
    program.main()
