#!/usr/bin/env python3
"""backplane_digits: reads the held-out scans, and fails when it cannot."""

import re
import shutil

import numpy as np

import program


class Digits(program.ProgramTest):
    def run_digits(self, *arguments):
        command = [str(program.BUILD / "bin/backplane_digits"), *map(str, arguments)]
        return program.subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    def copy_data(self):
        for file in (program.SOURCE / "tests/data/digits").iterdir():
            shutil.copy(file, self.folder / file.name)

    def test_the_quickstart(self):
        made = self.run_digits("--quickstart", program.SOURCE / "tests/data/digits")
        self.assertEqual(made.returncode, 0, made.stderr)
        accuracy = float(re.search(r"Accuracy: ([\d.]+) %", made.stdout)[1])
        self.assertGreaterEqual(accuracy, 97)
        self.assertRegex(made.stdout, r"Time of an image: [\d.]+ us")
        self.assertIn("read as 3, right", made.stdout)
        self.assertRegex(made.stdout, r"Conv +cpu")
        for command in ("bench YOUR_MODEL.onnx", "--custom-ops", "--plugin-path"):
            self.assertIn(command, made.stdout)

    def test_too_few_right_answers_fail(self):
        self.copy_data()
        labels = np.load(self.folder / "labels.npy")
        np.save(self.folder / "labels.npy", (labels + 1) % 10)
        made = self.run_digits(self.folder)
        self.assertEqual(made.returncode, 1)
        self.assertIn("97 %", made.stderr)

    def test_missing_and_broken_data_are_named(self):
        made = self.run_digits(self.folder)
        self.assertEqual(made.returncode, 2)
        self.assertIn("images.npy", made.stderr)
        self.copy_data()
        np.save(self.folder / "images.npy", np.zeros((3, 1, 8, 8), np.float32))
        self.assertIn("do not fit", self.run_digits(self.folder).stderr)
        self.assertEqual(self.run_digits("--nonsense").returncode, 2)


if __name__ == "__main__":
    program.main()
