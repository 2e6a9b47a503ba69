"""GatherND, GridSample, Pad, Range, Unique, NGramRepeatBlock, CDist, Inverse, ConvTransposeWithDynamicPads."""
import numpy as np
from model_cases import Case, reals, whole


def indexing():
    for dtype in (np.int32, np.int64):
        yield Case(f"rows_{dtype.__name__}", "GatherND", [reals(3, 4, 5), np.array([[0, 1], [2, 3], [-1, 0]], dtype)],
                   {}, open_axes={0: (0, 1), 1: (0,)})
    grid = (0.6 * reals(2, 3, 4, 2)).clip(-1.2, 1.2)
    for mode in ("bilinear", "nearest", "bicubic"):
        # Cubic weights and a point beyond the outer half of a pixel: ONNX moves it to the border, ONNX Runtime does not.
        for padding in ("zeros", "border", "reflection")[:: 2 if mode == "bicubic" else 1]:
            attributes = {"mode": mode, "padding_mode": padding, "align_corners": int(padding == "border")}
            yield Case(f"{mode}_{padding}", "GridSample", [reals(2, 3, 5, 6), grid], attributes,
                       open_axes={0: (0, 2, 3), 1: (0, 1, 2)}, rtol=1e-3)
    x = reals(3, 4)
    yield Case("constant", "Pad", [x, np.array([0, 1, 2, 1], np.int64), np.array([0.5], np.float32)], {})
    yield Case("row_of_pads", "Pad", [x, np.array([[0, 1, 2, -1]], np.int64)], {}, constants=(1,))
    for mode in ("reflect", "edge"):
        yield Case(mode, "Pad", [x, np.array([1, 2, 0, 1], np.int64)], {"mode": mode}, constants=(1,))
    for dtype in (np.float32, np.float64, np.int16, np.int32, np.int64):
        name = np.dtype(dtype).name
        yield Case(f"step_{name}", "Range", [np.array(v, dtype) for v in (1, 9, 2)], {})
        yield Case(f"one_{name}", "Range", [np.array([v], dtype) for v in (1, 4)], {})
    three = (True, True, True)
    yield Case("floats", "Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)], {}, three, open_axes={0: (0,)})
    yield Case("empty", "Unique", [np.zeros(0, np.float32)], {}, three, open_axes={0: (0,)})


def ngrams():
    op = "NGramRepeatBlock"
    tokens = whole(0, 4, 3, 12)
    more = {"open_axes": {0: (0, 1), 1: (0, 1)}}
    for size in (1, 2, 3, 4):
        yield Case(f"of{size}", op, [tokens, reals(3, 6)], {"ngram_size": size}, **more)
    huge = {"ngram_size": 1_000_000_000}  # which repeats nothing, and is no reason for so many nodes
    yield Case("of_more", op, [tokens, reals(3, 6)], huge, forms=("static",))
    for length in (1, 2, 3):
        yield Case(f"few{length}", op, [tokens[:, :length].copy(), reals(3, 6)], {"ngram_size": 3}, **more)


def matrices():
    for metric in ("euclidean", "sqeuclidean"):
        yield Case(metric, "CDist", [reals(5, 3), reals(7, 3, seed=1)], {"metric": metric}, constants=(1,),
                   open_axes={0: (0,)}, rtol=1e-3, atol=1e-4)
        wide = [reals(5, 3).astype(np.float64), reals(7, 3, seed=1).astype(np.float64)]
        yield Case(f"{metric}_double", "CDist", wide, {"metric": metric}, open_axes={0: (0,), 1: (0,)})

    def exact(a, b):
        apart = a[:, None].astype(np.float64) - b[None].astype(np.float64)
        return np.sqrt((apart**2).sum(-1)).astype(np.float32)

    # Far from 0, where ONNX Runtime's float sums cancel.
    far = [reals(5, 3) + np.float32(1000), reals(7, 3, seed=1) + np.float32(1000)]
    yield Case("far", "CDist", far, {"metric": "euclidean"}, constants=(1,), open_axes={0: (0,)}, expected=exact, rtol=1e-3)
    for n in (1, 2, 5, 16):
        yield Case(f"n{n}", "Inverse", [reals(2, n, n) + 3 * np.eye(n, dtype=np.float32)], {}, open_axes={0: (0,)}, rtol=1e-3)
    exchange = np.array([[0, 2, 0], [0, 0, 3], [4, 0, 0]], np.float32)
    yield Case("exchanges", "Inverse", [exchange], {})
    yield Case("double", "Inverse", [reals(3, 4, 4).astype(np.float64) + 3 * np.eye(4)], {})


def conv_transposed():
    op = "ConvTransposeWithDynamicPads"
    x, w, b = reals(1, 4, 5, 6), reals(4, 3, 3, 3), reals(3)
    more = {"constants": (1, 3), "open_axes": {0: (0, 2, 3)}, "rtol": 1e-3, "atol": 1e-4}
    for pads in ((0, 0, 0, 0), (1, 0, 1, 2)):
        attributes = {"strides": [2, 1], "output_padding": [1, 0]}
        yield Case("pads_" + "".join(map(str, pads)), op, [x, w, np.array(pads, np.int64), b], attributes, **more)
    yield Case("group", op, [x, reals(4, 2, 3, 3), np.array([1, 1, 1, 1], np.int64)], {"group": 2, "dilations": [1, 2]}, **more)


def cases():
    for family in (indexing, ngrams, matrices, conv_transposed):
        yield from family()
