"""The phase of gpu_check in which others use the provider's stream: a library of custom operators, and PyTorch's tensors."""

import json
import sys

import figures
import networks
import numpy as np
from checks import ON_CUDA, TOLERANCES, distance, outputs
from programs import last_line


def guests(work):
    """A custom operator of another library between the provider's own nodes, captured with them; and runs on a stream of
    PyTorch's, whose tensors they read and write, where it is installed."""
    custom_operator(work)
    torch_stream(work)


def custom_operator(work):
    page, program = work.page, work.program
    page.section("A custom operator of another library (GatedSilu)", ["what", "difference", "captured", ""])
    library = program.tree / "lib/backplane/custom_ops/gated_silu.so"
    if not library.exists():
        page.row("", "not run: gated_silu.so is not in the tree", "", "")
        return
    path, feed = work.folder / "gated.onnx", work.folder / "gated_feed.onnx"
    for rows, width in ((3, 257), (1, 1), (64, 4096)):
        net = networks.gated(path, rows, width)
        x = np.random.default_rng(7).standard_normal((rows, width)).astype(np.float32)
        got, why = outputs(program, path, work.folder, x, *ON_CUDA, "--custom-ops", library)
        apart = float("inf") if got is None else distance(got, networks.gated_of(x))
        page.result(apart <= TOLERANCES["fp32"], f"{rows} x {width}", why or f"{apart:.2e}", "")
    networks.feed(feed, net)
    found, why = figures.probe(work, path, feed, "fp32", 20, "--set", f"custom_ops={library}", "--set", "capture=auto")
    apart = found["difference"] if found else None
    page.result(found is not None and apart is not None and apart <= TOLERANCES["fp32"], "repeated runs, the last to the first",
                why or f"{apart:.2e}", figures.captured(found) if found else "")


def torch_stream(work):
    page, program = work.page, work.program
    page.section("PyTorch's stream and tensors (option user_stream, device pointers as feeds and fetches)", ["what", "said", ""])
    missing = work.why_no_peer()
    if not missing and not (program.tree / "python_package/backplane").is_dir():
        missing = "the tree has no Python package"
    if missing:
        page.row("", f"not run: {missing}", "")
        return
    made = program.execute([sys.executable, work.tools / "torch_guest.py", work.folder / "perceptron.onnx"], most_s=120,
                           environment={"PYTHONPATH": str(program.tree / "python_package"),
                                        "BACKPLANE_LIBRARY": str(program.tree / "lib/libbackplane.so.1")})
    rows = [json.loads(line) for line in made.stdout.splitlines() if line.startswith("{") and line.endswith("}")]
    for row in rows:
        page.result(row["passed"], row["what"], row["said"])
    if made.returncode != 0 or not rows:
        page.result(False, "torch_guest.py", last_line(made))
