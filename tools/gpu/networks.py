"""The networks that gpu_check runs, with random weights: a residual network, an encoder, and single products."""

import numpy as np

from onnx_writer import MICROSOFT, Network


def convolution(net, x, filters, size, stride=1, relu=True, addend=None):
    batch, channels, height, width = net.shapes[x]
    pad = size // 2
    out = ((height + 2 * pad - size) // stride + 1, (width + 2 * pad - size) // stride + 1)
    weights = net.weight((filters, channels, size, size), (2.0 / (channels * size * size)) ** 0.5)
    bias = net.weight((filters,), 0.1)
    shape = (batch, filters, *out)
    net.flops += 2 * int(np.prod(shape)) * channels * size * size
    y = net.node("Conv", [x, weights, bias], shape, kernel_shape=[size, size], strides=[stride, stride],
                 pads=[pad, pad, pad, pad])
    if addend is not None:
        y = net.node("Add", [y, addend], shape)
    return net.node("Relu", [y], shape) if relu else y


def linear(net, x, columns):
    *rows, depth = net.shapes[x]
    shape = (*rows, columns)
    net.flops += 2 * int(np.prod(shape)) * depth
    product = net.node("MatMul", [x, net.weight((depth, columns), depth ** -0.5)], shape)
    return net.node("Add", [product, net.weight((columns,), 0.1)], shape)


def residual_network(path, batch=1, dtype=np.float32, stages=(3, 4, 6, 3), size=224, classes=1000, symbol=None):
    """ResNet-50's layers."""
    net = Network(dtype, symbol=symbol)
    x = convolution(net, net.input("x", (batch, 3, size, size)), 64, 7, 2)
    b, c, h, w = net.shapes[x]
    x = net.node("MaxPool", [x], (b, c, (h + 1) // 2, (w + 1) // 2), kernel_shape=[3, 3], strides=[2, 2],
                 pads=[1, 1, 1, 1])
    for stage, blocks in enumerate(stages):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            short = x if block else convolution(net, x, 4 * width, 1, stride, relu=False)
            y = convolution(net, convolution(net, x, width, 1), width, 3, stride)
            x = convolution(net, y, 4 * width, 1, addend=short)
    b, c, _, _ = net.shapes[x]
    x = net.node("GlobalAveragePool", [x], (b, c, 1, 1))
    x = net.node("Flatten", [x], (b, c))
    net.save(path, linear(net, x, classes))
    return net


def encoder(path, batch=1, dtype=np.float32, layers=12, tokens=128, width=768, heads=12, symbol=None):
    """BERT-base's layers, on embeddings."""
    net = Network(dtype, symbol=symbol)
    rows = -1 if symbol else batch  # in the shapes that nodes read
    x = net.input("x", (batch, tokens, width))
    each = width // heads

    def normalize(value):
        shape = net.shapes[value]
        scale, bias = (net.constant(np.full(width, number, net.dtype)) for number in (1, 0))
        return net.node("LayerNormalization", [value, scale, bias], shape, axis=-1, epsilon=1e-5)

    def split(value, order):
        split_shape = net.constant(np.array([rows, tokens, heads, each], np.int64))
        parts = net.node("Reshape", [value, split_shape], (batch, tokens, heads, each))
        shape = [(batch, tokens, heads, each)[axis] for axis in order]
        return net.node("Transpose", [parts], shape, perm=list(order))

    for _ in range(layers):
        query, key, value = (linear(net, x, width) for _ in range(3))
        query, key, value = split(query, (0, 2, 1, 3)), split(key, (0, 2, 3, 1)), split(value, (0, 2, 1, 3))
        shape = (batch, heads, tokens, tokens)
        net.flops += 4 * batch * heads * tokens * tokens * each
        scores = net.node("MatMul", [query, key], shape)
        scores = net.node("Mul", [scores, net.constant(np.array(each ** -0.5, net.dtype))], shape)
        scores = net.node("Softmax", [scores], shape, axis=-1)
        mixed = net.node("MatMul", [scores, value], (batch, heads, tokens, each))
        mixed = net.node("Transpose", [mixed], (batch, tokens, heads, each), perm=[0, 2, 1, 3])
        whole = net.constant(np.array([rows, tokens, width], np.int64))
        mixed = net.node("Reshape", [mixed, whole], (batch, tokens, width))
        x = normalize(net.node("Add", [linear(net, mixed, width), x], net.shapes[x]))
        inner = gelu(net, linear(net, x, 4 * width))
        x = normalize(net.node("Add", [linear(net, inner, width), x], net.shapes[x]))
    net.save(path, x)
    return net


def gelu(net, x):
    shape = net.shapes[x]
    root = net.node("Mul", [x, net.constant(np.array(0.5 ** 0.5, net.dtype))], shape)
    one = net.node("Add", [net.node("Erf", [root], shape), net.constant(np.array(1, net.dtype))], shape)
    half = net.node("Mul", [x, net.constant(np.array(0.5, net.dtype))], shape)
    return net.node("Mul", [half, one], shape)


def tiled(path):
    """Of float16 and large enough for products by tiles: convolutions with windows of several kinds, products, and Gelu between them."""
    net = Network(np.float16)
    first = convolution(net, net.input("x", (2, 64, 40, 32)), 128, 3)
    x = convolution(net, convolution(net, first, 64, 1), 128, 3, addend=first)
    x = convolution(net, convolution(net, x, 192, 5, 2), 128, 1, 2)
    batch, channels, height, width = net.shapes[x]
    rows, places = batch * channels, height * width
    x = net.node("Reshape", [x, net.constant(np.array([rows, places], np.int64))], (rows, places))
    net.save(path, linear(net, gelu(net, linear(net, x, 2048)), 64))
    return net


def perceptron(path, batch=1, dtype=np.float32, width=256):
    net = Network(dtype)
    x = net.input("x", (batch, width))
    for _ in range(3):
        x = net.node("Relu", [linear(net, x, width)], (batch, width))
    net.save(path, linear(net, x, 10))
    return net


def product_by(net, x, columns, bits):
    """A MatMul, or, of weights of `bits` bits in blocks of 32 with a scale each, a MatMulNBits."""
    *rows, depth = net.shapes[x]
    shape = (*rows, columns)
    net.flops += 2 * int(np.prod(shape)) * depth
    if bits is None:
        return net.node("MatMul", [x, net.weight((depth, columns), depth ** -0.5)], shape)
    block = 32
    blocks = (depth + block - 1) // block
    packed = net.random.integers(0, 256, (columns, blocks, block * bits // 8), np.uint8)
    # So that the weights spread as those of a MatMul do.
    scales = np.full(columns * blocks, depth ** -0.5 / (0.29 * 2 ** bits), net.dtype)
    return net.node("MatMulNBits", [x, net.constant(packed), net.constant(scales)], shape, domain=MICROSOFT,
                    K=depth, N=columns, bits=bits, block_size=block)


def decoder(path, batch=1, dtype=np.float32, layers=4, past=1024, tokens=1, width=2048, heads=32, kv_heads=8, inner=8192, bits=None):
    """Layers of Llama 3.2 1B that read `tokens` embeddings, `past` positions of every sequence before them: what a language
    model does for each token. `weight_bytes` and `cache_bytes` are those that it cannot do without reading."""
    net = Network(dtype, opset=23)
    x = net.input("x", (batch, tokens, width))
    each, total = width // heads, past + tokens
    lengths = net.constant(np.full(batch, total - 1, np.int32))
    whole = net.constant(np.array([total], np.int32))
    angles = np.outer(np.arange(total), 1e4 ** -np.linspace(0, 1, each // 2, endpoint=False))
    turns = [net.constant(function(angles).astype(net.dtype)) for function in (np.cos, np.sin)]
    before = len(net.weights)
    caches = []

    def normalize(value):
        return net.node("RMSNormalization", [value, net.constant(np.ones(width, net.dtype))], net.shapes[value], axis=-1, epsilon=1e-5)

    for layer in range(layers):
        y = normalize(x)
        query, key, value = (product_by(net, y, count * each, bits) for count in (heads, kv_heads, kv_heads))
        kept = [net.weight((batch, kv_heads, past, each), 1.0) for _ in range(2)]
        caches += kept
        net.flops += 4 * batch * heads * tokens * total * each
        y = net.node("GroupQueryAttention", [query, key, value, *kept, lengths, whole, *turns], (batch, tokens, width), domain=MICROSOFT,
                     more_outputs=(f"present_key_{layer}", f"present_value_{layer}"), num_heads=heads, kv_num_heads=kv_heads, do_rotary=1)
        x = net.node("Add", [product_by(net, y, width, bits), x], net.shapes[x])
        y = normalize(x)
        gate, up = product_by(net, y, inner, bits), product_by(net, y, inner, bits)
        shape = net.shapes[gate]
        y = net.node("Mul", [net.node("Mul", [gate, net.node("Sigmoid", [gate], shape)], shape), up], shape)
        x = net.node("Add", [product_by(net, y, width, bits), x], net.shapes[x])
    x = normalize(x)
    read = {name: array.nbytes for name, array in net.weights[before:]}
    net.cache_bytes = sum(read[name] for name in caches)
    net.weight_bytes = sum(read.values()) - net.cache_bytes
    net.save(path, x)
    return net


def chain(path, nodes, dtype=np.float32):
    """Nodes with next to nothing to do, one after the other: what a node costs beside its work."""
    net = Network(dtype)
    x = net.input("x", (1, 32))
    for i in range(nodes):
        x = net.node(("Neg", "Abs")[i % 2], [x], (1, 32))
    net.save(path, x)
    return net


SYMBOL = "batch"


def resnet50_dyn(path, dtype=np.float32, **sizes):
    return residual_network(path, dtype=dtype, symbol=SYMBOL, **sizes)


def bert_dyn(path, dtype=np.float32, **sizes):
    return encoder(path, dtype=dtype, symbol=SYMBOL, **sizes)


def feed(path, net):
    """Makes the network's input on a device, of one that is in host memory."""
    (name, shape), = net.inputs
    negation(path, Network(net.dtype, symbol=net.symbol), name, shape)


def feed_like(path, name, x):
    """The same for an input of these elements."""
    negation(path, Network(x.dtype), name, x.shape)


def negation(path, net, name, shape):
    net.save(path, net.node("Neg", [net.input(name, shape)], shape))


def tower(path, rows=4096, width=4096, products=4):
    """A large input, products that take about as long as its upload, and a small output."""
    net = Network(np.float32)
    x = net.input("x", (rows, width))
    weights = net.weight((width, width), width ** -0.5)
    for _ in range(products):
        net.flops += 2 * rows * width * width
        x = net.node("MatMul", [x, weights], (rows, width))
    net.save(path, net.node("ReduceMax", [x], (rows, 1), axes=[1]))
    return net


def gather(path, rows=10):
    """Indices are an input: one past the end is a fault that the device finds."""
    net = Network(np.float32)
    at = net.input("x", (3,), np.int64)
    net.save(path, net.node("Gather", [net.weight((rows, 4), 1.0), at], (3, 4), axis=0))
    return net


def gated(path, rows, width):
    """A custom operator between nodes of ONNX's: the output is a product of its input and a sigmoid, doubled."""
    net = Network(np.float32)
    x = net.input("x", (rows, width))
    gate = net.node("Neg", [x], (rows, width))
    y = net.node("GatedSilu", [x, gate], (rows, width), domain="backplane.examples")
    net.save(path, net.node("Add", [y, y], (rows, width)))
    return net


def gated_of(x):
    """What `gated` computes, in doubles."""
    x = x.astype(np.float64)
    return -2 * x * x / (1 + np.exp(x))


def product(path, size=8192, dtype=np.float32):
    """One large product: the limit that networks are measured against."""
    net = Network(dtype)
    x = net.input("x", (size, size))
    net.flops = 2 * size ** 3
    net.save(path, net.node("MatMul", [x, net.weight((size, size), size ** -0.5)], (size, size)))
    return net


def copy(path, megabytes=256):
    """One pass over memory: as much is read as written."""
    net = Network(np.float32)
    x = net.input("x", (megabytes, 1 << 18))
    net.save(path, net.node("Neg", [x], (megabytes, 1 << 18)))
    return net
