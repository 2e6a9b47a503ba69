#!/usr/bin/env python3
"""Train the digits network that the quickstart and the tests run, and write it as an ONNX model.

  train_digits.py [OUT] [--epochs N] [--seed N] [--check]

Data: the 1,797 scans of handwritten digits (8x8 pixels, 0 to 16) that scikit-learn carries. A fifth
of each class is held out and never trained on. OUT (default tests/data/digits) gets

  digits.onnx   `image` float [batch, 1, 8, 8] in 0..1  ->  `probabilities` float [batch, 10]
  images.npy    the held-out images, float32 [359, 1, 8, 8]: ready to feed
  labels.npy    what they show, int64 [359]

The same command should write the same bytes wherever it runs: training is in double precision, from
fixed seeds, on one thread, and the weights are rounded at the end, so coarsely that the order in
which a BLAS adds does not show. Needs: numpy, scikit-learn, onnx; with --check also onnxruntime,
which then has to confirm the accuracy.
"""
import os

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"  # read at numpy's import; more threads add in another order

import argparse
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BATCH_SIZE = 32
LEARNING_RATE = 2e-3
WEIGHT_STEP = 2.0**-12  # the weights written are multiples of this
LEAST_ACCURACY = 0.97


class Conv:
    """A 3x3 convolution with padding 1, on images laid out [batch, height, width, channels]."""

    def __init__(self, random, inputs, outputs):
        fan_in = 9 * inputs
        self.weight = random.standard_normal((fan_in, outputs)) * np.sqrt(2 / fan_in)
        self.bias = np.zeros(outputs)

    def forward(self, x):
        self.shape = x.shape
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
        self.patches = windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, self.weight.shape[0])
        return (self.patches @ self.weight + self.bias).reshape(*x.shape[:3], -1)

    def backward(self, gradient):
        batch, height, width, channels = self.shape
        flat = gradient.reshape(-1, gradient.shape[-1])
        self.gradients = [self.patches.T @ flat, flat.sum(axis=0)]
        patches = (flat @ self.weight.T).reshape(batch, height, width, 3, 3, channels)
        padded = np.zeros((batch, height + 2, width + 2, channels))
        for y in range(3):
            for x in range(3):
                padded[:, y : y + height, x : x + width] += patches[:, :, :, y, x]
        return padded[:, 1:-1, 1:-1]

    def onnx_weights(self):
        """The filter as ONNX wants it, [outputs, inputs, 3, 3], and the bias."""
        filters = self.weight.reshape(3, 3, -1, self.weight.shape[1])
        return [filters.transpose(3, 2, 0, 1), self.bias]


class Gemm:
    """A fully connected layer. Images it flattens channel first, as ONNX's Flatten does."""

    def __init__(self, random, inputs, outputs):
        self.weight = random.standard_normal((inputs, outputs)) * np.sqrt(2 / inputs)
        self.bias = np.zeros(outputs)

    def forward(self, x):
        self.shape = x.shape
        self.x = x.transpose(0, 3, 1, 2).reshape(len(x), -1) if x.ndim == 4 else x
        return self.x @ self.weight + self.bias

    def backward(self, gradient):
        self.gradients = [self.x.T @ gradient, gradient.sum(axis=0)]
        below = gradient @ self.weight.T
        if len(self.shape) == 4:
            batch, height, width, channels = self.shape
            return below.reshape(batch, channels, height, width).transpose(0, 2, 3, 1)
        return below

    def onnx_weights(self):
        """The matrix as Gemm with transB=1 wants it, [outputs, inputs], and the bias."""
        return [self.weight.T, self.bias]


class Relu:
    def forward(self, x):
        self.positive = x > 0
        return x * self.positive

    def backward(self, gradient):
        return gradient * self.positive


class MaxPool:
    """The greatest of each 2x2 window; the first of equals gets the gradient."""

    def forward(self, x):
        batch, height, width, channels = x.shape
        windows = x.reshape(batch, height // 2, 2, width // 2, 2, channels)
        windows = windows.transpose(0, 1, 3, 5, 2, 4)
        self.windows_shape = windows.shape
        windows = windows.reshape(*windows.shape[:4], 4)
        self.winner = windows.argmax(axis=-1)[..., None]
        return np.take_along_axis(windows, self.winner, axis=-1)[..., 0]

    def backward(self, gradient):
        batch, height, width, channels = gradient.shape
        windows = np.zeros((batch, height, width, channels, 4))
        np.put_along_axis(windows, self.winner, gradient[..., None], axis=-1)
        windows = windows.reshape(self.windows_shape).transpose(0, 1, 4, 2, 5, 3)
        return windows.reshape(batch, 2 * height, 2 * width, channels)


class Network:
    """The layers in order, and Adam's state. Images are [batch, 8, 8, 1] in 0..1."""

    def __init__(self, random):
        self.layers = [Conv(random, 1, 16), Relu(), Conv(random, 16, 32), Relu(), MaxPool(),
                       Gemm(random, 512, 64), Relu(), Gemm(random, 64, 10)]  # fmt: skip
        self.trained = [layer for layer in self.layers if hasattr(layer, "weight")]
        parameters = self.parameters()
        self.mean = [np.zeros_like(p) for p in parameters]
        self.square = [np.zeros_like(p) for p in parameters]
        self.steps = 0

    def parameters(self):
        return [p for layer in self.trained for p in (layer.weight, layer.bias)]

    def probabilities(self, images):
        x = images
        for layer in self.layers:
            x = layer.forward(x)
        x = np.exp(x - x.max(axis=1, keepdims=True))
        return x / x.sum(axis=1, keepdims=True)

    def train_step(self, images, labels, rate):
        """One step of Adam on the mean cross entropy of a batch; returns that mean."""
        probabilities = self.probabilities(images)
        rows = np.arange(len(labels))
        loss = -np.log(probabilities[rows, labels] + 1e-12).mean()
        gradient = probabilities
        gradient[rows, labels] -= 1
        gradient /= len(labels)
        for layer in reversed(self.layers):
            gradient = layer.backward(gradient)

        self.steps += 1
        gradients = [g for layer in self.trained for g in layer.gradients]
        for value, slope, mean, square in zip(self.parameters(), gradients, self.mean, self.square):
            mean += 0.1 * (slope - mean)
            square += 0.001 * (slope * slope - square)
            step = mean / (1 - 0.9**self.steps)
            value -= rate * step / (np.sqrt(square / (1 - 0.999**self.steps)) + 1e-8)
        return loss

    def round_weights(self):
        for value in self.parameters():
            value[...] = np.round(value / WEIGHT_STEP) * WEIGHT_STEP


def load_split(seed):
    """(images, labels) to train on and (images, labels) held out; images [count, 8, 8, 1], 0..1."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = digits.images[..., None] / 16.0
    labels = digits.target.astype(np.int64)
    random = np.random.default_rng(seed)
    held_out = np.zeros(len(labels), bool)
    for digit in range(10):
        members = random.permutation(np.flatnonzero(labels == digit))
        held_out[members[: round(len(members) / 5)]] = True
    return (images[~held_out], labels[~held_out]), (images[held_out], labels[held_out])


def train(images, labels, epochs, seed):
    random = np.random.default_rng(seed)
    network = Network(random)
    for epoch in range(epochs):
        rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * epoch / epochs))
        order = random.permutation(len(labels))
        losses = []
        for start in range(0, len(order), BATCH_SIZE):
            batch = order[start : start + BATCH_SIZE]
            losses.append(network.train_step(images[batch], labels[batch], rate))
        print(f"epoch {epoch + 1} of {epochs}: loss {np.mean(losses):.4f}", file=sys.stderr)
    network.round_weights()
    return network


def to_onnx(network, accuracy):
    names = ["conv1", "conv2", "dense1", "dense2"]
    weights = {}
    for name, layer in zip(names, network.trained):
        for kind, values in zip(("weight", "bias"), layer.onnx_weights()):
            weights[f"{name}.{kind}"] = np.ascontiguousarray(values, np.float32)

    def weighted(op_type, name, x, **attributes):
        inputs = [x, f"{name}.weight", f"{name}.bias"]
        return helper.make_node(op_type, inputs, [f"{name}_out"], name=name, **attributes)

    def plain(op_type, name, x, output=None, **attributes):
        return helper.make_node(op_type, [x], [output or f"{name}_out"], name=name, **attributes)

    conv = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        weighted("Conv", "conv1", "image", **conv),
        plain("Relu", "relu1", "conv1_out"),
        weighted("Conv", "conv2", "relu1_out", **conv),
        plain("Relu", "relu2", "conv2_out"),
        plain("MaxPool", "pool", "relu2_out", kernel_shape=[2, 2], strides=[2, 2]),
        plain("Flatten", "flatten", "pool_out", axis=1),
        weighted("Gemm", "dense1", "flatten_out", transB=1),
        plain("Relu", "relu3", "dense1_out"),
        weighted("Gemm", "dense2", "relu3_out", transB=1),
        plain("Softmax", "softmax", "dense2_out", "probabilities", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
        doc_string="Which of the ten digits an 8x8 grey scan shows; 0 is paper, 1 is ink.",
    )
    model = helper.make_model(
        graph,
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 17)],
        producer_name="backplane tools/train_digits.py",
        producer_version="1",
        model_version=1,
        doc_string="A small convolutional network, trained on scikit-learn's handwritten digits.",
    )
    helper.set_model_props(model, {
        "data": "Optical Recognition of Handwritten Digits, Alpaydin and Kaynak, UCI, CC BY 4.0",
        "labels": "0,1,2,3,4,5,6,7,8,9",
        "held_out_accuracy": f"{accuracy:.4f}",
    })  # fmt: skip
    onnx.checker.check_model(model, full_check=True)
    return model


def checked_accuracy(out):
    """The accuracy of the written files, as ONNX Runtime sees them."""
    import onnxruntime

    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(str(out / "digits.onnx"), providers=providers)
    (probabilities,) = session.run(None, {"image": np.load(out / "images.npy")})
    return float((probabilities.argmax(axis=1) == np.load(out / "labels.npy")).mean())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "digits"
    parser.add_argument("out", type=pathlib.Path, nargs="?", default=default)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="let ONNX Runtime confirm it")
    arguments = parser.parse_args()

    (images, labels), (held_images, held_labels) = load_split(arguments.seed)
    network = train(images, labels, arguments.epochs, arguments.seed)
    answers = network.probabilities(held_images).argmax(axis=1)
    accuracy = float((answers == held_labels).mean())
    print(f"held-out accuracy: {accuracy:.2%} of {len(held_labels)}; trained on {len(labels)}")
    if accuracy < LEAST_ACCURACY:
        sys.exit(f"train_digits: {accuracy:.2%} is below {LEAST_ACCURACY:.0%}; nothing written")

    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    model = to_onnx(network, accuracy)
    (out / "digits.onnx").write_bytes(model.SerializeToString(deterministic=True))
    np.save(out / "images.npy", held_images.transpose(0, 3, 1, 2).astype(np.float32))
    np.save(out / "labels.npy", held_labels)
    if arguments.check:
        confirmed = checked_accuracy(out)
        print(f"ONNX Runtime: {confirmed:.2%}")
        if confirmed != accuracy:
            sys.exit(f"train_digits: ONNX Runtime finds {confirmed:.2%}, training {accuracy:.2%}")


if __name__ == "__main__":
    main()
