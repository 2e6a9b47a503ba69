"""Random networks of images and matrices: what is stored otherwise between nodes must come out as if it were not."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper, shape_inference

KEEPING = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "Abs", "Neg", "Identity", "Softplus", "Exp", "Clip")


class RandomNetwork:
    """Values are kept about 1, so that what 16 bits round shows as little as it is."""

    def __init__(self, seed, nodes=10, dynamic=False, axes=2):
        self.random = np.random.default_rng(seed)
        self.axes = axes
        self.nodes, self.constants, self.shapes = [], [], {}
        batch, channels = self.pick(1, 3), self.pick(1, 9)
        self.add_input("x", (batch, channels, *(self.pick(1, 9) for _ in range(axes))))
        for _ in range(nodes):
            self.add_random()
        self.outputs = [name for name in self.shapes if name != "x" and self.random.random() < 0.2]
        read = {name for node in self.nodes for name in node.input}
        self.outputs += [name for name in self.shapes if name not in read and name not in self.outputs and name != "x"]
        symbols = {0: "n"} if dynamic else {}
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT,
                                                     [symbols.get(k, d) for k, d in enumerate(self.shapes["x"])])]

    def pick(self, low, high):
        return int(self.random.integers(low, high))

    def numbers(self, *shape):
        return self.random.standard_normal(shape).astype(np.float32)

    def add_input(self, name, shape):
        self.shapes[name] = shape

    def feed(self, batch=None):
        shape = list(self.shapes["x"])
        shape[0] = shape[0] if batch is None else batch
        return self.numbers(*shape)

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op, inputs, shape, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}_{k}" if outputs > 1 else f"v{len(self.nodes)}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"n{len(self.nodes)}_{op}", **attributes))
        for name in names:
            self.shapes[name] = tuple(shape)
        return names[0]

    def any(self, rank=None):
        fitting = [name for name, shape in self.shapes.items() if rank is None or len(shape) == rank]
        return fitting[self.pick(max(0, len(fitting) - 4), len(fitting))] if fitting else None

    def add_random(self):
        image = self.any(self.axes + 2)
        matrix = self.any(2)
        if matrix is not None and self.random.random() < 0.4:
            return self.add_to_matrix(matrix)
        if image is None or self.random.random() < 0.15:
            return self.add_any(self.any())
        makers = (self.convolution, self.convolution, self.convolution, self.transposed, self.normalization, self.pool, self.addition,
                  self.channel_constant, self.concat, self.flatten, self.moved, self.split, self.pad, self.resize, self.mean,
                  self.add_any)
        return makers[self.pick(0, len(makers))](image)

    def add_any(self, x):
        op = KEEPING[self.pick(0, len(KEEPING))]
        if op == "Clip":
            return self.node(op, [x, self.constant(np.float32(-1.5)), self.constant(np.float32(2))], self.shapes[x])
        if op == "Exp":  # of what is at most 0
            x = self.node("Neg", [self.node("Abs", [x], self.shapes[x])], self.shapes[x])
        return self.node(op, [x], self.shapes[x])

    def convolution(self, x):
        batch, channels, *size = self.shapes[x]
        group = channels if self.random.random() < 0.2 else 1
        filters = channels * self.pick(1, 3) if group > 1 else self.pick(1, 10)
        kernel = [self.pick(1, min(4, each + 1)) for each in size]
        strides = [self.pick(1, 3) for _ in size]
        pads = [self.pick(0, each) for each in kernel] * 2
        out = [(each + pads[k] * 2 - kernel[k]) // strides[k] + 1 for k, each in enumerate(size)]
        scale = (channels // group * int(np.prod(kernel))) ** -0.5
        inputs = [x, self.constant(self.numbers(filters, channels // group, *kernel) * np.float32(scale))]
        if self.random.random() < 0.5:
            inputs.append(self.constant(self.numbers(filters)))
        return self.node("Conv", inputs, (batch, filters, *out), kernel_shape=kernel, strides=strides, pads=pads, group=group)

    def transposed(self, x):
        batch, channels, *size = self.shapes[x]
        if max(size) > 8:
            return self.add_any(x)
        filters, kernel = self.pick(1, 10), [self.pick(1, 4) for _ in size]
        strides = [self.pick(1, 3) for _ in size]
        more = [self.pick(0, each) for each in strides]
        out = [(each - 1) * strides[k] + kernel[k] + more[k] for k, each in enumerate(size)]
        scale = (channels * int(np.prod(kernel))) ** -0.5
        inputs = [x, self.constant(self.numbers(channels, filters, *kernel) * np.float32(scale))]
        if self.random.random() < 0.5:
            inputs.append(self.constant(self.numbers(filters)))
        return self.node("ConvTranspose", inputs, (batch, filters, *out), kernel_shape=kernel, strides=strides,
                         output_padding=more)

    def normalization(self, x):
        channels = self.shapes[x][1]
        constants = [self.numbers(channels), self.numbers(channels), self.numbers(channels),
                     np.abs(self.numbers(channels)) + np.float32(0.5)]
        return self.node("BatchNormalization", [x, *map(self.constant, constants)], self.shapes[x])

    def pool(self, x):
        batch, channels, *size = self.shapes[x]
        op = ("MaxPool", "AveragePool")[self.pick(0, 2)]
        kernel = [self.pick(1, min(4, each + 1)) for each in size]
        pads = [self.pick(0, each) for each in kernel] * 2
        out = [each + pads[k] * 2 - kernel[k] + 1 for k, each in enumerate(size)]
        more = {"count_include_pad": self.pick(0, 2)} if op == "AveragePool" else {}
        return self.node(op, [x], (batch, channels, *out), kernel_shape=kernel, pads=pads, **more)

    def addition(self, x):
        fitting = [name for name, shape in self.shapes.items() if shape == self.shapes[x]]
        return self.node(("Add", "Sub", "Max", "Sum")[self.pick(0, 4)], [x, fitting[self.pick(0, len(fitting))]],
                         self.shapes[x])

    def channel_constant(self, x):
        shape = [(self.shapes[x][1],) + (1,) * self.axes, (1,) * (self.axes + 2), (), (self.shapes[x][-1],)][self.pick(0, 4)]
        return self.node(("Add", "Mul")[self.pick(0, 2)], [x, self.constant(self.numbers(*shape))], self.shapes[x])

    def concat(self, x):
        shape = list(self.shapes[x])
        axis = self.pick(1, len(shape))
        fitting = [name for name, other in self.shapes.items() if len(other) == len(shape) and
                   all(a == b for k, (a, b) in enumerate(zip(shape, other)) if k != axis)]
        other = fitting[self.pick(0, len(fitting))]
        shape[axis] += self.shapes[other][axis]
        return self.node("Concat", [x, other], shape, axis=axis)

    def split(self, x):
        shape = list(self.shapes[x])
        axis = self.pick(1, len(shape))
        if shape[axis] % 2 != 0:
            return self.add_any(x)
        sizes = self.constant(np.array([shape[axis] // 2] * 2, np.int64))
        shape[axis] //= 2
        return self.node("Split", [x, sizes], shape, outputs=2, axis=axis - (len(shape) if self.pick(0, 2) else 0))

    def pad(self, x):
        shape = list(self.shapes[x])
        pads = [0, 0, *(self.pick(0, 3) for _ in range(self.axes))] * 2
        value = self.constant(np.float32(0.5))
        return self.node("Pad", [x, self.constant(np.array(pads, np.int64)), value],
                         [each + pads[k] * 2 for k, each in enumerate(shape)])

    def resize(self, x):
        shape = list(self.shapes[x])
        if max(shape[2:]) > 8:
            return self.add_any(x)
        scales = self.constant(np.array([1, 1] + [2] * self.axes, np.float32))
        return self.node("Resize", [x, "", scales], shape[:2] + [2 * each for each in shape[2:]],
                         mode=("nearest", "linear")[self.pick(0, 2)])

    def mean(self, x):
        batch, channels, *_ = self.shapes[x]
        shape = (batch, channels) + (1,) * self.axes
        if self.random.random() < 0.5:
            return self.node(("GlobalAveragePool", "GlobalMaxPool")[self.pick(0, 2)], [x], shape)
        return self.node("ReduceMean", [x], shape, axes=[k - self.axes for k in range(self.axes)])

    def moved(self, x):
        order = list(range(self.axes + 2))
        order = [0, *order[2:], 1] if self.random.random() < 0.7 else [0, *map(int, self.random.permutation(order[1:]))]
        made = self.node("Transpose", [x], [self.shapes[x][k] for k in order], perm=order)
        if self.random.random() < 0.5:
            return made
        back = [order.index(k) for k in range(len(order))]
        return self.node("Transpose", [self.add_any(made)], self.shapes[x], perm=back)

    def flatten(self, x):
        shape = self.shapes[x]
        return self.node("Flatten", [x], (shape[0], int(np.prod(shape[1:]))))

    def add_to_matrix(self, x):
        rows, columns = self.shapes[x]
        kind = self.pick(0, 5)
        if kind == 0:
            return self.node("Softmax", [x], (rows, columns))
        if kind == 1:
            scale, bias = self.constant(self.numbers(columns)), self.constant(self.numbers(columns))
            return self.node("LayerNormalization", [x, scale, bias], (rows, columns))
        wide = self.pick(1, 12)
        weights = self.constant(self.numbers(columns, wide) * np.float32(columns ** -0.5))
        if kind == 2:
            return self.node("Gemm", [x, weights, self.constant(self.numbers(wide))], (rows, wide))
        made = self.node("MatMul", [x, weights], (rows, wide))
        return self.node("Add", [made, self.constant(self.numbers(wide))], (rows, wide)) if kind == 3 else made

    def model(self):
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs]
        graph = helper.make_graph(self.nodes, "random", self.inputs, outputs, self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return shape_inference.infer_shapes(made, strict_mode=True)

    def __str__(self):
        return "\n".join(f"{', '.join(node.output)} = {node.op_type}({', '.join(node.input)})" for node in self.nodes)
