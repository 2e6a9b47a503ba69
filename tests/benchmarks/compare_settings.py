#!/usr/bin/env python3
"""Times models under two configurations, in pairs, and prints the ratio of their medians.

  tests/benchmarks/compare_settings.py --b execution_mode=parallel --pairs 20 MODEL.onnx ...

A pair is one process of `backplane bench` for each configuration, in turn first one and then the
other, so that a machine that slows down slows both. A model's figure is the median over its pairs
of the median times (ms), the ratio b/a is the median of the pairs' ratios. --a and --b give
KEY=VALUE of the configuration, any number of times; what both share goes to --arguments.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def median_ms(program, model, settings, arguments):
    command = [program, "bench", str(model), "--json", *arguments]
    for setting in settings:
        command += ["--set", setting]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{shlex.join(command)}: {run.stderr.strip()}")
    return json.loads(run.stdout)["median_ms"]


def compare(model, options):
    times = {"a": [], "b": []}
    for pair in range(options.pairs):
        order = ("a", "b") if pair % 2 == 0 else ("b", "a")
        for side in order:
            times[side].append(median_ms(options.backplane, model, getattr(options, side), options.arguments))
    ratios = [b / a for a, b in zip(times["a"], times["b"])]
    return statistics.median(times["a"]), statistics.median(times["b"]), ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--a", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--b", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--arguments", type=shlex.split, default=["--threads", "2"], help="of both; --threads 2 if not given")
    parser.add_argument("--backplane", default=os.fspath(ROOT / "build" / "release" / "bin" / "backplane"))
    options = parser.parse_args()
    print(f"a: {' '.join(options.a) or 'defaults'}; b: {' '.join(options.b) or 'defaults'}; "
          f"both: {' '.join(options.arguments)}; {options.pairs} pairs")
    print(f"{'model':24} {'a ms':>9} {'b ms':>9} {'b/a':>6}  least..most")
    for model in options.models:
        a, b, ratios = compare(model, options)
        print(f"{model.stem:24} {a:9.3f} {b:9.3f} {statistics.median(ratios):6.3f}  {min(ratios):.3f}..{max(ratios):.3f}",
              flush=True)


if __name__ == "__main__":
    main()
