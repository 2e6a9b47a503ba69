"""tools/gpu_check without a GPU: the packed tree, the line on a machine without a driver, the networks, and the page,
for which the CPU provider stands in for the device."""

import os
import pathlib
import subprocess
import sys
import tarfile
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import program  # noqa: E402

sys.path.insert(0, str(program.SOURCE / "tools/gpu"))
import checks  # noqa: E402
import networks  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import peer  # noqa: E402

GPU_CHECK = program.SOURCE / "tools/gpu_check"
SMALL = {networks.residual_network: {"size": 32, "stages": (1, 1, 1, 1)}, networks.encoder: {"layers": 1, "tokens": 8},
         networks.perceptron: {}}


class OnTheCpu(checks.Program):
    """What is asked of cuda is done by cpu; `--precision` and the provider's options mean nothing there."""

    def call(self, *arguments, **more):
        words = [str(each) for each in arguments]
        if "provider.cuda.fusion=false" in words:
            at = words.index("provider.cuda.fusion=false")
            del words[at - 1:at + 1]
        if words[0] == "check":
            return subprocess.CompletedProcess(words, 0, "passed a\n3 passed, 0 failed, 0 skipped\n", "")
        while "--precision" in words:
            at = words.index("--precision")
            del words[at:at + 2]
        words = [each.replace("cuda,cpu", "cpu").replace("cuda", "cpu") for each in words]
        return super().call(*words, **more)

    def device(self):
        return {"devices": [{"name": "A processor"}], "reason": ""}


class GpuCheck(program.ProgramTest):
    def tree(self):
        packed = self.folder / "tree.tar.gz"
        made = subprocess.run([sys.executable, GPU_CHECK, "pack", packed, "--build", program.BUILD],
                              capture_output=True, text=True, check=False)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertLess(packed.stat().st_size, 60_000_000)
        with tarfile.open(packed) as archive:
            archive.extractall(self.folder / "elsewhere")
        return self.folder / "elsewhere/backplane_gpu"

    def test_the_tree_runs_elsewhere_up_to_the_missing_driver(self):
        if not (program.BUILD / "lib/backplane/plugins/cuda.so").exists():
            self.skipTest("the CUDA plugin was not built")
        tree = self.tree()
        if checks.Program(tree).device()["devices"]:
            self.skipTest("there is a device")
        made = subprocess.run([sys.executable, tree / "gpu_check", "run"], capture_output=True, text=True,
                              cwd=self.folder, check=False)
        self.assertEqual(made.returncode, 2, made.stderr)
        self.assertEqual(len(made.stderr.splitlines()), 1, made.stderr)
        self.assertIn("no CUDA device: libcuda.so.1", made.stderr)
        self.assertFalse((self.folder / "GPU_RESULTS.md").exists(), "no page is written where nothing ran")

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
        self.assertEqual(networks.product(self.folder / "p.onnx", 16).flops, 2 * 16 ** 3)
        net = networks.perceptron(self.folder / "p.onnx", batch=3, width=8)
        self.assertEqual(net.flops, 2 * 3 * (3 * 8 * 8 + 8 * 10))

    def models(self):
        made = []
        for build, sizes in SMALL.items():
            path = self.folder / f"{build.__name__}.onnx"
            net = build(path, batch=2, **sizes)
            x = np.random.default_rng(1).standard_normal(net.inputs[0][1]).astype(np.float32)
            made.append((build.__name__, path, x, [node for node, _ in net.nodes]))
        return made

    def stand_in(self):
        tree = self.folder / "tree"
        if not tree.exists():
            (tree / "bundled").mkdir(parents=True)
            (tree / "bin").symlink_to(program.BUILD / "bin")
        return OnTheCpu(tree)

    def page(self):
        report = self.folder / "page.md"
        with unittest.mock.patch.object(checks, "benchmark", lambda *_: None), \
                unittest.mock.patch.object(checks, "models_of", lambda *_: self.models()):
            code = checks.run_all(self.stand_in(), report, True)
        return code, report.read_text()

    def test_the_page_says_what_passed_and_what_failed(self):
        code, page = self.page()
        self.assertEqual(code, 0, page)
        self.assertIn("0 of the checks below failed", page)
        self.assertIn("A processor", page)
        rows = [line for line in page.splitlines() if line.endswith("| passed |")]
        self.assertEqual(len(rows), 1 + 3 * 4 + 3 * 2 + 3, page)

    def test_the_benchmark_compares_with_and_without_capture_and_says_that_there_is_no_peer(self):
        page = checks.Page()
        path = self.folder / "p.onnx"
        rows = [("perceptron", 2, np.float32, path, networks.perceptron(path, batch=2))]
        with unittest.mock.patch.object(checks, "limits", lambda *_: {"float32, fp32": 1.0}), \
                unittest.mock.patch.object(checks, "rows_of_benchmark", lambda *_: rows), \
                unittest.mock.patch.object(peer, "find", lambda: (None, "there is none")):
            checks.benchmark(self.stand_in(), page, self.folder, True)
        text = "\n".join(page.lines)
        self.assertIn("## Overhead per node", text)
        overheads = [line.split("|") for line in page.lines if line.startswith(("| off", "| auto"))]
        self.assertEqual(len(overheads), 2, text)
        for row in overheads:
            self.assertGreater(float(row[2]), 0)
            float(row[3])
        measured = [line.split("|") for line in page.lines if line.startswith("| perceptron")]
        self.assertEqual(len(measured), 4, text)
        for row in measured:
            self.assertGreater(float(row[5]), 0)
            self.assertGreater(float(row[6]), 0)
            self.assertEqual(row[9].strip(), "not measured")
        self.assertIn("PyTorch, the peer, was not measured: there is none.", text)

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

        def outputs(program_, model, folder, x, *arguments):
            got, why = spoilt(program_, model, folder, x, *arguments)
            return (got + 100 if "--precision" in arguments else got), why

        with unittest.mock.patch.object(checks, "outputs", outputs):
            code, page = self.page()
        self.assertEqual(code, 1)
        self.assertIn(f"{3 * 4} of the checks below failed", page)

    def test_figures_come_from_the_bench_command(self):
        net = networks.perceptron(self.folder / "p.onnx", batch=2)
        figures, why = checks.bench(self.stand_in(), self.folder / "p.onnx", "fp32", 5)
        self.assertEqual(why, "")
        self.assertGreater(net.flops / figures["median_ms"], 0)
        figures, why = checks.bench(self.stand_in(), self.folder / "none.onnx", "fp32", 5)
        self.assertIsNone(figures)
        self.assertIn("none.onnx", why)


if __name__ == "__main__":
    os.environ.pop("LD_LIBRARY_PATH", None)
    program.main()
