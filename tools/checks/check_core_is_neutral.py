#!/usr/bin/env python3
"""core/ knows no device and computes no operator.

Names of kinds of devices and of vendors' libraries may stand in comments, not in code or strings;
vector intrinsics and functions that are an operator's arithmetic may not stand in core at all. What
core needs of a provider it asks through plugin_api.
"""

import re

import source_tree

CXX = {".h", ".hpp", ".c", ".cpp", ".cc", ".inc"}

# Whole words, where an underscore or a capital also ends a word (`cpu_device`, `CpuDevice`, "cpu").
DEVICES = re.compile(
    r"(?<![A-Za-z0-9])(?:cpu|gpu|npu|tpu|cuda|hip|rocm|opencl|vulkan|metal|sycl|nvidia|intel|amd|avx2?|"
    r"avx512\w*|sse\d?|neon|onednn|dnnl|cublas\w*|cudnn\w*|nvrtc|pocl)(?![a-z0-9])", re.I)
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

ARITHMETIC = re.compile(
    r"\b(?:_mm\d*_(?!pause\b)\w+|__builtin_ia32_(?!pause\b)\w+|hwy::\w+|"
    r"std::(?:exp2?|expm1|log2|log10|log1p|tanh|sinh|cosh|sin|cos|tan|asin|acos|atan2?|erfc?|tgamma|"
    r"lgamma|pow|sqrt|cbrt|hypot|fma|inner_product|transform_reduce))\b\s*\(?")


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
                yield path, number, f"computes as a kernel does: {arithmetic.group().strip('( ')!r}"


GOOD = {"core/base/a.cpp": '// as the cpu does\nint scale = 2;\nconst char* kHint = "hipster camd";\n'
                           "int vacuum(int metallic) { __builtin_ia32_pause(); }\n",
        "plugins/cpu/a.cpp": 'const char* kName = "cpu";\n'}
BAD = [
    ({"core/base/b.cpp": 'bool b = name == "cpu";\n'}, "'cpu'"),
    ({"core/base/b.cpp": "void open_cuda_device();\n"}, "'cuda'"),
    ({"core/base/b.cpp": "class OpenGpuDevice;\n"}, "'Gpu'"),
    ({"core/base/b.hpp": 'if (provider == "OpenCL") {}\n'}, "'Open"),
    ({"core/plan/b.cpp": "y[i] = std::tanh(x[i]);\n"}, "std::tanh"),
    ({"core/plan/b.cpp": "__m256 v = _mm256_add_ps(a, b);\n"}, "_mm256_add_ps"),
]
if __name__ == "__main__":
    source_tree.main(check, __doc__, GOOD, BAD)
