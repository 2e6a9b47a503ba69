"""The phase of gpu_check that times kernel by kernel: by the provider's own events, and then, while there is time, by ncu, else by
nsys."""

import csv
import glob
import os
import shutil

import figures
import networks
import numpy as np
from programs import last_line

METRIC = "gpu__time_duration.sum"
# Microseconds; older and newer names of the profilers.
UNITS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}
MOST_SHOWN = 10
# What a profiler's try takes at least; it is not begun with less.
LEAST_S = 20
BATCHES = {"resnet50_dyn": (1, 32), "bert_dyn": (1, 8)}
PLACES = {"ncu": ["/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu"], "nsys": ["/usr/local/cuda*/bin/nsys"]}


def find(tool):
    places = [path for pattern in PLACES[tool] for path in sorted(glob.glob(pattern), reverse=True)]
    return shutil.which(tool) or next((path for path in places if os.access(path, os.X_OK)), None)


def table(text, column):
    """The rows of what a program printed, from the line of heads on that has the column; they end where something else is
    said."""
    lines = text.splitlines()
    first = next((at for at, line in enumerate(lines) if column in next(csv.reader([line]), [])), len(lines))
    heads = next(csv.reader(lines[first:]), [])
    cells = [next(csv.reader([line]), []) for line in lines[first + 1:]]
    return [dict(zip(heads, row)) for row in cells if len(row) == len(heads)]


def of_ncu(text):
    """(name, microseconds) of each kernel."""
    return [(row["Kernel Name"], float(row["Metric Value"].replace(",", "")) * UNITS[row["Metric Unit"]])
            for row in table(text, "Metric Value") if row["Metric Name"] == METRIC]


def of_nsys(text):
    return [(row["Name"], 1e-3 * float(row["Duration (ns)"].replace(",", ""))) for row in table(text, "Duration (ns)")]


def why(made):
    """A profiler's own word for what went wrong, which is seldom the last one."""
    lines = [line.strip() for line in (made.stdout + "\n" + made.stderr).splitlines()]
    said = [line for line in lines if "ERR_NVGPUCTRPERM" in line] or [line for line in lines if line.startswith("==ERROR==")]
    return said[0][:300] if said else last_line(made)


def by_ncu(work, words):
    tool = find("ncu")
    if tool is None:
        return [], "it is not on this machine"
    # Neither the clocks nor the caches of a run as it is are to be changed.
    made = work.program.execute(
        [tool, "--clock-control", "none", "--cache-control", "none", "--profile-from-start", "off", "--target-processes", "all",
         "--metrics", METRIC, "--print-units", "base", "--csv", work.program.tree / "bin/gpu_probe", *words, "--one-run", "marked"],
        most_s=90, environment={"LC_ALL": "C"})
    found = of_ncu(made.stdout)
    return found, "" if found else why(made)


def by_nsys(work, words):
    tool = find("nsys")
    if tool is None:
        return [], "it is not on this machine"
    report = work.folder / "kernels"
    made = work.program.execute(
        [tool, "profile", "--trace=cuda", "--sample=none", "--cpuctxsw=none", "--capture-range=cudaProfilerApi",
         "--capture-range-end=stop", "--force-overwrite=true", "-o", report, work.program.tree / "bin/gpu_probe", *words,
         "--one-run", "marked"], most_s=90)
    if made.returncode != 0:
        return [], why(made)
    made = work.program.execute([tool, "stats", "--report", "cuda_gpu_trace", "--format", "csv", "--force-export=true",
                                 f"{report}.nsys-rep"], most_s=60, environment={"LC_ALL": "C"})
    found = of_nsys(made.stdout)
    return found, "" if found else why(made)


def by_events(work, words):
    found, said = work.program.probe(*words, "--one-run", "traced")
    return [(each["name"], each["us"]) for each in (found or {}).get("kernels", [])], said or "there are none"


EVENTS = "the provider's events"
PROFILERS = {"ncu": by_ncu, "nsys": by_nsys}


def timed(work, ways, words):
    """By the first of the ways that works; those that do not are taken out of `ways`, and noted."""
    for way in list(ways):
        found, said = PROFILERS[way](work, words)
        if found:
            return way, found
        ways.remove(way)
        work.page.note(f"Kernels are not timed by {way}: {said}")
    return "", []


def add_table(page, title, way, found, latency_ms):
    page.section(f"Kernels of {title}, by {way}", ["kernel", "times", "us", "share"])
    total = sum(us for _, us in found)
    sums = {}
    for name, us in found:
        count, so_far = sums.get(name, (0, 0.0))
        sums[name] = count + 1, so_far + us
    dearest = sorted(sums.items(), key=lambda each: -each[1][1])
    for name, (count, us) in dearest[:MOST_SHOWN]:
        page.row(name[:120], count, f"{us:.2f}", f"{100 * us / total:.1f} %")
    if dearest[MOST_SHOWN:]:
        rest = [times for _, times in dearest[MOST_SHOWN:]]
        us = sum(us for _, us in rest)
        page.row(f"{len(rest)} others", sum(count for count, _ in rest), f"{us:.2f}", f"{100 * us / total:.1f} %")
    page.row("all of them", len(found), f"{total:.2f}", "")
    page.row("latency of a run, and its ratio to the sum", "", f"{1e3 * latency_ms:.2f}", f"{1e3 * latency_ms / total:.2f}")


def kernels(work):
    """What each kernel of a float16 network takes in one run that is warm and not captured, and what a run takes beside
    their sum."""
    page = work.page
    sizes = figures.QUICK_SIZES if work.quick else {}
    timed_networks = []
    for name, batches in BATCHES.items():
        path, feed = work.folder / f"{name}.onnx", work.folder / f"{name}_feed.onnx"
        networks.feed(feed, getattr(networks, name)(path, dtype=np.float16, **sizes.get(name, {})))
        for batch in batches:
            size = ("--dim", f"{networks.SYMBOL}={batch}")
            whole, said = figures.probe(work, path, feed, "fp32", 5 if work.quick else 100, "--set", "capture=auto", *size)
            if whole is None:
                page.section(f"Runs of {name}, float16, batch {batch}", ["what", ""])
                page.measured(False, "captured", said)
                whole, said = figures.probe(work, path, feed, "fp32", 5 if work.quick else 100, "--set", "capture=off", *size)
            words = figures.words_of_probe(work, path, feed, "fp32", "--set", "capture=off", *size)
            found, why_not = by_events(work, words)
            title = f"{name}, float16, batch {batch}"
            if not found or whole is None:
                page.section(f"Kernels of {title}, by {EVENTS}", ["what", ""])
                page.measured(False, "not measured", said or why_not)
            else:
                keep_table(page, f"{name} {batch}", title, EVENTS, found, whole)
            timed_networks.append((f"{name} {batch}", title, words, whole))
    ways = list(PROFILERS)
    for key, title, words, whole in timed_networks:
        if work.program.left_s() < LEAST_S:
            page.note("There was no time left for profilers.")
            break
        way, found = timed(work, ways, words)
        if found and whole is not None:
            keep_table(page, key, title, way, found, whole)
    page.note("Kernels are those of one run without capture, clocks and caches as that run finds them; the latency is that of a "
              "run that is captured where it can be. ncu and events run each kernel by itself, so that their sum has no gaps.")


def keep_table(page, key, title, way, found, whole):
    page.values[f"{key} by {way}"] = {"latency_ms": whole["latency_ms"], "nodes": whole.get("kernels"), "us": found}
    add_table(page, title, way, found, whole["latency_ms"])
