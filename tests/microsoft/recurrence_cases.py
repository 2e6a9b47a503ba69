"""LinearAttention and what stands around it."""
import numpy as np
from model_cases import Case, expected_of, reals

BOTH = (True, True)


def linear_attention():
    op = "LinearAttention"

    def case(name, rule, heads=(2, 2, 2), tokens=5, past=True, decay="head", rate="head", width=8, v_width=12, **more):
        query_heads, key_heads, kv = heads
        q, k = reals(2, tokens, query_heads * width), 0.4 * reals(2, tokens, key_heads * width, seed=1)
        inputs = [q, k, reals(2, tokens, kv * v_width, seed=2), reals(2, kv, width, v_width, seed=3) if past else None]
        gate = -np.abs(reals(2, tokens, kv * (width if decay == "key" else 1), seed=4))
        beta = np.abs(0.5 * reals(2, tokens, kv if rate == "head" else 1, seed=5))
        inputs += [gate if "gated" in rule else None, beta if "delta" in rule else None]
        attributes = {"q_num_heads": query_heads, "kv_num_heads": kv, "update_rule": rule, **more}
        opened = {**{index: (0, 1) for index in (0, 1, 2, 4, 5)}, 3: (0,)}
        return Case(name, op, inputs, attributes, BOTH, open_axes=opened, rtol=1e-3, atol=1e-5, half=name == "gated_delta")

    for rule in ("linear", "gated", "delta", "gated_delta"):
        yield case(rule, rule)
        yield case(f"{rule}_prompt", rule, past=False)
        yield case(f"{rule}_step", rule, tokens=1)
    yield case("by_key", "gated_delta", decay="key", rate="one")
    yield case("by_key_gated", "gated", decay="key", scale=0.7)
    yield case("shared_queries", "gated_delta", heads=(2, 2, 4))
    yield case("shared_keys", "gated_delta", heads=(4, 2, 4))
    yield case("wide", "gated_delta", width=64, v_width=80)
    # Several heads of queries for a state: ONNX Runtime's result is the same as with keys and values repeated.
    grouped = case("grouped", "gated_delta", heads=(4, 2, 2))

    def repeated(q, k, v, past, decay, beta):
        def twice(a, width):
            return np.repeat(a.reshape(*a.shape[:2], 2, width), 2, 2).reshape(*a.shape[:2], -1)

        inputs = [q, twice(k, 8), twice(v, 12), np.repeat(past, 2, 1), twice(decay, 1), twice(beta, 1)]
        y, state = expected_of(Case("", op, inputs, {**grouped.attributes, "kv_num_heads": 4}, BOTH))
        return y, state[:, ::2]

    grouped.expected = repeated
    yield grouped


def causal_conv():
    op = "CausalConvWithState"
    x, w, b = reals(2, 6, 5), reals(6, 1, 4), reals(6)
    more = {"constants": (1, 2), "open_axes": {0: (0, 2), 3: (0,)}}
    yield Case("plain", op, [x, w], {}, BOTH, **more)
    yield Case("silu", op, [x, w, b, reals(2, 6, 3, seed=1)], {"activation": "silu"}, BOTH, half=True, **more)
    yield Case("step", op, [reals(2, 6, 1), w, None, reals(2, 6, 3, seed=1)], {"activation": "swish"}, BOTH, **more)
    yield Case("dilation", op, [x, w, b, reals(2, 6, 6, seed=1)], {"dilation": 2}, BOTH, **more)
    yield Case("width_one", op, [x, reals(6, 1, 1), b], {}, BOTH, **more)


def gates():
    a, bias, scale = reals(2, 3, 4), reals(4), -np.abs(reals(4, seed=1))
    yield Case("both", "LinearAttentionGate", [a, bias, scale, reals(2, 3, 4, seed=2)], {}, BOTH, constants=(1, 2))
    yield Case("decay", "LinearAttentionGate", [a, bias, scale], {}, (True,), constants=(1, 2))
    x, gate = reals(2, 3, 16), reals(2, 3, 16, seed=1)
    for kind in ("silu", "swish", "sigmoid"):
        yield Case(kind, "GatedRMSNorm", [x, reals(8) + 1, gate], {"activation": kind, "epsilon": 1e-3}, constants=(1,), half=True)
    yield Case("nothing", "GatedRMSNorm", [x[:, :0].copy(), reals(8), gate[:, :0].copy()], {}, constants=(1,), expected=lambda a, *_: a)
    yield Case("plain", "GatedAdd", [x, gate, reals(2, 3, 1)], {})
    yield Case("alpha", "ScaledSiLU", [x], {"alpha": 1.3})
    yield Case("scale", "ScaledSiLU", [x, np.array(0.7, np.float32)], {"alpha": 1.3}, constants=(1,))


def cases():
    for family in (linear_attention, causal_conv, gates):
        yield from family()
