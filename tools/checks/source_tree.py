"""What the checks share: walking the tree, reporting, and proving that a check can fail."""

import argparse
import pathlib
import re
import sys
import tempfile

LEFT_OUT = {".git", ".deps", "build", "__pycache__"}
ROOT = pathlib.Path(__file__).resolve().parents[2]
# Each alternative begins with its character, which the search then looks for alone; a quote after a digit divides digits.
COMMENT_OR_LITERAL = re.compile(r"""
    //[^\n]*
    | /\*.*?(?:\*/|\Z)
    | R(?<![^\W_]R)"(?P<delimiter>[^(]*)\(.*?(?:\)(?P=delimiter)"|\Z)
    | "(?:\\.?|[^"\\\n])*["\n]?
    | '(?<![^\W_]')(?:\\.?|[^'\\\n])*['\n]?
    """, re.S | re.X)


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
    def blanked(found):
        piece = found.group()
        if piece.startswith("//"):
            return ""
        if piece.startswith("/*"):
            return "\n" * piece.count("\n") or " "
        if keep_strings:
            return piece
        return '""' + "\n" * piece.count("\n") if piece[0] == "R" else piece[0] * 2

    return COMMENT_OR_LITERAL.sub(blanked, text)


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
