"""What ONNX Runtime's names of providers, their options and entries of a session's configuration mean here."""

from __future__ import annotations

import sys
import warnings
from typing import Any, Dict, Iterable, List, Tuple

# Its sessions go on without a provider that is not there, and warn: so does '?'.
OF_ONNX_RUNTIME: Dict[str, str] = {"CPUExecutionProvider": "cpu"}
OF_ONNX_RUNTIME.update({f"{name}ExecutionProvider": f"{name.lower()}?" for name in (
    "CUDA", "Tensorrt", "NvTensorRTRTX", "ROCM", "MIGraphX", "OpenVINO", "Dnnl", "Dml", "CoreML", "QNN", "Xnnpack", "Nnapi",
    "VitisAI", "VSINPU", "Rknpu", "SNPE", "CANN", "ACL", "ArmNN", "Tvm", "WebGpu", "WebNN", "Js", "Azure")})

# Of how its providers take and keep memory; here sessions do, see "arena" and "memory_limit".
_OF_ARENAS = {"arena_extend_strategy", "use_arena", "initial_chunk_size_bytes", "max_dead_bytes_per_chunk",
              "initial_growth_chunk_size_bytes", "max_power_of_two_extend_bytes"}
_OPTIONS_WITHOUT_MEANING: Dict[str, Iterable[str]] = {
    "CPUExecutionProvider": _OF_ARENAS | {"max_mem"},
    "CUDAExecutionProvider": _OF_ARENAS | {
        "cudnn_conv_algo_search", "cudnn_conv_use_max_workspace", "cudnn_conv1d_pad_to_nc1d", "do_copy_in_default_stream",
        "enable_cuda_graph", "tunable_op_enable", "tunable_op_tuning_enable", "tunable_op_max_tuning_duration_ms",
        "enable_skip_layer_norm_strict_mode", "prefer_nhwc", "use_ep_level_unified_stream", "fuse_conv_bias", "use_tf32"}}

# Entries that are ONNX Runtime's and change results or files there; with such values they do nothing here, and why.
_ENTRIES_WITHOUT_MEANING = {
    "session.disable_quant_qdq": ("1", 'see the option "disabled_passes"'),
    "session.optimized_model_external_initializers_file_name": ("", "weights are saved within the optimized model's file"),
    "session.save_external_prepacked_constant_initializers": ("1", "see InferenceSession.save_plan"),
    "session.collect_node_memory_stats_to_file": ("", "see InferenceSession.memory()"),
    "session.node_partition_config_file": ("", "see SessionOptions.place"),
    "session.layer_assignment_settings": ("", "see SessionOptions.place"),
    "optimization.disable_specified_optimizers": ("", 'see the option "disabled_passes"'),
    "optimization.enable_gelu_approximation": ("1", "Gelu is computed as it is"),
    "ep.context_enable": ("1", "see InferenceSession.save_plan")}

NO_CPU = "session.disable_cpu_ep_fallback"
# Entries that set an option, and what their words are there.
OPTION_OF_ENTRY: Dict[str, Tuple[str, Dict[str, str]]] = {
    "session.model_external_initializers_file_folder_path": ("external_data", {}),
    "session.set_denormal_as_zero": ("denormals_as_zero", {"0": "false", "1": "true"})}
FORMATS = ("session.save_model_format", "session.load_model_format")


def _warn(message: str) -> None:
    """Of the line that called the package."""
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_globals.get("__package__") == __package__:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def warn_of_entry(key: str, value: str) -> None:
    """Warns where ONNX Runtime would do what no session does here."""
    only, why = _ENTRIES_WITHOUT_MEANING.get(key, (None, ""))
    if only is not None and value and only in ("", value):
        _warn(f"the session's configuration entry '{key}' is kept and does nothing: {why}")


def options_with_meaning(provider: str, options: Dict[str, Any]) -> Dict[str, Any]:
    """Without those of ONNX Runtime's provider that say nothing here; warns of them."""
    idle = [name for name in options if name in _OPTIONS_WITHOUT_MEANING.get(provider, ())]
    if idle:
        _warn(f"options of {provider} that do nothing here: {', '.join(idle)}")
    return {name: value for name, value in options.items() if name not in idle}


def their_name(ours: str) -> str:
    """ONNX Runtime's name for a provider of ours; ours where it has none."""
    return next((name for name, word in OF_ONNX_RUNTIME.items() if word.rstrip("?") == ours), ours)


def optional_of(names: Iterable[str]) -> List[str]:
    """Of names that a session was given, ONNX Runtime's of providers that may be missing."""
    return [name for name in names if OF_ONNX_RUNTIME.get(name, "").endswith("?")]


def warn_of_absent(optional: Iterable[str], there: Iterable[str]) -> None:
    """Warns of those that have no device here; `there` are our names."""
    absent = [name for name in optional if OF_ONNX_RUNTIME[name].rstrip("?") not in there]
    if absent:
        _warn(f"the session goes on without {', '.join(absent)}: not here, or without a device; there are {', '.join(there)}")
