#!/usr/bin/env python3
"""Compare Backplane with ONNX Runtime on a folder of models: results, and the time of a run.

  compare.py MODELS [NAME ...] [--backplane BINARY] [--threads 1,2] [--rounds 5] [--providers cpu] [--tolerance 1e-3]

MODELS holds NAME.onnx and NAME.inputs/INPUT.npy, as export_models.py writes them. Prints a Markdown table: the greatest
difference from ONNX Runtime without its optimisations, as a share of the output's greatest value, for both runtimes;
then milliseconds of a run, the median of the rounds' medians, and the median of the rounds' ratios. The runtimes take
turns in every round. Exit code 1: a result differs by more than the tolerance, or a model does not run.
Needs: numpy, onnx, onnxruntime.
"""
import argparse
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime

ROUND_SECONDS = 0.5


class Model:
    def __init__(self, path):
        graph = onnx.load(path, load_external_data=False).graph
        constants = {value.name for value in graph.initializer}
        folder = path.with_suffix(".inputs")
        self.path, self.name = path, path.stem
        self.files = {value.name: folder / (self.file_name(value.name) + ".npy")
                      for value in graph.input if value.name not in constants}
        self.feeds = {name: np.load(file) for name, file in self.files.items()}
        self.outputs = [value.name for value in graph.output]

    @staticmethod
    def file_name(value):
        return re.sub(r"[^A-Za-z0-9_.-]", "_", value)

    def reference(self, optimized, threads):
        return reference_session(self.path, optimized, threads)


def reference_session(path, optimized, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    level = "ORT_ENABLE_ALL" if optimized else "ORT_DISABLE_ALL"
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def call(binary, command, path, files, *options):
    """What `backplane COMMAND PATH` prints, fed with `files` by the inputs' names."""
    line = [binary, command, path, *options]
    for name, file in files.items():
        line += ["--input", f"{name}={file}"]
    done = subprocess.run([str(part) for part in line], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(" ".join(done.stderr.split())[-200:])
    return done.stdout


class Backplane:
    def __init__(self, binary, providers):
        self.binary, self.providers = binary, providers

    def call(self, command, model, *options):
        return call(self.binary, command, model.path, model.files, "--providers", self.providers, *options)

    def results(self, model):
        with tempfile.TemporaryDirectory() as folder:
            self.call("run", model, "--output-dir", folder)
            return [np.load(pathlib.Path(folder) / (Model.file_name(name) + ".npy")) for name in model.outputs]

    def milliseconds(self, model, threads, runs):
        return json.loads(self.call("bench", model, "--json", "--threads", threads, "--runs", runs))["median_ms"]


def difference(results, references):
    """The greatest difference as a share of the greatest value; infinity where shapes differ."""
    greatest = 0.0
    for result, reference in zip(results, references):
        if result.shape != reference.shape:
            return math.inf
        if result.size == 0:
            continue
        scale = float(np.abs(reference.astype(np.float64)).max()) or 1.0
        distance = np.abs(result.astype(np.float64) - reference.astype(np.float64)).max()
        greatest = max(greatest, float(distance) / scale if np.isfinite(distance) else math.inf)
    return greatest


def time_of(session, feeds):
    times, begin = [], time.monotonic()
    while len(times) < 3 or time.monotonic() - begin < ROUND_SECONDS:
        start = time.perf_counter()
        session.run(None, feeds)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def measure(model, backplane, threads, rounds):
    session = model.reference(True, threads)
    session.run(None, model.feeds)
    theirs, ours = [], []
    for _ in range(rounds):
        theirs.append(time_of(session, model.feeds))
        ours.append(backplane.milliseconds(model, threads, max(3, int(ROUND_SECONDS * 1e3 / theirs[-1]))))
    ratio = statistics.median(a / b for a, b in zip(theirs, ours))
    return statistics.median(theirs), statistics.median(ours), ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--backplane", default="build/release/bin/backplane")
    parser.add_argument("--providers", default="cpu")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    arguments = parser.parse_args()
    threads = [int(count) for count in arguments.threads.split(",")]
    backplane = Backplane(arguments.backplane, arguments.providers)
    head = "".join(f" ORT, {n} thread{'s' * (n > 1)} | Backplane | times faster |" for n in threads)
    print(f"| model | difference | ORT's own |{head}\n|---|---:|---:|" + "---:|---:|---:|" * len(threads))
    ratios, bad = {n: [] for n in threads}, 0
    for path in sorted(arguments.models.glob("*.onnx")):
        if arguments.names and path.stem not in arguments.names:
            continue
        try:
            model = Model(path)
            reference = model.reference(False, 1).run(None, model.feeds)
            own = difference(model.reference(True, 1).run(None, model.feeds), reference)
            found = difference(backplane.results(model), reference)
            cells = f"{found:.1e} | {own:.1e} |"
            bad += found > arguments.tolerance
            for n in threads:
                theirs, ours, ratio = measure(model, backplane, n, arguments.rounds)
                ratios[n].append(ratio)
                cells += f" {theirs:.3g} | {ours:.3g} | {ratio:.2f} |"
            print(f"| {model.name} | {cells}", flush=True)
        except Exception as error:  # the next model may run
            bad += 1
            print(f"| {path.stem} | {str(error).strip()[-200:]} |", flush=True)
    means = [statistics.geometric_mean(ratios[n]) if ratios[n] else math.nan for n in threads]
    print("| **geometric mean** | | |" + "".join(f" | | **{mean:.2f}** |" for mean in means))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
