"""ONNX's light models with random weights, by NumPy alone: their own weights are constants, so that their outputs prove
little about arithmetic. A ConstantOfShape node becomes an initializer, by what reads it."""

import numpy as np
from onnx_writer import field, tensor, varint

GRAPH = 7  # of ModelProto
NODE, INITIALIZER = 1, 5  # of GraphProto


def fields(data):
    """(number, value, all bytes of the field) one after the other; a value is an int or bytes."""
    at = 0
    while at < len(data):
        start = at
        key, at = read_varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = read_varint(data, at)
        else:
            size, at = read_varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value, data[start:at]


def read_varint(data, at):
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at


def texts(node, number):
    return [value.decode() for key, value, _ in fields(node) if key == number]


def int64s(data):
    """(name, elements) of a tensor of int64; of another one no elements."""
    name, numbers = "", []
    is_int64 = any(key == 2 and value == 7 for key, value, _ in fields(data))
    for key, value, _ in fields(data):
        if key == 8:
            name = value.decode()
        elif not is_int64:
            continue
        elif key == 9:
            numbers = np.frombuffer(value, np.int64).tolist()
        elif key == 7 and isinstance(value, int):
            numbers.append(value)
        elif key == 7:
            at = 0
            while at < len(value):
                number, at = read_varint(value, at)
                numbers.append(number)
    return name, numbers


def roles(nodes):
    """What each weight is to the node that reads it, also by way of Unsqueeze and Reshape; and the weights of the last layer."""
    found, same, last = {}, {}, ""
    for node in nodes:
        op_type, inputs, outputs = texts(node, 4)[0], texts(node, 1), texts(node, 2)
        if op_type in ("Unsqueeze", "Reshape"):
            same[outputs[0]] = inputs[0]
        elif op_type in ("Conv", "Gemm"):
            last = inputs[1]
            found[last] = op_type
        elif op_type == "BatchNormalization":
            found.update(zip(inputs[1:], ("scale", "bias", "bias", "variance")))
        elif op_type == "Mul":
            found.update({name: "scale" for name in inputs})
    for name, source in same.items():
        if name in found:
            found[source] = found[name]
    return found, same.get(last, last)


def random_weight(random, role, shape, last):
    """`last`: what the weights of the layer before the softmax are divided by; 1 for others."""
    values = random.standard_normal(shape, np.float32)
    if role == "Conv":
        values *= (2 / np.prod(shape[1:])) ** 0.5
    elif role == "Gemm":
        values *= np.prod(shape[1:]) ** -0.5
    elif role == "scale":
        values = 1 + 0.1 * values
    elif role == "variance":
        values = 1 + 0.1 * np.abs(values)
    else:
        values *= 0.05
    return (values / last).astype(np.float32)


# Logits of size 1 are wanted: large ones make a softmax of 0 and 1 alone, which hides what is wrong. How far values grow until
# there is a matter of the network's depth.
LAST = (64.0, 4096.0, 262144.0)


def randomize(source, target, last=LAST[0], seed=5):
    """Returns the name of the model's input that is fed, and its dims. `last` is what the weights of the last layer are divided by."""
    random = np.random.default_rng(seed)
    model = list(fields(source.read_bytes()))
    graph = list(fields(next(value for key, value, _ in model if key == GRAPH)))
    nodes = [value for key, value, _ in graph if key == NODE]
    shapes = dict(int64s(value) for key, value, _ in graph if key == INITIALIZER)
    (found, last_layer), made = roles(nodes), set()
    parts = []
    for key, value, whole in graph:
        if key == NODE and texts(value, 4)[0] == "ConstantOfShape":
            name = texts(value, 2)[0]
            weight = random_weight(random, found.get(name, "bias"), shapes[texts(value, 1)[0]],
                                   last if name == last_layer else 1.0)
            parts.append(field(INITIALIZER, tensor(name, weight)))
            made.add(name)
        else:
            parts.append(whole)
    # From version 4 on initializers need not be inputs, too.
    rest = field(1, 7) + b"".join(whole for key, _, whole in model if key not in (1, GRAPH))
    graph_bytes = b"".join(parts)
    target.write_bytes(rest + varint(GRAPH << 3 | 2) + varint(len(graph_bytes)) + graph_bytes)
    weights = set(shapes) | {int64s(value)[0] for key, value, _ in graph if key == INITIALIZER}
    for key, value, _ in graph:
        if key == 11 and texts(value, 1)[0] not in weights:
            return texts(value, 1)[0], dims_of(value)
    raise ValueError(f"{source} has no input")


def dims_of(info):
    """Of a ValueInfoProto: type.tensor_type.shape.dim[].dim_value."""
    for number in (2, 1, 2):
        info = next(value for key, value, _ in fields(info) if key == number)
    return [next((value for key, value, _ in fields(dim) if key == 1), 1) for key, dim, _ in fields(info) if key == 1]
