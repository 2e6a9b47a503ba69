#!/usr/bin/env python3
"""The broken plugins of tests/fixtures/broken in a plugin path: a row with its reason each, and nothing else suffers."""

import json
import pathlib
import re

import numpy as np

import program
from program import X, model, node, value

BROKEN = program.BUILD / "tests/fixtures/broken"
TABLE = program.SOURCE / "tests/fixtures/broken/broken_plugins.hpp"


def broken_plugins():
    """{file: (when it fails, words that the reason must hold)}, and the pairs that clash."""
    text = TABLE.read_text()
    rows = re.findall(r'\{"(\w+\.so)", When::k(\w+), \{([^}]*)\}\}', text)
    pairs = re.findall(r'\{"(\w+\.so)", "(\w+\.so)", \{([^}]*)\}\}', text)
    words = re.compile(r'"([^"]*)"')
    return ({file: (when, words.findall(listed)) for file, when, listed in rows},
            [(first, second, words.findall(listed)) for first, second, listed in pairs])


PLUGINS, CLASHING = broken_plugins()


class BrokenPlugins(program.ProgramTest):
    def setUp(self):
        super().setUp()
        self.plugins = self.folder / "plugins"
        self.plugins.mkdir()
        self.model = self.save(program.relu_model())
        np.save(self.folder / "x.npy", X)

    def put(self, *files):
        """The plugin path holds these files alone."""
        for old in self.plugins.iterdir():
            old.unlink()
        for file in files:
            (self.plugins / file).write_bytes((BROKEN / file).read_bytes())

    def rows(self):
        """By file, those of the plugin path; what is found elsewhere must be as ever."""
        rows = self.json_of("providers", "--plugin-path", self.plugins)
        self.assertTrue(any(row["provider"] == "cpu" and row["status"] == "loaded" for row in rows))
        return {pathlib.Path(row["file"]).name: row for row in rows
                if pathlib.Path(row["file"]).parent == self.plugins}

    def expect_words(self, text, words):
        for word in words:
            self.assertIn(word.lower(), text.lower())

    def run_model(self, *arguments):
        made = self.json_of("run", self.model, "--input", "x=x.npy", "--output-dir", "o", "--plugin-path", self.plugins,
                            *arguments)
        np.testing.assert_array_equal(np.load(self.folder / made["outputs"][0]["file"]), np.maximum(X, 0))

    def test_the_table_is_read(self):
        self.assertGreater(len(PLUGINS), 20)
        self.assertEqual(len(CLASHING), 2)
        for file in PLUGINS:
            self.assertTrue((BROKEN / file).exists(), file)

    def test_each_is_a_row_with_its_reason(self):
        for file, (when, words) in PLUGINS.items():
            with self.subTest(file):
                self.put(file)
                rows = self.rows()
                self.assertEqual(list(rows), [file])
                row = rows[file]
                self.assertEqual(row["status"], "refused" if when == "Load" else "loaded")
                self.expect_words(row["reason"], [file, *words])
                self.assertNotIn("\n", row["reason"])
                self.assertEqual(row["kernels"], 0 if when == "Load" else 1, "those that are not broken")

    def test_those_that_end_the_process_are_rows_too(self):
        violent = {"ends_by_signal.so": "signal 6", "ends_by_exit.so": "exit code 0", "never_answers.so": "within 3 s"}
        self.put("init_fails.so", *violent)
        rows = {pathlib.Path(row["file"]).name: row
                for row in self.json_of("providers", "--plugin-path", self.plugins, "--timeout", "3")}
        self.assertEqual(rows["cpu.so"]["status"], "loaded")
        self.assertEqual(rows["init_fails.so"]["status"], "refused")
        for file, words in violent.items():
            self.assertEqual(rows[file]["status"], "refused")
            self.expect_words(rows[file]["reason"], [file, words, "environment.plugin_exclude"])
        excluded = ":".join(str(self.plugins / file) for file in violent)
        self.fail_with(2, ["'other'", "init_fails.so", *violent, "left out"], "inspect", self.model, "--plugin-path",
                       self.plugins, "--providers", "other", "--set", f"environment.plugin_exclude={excluded}")

    def test_others_work_beside_each(self):
        for file in PLUGINS:
            with self.subTest(file):
                self.put(file)
                self.run_model()
                self.run_model("--providers", "cpu")

    def test_asking_for_one_names_file_and_reason(self):
        for file, (when, words) in PLUGINS.items():
            if when != "Load":
                continue
            with self.subTest(file):
                self.put(file)
                stem = file.removesuffix(".so")
                self.fail_with(2, [f"'{stem}'", file, *words], "inspect", self.model, "--plugin-path", self.plugins,
                               "--providers", stem)
                self.fail_with(2, ["'broken_one'", file, *words], "inspect", self.model, "--plugin-path", self.plugins,
                               "--providers", "broken_one")

    def test_a_broken_kernel_costs_that_kernel_alone(self):
        """Relu is refused or unknown there, Sin is good."""
        sin = self.save(model([node("Sin", ["x"], ["y"])], [value("x")], [value("y")]), "sin.onnx")
        for file, (when, words) in PLUGINS.items():
            if when != "Register":
                continue
            with self.subTest(file):
                self.put(file)
                arguments = ("--plugin-path", self.plugins, "--providers", "broken,cpu")
                self.assertEqual(self.json_of("inspect", sin, *arguments)["nodes"][0]["provider"], "broken")
                self.assertEqual(self.json_of("inspect", self.model, *arguments)["nodes"][0]["provider"], "cpu")
                made = self.run_program("inspect", sin, *arguments, "--json")
                self.expect_words(made.stderr.decode(), words)
                json.loads(made.stdout)

    def test_all_at_once(self):
        self.put(*PLUGINS, *(file for pair in CLASHING for file in pair[:2]))
        rows = self.rows()
        self.assertEqual(len(rows), len(PLUGINS) + 4)
        for file, (when, words) in PLUGINS.items():
            if when == "Load":
                self.assertEqual(rows[file]["status"], "refused", file)
                self.expect_words(rows[file]["reason"], words)
        self.run_model()
        self.run_model("--providers", "cpu")
        self.fail_with(2, ["'init_fails'", "init_fails.so", "no licence"], "inspect", self.model, "--plugin-path",
                       self.plugins, "--providers", "init_fails")

    def test_the_second_file_of_a_provider_is_refused(self):
        first, second, words = CLASHING[0]
        self.put(first, second)
        rows = self.rows()
        self.assertEqual(rows[first]["status"], "loaded")
        self.assertEqual(rows[second]["status"], "refused")
        self.expect_words(rows[second]["reason"], [first, second, *words])

    def test_the_second_library_of_an_operator_is_refused(self):
        first, second, words = CLASHING[1]
        self.fail_with(2, [first, second, *words], "inspect", self.model, "--custom-ops", BROKEN / first,
                       "--custom-ops", BROKEN / second)

    def test_broken_libraries_of_custom_operators_are_named(self):
        for file, (when, words) in PLUGINS.items():
            if when == "Load":
                with self.subTest(file):
                    self.fail_with(2, [file, *words], "inspect", self.model, "--custom-ops", BROKEN / file)


if __name__ == "__main__":
    program.main()
