#!/usr/bin/env python3
"""backplane inspect --html: the page in a real browser, counted against --json."""

import html.parser
import json
import shutil
import subprocess
import unittest

import numpy as np
from onnx import numpy_helper

import program
from program import model, node, value

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# Goes to the end of a page: types into the search, clicks, and leaves what it saw in the page's tree.
DRIVER = """
<script>
'use strict';
const seen = {errors: window.pageErrors};
const field = document.getElementById('search');
field.value = 'branch_b';
field.dispatchEvent(new Event('input'));
seen.found = [...document.querySelectorAll('.node.found')].map(box => box.dataset.name);
seen.matches = document.getElementById('matches').textContent;
field.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}));
seen.chosen = [...document.querySelectorAll('.node.chosen')].map(box => box.dataset.name);
field.value = '';
field.dispatchEvent(new Event('input'));
seen.dimmed = document.querySelectorAll('.dimmed').length;
const box = document.querySelector('.node[data-name="last"]');
box.dispatchEvent(new MouseEvent('click', {bubbles: true}));
const open = [...document.querySelectorAll('.node-row')].filter(row => row.open);
seen.open = open.map(row => row.dataset.name);
seen.detail = open.length ? open[open.length - 1].textContent : '';
const before = document.getElementById('view').getAttribute('transform');
document.getElementById('graph').dispatchEvent(new WheelEvent('wheel', {deltaY: -400, clientX: 50, clientY: 50}));
seen.zoomed = document.getElementById('view').getAttribute('transform') !== before;
const report = document.createElement('pre');
report.id = 'report';
report.textContent = JSON.stringify(seen);
document.body.appendChild(report);
</script></body>"""
EARLY = "<script>window.pageErrors = []; window.onerror = message => { window.pageErrors.push(String(message)); };</script></head>"


class Tree(html.parser.HTMLParser):
    """Counts what the page holds."""

    def __init__(self):
        super().__init__()
        self.nodes, self.copies, self.reasons, self.rows = [], [], 0, 0
        self.report, self.in_report, self.ready = "", False, False

    def handle_starttag(self, tag, attributes):
        have = dict(attributes)
        classes = (have.get("class") or "").split()
        self.ready |= tag == "body" and have.get("data-ready") == "true"
        if tag == "g" and "node" in classes and have.get("data-kind") == "node":
            self.nodes.append((have["data-name"], have["data-provider"]))
        if tag == "g" and "copy" in classes:
            self.copies.append(have["data-value"])
        self.reasons += tag == "li" and "reason" in classes
        self.rows += tag == "details" and "node-row" in classes
        self.in_report = tag == "pre" and have.get("id") == "report"

    def handle_endtag(self, tag):
        self.in_report = False

    def handle_data(self, data):
        if self.in_report:
            self.report += data


def branches():
    weight = numpy_helper.from_array(np.ones((3, 3), np.float32), "w")
    nodes = [node("Relu", ["x"], ["r"], name="first"), node("MatMul", ["r", "w"], ["a"], name="branch_a"),
             node("Tanh", ["r"], ["b"], name="branch_b </script><b>"), node("Add", ["a", "b"], ["y"], name="last")]
    return model(nodes, [value("x", shape=(3, 3))], [value("y", shape=(3, 3))], [weight])


def long_model(count):
    nodes = [node("Relu" if i % 2 else "Neg", [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(count)]
    return model(nodes, [value("v0")], [value(f"v{count}")])


@unittest.skipUnless(BROWSER, "there is no Chromium here")
class Page(program.ProgramTest):
    def open(self, page, drive=False):
        """The page's tree after its script ran."""
        text = page.read_text(encoding="utf-8")
        if drive:
            text = text.replace("</head>", EARLY, 1)
            end = text.rindex("</body>")
            text = text[:end] + DRIVER + text[end + len("</body>"):]
        driven = self.save(text, "driven.html")
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   f"--user-data-dir={self.folder / 'browser'}", "--enable-logging=stderr", "--window-size=1400,900",
                   "--virtual-time-budget=20000", "--dump-dom", driven.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        self.assertEqual(complaints, [])
        tree = Tree()
        tree.feed(done.stdout)
        self.assertTrue(tree.ready, "the page's script did not come to its end")
        return tree

    def check_counts(self, tree, explanation):
        nodes = explanation["nodes"]
        self.assertEqual(sorted(tree.nodes), sorted((n["name"], n["provider"] or "") for n in nodes))
        self.assertEqual(tree.rows, len(nodes))
        self.assertEqual(sorted(tree.copies), sorted(c["value"] for c in explanation["copies"]))
        self.assertEqual(tree.reasons, sum(len(n["reasons"]) for n in nodes))

    def test_page_shows_what_json_says(self):
        path = self.save(branches())
        explanation = self.json_of("inspect", path)
        self.succeed("inspect", path, "--html", "g.html")
        tree = self.open(self.folder / "g.html", drive=True)
        self.check_counts(tree, explanation)
        seen = json.loads(tree.report)
        self.assertEqual(seen["errors"], [])
        self.assertEqual(seen["found"], ["branch_b </script><b>"])
        self.assertEqual(seen["matches"], "1 found")
        self.assertEqual(seen["chosen"], ["branch_b </script><b>"])
        self.assertEqual(seen["dimmed"], 0)
        self.assertIn("last", seen["open"])
        self.assertIn(explanation["nodes"][-1]["kernel"], seen["detail"])
        self.assertTrue(seen["zoomed"])

    def test_copies_between_devices_are_drawn(self):
        plugins = program.BUILD / "tests/fixtures"
        if not (plugins / "fakegpu.so").exists():
            self.skipTest("the fake device was not built")
        path = self.save(branches())
        arguments = ["inspect", path, "--plugin-path", plugins, "--providers", "fakegpu,cpu"]
        explanation = self.json_of(*arguments)
        self.assertGreater(len(explanation["copies"]), 0)
        self.succeed(*arguments, "--html", "g.html")
        self.check_counts(self.open(self.folder / "g.html"), explanation)

    def test_times_of_a_profile_are_shown(self):
        path = self.save(branches())
        x = self.save(np.ones((3, 3), np.float32), "x.npy")
        self.succeed("run", path, "--input", f"x={x}", "--profile", "t.json")
        self.succeed("inspect", path, "--html", "g.html", "--profile", "t.json")
        tree = self.open(self.folder / "g.html", drive=True)
        self.assertRegex(json.loads(tree.report)["detail"], r"\d+\.\d{3} ms \(1 run\)")

    def test_three_thousand_nodes(self):
        path = self.save(long_model(3000))
        explanation = self.json_of("inspect", path, "--set", "optimization=none")
        self.succeed("inspect", path, "--set", "optimization=none", "--html", "g.html")
        self.check_counts(self.open(self.folder / "g.html"), explanation)


class Options(program.ProgramTest):
    def test_page_to_nowhere(self):
        self.fail_with(2, ["--html", "nowhere"], "inspect", self.save(branches()), "--html", "nowhere/g.html")

    def test_profile_that_is_none(self):
        other = self.save("{}", "t.json")
        self.fail_with(2, ["--profile", "t.json"], "inspect", self.save(branches()), "--html", "g.html", "--profile", other)


if __name__ == "__main__":
    program.main()
