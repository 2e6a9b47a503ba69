#!/usr/bin/env python3
"""The host library shows the functions of its headers, all of those of symbols.txt, and nothing else.

symbols.txt is the list of what programs may be linked with: names are added to it (--write) and never taken out.
--self-test: the check finds a function that is gone and one that is not listed."""

import os
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(os.environ.get("BACKPLANE_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
BUILD = pathlib.Path(os.environ.get("BACKPLANE_BUILD_DIR", SOURCE / "build/release"))
LIST = pathlib.Path(__file__).parent / "symbols.txt"
FROZEN = SOURCE / "tests/fixtures/frozen_host_v1/include"


def exported():
    library = next(iter(sorted((BUILD / "lib").glob("libbackplane.so.*"))))
    made = subprocess.run(["nm", "-D", "--defined-only", "-P", str(library)], capture_output=True, text=True, check=True)
    return {line.split()[0].split("@")[0] for line in made.stdout.splitlines() if line.split()[1] == "T"}


def declared(folder):
    text = "".join(path.read_text() for path in sorted(folder.rglob("*.h")))
    return set(re.findall(r"BACKPLANE_API[^;(]*?\b(backplane_\w+)\s*\(", text))


def problems(shown, in_headers, listed, in_frozen):
    yield from (f"{name} is in symbols.txt and the library does not show it" for name in sorted(listed - shown))
    yield from (f"{name} is shown and not in symbols.txt; run symbols_test.py --write" for name in sorted(shown - listed))
    yield from (f"{name} is shown and no header declares it" for name in sorted(shown - in_headers))
    yield from (f"{name} is declared and not shown" for name in sorted(in_headers - shown))
    yield from (f"{name} of the first header is gone" for name in sorted(in_frozen - shown))


def main(arguments):
    shown, in_headers = exported(), declared(SOURCE / "core/include")
    listed = set(LIST.read_text().split()) if LIST.is_file() else set()
    in_frozen = declared(FROZEN)
    if arguments == ["--write"]:
        gone = sorted(listed - shown)
        if gone:
            print(f"not written: {', '.join(gone)} would be taken out")
            return 1
        LIST.write_text("".join(f"{name}\n" for name in sorted(shown)))
        return 0
    if arguments == ["--self-test"]:
        some = min(shown)
        finds = [
            any(some in line for line in problems(shown - {some}, in_headers, listed, in_frozen)),
            any("backplane_more" in line for line in problems(shown | {"backplane_more"}, in_headers, listed, in_frozen)),
            len(in_frozen) > 40 and len(in_headers) > len(in_frozen),
        ]
        print(f"{sum(finds)} passed, {len(finds) - sum(finds)} failed, 0 skipped")
        return 0 if all(finds) else 1
    found = list(problems(shown, in_headers, listed, in_frozen))
    for line in found:
        print("FAILED", line)
    print(f"{len(shown)} passed, {len(found)} failed, 0 skipped")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
