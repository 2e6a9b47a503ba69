"""Results of phases, kept in files from row to row, and the page of Markdown that is made of all that are there."""

import json
import os
import pathlib
import time


def write_whole(file, text):
    """So that whoever reads it meanwhile, and whatever ends this program, finds one version or the other."""
    part = file.with_name(file.name + ".part")
    part.write_text(text)
    os.replace(part, file)


class Phase:
    """What one phase has found so far. A failure anywhere fails the whole."""

    def __init__(self, name, file, device="", version="", saved=lambda: None):
        self.name, self.file, self.saved = name, pathlib.Path(file), saved
        self.started = time.monotonic()
        self.found = {"phase": name, "device": device, "version": version, "state": "was cut off", "seconds": 0, "failures": 0,
                      "sections": [], "notes": []}
        self.values = {}  # for the phases after it
        self.save()

    def save(self):
        self.found["seconds"] = round(time.monotonic() - self.started, 1)
        self.found["values"] = self.values
        write_whole(self.file, json.dumps(self.found, indent=1))
        self.saved()

    def section(self, title, heads):
        self.found["sections"].append({"title": title, "heads": list(heads), "rows": []})
        print(f"gpu_check: {title}", flush=True)
        self.save()

    def row(self, *cells):
        self.found["sections"][-1]["rows"].append([str(cell) for cell in cells])
        print("gpu_check:   " + " | ".join(map(str, cells))[:200], flush=True)
        self.save()

    def result(self, passed, *cells):
        self.found["failures"] += not passed
        self.row(*cells, "passed" if passed else "**failed**")

    def measured(self, is_measured, *cells):
        """A row of figures; a program that was to measure them and did not is a failure, too."""
        self.found["failures"] += not is_measured
        self.row(*cells)

    def note(self, text):
        self.found["notes"].append(text)
        self.save()

    def end(self, state):
        self.found["state"] = state
        self.save()
        print(f"gpu_check: phase {self.name}: {state}, {self.found['seconds']} s, {self.found['failures']} failed", flush=True)


class Results:
    """A folder with a file for each phase that ran; and the page, written anew with every row, where a file for it is
    given. `device` is the one of this call: earlier ones may have had another."""

    def __init__(self, folder, names, report=None, head=(), device="", tree=None):
        self.tree = tree  # where its files are said to lie is of no use to readers elsewhere
        self.version = version_of(tree)
        self.folder, self.names, self.report, self.head, self.device = pathlib.Path(folder), names, report, head, device
        self.folder.mkdir(parents=True, exist_ok=True)

    def file(self, name):
        return self.folder / f"{name}.json"

    def begin(self, name):
        return Phase(name, self.file(name), self.device, self.version, self.write_page)

    def write_page(self):
        if self.report is not None:
            write_whole(pathlib.Path(self.report), self.page(self.head))

    def read(self, name):
        try:
            return json.loads(self.file(name).read_text())
        except (OSError, ValueError):
            return None

    def of_this_device(self, name):
        """What a phase has found on the device of this call, or None."""
        found = self.read(name)
        return found if found and found.get("device") == self.device else None

    def is_done(self, name):
        """By what was built from the same sources, too."""
        found = self.of_this_device(name) or {}
        return found.get("state") == "done" and found.get("version", "") == self.version

    def value(self, name, key, otherwise=None):
        """Of this call's device: shares of what another one can do would be of no use."""
        return ((self.of_this_device(name) or {}).get("values") or {}).get(key, otherwise)

    def ran(self):
        return [found for found in map(self.read, self.names) if found]

    def said(self):
        """How many checks failed, and how many phases did not come to their end."""
        unfinished = sum(found["state"] != "done" for found in self.ran())
        return f"{sum(found['failures'] for found in self.ran())} checks failed" + (
            f"; {unfinished} phases did not come to their end" if unfinished else "")

    def is_passed(self):
        return all(found["failures"] == 0 and found["state"] == "done" for found in self.ran())

    def page(self, head):
        lines = ["# What of the CUDA provider has run on a GPU", "", *head, f"{self.said()}.", "",
                 "| phase | state | seconds | failed | device | version |", "|---|---|---|---|---|---|"]
        for name in self.names:
            found = self.read(name)
            lines.append(f"| {name} | {found['state']} | {found['seconds']:.0f} | {found['failures']} | {found.get('device', '')} | "
                         f"{found.get('version', '')} |" if found else f"| {name} | not run | | | | |")
        for found in filter(None, map(self.read, self.names)):
            for section in found["sections"]:
                lines += ["", f"## {section['title']}", "", row_text(section["heads"]), "|" + "---|" * len(section["heads"])]
                lines += [row_text(row) for row in section["rows"]]
            for note in found["notes"]:
                lines += ["", note]
            if found.get("logs"):
                lines += ["", f"What cuDNN and cuBLASLt said in {len(found['logs'])} runs that failed is in the results, "
                          f"{found['phase']}.json."]
            if found["state"] != "done":
                lines += ["", f"Phase {found['phase']}: {found['state']}. What stands above is what there was until then."]
        text = "\n".join(lines) + "\n"
        return text if self.tree is None else text.replace(f"{self.tree}/", "")


def version_of(tree):
    """Of the sources that a packed tree was built from; empty where nobody noted it."""
    file = None if tree is None else pathlib.Path(tree) / "version"
    return file.read_text().strip() if file is not None and file.exists() else ""


def row_text(cells):
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"
