#!/usr/bin/env python3
"""core/ knows no device and computes no operator.

Names of kinds of devices and of vendors' libraries may stand in comments, not in code or strings;
vector intrinsics and functions that are an operator's arithmetic may not stand in core at all; those that copy past the caches
compute nothing. What
core needs of a provider it asks through plugin_api. The Python package (core/python) is not read: it translates the names
that programs written for ONNX Runtime give devices.
"""

import re

import source_tree

CXX = {".h", ".hpp", ".c", ".cpp", ".cc", ".inc"}

# Whole words, where an underscore or a capital also ends a word (`cpu_device`, `CpuDevice`, "cpu").
DEVICES = re.compile(
    r"(?<![A-Za-z0-9])(?:cpu|gpu|npu|tpu|cuda|hip|rocm|open ?cl|vulkan|metal|sycl|nvidia|intel|amd|avx2?|"
    r"avx512\w*|sse\d?|neon|one ?dnn|dnnl|cu ?blas\w*|cu ?dnn\w*|nvrtc|pocl|tensor ?rt|open ?vino|mi ?graph ?x|mi ?open|"
    r"direct ?ml|core ?ml|qnn|xnnpack|nnapi|web ?gpu)(?![a-z0-9])", re.I)
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

FUNCTIONS = (r"(?:exp2?|expm1|log2|log10|log1p|tanh|sinh|cosh|sin|cos|tan|asin|acos|atan2?|erfc?|tgamma|lgamma|pow|sqrt|cbrt|"
             r"hypot|fma)")
ARITHMETIC = re.compile(
    r"\b(?:_mm\d*_(?!(?:pause|loadu_si128|stream_si128|sfence)\b)\w+|__builtin_ia32_(?!(?:pause|stmxcsr|ldmxcsr)\b)\w+|hwy::\w+|"
    r"std::(?:inner_product|transform_reduce|log[fl]?|" + FUNCTIONS + r"[fl]?))\b|"
    # As C's, too; `log(` alone may be a function that writes to the log.
    r"(?<![\w.>:~])(?:::)?" + FUNCTIONS + r"[fl]?(?=\s*\()|(?<![\w.>:])(?:::log[fl]?|log[fl])(?=\s*\()")


def check(root):
    for path in source_tree.files(root, CXX, "core"):
        code = source_tree.without_comments_and_strings(source_tree.text_of(path), keep_strings=True)
        for number, line in enumerate(code.splitlines(), 1):
            words = line.replace("_", " ")
            device = DEVICES.search(words) or DEVICES.search(CAMEL.sub(" ", words))
            if device:
                yield path, number, f"names a device or its library: {device.group()!r}"
            arithmetic = ARITHMETIC.search(line)
            if arithmetic:
                yield path, number, f"computes as a kernel does: {arithmetic.group()!r}"


GOOD = {"core/base/a.cpp": '// as the cpu does\nint scale = 2;\nconst char* kHint = "hipster camd";\n'
                           "void copy() { _mm_stream_si128(to, _mm_loadu_si128(from)); }\n"
                           "int vacuum(int metallic) { __builtin_ia32_pause(); log(x); out.log(x); regexp(x); m.pow(2); }\n",
        "core/python/a.py": 'names = ["CUDAExecutionProvider"]\n',
        "plugins/cpu/a.cpp": 'const char* kName = "cpu";\n'}
BAD = [
    ({"core/base/b.cpp": 'bool b = name == "cpu";\n'}, "'cpu'"),
    ({"core/base/b.cpp": "void open_cuda_device();\n"}, "'cuda'"),
    ({"core/base/b.cpp": "class OpenGpuDevice;\n"}, "'Gpu'"),
    ({"core/base/b.hpp": 'if (provider == "OpenCL") {}\n'}, "'Open"),
    ({"core/base/b.cpp": 'bool b = name == "CUDAExecutionProvider";\n'}, "'CUDA'"),
    ({"core/base/b.cpp": "void openCLDevice();\n"}, "'open CL'"),
    ({"core/base/b.cpp": 'bool b = name == "tensorrt";\n'}, "'tensorrt'"),
    ({"core/base/b.cpp": "class OpenVINOProvider;\n"}, "'Open VINO'"),
    ({"core/plan/b.cpp": "y[i] = std::tanh(x[i]);\n"}, "std::tanh"),
    ({"core/plan/b.cpp": "y[i] = std::log(x[i]);\n"}, "std::log"),
    ({"core/plan/b.cpp": "y[i] = exp(x[i]);\n"}, "'exp'"),
    ({"core/plan/b.cpp": "y[i] = 1 / sqrt (x[i]);\n"}, "'sqrt'"),
    ({"core/plan/b.cpp": "y[i] = ::expf(x[i]);\n"}, "'::expf'"),
    ({"core/plan/b.cpp": "y[i] = logf(x[i]);\n"}, "'logf'"),
    ({"core/plan/b.cpp": "__m256 v = _mm256_add_ps(a, b);\n"}, "_mm256_add_ps"),
]
if __name__ == "__main__":
    source_tree.main(check, __doc__, GOOD, BAD)
