#!/usr/bin/env python3
"""Row D2 of core/SESSION.md: each provider and each library of custom operators is an install component of its own.

An installation of the core gets a provider by dropping one file into its plugin folder, and loses it by deleting that.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

BUILD = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"])
CASES = pathlib.Path(os.environ["BACKPLANE_SOURCE_DIR"]) / "tests/custom_ops"


def install(component, prefix):
    """Installs a component; the files that were added."""
    before = files(prefix)
    made = subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(prefix), "--component", component],
                          capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return sorted(files(prefix) - before)


def files(prefix):
    return {path.relative_to(prefix).as_posix() for path in prefix.rglob("*") if path.is_file() or path.is_symlink()}


def backplane(prefix, *arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BACKPLANE_")}
    return subprocess.run([str(prefix / "bin/backplane"), *map(str, arguments)], capture_output=True, text=True,
                          check=False, env=environment)


def providers(prefix):
    made = backplane(prefix, "providers", "--json")
    assert made.returncode == 0, made.stderr
    rows = json.loads(made.stdout)
    assert all(row["status"] == "loaded" for row in rows), rows
    return sorted(row["provider"] for row in rows if row["provider"])


def names(folder):
    return sorted(path.stem for path in (BUILD / "lib/backplane" / folder).glob("*.so"))


def d2_each_part_is_one_file_that_comes_and_goes():
    """The number of things that were seen to hold."""
    checks = 0
    with tempfile.TemporaryDirectory() as name:
        prefix, elsewhere = pathlib.Path(name) / "installed", pathlib.Path(name) / "parts"
        prefix.mkdir()
        elsewhere.mkdir()
        install("core", prefix)
        folder = prefix / "lib/backplane/plugins"
        assert not folder.exists() or not any(folder.iterdir()), "the core brings plugins"
        assert providers(prefix) == []
        refused = backplane(prefix, "verify", CASES)
        assert refused.returncode in (1, 2) and "provider" in refused.stdout + refused.stderr, refused

        assert install("plugin_cpu", prefix) == ["lib/backplane/plugins/cpu.so"]
        assert providers(prefix) == ["cpu"]
        checks += 2

        # Every other one is dropped in as the one file that it is, and taken away again; CUDA's lacks its engine then.
        for plugin in names("plugins"):
            if plugin == "cpu":
                continue
            brought = install(f"plugin_{plugin}", elsewhere)
            brought.remove(f"lib/backplane/plugins/{plugin}.so")
            assert brought == (["lib/backplane/deps/cuda_engine.so"] if plugin == "cuda" else []), brought
            shutil.copy(elsewhere / f"lib/backplane/plugins/{plugin}.so", folder)
            assert providers(prefix) == sorted(["cpu", plugin])
            (folder / f"{plugin}.so").unlink()
            assert providers(prefix) == ["cpu"]
            checks += 1
        shutil.move(folder / "cpu.so", elsewhere)
        assert providers(prefix) == []
        shutil.move(elsewhere / "cpu.so", folder)
        assert providers(prefix) == ["cpu"]
        checks += 1

        libraries = []
        for library in names("custom_ops"):
            assert install(f"custom_ops_{library}", prefix) == [f"lib/backplane/custom_ops/{library}.so"], library
            libraries += ["--custom-ops", prefix / f"lib/backplane/custom_ops/{library}.so"]
            checks += 1
        made = backplane(prefix, "verify", CASES, *libraries)
        assert made.returncode == 0 and "1 passed, 0 failed" in made.stdout, made.stdout + made.stderr
        checks += 1
    return checks


if __name__ == "__main__":
    print(f"{d2_each_part_is_one_file_that_comes_and_goes()} passed, 0 failed, 0 skipped")
