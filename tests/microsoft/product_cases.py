"""FusedMatMul, TransposeMatMul, FusedGemm, FusedConv, NhwcConv, MatMulNBits."""
import numpy as np
from model_cases import Case, expected_of, reals, whole


def fused_matmul():
    yield Case("plain", "FusedMatMul", [reals(3, 4), reals(4, 5)], half=True)
    yield Case("alpha", "FusedMatMul", [reals(3, 4), reals(4, 5)], {"alpha": 0.37}, half=True)
    yield Case("alpha_weights", "FusedMatMul", [reals(3, 4), reals(4, 5)], {"alpha": 0.37}, constants=(1,))
    yield Case("trans_a", "FusedMatMul", [reals(4, 3), reals(4, 5)], {"transA": 1})
    yield Case("trans_b", "FusedMatMul", [reals(3, 4), reals(5, 4)], {"transB": 1}, constants=(1,))
    yield Case("batch", "FusedMatMul", [reals(2, 3, 4, 5), reals(2, 3, 7, 5)], {"transB": 1, "alpha": -2.0})
    yield Case("broadcast", "FusedMatMul", [reals(2, 3, 5, 4), reals(5, 7)], {"transA": 1})
    yield Case("vector", "FusedMatMul", [reals(4), reals(4, 5)], {"transA": 1})
    yield Case("vector_b", "FusedMatMul", [reals(2, 3, 4), reals(4)], {"transB": 1})
    yield Case("trans_batch_a", "FusedMatMul", [reals(5, 2, 3, 4), reals(2, 3, 4, 6)], {"transBatchA": 1})
    yield Case("trans_batch_a_swapped", "FusedMatMul", [reals(4, 2, 5), reals(2, 4, 6)], {"transBatchA": 1, "transA": 1})
    yield Case("trans_batch_b", "FusedMatMul", [reals(2, 3, 5, 4), reals(4, 2, 3, 6)], {"transBatchB": 1})
    yield Case("double", "FusedMatMul", [reals(3, 4).astype(np.float64), reals(4, 5).astype(np.float64)], {"alpha": 0.5})
    yield Case("old_name", "TransposeMatMul", [reals(2, 3, 4), reals(2, 5, 4)], {"transB": 1, "alpha": 0.125})


def fused_gemm():
    for name, extra in (("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.3}), ("Tanh", {}), ("Sigmoid", {}),
                        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4})):
        attributes = {"activation": name, "alpha": 0.5, "beta": 2.0, "transB": 1, **extra}
        yield Case(name, "FusedGemm", [reals(3, 4), reals(5, 4), reals(5)], attributes, constants=(1, 2))
    yield Case("no_c", "FusedGemm", [reals(4, 3), reals(4, 5)], {"activation": "Relu", "transA": 1})


def fused_conv():
    x, w, b = reals(2, 4, 7, 6), reals(6, 2, 3, 3, scale=0.3), reals(6)
    for name, parameters in (("Relu", None), ("Tanh", None), ("Sigmoid", None), ("LeakyRelu", [0.2]),
                             ("Clip", [-0.5, 0.75]), ("HardSigmoid", [0.3, 0.4])):
        attributes = {"activation": name, "group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]}
        if parameters:
            attributes["activation_params"] = parameters
        yield Case(name, "FusedConv", [x, w, b], attributes, constants=(1, 2), forms=("static",))
    z = reals(2, 6, 5, 4)
    yield Case("sum", "FusedConv", [x, w, b, z], {"activation": "Relu", "group": 2}, constants=(1, 2),
               open_axes={0: (0, 2, 3), 3: (0, 2, 3)})
    yield Case("no_bias", "FusedConv", [x, w, None, z], {"activation": "Relu", "group": 2, "kernel_shape": [3, 3]},
               constants=(1,), forms=("static",))
    yield Case("same", "FusedConv", [x, w], {"activation": "Relu", "group": 2, "auto_pad": "SAME_UPPER"}, forms=("static",))


def nhwc_conv():
    """ONNX Runtime has no kernel of it for CPUs: Conv says what it gives."""
    def last(a):
        return np.ascontiguousarray(np.moveaxis(a, 1, -1))

    for name, rest, attributes in (("plain", [reals(6)], {"pads": [1, 0, 1, 2], "strides": [2, 1]}),
                                   ("no_bias", [], {"auto_pad": "SAME_UPPER"})):
        attributes = {"group": 2, **attributes}
        inputs = [reals(2, 4, 7, 6), reals(6, 2, 3, 3, scale=0.3), *rest]
        y = last(expected_of(Case(name, "Conv", inputs, attributes, domain=""))[0])
        yield Case(name, "NhwcConv", [last(inputs[0]), last(inputs[1]), *rest], attributes, constants=(1, 2),
                   open_axes={0: (0, 1, 2)}, expected=lambda *_, y=y: y, half=True)


def nbits(name, columns, depth, block, bits, zeros=None, groups=False, bias=False, rows=(3,), **more):
    blocks = -(-depth // block)
    weights = whole(0, 256, columns, blocks, block * bits // 8, dtype=np.uint8, seed=depth)
    scales = (np.abs(reals(columns, blocks)) * 0.05 + 0.01).astype(np.float32)
    zero_points = None
    if zeros == "packed":
        zero_points = whole(0, 256, columns, -(-blocks * bits // 8), dtype=np.uint8)
    elif zeros == "real":
        zero_points = reals(columns, blocks) + np.float32(2 ** (bits - 1))
    inputs = [reals(*rows, depth), weights, scales, zero_points]
    inputs.append((np.arange(depth) // block).astype(np.int32)[::-1].copy() if groups else None)
    inputs.append(reals(columns) if bias else None)
    attributes = {"N": columns, "K": depth, "block_size": block, "bits": bits}
    return Case(name, "MatMulNBits", inputs, attributes, constants=(1, 2, 3, 4, 5), rtol=1e-3, atol=1e-3, **more)


def matmul_nbits():
    yield nbits("b4", 8, 64, 32, 4, half=True)
    yield nbits("b4_odd", 7, 50, 16, 4)
    yield nbits("b4_zero_points", 8, 96, 32, 4, zeros="packed")
    yield nbits("b4_real_zero_points", 8, 96, 32, 4, zeros="real")
    yield nbits("b4_bias_batch", 8, 64, 32, 4, bias=True, rows=(2, 3))
    yield nbits("b4_one_row", 16, 128, 128, 4, zeros="packed", rows=(1,))
    yield nbits("b8", 8, 64, 32, 8)
    yield nbits("b8_zero_points", 9, 80, 16, 8, zeros="packed", bias=True)
    yield nbits("b2", 8, 64, 32, 2)
    yield nbits("b2_zero_points", 8, 160, 32, 2, zeros="packed")
    fed = nbits("b4_fed", 8, 64, 32, 4)
    fed.constants = ()
    fed.forms = ("static",)
    yield fed


def cases():
    for family in (fused_matmul, fused_gemm, fused_conv, nhwc_conv, matmul_nbits):
        yield from family()
