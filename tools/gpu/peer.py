"""The peer: the same networks by PyTorch's functions in a CUDA graph, in several ways, where PyTorch with CUDA is installed."""

import json
import sys
import tempfile
import time

import networks
import numpy as np

# As its users would set it for a network of that precision: (element type, TF32 allowed, type of autocast or None).
SETTINGS = {"fp32": ("float32", False, None), "tf32": ("float32", True, None), "fp16": ("float32", True, "float16"),
            "bf16": ("float32", True, "bfloat16")}


WARM_UP_S = 0.5


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
        # Those of `modules`.
        "linear": lambda x, w, bias: functional.linear(x, w.t(), bias),
        "gelu": functional.gelu,
        "attention": lambda q, k, v, scale: functional.scaled_dot_product_attention(q, k.transpose(-2, -1), v, scale=scale),
    }


def modules(net):
    """The steps of a network as PyTorch's own modules would take them: Linear, GELU, scaled_dot_product_attention."""
    arrays = dict(net.weights)
    made, at = [], 0
    while at < len(net.steps):
        steps = net.steps[at:at + 5]
        types = [op_type for op_type, *_ in steps]
        inputs = [names for _, names, *_ in steps]
        names = [name for *_, name, _ in steps]
        if types == ["Mul", "Erf", "Add", "Mul", "Mul"] and inputs[0][0] == inputs[3][0]:
            made.append(("gelu", inputs[0][:1], names[4], {}))
            at += 5
        elif types[:4] == ["MatMul", "Mul", "Softmax", "MatMul"] and inputs[3][0] == names[2]:
            made.append(("attention", [*inputs[0], inputs[3][1]], names[3], {"scale": float(arrays[inputs[1][1]])}))
            at += 4
        elif types[:2] == ["MatMul", "Add"] and inputs[0][1] in arrays and inputs[1][0] == names[0] and inputs[1][1] in arrays:
            made.append(("linear", [*inputs[0], inputs[1][1]], names[1], {}))
            at += 2
        else:
            made.append(steps[0])
            at += 1
    return made


class Peer:
    """A network on one device; weights are kept there, shapes (int64) on the host. `dtype` is that of weights and values
    where it is not the network's, `steps` what is computed."""

    def __init__(self, torch, net, device="cuda", dtype=None, is_last=False, steps=None):
        self.torch, self.net, self.device, self.dtype, self.is_last = torch, net, device, dtype, is_last
        self.steps = net.steps if steps is None else steps
        self.by_type = operations(torch)
        self.weights = {name: array if array.dtype == np.int64 else self.placed(torch.from_numpy(np.array(array)), dtype)
                        for name, array in net.weights}

    def placed(self, tensor, dtype=None):
        tensor = tensor.to(self.device)
        tensor = tensor if dtype is None else tensor.to(dtype)
        is_image = self.is_last and len(tensor.shape) == 4
        return tensor.contiguous(memory_format=self.torch.channels_last) if is_image else tensor

    def forward(self, x):
        """Values that are fed and fetched have the network's type."""
        values = {**self.weights, self.net.inputs[0][0]: x if self.dtype is None else x.to(self.dtype)}
        last = None
        for op_type, inputs, name, attributes in self.steps:
            last = values[name] = self.by_type[op_type](*(values[each] for each in inputs), **attributes)
        return last if self.dtype is None else last.to(x.dtype)


def variants(torch, net, precision):
    """By name: the peer, made with these arguments, and the type of its autocast. All that a user of PyTorch may well do;
    the best of them counts."""
    cast = SETTINGS[precision][2] if net.dtype == np.float32 else None
    dtype = cast and getattr(torch, cast)
    if any(len(shape) == 4 for _, shape in net.inputs):
        ways = {"channels first": {}, "channels last": {"is_last": True}}
    else:
        ways = {"node by node": {}, "modules": {"steps": modules(net)}}
    if dtype is None:
        return {name: (more, None) for name, more in ways.items()}
    made = {f"{name}, weights cast beforehand": ({**more, "dtype": dtype}, None) for name, more in ways.items()}
    return {**made, "autocast": (list(ways.values())[-1], dtype)}


def median_ms(run, runs, warm_up_s):
    """After ten runs, and the time in which the clocks rise."""
    start = time.perf_counter()
    count = 0
    while count < 10 or time.perf_counter() - start < warm_up_s:
        run()
        count += 1
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return sorted(times)[runs // 2]


def times(torch, net, batch, peer, autocast, *how):
    """Of one run that is waited for: with its input and result on the device; and from pageable memory to such memory, as
    `backplane bench` has it."""
    shape = (batch, *net.inputs[0][1][1:])
    x_host = np.random.default_rng(7).standard_normal(shape).astype(net.dtype)
    x = peer.placed(torch.from_numpy(x_host))
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.autocast("cuda", autocast or torch.float16, enabled=autocast is not None, cache_enabled=False):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                peer.forward(x)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            y = peer.forward(x)

    def on_the_device():
        graph.replay()
        torch.cuda.synchronize()

    def from_host_memory():
        x.copy_(torch.from_numpy(x_host))
        graph.replay()
        return y.cpu().numpy()

    with torch.inference_mode():
        return median_ms(on_the_device, *how), median_ms(from_host_memory, *how)


def best_of(torch, net, batch, precision, runs, warm_up_s=WARM_UP_S):
    """The variant whose latency is the least, and what all of them have."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = SETTINGS[precision][1]
    torch.backends.cudnn.benchmark = True
    found, failed = {}, {}
    for name, (more, autocast) in variants(torch, net, precision).items():
        try:
            found[name] = times(torch, net, batch, Peer(torch, net, **more), autocast, runs, warm_up_s)
        except Exception as error:  # the others may well work
            failed[name] = f"{type(error).__name__}: {error}"[:300]
    row = {"batch": batch, "precision": precision, "variants": found, "failed": failed}
    if found:
        row["variant"] = min(found, key=lambda name: found[name][0])
        row["latency_ms"], row["host_ms"] = found[row["variant"]]
    return row


def main(words):
    """`find` prints why there is no peer, or nothing; NETWORK ELEMENTS RUNS quick|whole BATCH:PRECISION... a line of JSON for
    each of these."""
    torch, missing = find()
    if words == ["find"]:
        print(missing)
        return
    name, dtype, runs, size, *pairs = words
    small = {"resnet50_dyn": {"size": 64}, "bert_dyn": {"layers": 2, "tokens": 32}}[name] if size == "quick" else {}
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        net = getattr(networks, name)(file.name, dtype=np.dtype(dtype).type, **small)
    for pair in pairs:
        batch, precision = pair.split(":")
        print(json.dumps(best_of(torch, net, int(batch), precision, int(runs), 0 if size == "quick" else WARM_UP_S)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
