"""Cases of element-wise nodes, of which a work item does several elements at once on GPUs: sizes around those of a vector,
every element type, operands that repeat, parts that begin anywhere, values that are changed in place."""

import numpy as np
from onnx import TensorProto, helper
from row_cases import FLOATS, rounded, tensor_of, write_case

INTEGERS = {name: (np.dtype(word), getattr(TensorProto, word.upper())) for name, word in
            {"i8": "int8", "u8": "uint8", "i16": "int16", "u16": "uint16", "i32": "int32", "u32": "uint32", "i64": "int64",
             "u64": "uint64"}.items()}
BYTES = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "b8": 1, **{kind: dtype.itemsize for kind, (dtype, _) in INTEGERS.items()}}


def code_of(kind):
    return TensorProto.BOOL if kind == "b8" else FLOATS[kind][1] if kind in FLOATS else INTEGERS[kind][1]


def drawn(random, kind, dims):
    """As memory holds it; floats in double."""
    if kind in FLOATS:
        return rounded(random.uniform(-4, 4, dims), kind)
    if kind == "b8":
        return random.integers(0, 2, dims).astype(bool)
    return random.integers(1, 100, dims).astype(INTEGERS[kind][0])


def stored(x, kind):
    return rounded(x, kind) if kind in FLOATS else x


def save(folder, name, nodes, inputs, outputs, symbolic=(), constants=()):
    """Inputs and outputs: (name, array, kind). `symbolic`: inputs whose dims the model does not know."""
    def info(key, x, kind):
        dims = [f"{key}{axis}" for axis in range(x.ndim)] if key in symbolic else x.shape
        return helper.make_tensor_value_info(key, code_of(kind), dims)

    def tensor(key, x, kind):
        made = tensor_of(x, code_of(kind))
        made.name = key
        return made

    fed = [each for each in inputs if each[0] not in constants]
    graph = helper.make_graph(nodes, name, [info(*each) for each in fed], [info(*each) for each in outputs],
                              [tensor(*each) for each in inputs if each[0] in constants])
    tolerance = max([0, *(4 * FLOATS[kind][2] for *_, kind in outputs if kind in FLOATS)])
    write_case(folder, graph, 23, [tensor(*each) for each in fed], [tensor(*each) for each in outputs], tolerance)


def sum_of(folder, random, kind, dims, others):
    """Of an operand of `dims` and one of others that broadcasts to it."""
    a, b = drawn(random, kind, dims), drawn(random, kind, others)
    with np.errstate(over="ignore"):
        y = stored(a + b, kind)
    name = f"add_{kind}_{'x'.join(map(str, dims))}_and_{'x'.join(map(str, others))}"
    save(folder, name, [helper.make_node("Add", ["a", "b"], ["y"])], [("a", a, kind), ("b", b, kind)], [("y", y, kind)])


def sums(folder, random, kinds):
    for kind in kinds:
        width = 16 // BYTES[kind]
        for count in sorted({0, 1, width - 1, width, width + 1, 3 * width + 1, 4099}):
            sum_of(folder, random, kind, (count,), (count,))
        for columns in sorted({2 * width, width + 2, 2, 3 * width + 1}):
            sum_of(folder, random, kind, (5, columns), (columns,))
            sum_of(folder, random, kind, (5, columns), (5, 1))
            sum_of(folder, random, kind, (5, columns), (1,))
        sum_of(folder, random, kind, (2, 3, 4, 2 * width), (3, 1, 1))
        sum_of(folder, random, kind, (2, 3, 2, width), (2, 3, 1, width))


def mixed(folder, random, counts):
    """Operands and outputs of several types at once."""
    for count in counts:
        for kind in ("f32", "f16", "i8", "f64"):
            c, a, b = drawn(random, "b8", (count,)), drawn(random, kind, (count,)), drawn(random, kind, (count,))
            save(folder, f"where_{kind}_{count}", [helper.make_node("Where", ["c", "a", "b"], ["y"])],
                 [("c", c, "b8"), ("a", a, kind), ("b", b, kind)], [("y", np.where(c, a, b), kind)])
            save(folder, f"less_{kind}_{count}", [helper.make_node("Less", ["a", "b"], ["y"])],
                 [("a", a, kind), ("b", b, kind)], [("y", a < b, "b8")])
        c = drawn(random, "b8", (count,))
        save(folder, f"not_{count}", [helper.make_node("Not", ["c"], ["y"])], [("c", c, "b8")], [("y", ~c, "b8")])
        for before, after in (("f32", "f16"), ("f16", "f32"), ("bf16", "f16"), ("f64", "bf16"), ("i64", "f32"), ("u8", "f16"),
                              ("f32", "i8"), ("i16", "u16"), ("b8", "f32"), ("f16", "b8")):
            x = drawn(random, before, (count,))
            y = (x != 0 if after == "b8" else rounded(x.astype(np.float64), after) if after in FLOATS else
                 np.trunc(x).astype(INTEGERS[after][0]))
            save(folder, f"cast_{before}_{after}_{count}",
                 [helper.make_node("Cast", ["x"], ["y"], to=code_of(after))], [("x", x, before)], [("y", y, after)])


def quantizers(folder, random, shapes):
    for dims in shapes:
        for kind in ("u8", "i8", "i16"):
            for axis in (None, len(dims) - 1, 0):
                count = () if axis is None else (dims[axis],)
                scale = (2.0 ** random.integers(-5, -2, count)).astype(np.float32)
                zero = np.asarray(drawn(random, kind, count))
                seen = tuple(-1 if axis == k else 1 for k in range(len(dims))) if axis is not None else ()
                s, z = scale.reshape(seen), zero.astype(np.int64).reshape(seen)
                x = random.uniform(-3, 3, dims).astype(np.float32)
                limits = np.iinfo(INTEGERS[kind][0])
                q = np.clip(np.rint(x / s) + z, limits.min, limits.max).astype(INTEGERS[kind][0])
                more = {} if axis is None else {"axis": axis}
                name = f"{kind}_{'x'.join(map(str, dims))}_axis_{axis}"
                parameters = [("s", scale, "f32"), ("z", zero, kind)]
                save(folder, f"quantize_{name}", [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], **more)],
                     [("x", x, "f32"), *parameters], [("y", q, kind)], constants=("s", "z"))
                save(folder, f"dequantize_{name}", [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], **more)],
                     [("x", q, kind), *parameters], [("y", (q.astype(np.int64) - z) * s, "f32")], constants=("s", "z"))


def parts(folder, random, kinds):
    """Parts of a value that begin at no multiple of a vector, read in place and written into a value's middle."""
    for kind in kinds:
        x = drawn(random, kind, (1001,))
        sizes = np.array([1, 333, 2, 665])
        pieces = np.split(x, np.cumsum(sizes)[:-1])
        names = [f"p{k}" for k in range(4)]
        nodes = [helper.make_node("Split", ["x", "sizes"], names, axis=0)]
        nodes += [helper.make_node("Add", [name, name], [f"y{k}"]) for k, name in enumerate(names)]
        nodes.append(helper.make_node("Concat", ["y3", "y1", "y2", "y0"], ["y"], axis=0))
        with np.errstate(over="ignore"):
            y = np.concatenate([stored(pieces[k] + pieces[k], kind) for k in (3, 1, 2, 0)])
        save(folder, f"parts_{kind}", nodes, [("x", x, kind), ("sizes", sizes, "i64")], [("y", y, kind)],
             constants=("sizes",))
        a, b = drawn(random, kind, (7, 9)), drawn(random, kind, (7, 16))
        save(folder, f"columns_{kind}", [helper.make_node("Concat", ["a", "b"], ["y"], axis=1)],
             [("a", a, kind), ("b", b, kind)], [("y", np.concatenate([a, b], 1), kind)])
        wide = drawn(random, kind, (3, 8, 20))
        starts, ends, axes, steps = (np.array(each) for each in ((4, 16), (8, 0), (1, 2), (1, -1)))
        numbers = [(key, array, "i64") for key, array in zip(("s", "e", "a", "t"), (starts, ends, axes, steps))]
        save(folder, f"slice_{kind}", [helper.make_node("Slice", ["x", "s", "e", "a", "t"], ["y"])],
             [("x", wide, kind), *numbers], [("y", wide[:, 4:8, 16:0:-1], kind)], constants=("s", "e", "a", "t"))
        for channels, rows, columns in ((3, 4, 8), (3, 3, 5), (16, 2, 3), (17, 2, 4)):  # images
            planes = drawn(random, kind, (2, channels, rows, columns))
            for perm in ([0, 2, 3, 1], [0, 3, 1, 2]):
                image = planes if perm[1] == 2 else planes.transpose(0, 2, 3, 1)
                name = f"image_{kind}_{channels}_{rows}x{columns}_{perm[1]}"
                save(folder, name, [helper.make_node("Transpose", ["x"], ["y"], perm=perm)],
                     [("x", image, kind)], [("y", image.transpose(perm), kind)])
        save(folder, f"transpose_{kind}", [helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0, 2])],
             [("x", wide, kind)], [("y", wide.transpose(1, 0, 2), kind)])


def chains(folder, random, shapes):
    """Trees that become one node, of known and unknown dims, and nodes that change a value in place."""
    for dims in shapes:
        for is_symbolic in (False, True):
            columns = dims[-1:]
            x, row, column = (drawn(random, "f32", each) for each in (dims, columns, (*dims[:-1], 1)))
            half = drawn(random, "f16", dims)
            nodes = [helper.make_node("Mul", ["x", "row"], ["a"]), helper.make_node("Add", ["a", "column"], ["b"]),
                     helper.make_node("Tanh", ["b"], ["c"]), helper.make_node("Cast", ["half"], ["d"], to=TensorProto.FLOAT),
                     helper.make_node("Sub", ["c", "d"], ["y"])]
            name = f"chain_{'x'.join(map(str, dims))}_{int(is_symbolic)}"
            inputs = [("x", x, "f32"), ("row", row, "f32"), ("column", column, "f32"), ("half", half, "f16")]
            save(folder, name, nodes, inputs, [("y", np.tanh(x * row + column) - half, "f32")],
                 ("x", "row", "column", "half", "y") if is_symbolic else ())
        x = drawn(random, "i32", dims)
        nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Add", ["a", "x"], ["b"]),
                 helper.make_node("Sub", ["b", "a"], ["c"]), helper.make_node("Neg", ["c"], ["y"])]
        save(folder, f"in_place_{'x'.join(map(str, dims))}", nodes, [("x", x, "i32")], [("y", -x, "i32")])


def write_all(folder):
    random = np.random.default_rng(5)
    sums(folder, random, [kind for kind in BYTES if kind != "b8"])
    mixed(folder, random, (0, 1, 7, 8, 16, 17, 1003))
    quantizers(folder, random, ((3, 16), (5, 7), (0, 4), (2, 1003)))
    parts(folder, random, ("f32", "f16", "i8", "f64"))
    chains(folder, random, ((3, 8), (2, 5), (0, 4), (3, 2, 12), (2, 4099)))


def write_few(folder):
    """For a slow simulator."""
    random = np.random.default_rng(6)
    for kind, dims, others in (("f32", (9,), (9,)), ("f16", (5, 8), (8,)), ("i8", (33,), (33,)), ("bf16", (3, 6), (3, 1)),
                               ("f64", (5,), (1,))):
        sum_of(folder, random, kind, dims, others)
    mixed(folder, random, (17,))
    quantizers(folder, random, ((3, 16),))
    parts(folder, random, ("f16",))
    chains(folder, random, ((3, 8),))
