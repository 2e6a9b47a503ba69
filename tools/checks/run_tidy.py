#!/usr/bin/env python3
"""Runs clang-tidy over the sources of build/tidy/compile_commands.json.

A source that was clean before, and has not changed since, is not looked at again: what the
preprocessor makes of it (comments and macros included, for NOLINT and checks of macros), its compile
command, .clang-tidy and the version of clang-tidy are the key of a stamp in build/tidy/clean.
Preprocessing takes a tenth of the time. In a tree configured with CMAKE_UNITY_BUILD whole batches of
sources are looked at, which takes a fraction of the time for all of them together. Fails when a source has findings or does not compile.

  tools/checks/run_tidy.py [--jobs N] [--all] [PATTERN ...]   PATTERN: part of a source's path
"""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "tidy"
STAMPS = BUILD / "clean"
TIDY = "clang-tidy-14"
FOLDERS = ("core", "plugins", "custom_ops", "tools", "tests")


def sources(patterns):
    """By source file, or batch of sources: its compile commands, of which a fixture may have several."""
    commands = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if path.suffix not in (".cpp", ".cxx") or not path.is_relative_to(ROOT):
            continue
        name = str(path.relative_to(BUILD if path.is_relative_to(BUILD) else ROOT))
        wanted = not patterns or any(pattern in name for pattern in patterns)
        if name.split("/")[0] in FOLDERS and wanted:
            commands.setdefault(name, []).append(entry)
    return commands


def key_of(entries, common):
    """What the findings in a source depend on; None where it cannot be preprocessed."""
    digest = hashlib.sha256(common)
    for entry in entries:
        arguments = shlex.split(entry["command"])
        output = arguments.index("-o")
        del arguments[output:output + 2]
        arguments[arguments.index("-c")] = "-E"
        run = subprocess.run(arguments + ["-C", "-dD"], cwd=entry["directory"],
                             capture_output=True)
        if run.returncode != 0:
            return None
        digest.update(entry["command"].encode())
        digest.update(run.stdout)
    return digest.hexdigest()


def check(name, entries, common, everything):
    """(whether it was clean before, what clang-tidy prints on findings)."""
    key = key_of(entries, common)
    stamp = None if key is None else STAMPS / key
    if stamp is not None and stamp.exists() and not everything:
        return True, ""
    of_batch = ["--header-filter=/(" + "|".join(("plugin_api", *FOLDERS)) + r")/.*\.[ch]pp$", "--checks=-bugprone-suspicious-include"]
    run = subprocess.run([TIDY, "-quiet", "-p", str(BUILD), *(of_batch if "Unity/" in name else ()), entries[0]["file"]],
                         capture_output=True, text=True)
    if run.returncode != 0:
        return False, run.stdout + run.stderr or f"{TIDY} ended with {run.returncode}"
    if stamp is not None:
        stamp.touch()
    return False, ""


def main():
    parser = argparse.ArgumentParser(description="Runs clang-tidy over the tree.")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--all", action="store_true", help="also what was clean before")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    arguments = parser.parse_args()
    STAMPS.mkdir(exist_ok=True)
    version = subprocess.run([TIDY, "--version"], capture_output=True, check=True).stdout
    common = version + (ROOT / ".clang-tidy").read_bytes()
    commands = sources(arguments.patterns)
    if not commands:
        sys.exit("run_tidy.py: no source to look at; configure the preset `tidy` first")

    begin = time.monotonic()
    known, failed = 0, []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        running = {pool.submit(check, name, entries, common, arguments.all): name
                   for name, entries in sorted(commands.items())}
        for done in concurrent.futures.as_completed(running):
            was_clean, text = done.result()
            known += was_clean
            if text:
                failed.append(running[done])
                print(f"--- {running[done]}\n{text}", flush=True)
    print(f"clang-tidy: {len(commands)} sources, {known} unchanged since they were clean, "
          f"{len(failed)} with findings, {time.monotonic() - begin:.0f} s")
    for name in sorted(failed):
        print(f"  {name}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
