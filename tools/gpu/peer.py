"""The peer: the same networks, node by node, by PyTorch's functions in a CUDA graph, where PyTorch with CUDA is installed."""

import sys
import tempfile
import time

import networks
import numpy as np

# As its users would set it for a network of that precision: (element type, TF32 allowed, type of autocast or None).
SETTINGS = {"fp32": ("float32", False, None), "tf32": ("float32", True, None), "fp16": ("float32", True, "float16"),
            "bf16": ("float32", True, "bfloat16")}


def find():
    """The module and "", or None and the reason why nothing is measured."""
    try:
        import torch
    except ImportError as error:
        return None, f"PyTorch is not installed ({error.name})"
    if not torch.cuda.is_available():
        return None, f"PyTorch {torch.__version__} finds no CUDA device"
    return torch, ""


def operations(torch):
    """By ONNX operator: a function of its inputs and attributes."""
    functional = torch.nn.functional

    def convolution(x, w, bias, strides, pads, **_):
        return functional.conv2d(x, w, bias, strides, pads[:2])

    return {
        "Conv": convolution,
        "Add": lambda a, b: a + b,
        "Mul": lambda a, b: a * b,
        "Neg": lambda a: -a,
        "Abs": torch.abs,
        "Relu": torch.relu,
        "Erf": torch.erf,
        "MatMul": torch.matmul,
        "MaxPool": lambda x, kernel_shape, strides, pads: functional.max_pool2d(x, kernel_shape, strides, pads[0]),
        "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
        "Flatten": lambda x: x.flatten(1),
        "Reshape": lambda x, shape: x.reshape([int(dim) for dim in shape]),
        "Transpose": lambda x, perm: x.permute(perm),
        "Softmax": lambda x, axis: x.softmax(axis),
        "LayerNormalization": lambda x, scale, bias, axis, epsilon:
            functional.layer_norm(x, scale.shape, scale, bias, epsilon),
    }


class Peer:
    """A network on one device; `values` keeps weights there, shapes (int64) on the host."""

    def __init__(self, torch, net, device="cuda"):
        self.torch, self.net, self.device = torch, net, device
        self.by_type = operations(torch)
        self.weights = {name: array if array.dtype == np.int64 else torch.from_numpy(np.array(array)).to(device)
                        for name, array in net.weights}

    def forward(self, x):
        values = {**self.weights, self.net.inputs[0][0]: x}
        last = None
        for op_type, inputs, name, attributes in self.net.steps:
            last = values[name] = self.by_type[op_type](*(values[each] for each in inputs), **attributes)
        return last


def median_ms(torch, net, batch, precision, runs):
    """Of one run from host memory to host memory, as `backplane bench` counts it: copies and one graph."""
    _, allows_tf32, cast = SETTINGS[precision]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allows_tf32
    torch.backends.cudnn.benchmark = True
    peer = Peer(torch, net)
    shape = (batch, *net.inputs[0][1][1:])
    x_host = torch.zeros(shape, dtype=getattr(torch, net.dtype.name)).pin_memory()
    x = x_host.cuda()
    autocast = torch.autocast("cuda", getattr(torch, cast or "float16"), enabled=cast is not None, cache_enabled=False)
    with torch.inference_mode(), autocast:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                peer.forward(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = peer.forward(x)
        y_host = torch.empty(y.shape, dtype=y.dtype).pin_memory()
        times = []
        for _ in range(10 + runs):
            start = time.perf_counter()
            x.copy_(x_host, non_blocking=True)
            graph.replay()
            y_host.copy_(y, non_blocking=True)
            torch.cuda.synchronize()
            times.append(1e3 * (time.perf_counter() - start))
    return sorted(times[10:])[runs // 2]


def main(words):
    """`find` prints why there is no peer, or nothing; NETWORK BATCH ELEMENTS PRECISION RUNS quick|whole its median, ms."""
    torch, missing = find()
    if words == ["find"]:
        print(missing)
        return
    name, batch, dtype, precision, runs, size = words
    small = {"resnet50_dyn": {"size": 64}, "bert_dyn": {"layers": 2, "tokens": 32}}[name] if size == "quick" else {}
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        net = getattr(networks, name)(file.name, dtype=np.dtype(dtype).type, **small)
    print(median_ms(torch, net, int(batch), precision, int(runs)))


if __name__ == "__main__":
    main(sys.argv[1:])
