#!/usr/bin/env python3
"""A header includes what it names of the standard library; what another header happens to bring may go with it.

Names that come with nearly every header (std::size_t, std::move, std::pair) are left out. A header without #pragma once is part of
one other file, and has that file's includes.
"""

import re

import source_tree

FOLDERS = ("plugin_api", "core", "plugins", "custom_ops", "tools", "tests")
LEFT_OUT = "frozen"
NAMES = {
    "algorithm": "all_of any_of none_of copy copy_n count_if fill fill_n find_if max_element min_element nth_element partial_sort "
                 "reverse rotate sort stable_sort unique lower_bound upper_bound binary_search clamp transform",
    "any": "any",
    "array": "array",
    "atomic": "atomic atomic_flag atomic_thread_fence memory_order_relaxed memory_order_acquire memory_order_release",
    "bit": "bit_cast countl_zero countr_zero popcount bit_ceil bit_width has_single_bit",
    "bitset": "bitset",
    "charconv": "from_chars to_chars",
    "chrono": "chrono",
    "cmath": "abs ceil floor isnan isinf isfinite lround nearbyint sqrt exp log pow tanh fma",
    "complex": "complex",
    "condition_variable": "condition_variable condition_variable_any",
    "cstdint": "int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t intptr_t",
    "cstring": "memcpy memset memcmp memmove strlen strcmp",
    "deque": "deque",
    "exception": "exception exception_ptr current_exception rethrow_exception",
    "filesystem": "filesystem",
    "fstream": "ifstream ofstream fstream",
    "functional": "function hash less greater plus multiplies reference_wrapper",
    "future": "future promise async",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": "unique_ptr shared_ptr weak_ptr make_unique make_shared enable_shared_from_this",
    "mutex": "mutex recursive_mutex lock_guard unique_lock scoped_lock once_flag call_once",
    "numeric": "accumulate iota reduce inclusive_scan partial_sum",
    "optional": "optional nullopt make_optional",
    "queue": "queue priority_queue",
    "random": "mt19937 mt19937_64 uniform_int_distribution uniform_real_distribution normal_distribution",
    "set": "set multiset",
    "shared_mutex": "shared_mutex shared_lock",
    "span": "span",
    "sstream": "ostringstream istringstream stringstream",
    "stdexcept": "runtime_error logic_error invalid_argument out_of_range",
    "string": "string to_string stoi stoll getline",
    "string_view": "string_view",
    "system_error": "error_code system_error errc",
    "thread": "thread this_thread jthread",
    "tuple": "tuple tie make_tuple apply",
    "typeinfo": "type_info",
    "unordered_map": "unordered_map unordered_multimap",
    "unordered_set": "unordered_set",
    "variant": "variant visit get_if holds_alternative monostate",
    "vector": "vector",
}
HEADER_OF = {name: header for header, names in NAMES.items() for name in names.split()}
NAMED = re.compile(r"\bstd::(\w+)")
INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.M)
# Where another header has the name, too.
ALSO = {"string_view": {"string"}, "abs": {"cstdlib"}}


def check(root):
    for path in source_tree.files(root, {".hpp"}, *FOLDERS):
        text = source_tree.text_of(path)
        if "#pragma once" not in text or any(LEFT_OUT in part for part in path.relative_to(root).parts):
            continue
        included = set(INCLUDE.findall(text))
        code = source_tree.without_comments_and_strings(text)
        missing = {}
        for found in NAMED.finditer(code):
            header = HEADER_OF.get(found.group(1))
            if header and header not in included and not included & ALSO.get(found.group(1), set()):
                missing.setdefault(header, found)
        for header, found in sorted(missing.items()):
            yield path, code.count("\n", 0, found.start()) + 1, f"{found.group()} without #include <{header}>"


ONCE = "#pragma once\n"
GOOD = {
    "core/a.hpp": ONCE + "#include <string>\n#include <vector>\nstd::vector<std::string_view> a(std::size_t n);\n",
    "core/b.hpp": ONCE + '// std::map\nconst char* b = "std::map"; // std::set\nauto c = std::move(d);\n',
    "core/part.hpp": "std::map<int, int> part_of_another_file;\n",
    "core/c.cpp": "std::map<int, int> sources_are_compiled_alone;\n",
}
BAD = [
    ({"core/x.hpp": ONCE + "#include <string>\nstd::map<int, std::string> a;\nstd::map<int, int> b;\n"}, "std::map without"),
    ({"plugins/cpu/x.hpp": ONCE + "std::shared_ptr<int> a;\n"}, "#include <memory>"),
    ({"tests/x.hpp": ONCE + "#include <map>\nstd::int64_t a;\n"}, "#include <cstdint>"),
]
if __name__ == "__main__":
    source_tree.main(check, __doc__, GOOD, BAD)
