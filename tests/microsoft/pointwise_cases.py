"""Activations and normalizations."""
import math

import numpy as np
from model_cases import Case, reals, whole


def erf(x):
    return np.vectorize(math.erf)(x).astype(np.float64)


def gelu(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def softmax(x):
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def activations():
    x, bias = reals(2, 3, 8, scale=2), reals(8)
    yield Case("plain", "Gelu", [x], half=True)
    yield Case("plain", "FastGelu", [x], half=True)
    yield Case("bias", "FastGelu", [x, bias], constants=(1,))
    yield Case("plain", "BiasGelu", [x, bias], constants=(1,), half=True)
    yield Case("plain", "QuickGelu", [x], half=True)
    yield Case("silu", "QuickGelu", [x], {"alpha": 1.0})
    yield Case("plain", "BiasAdd", [x, bias, reals(2, 3, 8, seed=1)], expected=lambda a, b, c: a + b + c)

    def split(a, b):
        left, right = np.split(a + b, 2, -1)
        return (left * gelu(right)).astype(np.float32)

    yield Case("plain", "BiasSplitGelu", [x, bias], expected=split)
    scores = reals(2, 3, 4, 5)

    def inner(a, b):
        return softmax(a + b).astype(np.float32)

    yield Case("inner", "BiasSoftmax", [scores, reals(2, 1, 1, 5)], {"axis": 3, "is_inner_broadcast": 1}, expected=inner)
    yield Case("outer", "BiasSoftmax", [scores, reals(4, 5)], {"axis": -1, "is_inner_broadcast": 0}, expected=inner)

    def flat(a, b):
        return softmax((a + b).reshape(2, 3, 20)).reshape(a.shape).astype(np.float32)

    yield Case("flat", "BiasSoftmax", [scores, reals(2, 1, 4, 5)], {"axis": 2, "is_inner_broadcast": 1}, expected=flat)


def normalizations():
    x, skip, gamma, beta, bias = reals(2, 3, 16), reals(2, 3, 16, seed=1), reals(16) + 1, reals(16, seed=1), reals(16, seed=2)
    op = "SkipLayerNormalization"
    yield Case("plain", op, [x, skip, gamma, beta], constants=(2, 3), half=True)
    yield Case("no_beta", op, [x, skip, gamma], {"epsilon": 1e-3}, constants=(2,))
    yield Case("bias_and_sum", op, [x, skip, gamma, beta, bias], {"epsilon": 1e-5}, (True, False, False, True), constants=(2, 3, 4))
    yield Case("bias_no_beta", op, [x, skip, gamma, None, bias], outputs=(True, False, False, True), constants=(2, 4))
    yield Case("repeated_skip", op, [x, reals(1, 3, 16), gamma, beta], constants=(2, 3))
    yield Case("flat_skip", op, [x, reals(3, 16), gamma, beta], constants=(2, 3))
    yield Case("two_axes", op, [reals(3, 16), reals(3, 16, seed=1), gamma, beta], constants=(2, 3))
    op = "SkipSimplifiedLayerNormalization"
    yield Case("plain", op, [x, skip, gamma], constants=(2,), half=True)
    yield Case("bias_and_sum", op, [x, skip, gamma, bias], {"epsilon": 1e-5}, (True, False, False, True), constants=(2, 3))
    yield Case("two_axes", op, [reals(3, 16), reals(3, 16, seed=1), gamma], outputs=(True, False, False, True), constants=(2,))
    op = "SimplifiedLayerNormalization"
    yield Case("plain", op, [x, gamma], domain="", opset=17, constants=(1,), half=True)
    yield Case("axis", op, [x, reals(3, 16)], {"axis": 1, "epsilon": 1e-3}, domain="", opset=14)
    yield Case("deviation", op, [x, gamma], outputs=(True, True), domain="", opset=17)
    op = "LayerNormalization"
    yield Case("early", op, [x, gamma, beta], {"epsilon": 1e-4}, domain="", opset=13, constants=(1, 2), half=True)
    yield Case("early_axis", op, [x, reals(3, 16)], {"axis": 1}, domain="", opset=11)
    yield Case("early_outputs", op, [x, gamma, beta], outputs=(True, True, True), domain="", opset=12)


def embeddings():
    words, places, kinds = reals(20, 8), reals(12, 8, seed=1), reals(3, 8, seed=2)
    ids, segments = whole(0, 20, 2, 5, dtype=np.int32), whole(0, 3, 2, 5, dtype=np.int32)
    gamma, beta = reals(8) + 1, reals(8, seed=3)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    op, fixed, both = "EmbedLayerNormalization", (2, 3, 4, 5, 6), {0: (0, 1), 1: (0, 1), 7: (0, 1), 8: (0, 1)}
    more = {"constants": fixed, "open_axes": both}
    yield Case("plain", op, [ids, segments, words, places, kinds, gamma, beta], {}, (True, False), **more)
    yield Case("mask", op, [ids, segments, words, places, kinds, gamma, beta, mask], {"epsilon": 1e-5}, (True, True, True), **more)
    yield Case("no_segments", op, [ids, None, words, places, None, gamma, beta], {}, (True, True, True), **more)
    positions = whole(0, 12, 2, 5, dtype=np.int32, seed=4)
    yield Case("positions", op, [ids, segments, words, places, kinds, gamma, beta, mask, positions], {}, (True, True), **more)


def group_normalized(x, gamma, beta, silu):
    """Of images that are channels last, in 4 groups."""
    n, h, w, c = x.shape
    g = x.astype(np.float64).reshape(n, h * w, 4, c // 4)
    mean, variance = g.mean((1, 3), keepdims=True), g.var((1, 3), keepdims=True)
    y = ((g - mean) / np.sqrt(variance + 1e-4)).reshape(x.shape) * gamma + beta
    return (y / (1 + np.exp(-y)) if silu else y).astype(np.float32)


def group_norms(last):
    def images(a):
        return a if last else np.moveaxis(a, 1, -1)

    def stored(a):
        return a if last else np.ascontiguousarray(np.moveaxis(a, -1, 1))

    def plain(x, gamma, beta):
        return stored(group_normalized(images(x), gamma, beta, last))

    def skipped(x, gamma, beta, skip, bias):
        total = images(x) + (images(skip) if skip.ndim == 4 else skip[:, None, None, :]) + bias
        return stored(group_normalized(total, gamma, beta, last)), stored(total)

    x, gamma, beta, bias = stored(reals(2, 4, 3, 8)), reals(8) + 1, reals(8, seed=1), reals(8, seed=5)
    attributes = {"groups": 4, "activation": last, "channels_last": last, "epsilon": 1e-4}
    yield Case(f"last{last}", "GroupNorm", [x, gamma, beta], attributes, open_axes={0: (0, 2)}, expected=plain, half=True)
    for name, skip in (("whole", stored(reals(2, 4, 3, 8, seed=2))), ("flat", reals(2, 8))):
        yield Case(f"{name}_last{last}", "SkipGroupNorm", [x, gamma, beta, skip, bias], attributes, (True, True),
                   open_axes={0: (0, 2)}, expected=skipped)


def cases():
    for family in (activations, normalizations, embeddings):
        yield from family()
    yield from group_norms(0)
    yield from group_norms(1)
