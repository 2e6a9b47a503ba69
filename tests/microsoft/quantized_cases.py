"""Quantized operators."""
import numpy as np
from model_cases import Case, reals, whole

ZERO = {np.uint8: np.uint8(120), np.int8: np.int8(-4)}
TYPES = (np.uint8, np.int8)


def scale(number=0.0517):
    return np.array(number, np.float32)


def zero(dtype, number=None):
    return np.array(ZERO[dtype] if number is None else number, dtype)


def bytes_of(dtype, *shape, seed=0):
    info = np.iinfo(dtype)
    return whole(info.min, info.max + 1, *shape, seed=seed, dtype=dtype)


def weights_of(*shape, seed=0):
    """Signed bytes of 7 bits: two products with unsigned bytes have 16 bits then. ONNX Runtime, which says what is expected, sums them
    in so many on processors without VNNI, and where they have more, wrongly."""
    return whole(-64, 64, *shape, seed=seed, dtype=np.int8)


def elements():
    for dtype in TYPES:
        word = np.dtype(dtype).name
        a, b = bytes_of(dtype, 2, 3, 4, 5), bytes_of(dtype, 2, 3, 4, 5, seed=1)
        x = [a, scale(), zero(dtype)]
        end = [scale(0.1093), zero(dtype, 3)]
        fixed = {"constants": (1, 2, 4, 5, 6, 7)}
        for op in ("QLinearAdd", "QLinearMul"):
            yield Case(word, op, [*x, b, scale(0.0313), zero(dtype, 7), *end], **fixed)
            yield Case(f"{word}_repeated", op, [*x, bytes_of(dtype, 4, 1), scale(0.0313), zero(dtype, 7), *end], **fixed)
        fixed = {"constants": (1, 2, 3, 4)}
        yield Case(word, "QLinearSigmoid", [*x, scale(1 / 256), zero(dtype, 0)], **fixed)
        yield Case(word, "QLinearLeakyRelu", [*x, *end], {"alpha": 0.3}, **fixed)
        for axis, opset in ((-1, 13), (1, 13), (2, 11), (-1, 7)):
            attributes = {"axis": axis, "opset": opset}
            yield Case(f"{word}_{axis}_{opset}", "QLinearSoftmax", [*x, scale(1 / 256), zero(dtype, 0)], attributes, **fixed)
        yield Case(word, "QLinearReduceMean", [*x, *end], {"axes": [1, 3], "keepdims": 0}, **fixed,
                   expected=lambda v, s, z, t, y, d=dtype: requantized((real(v, s, z)).mean((1, 3)), t, y, d))
        pool = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
        yield Case(word, "QLinearAveragePool", [*x, *end], pool, **fixed)
        yield Case(f"{word}_padded", "QLinearAveragePool", [*x, *end], {**pool, "count_include_pad": 1}, **fixed)
        yield Case(f"{word}_last", "QLinearAveragePool", [*x, *end], {**pool, "channels_last": 1}, **fixed)
        for last in (0, 1):
            yield Case(f"{word}_last{last}", "QLinearGlobalAveragePool", [*x, *end], {"channels_last": last}, **fixed)
        yield Case(word, "NhwcMaxPool", [bytes_of(dtype, 2, 6, 5, 3)], pool)
        choice = whole(0, 2, 2, 3, 4, 5).astype(bool)
        yield Case(word, "QLinearWhere", [choice, *x, b, scale(0.0313), zero(dtype, 7), *end], constants=(2, 3, 5, 6, 7, 8))
        parts = [*end, *x, bytes_of(dtype, 2, 3, 2, 5), scale(0.0313), zero(dtype, 7), b, *end]
        yield Case(word, "QLinearConcat", parts, {"axis": 2}, constants=(0, 1, 3, 4, 6, 7, 9, 10))
        yield Case(word, "MulInteger", [a, zero(dtype), b, zero(dtype, 7)],
                   expected=lambda v, z, w, y: (v.astype(np.int32) - z) * (w.astype(np.int32) - y))
        yield Case(word, "ReduceSumInteger", [a], {"axes": [0, 2], "keepdims": 1},
                   expected=lambda v: v.astype(np.int64).sum((0, 2), keepdims=True).astype(np.uint32 if v.dtype == np.uint8 else np.int32))


def real(values, unit, origin):
    return (values.astype(np.float32) - np.float32(origin)) * unit


def requantized(values, unit, origin, dtype):
    info = np.iinfo(dtype)
    return np.clip(np.rint(values / unit) + origin, info.min, info.max).astype(dtype)


def linear():
    x = reals(3, 4, 5, scale=2)
    for dtype in (np.uint8, np.int8, np.uint16, np.int16):
        word = np.dtype(dtype).name
        far = np.array(5, dtype)
        yield Case(word, "QuantizeLinear", [x, scale(), far], constants=(1, 2), forms=("static",))
        yield Case(word, "DequantizeLinear", [bytes_of(dtype, 3, 4), scale(), far], constants=(1, 2))
    units, origins = np.array([0.1, 0.2, 0.05, 0.3], np.float32), np.array([1, 2, 3, 4], np.uint8)
    yield Case("axis", "QuantizeLinear", [x, units, origins], {"axis": 1}, constants=(1, 2))
    yield Case("no_zero", "QuantizeLinear", [np.abs(x), np.array([0.05], np.float32)], constants=(1,))
    yield Case("axis", "DequantizeLinear", [bytes_of(np.uint8, 3, 4, 5), units, origins], {"axis": 1}, constants=(1, 2))
    yield Case("int32", "DequantizeLinear", [whole(-999, 999, 3, 4, dtype=np.int32), np.array([0.05], np.float32)], constants=(1,))


def products():
    for dtype in TYPES:
        word = np.dtype(dtype).name
        a, b = bytes_of(dtype, 3, 16), weights_of(16, 6)
        many = (np.abs(reals(6)) * 0.02 + 0.01).astype(np.float32)
        fixed = {"constants": tuple(range(1, 9))}
        c = whole(-5000, 5000, 6, dtype=np.int32)
        start = [a, scale(), zero(dtype), b]
        end = [scale(0.7), zero(dtype, 3)]
        yield Case(word, "QGemm", [*start, scale(0.02), zero(np.int8, 0), c, *end], **fixed)
        yield Case(f"{word}_columns", "QGemm", [*start, many, np.zeros(6, np.int8), c, *end], **fixed)
        turned = [a, scale(), zero(dtype), np.ascontiguousarray(b.T), many, np.zeros(6, np.int8), c, *end]
        yield Case(f"{word}_turned", "QGemm", turned, {"transB": 1, "alpha": 0.5}, **fixed)
        yield Case(f"{word}_real", "QGemm", [*start, scale(0.02), zero(np.int8, 3)], {"transB": 0},
                   constants=(1, 2, 3, 4, 5), rtol=1e-3, atol=1e-3)
    x, w = bytes_of(np.uint8, 2, 4, 7, 6), weights_of(6, 2, 3, 3)
    fixed = {"constants": tuple(range(1, 9))}
    units = (np.abs(reals(6)) * 0.02 + 0.01).astype(np.float32)
    rest = [scale(), zero(np.uint8), w, units, np.zeros(6, np.int8), scale(0.9), zero(np.uint8, 3), whole(-900, 900, 6, dtype=np.int32)]
    attributes = {"group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]}
    yield Case("first", "QLinearConv", [x, *rest], {**attributes, "channels_last": 0}, forms=("static",), **fixed)
    yield Case("last", "QLinearConv", [np.ascontiguousarray(np.moveaxis(x, 1, -1)), *rest],
               {**attributes, "channels_last": 1}, forms=("static",), **fixed)
    a, b, bias = reals(2, 3, 16), weights_of(16, 6), reals(6)
    many = (np.abs(reals(6)) * 0.02 + 0.01).astype(np.float32)
    close = {"rtol": 1e-3, "atol": 1e-3}
    yield Case("plain", "DynamicQuantizeMatMul", [a, b, scale(0.02)], constants=(1, 2), **close)
    yield Case("bias", "DynamicQuantizeMatMul", [a, b, scale(0.02), zero(np.int8, 3), bias], constants=(1, 2, 3, 4), **close)
    yield Case("columns", "DynamicQuantizeMatMul", [a, b, many, np.arange(6).astype(np.int8), bias], constants=(1, 2, 3, 4), **close)
    yield Case("uint8", "DynamicQuantizeMatMul", [a, bytes_of(np.uint8, 16, 6), scale(0.02), zero(np.uint8, 128)],
               constants=(1, 2, 3), **close)
    for dtype in TYPES:
        given = [bytes_of(dtype, 2, 3, 16), b, scale(), many, zero(dtype), None, bias]
        yield Case(np.dtype(dtype).name, "MatMulIntegerToFloat", given, constants=(1, 3, 6), **close)
    yield Case("plain", "MatMulIntegerToFloat", [bytes_of(np.uint8, 3, 16), b, scale(), scale(0.02)], constants=(1,), **close)


def attentions():
    op, heads = "QAttention", {"num_heads": 2}
    x, w, b = bytes_of(np.uint8, 2, 5, 8), weights_of(8, 48), reals(48)
    given = [x, w, b, scale(0.02), scale(0.01)]
    more = {"constants": (1, 2, 3, 4, 6, 7), "rtol": 1e-3, "atol": 1e-4, "open_axes": {0: (0, 1), 5: (0, 1), 8: (1, 3)}}
    lengths = np.array([3, 5], np.int32)
    yield Case("plain", op, [*given, None, zero(np.uint8), zero(np.int8, 0)], heads, **more)
    yield Case("mask", op, [*given, lengths, zero(np.uint8), zero(np.int8, 0)], heads, **more)
    many = (np.abs(reals(48)) * 0.01 + 0.005).astype(np.float32)
    ones = np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]], np.int32)
    yield Case("columns", op, [*given[:4], many, ones, zero(np.uint8)], heads, **more)
    past = reals(2, 2, 2, 3, 8)
    yield Case("past", op, [*given, None, zero(np.uint8), zero(np.int8, 0), past], {**heads, "unidirectional": 1}, (True, True), **more)
    wide = {**more, "constants": (3, 4, 6, 7), "open_axes": {0: (0, 1, 2), 1: (0, 1), 2: (0,)}, "forms": ("symbolic",)}
    yield Case("open_width", op, [*given, None, zero(np.uint8), zero(np.int8, 0)], heads, **wide)


def recurrent():
    op, wanted = "DynamicQuantizeLSTM", (True, True, True)
    constants = (1, 2, 3, 7, 8, 9, 10, 11)

    def case(name, directions=1, word="forward", dtype=np.int8, columns=False, extra=(), size=(4, 2, 5, 3), **attributes):
        steps, batch, width, hidden = size
        middle = 0 if dtype == np.int8 else 128
        w, r = ((weights_of(directions, depth, 4 * hidden, seed=depth).astype(np.int32) + middle).astype(dtype)
                for depth in (width, hidden))
        one = np.full(directions, 0.01, np.float32)
        many = (np.abs(reals(directions, 4 * hidden)) * 0.004 + 0.002).astype(np.float32)
        # ONNX Runtime wants zero points of columns to be equal, and signed ones to be 0.
        zeros = np.full((directions, 4 * hidden) if columns else directions, middle if columns else middle + 2, dtype)
        units = many if columns else one
        given = {"B": reals(directions, 8 * hidden), "lengths": np.array([1 + k % steps for k in range(batch)], np.int32),
                 "H": reals(directions, batch, hidden, seed=2), "C": reals(directions, batch, hidden, seed=3),
                 "P": reals(directions, 3 * hidden, seed=4)}
        optional = [given[key] if key in extra else None for key in ("B", "lengths", "H", "C", "P")]
        fed = {index: axes for index, axes in {0: (0, 1), 4: (0,), 5: (1,), 6: (1,)}.items()}
        # ONNX Runtime rounds states by a range in which sequences that end count for a step more.
        close = {"rtol": 1e-3, "atol": 1e-2 if "lengths" in extra else 1e-4, "outputs": wanted, "constants": constants}
        return Case(name, op, [reals(steps, batch, width), w, r, *optional, units, zeros, units, zeros],
                    {"direction": word, "hidden_size": hidden, **attributes}, open_axes=fed, **close)

    for word in ("forward", "reverse", "bidirectional"):
        for dtype in TYPES:
            name = f"{word}_{np.dtype(dtype).name}"
            directions = 2 if word == "bidirectional" else 1
            yield case(name, directions, word, dtype, extra=("B",))
            yield case(f"{name}_columns", directions, word, dtype, True)
            yield case(f"{name}_lengths", directions, word, dtype, extra=("B", "lengths", "H", "C"), size=(5, 3, 7, 9))
            yield case(f"{name}_all", directions, word, dtype, True, ("B", "lengths", "H", "C", "P"), (5, 4, 16, 24), clip=0.75)
    yield case("one", size=(6, 1, 33, 40), extra=("B",))
    yield case("input_forget", input_forget=1, extra=("B", "P"))
    yield case("functions", activations=["HardSigmoid", "Softsign", "Elu"], activation_alpha=[0.3, 0.5], activation_beta=[0.4],
               extra=("B",))
    yield case("narrow", size=(3, 2, 1, 1))


def tables():
    op = "GatherBlockQuantized"
    indices = np.array([[3, 0, 5], [-1, 2, 2]], np.int64)
    for bits in (4, 8):
        table = bytes_of(np.uint8, 6, 48 * bits // 8)
        scales = (np.abs(reals(6, 3)) * 0.05).astype(np.float32)
        attributes = {"bits": bits, "block_size": 16, "quantize_axis": 1, "gather_axis": 0}
        more = {"constants": (0, 2, 3), "open_axes": {1: (0, 1)}}
        yield Case(f"b{bits}", op, [table, indices, scales], attributes, half=True, **more)
        yield Case(f"b{bits}_zero_points", op, [table, indices, scales, bytes_of(np.uint8, 6, -(-3 * bits // 8))], attributes, **more)
    yield Case("int32_indices", op, [table, np.array([1, 5], np.int32), scales], attributes, **more)


def embeddings():
    ids, segments = whole(0, 20, 2, 5, dtype=np.int32), whole(0, 3, 2, 5, dtype=np.int32)
    tables = [bytes_of(np.uint8, rows, 8, seed=rows) for rows in (20, 12, 3)]
    gamma, beta = bytes_of(np.uint8, 8), bytes_of(np.uint8, 8, seed=1)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    units, origins = [scale(0.01 * k) for k in range(1, 6)], [zero(np.uint8, 20 * k) for k in range(1, 6)]
    yield Case("plain", "QEmbedLayerNormalization", [ids, segments, *tables, gamma, beta, mask, *units, *origins], {}, (True, True),
               constants=(2, 3, 4, 5, 6, *range(8, 18)), open_axes={0: (0, 1), 1: (0, 1), 7: (0, 1)}, rtol=1e-3)


def others():
    for axis in (0, 2, -1):
        given = np.array(axis, np.int32)
        where = axis if axis >= 0 else 3
        yield Case(f"axis{axis}", "ExpandDims", [reals(2, 3, 4), given], constants=(1,),
                   expected=lambda x, _, w=where: np.expand_dims(x, w))
    for upper in (0, 1):
        yield Case(f"upper{upper}", "Trilu", [reals(2, 4, 5)], {"upper": upper})
        yield Case(f"upper{upper}_k", "Trilu", [reals(2, 4, 5), np.array(-1, np.int64)], {"upper": upper})


def cases():
    for family in (elements, linear, products, attentions, recurrent, tables, embeddings, others):
        yield from family()
