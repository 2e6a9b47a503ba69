"""What tests of tools/gpu_check share: the CPU provider in the device's place."""

import importlib.machinery
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import program  # noqa: E402

sys.path.insert(0, str(program.SOURCE / "tools/gpu"))
import checks  # noqa: E402
import figures  # noqa: E402
import networks  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import phases  # noqa: E402
import random_weights  # noqa: E402
from programs import Program  # noqa: E402

GPU_CHECK = program.SOURCE / "tools/gpu_check"
SMALL = {networks.residual_network: {"size": 32, "stages": (1, 1, 1, 1)}, networks.encoder: {"layers": 1, "tokens": 8},
         networks.perceptron: {}}

LIMITS = {"memory_gb": 1, "gb_per_s": {"device": 10, "to_device": 5, "from_device": 5}, "product_size": 16,
          "graphs": [{"of": "empty kernels", "nodes": 1, "launch_us": 0.5, "whole_us": 5}, "CUDA_ERROR_INVALID_VALUE",
                     {"of": "small writes", "nodes": 1, "launch_us": 0.25, "whole_us": 4}],
          "tflops": {"fp32": 1.0, "tf32": 2.0, "fp16": 4.0, "bf16": "cuBLASLt proposes no algorithm"}}


class OnTheCpu(Program):
    """What is asked of cuda is done by cpu; `--precision` and the provider's options mean nothing there."""

    def execute(self, words, environment=None, most_s=None):
        words = [str(each) for each in words]
        if words[1:2] == ["check"]:
            return self.check(words)
        if words[1:2] == ["limits"]:
            return subprocess.CompletedProcess(words, 0, json.dumps(LIMITS), "")
        for option, is_pair in (("provider.cuda.fusion=false", False), ("provider.cuda.tuning=off", False),
                                ("provider.cuda.overlap_launches=auto", False), ("provider.cuda.overlap_launches=off", False),
                                ("--precision", True)):
            while option in words:
                at = words.index(option) if is_pair else words.index(option) - 1
                del words[at:at + 2]
        # The words after the program's own name.
        words[1:] = [each.replace("cuda,cpu", "cpu") if each.startswith("cuda") else each for each in words[1:]]
        words[1:] = ["cpu" if each == "cuda" else each.replace("precision=fp16", "precision=fp32").replace("=cuda", "=cpu")
                     for each in words[1:]]
        for precision in ("tf32", "bf16"):
            words = [each.replace(f"precision={precision}", "precision=fp32") for each in words]
        return super().execute(words, environment, most_s)

    def check(self, words):
        is_apart = words[words.index("--report") + 2] == "--only"
        is_first = is_apart or words[words.index("--part") + 1].startswith("1/")
        rows = [{"case": case, "subject": "cuda", "status": "passed", "reason": ""}
                for case in (["device.fences"] if is_apart else ["device.copies", "registry.open", "options.read"] * is_first)]
        pathlib.Path(words[words.index("--report") + 1]).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return subprocess.CompletedProcess(words, 0, f"passed a\n{len(rows)} passed, 0 failed, 0 skipped\n", "")

    def why_not_alive(self):
        return ""

    def libraries(self):
        return {"cuDNN": {"version": "9.0.1", "path": "/there/libcudnn.so.9"}, "NVRTC": {"reason": "it is not linked"}}, ""

    def device(self):
        return {"devices": [{"name": "A processor"}], "reason": ""}


class GpuCheckTest(program.ProgramTest):
    def tree(self, *, kernels_of="none", python=(sys.executable,), words=()):
        packed = self.folder / "tree.tar.gz"
        made = subprocess.run([*python, GPU_CHECK, "pack", packed, "--build", program.BUILD, "--kernels", kernels_of, *words],
                              capture_output=True, text=True, check=False)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertLess(packed.stat().st_size, 55_000_000)
        with tarfile.open(packed) as archive:
            archive.extractall(self.folder / "elsewhere")
        return self.folder / "elsewhere/backplane_gpu"

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
            (tree / "lib").symlink_to(program.BUILD / "lib")
            # As a packed case: the perceptron, with what it gives.
            case = tree / "cases/light_perceptron/test_data_set_0"
            case.mkdir(parents=True)
            net = networks.perceptron(case.parent / "model.onnx", batch=2, width=8)
            x = np.ones(net.inputs[0][1], np.float32)
            want, why = checks.outputs(OnTheCpu(tree), case.parent / "model.onnx", self.folder, x)
            self.assertEqual(why, "")
            for word, array in (("input", x), ("output", want.astype(np.float32))):
                (case / f"{word}_0.pb").write_bytes(onnx.numpy_helper.from_array(array).SerializeToString())
        return OnTheCpu(tree)

    def run_phases(self, *names, limit=None, **more):
        report = self.folder / "page.md"
        fault_rows = checks.FAULTS[:2]
        with unittest.mock.patch.object(checks, "models_of", lambda *_: self.models()), \
                unittest.mock.patch.object(figures, "models_of", lambda *_: self.models()), \
                unittest.mock.patch.object(checks, "FAULTS", fault_rows), \
                unittest.mock.patch.object(random_weights, "randomize", self.as_it_is), \
                unittest.mock.patch.object(phases.shutil, "which", lambda _: None):
            code = phases.run_all(self.stand_in(), report, True, names, self.folder / "results", limit, **more)
        return code, report.read_text()

    @staticmethod
    def as_it_is(source, target, last):
        shutil.copy(source, target)
        return "x", [2, 8]

    @staticmethod
    def gpu_check():
        loader = importlib.machinery.SourceFileLoader("gpu_check", str(GPU_CHECK))
        made = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
        loader.exec_module(made)
        return made

    def cells(self, text, first):
        return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith(f"| {first} |")]
