"""Hashes of text and numbers, and tokens."""
import numpy as np
from model_cases import Case

# Of the matches that begin first the longest is a token; empty ones are none.
EXPRESSIONS = (
    ("[a-z]+", "one two;three"), ("abcd|bc", "abcx abcd bcd"), ("a|ab|abc", "abcab"), ("a*", "baac"), ("(a|aa)+$", "aabaaa"),
    ("\\bb\\w*", "ab bc cb b"), ("^a|b", "aab"), ("x*y?|yz", "xxyzyz"), ("[0-9]+(\\.[0-9]+)?", "1.5.2 3. .4"),
    ("[a-z]+x|[b-z]", "abxcaa"), ("a{2,3}", "aaaaaaa"), ("(ab|b)c?", "abcbcb"),
)


def cases():
    words = np.array([["", "a"], ["hello", "hello world"], ["\u00e4b", "123"]], object)
    yield Case("text", "MurmurHash3", [words])
    yield Case("signed", "MurmurHash3", [words], {"positive": 0, "seed": 7})
    numbers = np.array([[1, 2], [70000, 5]])
    for kind in (np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64):
        yield Case(np.dtype(kind).name, "MurmurHash3", [numbers.astype(kind)], {"seed": 3})
    ragged = np.array([["ab cd", ""], ["x", "a b c"]], object)
    for mark in (0, 1):
        yield Case(f"ragged_{mark}", "Tokenizer", [ragged], {"mark": mark, "mincharnum": 1, "pad_value": "#", "separators": [" "]})
    for number, (expression, text) in enumerate(EXPRESSIONS):
        attributes = {"mark": 0, "mincharnum": 1, "pad_value": "#", "tokenexp": expression}
        yield Case(f"expression_{number}", "Tokenizer", [np.array([text], object)], attributes)
    # Trying each place of the text on its own would take minutes.
    attributes = {"mark": 0, "mincharnum": 1, "pad_value": "#", "tokenexp": "[a-z]+x"}
    yield Case("long", "Tokenizer", [np.array(["a" * 200_000 + "B", "ax" + "b" * 200_000], object)], attributes)
