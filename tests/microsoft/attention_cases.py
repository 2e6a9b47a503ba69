"""RotaryEmbedding, MultiHeadAttention, Attention, GroupQueryAttention."""
import dataclasses

import numpy as np
from model_cases import Case, expected_of, reals, whole

ALL = {k: (0, 1) for k in range(16)}


def rotary():
    op = "RotaryEmbedding"
    positions = whole(0, 20, 2, 5)
    angles = reals(20, 4)
    cos, sin = np.cos(angles), np.sin(angles)
    flat, heads = reals(2, 5, 24), reals(2, 3, 5, 8)
    opened = {0: (0, 1), 1: (0, 1)}
    for name, more in (("halves", {}), ("pairs", {"interleaved": 1})):
        yield Case(f"flat_{name}", op, [flat, positions, cos, sin], more, constants=(2, 3), open_axes=opened, half=True)
        yield Case(f"heads_{name}", op, [heads, positions, cos, sin], more, constants=(2, 3), open_axes={0: (0, 2), 1: (0, 1)})
        partial = {**more, "num_heads": 2, "rotary_embedding_dim": 8}
        yield Case(f"partial_{name}", op, [flat, positions, cos, sin], partial, open_axes=opened)
        wide = {**more, "num_heads": 2, "rotary_embedding_dim": 8}
        # Heads of more angles than a vector has numbers, with a rest that fills none.
        many = {**more, "num_heads": 3, "rotary_embedding_dim": 74}
        yield Case(f"many_{name}", op, [reals(2, 3, 5, 80), positions, np.cos(reals(20, 37)), np.sin(reals(20, 37))], many,
                   constants=(2, 3))
        yield Case(f"partial_heads_{name}", op, [reals(2, 2, 5, 12), positions, cos, sin], wide, open_axes={0: (0, 2), 1: (0, 1)})
    three = whole(0, 20, 3, 2, 5, seed=7)
    for layout, sections in ((0, [1, 2, 1]), (0, [4, 0, 0]), (1, [2, 1, 1]), (1, [1, 1, 2])):
        name = f"{layout}_{''.join(map(str, sections))}"
        turned = {"mrope_section": sections, "mrope_layout": layout}
        yield Case(f"flat_{name}", "MRotaryEmbedding", [flat, three, cos, sin],
                   {**turned, "num_heads": 2, "rotary_embedding_dim": 8}, constants=(2, 3), open_axes={0: (0, 1), 1: (1, 2)}, half=True)
        yield Case(f"heads_{name}", "MRotaryEmbedding", [heads, three, cos, sin], turned, constants=(2, 3),
                   open_axes={0: (0, 2), 1: (1, 2)})
    yield Case("offset", op, [flat, np.array([3], np.int64), cos, sin], open_axes=opened)


def multi_head():
    op, heads = "MultiHeadAttention", {"num_heads": 3}
    q, k, v = reals(2, 5, 24), reals(2, 5, 24, seed=1), reals(2, 5, 24, seed=2)
    bias = reals(72)
    more = {"open_axes": ALL, "rtol": 1e-3, "atol": 1e-5}
    yield Case("plain", op, [q, k, v], heads, half=True, **more)
    yield Case("bias", op, [q, k, v, bias], {**heads, "scale": 0.3}, constants=(3,), **more)
    yield Case("cross", op, [q, reals(2, 7, 24), reals(2, 7, 18), reals(66)], heads, constants=(3,), **more)
    yield Case("causal", op, [q, k, v], {**heads, "unidirectional": 1}, half=True, **more)
    lengths = np.array([3, 5], np.int32)
    yield Case("lengths", op, [q, k, v, None, lengths], heads, open_axes={0: (0, 1), 1: (0, 1), 2: (0, 1)}, rtol=1e-3)
    padding = np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]], np.int32)
    yield Case("padding", op, [q, k, v, None, padding], heads, **more)
    yield Case("padding_filter", op, [q, k, v, bias, padding], {**heads, "mask_filter_value": -3.0}, constants=(3,), **more)
    square = whole(0, 2, 2, 5, 5, dtype=np.int32)
    square[:, :, 0] = 1
    yield Case("padding_square", op, [q, k, v, None, square], heads, **more)
    yield Case("attention_bias", op, [q, k, v, None, None, reals(1, 3, 5, 5)], heads, open_axes={**ALL, 5: (2, 3)}, rtol=1e-3)
    yield Case("everything", op, [q, k, v, bias, padding, reals(2, 1, 5, 5)], {**heads, "unidirectional": 1},
               open_axes={**ALL, 5: (0, 2, 3)}, rtol=1e-3)

    def apart(packed):  # ONNX Runtime has packed inputs on other devices alone
        parts = [np.ascontiguousarray(part).reshape(*part.shape[:2], 24) for part in np.moveaxis(packed, 3, 0)]
        return expected_of(Case("", op, [*([q] if len(parts) == 2 else []), *parts], heads))

    yield Case("packed", op, [reals(2, 5, 3, 3, 8)], heads, expected=lambda x: tuple(apart(x)), **more)
    yield Case("packed_kv", op, [q, reals(2, 7, 3, 2, 8)], heads, expected=lambda _, x: tuple(apart(x)), **more)
    yield Case("made_kv", op, [q, reals(2, 3, 7, 8), reals(2, 3, 7, 8, seed=1)], heads,
               open_axes={0: (0, 1), 1: (0, 2), 2: (0, 2)}, rtol=1e-3)
    past = [reals(2, 3, 4, 8, seed=3), reals(2, 3, 4, 8, seed=4)]
    opened = {**ALL, 6: (0, 2), 7: (0, 2)}
    three = (True, True, True)
    yield Case("past", op, [q, k, v, bias, None, None, *past], heads, three, open_axes=opened, rtol=1e-3, half=True)
    yield Case("past_causal", op, [q, k, v, None, None, None, *past], {**heads, "unidirectional": 1}, three, open_axes=opened, rtol=1e-3)
    total = whole(0, 2, 2, 9, dtype=np.int32)
    total[:, 3] = 1
    yield Case("past_padding", op, [q, k, v, None, total, None, *past], heads, three, open_axes=opened, rtol=1e-3)
    yield Case("present", op, [q, k, v], heads, three, **more)
    wide = {"open_axes": {0: (0, 1, 2), 1: (0, 1, 2), 2: (0, 1, 2), 3: (0,), 4: (0, 1), 6: (0, 2, 3), 7: (0, 2, 3)},
            "forms": ("symbolic",), "rtol": 1e-3, "atol": 1e-5}
    yield Case("open_width", op, [q, k, v], heads, **wide)
    yield Case("open_width_scale", op, [q, reals(2, 7, 24), reals(2, 7, 18), reals(66)], {**heads, "scale": 0.3}, half=True, **wide)
    yield Case("open_width_everything", op, [q, k, v, bias, total, None, *past], {**heads, "unidirectional": 1}, three, **wide)
    wide["open_axes"] = {k: (0, 1, 2, 3, 4) for k in range(3)}
    yield Case("open_width_packed", op, [reals(2, 5, 3, 3, 8)], heads, expected=lambda x: tuple(apart(x)), **wide)
    yield Case("open_width_packed_kv", op, [q, reals(2, 7, 3, 2, 8)], heads, expected=lambda _, x: tuple(apart(x)), **wide)
    yield Case("open_width_made_kv", op, [q, reals(2, 3, 7, 8), reals(2, 3, 7, 8, seed=1)], heads, **wide)
    step = [reals(2, 1, 24), reals(2, 1, 24, seed=1), reals(2, 1, 24, seed=2)]
    yield Case("step", op, [*step, None, None, None, *past], heads, three, open_axes=opened, rtol=1e-3)


def merged():
    op, heads = "Attention", {"num_heads": 3}
    x, w, b = reals(2, 5, 16), reals(16, 72, scale=0.3), reals(72)
    more = {"constants": (1, 2), "rtol": 1e-3, "atol": 1e-5}
    yield Case("plain", op, [x, w, b], heads, half=True, **more)

    def without_bias(*_):  # ONNX Runtime 1.31.1 crashes
        return tuple(expected_of(Case("", op, [x, w, np.zeros_like(b)], heads)))

    yield Case("no_bias", op, [x, w], heads, expected=without_bias, **more)
    yield Case("causal", op, [x, w, b], {**heads, "unidirectional": 1}, **more)
    yield Case("widths", op, [x, reals(16, 66, scale=0.3), reals(66)], {**heads, "qkv_hidden_sizes": [24, 24, 18], "scale": 0.5}, **more)
    opened = {0: (0, 1), 3: (0, 1), 4: (1, 3), 5: (0, 2, 3)}
    more["open_axes"] = opened
    ends = np.array([3, 5], np.int32)
    yield Case("ends", op, [x, w, b, ends], heads, **more)
    yield Case("ends_and_starts", op, [x, w, b, np.array([3, 5, 1, 0], np.int32)], heads, **more)
    mask = np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]], np.int32)
    yield Case("mask", op, [x, w, b, mask], heads, half=True, **more)
    yield Case("mask_causal", op, [x, w, b, np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], np.int32)], {**heads, "unidirectional": 1}, **more)
    square = whole(0, 2, 2, 5, 5, dtype=np.int32)
    square[:, :, 0] = 1
    yield Case("mask_square", op, [x, w, b, square], {**heads, "mask_filter_value": -5.0}, **more)
    past = reals(2, 2, 3, 4, 8)
    both = (True, True)
    yield Case("past", op, [x, w, b, None, past], heads, both, half=True, **more)
    yield Case("past_causal", op, [x, w, b, None, past], {**heads, "unidirectional": 1}, both, **more)
    yield Case("past_empty", op, [x, w, b, None, reals(2, 2, 3, 0, 8)], {**heads, "unidirectional": 1}, both, **more)
    total = whole(0, 2, 2, 9, dtype=np.int32)
    total[:, 2] = 1
    yield Case("past_mask", op, [x, w, b, total, past], {**heads, "unidirectional": 1}, both, **more)
    yield Case("present", op, [x, w, b], heads, both, **more)
    yield Case("bias", op, [x, w, b, None, None, reals(2, 3, 5, 5)], heads, **more)
    yield Case("bias_one", op, [x, w, b, mask, None, reals(1, 3, 5, 5)], heads, **more)
    wide = {"open_axes": {**opened, 0: (0, 1, 2), 1: (0, 1), 2: (0,), 4: (1, 3, 4)}, "forms": ("symbolic",), "rtol": 1e-3, "atol": 1e-5}
    yield Case("open_width", op, [x, w, b], heads, half=True, **wide)
    yield Case("open_width_past", op, [x, w, b, total, past], {**heads, "unidirectional": 1}, both, **wide)
    yield Case("open_width_widths", op, [x, reals(16, 66, scale=0.3), reals(66)], {**heads, "qkv_hidden_sizes": [24, 24, 18]}, **wide)
    wide["open_axes"] = {0: (0, 1, 2), 1: (0, 1)}
    yield Case("open_weights", op, [x, w, b], heads, **wide)


def group_query():
    """Each case as it is, for kernels, and in float16 that is not widened, which leaves it to the operator's body."""
    for case in (*grouped(), *sliding()):
        yield case
        yield dataclasses.replace(case, name=f"body_{case.name}", forms=(), half=True, half_forms=("static", "symbolic"), narrow=True)


def grouped():
    op = "GroupQueryAttention"
    attributes = {"num_heads": 4, "kv_num_heads": 2}
    angles = reals(32, 8)
    caches = [np.cos(angles), np.sin(angles)]
    opened = {**ALL, 3: (0, 2), 4: (0, 2), 5: (0,), 7: (0,), 8: (0,), 10: (0, 2, 3)}
    three = (True, True, True)

    def inputs(batch, rows, before, room, heads=4, kv=2, width=16, rotary=True, packed=False):
        before = np.array(before, np.int32)
        q, k, v = (reals(batch, rows, n * width, seed=s) for n, s in ((heads, 0), (kv, 1), (kv, 2)))
        if packed:
            q, k, v = np.concatenate([q, k, v], 2), None, None
        past = [None, None] if room is None else [reals(batch, kv, room, width, seed=s) for s in (3, 4)]
        for half in past if room else []:
            for sequence, used in enumerate(before):
                half[sequence, :, used:] = 0  # what the present has beyond its end is nobody's business
        total = np.array(before.max() + rows, np.int32)
        return [q, k, v, *past, before + rows - 1, total, *(caches if rotary else [])]

    def case(name, given, more=None, outputs=three, **rest):
        return Case(name, op, given, {**attributes, **(more or {})}, outputs, open_axes=opened, rtol=1e-3, **rest)

    turned = {"do_rotary": 1}
    for batch in (1, 2):
        nothing, four = [0] * batch, [4] * batch
        yield case(f"prompt{batch}", inputs(batch, 5, nothing, None, rotary=False))
        yield case(f"prompt_rotary{batch}", inputs(batch, 5, nothing, None), turned)
        yield case(f"prompt_empty{batch}", inputs(batch, 5, nothing, 0), turned)
        yield case(f"prompt_packed{batch}", inputs(batch, 5, nothing, 0, packed=True), turned)
        yield case(f"step{batch}", inputs(batch, 1, four, 4), turned, half=True)
        yield case(f"step_packed{batch}", inputs(batch, 1, four, 4, packed=True), turned)
        yield case(f"step_plain{batch}", inputs(batch, 1, four, 4, rotary=False))
        yield case(f"step_softcap{batch}", inputs(batch, 1, four, 4), {**turned, "softcap": 2.0, "scale": 0.7})
        yield case(f"step_window{batch}", inputs(batch, 1, [9] * batch, 9), {**turned, "local_window_size": 3})
        yield case(f"step_pairs{batch}", inputs(batch, 1, four, 4), {**turned, "rotary_interleaved": 1})
        yield case(f"prompt_window{batch}", inputs(batch, 6, nothing, None), {**turned, "local_window_size": 2})
        yield case(f"step_smooth{batch}", inputs(batch, 1, four, 4), {**turned, "smooth_softmax": 1})
        yield case(f"step_room{batch}", inputs(batch, 1, four, 12), turned)
        yield case(f"step_bias{batch}", [*inputs(batch, 1, four, 4), None, reals(batch, 1, 1, 5)], turned)
        yield case(f"step_sink{batch}", [*inputs(batch, 1, four, 4), None, None, reals(4)], turned)
    yield case("step_lengths", inputs(2, 1, [2, 4], 4), turned)
    yield case("rows_after", inputs(1, 3, [4], 4), turned)
    yield case("rows_after_window", inputs(1, 3, [6], 6), {**turned, "local_window_size": 4})
    yield case("one_kv_head", inputs(2, 1, [4, 4], 4, kv=1), {**turned, "kv_num_heads": 1})
    yield case("all_heads", inputs(2, 1, [4, 4], 4, kv=4), {**turned, "kv_num_heads": 4})
    positions = [*inputs(1, 2, [4], 4), np.array([[4, 5]], np.int64)]
    yield case("positions", positions, turned)

    def normal(q, k, v, *rest):
        """ONNX Runtime has norms on other devices alone."""
        *rest, q_weight, k_weight = rest
        given = []
        for rows, weight in ((q, q_weight), (k, k_weight)):
            by_head = rows.reshape(*rows.shape[:2], -1, 16).astype(np.float64)
            by_head = by_head / np.sqrt((by_head**2).mean(-1, keepdims=True) + 1e-3) * weight
            given.append(by_head.reshape(rows.shape).astype(np.float32))
        return tuple(expected_of(case("", [*given, v, *rest[:6]], turned)))

    for batch, rows, before in ((1, 5, 0), (2, 1, 4)):
        norms = [*inputs(batch, rows, [before] * batch, before), *[None] * 5, reals(16) + 1, reals(16, seed=1) + 1]
        yield case(f"norms{rows}", norms, {**turned, "qk_norm_epsilon": 1e-3}, expected=normal)


def sliding():
    """Caches of the window's size: what is beyond the resident rows of the present is nobody's business, and left out."""
    op, width, window = "GroupQueryAttention", 16, 4
    angles = reals(64, 8)

    def resident(positions, room):
        step = room - window + 1
        return positions - step * max(0, -(-(positions - room) // step))

    for name, batch, rows, before, room, sink in (
        ("prompt", 1, 3, [0], 4, False), ("prompt_long", 1, 11, [0], 4, False), ("prompts", 2, 9, [0, 0], 6, True),
        ("step_filling", 1, 1, [2], 4, True), ("step", 1, 1, [9], 4, True), ("step_slack", 2, 1, [7, 12], 7, False),
        ("rows_after", 1, 5, [9], 6, True), ("rows_after_many", 1, 9, [6], 5, False)):
        q, k, v = (reals(batch, rows, n * width, seed=s) for n, s in ((4, 0), (2, 1), (2, 2)))
        past = [reals(batch, 2, room, width, seed=s) for s in (3, 4)]
        for half in past:
            for sequence, used in enumerate(before):
                half[sequence, :, resident(used, room):] = 0
        ends = np.array(before, np.int32) + rows
        inputs = [q, k, v, *past, ends - 1, np.array(ends.max(), np.int32), np.cos(angles), np.sin(angles)]
        inputs += [None, None, reals(4)] if sink else []
        attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "local_window_size": window, "sliding_window_cache": 1}
        opened = {**ALL, 3: (0, 2), 4: (0, 2), 5: (0,), 7: (0,), 8: (0,)}
        made = Case(f"sliding_{name}", op, inputs, attributes, (True, True, True), open_axes=opened, rtol=1e-3)
        if any(resident(int(end), room) < room for end in ends):  # ONNX Runtime wants all outputs, the test the first
            both = made
            made = dataclasses.replace(both, outputs=(True,), expected=lambda *a, both=both: expected_of(both)[0])
        yield made


def cases():
    for family in (rotary, multi_head, merged, group_query):
        yield from family()
