#!/usr/bin/env python3
"""Export networks of torchvision, timm and transformers as ONNX models, with random weights and inputs.

  export_models.py OUT [NAME ...] [--exporter dynamo|torchscript]

OUT gets NAME.onnx and NAME.inputs/INPUT.npy for every network of NETWORKS below, or for those named. Nothing is
downloaded: shapes and operators are a trained model's, numbers are from a fixed seed. PyTorch writes other graphs with
either exporter; both are what users have. Needs: torch, torchvision, timm, transformers, onnxscript (PyPI).
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import onnx
import torch

TOKENS = 1000
TIMEOUT_SECONDS = 300


class Outputs(torch.nn.Module):
    """A network with several named outputs, as a function of tensors that gives one tuple."""

    def __init__(self, network, inputs, outputs, **options):
        super().__init__()
        self.network, self.inputs, self.outputs, self.options = network, inputs, outputs, options

    def forward(self, *tensors):
        result = self.network(**dict(zip(self.inputs, tensors)), **self.options)
        return tuple(result[name] for name in self.outputs)


def picture(size, batch=1):
    return torch.rand(batch, 3, size, size)


def tokens(length, batch=1):
    return torch.randint(1, TOKENS, (batch, length))


def vision(name, size=224):
    import torchvision

    return torchvision.models.get_model(name, weights=None), (picture(size),)


def segmentation(name, size=256):
    import torchvision

    network = torchvision.models.get_model(name, weights=None, weights_backbone=None)
    return Outputs(network, ["x"], ["out"]), (picture(size),)


def detection(name, size=320):
    import torchvision

    network = torchvision.models.get_model(name, weights=None, weights_backbone=None)
    return network, ([picture(size)[0]],)


def timm_network(name, size=224):
    import timm

    return timm.create_model(name, pretrained=False), (picture(size),)


def sizes(**more):
    return dict(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
                vocab_size=TOKENS, **more)


def encoder(name, **more):
    import transformers

    config = getattr(transformers, name + "Config")(**sizes(**more))
    network = getattr(transformers, name + "Model")(config)
    mask = torch.ones(1, 64, dtype=torch.long)
    return (Outputs(network, ["input_ids", "attention_mask"], ["last_hidden_state"]),
            (tokens(64), mask))


def decoder(name, **config):
    import transformers

    kind = name + ("LMHeadModel" if name == "GPT2" else "ForCausalLM")
    network = getattr(transformers, kind)(getattr(transformers, name + "Config")(**config))
    return Outputs(network, ["input_ids"], ["logits"], use_cache=False), (tokens(64),)


def gpt2():
    return decoder("GPT2", n_embd=256, n_layer=4, n_head=4, vocab_size=TOKENS)


def grouped_heads(name, **more):
    return decoder(name, **sizes(num_key_value_heads=2, max_position_embeddings=512, **more))


def t5():
    import transformers

    config = transformers.T5Config(d_model=256, d_kv=64, d_ff=1024, num_layers=3, num_heads=4, vocab_size=TOKENS)
    network = transformers.T5ForConditionalGeneration(config)
    return (Outputs(network, ["input_ids", "decoder_input_ids"], ["logits"], use_cache=False),
            (tokens(64), tokens(16)))


def whisper():
    import transformers

    config = transformers.WhisperConfig(
        d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6, decoder_attention_heads=6,
        encoder_ffn_dim=1536, decoder_ffn_dim=1536, vocab_size=TOKENS, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None)
    network = transformers.WhisperModel(config)
    return (Outputs(network, ["input_features", "decoder_input_ids"], ["last_hidden_state"], use_cache=False),
            (torch.rand(1, 80, 3000), tokens(8)))


def wav2vec2():
    import transformers

    config = transformers.Wav2Vec2Config(**{**sizes(), "vocab_size": 32})
    return (Outputs(transformers.Wav2Vec2Model(config), ["input_values"], ["last_hidden_state"]),
            (torch.rand(1, 16000),))


def segformer():
    import transformers

    network = transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig())
    return Outputs(network, ["pixel_values"], ["logits"]), (picture(256),)


class Recurrent(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embedding = torch.nn.Embedding(TOKENS, 128)
        self.layers = kind(128, 256, 2, batch_first=True, bidirectional=True)
        self.head = torch.nn.Linear(512, 50)

    def forward(self, ids):
        return self.head(self.layers(self.embedding(ids))[0])


class UNet(torch.nn.Module):
    def __init__(self, widths=(32, 64, 128, 256)):
        super().__init__()
        below = list(zip(widths, widths[1:]))
        self.down = torch.nn.ModuleList([self.block(3, widths[0])] + [self.block(a, b) for a, b in below])
        self.up = torch.nn.ModuleList([torch.nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(below)])
        self.merge = torch.nn.ModuleList([self.block(2 * a, a) for a, _ in reversed(below)])
        self.head = torch.nn.Conv2d(widths[0], 2, 1)

    @staticmethod
    def block(inputs, outputs):
        layers = []
        for channels in (inputs, outputs):
            layers += [torch.nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
                       torch.nn.BatchNorm2d(outputs), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers)

    def forward(self, x):
        kept = []
        for i, block in enumerate(self.down):
            x = block(torch.nn.functional.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for up, merge, beside in zip(self.up, self.merge, reversed(kept[:-1])):
            x = merge(torch.cat([beside, up(x)], 1))
        return self.head(x)


def recurrent(kind):
    return Recurrent(kind), (tokens(50),)


NETWORKS = {
    **{name: (lambda name=name: vision(name)) for name in (
        "efficientnet_b0", "mobilenet_v3_large", "convnext_tiny", "swin_t", "swin_v2_t", "vit_b_16",
        "regnet_y_400mf", "maxvit_t", "googlenet")},
    **{name: (lambda name=name: segmentation(name)) for name in (
        "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")},
    **{name: (lambda name=name: detection(name)) for name in (
        "ssdlite320_mobilenet_v3_large", "fasterrcnn_mobilenet_v3_large_320_fpn")},
    **{name: (lambda name=name, size=size: timm_network(name, size)) for name, size in (
        ("mobilevit_s", 256), ("mixer_s16_224", 224), ("poolformer_s12", 224), ("edgenext_small", 256),
        ("efficientformer_l1", 224), ("ghostnet_100", 224), ("repvgg_a0", 224), ("hrnet_w18_small", 224),
        ("resnest26d", 224), ("levit_128", 224), ("fastvit_t8", 256), ("mobilenetv4_conv_small", 224),
        ("coatnet_0_rw_224", 224), ("xcit_tiny_12_p16_224", 224), ("nfnet_l0", 224))},
    "bert": lambda: encoder("Bert"),
    "roberta": lambda: encoder("Roberta"),
    "albert": lambda: encoder("Albert"),
    "deberta": lambda: encoder("DebertaV2", relative_attention=True, pos_att_type=["p2c", "c2p"],
                               position_buckets=32),
    "gpt2": gpt2,
    "llama": lambda: grouped_heads("Llama"),
    "qwen2": lambda: grouped_heads("Qwen2"),
    "gemma2": lambda: grouped_heads("Gemma2", head_dim=64),
    "t5": t5,
    "whisper": whisper,
    "wav2vec2": wav2vec2,
    "segformer": segformer,
    "lstm": lambda: recurrent(torch.nn.LSTM),
    "gru": lambda: recurrent(torch.nn.GRU),
    "unet": lambda: (UNet(), (picture(256),)),
}


def fill_zeros(network):
    """Some parameters start as zeros, whole heads among them: outputs would show nothing of what is before."""
    with torch.no_grad():
        for parameter in network.parameters():
            if not parameter.count_nonzero():
                parameter.normal_(std=0.02)


def export(name, out, exporter):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    network, tensors = NETWORKS[name]()
    fill_zeros(network)
    path = out / f"{name}.onnx"
    if exporter == "torchscript":
        options = {"dynamo": False, "opset_version": 17}
    else:
        options = {"dynamo": True, "external_data": False, "verbose": False}
    with torch.no_grad():
        torch.onnx.export(network.eval(), tensors, str(path), **options)
    graph = onnx.load(path).graph
    constants = {value.name for value in graph.initializer}
    folder = out / f"{name}.inputs"
    folder.mkdir(exist_ok=True)
    flat = [tensor for group in tensors for tensor in (group if isinstance(group, list) else [group])]
    inputs = [value.name for value in graph.input if value.name not in constants]
    for value, tensor in zip(inputs, flat):
        np.save(folder / (re.sub(r"[^A-Za-z0-9_.-]", "_", value) + ".npy"), tensor.numpy())
    print(f"{name}: {len(graph.node)} nodes", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--exporter", choices=("dynamo", "torchscript"), default="dynamo")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NETWORKS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(NETWORKS)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    if len(arguments.names) == 1:
        return export(arguments.names[0], arguments.out, arguments.exporter)
    failed = 0  # a process each: an exporter that fails or hangs costs one network
    for name in arguments.names or NETWORKS:
        command = [sys.executable, __file__, str(arguments.out), name, "--exporter", arguments.exporter]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1] if done.returncode else ""
        except subprocess.TimeoutExpired:
            reason = f"no end after {TIMEOUT_SECONDS} s"
        failed += bool(reason)
        print(f"{name}: not exported: {reason}" if reason else done.stdout.strip().splitlines()[-1], flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
