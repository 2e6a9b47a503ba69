"""Writes ONNX models with NumPy alone: the few fields of onnx.proto that networks need."""

import functools

import numpy as np

TYPES = {np.dtype(np.float32): 1, np.dtype(np.uint8): 2, np.dtype(np.int32): 6, np.dtype(np.int64): 7, np.dtype(np.float16): 10}
MICROSOFT = "com.microsoft"


# A prime, so that no row or column of a large weight is another one's again.
BLOCK = 1048583


@functools.cache
def block():
    return np.random.default_rng(1).standard_normal(BLOCK, np.float32)


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, value):
    """A field of a message: an int as a varint, text and bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def attribute(name, value):
    if isinstance(value, float):
        return field(1, name) + varint(2 << 3 | 5) + np.float32(value).tobytes() + field(20, 1)
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, 2)
    if isinstance(value, str):
        return field(1, name) + field(4, value) + field(20, 3)
    return field(1, name) + b"".join(field(8, int(each)) for each in value) + field(20, 7)


def tensor(name, array):
    return b"".join(pieces_of_tensor(name, array))


def pieces_of_tensor(name, array):
    """What stands before the elements, and these, which are not copied."""
    dims = b"".join(field(1, int(dim)) for dim in array.shape)
    before = dims + field(2, TYPES[array.dtype]) + field(8, name) + varint(9 << 3 | 2) + varint(array.nbytes)
    return before, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def value_info(name, dtype, shape):
    """A dim that is text is a symbol."""
    dims = b"".join(field(1, field(2, dim) if isinstance(dim, str) else field(1, int(dim))) for dim in shape)
    return field(1, name) + field(2, field(1, field(1, TYPES[np.dtype(dtype)]) + field(2, dims)))


class Network:
    """A graph that grows node by node; `flops` counts those of its products. With `symbol`, the first dim of inputs and
    outputs is that one in the file, and what the network's own shapes say is one size of it."""

    def __init__(self, dtype=np.float32, seed=1, symbol=None, opset=17):
        self.symbol, self.opset = symbol, opset
        self.dtype = np.dtype(dtype)
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights, self.inputs, self.outputs = [], [], [], []
        self.input_dtypes = {}
        self.domains = {""}
        self.steps = []  # operator, inputs, output, attributes: for whoever else computes the network
        self.shapes = {}
        self.flops = 0

    def input(self, name, shape, dtype=None):
        if dtype is not None:
            self.input_dtypes[name] = np.dtype(dtype)
        self.inputs.append((name, tuple(shape)))
        self.shapes[name] = tuple(shape)
        return name

    def constant(self, array):
        name = f"c{len(self.weights)}"
        self.weights.append((name, array))
        self.shapes[name] = array.shape
        return name

    def weight(self, shape, scale):
        """Random, each from a place of its own in one block of numbers, over and over where it is larger: to draw all of a large network's
        would take seconds."""
        count = int(np.prod(shape))
        start = int(self.random.integers(0, BLOCK))
        made = np.empty(count, self.dtype)
        # One round of the block is scaled and rounded, and copied from there on.
        first = np.concatenate((block()[start:start + count], block()[:max(0, min(start, start + count - BLOCK))]))
        made[:len(first)] = first * np.float32(scale)
        for at in range(BLOCK, count, BLOCK):
            made[at:at + BLOCK] = made[:min(BLOCK, count - at)]
        return self.constant(made.reshape(shape))

    def node(self, op_type, inputs, shape, domain="", more_outputs=(), **attributes):
        """Returns the first output; `more_outputs` are the names of others, of which no shape is known."""
        name = f"{op_type}_{len(self.nodes)}"
        parts = b"".join(field(1, each) for each in inputs)
        parts += b"".join(field(2, each) for each in (name, *more_outputs)) + field(3, name) + field(4, op_type)
        parts += b"".join(field(5, attribute(key, value)) for key, value in attributes.items()) + field(7, domain)
        self.domains.add(domain)
        self.nodes.append((name, parts))
        self.steps.append((op_type, list(inputs), name, attributes))
        self.shapes[name] = tuple(int(dim) for dim in shape)
        return name

    def written(self, shape):
        return (self.symbol, *shape[1:]) if self.symbol else shape

    def save(self, path, *outputs):
        graph = [field(1, parts) for _, parts in self.nodes] + [field(2, "network")]
        for name, array in self.weights:
            before, elements = pieces_of_tensor(name, array)
            graph += [varint(5 << 3 | 2) + varint(len(before) + len(elements)) + before, elements]
        graph += [field(11, value_info(name, self.input_dtypes.get(name, self.dtype), self.written(shape)))
                  for name, shape in self.inputs]
        graph += [field(12, value_info(name, self.dtype, self.written(self.shapes[name]))) for name in outputs]
        imports = b"".join(field(8, field(1, domain) + field(2, 1 if domain else self.opset)) for domain in sorted(self.domains))
        with open(path, "wb") as file:
            file.write(field(1, 8) + varint(7 << 3 | 2) + varint(sum(map(len, graph))))
            file.writelines(graph)
            file.write(imports)
