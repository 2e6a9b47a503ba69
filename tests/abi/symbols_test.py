#!/usr/bin/env python3
"""Each plugin that was built shows one symbol, and the host library shows its own functions alone."""

import os
import pathlib
import subprocess
import sys

BUILD = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"])
ENTRY = "bp_plugin_query_v1"
# What the broken fixtures of other entries show.
OTHER_ENTRY = {"no_entry_symbol.so": "some_other_function", "newer_major.so": "bp_plugin_query_v2"}
NOT_ELF = {"text_file.so", "empty_file.so", "truncated.so"}


def exported(file):
    """Names that a shared object defines for others."""
    made = subprocess.run(["nm", "-D", "--defined-only", "-P", str(file)], capture_output=True, text=True, check=True)
    names = {line.split()[0].split("@")[0] for line in made.stdout.splitlines() if line.split()[1] != "A"}
    # Clang's check of calls through pointers puts the type of an exported function beside it.
    return {name for name in names if not name.startswith(("_ZTIF", "_ZTSF"))}


def plugins():
    for folder in ("lib/backplane/plugins", "lib/backplane/custom_ops", "tests/fixtures", "tests/fixtures/broken"):
        yield from sorted((BUILD / folder).glob("*.so"))


def main():
    passed, failed = 0, 0
    found = [file for file in plugins() if file.name not in NOT_ELF]
    for file in found:
        wanted = {OTHER_ENTRY.get(file.name, ENTRY)}
        shown = exported(file)
        passed, failed = passed + (shown == wanted), failed + (shown != wanted)
        if shown != wanted:
            print(f"FAILED {file.relative_to(BUILD)} shows {sorted(shown)[:5]}, not {ENTRY} alone")
    host = sorted((BUILD / "lib").glob("libbackplane.so.*"))[:1]
    for file in host:
        strangers = {name for name in exported(file) if not name.startswith("backplane_")}
        passed, failed = passed + (not strangers), failed + bool(strangers)
        if strangers:
            print(f"FAILED {file.name} shows {sorted(strangers)[:5]}")
    if len(found) < 10:
        failed += 1
        print(f"FAILED: only {len(found)} plugins are built")
    print(f"{passed} passed, {failed} failed, {1 - len(host)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
