#!/usr/bin/env python3
"""Compare Backplane with ONNX Runtime on language models that decode token by token: results, and the time of a token.

  compare_decoding.py MODELS [NAME ...] [--backplane BINARY] [--threads 1,2] [--past 64,1024] [--prompt 128]
                      [--tokens 32] [--rounds 3] [--tolerance 1e-3]

MODELS holds NAME.onnx with the inputs that decoders have (input_ids, attention_mask, position_ids, past_key_values.*),
as decoder_models.py writes them. Every token is a run whose keys and values are one longer than the last one's, and
both runtimes make their results anew. Prints a Markdown table: the greatest difference from ONNX Runtime without its
optimisations, then milliseconds of a run, the median over tokens and rounds, and the median of the rounds' ratios. A
prompt is one run without a past. Exit code 1: a result differs by more than the tolerance, or a model does not run.
Needs: numpy, onnx, onnxruntime.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np
import onnx

import compare

PAST, TOTAL = "past_sequence_length", "total_sequence_length"


class Decoder:
    def __init__(self, path):
        self.path, self.name = path, path.stem
        self.graph = onnx.load(path, load_external_data=False).graph
        self.outputs = [value.name for value in self.graph.output]

    def feeds(self, length, past):
        """Of `length` tokens after `past` ones."""
        random = np.random.default_rng(past)
        made = {}
        for value in self.graph.input:
            if value.name == "input_ids":
                made[value.name] = random.integers(0, 256, (1, length))
            elif value.name == "attention_mask":
                made[value.name] = np.ones((1, past + length), np.int64)
            elif value.name == "position_ids":
                made[value.name] = np.arange(past, past + length).reshape(1, -1)
            else:
                sizes = {"batch_size": 1, PAST: past}
                dims = [dim.dim_value or sizes[dim.dim_param] for dim in value.type.tensor_type.shape.dim]
                dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
                made[value.name] = random.standard_normal(dims, dtype=np.float32).astype(dtype)
        return made

    def session(self, optimized, threads):
        return compare.reference_session(self.path, optimized, threads)


class Backplane:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, pathlib.Path(folder)

    def call(self, command, decoder, feeds, *options):
        files = {name: self.folder / f"{name}.npy" for name in feeds}
        for name, array in feeds.items():
            np.save(files[name], array)
        return compare.call(self.binary, command, decoder.path, files, "--providers", "cpu", *options)

    def results(self, decoder, feeds):
        out = self.folder / "out"
        self.call("run", decoder, feeds, "--output-dir", out)
        return [np.load(out / f"{name}.npy") for name in decoder.outputs]

    def token_times(self, decoder, past, tokens, threads):
        last = past + tokens - 1
        made = json.loads(self.call("bench", decoder, decoder.feeds(1, last), "--json", "--threads", threads,
                                    "--warmup", 1, "--runs", 1, "--grow", f"{PAST}={past}:{last}",
                                    "--grow", f"{TOTAL}={past + 1}:{last + 1}"))
        return made["growing_ms"]

    def prompt_time(self, decoder, length, threads, runs):
        return json.loads(self.call("bench", decoder, decoder.feeds(length, 0), "--json", "--threads", threads,
                                    "--runs", runs))["median_ms"]


def their_time(session, feeds_of_runs):
    times = []
    for feeds in feeds_of_runs:
        start = time.perf_counter()
        session.run(None, feeds)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def compared(pairs):
    theirs, ours = zip(*pairs)
    ratio = statistics.median(a / b for a, b in pairs)
    return f" {statistics.median(theirs):.3g} | {statistics.median(ours):.3g} | {ratio:.2f} |"


def row(decoder, backplane, arguments, threads):
    reference = decoder.session(False, 2)
    found = 0.0
    for length, past in ((1, arguments.past[0]), (3, 5), (arguments.prompt, 0)):
        feeds = decoder.feeds(length, past)
        found = max(found, compare.difference(backplane.results(decoder, feeds), reference.run(None, feeds)))
    cells = f" {found:.1e} |"
    for count in threads:
        session = decoder.session(True, count)
        for past in arguments.past:
            feeds = [decoder.feeds(1, past + i) for i in range(arguments.tokens)]
            session.run(None, feeds[0])
            cells += compared([(their_time(session, feeds),
                                backplane.token_times(decoder, past, arguments.tokens, count))
                               for _ in range(arguments.rounds)])
        feeds = decoder.feeds(arguments.prompt, 0)
        session.run(None, feeds)
        cells += compared([(their_time(session, [feeds] * 5),
                            backplane.prompt_time(decoder, arguments.prompt, count, 5))
                           for _ in range(arguments.rounds)])
    return found, cells


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--backplane", default="build/release/bin/backplane")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--past", type=lambda text: [int(part) for part in text.split(",")], default=[64, 1024])
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    arguments = parser.parse_args()
    threads = [int(count) for count in arguments.threads.split(",")]
    kinds = [f"token after {past}" for past in arguments.past] + [f"prompt of {arguments.prompt}"]
    head = "".join(f" {kind}, {n} thread{'s' * (n > 1)}: ORT | Backplane | times faster |" for n in threads for kind in kinds)
    print(f"| model | difference |{head}\n|---|---:|" + "---:|---:|---:|" * len(threads) * len(kinds))
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        backplane = Backplane(arguments.backplane, folder)
        for path in sorted(arguments.models.glob("*.onnx")):
            if arguments.names and path.stem not in arguments.names:
                continue
            try:
                found, cells = row(Decoder(path), backplane, arguments, threads)
                bad += found > arguments.tolerance
                print(f"| {path.stem} |{cells}", flush=True)
            except Exception as error:  # the next model may run
                bad += 1
                print(f"| {path.stem} | {str(error).strip()[-200:]} |", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
