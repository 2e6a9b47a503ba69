"""The CUDA plugin as a user meets it: built where a toolkit is, one line where there is no driver, no noise elsewhere."""

import json
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import program  # noqa: E402
from program import X, relu_model  # noqa: E402

SOURCE = pathlib.Path(os.environ["BACKPLANE_SOURCE_DIR"])
TOOLKITS = [os.environ.get("CUDA_PATH"), "/usr/local/cuda", SOURCE / ".deps/cuda"]


def toolkit():
    """The folder of a toolkit 12.x or 13.x."""
    for place in TOOLKITS:
        header = pathlib.Path(place or "/nonexistent") / "include/cuda.h"
        if header.exists() and re.search(r"^#define CUDA_VERSION 1[23]\d{3}$", header.read_text(), re.MULTILINE):
            return place
    return None


class CudaPlugin(program.ProgramTest):
    def setUp(self):
        super().setUp()
        if toolkit() is None:
            self.skipTest("there is no CUDA toolkit on this machine")
        rows = [row for row in self.json_of("providers") if row["file"].endswith("/cuda.so")]
        self.assertEqual(len(rows), 1, f"the toolkit is in {toolkit()}, and the plugin was not built")
        self.row = rows[0]

    def test_it_loads_and_says_in_one_line_why_there_is_no_device(self):
        self.assertEqual(self.row["status"], "loaded", self.row["reason"])
        if not self.row["devices"]:
            self.assertTrue(self.row["reason"])
            self.assertNotIn("\n", self.row["reason"])

    def test_a_driver_that_does_not_start_is_a_reason(self):
        stub = pathlib.Path(toolkit()) / "lib64/stubs/libcuda.so"
        if not stub.exists() or self.row["devices"]:
            self.skipTest("no stub of the driver's library, or a real driver")
        (self.folder / "libcuda.so.1").symlink_to(stub)
        made = self.run_program("providers", "--json", environment={"LD_LIBRARY_PATH": str(self.folder)})
        rows = [row for row in json.loads(made.stdout) if row["file"].endswith("/cuda.so")]
        self.assertEqual((rows[0]["status"], rows[0]["devices"]), ("loaded", []))
        self.assertIn("cuDriverGetVersion", rows[0]["reason"])
        self.assertNotIn("\n", rows[0]["reason"])

    def test_every_function_that_it_asks_for_is_in_the_drivers_library(self):
        """The stub has what the driver of that toolkit has, under the names of the versions in cuda.h."""
        stub = pathlib.Path(toolkit()) / "lib64/stubs/libcuda.so"
        if not stub.exists():
            self.skipTest("no stub of the driver's library")
        versions = dict(re.findall(r"^#define +(cu\w+) +(cu\w+)$", (pathlib.Path(toolkit()) / "include/cuda.h").read_text(),
                                   re.MULTILINE))
        asked = re.findall(r"CUDA_FUNCTION\((cu\w+)\)", (SOURCE / "plugins/cuda/driver_library.cpp").read_text())
        self.assertGreater(len(asked), 40)
        names = stub.read_bytes()
        for name in asked:
            self.assertIn(b"\0" + versions.get(name, name).encode() + b"\0", names)

    def test_a_driver_that_is_too_old_is_said_to_be(self):
        """It has hardly any function of those that the plugin needs, and that is not what its user has to know."""
        made = self.run_program("providers", "--json",
                                environment={"LD_LIBRARY_PATH": str(program.BUILD / "tests/cuda_old_driver")})
        rows = [row for row in json.loads(made.stdout) if row["file"].endswith("/cuda.so")]
        self.assertIn("serves CUDA 11.4", rows[0]["reason"])
        self.assertIn("install a newer driver", rows[0]["reason"])

    def fake_driver(self):
        made = program.BUILD / "tests/cuda_fake_driver"
        self.assertTrue((made / "libcuda.so.1").exists(), made)
        return made

    def providers(self, *arguments, **environment):
        """What becomes of the plugin beside a driver that shows a device."""
        if self.row["devices"]:
            self.skipTest("there is a real driver")
        made = self.run_program("providers", "--json", *arguments,
                                environment={"LD_LIBRARY_PATH": str(self.fake_driver()), **environment})
        return [row for row in json.loads(made.stdout) if row["file"].endswith("/cuda.so")]

    def test_where_a_driver_shows_a_device_the_libraries_open(self):
        rows = self.providers()
        self.assertEqual([device["name"] for device in rows[0]["devices"]], ["Fake device"], rows)

    def opened_libraries(self, *arguments):
        """The shared libraries that a call of the program opens beside a driver that shows a device."""
        log = self.folder / "opened"
        self.run_program(*arguments, environment={"LD_LIBRARY_PATH": str(self.fake_driver()), "LD_DEBUG": "files",
                                                  "LD_DEBUG_OUTPUT": str(log)})
        return "".join(each.read_text(errors="replace") for each in self.folder.glob("opened*"))

    def test_who_does_not_ask_for_a_device_does_not_wait_for_the_libraries(self):
        if self.row["devices"]:
            self.skipTest("there is a real driver")
        run = ("run", self.save(relu_model()), "--input", f"x={self.save(X, 'x.npy')}", "--output-dir", "out")
        opened = self.opened_libraries(*run, "--providers", "cpu")
        self.assertFalse(re.search("calling init: .*lib(cuda.so.1|cublasLt)", opened))
        opened = self.opened_libraries(*run)
        self.assertTrue(re.search("calling init: .*libcublasLt", opened), "where there is a device, it comes first")

    def test_the_conformance_suite_finds_what_the_plugin_brings_along(self):
        """Its device does not open, beside a driver that does nothing; up to there it is as anywhere."""
        if self.row["devices"]:
            self.skipTest("there is a real driver")
        made = self.run_program("check", self.row["file"], environment={"LD_LIBRARY_PATH": str(self.fake_driver())})
        said = made.stdout.decode()
        self.assertIn("CUDA_ERROR_NOT_SUPPORTED", said)
        self.assertNotIn("cuda_engine.so", said)

    def test_a_library_that_is_missing_is_named(self):
        """The run path of a copy of the engine leads nowhere, as on a machine without the toolkit."""
        tree = self.folder / "lib/backplane"
        for name in ("plugins", "deps"):
            (tree / name).mkdir(parents=True)
        plugin = pathlib.Path(self.row["file"])
        (tree / "plugins/cuda.so").write_bytes(plugin.read_bytes())
        for gone, name in ((b"libcublasLt.so.", "libcublasLt.so.99"), (b"libnvrtc.so.", "libnvrtc.so.99")):
            engine = (plugin.parent.parent / "deps/cuda_engine.so").read_bytes()
            self.assertIn(gone, engine)
            at = engine.index(gone) + len(gone)
            (tree / "deps/cuda_engine.so").write_bytes(engine[:at] + b"99" + engine[at + 2:])
            rows = self.providers("--plugin-path", str(tree / "plugins"))
            rows = [row for row in rows if row["file"].startswith(str(tree))]
            self.assertEqual(len(rows), 1)
            self.assertEqual(rows[0]["devices"], [])
            self.assertIn(name, rows[0]["reason"])
            self.assertNotIn("\n", rows[0]["reason"])

    def test_without_its_engine_it_says_so(self):
        tree = self.folder / "plugins"
        tree.mkdir()
        (tree / "cuda.so").write_bytes(pathlib.Path(self.row["file"]).read_bytes())
        rows = [row for row in self.providers("--plugin-path", str(tree)) if row["file"].startswith(str(tree))]
        self.assertIn("cuda_engine.so", rows[0]["reason"])

    def test_a_device_that_does_not_open_is_an_error_in_one_line(self):
        if self.row["devices"]:
            self.skipTest("there is a real driver")
        made = self.run_program("run", self.save(relu_model()), "--input", f"x={self.save(X, 'x.npy')}",
                                "--output-dir", "out", "--providers", "cuda",
                                environment={"LD_LIBRARY_PATH": str(self.fake_driver())})
        self.assertIn(made.returncode, (2, 3), made.stderr.decode())
        self.assertIn("CUDA_ERROR_NOT_SUPPORTED", made.stderr.decode())
        self.assertEqual(len(made.stderr.decode().strip().splitlines()), 1)

    def test_who_does_not_ask_for_it_hears_nothing(self):
        made = self.run_program("run", self.save(relu_model()), "--input", f"x={self.save(X, 'x.npy')}",
                                "--output-dir", "out")
        self.assertEqual(made.returncode, 0, made.stderr.decode())
        if not self.row["devices"]:
            self.assertNotIn("cuda", made.stderr.decode().lower())

    def test_who_asks_without_a_device_gets_the_reason(self):
        if self.row["devices"]:
            self.skipTest("there is a device")
        made = self.run_program("run", self.save(relu_model()), "--input", f"x={self.save(X, 'x.npy')}",
                                "--output-dir", "out", "--providers", "cuda")
        self.assertEqual(made.returncode, 2, made.stderr.decode())
        lines = made.stderr.decode().strip().splitlines()
        self.assertEqual(len(lines), 1, lines)
        self.assertIn("cuda", lines[0])
        self.assertIn(self.row["reason"].split(":")[0], lines[0])


if __name__ == "__main__":
    program.main()
