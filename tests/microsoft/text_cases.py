"""Hashes of text and numbers, and tokens."""
import numpy as np
from model_cases import Case


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
