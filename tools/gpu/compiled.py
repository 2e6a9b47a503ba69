"""Kernels that are compiled before there is a device: by the provider itself, on a described device of compute capability 9.0 and
with the real NVRTC (tests/cuda/engine/planning_plugin.cpp), whose entries of the cache are those that the device will ask for."""

import os
import pathlib
import shutil
import subprocess
import tarfile

# An entry is this line, the size of the key, and the key: compiler, architecture, source. Plans and products have others' names.
MAGIC, SIZE_BYTES, COMPILER = b"backplane program 1\n", 8, b"NVRTC "
CAPABILITY = "90"
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")


def is_kernel(entry):
    return entry.startswith(MAGIC) and entry[len(MAGIC) + SIZE_BYTES:].startswith(COMPILER)


def jobs_of(build, folder, is_quick=False):
    """Commands of `backplane` that make the provider ask for its kernels: the suite, and runs of the networks of the phases."""
    import checks
    import networks
    import numpy as np
    plugin = build / "tests/cuda_planning/cuda.so"
    device = ["--plugin-path", plugin.parent, "--providers", "cuda,cpu"]
    run = ["--warmup", "0", "--runs", "1"]
    if is_quick:
        networks.encoder(folder / "small.onnx", layers=1, tokens=8)
        return [["bench", folder / "small.onnx", *device, *run]]
    made = [["check", plugin, "--except", checks.FENCES]]
    for _, path, _, _ in checks.models_of(folder, False):
        made += [["bench", path, *device, *run, "--precision", precision] for precision in PRECISIONS]
    for build_network in (networks.resnet50_dyn, networks.bert_dyn):
        for dtype in (np.float16, np.float32):
            path = folder / f"{build_network.__name__}_{np.dtype(dtype).name}.onnx"
            build_network(path, dtype=dtype)
            made += [["bench", path, *device, *run, "--precision", precision, "--dim", f"{networks.SYMBOL}={batch}"]
                     for batch in (1, 8, 32) for precision in (PRECISIONS if dtype is np.float32 else PRECISIONS[:1])]
    for dtype in (np.float16, np.float32):
        for bits in (None, 4):
            path = folder / f"decoder_{np.dtype(dtype).name}_{bits}.onnx"
            networks.decoder(path, dtype=dtype, bits=bits, layers=1)
            made.append(["bench", path, *device, *run])
    return made


def compile_kernels(build, cache, folder, is_quick=False):
    """Fills `cache`, which may be there already; gives the files of its kernels."""
    build = pathlib.Path(build)
    environment = {**os.environ, "BACKPLANE_TEST_CAPABILITY": CAPABILITY, "XDG_CACHE_HOME": str(cache),
                   "LD_LIBRARY_PATH": str(build / "tests/cuda_fake_driver")}
    for job in jobs_of(build, pathlib.Path(folder), is_quick):
        # What is computed there is nothing, so that the suite fails: it is what was compiled that counts.
        subprocess.run([build / "bin/backplane", *job], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       check=False)
    return [file for file in sorted(pathlib.Path(cache).glob("backplane/cuda/*.program")) if is_kernel(file.read_bytes())]


def add_kernels(build, cache, tree, folder, is_quick=False):
    """Puts them into the tree; how many there are. `cache` keeps them for the next time, of the same build."""
    plugin = pathlib.Path(build) / "tests/cuda_planning/cuda.so"
    if not plugin.exists():
        return 0
    of, stamp = f"{plugin.stat().st_size} {plugin.stat().st_mtime_ns}", pathlib.Path(cache) / "made_by"
    if not stamp.exists() or stamp.read_text() != of:
        shutil.rmtree(cache, ignore_errors=True)
    files = compile_kernels(build, cache, folder, is_quick)
    if files:
        stamp.write_text(of)
    # Their texts are mostly the same, which a larger window than gzip's sees.
    with tarfile.open(tree / "kernels.tar.xz", "w:xz") as archive:
        for file in files:
            archive.add(file, file.name)
    return len(files)
