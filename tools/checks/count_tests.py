#!/usr/bin/env python3
"""Counts the cases of a ctest run: `passed failed skipped` on standard output, what went wrong on stderr.

    count_tests.py REPORT.xml RESULTS_DIR

REPORT.xml is ctest's JUnit report. A GoogleTest program leaves NAME.json in RESULTS_DIR; a script may
close with a line `N passed, N failed, N skipped`; everything else counts as one. A program that ends
badly without a failed case (a crash, a leak) counts as one failed case more.
"""

import json
import pathlib
import re
import sys
import xml.etree.ElementTree

SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped\s*$", re.M)


def google_test_counts(path):
    passed = failed = skipped = 0
    for suite in json.loads(path.read_text(encoding="utf-8"))["testsuites"]:
        for case in suite["testsuite"]:
            if case.get("failures"):
                failed += 1
                print(f"failed: {path.stem}: {suite['name']}.{case['name']}", file=sys.stderr)
            elif case.get("result") == "SKIPPED":
                skipped += 1
                print(f"skipped: {path.stem}: {suite['name']}.{case['name']}", file=sys.stderr)
            elif case.get("status") == "RUN":
                passed += 1
    return passed, failed, skipped


def counts(test, results):
    name = test.get("name")
    report = results / f"{name}.json"
    output = test.findtext("system-out") or ""
    status = test.get("status")
    if test.find("skipped") is not None and status == "notrun":
        print(f"skipped: {name}: {output.strip().splitlines()[-1:] or ''}", file=sys.stderr)
        return 0, 0, 1
    ended_badly = status == "fail"
    summaries = SUMMARY.findall(output)
    if report.is_file():
        try:
            passed, failed, skipped = google_test_counts(report)
        except (ValueError, KeyError):  # cut off by a crash
            passed, failed, skipped = 0, 0, 0
            ended_badly = True
    elif summaries:
        passed, failed, skipped = map(int, summaries[-1])
    else:
        passed, failed, skipped = (0, 0, 0) if ended_badly else (1, 0, 0)
    if ended_badly and not failed:
        failed = 1
        print(f"failed: {name} ended badly", file=sys.stderr)
    return passed, failed, skipped


def main():
    report, results = map(pathlib.Path, sys.argv[1:])
    try:
        tests = list(xml.etree.ElementTree.parse(report).getroot().iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        print(f"no report of ctest: {error}", file=sys.stderr)
        tests = []
    if not tests:
        print(0, 1, 0)
        return
    print(*(sum(column) for column in zip(*(counts(test, results) for test in tests))))


if __name__ == "__main__":
    main()
