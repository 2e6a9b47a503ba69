"""What the checks share: walking the tree, reporting, and proving that a check can fail."""

import argparse
import pathlib
import sys
import tempfile

LEFT_OUT = {".git", ".deps", "build", "__pycache__"}
ROOT = pathlib.Path(__file__).resolve().parents[2]


def files(root, suffixes, *folders):
    """Files below the folders (default: the whole tree) with one of the suffixes, sorted."""
    starts = [root / folder for folder in folders] if folders else [root]
    found = []
    for start in starts:
        if not start.exists():
            continue
        for path in sorted(start.rglob("*")):
            inside = path.relative_to(root).parts
            if path.is_file() and path.suffix in suffixes and not LEFT_OUT.intersection(inside):
                found.append(path)
    return found


def text_of(path):
    return path.read_text(encoding="utf-8", errors="replace")


def without_comments_and_strings(text, keep_strings=False):
    """C++ text of the same length in lines, with comments (and the inside of literals) blanked."""
    out = []
    i = 0
    while i < len(text):
        if text.startswith("//", i):
            end = text.find("\n", i)
            i = len(text) if end < 0 else end
        elif text.startswith("/*", i):
            end = text.find("*/", i + 2)
            end = len(text) if end < 0 else end + 2
            out.append("\n" * text.count("\n", i, end) or " ")
            i = end
        elif text[i] == "R" and text.startswith('R"', i) and not text[i - 1 : i].isalnum():
            opening = text.find("(", i)
            closing = ")" + text[i + 2 : opening] + '"'
            end = text.find(closing, opening)
            end = len(text) if end < 0 else end + len(closing)
            piece = text[i:end]
            out.append(piece if keep_strings else '""' + "\n" * piece.count("\n"))
            i = end
        elif text[i] == '"' or (text[i] == "'" and not text[i - 1 : i].isalnum()):
            quote, end = text[i], i + 1
            while end < len(text) and text[end] != quote and text[end] != "\n":
                end += 2 if text[end] == "\\" else 1
            piece = text[i : end + 1]
            out.append(piece if keep_strings else quote + quote)
            i = end + 1
        else:
            out.append(text[i])
            i += 1
    return "".join(out)


def write_tree(root, tree):
    for name, text in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main(check, description, good, bad):
    """Runs `check(root)`, which yields (path, line, reason). Exit 1 when there is any finding.

    `--self-test` runs it on small trees instead: it must be silent on `good` and on each
    (tree, part of the reason) of `bad` find exactly one thing, with that reason.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="tree to check")
    parser.add_argument("--self-test", action="store_true", help="prove that the check can fail")
    arguments = parser.parse_args()
    if arguments.self_test:
        sys.exit(_self_test(check, good, bad))
    root = arguments.root.resolve()
    findings = list(check(root))
    for path, line, reason in findings:
        print(f"{path.relative_to(root)}:{line}: {reason}")
    sys.exit(1 if findings else 0)


def _self_test(check, good, bad):
    wrong = 0
    for tree, expected in [(good, None), *bad]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            write_tree(root, {**good, **tree} if expected else tree)
            reasons = [reason for _, _, reason in check(root)]
        as_wanted = not reasons if expected is None else len(reasons) == 1 and expected in reasons[0]
        if not as_wanted:
            wrong += 1
            print(f"self-test: wanted {expected or 'silence'!r}, got {reasons}")
    print(f"self-test: {1 + len(bad) - wrong} passed, {wrong} failed")
    return 1 if wrong else 0
