"""Cases of element-wise nodes in front of rows that are folded or normalised. What is expected is worked out in double
precision, and how many steps each is where an item has a row to itself, and where items share it."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from row_cases import write_case

node = helper.make_node


def save(folder, name, opset, nodes, feeds, constants, outputs, tolerance=2e-5, dtype=np.float32):
    """Feeds, constants and outputs: arrays by name."""
    def infos(values):
        return [helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), x.shape) for key, x in values.items()]

    weights = [numpy_helper.from_array(np.asarray(x), key) for key, x in constants.items()]
    graph = helper.make_graph(nodes, name, infos(feeds), infos(outputs), weights)
    write_case(folder, graph, opset, *([numpy_helper.from_array(np.asarray(x, dtype)) for x in values.values()]
                                       for values in (feeds, outputs)), tolerance)


class Cases:
    """Writes them; `steps` has for each name the steps with tiles=vector and with tiles=local."""

    def __init__(self, folder):
        self.folder = folder
        self.random = np.random.default_rng(5)
        self.steps = {}

    def add(self, name, steps, opset, *more, **named):
        save(self.folder, name, opset, *more, **named)
        self.steps[name] = (steps, steps) if isinstance(steps, int) else steps

    def floats(self, *dims):
        return self.random.uniform(-2, 2, dims).astype(np.float32)

    def mask(self, *dims):
        return np.where(self.random.random(dims) < 0.4, -np.inf, self.random.uniform(-1, 1, dims)).astype(np.float32)


def softmax_of(x, axes):
    with np.errstate(invalid="ignore"):
        shifted = np.exp(x - x.max(axes, keepdims=True)) if x.size else x
    return shifted / shifted.sum(axes, keepdims=True)


def normalized(x, axis, scale, bias=None, has_mean=True):
    axes = tuple(range(x.ndim))[axis:]
    d = x - x.mean(axes, keepdims=True) if has_mean else x
    y = d / np.sqrt((d * d).mean(axes, keepdims=True) + 1e-5) * scale
    return y if bias is None else y + bias


def masked(cases, name, dims, mask, op_type="Softmax", steps=1, opset=13, axis=-1, more=(), outputs=()):
    """A scale, and a mask of these dims or that array."""
    x = 4 * cases.floats(*dims)
    mask = mask if isinstance(mask, np.ndarray) else cases.mask(*mask)
    a = 0.125 * x.astype(np.float64)
    b = a + mask
    y = softmax_of(b, tuple(range(len(dims)))[axis:])
    if op_type == "LogSoftmax":
        y = np.log(y)
    nodes = [node("Mul", ["x", "s"], ["a"]), node("Add", ["mask", "a"], ["b"]), node(op_type, ["b"], ["y"], axis=axis)]
    made = {"y": y, **{key: {"a": a, "b": b}[key] for key in outputs}}
    cases.add(name, steps, opset, nodes + list(more), {"x": x, "mask": mask}, {"s": np.float32(0.125)}, made)


def add_softmax(cases):
    for n in (20, 7, 1, 1500):
        masked(cases, f"softmax_of_{n}", (2, 3, 5, n), (2, 1, 1, n))
    for k, dims in enumerate([(), (1,), (20,), (5, 20), (5, 1), (3, 1, 1), (1, 3, 1, 20), (2, 1, 5, 1), (2, 3, 5, 20)]):
        masked(cases, f"softmax_mask_{k}", (2, 3, 5, 20), cases.floats(*dims) if len(dims) < 2 else dims)
    rows = np.zeros((6, 9), np.float32)
    rows[2] = -np.inf  # whole, of which nothing is a number
    masked(cases, "softmax_no_number", (6, 9), rows)
    masked(cases, "softmax_log", (6, 24), cases.floats(24), "LogSoftmax")
    # Before opset 13 a row is all axes from one on; the masks are repeated along one of them.
    masked(cases, "softmax_axes", (3, 4, 6), (4, 1), opset=11, axis=1)
    masked(cases, "softmax_axes_last", (3, 4, 8), (3, 1, 8), opset=11, axis=1)
    masked(cases, "softmax_long", (2, 50_001), (50_001,))
    masked(cases, "softmax_none", (3, 0), (0,), steps=2)
    # Where the value is wanted elsewhere, or rows are no rows of memory.
    masked(cases, "softmax_output", (4, 12), (12,), steps=2, outputs=["b"])
    masked(cases, "softmax_inner_output", (4, 12), (12,), steps=2, outputs=["a"])
    x = cases.floats(4, 12)
    b = x.astype(np.float64) * 0.5
    cases.add("softmax_two_readers", 3, 13, [node("Mul", ["x", "s"], ["b"]), node("Softmax", ["b"], ["y"]), node("Neg", ["b"], ["z"])],
              {"x": x}, {"s": np.float32(0.5)}, {"y": softmax_of(b, 1), "z": -b})
    cases.add("softmax_across", 2, 13, [node("Mul", ["x", "s"], ["b"]), node("Softmax", ["b"], ["y"], axis=0)],
              {"x": x}, {"s": np.float32(0.5)}, {"y": softmax_of(b, 0)})
    # Long rows are not held: what is dear is not computed for each time that they are read.
    x = cases.floats(1, 60_000)
    cases.add("softmax_dear", (1, 2), 13, [node("Tanh", ["x"], ["b"]), node("Softmax", ["b"], ["y"])], {"x": x}, {},
              {"y": softmax_of(np.tanh(x.astype(np.float64)), 1)})
    x = cases.floats(5, 40)
    cases.add("softmax_of_functions", 1, 13, [node("Tanh", ["x"], ["a"]), node("Mul", ["a", "x"], ["b"]), node("Softmax", ["b"], ["y"])],
              {"x": x}, {}, {"y": softmax_of(np.tanh(x.astype(np.float64)) * x, 1)})


def residual(cases, name, dims, other, axis=-1, steps=1, kept="", op_type="LayerNormalization", scale=None, has_bias=True,
             opset=17):
    """`kept`: "output" where the sum is one of the graph's, "reader" where a node reads it."""
    a, b = cases.floats(*dims), cases.floats(*other)
    row = dims[axis:]
    scale, bias = cases.floats(*(row if scale is None else scale)), cases.floats(*row)
    is_layer = op_type == "LayerNormalization"
    x = a.astype(np.float64) + b
    outputs = {"y": normalized(x, axis if axis >= 0 else len(dims) + axis, scale, bias if has_bias else None, is_layer)}
    constants = {"scale": scale, **({"bias": bias} if has_bias else {})}
    nodes = [node("Add", ["a", "b"], ["x"]), node(op_type, ["x", *constants], ["y"], axis=axis)]
    if kept == "output":
        outputs["x"] = x
    if kept == "reader":
        nodes.append(node("Mul", ["x", "y"], ["z"]))
        outputs["z"] = x * outputs["y"]
    cases.add(name, steps, opset, nodes, {"a": a, "b": b}, constants, outputs, tolerance=8e-5)


def add_normalization(cases):
    for n in (768, 20, 7):
        residual(cases, f"layer_of_{n}", (2, 3, n), (2, 3, n))
        residual(cases, f"layer_kept_{n}", (2, 3, n), (2, 3, n), kept="output")
    residual(cases, "layer_of_1", (4, 1), (4, 1), has_bias=False)
    residual(cases, "layer_read", (2, 5, 24), (5, 24), kept="reader", steps=2)
    residual(cases, "layer_added_row", (2, 5, 24), (24,))
    residual(cases, "layer_axes", (3, 4, 8), (4, 1), axis=1)
    residual(cases, "layer_axes_of_rows", (3, 4, 6), (3, 1, 6), axis=1)
    residual(cases, "layer_all_axes", (4, 6), (1, 6), axis=0, kept="output")
    residual(cases, "layer_one_scale", (5, 12), (5, 12), scale=(1,), has_bias=False)
    residual(cases, "layer_long", (1, 100_003), (1, 100_003))
    residual(cases, "layer_long_kept", (1, 100_003), (1, 100_003), kept="output", steps=(1, 2))
    residual(cases, "layer_none", (0, 4), (4,), steps=2)
    residual(cases, "square_of_40", (2, 3, 40), (2, 3, 40), op_type="RMSNormalization", opset=23, has_bias=False)
    residual(cases, "square_kept", (2, 3, 9), (2, 3, 9), op_type="RMSNormalization", opset=23, has_bias=False, kept="reader",
             steps=2)


class Decomposed:
    """A normalisation of nodes: the square by Pow or Mul, the quotient by Div or by way of the reciprocal, 16 bits widened or not."""

    def __init__(self, cases, has_mean=True, power=True, divides=True, bias=True, widens=False, dtype=np.float32, epsilon_dims=()):
        self.has_mean, self.power, self.divides, self.has_bias, self.widens = has_mean, power, divides, bias, widens
        self.dtype = dtype
        self.inner = np.float32 if widens else dtype
        self.cases = cases
        self.nodes = [node("Add", ["a", "b"], ["x"])]
        self.constants = {"axes": np.array([-1], np.int64), "epsilon": np.full(epsilon_dims, 1e-5, self.inner),
                          "one": self.inner(1), "two": self.inner(2)}

    def op(self, kind, inputs, output, **attributes):
        self.nodes.append(node(kind, inputs, [output], **attributes))
        return output

    def quotient(self, distance, root):
        if self.divides:
            return self.op("Div", [distance, root], "quotient")
        inverse = self.op("Reciprocal", [root], "inverse") if self.has_mean else self.op("Div", ["one", root], "inverse")
        return self.op("Mul", [inverse, distance], "quotient")

    def build(self):
        x = self.op("Cast", ["x"], "wide", to=TensorProto.FLOAT) if self.widens else "x"
        distance = x
        if self.has_mean:
            distance = self.op("Sub", [x, self.op("ReduceMean", [x, "axes"], "mean")], "distance")
        square = self.op("Pow", [distance, "two"], "square") if self.power else self.op("Mul", [distance, distance], "square")
        variance = self.op("ReduceMean", [square, "axes"], "variance")
        y = self.quotient(distance, self.op("Sqrt", [self.op("Add", ["epsilon", variance], "sum")], "root"))
        if self.widens:
            y = self.op("Cast", [y], "narrow", to=helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype)))
        if self.has_bias:
            self.op("Add", ["bias", self.op("Mul", [y, "scale"], "scaled")], "y")
        else:
            self.op("Mul", ["scale", y], "y")

    def add(self, name, n, steps=1, kept=()):
        self.build()
        a, b, scale, bias = (self.cases.floats(*dims).astype(self.dtype) for dims in ((2, 3, n), (2, 3, n), (n,), (n,)))
        x = a.astype(np.float64) + b
        bias_or_none = bias if self.has_bias else None
        outputs = {"y": normalized(x, 2, scale, bias_or_none, self.has_mean), **({"x": x} if "x" in kept else {})}
        if "quotient" in kept:
            outputs["quotient"] = normalized(x, 2, 1, None, self.has_mean)
        if "distance" in kept:
            outputs["distance"] = x - x.mean(2, keepdims=True)
        constants = {"scale": scale, **({"bias": bias} if self.has_bias else {}), **self.constants}
        self.cases.add(name, steps, 18, self.nodes, {"a": a, "b": b}, constants, outputs, dtype=self.dtype,
                       tolerance=1e-4 if self.dtype == np.float32 else 6e-3)


def add_decomposed(cases):
    for n in (64, 7, 1):
        Decomposed(cases).add(f"parts_layer_{n}", n)
        Decomposed(cases, has_mean=False, bias=False).add(f"parts_square_{n}", n)
    Decomposed(cases, power=False, divides=False).add("parts_layer_products", 20, kept=["x"])
    Decomposed(cases, power=False, divides=False, has_mean=False).add("parts_square_biased", 20, kept=["x"])
    Decomposed(cases, epsilon_dims=(1, 1, 1)).add("parts_layer_of_epsilons", 20)
    # What others read of it stays; rows less their mean may be normalised by themselves.
    Decomposed(cases).add("parts_layer_distance", 20, steps=3, kept=["distance"])
    Decomposed(cases).add("parts_layer_read", 20, steps=6, kept=["quotient"])
    for n in (48, 5):
        half = {"dtype": np.float16, "bias": False}
        Decomposed(cases, has_mean=False, widens=True, divides=False, **half).add(f"parts_half_square_{n}", n)
        Decomposed(cases, widens=True, **half).add(f"parts_half_layer_{n}", n)
        Decomposed(cases, has_mean=False, widens=True, **half).add(f"parts_half_kept_{n}", n, kept=["x"])
    Decomposed(cases, dtype=np.float16).add("parts_half_narrow", 24)


def folded(cases, name, op_type, dims, axes, of, steps=1, keepdims=1):
    """Of the squares of a difference."""
    a, b = cases.floats(*dims), cases.floats(dims[-1])
    d = a.astype(np.float64) - b
    nodes = [node("Sub", ["a", "b"], ["d"]), node("Mul", ["d", "a"], ["p"]),
             node(op_type, ["p", "axes"], ["y"], keepdims=keepdims)]
    y = of(d * a, axis=tuple(axes), keepdims=bool(keepdims))
    cases.add(name, steps, 18, nodes, {"a": a, "b": b}, {"axes": np.array(axes, np.int64)}, {"y": y},
              tolerance=1e-4 * max(1, np.abs(y).max() if y.size else 1))


def add_folds(cases):
    folded(cases, "mean_last", "ReduceMean", (3, 5, 24), [-1], np.mean)
    folded(cases, "mean_of_1", "ReduceMean", (4, 1), [1], np.mean)
    folded(cases, "max_two", "ReduceMax", (3, 5, 7), [1, 2], np.max, keepdims=0)
    folded(cases, "sum_all", "ReduceMin", (4, 30), [0, 1], np.min, keepdims=0)
    folded(cases, "sum_squares", "ReduceL1", (2, 40_000), [1], lambda x, **axes: np.abs(x).sum(**axes))
    folded(cases, "mean_across", "ReduceMean", (6, 9), [0], np.mean, steps=2)
    folded(cases, "mean_none", "ReduceMean", (0, 9), [1], np.mean, steps=2)


def add_halves(cases):
    """Of 16 bits, as in the layers of language models: what is between the nodes is not rounded."""
    def halves(*dims):
        return cases.floats(*dims).astype(np.float16)

    half = {"dtype": np.float16, "tolerance": 4e-3}
    for n in (64, 20, 7):
        a, b, scale = halves(2, 3, n), halves(2, 3, n), halves(n)
        x = a.astype(np.float64) + b
        cases.add(f"half_residual_{n}", 1, 23, [node("Add", ["a", "b"], ["x"]), node("RMSNormalization", ["x", "scale"], ["y"])],
                  {"a": a, "b": b}, {"scale": scale}, {"y": normalized(x, 2, scale, None, False), "x": x}, **half)
    x, up = halves(3, 40), halves(3, 40)
    gate = x / (1 + np.exp(-x.astype(np.float64)))
    cases.add("half_gate", 1, 13, [node("Sigmoid", ["x"], ["s"]), node("Mul", ["x", "s"], ["g"]), node("Mul", ["g", "up"], ["y"])],
              {"x": x, "up": up}, {}, {"y": gate * up}, **half)
    masked_scores = 0.125 * x.astype(np.float64) + up
    cases.add("half_softmax", 1, 13, [node("Mul", ["x", "c"], ["a"]), node("Add", ["a", "up"], ["b"]), node("Softmax", ["b"], ["y"])],
              {"x": x, "up": up}, {"c": np.float16(0.125)}, {"y": softmax_of(masked_scores, 1)}, **half)
    cases.add("half_mean", 2, 13, [node("Mul", ["x", "up"], ["a"]), node("ReduceMean", ["a"], ["y"], axes=[1])],
              {"x": x, "up": up}, {}, {"y": (x.astype(np.float64) * up).mean(1, keepdims=True)}, **half)


def write_all(folder):
    """Returns the steps by name."""
    cases = Cases(folder)
    add_softmax(cases)
    add_normalization(cases)
    add_decomposed(cases)
    add_folds(cases)
    add_halves(cases)
    return cases.steps
