"""What the device's limits let a network reach whose every layer is one kernel, which reads and writes memory once."""

import numpy as np

LAYERS = ("MaxPool", "GlobalAveragePool", "LayerNormalization")


def layers(net):
    """(FLOP, bytes of values, bytes of weights) of each layer, of the batch that the network has. What is element-wise belongs
    to the layer before it, which reads a second operand, too; an attention is one layer, whose scores stay where they are."""
    weights = {name for name, _ in net.weights}
    made = []

    def size(*names):
        return sum(int(np.prod(net.shapes[name])) for name in names) * net.dtype.itemsize

    for op_type, inputs, y, _ in net.steps:
        values = [name for name in inputs if name not in weights]
        kept = size(*(name for name in inputs if name in weights))
        if op_type in ("Conv", "MatMul"):
            depth = net.shapes[inputs[0]][-1] if op_type == "MatMul" else int(np.prod(net.shapes[inputs[1]][1:]))
            flops = 2 * int(np.prod(net.shapes[y])) * depth
            if len(values) == 1:
                made.append([flops, size(values[0], y), kept])
            elif not inputs[0].startswith("Softmax"):
                made.append([flops, size(*values), 0])
            else:
                made[-1][0] += flops
                made[-1][1] += size(values[1], y)
        elif op_type in LAYERS:
            made.append([0, size(values[0], y), kept])
        elif op_type == "Add" and len(values) == 2:
            made[-1][1] += size(values[1])
    return made


def least_ms(of, batch, tflops, gb_per_s):
    """Of the layers of a network of batch 1: each takes its products at the limit or its bytes, whatever is longer."""
    return sum(max(batch * flops / (tflops * 1e9), (batch * values + kept) / (gb_per_s * 1e6)) for flops, values, kept in of)
