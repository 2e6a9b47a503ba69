#!/usr/bin/env python3
"""`backplane check`: right plugins pass, and each provider that is wrong on purpose fails the case named for it, alone."""

import collections
import json
import os
import resource
import shutil
import signal
import subprocess
import time

import program

FIXTURES = program.BUILD / "tests/fixtures"
WRONG = FIXTURES / "wrong_providers"
PLUGINS = program.BUILD / "lib/backplane/plugins"
CUSTOM_OPS = program.BUILD / "lib/backplane/custom_ops"

# What each provider of tests/fixtures/wrong_providers is to be caught by.
CAUGHT_BY = {
    "wrong_result": "kernels.results/wrong:add",
    "leak": "kernels.leaks/wrong:add",
    "missing_fence": "device.fences/wrong",
    "write_past_end": "kernels.bounds/wrong:add",
    "claim_not_convex": "claims.convex/wrong",
    "shapes_disagree": "kernels.shapes/wrong:add",
    "exception_across_abi": "kernels.exceptions/wrong:add",
    "state_between_plans": "kernels.plans/wrong:add",
    "refusal_without_reason": "kernels.refusals/wrong:add",
    "copy_drops_bytes": "device.copies/wrong",
    "hang": "kernels.time/wrong:add",
    "option_ignored": "options.read/wrong",
    "view_of_a_copy": "device.host_memory/wrong",
    "import_of_a_copy": "device.import_memory/wrong",
    "recording_not_renewed": "device.plan_capture/wrong",
    "unknown_copy_mode": "device.copies/wrong",
    "compute_always_fails": "kernels.results/wrong:add",
    "in_place_of_nothing": "kernels.shapes/wrong:add",
    "table_too_small": "sessions.open/wrong",
    "run_begin_fails": "sessions.run/wrong",
    "rewrite_throws": "sessions.rewrites/wrong",
    "view_past_end": "sessions.run/wrong",
}


class CheckTest(program.ProgramTest):
    def check(self, plugin, *arguments, code=0):
        command = [str(program.PROGRAM), "check", str(plugin), "--json", *arguments]
        made = subprocess.run(command, capture_output=True, check=False, timeout=800, cwd=self.folder)
        self.assertEqual(made.returncode, code, made.stdout.decode()[-4000:] + made.stderr.decode())
        report = json.loads(made.stdout)
        counted = collections.Counter(row["status"] for row in report["cases"])
        for status in ("passed", "failed", "skipped"):
            self.assertEqual(report[status], counted[status])
        for row in report["cases"]:
            self.assertEqual(row["reason"] == "", row["status"] == "passed", row)
        return report

    def names(self, report, status):
        return sorted(f"{row['case']}/{row['subject']}" for row in report["cases"] if row["status"] == status)

    def passes(self, plugin, least, *arguments):
        report = self.check(plugin, *arguments)
        self.assertEqual(report["failed"], 0)
        self.assertGreaterEqual(sum(row["case"] == "kernels.results" and row["status"] == "passed"
                                    for row in report["cases"]), least)
        return report


class RightPlugins(CheckTest):
    def test_the_null_provider_passes(self):
        self.passes(FIXTURES / "null_provider.so", 2)

    def test_the_fake_device_passes(self):
        report = self.passes(FIXTURES / "fakegpu.so", 20, "--set", "provider.fakegpu.delay_us=1")
        passed = self.names(report, "passed")
        for name in ("buffers", "copies", "streams", "fences", "leaks", "import_memory", "plan_capture"):
            self.assertIn(f"device.{name}/fakegpu", passed)

    def test_optional_interfaces_are_checked_where_they_are_there(self):
        only = ("--only", "device.host_memory")
        report = self.passes(FIXTURES / "fakegpu.so", 0, *only)
        self.assertEqual(self.names(report, "skipped"), ["device.host_memory/fakegpu"])
        report = self.passes(FIXTURES / "fakegpu.so", 0, *only, "--set", "provider.fakegpu.integrated=true", "--set",
                             "provider.fakegpu.view_alignment=4096")
        self.assertEqual(self.names(report, "passed"), ["device.host_memory/fakegpu"])
        report = self.passes(FIXTURES / "fakegpu.so", 0, "--only", "device.import_memory", "--set",
                             "provider.fakegpu.import=false")
        self.assertEqual(self.names(report, "skipped"), ["device.import_memory/fakegpu"])
        report = self.passes(FIXTURES / "null_provider.so", 0, "--only", "device.plan_capture")
        self.assertEqual(self.names(report, "skipped"), ["device.plan_capture/null"])

    def test_its_second_device_passes(self):
        self.passes(FIXTURES / "fakegpu.so", 0, "--device", "1", "--only", "device.*")

    def test_the_cpu_provider_passes(self):
        if not (PLUGINS / "cpu.so").exists():
            self.skipTest("built without the CPU provider")
        self.passes(PLUGINS / "cpu.so", 200)

    def test_the_opencl_provider_passes_for_its_device_and_for_one_kernel(self):
        """Beside the CPU provider in the default folder, from where the runtime loads it for the reference, too."""
        if not (PLUGINS / "opencl.so").exists() or not (PLUGINS / "cpu.so").exists():
            self.skipTest("built without the OpenCL or the CPU provider")
        row = next(row for row in json.loads(self.succeed("providers", "--json")) if row["provider"] == "opencl")
        if not row["devices"]:
            self.skipTest(row["reason"])
        report = self.passes(PLUGINS / "opencl.so", 0, "--only", "device.*")
        rows = {row["case"]: row for row in report["cases"]}
        self.assertEqual(rows["device.plan_capture"]["status"], "skipped")
        self.assertEqual(rows["device.import_memory"]["status"], "passed")
        if rows["device.host_memory"]["status"] == "skipped":
            self.assertIn("memory", rows["device.host_memory"]["reason"])
        self.passes(PLUGINS / "opencl.so", 0, "--only", "device.*", "--set", "provider.opencl.queue=out_of_order")
        self.passes(PLUGINS / "opencl.so", 1, "--only", "kernels.*/opencl:softmax")

    def test_libraries_of_custom_operators_pass(self):
        for name in ("windowed_mean", "decode_boxes"):
            with self.subTest(name):
                self.passes(CUSTOM_OPS / f"{name}.so", 1)

    def test_parts_are_the_whole_suite_once(self):
        whole, parts = self.passes(WRONG / "right.so", 2), [self.passes(WRONG / "right.so", 0, "--part", f"{i}/2") for i in (1, 2)]
        name = lambda row: (row["case"], row["subject"])
        first, second = ({name(row) for row in part["cases"]} for part in parts)
        self.assertEqual(first | second, {name(row) for row in whole["cases"]})
        self.assertTrue({case.split(".")[0] for case, _ in first & second} <= {"load", "handshake"})
        for wrong in ("0/2", "3/2", "2", "a/b", "1/"):
            self.fail_with(2, ["--part"], "check", WRONG / "right.so", "--part", wrong)

    def test_what_the_wrong_providers_are_made_of_passes_every_case(self):
        self.assertEqual(self.passes(WRONG / "right.so", 2)["skipped"], 0)


class WrongProviders(CheckTest):
    def test_each_is_caught_by_the_case_named_for_it_and_no_other(self):
        self.assertEqual(sorted(path.stem for path in WRONG.glob("*.so")), sorted([*CAUGHT_BY, "right"]))
        for name, case in CAUGHT_BY.items():
            with self.subTest(name):
                patience = "4" if name == "hang" else "20"  # which it waits for, whole
                report = self.check(WRONG / f"{name}.so", "--timeout", patience, code=1)
                self.assertEqual(self.names(report, "failed"), [case])

    def test_a_kernel_that_is_slow_in_all_and_not_in_one_call_is_not_late(self):
        """About 6 s of device time for the kernel, in calls of milliseconds."""
        self.passes(FIXTURES / "fakegpu.so", 1, "--only", "kernels.*/fakegpu:Relu", "--timeout", "2", "--set",
                    "provider.fakegpu.delay_us=2000")

    def test_a_hang_says_in_which_call(self):
        report = self.check(WRONG / "hang.so", "--timeout", "3", "--only", "kernels.time/wrong:add", code=1)
        self.assertRegex(report["cases"][0]["reason"], "no result within 3 s during compute of Add")


class Requests(CheckTest):
    def test_an_interrupt_leaves_no_folder_of_copies(self):
        (self.folder / "tmp").mkdir()
        self.interrupt(signal.SIGINT, lambda: list(self.folder.glob("tmp/*/apart/*")), "check", PLUGINS / "cpu.so",
                       env={**os.environ, "TMPDIR": str(self.folder / "tmp")})
        self.assertEqual(self.files(self.folder / "tmp"), [])

    def test_what_is_known_is_in_the_report_whenever_it_is_ended(self):
        report = self.folder / "rows"
        with subprocess.Popen([str(program.PROGRAM), "check", str(WRONG / "hang.so"), "--report", str(report)],
                              stdout=subprocess.PIPE, cwd=self.folder) as made:
            end = time.monotonic() + 60
            # A device's cases are told before its kernel, which hangs for the time of a call.
            while not report.exists() or "device.plan_capture" not in report.read_text():
                self.assertLess(time.monotonic(), end)
                time.sleep(0.05)
            made.kill()
            self.assertEqual(made.communicate()[0], b"")
        rows = [json.loads(line) for line in report.read_text().splitlines()]
        self.assertIn({"case": "device.copies", "subject": "wrong", "status": "passed", "reason": ""}, rows)

    def test_the_report_has_the_rows_of_the_end(self):
        for name, code in (("wrong_result.so", 1), ("claim_not_convex.so", 1)):
            found = self.check(WRONG / name, "--report", "rows", code=code)
            rows = [json.loads(line) for line in (self.folder / "rows").read_text().splitlines()]
            self.assertEqual(sorted(map(str, rows)), sorted(map(str, found["cases"])))
        self.fail_with(2, ["--report", "the plugin"], "check", self.copy_of(WRONG / "hang.so"), "--report", "copy.so")
        self.fail_with(2, ["--report", "nowhere"], "check", WRONG / "hang.so", "--report", "nowhere/rows")

    def copy_of(self, plugin):
        shutil.copy(plugin, self.folder / "copy.so")
        return "copy.so"

    def test_a_case_that_is_left_out_is_not_run_and_keeps_nothing_from_being_judged(self):
        report = self.check(WRONG / "missing_fence.so", "--except", "device.fences")
        self.assertNotIn("device.fences/wrong", self.names(report, "passed"))
        self.assertIn("kernels.results/wrong:add", self.names(report, "passed"))
        self.check(WRONG / "missing_fence.so", "--only", "device.*", "--except", "device.fences/other", code=1)
        self.fail_with(2, ["--only", "--except 'device.*'", "names no case"], "check", WRONG / "missing_fence.so", "--only",
                       "device.fences", "--except", "device.*")

    def test_a_copy_that_fails_leaves_no_folder(self):
        (self.folder / "tmp").mkdir()

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        self.fail_with(3, ["cannot copy the plugin", "TMPDIR"], "check", FIXTURES / "null_provider.so", preexec_fn=limit,
                       environment={"TMPDIR": str(self.folder / "tmp")})
        self.assertEqual(self.files(self.folder / "tmp"), [])
        self.fail_with(2, ["TMPDIR", "nowhere"], "check", FIXTURES / "null_provider.so",
                       environment={"TMPDIR": str(self.folder / "nowhere")})

    def test_the_text_closes_with_the_counts(self):
        text = self.succeed("check", FIXTURES / "null_provider.so", "--only", "handshake.*")
        self.assertEqual(text.splitlines()[-1], "3 passed, 0 failed, 0 skipped")

    def test_a_failure_is_a_line_with_case_subject_and_reason(self):
        text = self.succeed("check", WRONG / "option_ignored.so", "--only", "options.*", code=1)
        self.assertIn("failed options.read/wrong: option 'pace' is accepted, and its value is never read", text)

    def test_only_names_cases_or_one_subject_of_a_case(self):
        report = self.check(FIXTURES / "null_provider.so", "--only", "kernels.results/null:relu")
        self.assertEqual(self.names(report, "passed"), ["kernels.results/null:relu"])

    def test_another_seed_passes_too(self):
        self.passes(FIXTURES / "null_provider.so", 2, "--seed", "77")

    def test_wrong_requests_are_one_line_and_exit_code_2(self):
        null = FIXTURES / "null_provider.so"
        self.fail_with(2, ["is no file"], "check", "nowhere.so")
        self.fail_with(2, ["plugin"], "check")
        self.fail_with(2, ["names no case"], "check", null, "--only", "nothing.*")
        self.fail_with(2, ["--device 7", "1 device"], "check", null, "--device", "7")
        for option, wrong in (("--device", "-1"), ("--seed", "-1"), ("--timeout", "0"), ("--timeout", "99999999999")):
            self.fail_with(2, [option, wrong], "check", null, option, wrong, "--only", "handshake.*")
        self.fail_with(2, ["cannot be loaded"], "check", self.save("no library", "text.so"))


if __name__ == "__main__":
    program.main()
