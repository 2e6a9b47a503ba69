"""The phases of gpu_check that measure: the device's limits, what a run costs beside its work, overlap, networks."""

import json
import math
import sys

import networks
import numpy as np
import roofs
from checks import ON_CUDA, PRECISIONS, SMALL_DECODER, TOLERANCES, models_of
from programs import last_line


# What a program that measures a network may take: cuDNN compiles plans that it has not kept yet, two or three seconds of them a network.
PREPARE_S = 60
# As gpu_probe has it: the clocks of an idle device are low.
WARM_UP_S = 0.5
QUICK_SIZES = {"resnet50_dyn": {"size": 64}, "bert_dyn": {"layers": 2, "tokens": 32}}


def warm_up(work, latency_ms=None):
    """How many runs `backplane bench` needs for it; where nobody knows what one takes, a number that is enough for most."""
    if work.quick:
        return 10
    return max(10, min(20_000, math.ceil(1e3 * WARM_UP_S / latency_ms))) if latency_ms else 200


def bench(program, path, precision, runs, *more, warm_up_runs=10):
    """The figures of `backplane bench`, or why there are none."""
    made = program.call("bench", path, *ON_CUDA, "--precision", precision, "--warmup", warm_up_runs, "--runs", runs, "--json", *more,
                        most_s=PREPARE_S)
    return (json.loads(made.stdout), "") if made.returncode == 0 else (None, last_line(made))


def probe(work, path, feed, precision, runs, *more):
    """What runs take with feeds and fetches on the device, or why that is not known."""
    return work.program.probe(*words_of_probe(work, path, feed, precision, *more), "--runs", runs, most_s=PREPARE_S)


def words_of_probe(work, path, feed, precision, *more):
    return ["model", path, "--feed", feed, "--provider", "cuda", "--set", f"precision={precision}",
            "--warm-up", 0 if work.quick else WARM_UP_S, *more]


def number(figures, key, digits):
    return f"{figures[key]:.{digits}f}" if figures and figures.get(key) is not None else ""


def limits(work):
    """TFLOP/s of one large product by element type, by cuBLASLt alone; GB/s of copies; launches of bare graphs."""
    page = work.page
    page.section("The device's limits, measured without the provider", ["what", "limit"])
    found, why = work.program.probe("limits", *(["--quick"] if work.quick else []))
    if found is None:
        page.measured(False, "gpu_probe limits", f"not measured: {why}")
        return
    page.values["limits"] = found
    rates = found["tflops"]
    for kind, rate in rates.items() if isinstance(rates, dict) else [("", rates)]:
        text = f"{rate:.1f} TFLOP/s" if isinstance(rate, (int, float)) else f"not measured: {rate}"
        page.row(f"cuBLASLt, {found['product_size']} x {found['product_size']}, {kind}", text)
    copies = found["gb_per_s"]
    names = {"device": "copy on the device, read and written", "to_device": "copy to the device, pinned",
             "from_device": "copy from the device, pinned"}
    for kind, rate in copies.items() if isinstance(copies, dict) else [("device", copies)]:
        page.row(names[kind], f"{rate:.0f} GB/s" if isinstance(rate, (int, float)) else f"not measured: {rate}")
    for graph in found["graphs"]:
        page.row(*((f"bare launch of a graph of {graph['nodes']} {graph['of']}: host, and until done",
                    f"{graph['launch_us']:.2f} us, {graph['whole_us']:.1f} us") if isinstance(graph, dict) else
                   ("bare launch of a graph", f"not measured: {graph}")))


def overhead(work):
    """What a node costs beside its work, by chains of nodes with nothing to do that are not fused; and what the host
    does for a replayed plan, the launch of a bare graph of as many empty kernels subtracted."""
    page, program = work.page, work.program
    bare = {graph["nodes"]: graph["launch_us"] for graph in (work.limits() or {}).get("graphs", [])
            if isinstance(graph, dict) and graph["of"] == "empty kernels"}
    page.section("What a run costs beside its work (chains of nodes, not fused; feeds and fetches on the device)",
                 ["nodes", "capture", "waited for, us", "on the host, us", "bare graph launch, us", "host less launch, us",
                  "on the device, us"])
    runs = 20 if work.quick else 300
    latencies = {}
    for nodes in (1, 64, 1024) if not work.quick else (1, 64):
        path, feed = work.folder / "chain.onnx", work.folder / "chain_feed.onnx"
        networks.feed(feed, networks.chain(path, nodes))
        for capture in ("off", "auto"):
            found, why = probe(work, path, feed, "fp32", runs, "--set", f"capture={capture}", "--set", "provider.cuda.fusion=false")
            latencies[nodes, capture] = found and found["latency_ms"]
            launch = bare.get(nodes) if capture == "auto" else None
            page.measured(found, nodes, capture, f"{1e3 * found['latency_ms']:.1f}" if found else why, number(found, "host_us", 2),
                          f"{launch:.2f}" if launch else "", f"{found['host_us'] - launch:.2f}" if found and launch else "",
                          f"{1e3 * found['device_ms']:.1f}" if found and found["device_ms"] is not None else "")
    page.section("Overhead per node (feeds and fetches in host memory)",
                 ["capture", "one run of the short chain, median us", "per node, us"])
    few, many = (8, 40) if work.quick else (64, 1024)
    for capture in ("off", "auto"):
        found, why = {}, ""
        for nodes in (few, many):
            networks.chain(work.folder / "chain.onnx", nodes)
            found[nodes], said = bench(program, work.folder / "chain.onnx", "fp32", runs, "--set", f"capture={capture}", "--set",
                                       "provider.cuda.fusion=false", warm_up_runs=warm_up(work, latencies.get((nodes, capture))))
            why = why or said
        if why:
            page.measured(False, capture, why, "")
            continue
        per_node = 1e3 * (found[many]["median_ms"] - found[few]["median_ms"]) / (many - few)
        page.row(capture, f"{1e3 * found[few]['median_ms']:.1f}", f"{per_node:.3f}")


def overlap(work):
    """Uploads of one run beside the products of another: two callers against one, and each part by itself."""
    page, program = work.page, work.program
    page.section("Upload and compute (a large input, products, a small output)",
                 ["what", "ms per run"])
    sizes = {"rows": 256, "width": 256} if work.quick else {}
    path, feed = work.folder / "tower.onnx", work.folder / "tower_feed.onnx"
    net = networks.tower(path, **sizes)
    networks.feed(feed, net)
    runs = 4 if work.quick else 60
    rates = (work.limits() or {}).get("gb_per_s")
    upload = None
    if isinstance(rates, dict):
        upload = 4 * np.prod(net.inputs[0][1]) / (rates["to_device"] * 1e6)
    page.row("upload alone, by the limit of copies from pinned memory", f"{upload:.3f}" if upload else "not measured")
    alone, why = probe(work, path, feed, "tf32", runs)
    page.measured(alone, "compute alone, the input on the device", number(alone, "latency_ms", 3) or why)
    times = {}
    for callers in (1, 2, 4):
        figures, why = bench(program, path, "tf32", runs, "--callers", callers,
                             warm_up_runs=warm_up(work, alone and alone["latency_ms"]))
        times[callers] = 1e3 / figures["runs_per_s"] if figures else None
        page.measured(figures, f"both, {callers} caller{'s' if callers > 1 else ''}", f"{times[callers]:.3f}" if figures else why)
    if upload and alone and times[1] and times[2]:
        best = min(time for time in times.values() if time)
        compute = alone["latency_ms"]
        page.note(f"Of the shorter of upload and compute ({min(upload, compute):.3f} ms) "
                  f"{100 * max(0.0, upload + compute - best) / min(upload, compute):.0f} % are hidden behind the "
                  "other by the best of these; the input lies "
                  "in the caller's pageable memory, so it goes by way of pinned memory, piece by piece, which is in the time.")


PRECISIONS_OF = {np.float16: ("fp32",), np.float32: ("fp16", "fp32", "tf32", "bf16")}
BATCHES = (1, 32, 8)  # what matters most first


class Peer:
    """PyTorch's times, a network at a time: by a process of its own, with its own libraries, whose failure is not ours. It is
    looked for when it is first asked."""

    def __init__(self, work, runs):
        self.work, self.runs, self.found, self.missing = work, runs, {}, None

    def times(self, name, dtype, batch, precision):
        """Its row, or None and why there is none."""
        if self.missing is None:
            self.missing = self.work.why_no_peer()
        if self.missing:
            return None, "not measured"
        if (name, dtype) not in self.found:
            self.found[name, dtype] = self.measure(name, dtype)
        rows, why = self.found[name, dtype]
        row = rows.get((batch, precision), {})
        if "variant" in row:
            return row, ""
        return None, next(iter(row.get("failed", {}).values()), why or "not measured")

    def measure(self, name, dtype):
        pairs = [f"{batch}:{precision}" for batch in BATCHES for precision in PRECISIONS_OF[dtype]]
        made = self.work.program.execute([sys.executable, self.work.tools / "peer.py", name, np.dtype(dtype).name, self.runs,
                                          "quick" if self.work.quick else "whole", *pairs],
                                         most_s=60 + 20 * len(pairs), environment=self.work.own_libraries)
        rows = [json.loads(line) for line in made.stdout.splitlines() if line.startswith("{") and line.endswith("}")]
        self.work.page.values[f"peer of {name} {np.dtype(dtype).name}"] = rows
        return {(row["batch"], row["precision"]): row for row in rows}, "" if made.returncode == 0 else last_line(made)


def rows_of_benchmark(work, dtype):
    """Network by network: its name, file, feeding model, batch, FLOP of one run, and its layers."""
    sizes = QUICK_SIZES if work.quick else {}
    made = {}
    for build in (networks.resnet50_dyn, networks.bert_dyn):
        name = build.__name__
        path, feed = work.folder / f"{name}.onnx", work.folder / f"{name}_feed.onnx"
        net = build(path, dtype=dtype, **sizes.get(name, {}))
        networks.feed(feed, net)
        made[name] = (path, feed, net.flops, roofs.layers(net))
    for batch in BATCHES:
        for name, (path, feed, flops, layers) in made.items():
            yield name, path, feed, batch, flops * batch, layers


def captured(found):
    """How much of a plan is launched as graphs, and the first reason for what is not."""
    capture = found.get("capture") or {}
    outside = capture.get("outside") or []
    text = f"{len(capture.get('ranges') or [])} graphs"
    if not outside:
        return text
    return f"{text}, {sum(each.get('steps', 0) for each in outside)} steps beside them: {outside[0].get('reason', '')}"[:120]


NETWORK_HEADS = [
    "network", "batch", "elements", "precision", "latency, ms", "without capture", "on the device, ms", "latency / device", "host, us",
    "TFLOP/s", "share of the limit", "share with one kernel a layer", "from host memory, ms", "captured"]
PEER_HEADS = [
    "network", "batch", "elements", "precision", "ours, ms", "PyTorch's latency, ms", "its best way", "PyTorch's / ours",
    "ours from host memory, ms", "PyTorch's from there, ms", "PyTorch's / ours from there"]


def benchmark(work):
    """resnet50_dyn and bert_dyn of float16, batches 1, 8 and 32: latency, time on the device, share of the limit, and the peer."""
    measure_networks(work, np.float16)


def benchmark_float32(work):
    """The same networks of float32, in every precision."""
    measure_networks(work, np.float32)


def measure_networks(work, dtype):
    """All that is ours, and then the peer beside it."""
    page = work.page
    elements = np.dtype(dtype).name
    page.section(f"Networks of {elements}", NETWORK_HEADS)
    runs = 5 if work.quick else 100
    measured = {}
    for name, path, feed, batch, flops, layers in rows_of_benchmark(work, dtype):
        for precision in PRECISIONS_OF[dtype]:
            measured[name, batch, precision] = measure_network(work, (name, path, feed, batch, flops, layers), dtype, precision, runs)
    peer = Peer(work, runs)
    page.section(f"PyTorch beside networks of {elements}", PEER_HEADS)
    for (name, batch, precision), (best, hosts) in measured.items():
        page.row(name, batch, elements, precision, *beside(peer, (name, dtype, batch, precision), best, hosts))
    add_notes(page, peer)


def measure_network(work, network, dtype, precision, runs):
    """A row; and what a run takes, captured or, where that fails, not, and from host memory: None for what is not known."""
    page, (name, path, feed, batch, flops, layers) = work.page, network
    names = (name, batch, np.dtype(dtype).name, precision)
    size = ("--dim", f"{networks.SYMBOL}={batch}")
    found, why = probe(work, path, feed, precision, runs, "--set", "capture=auto", *size)
    plain, plain_why = probe(work, path, feed, precision, runs, "--set", "capture=off", *size)
    best = found or plain
    if best is None:
        page.measured(False, *names, why, plain_why, *[""] * (len(NETWORK_HEADS) - 6))
        return None, None
    page.values[f"{name} {batch} {precision}"] = best
    # A program that cannot capture is not to keep what it takes from host memory from being known.
    more = () if found else ("--set", "capture=off")
    hosts, host_why = bench(work.program, path, precision, runs, *size, *more, warm_up_runs=warm_up(work, best["latency_ms"]))
    page.measured(found and plain and hosts, *names, number(found, "latency_ms", 3) or why, number(plain, "latency_ms", 3) or plain_why,
                  number(best, "device_ms", 3), *shares(work, best, "fp16" if dtype is np.float16 else precision, batch, flops, layers),
                  number(hosts, "median_ms", 3) or host_why, captured(best))
    apart = best["difference"]
    if apart is None or apart > TOLERANCES["fp32"]:
        page.result(False, *names, f"the last run differs from the first by {apart}")
    return best, hosts


def shares(work, found, kind, batch, flops, layers):
    """The cells from "latency / device" to those of the limit."""
    limits_found = work.limits() or {}
    rates, copies = (limits_found.get(key) if isinstance(limits_found.get(key), dict) else {} for key in ("tflops", "gb_per_s"))
    device = found["device_ms"] or found["latency_ms"]
    rate = flops / (device * 1e9)
    share = reachable = ""
    limit = rates.get(kind)
    if isinstance(limit, (int, float)):
        share = f"{100 * rate / limit:.0f} %"
        if isinstance(copies.get("device"), (int, float)):
            reachable = f"{100 * flops / (limit * 1e9) / roofs.least_ms(layers, batch, limit, copies['device']):.0f} %"
    return f"{found['latency_ms'] / device:.2f}", number(found, "host_us", 1), f"{rate:.4g}", share, reachable


def beside(peer, of, best, hosts):
    """The cells of the peer, each ratio of times that were taken alike."""
    theirs, failed = peer.times(*of)
    ours = (number(best, "latency_ms", 3), number(hosts, "median_ms", 3))
    if theirs is None:
        return ours[0], failed, "", "", ours[1], "", ""
    return (ours[0], f"{theirs['latency_ms']:.3f}", theirs["variant"], f"{theirs['latency_ms'] / best['latency_ms']:.2f}" if best else "",
            ours[1], f"{theirs['host_ms']:.3f}", f"{theirs['host_ms'] / hosts['median_ms']:.2f}" if hosts else "")


def add_notes(page, peer):
    page.note("Of each, the results of the last run, replayed where it is captured, are compared with those of the first, which is not.")
    page.note("Latency: one run that is waited for, its feeds and fetches on the device. On the device: between two events of the stream, "
              "when the host is ahead of it, which is the sum of the kernels' times and of the gaps between them; TFLOP/s are those "
              "of products and convolutions in that time. Host: a call that does not wait.")
    page.note("One kernel a layer: what the device's limits would let a network reach whose every layer, and what is element-wise after "
              "it, is one kernel that reads and writes memory once, caches that keep something between kernels left aside.")
    page.note(f"PyTorch, the peer, was not measured: {peer.missing}." if peer.missing else
              "The peer is one CUDA graph, too: its latency is that of a replay that is waited for, input and result on the device; from "
              "host memory, input and result are NumPy's arrays, as those of `backplane bench` are. Of its ways (channels last or "
              "first, node by node or with PyTorch's own Linear, GELU and attention, weights cast beforehand or by autocast) "
              "the one of the least latency counts; all of them are in the results.")


def decoding(work):
    """One token through the layers of a language model: what it costs, and at what rate weights and caches are read."""
    page = work.page
    rates = (work.limits() or {}).get("gb_per_s")
    limit = rates.get("device") if isinstance(rates, dict) else None
    page.section("Decoding (one token, 1,024 before it; four layers of Llama 3.2 1B)",
                 ["elements", "weights", "latency, ms", "without capture", "on the device, ms", "GB/s of weights and caches",
                  "share of the limit of copies", "captured"])
    sizes = {**SMALL_DECODER, "layers": 1} if work.quick else {}
    runs = 5 if work.quick else 100
    path, feed = work.folder / "decoder.onnx", work.folder / "decoder_feed.onnx"
    for dtype in (np.float16, np.float32):
        for bits in (4, None):
            net = networks.decoder(path, dtype=dtype, bits=bits, **sizes)
            networks.feed(feed, net)
            names = (np.dtype(dtype).name, f"{bits} bits" if bits else "as the elements")
            found, why = probe(work, path, feed, "fp32", runs, "--set", "capture=auto")
            plain, plain_why = probe(work, path, feed, "fp32", runs, "--set", "capture=off")
            if found is None:
                page.measured(False, *names, why, *[""] * 5)
                continue
            device = found["device_ms"] or found["latency_ms"]
            rate = (net.weight_bytes + net.cache_bytes) / (device * 1e6)
            page.measured(plain, *names, number(found, "latency_ms", 3), number(plain, "latency_ms", 3) or plain_why,
                          number(found, "device_ms", 3), f"{rate:.4g}",
                          f"{100 * rate / limit:.0f} %" if isinstance(limit, (int, float)) else "", captured(found))
    page.note("Past keys and values are constants here, so that a run copies them into the present ones, which their rate does not count: "
              "a program that gives past and present one memory saves that.")


def fixed_models(work):
    """The models of the tree and the own fixed networks at batch 1, in every precision, with and without capture."""
    page = work.page
    page.section("Models of batch 1 (feeds and fetches in host memory)",
                 ["model", "precision", "median ms", "without capture, ms"])
    models = [(path.parent.name, path) for path in sorted(work.cases().glob("*/model.onnx"))]
    models += [(name, path) for name, path, _, _ in models_of(work.folder, work.quick) if name.endswith("1")]
    runs = 10 if work.quick else 50
    for precision in PRECISIONS:
        for name, path in models:
            found = [bench(work.program, path, precision, runs, "--set", f"capture={capture}", warm_up_runs=warm_up(work))
                     for capture in ("auto", "off")]
            page.measured(all(figures for figures, _ in found), name, precision,
                          *(f"{figures['median_ms']:.3f}" if figures else why for figures, why in found))
