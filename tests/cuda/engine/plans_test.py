"""All that the provider decides about whole networks for three described devices: cuDNN has plans for what it is asked,
NVRTC compiles every kernel. A run computes nothing here, so it is the plans alone that are looked at."""

import os
import pathlib
import re
import sys
import tempfile
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / "cli"), str(pathlib.Path(__file__).resolve().parents[1])]
import program  # noqa: E402

sys.path.insert(0, str(program.SOURCE / "tools/gpu"))
import networks  # noqa: E402
from random_networks import RandomNetwork  # noqa: E402

# What one network's kernels and plans are is kept for the others: each kernel is compiled once for a device, and each form planned once.
CACHE = tempfile.TemporaryDirectory()
DEVICE = ["--plugin-path", program.BUILD / "tests/cuda_planning", "--providers", "cuda,cpu",
          "--set", f"provider.cuda.cache_dir={CACHE.name}"]
CAPABILITIES = ("80", "90", "100")
FULL = os.environ.get("BACKPLANE_TEST_FULL") is not None


def environment_of(capability):
    return {"LD_LIBRARY_PATH": str(program.BUILD / "tests/cuda_fake_driver"), "BACKPLANE_TEST_CAPABILITY": capability}


class Plans(program.ProgramTest):
    def plans(self, path, precision, capability, *arguments):
        """The forms that have a plan, and those that have none."""
        made = self.run_program("bench", path, *DEVICE, "--precision", precision, "--warmup", "0", "--runs", "1",
                                *arguments, environment=environment_of(capability))
        said = made.stderr.decode()
        self.assertEqual(made.returncode, 0, said)
        lines = said.splitlines()
        return [[line for line in lines if line.startswith(f"{kind}: ")] for kind in ("plan", "no plan")]

    def check(self, path, precision, capability, *arguments):
        with self.subTest(path=pathlib.Path(path).name, precision=precision, capability=capability):
            planned, refused = self.plans(path, precision, capability, *arguments)
            self.assertEqual(refused, [])
            return planned
        return []

    def test_a_residual_network(self):
        path = self.folder / "residual.onnx"
        networks.residual_network(path)
        for index, precision in enumerate(("fp32", "tf32", "fp16", "bf16")):
            for capability in CAPABILITIES if FULL else CAPABILITIES[index % 3:][:1]:
                planned = self.check(path, precision, capability)
                self.assertTrue(any("bias, addend, relu" in line for line in planned), planned)

    def test_an_encoder_has_its_attention_planned_in_16_bits(self):
        path = self.folder / "encoder.onnx"
        networks.encoder(path, layers=2)
        for capability, precision in zip(CAPABILITIES, ("fp16", "bf16", "fp16")):
            for each in ("fp16", "bf16") if FULL else (precision,):
                self.assertEqual(len(self.check(path, each, capability)), 1)
        # Of float32 it has none, and is not asked.
        self.assertEqual(self.check(path, "fp32", "90"), [])

    def test_queries_keys_and_values_are_one_call_where_one_leaves_the_device_idle(self):
        path = self.folder / "encoder.onnx"
        networks.encoder(path, layers=1, symbol="batch")
        # 108 multiprocessors, and tiles of 128 x 128: six for each image's 128 rows of 768 columns.
        for batch, how in ((1, "in a call"), (17, "in a call"), (18, "in calls of their own: each fills the device")):
            made = self.json_of("inspect", path, *DEVICE, "--dim", f"batch={batch}", "--set", "precision=fp16",
                                environment=environment_of("80"))
            self.assertEqual(made["remarks"], [])
            kernels = [row["kernel"] for row in made["nodes"] if row["op"] == "MatMul" and "joined" in row["kernel"]]
            self.assertEqual(kernels, [f"cuda:joined products cublaslt, 3 products {how}"] * 3)
            self.assertEqual(sum(any("joined with" in reason["text"] for reason in row["reasons"])
                                 for row in made["nodes"]), 3)

    def test_an_encoder_of_any_size(self):
        path = self.folder / "encoder.onnx"
        networks.encoder(path, layers=1, symbol="batch")
        for batch in ("1", "3"):
            self.assertEqual(len(self.check(path, "fp16", "90", "--dim", f"batch={batch}")), 1)

    def test_models_of_the_world(self):
        shared = os.environ.get("BACKPLANE_SHARED_DATA")
        if not shared:
            self.skipTest("BACKPLANE_SHARED_DATA is not set")
        models = sorted(pathlib.Path(shared, "data").glob("*/*.onnx"))
        self.assertTrue(models, shared)
        for index, path in enumerate(models):
            for precision in ("fp32", "fp16") if FULL else ("fp16",):
                self.assertTrue(self.check(path, precision, CAPABILITIES[index % 3]))

    def test_random_networks(self):
        for seed in range(100 if FULL else 6):
            network = RandomNetwork(seed, nodes=9, axes=(2, 2, 1, 2, 3)[seed % 5])
            path = self.save(network.model())
            precision = ("fp16", "bf16", "tf32", "fp32")[seed % 4]
            # Forms may have none where the provider has another way: that the run goes through is what counts.
            with self.subTest(seed=seed, precision=precision, network=str(network)):
                self.plans(path, precision, CAPABILITIES[seed % 3])

    @unittest.skipUnless(FULL, "ONNX's node cases: with BACKPLANE_TEST_FULL")
    def test_node_cases(self):
        """What they compute is nothing, and so wrong; but every kernel compiles, and no call asks for what is not allowed."""
        sys.path.insert(0, str(program.SOURCE / "tests/onnx"))
        from node_cases_test import write_cases
        folder = self.folder / "cases"
        folder.mkdir()
        write_cases(folder)
        # A loop's turns would be any number.
        cases = [path for path in sorted(folder.iterdir()) if not re.search("loop|scan|sequence|range", path.name)]
        self.assertGreater(len(cases), 1500)
        for index, precision in enumerate(("fp32", "fp16", "bf16")):
            environment = environment_of(CAPABILITIES[index])
            for first in range(0, len(cases), 40):
                made = self.run_program("verify", *cases[first:first + 40], *DEVICE, "--precision", precision,
                                        environment=environment)
                said = made.stdout.decode(errors="replace") + made.stderr.decode(errors="replace")
                self.assertIn(made.returncode, (0, 1), said)
                for word in ("does not compile", "CUDA_ERROR", "cudnnBackend", "cublasLt"):
                    self.assertNotIn(word, said)


if __name__ == "__main__":
    program.main()
