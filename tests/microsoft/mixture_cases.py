"""MoE, QMoE, MatMulBnb4."""
import dataclasses

import numpy as np
from model_cases import Case, expected_of, reals, whole

HIDDEN, INNER, EXPERTS = 32, 64, 4


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gated(gate, linear, attributes):
    limit = attributes.get("swiglu_limit", np.inf)
    gate, linear = np.minimum(gate, limit), np.clip(linear, -limit, limit)
    return gate * sigmoid(attributes.get("activation_alpha", 1.0) * gate) * (linear + attributes.get("activation_beta", 0.0))


def mixed(x, router, first, first_bias, second, second_bias, third=None, third_bias=None, **attributes):
    """In double precision, token by token, for what ONNX Runtime has no kernel for."""
    tokens = x.reshape(-1, x.shape[-1]).astype(np.float64)
    out = np.zeros_like(tokens)
    for row, token in enumerate(tokens):
        power = np.exp(router[row] - router[row].max())
        power = power / power.sum()
        chosen = np.argsort(-power, kind="stable")[: attributes.get("k", 1)]
        shares = power[chosen] / (power[chosen].sum() if attributes.get("normalize_routing_weights") else 1)
        for expert, share in zip(chosen, shares):
            made = first[expert] @ token + (0 if first_bias is None else first_bias[expert])
            kind = attributes.get("activation_type", "relu")
            if third is not None:
                linear = third[expert] @ token + (0 if third_bias is None else third_bias[expert])
                made = gated(made, linear, attributes) if kind == "swiglu" else made * sigmoid(made) * linear
            else:
                made = gated(*np.split(made, 2), attributes)
            out[row] += share * (second[expert] @ made + (0 if second_bias is None else second_bias[expert]))
    return out.reshape(x.shape).astype(np.float32)


def moe():
    """As quantized()."""
    for case in moe_cases():
        yield case
        yield dataclasses.replace(case, name=f"body_{case.name}", constants=(), half=False)


def moe_cases():
    x, router = reals(2, 3, HIDDEN), reals(6, EXPERTS, seed=1, scale=2)
    first, second = reals(EXPERTS, INNER, HIDDEN, scale=0.2), reals(EXPERTS, HIDDEN, INNER, scale=0.2)
    bias, last = reals(EXPERTS, INNER, seed=2), reals(EXPERTS, HIDDEN, seed=3)
    more = {"open_axes": {0: (0, 1), 1: (0,)}, "constants": (2, 3, 4, 5, 6, 7), "rtol": 1e-3, "atol": 1e-4}
    for kind in ("relu", "gelu", "silu", "identity"):
        yield Case(kind, "MoE", [x, router, first, bias, second, last], {"activation_type": kind, "k": 2}, half=kind == "silu", **more)
    yield Case("one", "MoE", [x, router, first, None, second], {"k": 1}, **more)
    yield Case("all", "MoE", [reals(5, HIDDEN), router[:5], first, None, second, last],
               {"k": EXPERTS, "normalize_routing_weights": 1}, **{**more, "open_axes": {0: (0,), 1: (0,)}})
    wide, wide_bias = reals(EXPERTS, 2 * INNER, HIDDEN, scale=0.2), reals(EXPERTS, 2 * INNER, seed=2)
    pairs = {"activation_type": "swiglu", "swiglu_fusion": 1, "k": 2, "normalize_routing_weights": 1}
    yield Case("pairs", "MoE", [x, router, wide, wide_bias, second, last],
               {**pairs, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 1.5}, **more)
    yield Case("pairs_plain", "MoE", [x, router, wide, None, second], pairs, **more)
    halves = {**pairs, "swiglu_fusion": 2, "activation_alpha": 1.3, "swiglu_limit": 1.5}
    yield Case("halves", "MoE", [x, router, wide, wide_bias, second, last], halves, expected=lambda *a: mixed(*a, **halves), **more)
    for kind in ("silu", "swiglu"):
        apart = {"activation_type": kind, "k": 2}
        inputs = [x, router, first, bias, second, last, reals(EXPERTS, INNER, HIDDEN, scale=0.2, seed=4), bias]
        yield Case(f"apart_{kind}", "MoE", inputs, apart, expected=lambda *a, apart=apart: mixed(*a, **apart), **more)


def qmoe(name, bits, block=0, zeros=False, kind="swiglu", weights=False, tokens=3, **attributes):
    fused = 2 if kind == "swiglu" else 1
    inputs = [reals(2, tokens, HIDDEN), reals(2 * tokens, EXPERTS, seed=1, scale=2)]
    points = []
    for columns, depth, seed in ((fused * INNER, HIDDEN, 5), (HIDDEN, INNER, 6)):
        shape = (EXPERTS, columns, depth // block) if block else (EXPERTS, columns)
        inputs += [whole(0, 256, EXPERTS, columns, depth * bits // 8, dtype=np.uint8, seed=seed),
                   (np.abs(reals(*shape, seed=seed)) * 0.3 / 2**bits + 0.01).astype(np.float32), reals(EXPERTS, columns, seed=seed)]
        packed = (*shape[:-1], -(-shape[-1] * bits // 8))
        points.append(whole(0, 256, *packed, dtype=np.uint8, seed=seed) if zeros else None)
    inputs += [None] * 3 + points
    if weights:
        inputs += [None, np.abs(reals(2 * tokens, EXPERTS, seed=9))]
    attributes = {"expert_weight_bits": bits, "activation_type": kind, "k": 2, "normalize_routing_weights": 1, **attributes}
    if kind == "swiglu":
        attributes = {"swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 7.0, **attributes}
    if block:
        attributes["block_size"] = block
    return Case(name, "QMoE", inputs, attributes, open_axes={0: (0, 1), 1: (0,), 14: (0,)},
                constants=tuple(range(2, 14)), rtol=2e-2, atol=2e-2)


def quantized():
    """Each case as it is, for kernels, and with weights that are fed, which leaves it to the operator's body."""
    for case in quantized_cases():
        yield case
        yield dataclasses.replace(case, name=f"body_{case.name}", constants=(), forms=("static",), half=False)


def quantized_cases():
    yield dataclasses.replace(qmoe("b4", 4), half=True)
    yield qmoe("many", 4, block=32, tokens=300)
    yield qmoe("many_b8", 8, tokens=40, kind="silu")
    # Tokens may be rounded to 8 bits, and are on some processors.
    yield dataclasses.replace(qmoe("rounded", 4, block=32, accuracy_level=4), rtol=1e-1, atol=1e-1)
    yield qmoe("b8_gelu", 8, kind="gelu", k=1)
    yield qmoe("b4_blocks", 4, block=16)
    yield qmoe("b4_zeros", 4, zeros=True)
    yield qmoe("b4_blocks_zeros", 4, block=16, zeros=True)
    yield qmoe("b8", 8)
    yield qmoe("b8_zeros", 8, zeros=True)
    yield qmoe("b8_silu", 8, kind="silu")
    yield qmoe("b4_relu_k1", 4, kind="relu", k=1)
    yield dataclasses.replace(qmoe("no_tokens", 4, tokens=0), expected=lambda x, *_: x)
    # Shares that do not sum up to one: ONNX Runtime's QMoE makes them, where its MoE does not.
    plain = qmoe("not_normal", 8, kind="identity", normalize_routing_weights=0)

    def scaled(x, router, *rest):
        power = np.exp(router - router.max(-1, keepdims=True))
        best = np.sort(power / power.sum(-1, keepdims=True))[:, -2:].sum(-1)
        y = expected_of(dataclasses.replace(plain, expected=None, attributes={**plain.attributes, "normalize_routing_weights": 1}))[0]
        return y * best.reshape(*y.shape[:2], 1).astype(np.float32)

    plain.expected = scaled
    yield plain
    halves = qmoe("halves", 8)
    pairs = expected_of(halves)
    order = np.concatenate([np.arange(0, 2 * INNER, 2), np.arange(1, 2 * INNER, 2)])
    inputs = [a[:, order].copy() if k in (2, 3, 4) else a for k, a in enumerate(halves.inputs)]
    yield dataclasses.replace(halves, inputs=inputs, attributes={**halves.attributes, "swiglu_fusion": 2}, expected=lambda *_: pairs[0])
    yield qmoe("b2_blocks", 2, block=16)
    yield qmoe("router_weights", 4, weights=True)


def bnb4():
    for kind in (0, 1):
        for name, columns, depth, block in (("plain", 8, 64, 32), ("odd", 7, 33, 16), ("short", 5, 12, 64)):
            count = columns * depth
            inputs = [reals(2, 3, depth), whole(0, 256, (count + 1) // 2, dtype=np.uint8), np.abs(reals(-(-count // block)))]
            attributes = {"N": columns, "K": depth, "block_size": block, "quant_type": kind}
            yield Case(f"{name}{kind}", "MatMulBnb4", inputs, attributes, constants=(1, 2), half=name == "plain", rtol=1e-3)
    inputs = [reals(3, 8), whole(0, 256, 256, dtype=np.uint8), np.abs(reals(16))]
    yield Case("backwards", "MatMulBnb4", inputs, {"N": 8, "K": 64, "block_size": 32, "quant_type": 1, "transB": 0}, constants=(1, 2),
               expected=lambda *a: backwards(*a))


def backwards(x, codes, scales):
    """ONNX Runtime has no kernel for CPUs: what the other direction gives for each row of the identity is the matrix."""
    eye = np.eye(64, dtype=np.float32)
    matrix = expected_of(Case("", "MatMulBnb4", [eye, codes, scales],
                              {"N": 8, "K": 64, "block_size": 32, "quant_type": 1}, constants=(1, 2)))[0]
    return x @ matrix.T


def cases():
    for family in (moe, quantized, bnb4):
        yield from family()
