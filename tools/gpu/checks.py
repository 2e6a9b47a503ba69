"""The phases of gpu_check that find what is wrong: operators, models, placements, faults, compute-sanitizer."""

import concurrent.futures
import json
import os
import random
import re
import shutil

import networks
import numpy as np
import random_weights
from programs import Ended, last_line

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
# How far float32 results of two devices may lie apart, relative to the largest: sums in another order, or rounded operands.
TOLERANCES = {"fp32": 1e-3, "tf32": 3e-2, "fp16": 5e-2, "bf16": 2e-1}
# For what is computed, not for how fast.
SMALL_DECODER = {"layers": 2, "past": 40, "width": 256, "heads": 8, "kv_heads": 2, "inner": 320}
MOST_SURE = 0.9  # of a softmax that shows what is wrong before it
ON_CUDA = ("--providers", "cuda", "--fallback", "forbid")


def operators(work):
    """Every kernel of the provider against the CPU provider and formulas, by the conformance suite, and the operator
    tests of the tree, random cases and all, where they are packed."""
    program, page = work.program, work.page
    page.section("Operators", ["suite", "result", ""])
    programs = sorted((program.tree / "tests").glob("ops_*"))
    ended, has_run = None, False
    with concurrent.futures.ThreadPoolExecutor(max(1, min(12, 3 * (os.cpu_count() or 2) // 4))) as pool:
        suite = [pool.submit(conformance, work, "--except", FENCES, "--part", f"{i + 1}/{PARTS}") for i in range(PARTS)]
        runs = {pool.submit(program.execute, [each, "--gtest_filter=*/cuda"], environment=program.cache_apart): each
                for each in programs}
        for run in concurrent.futures.as_completed(runs):
            try:
                made = run.result()
            except Ended as error:
                ended, made = error, error.made
            if made is None:
                page.row(runs[run].name, "not begun: the time was over", "")
            else:
                has_run = add_operator_tests(page, runs[run].name, made) or has_run
        parts = [part.result() for part in suite]
    ended = next((error for _, _, error in parts if error), ended)
    # The part of which least is known.
    made = min((made for made, _, _ in parts), key=lambda made: (made is not None, made is not None and made.returncode == 0))
    add_conformance(page, "backplane check cuda.so", made, [row for _, rows, _ in parts for row in rows])
    if not programs:
        page.row("tests/ops", "not run: the tree has none", "")
    elif not has_run and not ended:
        page.result(False, "tests/ops", "no test ran on cuda")
    if ended:
        raise ended
    # By itself and last: where a stream that waits for what nobody has signalled yet keeps others from going on, nothing else is to
    # wait for it.
    made, rows, error = conformance(work, "--only", FENCES, "--timeout", "10")
    add_conformance(page, f"backplane check cuda.so, {FENCES}", made, rows)
    if error:
        raise error


FENCES = "device.fences"
# Of the suite, beside each other: it is the longest of all.
PARTS = 4


def conformance(work, *arguments):
    """What became of the suite, the rows that it had told until then, and the exception that ended it, if one did."""
    program, report = work.program, work.folder / f"check_{'_'.join(arguments).replace('/', '_')}.json"
    try:
        made, error = program.call("check", program.tree / "lib/backplane/plugins/cuda.so", "--report", report, *arguments,
                                   most_s=None, environment=program.cache_apart), None
    except Ended as ended:
        made, error = ended.made, ended
    return made, told(report), error


def told(report):
    """What a program has written there line by line until it ended, or was ended in the middle of one."""
    lines = report.read_text(errors="replace").splitlines() if report.exists() else []
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def add_conformance(page, name, made, rows):
    failed = [row for row in rows if row["status"] == "failed"]
    text = ", ".join(f"{sum(row['status'] == status for row in rows)} {status}" for status in ("passed", "failed", "skipped"))
    if made is None or made.returncode == 124:
        page.row(name, f"{text}, when the time was over", "**failed**" if failed else "")
        page.found["failures"] += bool(failed)
    else:
        page.result(made.returncode == 0, name, text if rows else last_line(made))
    for row in failed:
        page.row("", f"failed {row['case']}/{row['subject']}: {row['reason']}"[:300], "")


def add_operator_tests(page, name, made):
    """Whether there were any: suites of what one provider alone does are tests of no device, and no row."""
    count = {word: len(re.findall(rf"^\[ +{word} +\] .*/cuda \(", made.stdout, re.MULTILINE)) for word in ("OK", "SKIPPED", "FAILED")}
    text = f"{count['OK']} passed, {count['FAILED']} failed, {count['SKIPPED']} refused with a reason"
    begun = re.findall(r"^\[ RUN +\] (.*/cuda)$", made.stdout, re.MULTILINE)
    if made.returncode == 0 and not begun:
        return False
    is_ended = made.returncode >= 0 and made.returncode != 124
    if begun and not is_ended and f"] {begun[-1]} (" not in made.stdout:
        text += f"; it was in {begun[-1]}"
    if made.returncode == 124:
        page.row(name, f"{text}, when the time was over", "**failed**" if count["FAILED"] else "")
        page.found["failures"] += count["FAILED"] > 0
    else:
        page.result(made.returncode == 0, name, text if begun or sum(count.values()) else last_line(made))
    for test in re.findall(r"^\[ +FAILED +\] (.*/cuda) \(", made.stdout, re.MULTILINE)[:20]:
        before = made.stdout[:made.stdout.index(f"] {test} (")].rstrip()
        page.row("", f"{test}: {' '.join(before.splitlines()[-4:-1])[-300:]}", "")
    return True


def outputs(program, model, folder, x, *arguments, name="x"):
    """The first output, or the line that says why there is none."""
    np.save(folder / "x.npy", x)
    shutil.rmtree(folder / "out", ignore_errors=True)
    words = ["run", model, "--input", f"{name}={folder / 'x.npy'}", "--output-dir", folder / "out", *arguments]
    made = program.call(*words, environment=program.cache_apart)
    if made.returncode != 0:
        program.keep_log([program.path, *words], made, environment=program.cache_apart)
        return None, last_line(made)
    return np.load(next((folder / "out").glob("*.npy"))).astype(np.float64), ""


def side_by_side(work, tasks):
    """What each of the tasks gives, in their order, as soon as it is there; a task is given a folder of its own. Results are to be
    right, however long they take, and what a program does before it computes is the host's, so several run at once."""
    folders = [work.folder / f"task_{at}" for at in range(len(tasks))]
    ended = None
    with concurrent.futures.ThreadPoolExecutor(max(1, min(5, (os.cpu_count() or 2) // 3))) as pool:
        for run in [pool.submit(in_folder, task, folder) for task, folder in zip(tasks, folders)]:
            try:
                yield run.result()
            except Ended as error:
                ended = error
    if ended:
        raise ended


def in_folder(task, folder):
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return task(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def distance(got, want):
    if got.shape != want.shape or not np.isfinite(got).all():
        return float("inf")
    return float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-12))


def models_of(folder, quick):
    """Name, file, input and nodes of each network that is checked."""
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
    for bits in (None, 4):
        for batch, tokens in ((1, 1), (3, 2), (1, 70)):
            path = folder / f"decoder_{batch}_{tokens}_{bits}.onnx"
            net = networks.decoder(path, batch=batch, tokens=tokens, bits=bits, **SMALL_DECODER)
            x = np.random.default_rng(7).standard_normal(net.inputs[0][1]).astype(np.float32)
            text = f"decoder{f' of {bits} bits' if bits else ''}, batch {batch}, {tokens} new"
            made.append((text, path, x, [node for node, _ in net.nodes]))
    return made


HEADS_OF_MODELS = ["model", "precision", "largest difference", ""]


def first(work):
    """Whether it works at all: small networks of each kind in two precisions against the CPU provider, with the libraries' words
    where they fail; and three of them captured, or with how little it takes to work."""
    work.page.section("Small networks, to begin with", HEADS_OF_MODELS)
    models = models_of(work.folder, True)[::2]
    add_comparisons(work, [(name, path, x, ("fp32", "fp16")) for name, path, x, _ in models])
    add_rows(work, [lambda folder, words=words: [compare_tiled(work, folder, words)] for words in ((), ("provider.cuda.tuning=off",))])
    captured_networks(work, models[:3])


# From all that makes runs fast to none of it; each step leaves out one more thing.
LADDER = ("capture=auto", "capture=off", "provider.cuda.tuning=off", "provider.cuda.fusion=false", "precision=fp32")


def captured_networks(work, models):
    page = work.page
    page.section("The same, feeds and fetches on the device, runs captured as CUDA graphs (fp16)",
                 ["model", "the first that works", "difference of the last run to the first", ""])
    for name, path, x, _ in models:
        feed = work.folder / "small_feed.onnx"
        networks.feed_like(feed, "x", x)
        settings, said = {"precision": "fp16"}, []
        for step in LADDER:
            key, value = step.split("=")
            settings[key] = value
            words = [word for setting in settings.items() for word in ("--set", "=".join(setting))]
            found, why = work.program.probe("model", path, "--feed", feed, "--provider", "cuda", *words, "--warm-up", 0, "--runs", 5)
            apart = found["difference"] if found else None
            if found and apart is not None and apart <= TOLERANCES["fp32"]:
                break
            said.append(f"{step}: {why or f'the last run differs from the first by {apart}'}")
        else:
            step = "none"
        page.values[name] = {"works": step, "said": said}
        page.result(not said, name, " ".join((step, *said))[:300] if said else step, "" if apart is None else f"{apart:.2e}")


def whole_models(work):
    """The cases that were packed, ONNX's light networks with random weights, and the own networks."""
    packed_cases(work)
    page = work.page
    page.section("Models wholly on the device (--fallback forbid)", HEADS_OF_MODELS)
    add_comparisons(work, [(name, path, x, PRECISIONS) for name, path, x, _ in models_of(work.folder, work.quick)])
    lights = sorted(work.cases().glob("light_*/model.onnx"), key=lambda path: path.parent.name)
    add_rows(work, [lambda folder, source=source: compare_light(work, folder, source) for source in lights])


def packed_cases(work):
    page = work.page
    page.section("Models with inputs and outputs of their own", ["case", "result", ""])
    if not any(work.cases().glob("*/model.onnx")):
        page.row("", "not run: the tree has none (pack --cases)", "")
        return
    report = work.folder / "verify.json"
    jobs = max(2, min(5, (os.cpu_count() or 2) // 3))
    ended = None
    try:
        made = work.program.call("verify", work.cases(), *ON_CUDA, "--jobs", jobs, "--timeout", "20", "--report", report, most_s=100,
                                 environment=work.program.cache_apart)
    except Ended as error:
        ended, made = error, error.made
    rows = told(report)
    for row in sorted(rows, key=lambda each: each["case"]):
        page.result(row["status"] == "pass", row["case"], row["reason"] or row["status"])
    if not rows or (ended is None and made.returncode not in (0, 1)):
        page.result(False, "backplane verify", "the time was over" if made is None else last_line(made))
    if ended:
        raise ended


def add_rows(work, tasks):
    for rows in side_by_side(work, tasks):
        for row in rows:
            work.page.result(*row)


def add_comparisons(work, comparisons):
    add_rows(work, [lambda folder, each=each: compare(work, folder, *each) for each in comparisons])


def compare(work, folder, name, path, x, precisions, feed="x", want=None):
    """By precision: whether the device's result is the processor's, which may be known, and the cells of a row."""
    why = ""
    if want is None:
        want, why = outputs(work.program, path, folder, x, "--providers", "cpu", name=feed)
    rows = []
    for precision in precisions:
        got = None
        if want is not None:
            got, why = outputs(work.program, path, folder, x, *ON_CUDA, "--precision", precision, name=feed)
        apart = float("inf") if got is None else distance(got, want)
        rows.append((apart <= TOLERANCES[precision], name, precision, why or f"{apart:.2e}"))
    return rows


def compare_tiled(work, folder, settings):
    """A network for products by tiles, by what was measured and by rule."""
    path = folder / "tiled.onnx"
    net = networks.tiled(path)
    x = np.random.default_rng(7).standard_normal(net.inputs[0][1]).astype(np.float16)
    words = [word for setting in settings for word in ("--set", setting)]
    want, why = outputs(work.program, path, folder, x, "--providers", "cpu")
    got = None
    if want is not None:
        got, why = outputs(work.program, path, folder, x, *ON_CUDA, *words)
    apart = float("inf") if got is None else distance(got, want)
    return apart <= TOLERANCES["fp16"], "tiles, elements of float16", " ".join(settings) or "fp32", why or f"{apart:.2e}"


def compare_light(work, folder, source):
    target, said = folder / "random.onnx", f"{source.parent.name}, random weights"
    for last in random_weights.LAST:
        feed, dims = random_weights.randomize(source, target, last)
        x = np.random.default_rng(7).standard_normal(dims).astype(np.float32)
        want, why = outputs(work.program, target, folder, x, "--providers", "cpu", name=feed)
        if want is None:
            return [(False, said, "fp32", why)]
        if want.max() < MOST_SURE:
            return compare(work, folder, said, target, x, ("fp32",), feed, want)
    return [(False, said, "fp32", f"its softmax is {want.max():.3g} of one class, which shows nothing")]


def random_placements(work):
    """Each node of a network on one of two devices, drawn by chance, against the CPU alone."""
    page = work.page
    page.section("Random placements over cuda and cpu", ["model", "seed", "largest difference", ""])
    models = models_of(work.folder, True)
    wanted = list(side_by_side(work, [lambda folder, each=each: outputs(work.program, each[1], folder, each[2], "--providers", "cpu")
                                      for each in models]))
    add_rows(work, [lambda folder, seed=seed, each=each, want=want: [place_by_chance(work, folder, seed, each, want)]
                    for seed in range(2 if work.quick else 6) for each, want in zip(models, wanted)])


def place_by_chance(work, folder, seed, model, wanted):
    name, path, x, nodes = model
    want, why = wanted
    draw = random.Random(seed)
    rules = [f"--place={node}={draw.choice(('cuda', 'cpu'))}" for node in nodes]
    got = None
    if want is not None:
        got, why = outputs(work.program, path, folder, x, "--providers", "cuda,cpu", *rules)
    apart = float("inf") if got is None else distance(got, want)
    return apart <= TOLERANCES["fp32"], name, seed, why or f"{apart:.2e}"


def bad_requests(work):
    """Each must end with one clear line and the right code, never by a signal."""
    page = work.page
    page.section("Bad requests", ["what", "said", ""])
    _, path, x, _ = models_of(work.folder, True)[-1]
    np.save(work.folder / "x.npy", x)
    networks.gather(work.folder / "gather.onnx")
    np.save(work.folder / "at.npy", np.array([1, 99, 2], np.int64))
    model = ["run", path, "--input", f"x={work.folder / 'x.npy'}", "--output-dir", work.folder / "out", *ON_CUDA]
    rows = [("a limit of 1 MiB of device memory", [*model, "--set", "provider.cuda.memory_limit_mb=1"], "memory_limit_mb"),
            ("a user stream that is none", [*model, "--set", "provider.cuda.user_stream=64"], "user_stream"),
            ("an unknown precision of a node", [*model, "--set", "provider.cuda.precision_of=op:MatMul=fp64"], "precision_of"),
            ("an index past the end, found by the device",
             ["run", work.folder / "gather.onnx", "--input", f"x={work.folder / 'at.npy'}", "--output-dir", work.folder / "out", *ON_CUDA],
             "Gather_0")]
    for what, arguments, word in rows:
        made = work.program.call(*arguments, most_s=60)
        page.result(made.returncode in (2, 3) and word in made.stderr, what, last_line(made))
    made = work.program.call(*model, environment={"CUDA_VISIBLE_DEVICES": ""}, most_s=60)
    page.result(made.returncode in (2, 3) and "cuda" in made.stderr, "no visible device", last_line(made))


# Functions of the driver of which one call fails: its name, which call, CUDA's number and name of the error.
FAULTS = [(function, count, code, name) for function, code, name in (
    ("cuMemAllocFromPoolAsync", 2, "OUT_OF_MEMORY"), ("cuMemHostAlloc", 2, "OUT_OF_MEMORY"),
    ("cuModuleLoadData", 2, "OUT_OF_MEMORY"), ("cuStreamCreate", 2, "OUT_OF_MEMORY"), ("cuEventRecord", 719, "LAUNCH_FAILED"),
    ("cuMemcpyAsync", 700, "ILLEGAL_ADDRESS"), ("cuLaunchKernel", 700, "ILLEGAL_ADDRESS"),
    ("cuLaunchKernelEx", 700, "ILLEGAL_ADDRESS"), ("cuLaunchKernelEx", 801, "NOT_SUPPORTED"),
    ("cuGraphInstantiateWithFlags", 2, "OUT_OF_MEMORY"), ("cuGraphLaunch", 719, "LAUNCH_FAILED")) for count in (1, 3)]


def faults(work):
    """Calls of the driver that fail, one in each run: the run ends well where the provider has another way, or with one
    line that names the error; never by a signal, never with a wrong result, never without end. Graphs are made and
    launched by runs that are repeated: those are of `bench`, which gives no result."""
    bad_requests(work)
    page = work.page
    page.section("Calls of the driver that fail", ["function", "call", "said", ""])
    preload = work.program.tree / "bin/gpu_faults.so"
    if not preload.exists():
        page.row("", "", "not run: gpu_faults.so is not in the tree", "")
        return
    _, path, x, _ = models_of(work.folder, True)[0]
    want, _ = outputs(work.program, path, work.folder, x, "--providers", "cpu")
    for function, count, code, name in FAULTS:
        shutil.rmtree(work.folder / "out", ignore_errors=True)
        is_repeated = function.startswith("cuGraph")
        words = ["bench", path, "--warmup", "0", "--runs", "8"] if is_repeated else ["run", path, "--output-dir", work.folder / "out"]
        made = work.program.call(*words, "--input", f"x={work.folder / 'x.npy'}", *ON_CUDA, most_s=60,
                                 environment={"LD_PRELOAD": str(preload), "GPU_FAULT": f"{function}:{count}:{code}"})
        if "gpu_faults: " not in made.stderr and made.returncode == 0:
            page.row(function, count, "not tried: there are fewer such calls", "")
            continue
        found = list((work.folder / "out").glob("*.npy"))
        is_right = made.returncode == 0 and (is_repeated or (
            found and distance(np.load(found[0]).astype(np.float64), want) <= TOLERANCES["fp32"]))
        is_clear = made.returncode in (2, 3) and name in made.stderr
        page.result(is_right or is_clear, function, count, "the runs went on" if is_repeated and is_right else
                    "the run was right" if is_right else last_line(made))


def sanitizer(work):
    """Networks under compute-sanitizer, where it is: bounds, races, barriers."""
    page = work.page
    page.section("compute-sanitizer", ["tool", "model", "said", ""])
    found = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if found is None:
        page.row("", "", "not run: it is not on this machine", "")
        return
    for tool in ("memcheck", "racecheck", "synccheck"):
        for name, path, x, _ in models_of(work.folder, True)[::2]:
            np.save(work.folder / "x.npy", x)
            made = work.program.call("run", path, "--input", f"x={work.folder / 'x.npy'}", "--output-dir", work.folder / "out",
                                     *ON_CUDA, before=[found, "--tool", tool, "--error-exitcode", "9"], most_s=150)
            if "Device not supported" in made.stdout + made.stderr:
                page.row(tool, name, "not run: it does not serve this device", "")
                continue
            page.result(made.returncode == 0, tool, name, last_line(made))
