"""tools/gpu_check where time runs out, a device hangs or runs fail: what is kept, and what is tried instead. And what is done before
there is a device."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time
import unittest.mock

from gpu_check_stand_in import LIMITS, GpuCheckTest, OnTheCpu, program  # noqa: I001
import compiled
import figures
import kernels
import networks
import numpy as np
import phases
from programs import DeviceGone, Program


class Faults(GpuCheckTest):
    def test_what_the_suite_has_told_is_kept_when_the_time_is_over(self):
        """Also where the last line is half of one."""
        rows = [{"case": "kernels.results", "subject": f"cuda:{at}", "status": status, "reason": "it differs" * (status == "failed")}
                for at, status in enumerate(("passed", "failed", "skipped", "passed"))]

        class Slow(OnTheCpu):
            def check(self, words):
                report = pathlib.Path(words[words.index("--report") + 1])
                report.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"case":"kern')
                return Program.execute(self, ["sleep", "60"])

        slow = Slow(self.stand_in().tree)
        with unittest.mock.patch.object(self, "stand_in", lambda: slow):
            code, text = self.run_phases("operators", limit=1)
        self.assertEqual(code, 1)
        self.assertIn("| backplane check cuda.so | 8 passed, 4 failed, 4 skipped, when the time was over | **failed** |", text)
        self.assertIn("| failed kernels.results/cuda:1: it differs |", text)
        self.assertIn("stopped after its limit of 1 s", text)

    def test_of_packed_cases_that_take_too_long_those_that_are_done_are_kept(self):
        class Slow(OnTheCpu):
            def execute(self, words, environment=None, most_s=None):
                words = list(map(str, words))
                if words[1:2] != ["verify"]:
                    return super().execute(words, environment, most_s)
                pathlib.Path(words[words.index("--report") + 1]).write_text('{"case": "a", "status": "wrong", "reason": "by 1"}\n')
                return Program.execute(self, ["sleep", "60"])

        slow = Slow(self.stand_in().tree)
        with unittest.mock.patch.object(self, "stand_in", lambda: slow):
            _, text = self.run_phases("models", limit=1)
        self.assertIn("| a | by 1 | **failed** |", text)
        self.assertIn("stopped after its limit of 1 s", text)

    def test_operators_are_not_begun_with_little_time(self):
        self.run_phases("operators", total=79)
        self.assertFalse((self.folder / "results/operators.json").exists())
        self.run_phases("operators", total=81)
        self.assertTrue((self.folder / "results/operators.json").exists())

    def broken_where(self, is_broken):
        """Runs of networks whose words are such fail."""
        class Broken(OnTheCpu):
            def execute(self, words, environment=None, most_s=None):
                if words[1:2] in (["model"], ["bench"]) and is_broken(list(map(str, words))):
                    return subprocess.CompletedProcess(words, 3, "", "it broke")
                return super().execute(words, environment, most_s)

        return Broken(self.stand_in().tree)

    def test_where_captured_runs_fail_it_is_found_out_what_works(self):
        if not (program.BUILD / "bin/gpu_probe").exists():
            self.skipTest("gpu_probe was not built")
        for is_broken, works in ((lambda words: "capture=auto" in words, "capture=off"),
                                 (lambda words: "provider.cuda.tuning=off" not in words, "provider.cuda.tuning=off"),
                                 (lambda words: "provider.cuda.fusion=false" not in words, "provider.cuda.fusion=false"),
                                 (lambda words: "precision=fp32" not in words, "precision=fp32"), (lambda words: True, "none")):
            broken = self.broken_where(is_broken)
            with unittest.mock.patch.object(self, "stand_in", lambda: broken):
                code, text = self.run_phases("first")
            self.assertEqual(code, 1)
            kept = json.loads((self.folder / "results/first.json").read_text())["values"]["perceptron"]
            self.assertEqual(kept["works"], works, kept)
            self.assertEqual(kept["said"][0], "capture=auto: it broke")
            self.assertIn(f"| {works} capture=auto: it broke", text)

    def test_networks_that_cannot_be_captured_are_measured_without(self):
        if not (program.BUILD / "bin/gpu_probe").exists():
            self.skipTest("gpu_probe was not built")
        broken = self.broken_where(lambda words: "capture=auto" in words or ("bench" in words and "capture=off" not in words))
        builds = {"resnet50_dyn": {"size": 32, "stages": (1, 1, 1, 1)}, "bert_dyn": {"layers": 1, "tokens": 8}}
        with unittest.mock.patch.object(self, "stand_in", lambda: broken), \
                unittest.mock.patch.object(kernels, "BATCHES", {"bert_dyn": (1,)}), \
                unittest.mock.patch.object(figures, "QUICK_SIZES", builds), unittest.mock.patch.object(figures, "BATCHES", (2,)), \
                unittest.mock.patch.object(kernels, "find", lambda _: None), \
                unittest.mock.patch.object(phases.Work, "why_no_peer", lambda _: "there is none"):
            code, text = self.run_phases("networks", "kernels", limit=200)
        self.assertEqual(code, 1)
        row = self.cells(text, "bert_dyn")[0]
        self.assertEqual(row[4], "it broke")
        for column in (5, 8, 12):
            self.assertGreater(float(row[column]), 0, row)
        self.assertIn("Kernels of bert_dyn, float16, batch 1, by the provider's events", text)

    def test_what_is_ours_is_measured_before_the_peer_is_asked_for(self):
        if not (program.BUILD / "bin/gpu_probe").exists():
            self.skipTest("gpu_probe was not built")
        builds = {"resnet50_dyn": {"size": 32, "stages": (1, 1, 1, 1)}, "bert_dyn": {"layers": 1, "tokens": 8}}
        seen = []

        def why_no_peer(work):
            seen.append(len(work.page.found["sections"][0]["rows"]))
            return "there is none"

        with unittest.mock.patch.object(figures, "QUICK_SIZES", builds), unittest.mock.patch.object(figures, "BATCHES", (2,)), \
                unittest.mock.patch.object(phases.Work, "why_no_peer", why_no_peer):
            self.run_phases("networks", limit=200)
        self.assertEqual(seen, [2])

    def small_tree(self, probe):
        """A tree whose gpu_probe is this script."""
        tree = self.folder / "small"
        (tree / "bin").mkdir(parents=True, exist_ok=True)
        (tree / "bin/gpu_probe").write_text(f"#!/bin/sh\n{probe}\n")
        (tree / "bin/gpu_probe").chmod(0o755)
        return Program(tree)

    def test_a_device_that_does_not_answer_ends_the_call(self):
        def hangs(work):
            work.page.section("Hangs", ["what"])
            work.page.row("a row of it")
            work.program.execute(["sleep", "60"], most_s=0.2)

        some = {"limits": (hangs, 9), "overlap": (hangs, 9)}
        for probe, ran, state in (("exec sleep 60", ["limits"], "does not answer any more: did not end in 0.5 s"),
                                  ("echo CUDA_ERROR_UNKNOWN >&2; exit 3", ["limits"], "does not answer any more: CUDA_ERROR_UNKNOWN"),
                                  ("echo '{}'", ["limits", "overlap"], "done")):
            shutil.rmtree(self.folder / "results", ignore_errors=True)
            found = self.small_tree(probe)
            found.device, found.libraries = lambda: {"devices": [{"name": "One"}]}, lambda: (None, "not asked")
            started = time.monotonic()
            with unittest.mock.patch.object(phases, "PHASES", some), unittest.mock.patch("programs.ALIVE_S", 0.5):
                phases.run_all(found, self.folder / "page.md", True, folder=self.folder / "results", total=100)
            self.assertLess(time.monotonic() - started, 30)
            self.assertEqual(sorted(file.stem for file in (self.folder / "results").glob("*.json")), ran)
            text = (self.folder / "page.md").read_text()
            self.assertIn("| a row of it |", text)
            self.assertIn(state, text)

    def test_what_waits_for_a_device_that_is_gone_is_ended_too(self):
        found = self.small_tree("exit 3")
        started = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            waits = pool.submit(found.execute, ["sleep", "60"])
            time.sleep(0.2)
            for run in (pool.submit(found.execute, ["sleep", "50"], most_s=0.2), waits):
                self.assertIsInstance(run.exception(), DeviceGone)
        self.assertLess(time.monotonic() - started, 20)
        with self.assertRaises(DeviceGone):
            found.execute(["true"])

    def test_the_device_is_held_as_long_as_the_phases_run(self):
        found = self.small_tree(f"[ $1 = hold ] || exit 0; touch {self.folder}/held; cat; rm {self.folder}/held")
        with found.held():
            end = time.monotonic() + 20
            while not (self.folder / "held").exists() and time.monotonic() < end:
                time.sleep(0.01)
            self.assertTrue((self.folder / "held").exists())
        self.assertFalse((self.folder / "held").exists())

    def test_kernels_that_were_compiled_beforehand_are_in_every_cache_that_is_new(self):
        seeded = self.small_tree("true")
        (self.folder / "a.program").write_text("code")
        with tarfile.open(seeded.tree / "kernels.tar.xz", "w:xz") as archive:
            archive.add(self.folder / "a.program", "a.program")
        seeded.seed_caches()
        for cache in ("cache", "cache_apart"):
            self.assertEqual((seeded.tree / cache / "backplane/cuda/a.program").read_text(), "code")
        (seeded.tree / "cache/backplane/cuda/a.program").unlink()
        seeded.seed_caches()
        self.assertFalse((seeded.tree / "cache/backplane/cuda/a.program").exists(), "what is there stays as it is")

    def test_packed_kernels_are_those_that_the_provider_asks_for(self):
        """By the provider itself with the real compiler, on a device that is only described: with the packed ones it compiles nothing.
        The Python that packs has no packages of its own."""
        if not (program.BUILD / "tests/cuda_planning/cuda.so").exists():
            self.skipTest("tests/cuda_planning was not built")
        packages = pathlib.Path(np.__file__).parents[1]
        tree = self.tree(kernels_of="few", python=(sys.executable, "-S"), words=("--numpy", packages))
        with tarfile.open(tree / "kernels.tar.xz") as archive:
            packed = {each.name: archive.extractfile(each).read() for each in archive}
        self.assertTrue(packed)
        for entry in packed.values():
            self.assertRegex(entry, rb"(?s)^backplane program 1\n.{8}NVRTC [0-9.]+ --std=c\+\+17 [^\n]*\nsm_90\n")
        seeded = Program(tree)
        seeded.seed_caches()
        cache = tree / "cache/backplane/cuda"
        before = {file.name: file.stat().st_mtime_ns for file in cache.iterdir()}
        made = compiled.compile_kernels(program.BUILD, tree / "cache", self.folder, is_quick=True)
        self.assertEqual({file.name: file.stat().st_mtime_ns for file in made}, before)

    def test_limits_are_measured_where_the_provider_has_no_device(self):
        limits = self.folder / "limits.json"
        found = self.small_tree('''case $1 in alive) echo '{"name": "One"}';; limits) cat %s;; *) exit 3;; esac''' % limits)
        (self.folder / "limits.json").write_text(json.dumps(LIMITS))
        found.device, found.missing = lambda: {"devices": [], "reason": "libcudnn.so.9"}, "libcudnn.so.9"
        code = phases.run_all(found, self.folder / "page.md", True, folder=self.folder / "results")
        text = (self.folder / "page.md").read_text()
        self.assertEqual(code, 1)
        for words in ("only limits could run: libcudnn.so.9", "| limits | done |", "4.0 TFLOP/s", "| first | not run | | | | |",
                      ": One, driver"):
            self.assertIn(words, text)

    def test_the_libraries_that_run_are_told_with_their_files(self):
        engine = program.BUILD / "lib/backplane/deps/cuda_engine.so"
        if not engine.exists() or not (program.BUILD / "bin/gpu_probe").exists():
            self.skipTest("the CUDA plugin was not built")
        found, why = Program(self.stand_in().tree).libraries()
        self.assertEqual(why, "")
        for name, file in (("cuBLASLt", "libcublasLt.so"), ("cuDNN", "libcudnn.so"), ("NVRTC", "libnvrtc.so")):
            self.assertRegex(found[name]["version"], r"^\d+\.\d+")
            self.assertIn(file, found[name]["path"])
        self.assertIn("libnowhere.so", Program(self.stand_in().tree).run(
            [program.BUILD / "bin/gpu_probe", "libraries", "libnowhere.so"], None, 60).stderr)

    def test_random_weights_are_quick_and_not_alike(self):
        net = networks.Network(np.float16)
        names = [net.weight(*each) for each in (((3000, 1000), 0.5), ((3000, 1000), 0.5), ((4, 5), 2.0))]
        one, two, small = (dict(net.weights)[name] for name in names)
        self.assertEqual((one.dtype, small.shape), (np.float16, (4, 5)))
        for weight, scale in ((one, 0.5), (two, 0.5)):
            self.assertAlmostEqual(float(weight.astype(np.float32).std()), scale, delta=0.01)
            # Larger than what is drawn, and no row or column is another one's again.
            self.assertEqual(len(np.unique(weight, axis=0)), 3000)
            self.assertEqual(len(np.unique(weight, axis=1).T), 1000)
        self.assertLess(np.abs(np.corrcoef(one.astype(np.float32).ravel(), two.astype(np.float32).ravel())[0, 1]), 0.01)


if __name__ == "__main__":
    os.environ.pop("LD_LIBRARY_PATH", None)
    program.main()
