"""Cases of one node whose rows several work items share: reductions, running sums, the best elements, softmax, normalisation, ranges of
what is quantized. What is expected is worked out in double precision."""

import json

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOATS = {"f32": (np.float32, TensorProto.FLOAT, 2e-5), "f64": (np.float64, TensorProto.DOUBLE, 1e-11),
          "f16": (np.float16, TensorProto.FLOAT16, 2e-3), "bf16": (np.float32, TensorProto.BFLOAT16, 2e-2)}
INTEGERS = {"i32": (np.int32, TensorProto.INT32), "i64": (np.int64, TensorProto.INT64), "u8": (np.uint8, TensorProto.UINT8),
            "i8": (np.int8, TensorProto.INT8), "u64": (np.uint64, TensorProto.UINT64)}


def rounded(x, kind):
    """As memory holds it, in double."""
    if kind == "bf16":
        bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return bits.astype(np.uint32).view(np.float32).astype(np.float64)
    return x.astype(FLOATS[kind][0]).astype(np.float64)


def tensor_of(x, code):
    if code == TensorProto.BFLOAT16:
        bits = (np.ascontiguousarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return helper.make_tensor("", code, x.shape, bits.tobytes(), raw=True)
    return numpy_helper.from_array(np.asarray(x, helper.tensor_dtype_to_np_dtype(code), order="C"))


def write_case(folder, graph, opset, feeds, outputs, tolerance):
    """A folder that `backplane verify` reads, by the graph's name. Feeds and outputs: tensors."""
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset)])
    data = folder / graph.name / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / graph.name / "model.onnx").write_bytes(model.SerializeToString())
    (folder / graph.name / "data.json").write_text(json.dumps({"rtol": tolerance, "atol": tolerance}))
    for word, tensors in (("input", feeds), ("output", outputs)):
        for k, tensor in enumerate(tensors):
            (data / f"{word}_{k}.pb").write_bytes(tensor.SerializeToString())


def save(folder, name, node, opset, inputs, outputs, tolerance, constants=()):
    """Inputs and outputs: (name, array, element type). Constants: those inputs that are initializers."""
    def infos(values):
        return [helper.make_tensor_value_info(key, code, x.shape) for key, x, code in values]

    fed = [each for each in inputs if each[0] not in constants]
    weights = [tensor_of(x, code) for key, x, code in inputs if key in constants]
    for weight, key in zip(weights, [key for key, *_ in inputs if key in constants]):
        weight.name = key
    graph = helper.make_graph([node], name, infos(fed), infos(outputs), weights)
    write_case(folder, graph, opset, *([tensor_of(x, code) for _, x, code in values] for values in (fed, outputs)), tolerance)


def reduced(op_type, x, axes):
    axis, keep = tuple(axes), {"keepdims": True}
    return {"ReduceSum": lambda: x.sum(axis, **keep), "ReduceMean": lambda: x.mean(axis, **keep),
            "ReduceMax": lambda: x.max(axis, **keep), "ReduceMin": lambda: x.min(axis, **keep),
            "ReduceProd": lambda: x.prod(axis, **keep), "ReduceL1": lambda: np.abs(x).sum(axis, **keep),
            "ReduceL2": lambda: np.sqrt((x * x).sum(axis, **keep)), "ReduceSumSquare": lambda: (x * x).sum(axis, **keep),
            "ReduceLogSum": lambda: np.log(x.sum(axis, **keep)),
            "ReduceLogSumExp": lambda: np.log(np.exp(x).sum(axis, **keep))}[op_type]()


def reduction(folder, random, op_type, kind, dims, axes):
    name = f"{op_type}_{kind}_{'x'.join(map(str, dims))}_axes_{'_'.join(map(str, axes))}"
    if kind in INTEGERS:
        dtype, code = INTEGERS[kind]
        x = random.integers(0, 3, dims).astype(dtype)
        y = np.nan_to_num(reduced(op_type, x.astype(np.int64), axes)).astype(dtype)  # the mean of none is 0
        tolerance = 0
    else:
        _, code, tolerance = FLOATS[kind]
        x = rounded(random.uniform(0.5, 1.5, dims) if op_type in ("ReduceLogSum", "ReduceProd") else
                    random.uniform(-2, 2, dims), kind)
        y = rounded(reduced(op_type, x, axes), kind)
        tolerance *= 1 + np.abs(x).sum(tuple(axes)).max() / max(1, np.abs(y).max()) / 100 if x.size else 1
    node = helper.make_node(op_type, ["x", "axes"], ["y"])
    save(folder, name, node, 18 if op_type != "ReduceSum" else 13,
         [("x", x, code), ("axes", np.array(axes, np.int64), TensorProto.INT64)], [("y", y, code)], tolerance, ("axes",))


def extreme(folder, random, op_type, kind, dims, axis, takes_last):
    dtype, code = INTEGERS[kind] if kind in INTEGERS else FLOATS[kind][:2]
    x = random.integers(0, 50, dims).astype(dtype)
    if kind in FLOATS and x.size > 40:
        x.reshape(-1)[[17, 23]] = np.nan
    turned = np.flip(x, axis) if takes_last else x
    found = (np.argmax if op_type == "ArgMax" else np.argmin)(turned, axis, keepdims=True)
    if takes_last:
        found = x.shape[axis] - 1 - found
        # Of several NaN the first counts.
        nan = np.isnan(x) if kind in FLOATS else np.zeros(x.shape, bool)
        found = np.where(nan.any(axis, keepdims=True), nan.argmax(axis, keepdims=True), found)
    node = helper.make_node(op_type, ["x"], ["y"], axis=axis, select_last_index=int(takes_last))
    name = f"{op_type}_{kind}_{'x'.join(map(str, dims))}_axis_{axis}_{int(takes_last)}"
    save(folder, name, node, 13, [("x", x, code)], [("y", found.astype(np.int64), TensorProto.INT64)], 0)


def running(folder, random, op_type, kind, dims, axis, exclusive=False, reverse=False):
    name = f"{op_type}_{kind}_{'x'.join(map(str, dims))}_axis_{axis}_{int(exclusive)}{int(reverse)}"
    if kind in INTEGERS:
        dtype, code = INTEGERS[kind]
        x = random.integers(0, 100, dims).astype(dtype) if op_type == "CumSum" else random.integers(1, 4, dims).astype(dtype)
        tolerance = 0
    else:
        dtype, code, tolerance = FLOATS[kind]
        x = rounded(random.uniform(-1, 2, dims) if op_type == "CumSum" else np.exp(random.uniform(-0.1, 0.1, dims)), kind)
    ordered = np.flip(x, axis) if reverse else x
    scan, neutral = (np.cumsum, 0) if op_type == "CumSum" else (np.cumprod, 1)
    y = scan(ordered, axis, dtype=x.dtype)  # integers wrap, as memory has them
    if exclusive:
        y = np.roll(y, 1, axis)
        y[(slice(None),) * axis + (slice(0, 1),)] = neutral
    y = np.flip(y, axis) if reverse else y
    node = helper.make_node(op_type, ["x", "axis"], ["y"], exclusive=int(exclusive), reverse=int(reverse))
    save(folder, name, node, 14 if op_type == "CumSum" else 26,
         [("x", x, code), ("axis", np.array(axis, np.int64), TensorProto.INT64)],
         [("y", y if kind in INTEGERS else rounded(y, kind), code)], tolerance * 4, ("axis",))


def best(folder, random, kind, dims, axis, k, largest=True, spread=50, is_constant=True):
    """Few different values, so that many are equal; of floats some are NaN, which is the greatest, some infinite, some -0."""
    dtype, code = INTEGERS[kind] if kind in INTEGERS else FLOATS[kind][:2]
    if kind in INTEGERS:
        limits = np.iinfo(dtype)
        x = random.integers(0 if limits.min == 0 else -(spread // 2), spread // 2 + 1, dims).astype(dtype)
        x.reshape(-1)[[1, -2]] = limits.max, limits.min
    else:
        x = (random.integers(-spread, spread + 1, dims) / 4).astype(np.float32)
        x.reshape(-1)[:x.size // 9 * 4:x.size // 9] = np.nan, np.inf, -np.inf, -0.0
        x = rounded(x, kind)
    # Their order among all values, NaN being the last there.
    rank = np.unique(x, return_inverse=True)[1].reshape(x.shape).astype(np.int64)
    order = np.argsort(-rank if largest else rank, axis, kind="stable")
    if not largest and kind in FLOATS:
        order = np.argsort(np.where(np.isnan(x), rank.max() + 1, rank), axis, kind="stable")
    places = np.take(order, range(k), axis)
    name = f"TopK_{kind}_{'x'.join(map(str, dims))}_axis_{axis}_{k}_{int(largest)}_{spread}_{int(is_constant)}"
    save(folder, name, helper.make_node("TopK", ["x", "k"], ["y", "at"], axis=axis, largest=int(largest)), 11,
         [("x", x, code), ("k", np.array([k], np.int64), TensorProto.INT64)],
         [("y", np.take_along_axis(x, places, axis), code), ("at", places, TensorProto.INT64)], 0, ("k",) if is_constant else ())


def hardmax(folder, random, kind, dims, axis):
    _, code, _ = FLOATS[kind]
    x = rounded(random.integers(-20, 20, dims).astype(np.float32), kind)
    y = np.zeros(dims)
    if x.size:
        np.put_along_axis(y, x.argmax(axis, keepdims=True), 1, axis)
    save(folder, f"Hardmax_{kind}_{'x'.join(map(str, dims))}_axis_{axis}",
         helper.make_node("Hardmax", ["x"], ["y"], axis=axis), 13, [("x", x, code)], [("y", y, code)], 0)


def lp(folder, random, kind, dims, axis, p):
    _, code, tolerance = FLOATS[kind]
    x = rounded(random.uniform(-2, 2, dims), kind)
    if x.size and axis > 0:
        x[0] = 0
    norm = np.abs(x).sum(axis, keepdims=True) if p == 1 else np.sqrt((x * x).sum(axis, keepdims=True))
    y = np.divide(x, norm, out=np.zeros(dims), where=norm != 0)
    save(folder, f"LpNormalization_{kind}_{'x'.join(map(str, dims))}_axis_{axis}_{p}",
         helper.make_node("LpNormalization", ["x"], ["y"], axis=axis, p=p), 1 if kind != "bf16" else 22,
         [("x", x, code)], [("y", rounded(y, kind), code)], tolerance)


def softmax(folder, random, op_type, kind, dims, axis, spread=8.0):
    _, code, tolerance = FLOATS[kind]
    x = rounded(random.uniform(-spread, spread, dims), kind)
    if x.size > 100:  # as masks have it
        x.reshape(-1)[::7] = -np.inf
    shifted = x - x.max(axis, keepdims=True) if x.size else x
    sums = np.exp(shifted).sum(axis, keepdims=True)
    y = np.exp(shifted) / sums if op_type == "Softmax" else shifted - np.log(sums)
    name = f"{op_type}_{kind}_{'x'.join(map(str, dims))}_axis_{axis}"
    save(folder, name, helper.make_node(op_type, ["x"], ["y"], axis=axis), 13, [("x", x, code)],
         [("y", rounded(y, kind), code)], tolerance)


def layer(folder, random, op_type, kind, dims, axis, has_bias=True, statistics=False):
    _, code, tolerance = FLOATS[kind]
    row = dims[axis:]
    x = rounded(random.uniform(-2, 2, dims) + 3, kind)
    scale, bias = (rounded(random.uniform(-1, 1, row), kind) for _ in range(2))
    axes = tuple(range(len(dims))[axis:])
    mean = x.mean(axes, keepdims=True) if op_type == "LayerNormalization" else np.zeros((1,) * len(dims))
    inverse = 1 / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + 1e-5)
    y = (x - mean) * inverse * scale + (bias if has_bias else 0)
    inputs = [("x", x, code), ("scale", scale, code)] + ([("bias", bias, code)] if has_bias else [])
    outputs = [("y", rounded(y, kind), code)]
    if statistics:
        outputs += [("mean", mean, TensorProto.FLOAT), ("inverse", inverse, TensorProto.FLOAT)]
    name = f"{op_type}_{kind}_{'x'.join(map(str, dims))}_axis_{axis}_{int(has_bias)}{int(statistics)}"
    node = helper.make_node(op_type, [key for key, *_ in inputs], [key for key, *_ in outputs], axis=axis)
    save(folder, name, node, 17 if op_type == "LayerNormalization" else 23, inputs, outputs, 4 * tolerance)


def groups(folder, random, op_type, kind, dims, count, opset=21):
    _, code, tolerance = FLOATS[kind]
    channels = dims[1]
    count = channels if op_type == "InstanceNormalization" else count
    x = rounded(random.uniform(-2, 2, dims) + 3, kind)
    is_by_group = op_type == "GroupNormalization" and opset < 21
    scale, bias = (rounded(random.uniform(-1, 1, count if is_by_group else channels), kind) for _ in range(2))
    rows = x.reshape(dims[0], count, int(np.prod(dims[1:])) // count)
    mean, variance = rows.mean(2, keepdims=True), rows.var(2, keepdims=True)
    whole = (1, channels) + (1,) * (len(dims) - 2)
    a, b = (np.repeat(one, channels // len(one)).reshape(whole) for one in (scale, bias))
    y = ((rows - mean) / np.sqrt(variance + 1e-5)).reshape(dims) * a + b
    more = {} if op_type == "InstanceNormalization" else {"num_groups": count}
    save(folder, f"{op_type}_{kind}_{'x'.join(map(str, dims))}_{count}" + ("_by_group" if is_by_group else ""),
         helper.make_node(op_type, ["x", "scale", "bias"], ["y"], **more), opset if more else 6,
         [("x", x, code), ("scale", scale, code), ("bias", bias, code)], [("y", rounded(y, kind), code)], 4 * tolerance)


def quantized(folder, random, dims, low=-2.0, high=3.0, odd=()):
    """By float's own arithmetic, to the last bit. `odd`: what a few elements are instead; NaN is passed over and becomes 0."""
    x = random.uniform(low, high, dims).astype(np.float32)
    x.reshape(-1)[7:7 + 11 * len(odd):11] = odd
    least, greatest = (np.float32(fold(x[~np.isnan(x)], initial=0)) for fold in (np.min, np.max))
    scale = np.float32(1) if least == greatest else (greatest - least) / np.float32(255)
    with np.errstate(invalid="ignore"):
        zero = np.nan_to_num(np.clip(np.rint(-least / scale), 0, 255)).astype(np.uint8)
        y = np.nan_to_num(np.clip(np.rint(x / scale) + np.float32(zero), 0, 255)).astype(np.uint8)
    name = f"DynamicQuantizeLinear_{'x'.join(map(str, dims))}_{low}_{high}_{'_'.join(map(str, odd))}"
    save(folder, name, helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"]), 11, [("x", x, TensorProto.FLOAT)],
         [("y", y, TensorProto.UINT8), ("scale", np.array(scale), TensorProto.FLOAT), ("zero", zero, TensorProto.UINT8)], 0)


REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
              "ReduceLogSum", "ReduceLogSumExp")
# Dims and axes: along the row, across it, both, one element, none; wide reads and not; rows that are divided.
REDUCED = [((3, 20), [1]), ((5, 1), [1]), ((1, 7), [0]), ((40, 33), [0]), ((4, 6, 5, 3), [0, 2]), ((4, 6, 5, 4), [1, 3]),
           ((2, 3, 260), [2]), ((0, 4), [1]), ((3, 0), [1])]
# Rows that are neighbours, several of which are read at once, or would be if there were as many.
ACROSS = [((2, 49, 64), [1]), ((1, 30, 300), [1]), ((3, 5, 6, 24), [1, 2]), ((260, 12), [0]), ((2, 9, 30), [1]), ((2, 3, 4), [1])]
LONG = [((2, 100_003), [1]), ((1, 65_536), [1]), ((40_001, 3), [0]), ((3, 9_000, 2), [0, 1]), ((300, 2_000), [1])]


# Element types, dims and axis of running sums: along the row and across it, wide and not, tiles that are not full, divided rows.
RUNNING = [("f32", (3, 20), 1), ("f32", (5, 1), 1), ("f32", (2, 1027), 1), ("f16", (3, 2048), 1), ("f64", (4, 33, 5), 1),
           ("i32", (2, 999), 1), ("i64", (70, 40), 0), ("u64", (3, 300), 1), ("f32", (0, 4), 1), ("f32", (3, 0), 1),
           ("f64", (1, 100_004), 1), ("f32", (2, 30_001), 1), ("i32", (1, 50_001), 1), ("f32", (9_000, 3), 0),
           ("f32", (300, 512), 1), ("f32", (2, 600, 40), 1)]
# Element types, dims, axis and k of the best: sorted wholly, selected by digits of keys and of places, divided rows, all of them.
BEST = [("f32", (3, 20), 1, 3), ("f32", (2, 16), 1, 16), ("f32", (2, 17), 1, 17), ("f32", (1, 257), 1, 1), ("f64", (2, 300), 1, 300),
        ("f16", (3, 1000), 1, 7), ("i32", (2, 1025), 1, 1000), ("i64", (2, 700, 3), 1, 5), ("u8", (4, 600), 1, 20),
        ("i8", (300, 2), 0, 64), ("u64", (2, 2049), 1, 65), ("f32", (1, 8_400), 1, 100), ("f32", (1, 50_000), 1, 1000),
        ("f64", (1, 40_001), 1, 10), ("i32", (2, 65_536), 1, 3), ("f32", (1, 255), 1, 255), ("f16", (1, 20_000, 2), 1, 300),
        ("i64", (1, 9_000), 1, 1), ("f32", (130, 4_000), 1, 1024)]


def write_scans(folder, random):
    for number, (kind, dims, axis) in enumerate(RUNNING):
        for exclusive, reverse in ((False, number % 2 == 1), (True, number % 2 == 0)):
            running(folder, random, "CumSum", kind, dims, axis, exclusive, reverse)
    for kind, dims, axis in (("f32", (3, 300), 1), ("u64", (2, 12_000), 1), ("f32", (40, 9), 0)):
        running(folder, random, "CumProd", kind, dims, axis, kind == "u64", True)
    for number, (kind, dims, axis, k) in enumerate(BEST):
        for largest in (True, False):
            best(folder, random, kind, dims, axis, k, largest, (50, 50_000, 2)[number % 3] if kind not in ("i8", "u8", "f16") else 50,
                 number % 4 > 0)
    for kind, dims, axis in (("f32", (3, 20), 1), ("f16", (2, 1024), 1), ("f64", (33, 4), 0), ("f32", (1, 20_001), 1),
                             ("bf16", (5, 7, 9), 1), ("f32", (4, 1), 1), ("f32", (3, 0), 1)):
        hardmax(folder, random, kind, dims, axis)
        if kind != "bf16":
            lp(folder, random, kind, dims, axis, 1 + dims[1] % 2)
            lp(folder, random, kind, dims, axis, 2 - dims[1] % 2)
    lp(folder, random, "f32", (2, 60_001), 1, 2)


# Of one element and of none, read one by one and by fours, by one group or item and by several; of one sign, and zeros alone.
QUANTIZED = [((), -1, 1), ((0, 3), -1, 1), ((1,), 1, 2), ((5,), -1, 1), ((2, 16), 0, 0), ((3, 1027), 1, 2), ((4, 1024), -3, -1),
             ((16_385,), -1, 1), ((2, 20_000), -5, 1), ((1, 100_003), 0, 1)]


def write_quantized(folder, random):
    for dims, low, high in QUANTIZED:
        quantized(folder, random, dims, low, high)
    for dims in ((3, 20), (2, 40_000)):
        for odd in ((np.nan,), (np.inf, np.nan), (-np.inf, 1e30), (1e-45, -1e-45), (0.0, -0.0, 3e38, -3e38)):
            quantized(folder, random, dims, -1, 1, odd)


def write_all(folder):
    random = np.random.default_rng(3)
    for number, op_type in enumerate(REDUCTIONS):
        for k, (dims, axes) in enumerate(REDUCED):
            if 0 in np.array(dims)[axes] and op_type in ("ReduceMax", "ReduceMin", "ReduceLogSum", "ReduceLogSumExp"):
                continue
            kinds = ("f32", "f16", "bf16", "f64")
            reduction(folder, random, op_type, kinds[(number + k) % 4] if k % 2 else "f32", dims, axes)
    for number, (dims, axes) in enumerate(LONG):
        for kind in ("f32", ("f16", "f64", "bf16")[number % 3]):
            reduction(folder, random, ("ReduceMean", "ReduceSum", "ReduceL2")[number % 3], kind, dims, axes)
        reduction(folder, random, ("ReduceMax", "ReduceLogSumExp")[number % 2], "f32", dims, axes)
    for number, (dims, axes) in enumerate(ACROSS):
        for kind in ("f32", "f16", "bf16"):
            reduction(folder, random, ("ReduceMean", "ReduceMax", "ReduceL1")[number % 3], kind, dims, axes)
    for kind in INTEGERS:
        for op_type, dims, axes in (("ReduceSum", (3, 21), [1]), ("ReduceMax", (30, 5), [0]), ("ReduceMin", (2, 40_000), [1])):
            if op_type != "ReduceSum" or kind not in ("i8", "u8"):  # ONNX sums no bytes
                reduction(folder, random, op_type, kind, dims, axes)
    for kind in ("i32", "u64"):
        reduction(folder, random, "ReduceMean", kind, (3, 0), [1])
    for op_type in ("ArgMax", "ArgMin"):
        for takes_last in (False, True):
            for kind, dims, axis in (("f32", (3, 70), 1), ("i8", (70, 9), 0), ("f64", (2, 33, 3), 1), ("f16", (5, 1024), 1),
                                     ("u64", (3, 5000), 1)):
                extreme(folder, random, op_type, kind, dims, axis, takes_last)
    for op_type in ("Softmax", "LogSoftmax"):
        for kind, dims, axis in (("f32", (5, 20), 1), ("f16", (3, 7, 128), 2), ("bf16", (4, 24), 1), ("f64", (6, 10), 1),
                                 ("f32", (7, 1), 1), ("f32", (2, 21, 60), 1), ("f16", (70, 3), 0), ("f32", (3, 0), 1),
                                 ("f32", (2, 50_001), 1), ("f16", (1, 65_536), 1), ("f64", (9_000, 5), 0),
                                 ("f32", (300, 1500), 1), ("f32", (12, 128, 128), 2), ("f16", (66, 512), 1)):
            softmax(folder, random, op_type, kind, dims, axis)
    for op_type in ("LayerNormalization", "RMSNormalization"):
        for kind, dims, axis, has_bias in (("f32", (6, 768), 1, True), ("f32", (3, 5, 7), 1, True), ("f16", (4, 256), 1, False),
                                           ("bf16", (2, 3, 40), 2, True), ("f64", (5, 18), 1, True), ("f32", (4, 1), 1, False),
                                           ("f32", (1, 100_003), 1, True), ("f16", (2, 32_768), 1, True),
                                           ("f32", (2, 3, 64, 96), 2, True), ("f16", (70, 768), 1, True),
                                           ("bf16", (65, 1024), 1, True), ("f32", (64, 900), 1, True)):
            is_layer = op_type == "LayerNormalization"
            layer(folder, random, op_type, kind, dims, axis, has_bias and is_layer,
                  is_layer and axis == 1 and kind != "f64")
    for kind, dims, count in (("f32", (2, 6, 5, 5), 3), ("f16", (1, 8, 8, 8), 2), ("f64", (2, 4, 9), 4),
                              ("f32", (1, 32, 64, 64), 4), ("bf16", (2, 4, 16), 1), ("f32", (0, 4, 3), 2)):
        groups(folder, random, "GroupNormalization", kind, dims, count)
        groups(folder, random, "GroupNormalization", kind, dims, count, 18)
        if kind != "bf16":  # ONNX's has none
            groups(folder, random, "InstanceNormalization", kind, dims, count)
    write_scans(folder, random)
    write_quantized(folder, random)


def write_few(folder):
    """One of a kind, for a slow simulator: shuffles and local memory, both directions, wide reads, divided rows."""
    random = np.random.default_rng(4)
    reduction(folder, random, "ReduceSum", "f32", (3, 20), [1])
    reduction(folder, random, "ReduceMean", "f16", (40, 33), [0])
    reduction(folder, random, "ReduceMax", "f32", (1, 8_192), [1])
    extreme(folder, random, "ArgMax", "f32", (3, 70), 1, False)
    softmax(folder, random, "Softmax", "f32", (5, 20), 1)
    softmax(folder, random, "Softmax", "f32", (2, 21, 20), 1)
    softmax(folder, random, "LogSoftmax", "f16", (1, 20_000), 1)
    layer(folder, random, "LayerNormalization", "f32", (2, 320), 1)
    layer(folder, random, "LayerNormalization", "f32", (1, 9_001), 1)
    groups(folder, random, "GroupNormalization", "f32", (2, 6, 5, 5), 3)
    quantized(folder, random, (2, 4_500))
    running(folder, random, "CumSum", "f32", (2, 1027), 1, False, True)
    running(folder, random, "CumSum", "i32", (40, 9), 0, True)
    running(folder, random, "CumSum", "f32", (1, 8_200), 1)
    best(folder, random, "f32", (2, 40), 1, 5)
    best(folder, random, "f32", (2, 300, 2), 1, 5, False, 2)
    best(folder, random, "f32", (1, 4_300), 1, 9)
    hardmax(folder, random, "f32", (2, 70), 1)
    lp(folder, random, "f32", (1, 8_200), 1, 2)
