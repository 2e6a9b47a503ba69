"""The phase of gpu_check that compares kernels which may begin while the one before them ends with kernels that may not."""

import figures
import networks
import numpy as np
from checks import SMALL_DECODER, TOLERANCES


# So that what changes with time meets both alike.
ORDER = ("auto", "off", "off", "auto")


def launches(work):
    """Chains of nodes with nothing to do, decoders and an encoder, captured, with each of both values of overlap_launches: the least of two
    measurements each. A kernel that did not wait for what it reads would show in the last run's results."""
    page = work.page
    page.section("Kernels that begin while the one before them ends (overlap_launches)",
                 ["network", "elements", "latency, ms", "off", "on the device, ms", "off", "captured", "the last run to the first", ""])
    runs = 5 if work.quick else 100
    for name, elements, path, feed, more in rows(work):
        found, why = {option: [] for option in ORDER}, ""
        for option in ORDER:
            made, said = figures.probe(work, path, feed, "fp32", runs, "--set", "capture=auto", "--set",
                                       f"provider.cuda.overlap_launches={option}", *more)
            found[option].append(made)
            why = why or said
        if why:
            page.result(False, name, elements, why, *[""] * 5)
            continue
        least = {option: {key: min((each[key] for each in all_of if each[key] is not None), default=None)
                          for key in ("latency_ms", "device_ms")} for option, all_of in found.items()}
        apart = [each["difference"] for all_of in found.values() for each in all_of]
        is_right = all(each is not None and each <= TOLERANCES["fp32"] for each in apart)
        cells = [figures.number(least[option], key, 4) for key in ("latency_ms", "device_ms") for option in ("auto", "off")]
        page.result(is_right, name, elements, *cells, figures.captured(found["auto"][0]), max(apart) if is_right else apart)
        page.values[f"{name} {elements}"] = least


def rows(work):
    """Name, elements, file, feeding model, and more words for the program; what is most asked for first."""
    path, feed = work.folder / "network.onnx", work.folder / "network_feed.onnx"
    sizes = {**SMALL_DECODER, "layers": 1} if work.quick else {}
    for dtype, bits in ((np.float16, 4), (np.float16, None), (np.float32, 4)):
        net = networks.decoder(path, dtype=dtype, bits=bits, **sizes)
        networks.feed(feed, net)
        yield f"decoder, weights of {bits} bits" if bits else "decoder", np.dtype(dtype).name, path, feed, ()
    for nodes in (1024, 64) if not work.quick else (64,):
        networks.feed(feed, networks.chain(path, nodes))
        yield f"chain of {nodes} nodes", "float32", path, feed, ("--set", "provider.cuda.fusion=false")
    networks.feed(feed, networks.bert_dyn(path, dtype=np.float16, **figures.QUICK_SIZES["bert_dyn"] if work.quick else {}))
    for batch in (1, 32) if not work.quick else (1,):
        yield f"bert_dyn, batch {batch}", "float16", path, feed, ("--dim", f"{networks.SYMBOL}={batch}")
