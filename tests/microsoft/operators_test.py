"""Operators of com.microsoft: models of each in many forms agree with ONNX Runtime.

  operators_test.py [PROVIDER] [--only TEXT] [--keep FOLDER]

PROVIDER is cpu, or opencl for a share of the cases (all with BACKPLANE_TEST_FULL=1).
"""
import argparse
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"]) / "bin/backplane"
MODULES = sorted(path.stem for path in HERE.glob("*_cases.py") if path.stem != "model_cases")
SHARE = 40  # of the cases that run on a provider other than cpu: one in so many


def verify(folder, provider, is_narrow):
    if not folder.exists():
        return {}
    command = [PROGRAM, "verify", folder, "--jobs", "2", "--json", "-"]
    if provider != "cpu":
        command += ["--providers", f"{provider},cpu"]
    if provider == "opencl":
        command += ["--set", "provider.opencl.cache_dir=off"]  # PoCL compiles twice for who keeps what it made
    if is_narrow:
        command += ["--set", "widening=false"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"verify ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("provider", nargs="?", default="cpu")
    parser.add_argument("--only", default="")
    parser.add_argument("--keep")
    arguments = parser.parse_args()
    sys.path.insert(0, str(HERE))
    from model_cases import write_case

    cases = [case for module in MODULES for case in importlib.import_module(module).cases()]
    cases = [case for case in cases if arguments.only in f"{case.op}.{case.name}"]
    if arguments.provider != "cpu" and not os.environ.get("BACKPLANE_TEST_FULL"):
        cases = cases[::SHARE]
    with tempfile.TemporaryDirectory(prefix="backplane_microsoft_") as temporary:
        folder = pathlib.Path(arguments.keep or temporary)
        written = []
        for case in cases:
            try:
                written += write_case(case, folder / ("narrow" if case.narrow else "plain"))
            except Exception as error:  # whatever ONNX Runtime throws
                sys.exit(f"{case.op}.{case.name}: no reference: {error}")
        if len(set(written)) != len(written):
            sys.exit("two cases have one name")
        results = {**verify(folder / "plain", arguments.provider, False), **verify(folder / "narrow", arguments.provider, True)}
    failed = [name for name in written if results.get(name, {}).get("status") != "pass"]
    for name in failed:
        print(f"{name}: {json.dumps(results.get(name))}")
    print(f"{len(written) - len(failed)} passed, {len(failed)} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
