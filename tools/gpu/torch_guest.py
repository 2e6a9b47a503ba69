"""Runs of the CUDA provider on a stream of PyTorch's, on PyTorch's tensors, with PyTorch's work before and after them and nobody
waiting in between: prints a line of JSON for each thing that was tried."""

import json
import sys

import backplane
import networks
import numpy as np
import torch
from peer import Peer

RUNS = 20
TOLERANCE = 1e-4  # relative: float32, in another order


def session_on(path, stream, **options):
    made = backplane.SessionOptions()
    made.set("fallback", "forbid")
    for key, value in options.items():
        made.set(key, value)
    return backplane.InferenceSession(path, made, providers=[("cuda", {"user_stream": str(stream.cuda_stream)})])


def bound(session, net, x, y):
    binding = session.io_binding()
    binding.bind_input(net.inputs[0][0], "cuda", 0, np.float32, tuple(x.shape), x.data_ptr())
    binding.bind_output(session.get_outputs()[0].name, "cuda", 0, np.float32, tuple(y.shape), y.data_ptr())
    return binding


def say(what, passed, said):
    print(json.dumps({"what": what, "passed": bool(passed), "said": str(said)[:300]}), flush=True)


def runs_in_order(path, net, capture):
    """Each run reads what PyTorch has just written, and is read before the next: by the stream's order alone."""
    torch.backends.cuda.matmul.allow_tf32 = False
    stream = torch.cuda.Stream()
    session = session_on(path, stream, capture=capture)
    shape = net.inputs[0][1]
    base = torch.from_numpy(np.random.default_rng(7).standard_normal(shape).astype(np.float32))
    later = backplane.RunOptions()
    later.synchronize = False
    with torch.cuda.stream(stream):
        there = base.cuda()
        x, kept = torch.empty_like(there), []
        y = torch.empty((shape[0], 10), device="cuda")
        binding = bound(session, net, x, y)
        for at in range(RUNS):
            torch.mul(there, 1.0 + at, out=x)
            binding.run(later)
            kept.append(y.clone())
    torch.cuda.synchronize()
    peer = Peer(torch, net, device="cpu")
    apart = 0.0
    for at, got in enumerate(kept):
        want = peer.forward(base * (1.0 + at))
        apart = max(apart, float((got.cpu() - want).abs().max() / want.abs().max()))
    say(f"{RUNS} runs between PyTorch's work, capture={capture}: largest difference to PyTorch on the processor", apart <= TOLERANCE,
        f"{apart:.2e}")


def refuses_in_a_capture(path, net):
    """A program that captures its stream itself is told so, and the session can be used afterwards."""
    stream = torch.cuda.Stream()
    session = session_on(path, stream)
    x, y = torch.ones(net.inputs[0][1], device="cuda"), torch.empty((net.inputs[0][1][0], 10), device="cuda")
    torch.cuda.synchronize()
    binding = bound(session, net, x, y)
    binding.run()
    before, said = y.clone(), "it was not refused"
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=stream):
            binding.run()
    except backplane.Error as error:
        said = str(error)
    except Exception as error:  # PyTorch's own word for a capture that was spoiled
        said = f"PyTorch: {error}"
    y.zero_()
    torch.cuda.synchronize()
    binding.run()
    torch.cuda.synchronize()
    is_right = bool(torch.equal(before, y))
    say("a run while PyTorch captures the stream", "user_stream" in said and is_right,
        f"{said}; afterwards {'right' if is_right else 'wrong'}")


def main(path):
    net = networks.perceptron(path, batch=3)
    for what, *more in ((runs_in_order, "auto"), (runs_in_order, "off"), (refuses_in_a_capture,)):
        try:
            what(path, net, *more)
        except Exception as error:  # the others may well work
            say("torch_guest.py", False, f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(sys.argv[1])
