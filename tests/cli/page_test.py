#!/usr/bin/env python3
"""backplane inspect --html: the page in a real browser, counted against --json."""

import html.parser
import json
import time
import unittest

import numpy as np
from onnx import numpy_helper

import browser
import program
from program import model, node, value

FAKE_DEVICES = program.BUILD / "tests/fixtures/fakegpu.so"
NAMES = "[...document.querySelectorAll('{}')].map(one => one.dataset.name)"


class Tree(html.parser.HTMLParser):
    """Counts what the page holds."""

    def __init__(self):
        super().__init__()
        self.nodes, self.copies, self.reasons, self.rows = [], [], 0, 0
        self.ready = False

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


def branches():
    weight = numpy_helper.from_array(np.ones((3, 3), np.float32), "w")
    nodes = [node("Relu", ["x"], ["r"], name="first"), node("MatMul", ["r", "w"], ["a"], name="branch_a"),
             node("Tanh", ["r"], ["b"], name="branch_b </script><b>"), node("Add", ["a", "b"], ["y"], name="last")]
    return model(nodes, [value("x", shape=(3, 3))], [value("y", shape=(3, 3))], [weight])


def long_model(count):
    nodes = [node("Relu" if i % 2 else "Neg", [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(count)]
    return model(nodes, [value("v0")], [value(f"v{count}")])


def heads_model(blocks):
    """Blocks of four heads side by side, joined, with a way around each block: 22 nodes a block."""
    nodes, x = [], "x"
    for block in range(blocks):
        p = f"block{block:03}/"
        for head in range(4):
            q = f"{p}head{head}/"
            nodes += [node("MatMul", [x, "w"], [q + "m"], name=q + "project"),
                      node("Tanh" if head % 2 else "Sigmoid", [q + "m"], [q + "t"], name=q + "activate"),
                      node("Mul", [q + "t", q + "m"], [q + "g"], name=q + "gate"),
                      node("Softmax", [q + "g"], [q + "s"], name=q + "weigh")]
        nodes += [node("Add", [p + "head0/s", p + "head1/s"], [p + "a"], name=p + "left"),
                  node("Add", [p + "head2/s", p + "head3/s"], [p + "b"], name=p + "right"),
                  node("Add", [p + "a", p + "b"], [p + "j"], name=p + "join"),
                  node("MatMul", [p + "j", "w"], [p + "o"], name=p + "out"),
                  node("Relu", [p + "o"], [p + "r"], name=p + "relu"),
                  node("Add", [p + "r", x], [p + "y"], name=p + "around")]
        x = p + "y"
    weight = numpy_helper.from_array(np.full((8, 8), .1, np.float32), "w")
    return model(nodes, [value("x", shape=(2, 8))], [value(x, shape=(2, 8))], [weight])


@unittest.skipUnless(browser.PROGRAM, "there is no Chromium here")
class Page(program.ProgramTest):
    def open(self, page):
        """A browser that shows the page; it must not have complained by the end of the test."""
        window = browser.Browser(self.folder / "browser")
        self.addCleanup(window.close)
        self.addCleanup(lambda: self.assertEqual(window.complaints, []))
        self.load_seconds = window.open(page.as_uri())
        return window

    def tree_of(self, window):
        tree = Tree()
        tree.feed(window.value("document.documentElement.outerHTML"))
        self.assertTrue(tree.ready, "the page's script did not come to its end")
        return tree

    def check_counts(self, window, explanation):
        tree, nodes = self.tree_of(window), explanation["nodes"]
        self.assertEqual(sorted(tree.nodes), sorted((n["name"], n["provider"] or "") for n in nodes))
        self.assertEqual(tree.rows, len(nodes))
        self.assertEqual(sorted(tree.copies), sorted(c["value"] for c in explanation["copies"]))
        self.assertEqual(tree.reasons, sum(len(n["reasons"]) for n in nodes))

    def click_node(self, window, name):
        """Clicks where the middle of the node's box is on the screen; returns the text of the row that opens."""
        place = (f"(() => {{ const r = document.querySelector('.node[data-name={json.dumps(name)}]')"
                 ".getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        deadline = time.monotonic() + 10
        before, box = None, window.value(place)
        while box != before and time.monotonic() < deadline:  # what was chosen before may still be on its way to the middle
            time.sleep(0.1)
            before, box = box, window.value(place)
        window.click(*box)
        rows = NAMES.format(".node-row.chosen[open]")
        while window.value(rows) != [name] and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(window.value(rows), [name])
        return window.value("document.querySelector('.node-row.chosen').textContent")

    def clear_search(self, window):
        window.value("(() => { const s = document.getElementById('search'); s.value = '';"
                     " s.dispatchEvent(new Event('input')); s.blur(); })()")

    def test_page_shows_what_json_says(self):
        path = self.save(branches())
        explanation = self.json_of("inspect", path)
        self.succeed("inspect", path, "--html", "g.html")
        window = self.open(self.folder / "g.html")
        self.check_counts(window, explanation)
        window.value("document.getElementById('search').focus()")
        window.type("branch_b")
        self.assertEqual(window.value(NAMES.format(".node.found")), ["branch_b </script><b>"])
        self.assertEqual(window.value("document.getElementById('matches').textContent"), "1 found")
        window.press("Enter")
        self.assertEqual(window.value(NAMES.format(".node.chosen")), ["branch_b </script><b>"])
        self.clear_search(window)
        self.assertEqual(window.value("document.querySelectorAll('.node.found').length"), 0)
        self.assertIn(explanation["nodes"][-1]["kernel"], self.click_node(window, "last"))

    def test_copies_between_devices_are_drawn(self):
        if not FAKE_DEVICES.exists():
            self.skipTest("the fake device was not built")
        path = self.save(branches())
        arguments = ["inspect", path, "--plugin-path", FAKE_DEVICES.parent, "--providers", "fakegpu,cpu"]
        explanation = self.json_of(*arguments)
        self.assertGreater(len(explanation["copies"]), 0)
        self.succeed(*arguments, "--html", "g.html")
        self.check_counts(self.open(self.folder / "g.html"), explanation)

    def test_times_of_a_profile_are_shown(self):
        path = self.save(branches())
        x = self.save(np.ones((3, 3), np.float32), "x.npy")
        self.succeed("run", path, "--input", f"x={x}", "--profile", "t.json")
        self.succeed("inspect", path, "--html", "g.html", "--profile", "t.json")
        detail = self.click_node(self.open(self.folder / "g.html"), "last")
        self.assertRegex(detail, r"\d+\.\d{3} ms \(1 run\)")

    def test_chain_of_three_thousand_nodes(self):
        path = self.save(long_model(3000))
        explanation = self.json_of("inspect", path, "--set", "optimization=none")
        self.succeed("inspect", path, "--set", "optimization=none", "--html", "g.html")
        self.check_counts(self.open(self.folder / "g.html"), explanation)

    def test_three_thousand_nodes_on_three_devices(self):
        if not FAKE_DEVICES.exists():
            self.skipTest("the fake device was not built")
        path = self.save(heads_model(136))
        arguments = ["inspect", path, "--plugin-path", FAKE_DEVICES.parent, "--providers", "fakegpu:0,fakegpu:1,cpu",
                     "--set", "optimization=none", "--place", "*/head1/*=fakegpu:1", "--place", "*/relu=cpu"]
        explanation = self.json_of(*arguments)
        self.assertEqual(len(explanation["nodes"]), 2992)
        self.assertEqual(len({n["provider"] for n in explanation["nodes"]}), 3)
        self.assertGreater(len(explanation["copies"]), 800)
        self.succeed(*arguments, "--html", "g.html")
        window = self.open(self.folder / "g.html")
        self.check_counts(window, explanation)
        self.check_first_sight(window)
        transform = "document.getElementById('view').getAttribute('transform')"
        seen = [window.value(transform)]
        moves = [window.timed(lambda: window.wheel(300, 400, -300)) for _ in range(6)]
        seen.append(window.value(transform))
        moves.append(window.timed(lambda: window.drag(400, 400, 300, 500)))
        seen.append(window.value(transform))
        self.assertEqual(len(set(seen)), 3, "zooming and dragging must move the graph")
        self.assertGreater(window.value("document.querySelectorAll('.node text').length"), 0, "zoomed in, names are drawn")
        window.value("document.getElementById('search').focus()")
        searches = [window.timed(lambda c=c: window.type(c)) for c in "block077/head1"]
        wanted = [f"block077/head1/{name}" for name in ("project", "activate", "gate", "weigh")]
        self.assertEqual(window.value(NAMES.format(".node.found")), wanted)
        window.press("Enter")
        window.painted()
        self.clear_search(window)
        self.assertIn("rule", self.click_node(window, wanted[0]))
        moved, searched = (1e3 * sorted(times)[len(times) // 2] for times in (moves, searches))
        print(f"2,992 nodes: {self.load_seconds:.2f} s to load, {moved:.0f} ms to zoom or drag, "
              f"{searched:.0f} ms a key of a search (medians)")

    def check_first_sight(self, window):
        """All of the graph is in sight, large enough to see colours, and no name is drawn that nobody could read."""
        self.assertEqual(window.value("document.querySelectorAll('.node text').length"), 0)
        self.assertGreater(window.value("document.querySelectorAll('#marks text').length"), 5)
        sizes = window.value("""(() => {
          const room = document.getElementById('graph').getBoundingClientRect();
          const boxes = [...document.querySelectorAll('.node')].map(node => node.getBoundingClientRect());
          const isOutside = b => b.left < room.left || b.right > room.right || b.top < room.top || b.bottom > room.bottom;
          return {width: Math.min(...boxes.map(b => b.width)), outside: boxes.filter(isOutside).length};
        })()""")
        self.assertEqual(sizes["outside"], 0)
        self.assertGreater(sizes["width"], 8)


class Options(program.ProgramTest):
    def test_page_to_nowhere(self):
        self.fail_with(2, ["--html", "nowhere"], "inspect", self.save(branches()), "--html", "nowhere/g.html")

    def test_profile_that_is_none(self):
        other = self.save("{}", "t.json")
        self.fail_with(2, ["--profile", "t.json"], "inspect", self.save(branches()), "--html", "g.html", "--profile", other)


if __name__ == "__main__":
    program.main()
