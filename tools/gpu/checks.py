"""What gpu_check runs on a machine with a GPU, and the page that it writes."""

import datetime
import json
import os
import pathlib
import platform
import random
import shutil
import subprocess
import tempfile

import networks
import numpy as np
import peer

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
# How far float32 results of two devices may lie apart, relative to the largest: sums in another order, or rounded operands.
TOLERANCES = {"fp32": 1e-3, "tf32": 3e-2, "fp16": 5e-2, "bf16": 2e-1}


class Program:
    """The packed `backplane`."""

    def __init__(self, tree):
        self.tree = pathlib.Path(tree)
        self.path = self.tree / "bin/backplane"
        folders = [str(self.tree / "bundled"), os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(each for each in folders if each)}

    def call(self, *arguments, before=(), **more):
        return subprocess.run([*before, self.path, *map(str, arguments)], capture_output=True, text=True,
                              env=self.environment, check=False, **more)

    def device(self):
        made = self.call("providers", "--json")
        if made.returncode != 0:
            return {"devices": [], "reason": made.stderr.strip() or f"the program ended with {made.returncode}"}
        rows = [row for row in json.loads(made.stdout) if row["file"].endswith("/cuda.so")]
        return rows[0] if rows else {"devices": [], "reason": "cuda.so is not in the tree"}

    def why_no_device(self):
        row = self.device()
        return "" if row["devices"] else row["reason"] or "the driver shows none"


class Page:
    """Sections of Markdown; a failure anywhere fails the whole."""

    def __init__(self):
        self.lines, self.failures = [], 0

    def section(self, title, heads):
        self.lines += ["", f"## {title}", "", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
        print(f"gpu_check: {title}", flush=True)

    def row(self, *cells):
        self.lines.append("| " + " | ".join(str(cell).replace("|", "/").replace("\n", " ") for cell in cells) + " |")

    def result(self, passed, *cells):
        self.failures += not passed
        self.row(*cells, "passed" if passed else "**failed**")


def last_line(made):
    lines = (made.stderr or made.stdout).strip().splitlines()
    return lines[-1][:300] if lines else f"ended with {made.returncode}"


def operators(program, page):
    """Every kernel of the provider against the CPU provider and formulas, by the conformance suite."""
    page.section("Operators", ["suite", "result", ""])
    made = program.call("check", program.tree / "lib/backplane/plugins/cuda.so")
    closing = (made.stdout.strip().splitlines() or [last_line(made)])[-1]
    page.result(made.returncode == 0, "backplane check cuda.so", closing)
    for line in made.stdout.splitlines():
        if line.startswith("failed"):
            page.row("", line[:300], "")


def outputs(program, model, folder, x, *arguments):
    """The first output, or the line that says why there is none."""
    np.save(folder / "x.npy", x)
    shutil.rmtree(folder / "out", ignore_errors=True)
    made = program.call("run", model, "--input", f"x={folder / 'x.npy'}", "--output-dir", folder / "out", *arguments)
    if made.returncode != 0:
        return None, last_line(made)
    return np.load(next((folder / "out").glob("*.npy"))).astype(np.float64), ""


def distance(got, want):
    if got.shape != want.shape or not np.isfinite(got).all():
        return float("inf")
    return float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-12))


def models_of(folder, quick):
    """Name, file and input of each model that is checked."""
    made = []
    builders = {"perceptron": networks.perceptron, "residual_network": networks.residual_network,
                "encoder": networks.encoder}
    small = {"residual_network": {"size": 64}, "encoder": {"layers": 2, "tokens": 32}}
    for name, build in builders.items():
        for batch in (1, 3):
            path = folder / f"{name}_{batch}.onnx"
            net = build(path, batch=batch, **(small.get(name, {}) if quick else {}))
            x = np.random.default_rng(7).standard_normal(net.inputs[0][1]).astype(np.float32)
            made.append((f"{name}, batch {batch}", path, x, [node for node, _ in net.nodes]))
    return made


def whole_models(program, page, models, folder):
    page.section("Models wholly on the device (--fallback forbid)", ["model", "precision", "largest difference", ""])
    for name, path, x, _ in models:
        want, why = outputs(program, path, folder, x, "--providers", "cpu")
        for precision in PRECISIONS:
            got = None
            if want is not None:
                got, why = outputs(program, path, folder, x, "--providers", "cuda", "--fallback", "forbid",
                                   "--precision", precision)
            apart = float("inf") if got is None else distance(got, want)
            page.result(apart <= TOLERANCES[precision], name, precision, why or f"{apart:.2e}")


def random_placements(program, page, models, folder, count):
    page.section("Random placements over cuda and cpu", ["model", "seed", "largest difference", ""])
    for name, path, x, nodes in models:
        want, why = outputs(program, path, folder, x, "--providers", "cpu")
        for seed in range(count):
            draw = random.Random(seed)
            rules = [f"--place={node}={draw.choice(('cuda', 'cpu'))}" for node in nodes]
            got = None
            if want is not None:
                got, why = outputs(program, path, folder, x, "--providers", "cuda,cpu", *rules)
            apart = float("inf") if got is None else distance(got, want)
            page.result(apart <= TOLERANCES["fp32"], name, seed, why or f"{apart:.2e}")


def faults(program, page, models, folder):
    """Each must end with one clear line and the right code, never by a signal."""
    page.section("Faults", ["what", "said", ""])
    _, path, x, _ = models[-1]
    np.save(folder / "x.npy", x)
    rows = [("a limit of 1 MiB of device memory", ["--set", "provider.cuda.memory_limit_mb=1"], "memory_limit_mb"),
            ("a user stream that is none", ["--set", "provider.cuda.user_stream=64"], "user_stream"),
            ("an unknown precision of a node", ["--set", "provider.cuda.precision_of=op:MatMul=fp64"], "precision_of")]
    for what, arguments, word in rows:
        made = program.call("run", path, "--input", f"x={folder / 'x.npy'}", "--output-dir", folder / "out",
                            "--providers", "cuda", "--fallback", "forbid", *arguments)
        page.result(made.returncode in (2, 3) and word in made.stderr, what, last_line(made))


def sanitizer(program, page, models, folder):
    page.section("compute-sanitizer", ["model", "said", ""])
    found = shutil.which("compute-sanitizer")
    if found is None:
        page.row("", "not run: it is not on this machine", "")
        return
    for name, path, x, _ in models[:2]:
        np.save(folder / "x.npy", x)
        made = program.call("run", path, "--input", f"x={folder / 'x.npy'}", "--output-dir", folder / "out",
                            "--providers", "cuda", "--fallback", "forbid", before=[found, "--error-exitcode", "9"])
        page.result(made.returncode == 0, name, last_line(made))


def bench(program, path, precision, runs, *more):
    """The figures of `backplane bench`, or why there are none."""
    made = program.call("bench", path, "--providers", "cuda", "--fallback", "forbid", "--precision", precision,
                        "--warmup", "10", "--runs", str(runs), "--json", *more)
    return (json.loads(made.stdout), "") if made.returncode == 0 else (None, last_line(made))


def limits(program, page, folder, quick):
    """TFLOP/s of one large product by element type and precision, GB/s of a pass over memory."""
    page.section("The device's limits, measured in this run", ["what", "limit"])
    reached = {}
    size = 1024 if quick else 8192
    for label, dtype, precision in [("float16", np.float16, "fp32")] + [(f"float32, {p}", np.float32, p)
                                                                       for p in PRECISIONS]:
        net = networks.product(folder / "product.onnx", size, dtype)
        figures, why = bench(program, folder / "product.onnx", precision, 20)
        if figures:
            reached[label] = net.flops / (figures["min_ms"] * 1e9)
        page.row(f"product of {size} x {size}, {label}", f"{reached[label]:.1f} TFLOP/s" if figures else why)
    megabytes = 16 if quick else 256
    networks.copy(folder / "copy.onnx", megabytes)
    figures, why = bench(program, folder / "copy.onnx", "fp32", 20)
    page.row(f"Neg of {megabytes} MiB, read and written",
             f"{2 * megabytes * 1.048576 / figures['min_ms']:.0f} GB/s" if figures else why)
    return reached


def overhead(program, page, folder, quick):
    """What a node costs beside its work, by two chains of nodes with nothing to do that are not fused."""
    page.section("Overhead per node", ["capture", "one run of the short chain, median us", "per node, us"])
    few, many = (8, 40) if quick else (64, 1024)
    for capture in ("off", "auto"):
        found = {}
        for nodes in (few, many):
            networks.chain(folder / "chain.onnx", nodes)
            found[nodes], why = bench(program, folder / "chain.onnx", "fp32", 20 if quick else 300, "--set",
                                      f"capture={capture}", "--set", "provider.cuda.fusion=false")
            if found[nodes] is None:
                page.row(capture, why, "")
                break
        else:
            per_node = 1e3 * (found[many]["median_ms"] - found[few]["median_ms"]) / (many - few)
            page.row(capture, f"{1e3 * found[few]['median_ms']:.1f}", f"{per_node:.3f}")
    page.lines += ["", "The host's time of a replayed plan, the bare graph launch subtracted, was not measured: the program "
                   "does not time the launch by itself. What the core does for a replay, without a device, is "
                   "`fault_capture_cost`'s figure."]


def rows_of_benchmark(folder, quick):
    """Network by network: its name, batch, element type and file."""
    small = {"residual_network": {"size": 64}, "encoder": {"layers": 2, "tokens": 32}}
    for name, build in (("residual_network", networks.residual_network), ("encoder", networks.encoder)):
        for batch in (1, 8, 32):
            for dtype in (np.float32, np.float16):
                path = folder / "bench.onnx"
                yield name, batch, dtype, path, build(path, batch=batch, dtype=dtype, **(small[name] if quick else {}))


def peer_ms(torch, net, precision, runs):
    """The peer's median, or None and why there is none: its failure is not ours."""
    try:
        return peer.median_ms(torch, net, precision, runs), ""
    except Exception as error:  # whatever PyTorch raises
        return None, f"{type(error).__name__}: {error}"[:100]


def benchmark(program, page, folder, quick):
    reached = limits(program, page, folder, quick)
    overhead(program, page, folder, quick)
    torch, missing = peer.find()
    page.section("Networks (feeds and fetches in host memory)",
                 ["network", "batch", "elements", "precision", "median ms", "without capture", "TFLOP/s",
                  "share of the limit", "PyTorch's median ms", "PyTorch's / ours"])
    runs = 20 if quick else 100
    for name, batch, dtype, path, net in rows_of_benchmark(folder, quick):
        for precision in PRECISIONS if dtype is np.float32 else ("fp32",):
            figures, why = bench(program, path, precision, runs, "--set", "capture=auto")
            plain, _ = bench(program, path, precision, runs, "--set", "capture=off")
            limit = reached.get("float16" if dtype is np.float16 else f"float32, {precision}")
            if figures is None:
                page.row(name, batch, dtype.__name__, precision, why, *[""] * 5)
                continue
            rate = net.flops / (figures["median_ms"] * 1e9)
            theirs, failed = peer_ms(torch, net, precision, runs) if torch is not None else (None, "not measured")
            page.row(name, batch, dtype.__name__, precision, f"{figures['median_ms']:.3f}",
                     f"{plain['median_ms']:.3f}" if plain else "", f"{rate:.2f}",
                     f"{100 * rate / limit:.0f} %" if limit else "", f"{theirs:.3f}" if theirs else failed,
                     f"{theirs / figures['median_ms']:.2f}" if theirs else "")
    page.lines += ["", f"PyTorch, the peer, was not measured: {missing}." if torch is None else
                   f"The peer is PyTorch {torch.__version__}: the same nodes, one function each, in one CUDA graph, with copies "
                   "from and to pinned memory in its time, as ours are; fp16 and bf16 by autocast."]


def run_all(program, report, quick):
    device = program.device()["devices"][0]
    page = Page()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        models = models_of(folder, quick)
        operators(program, page)
        whole_models(program, page, models, folder)
        random_placements(program, page, models, folder, 2 if quick else 10)
        faults(program, page, models, folder)
        sanitizer(program, page, models, folder)
        benchmark(program, page, folder, quick)
    smi = shutil.which("nvidia-smi")
    driver = subprocess.run([smi, "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True,
                            text=True, check=False).stdout.split() if smi else []
    head = ["# What of the CUDA provider has run on a GPU", "",
            f"By `gpu_check run{' --quick' if quick else ''}`, {datetime.date.today().isoformat()}: {device['name']}, "
            f"driver {driver[0] if driver else 'not known'}, {platform.machine()}, {os.cpu_count()} CPUs.",
            f"{page.failures} of the checks below failed."]
    report.write_text("\n".join(head + page.lines) + "\n")
    print(f"gpu_check: {report} is written; {page.failures} failed", flush=True)
    return 1 if page.failures else 0
