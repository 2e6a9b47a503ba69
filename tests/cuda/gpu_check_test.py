"""tools/gpu_check without a GPU: the packed tree, the line on a machine without a driver, the networks, the phases, and the
page, for which the CPU provider stands in for the device."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import unittest.mock

from gpu_check_stand_in import GPU_CHECK, LIMITS, SMALL, GpuCheckTest, OnTheCpu, program  # noqa: I001
import checks
import figures
import kernels
import networks
import numpy as np
import onnx
import page
import peer
import phases
import random_weights
import roofs
from programs import OutOfTime, Program


# PyTorch as far as the peer uses it for an encoder, by NumPy: a graph's replay takes 50 us for each function that was captured,
# twice as many by autocast, on a clock of its own, which no load on the machine moves; and images it cannot do.
FAKE_TORCH = '''
import contextlib, time, types
import numpy as np
__version__, channels_last, calls, cost, clock = "0.fake", "last", [0], [1], [0.0]
if __name__ == "torch":
    time.perf_counter = lambda: clock[0]
float16, bfloat16 = np.dtype(np.float16), np.dtype(np.float16)

def counted(function):
    def call(*arguments, **more):
        calls[0] += cost[0]
        # NumPy multiplies float16 slowly.
        raw = [each.a.astype(np.float32) if isinstance(each, Tensor) else each for each in arguments]
        return Tensor(function(*raw, **more).astype(arguments[0].dtype))
    return call

class Tensor:
    def __init__(self, a): self.a = np.asarray(a)
    shape, dtype = property(lambda self: self.a.shape), property(lambda self: self.a.dtype)
    def to(self, what): return self if isinstance(what, str) else Tensor(self.a.astype(what))
    def contiguous(self, memory_format): return self
    def copy_(self, other): self.a[...] = other.a
    def cpu(self): return self
    def numpy(self): return self.a
    def reshape(self, dims): return Tensor(self.a.reshape(dims))
    def permute(self, axes): return Tensor(self.a.transpose(axes))
    def t(self): return Tensor(self.a.T)
    def transpose(self, a, b): return Tensor(self.a.swapaxes(a, b))
    def softmax(self, axis): return counted(softmax)(self, axis)
    def __add__(self, other): return counted(np.add)(self, other)
    def __mul__(self, other): return counted(np.multiply)(self, other)

def softmax(x, axis):
    raised = np.exp(x - x.max(axis, keepdims=True))
    return raised / raised.sum(axis, keepdims=True)

def erf_of(x):
    t = 1 / (1 + 0.3275911 * np.abs(x))
    sum = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.sign(x) * (1 - sum * np.exp(-x * x))

def layer_norm_of(x, shape, scale, bias, epsilon):
    apart = x - x.mean(-1, keepdims=True)
    return apart / np.sqrt((apart * apart).mean(-1, keepdims=True) + epsilon) * scale + bias

def no_images(*_, **__): raise NotImplementedError("no images here")

from_numpy, abs, relu, erf, matmul = Tensor, counted(np.abs), counted(lambda x: np.maximum(x, 0)), counted(erf_of), counted(np.matmul)
functional = types.SimpleNamespace(
    conv2d=no_images, max_pool2d=no_images, layer_norm=counted(layer_norm_of), linear=counted(lambda x, w, b: x @ w.T + b),
    gelu=counted(lambda x: 0.5 * x * (1 + erf_of(x * 0.5 ** 0.5))),
    scaled_dot_product_attention=counted(lambda q, k, v, scale: softmax(scale * (q @ k.swapaxes(-1, -2)), -1) @ v))
nn = types.SimpleNamespace(functional=functional)

class Graph:
    def replay(self): clock[0] += 50e-6 * self.calls

@contextlib.contextmanager
def capture(graph):
    before = calls[0]
    yield
    graph.calls = calls[0] - before

nothing = lambda *_, **__: contextlib.nullcontext()
inference_mode = nothing

@contextlib.contextmanager
def autocast(device, dtype, enabled, cache_enabled):
    cost[0] = 1 + enabled
    yield
    cost[0] = 1

cuda = types.SimpleNamespace(is_available=lambda: True, Stream=object, stream=nothing, synchronize=lambda: None, CUDAGraph=Graph,
                             graph=capture)
backends = types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=types.SimpleNamespace()), cudnn=types.SimpleNamespace())
'''

# What ncu 2025.3 prints, in short, around what the program prints; what it says where it may not read counters; nsys.
NCU = """==PROF== Connected to process 4242 (/there/bin/gpu_probe)
==PROF== Profiling "gemm" - 0: 0%....50%....100% - 1 pass
{"marked":true}
==PROF== Disconnected from process 4242
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name",\
"Metric Name","Metric Unit","Metric Value"
""".replace("\\\n", "") + "".join(
    f'"{at}","4242","gpu_probe","127.0.0.1","{name}","1","7","(128, 1, 1)","(8, 1, 1)","0","9.0","Command line profiler metrics",'
    f'"gpu__time_duration.sum","{unit}","{value}"\n' for at, (name, unit, value) in enumerate(
        [("void gemm<float, 2>(int, T1 *)", "ns", "12,000"), ("softmax(float *, int)", "us", "2.5"),
         ("void gemm<float, 2>(int, T1 *)", "nsecond", "18000")]
        + [(f"small_{i}", "ns", "500") for i in range(11)]))
NCU_REFUSED = """==PROF== Connected to process 4242
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device 0.
{"marked":true}
==PROF== Disconnected from process 4242
==WARNING== No kernels were profiled.
"""
NSYS = """Processing [kernels.sqlite] with [cuda_gpu_trace.py]...
Start (ns),Duration (ns),CorrId,GrdX,Device,Strm,Name
1000,4000,11,8,NVIDIA H100 80GB HBM3 (0),7,"void gemm<float, 2>(int, T1 *)"
6000,1000,12,1,NVIDIA H100 80GB HBM3 (0),7,[CUDA memset]
"""


class GpuCheck(GpuCheckTest):
    def test_the_tree_runs_elsewhere_up_to_the_missing_driver(self):
        if not (program.BUILD / "lib/backplane/plugins/cuda.so").exists():
            self.skipTest("the CUDA plugin was not built")
        tree = self.tree()
        if Program(tree).device()["devices"]:
            self.skipTest("there is a device")
        made = subprocess.run([sys.executable, tree / "gpu_check", "run"], capture_output=True, text=True,
                              cwd=self.folder, check=False)
        self.assertEqual(made.returncode, 2, made.stderr)
        self.assertEqual(len(made.stderr.splitlines()), 1, made.stderr)
        self.assertIn("no CUDA device: libcuda.so.1", made.stderr)
        self.assertFalse((self.folder / "GPU_RESULTS.md").exists(), "no page is written where nothing ran")
        made = subprocess.run([sys.executable, GPU_CHECK, "there", self.folder / "tree.tar.gz", self.folder / "out", "--phase", "limits"],
                              capture_output=True, text=True, cwd=self.folder, check=False)
        self.assertEqual(made.returncode, 2, made.stderr)
        self.assertIn("no CUDA device: libcuda.so.1", made.stderr)
        self.assertTrue((self.folder / "tree_there/backplane_gpu/gpu_check").exists())

    def test_it_says_in_one_line_what_it_cannot_do(self):
        for arguments, word in ((["run"], "no unpacked tree"), (["pack", "x.tar.gz", "--build", self.folder], "cuda.so")):
            made = subprocess.run([sys.executable, GPU_CHECK, *arguments], capture_output=True, text=True,
                                  cwd=self.folder, check=False)
            self.assertEqual(made.returncode, 2)
            self.assertEqual(len(made.stderr.splitlines()), 1, made.stderr)
            self.assertIn(word, made.stderr)

    def test_the_networks_are_valid_models_and_their_products_are_counted(self):
        for build, sizes in SMALL.items():
            for dtype in (np.float32, np.float16):
                path = self.folder / "network.onnx"
                net = build(path, batch=2, dtype=dtype, **sizes)
                model = onnx.load(path)
                onnx.checker.check_model(model, full_check=True)
                self.assertEqual(len(model.graph.node), len(net.nodes))
        for bits in (None, 4):
            net = networks.decoder(path, batch=2, tokens=3, bits=bits, **checks.SMALL_DECODER)
            onnx.checker.check_model(onnx.load(path), full_check=True)
            self.assertEqual(net.cache_bytes, 2 * 2 * (2 * 2 * 40 * 32) * 4)
        # Of 4 bits, a byte is two weights, and 32 have a scale.
        products = 2 * 256 * (256 + 2 * 64 + 256 + 3 * 320)
        self.assertEqual(net.weight_bytes, products // 2 + products // 32 * 4 + 5 * 256 * 4)
        dynamic = networks.bert_dyn(self.folder / "dynamic.onnx", layers=1, tokens=8)
        model = onnx.load(self.folder / "dynamic.onnx")
        onnx.checker.check_model(model, full_check=True)
        self.assertEqual(model.graph.input[0].type.tensor_type.shape.dim[0].dim_param, networks.SYMBOL)
        networks.feed(self.folder / "feed.onnx", dynamic)
        for name in ("feed", "tower", "gather"):
            path = self.folder / f"{name}.onnx"
            if name != "feed":
                getattr(networks, name)(path, **({"rows": 8, "width": 8} if name == "tower" else {}))
            onnx.checker.check_model(onnx.load(path), full_check=True)
        self.assertEqual(networks.product(self.folder / "p.onnx", 16).flops, 2 * 16 ** 3)
        net = networks.perceptron(self.folder / "p.onnx", batch=3, width=8)
        self.assertEqual(net.flops, 2 * 3 * (3 * 8 * 8 + 8 * 10))

    def test_the_page_says_what_passed_and_what_failed(self):
        # The thread sanitizer looks functions up before it can run what gpu_faults.so puts in the way.
        is_thread_sanitized = "BACKPLANE_SANITIZE:STRING=thread" in (program.BUILD / "CMakeCache.txt").read_text()
        has_faults = (program.BUILD / "bin/gpu_faults.so").exists() and not is_thread_sanitized
        # Those of the device alone are not looked for on the processor.
        with unittest.mock.patch.object(checks, "bad_requests", lambda work: work.page.section("Bad requests", ["what"])):
            code, text = self.run_phases("first", "operators", "models", "placements", "sanitizer", *(["faults"] if has_faults else []))
        self.assertEqual(code, 0, text)
        self.assertIn("0 checks failed", text)
        self.assertIn("A processor", text)
        self.assertIn("| networks | not run | | | | |", text)
        rows = [line for line in text.splitlines() if line.endswith("| passed |")]
        # Every second network, twice, and captured; the suite and its fences; a case and it with random weights; networks by precision; by
        # seed.
        self.assertEqual(len(rows), 2 * 2 + 2 + 2 + 2 + 2 + 3 * 4 + 3 * 2, text)
        self.assertIn("cuDNN 9.0.1 (/there/libcudnn.so.9), NVRTC: it is not linked.", text)
        # The processor's runs make none of the driver's calls, so that none failed.
        self.assertEqual(text.count("not tried: there are fewer such calls"), 2 * has_faults, text)

    def test_a_phase_that_fails_or_takes_too_long_costs_the_others_nothing(self):
        def fails(work):
            work.page.section("Half of it", ["what", ""])
            work.page.result(True, "the first half")
            raise ValueError("of no use")

        def is_slow(work):
            work.page.section("Slow", ["what"])
            work.page.row("a row of it")
            work.program.execute(["sleep", "60"])

        started = time.monotonic()
        some = {**phases.PHASES, "limits": (fails, 9), "overlap": (is_slow, 1), "operators": phases.PHASES["operators"]}
        with unittest.mock.patch.object(phases, "PHASES", some):
            code, text = self.run_phases("limits", "overlap", "operators")
        self.assertLess(time.monotonic() - started, 40)
        self.assertEqual(code, 1)
        for words in ("0 checks failed; 2 phases did not come to their end", "| the first half | passed |", "failed: ValueError: of no use",
                      "stopped after its limit of 1 s", "| a row of it |", "| operators | done |", "3 passed, 0 failed, 0 skipped"):
            self.assertIn(words, text)

    def test_what_there_was_is_on_the_page_whenever_a_call_is_cut_off(self):
        seen = []

        def looks(work):
            work.page.section("Looks", ["what", ""])
            work.page.result(True, "the first row")
            seen.append((self.folder / "page.md").read_text())

        with unittest.mock.patch.object(phases, "PHASES", {**phases.PHASES, "limits": (looks, 9)}):
            self.run_phases("limits")
        self.assertIn("| the first row | passed |", seen[0])
        self.assertIn("| limits | was cut off |", seen[0])

    def test_a_program_that_measures_nothing_is_a_failure(self):
        class Broken(OnTheCpu):
            def execute(self, words, environment=None, most_s=None):
                return subprocess.CompletedProcess(words, 3, "", "it broke")

        broken = Broken(self.stand_in().tree)
        row = ("a network", "model.onnx", "feed.onnx", 1, 1, [])
        with unittest.mock.patch.object(self, "stand_in", lambda: broken), \
                unittest.mock.patch.object(figures, "rows_of_benchmark", lambda *_: [row]), \
                unittest.mock.patch.object(kernels, "BATCHES", {"bert_dyn": (1,)}), \
                unittest.mock.patch.object(phases.Work, "why_no_peer", lambda _: "there is none"):
            code, text = self.run_phases("limits", "overhead", "launches", "overlap", "networks", "networks_float32", "kernels", "fixed")
        self.assertEqual(code, 1)
        for phase in ("limits", "overhead", "launches", "overlap", "networks", "networks_float32", "kernels", "fixed"):
            failed = next(row for row in text.splitlines() if row.startswith(f"| {phase} | done |")).split("|")[4]
            self.assertGreater(int(failed), 0, phase)

    def test_what_comes_back_is_two_files_whatever_number_of_phases_ran(self):
        gpu_check = self.gpu_check()
        place, target = self.folder / "place", self.folder / "target"
        (place / "results").mkdir(parents=True)
        target.mkdir()
        (place / "GPU_RESULTS.md").write_text("page")
        for name in phases.PHASES:
            (place / f"results/{name}.json").write_text("{}")
        gpu_check.keep(place, target)
        self.assertEqual(sorted(file.name for file in target.iterdir()), ["GPU_RESULTS.md", "results.tar.gz"])
        with tarfile.open(target / "results.tar.gz") as archive:
            self.assertEqual(sorted(archive.getnames()), sorted(f"results/{name}.json" for name in phases.PHASES))

    def test_a_later_call_goes_on_with_what_an_earlier_one_has_kept(self):
        self.run_phases("limits")
        kept = json.loads((self.folder / "results/limits.json").read_text())
        self.assertEqual(kept["values"]["limits"], LIMITS)
        code, text = self.run_phases("operators")
        self.assertEqual(code, 0, text)
        for words in ("4.0 TFLOP/s", "not measured: cuBLASLt proposes no algorithm", "0.50 us, 5.0 us",
                      "not measured: CUDA_ERROR_INVALID_VALUE", "3 passed, 0 failed, 0 skipped"):
            self.assertIn(words, text)

    def test_the_rest_is_what_no_earlier_call_has_done_on_this_device(self):
        ran = []

        def phase(name, fails):
            def run(work):
                ran.append(name)
                work.page.section(name, ["what"])
                if fails and ran.count(name) == 1:
                    raise ValueError("of no use")
            return run, 9

        some = {name: phase(name, name == "networks") for name in ("limits", "networks", "models", "faults")}
        with unittest.mock.patch.object(phases, "PHASES", some), unittest.mock.patch.object(phases, "NEED_PEER", set()):
            (self.stand_in().tree / "version").write_text("v1\n")
            self.run_phases("limits", "networks")
            code, text = self.run_phases(rest=True)
            self.assertEqual((code, ran), (0, ["limits", "networks", "networks", "models", "faults"]))
            self.run_phases(rest=True)
            self.assertEqual(len(ran), 5, "there is nothing left")
            self.assertIn("| networks | done | 0 | 0 | A processor | v1 |", text)
            with unittest.mock.patch.object(OnTheCpu, "device", lambda _: {"devices": [{"name": "Another"}], "reason": ""}):
                _, text = self.run_phases("limits", total=16)
                self.assertIn("| limits | done | 0 | 0 | Another |", text)
                self.assertIn("| models | done | 0 | 0 | A processor |", text)
                self.run_phases(total=3)
            self.assertEqual(len(ran), 6, "what has no time is not begun, and what there was of it stays")
            (self.stand_in().tree / "version").write_text("v2\n")
            _, text = self.run_phases("faults", "networks", rest=True)
            self.assertEqual(len(ran), 8, "what another version has done is to be done again")
            self.assertIn("| networks | done | 0 | 0 | A processor | v2 |", text)
            self.assertIn("| models | done | 0 | 0 | A processor | v1 |", text)

    def test_shares_are_of_what_this_device_can_do(self):
        self.run_phases("limits")
        for device, expected in (("A processor", LIMITS), ("Another", None)):
            self.assertEqual(page.Results(self.folder / "results", ["limits"], device=device).value("limits", "limits"), expected)

    def test_what_runs_beside_others_keeps_nothing_for_what_is_timed(self):
        caches = []

        class Spied(OnTheCpu):
            def execute(self, words, environment=None, most_s=None):
                caches.append((str(words[1]), {**self.environment, **(environment or {})}.get("XDG_CACHE_HOME")))
                return super().execute(words, environment, most_s)

        spied = Spied(self.stand_in().tree)
        with unittest.mock.patch.object(self, "stand_in", lambda: spied):
            self.run_phases("first")
        figures.bench(spied, self.folder / "perceptron.onnx", "fp32", 1)
        apart = spied.cache_apart["XDG_CACHE_HOME"]
        here = str(spied.tree.resolve() / "cache")
        self.assertEqual(set(caches), {("run", apart), ("model", here), ("bench", here)})

    def test_what_an_earlier_call_has_found_may_lie_beside_the_archive(self):
        gpu_check = self.gpu_check()
        (self.folder / "backplane_gpu").mkdir()
        (self.folder / "backplane_gpu/gpu_check").write_text("import sys; print(sys.argv[1:])")
        with tarfile.open(self.folder / "tree.tar.gz", "w:gz") as archive:
            archive.add(self.folder / "backplane_gpu", "backplane_gpu")
        (self.folder / "results").mkdir()
        (self.folder / "results/limits.json").write_text("{}")
        with tarfile.open(self.folder / "results.tar.gz", "w:gz") as archive:
            archive.add(self.folder / "results", "results")
        self.assertEqual(gpu_check.there(self.folder / "tree.tar.gz", self.folder / "out", ["--rest"]), 0)
        self.assertEqual((self.folder / "tree_there/results/limits.json").read_text(), "{}")

    def test_a_program_that_does_not_end_is_ended_with_all_that_it_started(self):
        runner = Program(self.folder)
        self.assertEqual(runner.execute(["sh", "-c", "sleep 50 & wait"], most_s=0.2).returncode, 124)
        runner.deadline = time.monotonic() + 0.2
        with self.assertRaises(OutOfTime) as over:
            runner.execute(["sh", "-c", "echo so far; sleep 50"])
        self.assertEqual(over.exception.made.stdout, "so far\n")
        with self.assertRaises(OutOfTime):
            runner.execute(["true"])

    def test_what_networks_take_is_measured_in_every_way_and_there_is_no_peer(self):
        if not (program.BUILD / "bin/gpu_probe").exists():
            self.skipTest("gpu_probe was not built")
        self.run_phases("limits")
        builds = {"resnet50_dyn": {"size": 32, "stages": (1, 1, 1, 1)}, "bert_dyn": {"layers": 1, "tokens": 8}}

        with unittest.mock.patch.object(figures, "QUICK_SIZES", builds), unittest.mock.patch.object(figures, "BATCHES", (2,)), \
                unittest.mock.patch.object(phases.Work, "why_no_peer", lambda _: "there is none"):
            code, text = self.run_phases("networks_float32", "overhead", "overlap", "fixed", limit=400)
        self.assertEqual(code, 0, text)
        kept = json.loads((self.folder / "results/networks_float32.json").read_text())["values"]
        self.assertIn("cpu:attention_fused", kept["bert_dyn 2 fp32"]["kernels"])
        for name in builds:
            measured, beside = (self.cells(text, name)[at:at + 4] for at in (0, 4))
            self.assertEqual([row[3] for row in measured], ["fp16", "fp32", "tf32", "bf16"], text)
            self.assertEqual([row[3] for row in beside], [row[3] for row in measured])
            for ours, row in zip(measured, beside):
                self.assertEqual(row[4:], [ours[4], "not measured", "", "", ours[12], "", ""])
            for row in measured:
                for column in (4, 5, 7, 8, 9, 12):  # the device's own time is nothing on the processor
                    self.assertGreater(float(row[column]), 0, row)
            self.assertIn("%", measured[0][10])
            self.assertLess(float(measured[1][11].split()[0]), 100)
            self.assertEqual(measured[3][10:12], ["", ""], "its limit is not known")
        self.assertIn("PyTorch, the peer, was not measured: there is none.", text)
        chains = self.cells(text, "1")
        self.assertEqual([row[1] for row in chains], ["off", "auto"], text)
        self.assertAlmostEqual(float(chains[1][3]) - 0.5, float(chains[1][5]), delta=0.011, msg="a graph of kernels is subtracted")
        self.assertEqual(len(self.cells(text, "off") + self.cells(text, "auto")), 2)
        self.assertIn("are hidden behind the other", text)
        self.assertEqual(len(self.cells(text, "light_perceptron")), 4)

    def test_what_a_decoder_takes_is_measured_for_each_kind_of_weights(self):
        if not (program.BUILD / "bin/gpu_probe").exists():
            self.skipTest("gpu_probe was not built")
        self.run_phases("limits")
        code, text = self.run_phases("decoding", limit=100)
        self.assertEqual(code, 0, text)
        for elements in ("float16", "float32"):
            measured = self.cells(text, elements)
            self.assertEqual([row[1] for row in measured], ["4 bits", "as the elements"], text)
            for row in measured:
                self.assertGreater(min(float(row[column]) for column in (2, 3, 5)), 0, row)
                self.assertIn("%", row[6])

    def test_launches_that_overlap_are_compared_with_those_that_do_not(self):
        if not (program.BUILD / "bin/gpu_probe").exists():
            self.skipTest("gpu_probe was not built")
        with unittest.mock.patch.object(figures, "QUICK_SIZES", {"bert_dyn": {"layers": 1, "tokens": 8}}):
            code, text = self.run_phases("launches", limit=200)
        self.assertEqual(code, 0, text)
        for name, count in (("decoder, weights of 4 bits", 2), ("decoder", 1), ("chain of 64 nodes", 1), ("bert_dyn, batch 1", 1)):
            measured = self.cells(text, name)
            self.assertEqual(len(measured), count, text)
            for row in measured:
                self.assertGreater(min(float(row[column]) for column in (2, 3)), 0, row)
                self.assertEqual((float(row[7]), row[8]), (0, "passed"))

    def run_kernels(self, **tools):
        """The page of the phase; each tool is a program that prints what is given and keeps what it was called with."""
        paths = {}
        for name, (said, code) in tools.items():
            (self.folder / f"{name}.txt").write_text(said)
            paths[name] = self.folder / name
            paths[name].write_text(f"#!/bin/sh\necho \"$@\" >> {paths[name]}.called\ncat {self.folder / name}.txt\nexit {code}\n")
            paths[name].chmod(0o755)
        with unittest.mock.patch.object(kernels, "BATCHES", {"bert_dyn": (1, 2)}), \
                unittest.mock.patch.object(figures, "QUICK_SIZES", {"bert_dyn": {"layers": 1, "tokens": 8}}), \
                unittest.mock.patch.object(kernels, "find", lambda name: str(paths[name]) if name in paths else None):
            code, text = self.run_phases("kernels", limit=300)
        self.assertEqual(code, 0, text)
        return text

    def test_kernels_are_timed_by_ncu_and_the_dearest_come_first(self):
        if not (program.BUILD / "bin/gpu_probe").exists():
            self.skipTest("gpu_probe was not built")
        text = self.run_kernels(ncu=(NCU, 0))
        self.assertIn("## Kernels of bert_dyn, float16, batch 1, by ncu", text)
        self.assertLess(text.index("batch 2, by the provider's events"), text.index("batch 1, by ncu"))
        table = text[text.index("batch 2, by ncu"):].splitlines()
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table if line.startswith("|")][2:]
        self.assertEqual(rows[:2], [["void gemm<float, 2>(int, T1 *)", "2", "30.00", "78.9 %"],
                                    ["softmax(float *, int)", "1", "2.50", "6.6 %"]])
        self.assertEqual(rows[10:12], [["3 others", "3", "1.50", "3.9 %"], ["all of them", "14", "38.00", ""]])
        self.assertAlmostEqual(float(rows[12][2]) / 38, float(rows[12][3]), delta=0.01)
        called = (self.folder / "ncu.called").read_text()
        for words in ("--clock-control none", "--cache-control none", "--profile-from-start off", "gpu__time_duration.sum", "--csv",
                      "--set capture=off", "--one-run marked"):
            self.assertIn(words, called)
        kept = json.loads((self.folder / "results/kernels.json").read_text())["values"]["bert_dyn 2 by ncu"]
        self.assertEqual((len(kept["us"]), kept["us"][0]), (14, ["void gemm<float, 2>(int, T1 *)", 12.0]))

    def test_where_ncu_may_not_it_is_said_and_nsys_or_the_provider_is_asked(self):
        if not (program.BUILD / "bin/gpu_probe").exists():
            self.skipTest("gpu_probe was not built")
        text = self.run_kernels(ncu=(NCU_REFUSED, 1), nsys=(NSYS, 0))
        self.assertIn("Kernels are not timed by ncu: ==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", text)
        self.assertEqual(text.count("not timed by ncu"), 1, "it is not asked again")
        self.assertIn("batch 2, by nsys", text)
        self.assertIn("| [CUDA memset] | 1 | 1.00 | 20.0 % |", text)
        text = self.run_kernels(ncu=(NCU_REFUSED, 1), nsys=("", 1))
        self.assertIn("batch 1, by the provider's events", text)
        self.assertIn("Kernels are not timed by nsys", text)
        self.assertIn(": cpu:", text)
        with unittest.mock.patch.object(kernels, "LEAST_S", 1000):
            self.assertIn("There was no time left for profilers.", self.run_kernels(ncu=(NCU, 0)))

    def test_the_best_of_the_peers_ways_stands_beside_what_was_taken_alike(self):
        if not (program.BUILD / "bin/gpu_probe").exists():
            self.skipTest("gpu_probe was not built")
        (self.folder / "packages").mkdir()
        (self.folder / "packages/torch.py").write_text(FAKE_TORCH)
        builds = {"resnet50_dyn": {"size": 32, "stages": (1, 1, 1, 1)}, "bert_dyn": {"layers": 1, "tokens": 8}}
        with unittest.mock.patch.object(figures, "QUICK_SIZES", builds), unittest.mock.patch.object(figures, "BATCHES", (2,)), \
                unittest.mock.patch.object(figures, "PRECISIONS_OF", {np.float32: ("fp16", "fp32")}), \
                unittest.mock.patch.dict(os.environ, {"PYTHONPATH": str(self.folder / "packages")}):
            code, text = self.run_phases("networks_float32", limit=400)
        self.assertEqual(code, 0, text)
        found = self.cells(text, "bert_dyn")[2:]
        self.assertEqual([row[6] for row in found], ["modules, weights cast beforehand", "modules"])
        for row in found:
            self.assertAlmostEqual(float(row[5]) / float(row[4]), float(row[7]), delta=0.02 * float(row[7]) + 0.01, msg=row)
            self.assertAlmostEqual(float(row[9]) / float(row[8]), float(row[10]), delta=0.02 * float(row[10]) + 0.01, msg=row)
        self.assertEqual(self.cells(text, "resnet50_dyn")[2][5], "NotImplementedError: no images here")
        kept = json.loads((self.folder / "results/networks_float32.json").read_text())["values"]["peer of bert_dyn float32"]
        self.assertEqual(list(kept[0]["variants"]), ["node by node, weights cast beforehand",
                                                     "modules, weights cast beforehand", "autocast"])
        self.assertEqual(kept[0]["latency_ms"], min(latency for latency, _ in kept[0]["variants"].values()))

    def test_all_of_the_peers_ways_compute_the_same(self):
        (self.folder / "fake_torch.py").write_text(FAKE_TORCH)
        spec = importlib.util.spec_from_file_location("fake_torch", self.folder / "fake_torch.py")
        torch = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(torch)
        net = networks.encoder(self.folder / "encoder.onnx", batch=2, layers=1, tokens=8)
        x = np.random.default_rng(1).standard_normal((2, 8, 768)).astype(np.float32)
        want, why = checks.outputs(self.stand_in(), self.folder / "encoder.onnx", self.folder, x)
        self.assertEqual(why, "")
        for precision, limit in (("fp32", 1e-4), ("fp16", 2e-2)):
            for name, (more, _) in peer.variants(torch, net, precision).items():
                torch.calls[0] = 0
                got = peer.Peer(torch, net, **more).forward(torch.from_numpy(x)).numpy()
                self.assertEqual(got.dtype, np.float32)
                self.assertLess(checks.distance(got, want), limit, name)
                # Six products with their rows, Gelu, the attention, and twice a sum and its normalisation.
                self.assertEqual(torch.calls[0] == 6 + 1 + 1 + 2 * 2, "modules" in name or name == "autocast", name)
        image = networks.residual_network(self.folder / "image.onnx", size=32, stages=(1, 1, 1, 1), dtype=np.float16)
        self.assertEqual(list(peer.variants(torch, image, "fp32")), ["channels first", "channels last"])

    def test_a_peer_that_is_not_there_is_looked_for_but_once(self):
        (self.folder / "torch.py").write_text("import time; time.sleep(60)")
        with unittest.mock.patch.object(phases.PeerSearch, "MOST_S", 1):
            search = phases.PeerSearch(program.SOURCE / "tools/gpu", {**os.environ, "PYTHONPATH": str(self.folder)})
            self.assertEqual(search.why_none(100), "it was not imported in 1 s")
        (self.folder / "torch.py").write_text("raise ImportError('broken', name='torch')")
        search = phases.PeerSearch(program.SOURCE / "tools/gpu", {**os.environ, "PYTHONPATH": str(self.folder)})
        self.assertEqual([search.why_none(100), search.why_none(0)], ["PyTorch is not installed (torch)"] * 2)
        search.end()

    def test_of_a_probe_that_failed_it_is_kept_what_the_libraries_say(self):
        (self.folder / "bin").mkdir()
        probe = self.folder / "bin/gpu_probe"
        probe.write_text("#!/bin/sh\n[ -z \"$CUDNN_LOGLEVEL_DBG\" ] || { seq 9999 >&2; echo $CUDNN_LOGDEST_DBG $CUBLASLT_LOG_LEVEL >&2; }\n"
                         "echo why it failed >&2\nexit 3\n")
        probe.chmod(0o755)
        failing = Program(self.folder)
        self.assertEqual(failing.probe("model", "a.onnx"), (None, "why it failed"))
        self.assertEqual([(each["words"], each["code"], each["said"]) for each in failing.logs],
                         [(f"{probe} model a.onnx", 3, "why it failed")])
        self.assertEqual(len(failing.logs[0]["log"]), 4096)
        self.assertTrue(failing.logs[0]["log"].endswith("9999\nstderr 2\nwhy it failed\n"), failing.logs[0]["log"][-50:])
        probe.write_text("#!/bin/sh\n[ $1 != alive ] || exit 0\nsleep 50\n")
        self.assertIsNone(failing.probe("model", "a.onnx", most_s=0.2)[0])
        self.assertEqual(len(failing.logs), 1, "what takes too long is not done again")
        tree = self.stand_in().tree
        (tree / "bin").unlink()
        shutil.move(self.folder / "bin", tree / "bin")
        probe = tree / "bin/gpu_probe"
        probe.write_text("#!/bin/sh\necho no memory >&2\nexit 3\n")
        with unittest.mock.patch.object(kernels, "BATCHES", {"bert_dyn": (1,)}):
            _, text = self.run_phases("kernels")
        kept = json.loads((self.folder / "results/kernels.json").read_text())
        self.assertEqual(kept["logs"][0]["log"], "no memory\n")
        self.assertIn(f"said in {len(kept['logs'])} runs that failed is in the results, kernels.json.", text)

    def test_everything_is_warm_before_it_is_measured(self):
        for latency_ms, quick, runs in ((2, False, 250), (900, False, 10), (None, False, 200), (2, True, 10)):
            self.assertEqual(figures.warm_up(unittest.mock.Mock(quick=quick), latency_ms), runs)
        calls = []
        peer.median_ms(lambda: calls.append(time.monotonic()), 5, 0.2)
        self.assertGreater(calls[-6] - calls[0], 0.15)
        if not (program.BUILD / "bin/gpu_probe").exists():
            self.skipTest("gpu_probe was not built")
        networks.feed(self.folder / "feed.onnx", networks.perceptron(self.folder / "p.onnx", width=8))
        words = ["model", self.folder / "p.onnx", "--feed", self.folder / "feed.onnx", "--provider", "cpu", "--runs", "1", "--warm-up"]
        for seconds in (0, 1.5):
            started = time.monotonic()
            found, why = self.stand_in().probe(*words, seconds)
            self.assertEqual((why, "latency_ms" in found), ("", True))
            self.assertGreaterEqual(time.monotonic() - started, seconds)
        self.assertIn("--one-run is 'marked' or 'traced'", self.stand_in().probe(*words, 0, "--one-run", "untold")[1])

    def test_what_matters_most_comes_first_and_fits_one_call(self):
        first = list(phases.PHASES)[:3]
        self.assertEqual(first, ["limits", "first", "networks"])
        self.assertLessEqual(sum(phases.PHASES[name][1] for name in first), 540)

    def test_what_a_kernel_a_layer_could_reach(self):
        path = self.folder / "network.onnx"
        net = networks.resnet50_dyn(path, dtype=np.float16)
        layers = roofs.layers(net)
        self.assertEqual(len(layers), 53 + 2 + 1)  # convolutions, pools, a product
        self.assertEqual(sum(flops for flops, *_ in layers), net.flops)
        # The first: an image of 3 x 224 x 224 is read, 64 x 112 x 112 are written, weights and a bias are 64 x (147 + 1).
        self.assertEqual(layers[0], [2 * 64 * 112 * 112 * 147, 2 * (3 * 224 * 224 + 64 * 112 * 112), 2 * 64 * 148])
        reached = 32 * net.flops / 800e9 / roofs.least_ms(layers, 32, 800, 3000)
        self.assertAlmostEqual(reached, 0.47, delta=0.01)
        net = networks.bert_dyn(path, dtype=np.float16, layers=2)
        layers = roofs.layers(net)
        self.assertEqual(len(layers), 2 * (6 + 1 + 2))
        self.assertEqual(sum(flops for flops, *_ in layers), net.flops)
        rows = 2 * 128 * 768  # bytes
        self.assertEqual(layers[3], [4 * 12 * 128 * 128 * 64, 4 * rows, 0], "an attention reads three values and writes one")
        self.assertEqual(layers[4][1], 3 * rows, "what is added is read, too")

    def test_an_archive_that_is_too_large_with_what_is_sent_is_refused(self):
        gpu_check = self.gpu_check()
        gpu_check.check_size("a.tar.gz", 55_000_000, 9_000_000)
        for size, tracked in ((55_000_001, 0), (50_000_000, 18_000_000)):
            with self.assertRaisesRegex(gpu_check.CannotRun, str(size + tracked)):
                gpu_check.check_size("a.tar.gz", size, tracked)
        self.assertEqual(gpu_check.tracked_bytes(self.folder), 0)

    def test_decoders_are_computed_alike_wherever_their_weights_lie(self):
        """Weights of four bits as ONNX's DequantizeLinear of them gives them."""
        path = self.folder / "decoder.onnx"
        net = networks.decoder(path, batch=2, tokens=3, bits=4, **checks.SMALL_DECODER)
        arrays = dict(net.weights)
        plain = networks.decoder(self.folder / "plain.onnx", batch=2, tokens=3, **checks.SMALL_DECODER)
        names = dict(zip([step[1][1] for step in plain.steps if step[0] == "MatMul"],
                         [step[1][1:3] for step in net.steps if step[0] == "MatMulNBits"], strict=True))
        kept = iter([name for step in net.steps if step[0] == "GroupQueryAttention" for name in step[1][3:5]])
        caches = {name: next(kept) for step in plain.steps if step[0] == "GroupQueryAttention" for name in step[1][3:5]}
        for at, (name, array) in enumerate(plain.weights):
            if name in caches:
                array = arrays[caches[name]]
            if name in names:
                packed, scales = (arrays[each] for each in names[name])
                numbers = np.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1, 32).astype(np.float32) - 8
                array = (numbers * scales.reshape(packed.shape[0], -1, 1)).reshape(packed.shape[0], -1).T
            plain.weights[at] = (name, np.ascontiguousarray(array))
        plain.save(self.folder / "plain.onnx", plain.steps[-1][2])
        x = np.random.default_rng(1).standard_normal((2, 3, 256)).astype(np.float32)
        got, want = (checks.outputs(self.stand_in(), each, self.folder, x)[0] for each in (path, self.folder / "plain.onnx"))
        self.assertLess(checks.distance(got, want), 1e-4)

    def test_the_peer_knows_every_operator_of_the_networks(self):
        known = set(peer.operations(unittest.mock.MagicMock()))
        for build, sizes in {**SMALL, networks.chain: {"nodes": 4}}.items():
            net = build(self.folder / "network.onnx", **sizes)
            self.assertLessEqual({op_type for op_type, *_ in net.steps}, known)
            self.assertEqual(len(net.steps), len(net.nodes))

    def test_the_peer_computes_what_the_cpu_provider_does(self):
        try:
            import torch
        except ImportError:
            self.skipTest("PyTorch is not installed")
        for name, path, x, _ in self.models():
            build = next(each for each in SMALL if each.__name__ == name)
            net = build(path, batch=2, **SMALL[build])
            want, why = checks.outputs(self.stand_in(), path, self.folder, x)
            self.assertEqual(why, "")
            with torch.inference_mode():
                got = peer.Peer(torch, net, "cpu").forward(torch.from_numpy(x)).numpy()
            self.assertLess(checks.distance(got, want), 1e-3, name)

    def test_a_wrong_result_fails(self):
        spoilt = checks.outputs

        def outputs(program_, model, folder, x, *arguments, **more):
            got, why = spoilt(program_, model, folder, x, *arguments, **more)
            return (got + 100 if "--precision" in arguments else got), why

        with unittest.mock.patch.object(checks, "outputs", outputs):
            code, text = self.run_phases("models")
        self.assertEqual(code, 1)
        self.assertIn(f"{3 * 4 + 1} checks failed", text)

    def test_figures_come_from_the_bench_command(self):
        net = networks.perceptron(self.folder / "p.onnx", batch=2)
        found, why = figures.bench(self.stand_in(), self.folder / "p.onnx", "fp32", 5)
        self.assertEqual(why, "")
        self.assertGreater(net.flops / found["median_ms"], 0)
        found, why = figures.bench(self.stand_in(), self.folder / "none.onnx", "fp32", 5)
        self.assertIsNone(found)
        self.assertIn("none.onnx", why)

    def test_operator_tests_are_counted_from_what_they_print(self):
        log = ("[ RUN      ] Softmax.A/cuda\n[       OK ] Softmax.A/cuda (3 ms)\n[ RUN      ] Softmax.B/cuda\nwhy it is\n"
               "[  SKIPPED ] Softmax.B/cuda (1 ms)\n[ RUN      ] Softmax.C/cuda\nmain.cpp:9: Failure\nat 3 got 1, wanted 2\n"
               "[  FAILED  ] Softmax.C/cuda (2 ms)\n[==========] 3 tests ran.\n[  FAILED  ] Softmax.C/cuda\n")
        found = page.Results(self.folder / "results", ["operators"]).begin("operators")
        found.section("Operators", ["suite", "result", ""])
        checks.add_operator_tests(found, "ops_softmax", subprocess.CompletedProcess([], 1, log, ""))
        rows = found.found["sections"][0]["rows"]
        self.assertEqual(rows[0], ["ops_softmax", "1 passed, 1 failed, 1 refused with a reason", "**failed**"])
        self.assertIn("Softmax.C/cuda: ", rows[1][1])
        self.assertIn("got 1, wanted 2", rows[1][1])

    def test_suites_of_no_device_are_no_rows_and_that_nothing_ran_is_a_failure(self):
        found = page.Results(self.folder / "results", ["operators"]).begin("operators")
        found.section("Operators", ["suite", "result", ""])
        made = subprocess.CompletedProcess([], 0, "[  PASSED  ] 0 tests.\n", "")
        self.assertFalse(checks.add_operator_tests(found, "ops_rewrite", made))
        self.assertEqual((found.found["sections"][0]["rows"], found.found["failures"]), ([], 0))
        tests = self.stand_in().tree / "tests"
        tests.mkdir()
        (tests / "ops_rewrite").write_text("#!/bin/sh\necho '[  PASSED  ] 0 tests.'\n")
        (tests / "ops_rewrite").chmod(0o755)
        code, text = self.run_phases("operators")
        self.assertEqual(code, 1)
        self.assertIn("| tests/ops | no test ran on cuda | **failed** |", text)

    def test_a_custom_operator_of_another_library_is_compared_with_its_formula(self):
        with unittest.mock.patch.object(phases.Work, "why_no_peer", lambda _: "PyTorch is not installed (torch)"):
            code, text = self.run_phases("guests")
        self.assertEqual(code, 0, text)
        rows = [cells for size in ("3 x 257", "1 x 1", "64 x 4096") for cells in self.cells(text, size)]
        self.assertEqual([cells[-1] for cells in rows], ["passed"] * 3, text)
        self.assertIn("not run: PyTorch is not installed (torch)", text)

        def wrong(x):
            return networks_gated_of(x) * 1.01

        networks_gated_of = networks.gated_of
        with unittest.mock.patch.object(phases.Work, "why_no_peer", lambda _: ""), \
                unittest.mock.patch.object(networks, "gated_of", wrong):
            code, text = self.run_phases("guests")
        self.assertEqual((code, text.count("**failed**")), (1, 3), text)

    def test_of_operator_tests_that_did_not_end_it_is_known_how_far_they_came(self):
        log = ("[ RUN      ] Softmax.A/cuda\n[       OK ] Softmax.A/cuda (3 ms)\n[ RUN      ] Softmax.B/cuda\n")
        for code, said in ((124, "1 passed, 0 failed, 0 refused with a reason; it was in Softmax.B/cuda, when the time was over"),
                           (-11, "1 passed, 0 failed, 0 refused with a reason; it was in Softmax.B/cuda")):
            found = page.Results(self.folder / "results", ["operators"]).begin("operators")
            found.section("Operators", ["suite", "result", ""])
            checks.add_operator_tests(found, "ops_softmax", subprocess.CompletedProcess([], code, log, ""))
            self.assertEqual(found.found["sections"][0]["rows"][0][1], said)
            self.assertEqual(found.found["failures"], code == -11)

    def test_operator_tests_are_counted_up_to_the_end_of_the_time(self):
        tests = self.stand_in().tree / "tests"
        tests.mkdir()
        (tests / "ops_slow").write_text("#!/bin/sh\necho '[ RUN      ] Slow.A/cuda'\nsleep 50\n")
        (tests / "ops_slow").chmod(0o755)
        code, text = self.run_phases("operators", limit=2)
        self.assertEqual(code, 1)
        self.assertIn("| ops_slow | 0 passed, 0 failed, 0 refused with a reason; it was in Slow.A/cuda, when the time was over |  |", text)
        self.assertIn("stopped after its limit of 2 s", text)

    def test_a_call_that_is_to_fail_does_and_says_so(self):
        preload = program.BUILD / "bin/gpu_faults.so"
        if not preload.exists():
            self.skipTest("gpu_faults.so was not built")
        code = "import ctypes; here = ctypes.CDLL(None); print(here.getppid(), here.getppid(), here.getppid())"
        made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                              env={**os.environ, "LD_PRELOAD": str(preload), "GPU_FAULT": "getppid:2:719"})
        self.assertEqual([word == "719" for word in made.stdout.split()], [False, True, False], made.stdout)
        self.assertEqual(made.stderr, "gpu_faults: getppid, call 2\n")

    def test_random_weights_take_the_place_of_constant_ones(self):
        nodes = [onnx.helper.make_node("ConstantOfShape", ["dims"], ["w"]),
                 onnx.helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 3])]
        dims = onnx.numpy_helper.from_array(np.array([2, 1, 3, 3], np.int64), "dims")
        kinds = [onnx.helper.make_tensor_value_info(name, code, shape) for name, code, shape in (
            ("dims", onnx.TensorProto.INT64, [4]), ("x", onnx.TensorProto.FLOAT, [1, 1, 5, 5]),
            ("y", onnx.TensorProto.FLOAT, [1, 2, 3, 3]))]
        model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", kinds[:2], kinds[2:], [dims]),
                                       opset_imports=[onnx.helper.make_opsetid("", 9)], ir_version=3)
        onnx.save(model, self.folder / "constant.onnx")
        found = random_weights.randomize(self.folder / "constant.onnx", self.folder / "random.onnx", 1.0)
        self.assertEqual(found, ("x", [1, 1, 5, 5]))
        made = onnx.load(self.folder / "random.onnx")
        onnx.checker.check_model(made, full_check=True)
        self.assertEqual([node.op_type for node in made.graph.node], ["Conv"])
        weight = next(each for each in made.graph.initializer if each.name == "w")
        whole = onnx.numpy_helper.to_array(weight)
        self.assertGreater(whole.std(), 0.1)
        random_weights.randomize(self.folder / "constant.onnx", self.folder / "random.onnx", 64.0)
        small = next(each for each in onnx.load(self.folder / "random.onnx").graph.initializer if each.name == "w")
        np.testing.assert_allclose(onnx.numpy_helper.to_array(small) * 64, whole, rtol=1e-6)

    def test_a_softmax_that_is_sure_of_one_class_shows_nothing(self):
        work = phases.Work(self.stand_in(), page.Results(self.folder / "results", ["models"]).begin("models"), None, self.folder, True)
        given = []

        def randomize(source, target, last):
            given.append(last)
            return self.as_it_is(source, target, last)

        def sure(program, model, folder, x, *arguments, name="x"):
            return np.array([1.0, 0.0]) if len(given) < 2 else np.array([0.6, 0.4]), ""

        source = work.cases() / "light_perceptron/model.onnx"
        with unittest.mock.patch.object(random_weights, "randomize", randomize), \
                unittest.mock.patch.object(checks, "outputs", sure):
            rows = checks.compare_light(work, self.folder, source)
            self.assertEqual((given, rows[0][0]), (list(random_weights.LAST[:2]), True))
            with unittest.mock.patch.object(checks, "MOST_SURE", 0.5):
                self.assertIn("shows nothing", checks.compare_light(work, self.folder, source)[0][3])


if __name__ == "__main__":
    os.environ.pop("LD_LIBRARY_PATH", None)
    program.main()
