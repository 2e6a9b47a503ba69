#!/usr/bin/env python3
"""The layout of the plugin ABI, version 1: offsets and sizes of every field, and the numbers of every constant.

    make_layout.py                  prints the layout of today's headers, in the form of layout_v1.inc
    make_layout.py --write          adds to layout_v1.inc what is new; refuses when something there changed
    make_layout.py --check          fails unless layout_v1.inc equals today's headers
    make_layout.py --self-test      proves on changed copies of the headers that the check can fail

The layout is that of the compiler `cc` for 64-bit targets. What stands in layout_v1.inc is for ever: structs that
begin with BP_HEAD grow at their end and change in nothing else, the others never change.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE / "layout_v1.inc"
INCLUDE = HERE.parents[1] / "plugin_api/include"
FROZEN = HERE.parents[1] / "tests/fixtures/frozen_v1/include"
MANUAL = HERE.parents[1] / "plugin_api/README.md"
TITLE = "/* Made by make_layout.py from plugin_api/. Lines are only ever added: see there. */\n"


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


def headers(include):
    """plugin_api.h, what it includes, and the optional interfaces, which it does not."""
    return [include / "backplane/plugin_api.h", *sorted((include / "backplane/plugin_api").rglob("*.h"))]


def structs(include):
    """[(struct, [field declarations])] of all structs with a body, comments and line breaks removed."""
    found = []
    for header in headers(include):
        text = without_comments(header.read_text(encoding="utf-8"))
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\n\} \1;", text, re.S):
            found.append((name, [" ".join(line.split()) for line in body.split(";") if line.strip()]))
    return found


def field_names(declaration):
    if declaration == "BP_HEAD":
        return ["struct_size", "struct_flags"]
    pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", declaration)
    return [pointer.group(1) if pointer else re.search(r"(\w+)(?:\[\d+\])?$", declaration).group(1)]


def constants(include):
    """Numbers and strings that the headers define, function-like macros and BP_HEAD left out."""
    for header in headers(include):
        text = without_comments(header.read_text(encoding="utf-8"))
        for name, value in re.findall(r"^#define (BP_\w+)[ \t]+(\S[^\n]*)$", text, re.M):
            if not value.endswith("\\") and name != "BP_ABI_MINOR":  # which grows with the rest
                yield name, value.strip().startswith('"')


def layout(include):
    """The lines of the table for the headers below `include`."""
    lines = []
    for name, fields in structs(include):
        frozen = int("BP_HEAD" not in fields)
        lines.append(f'  printf("BP_LAYOUT_STRUCT({name}, %zu, {frozen})\\n", sizeof({name}));')
        for field in (one for declaration in fields for one in field_names(declaration)):
            lines.append(f'  printf("BP_LAYOUT_FIELD({name}, {field}, %zu, %zu)\\n", offsetof({name}, {field}), '
                         f"sizeof((({name}*)0)->{field}));")
    for name, is_text in constants(include):
        if is_text:
            lines.append(f'  printf("BP_LAYOUT_TEXT({name}, \\"%s\\")\\n", {name});')
        else:
            lines.append(f'  printf("BP_LAYOUT_CONSTANT({name}, %lld)\\n", (long long)({name}));')
    program = "#include <stdio.h>\n"
    program += "".join(f'#include "{header.relative_to(include).as_posix()}"\n' for header in headers(include))
    program += "int main(void) {\n" + "\n".join(lines) + "\n  return 0;\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        binary = pathlib.Path(folder) / "layout"
        subprocess.run(["cc", "-std=c99", "-x", "c", "-I", str(include), "-o", str(binary), "-"], input=program,
                       text=True, check=True)
        made = subprocess.run([str(binary)], capture_output=True, text=True, check=True)
    return made.stdout.splitlines()


def entries(lines):
    """{what: value}, for lines of the table."""
    table = {}
    for line in lines:
        kind, arguments = re.match(r"BP_LAYOUT_(\w+)\((.*)\)$", line).groups()
        parts = [part.strip() for part in arguments.split(",", 2 if kind == "FIELD" else 1)]
        key = (kind, *parts[: 2 if kind == "FIELD" else 1])
        table[key] = parts[-1]
    return table


def differences(old, new):
    """What in `new` breaks the promise of `old`: everything there stays, but growing structs may get larger."""
    old_table, new_table = entries(old), entries(new)
    for key, value in old_table.items():
        name = " ".join(key[1:])
        if key not in new_table:
            yield f"{name} is gone"
        elif key[0] == "STRUCT":
            (old_size, frozen), (new_size, now_frozen) = (text.split(", ") for text in (value, new_table[key]))
            if frozen != now_frozen or int(new_size) < int(old_size) or (frozen == "1" and new_size != old_size):
                yield f"struct {name} was ({value}), is ({new_table[key]})"
        elif new_table[key] != value:
            yield f"{name} was {value}, is {new_table[key]}"
    for key, value in new_table.items():
        # A new field lies past the end of the struct as it was.
        if key[0] == "FIELD" and key not in old_table and ("STRUCT", key[1]) in old_table:
            size = int(old_table[("STRUCT", key[1])].split(",")[0])
            if int(value.split(",")[0]) < size:
                yield f"the new field {key[1]} {key[2]} lies inside the struct as it was"


def without_parameter_names(declaration):
    """A field as a type alone, so that renaming a parameter is no change."""
    head, _, parameters = declaration.partition(")(") if ")(" in declaration else (declaration, "", "")
    types = [re.sub(r"(?<=[\w*&\s])\b(\w+)$", "", part.strip()) if re.search(r"[\s*]\w+$", part.strip()) else part
             for part in parameters.rstrip(")").split(",")]
    return re.sub(r"\s+", "", head + ")(" + ",".join(types))


def signature_changes(frozen, today):
    """Fields of the frozen headers whose type is another today."""
    now = dict(structs(today))
    for name, fields in structs(frozen):
        for place, field in enumerate(fields):
            current = now.get(name, [])[place : place + 1]
            if not current or without_parameter_names(current[0]) != without_parameter_names(field):
                yield f"{name}: '{field}' of the frozen headers is now '{''.join(current)}'"


def wrong_labels(frozen, today, manual):
    """`Since:` of a version that is not there yet or has no row in the manual's history; of the frozen one, where the header
    or the function came later; interfaces that the history does not name."""
    minor = int(re.search(r"#define BP_ABI_MINOR (\d+)", (today / "backplane/plugin_api/base.h").read_text(encoding="utf-8")).group(1))
    history = dict.fromkeys(re.findall(r"^\| 1\.(\d+) \|", manual, re.M))
    if str(minor) not in history:
        yield f"the history has no row for 1.{minor}"
    old_fields = {(name, *field_names(field)) for name, fields in structs(frozen) for field in fields}
    bodies = {}
    for header in headers(today):
        for name, body in re.findall(r"^typedef struct (\w+) \{(.*?)\n\} \1;", header.read_text(encoding="utf-8"), re.S | re.M):
            bodies[name] = body
    for name, fields in structs(today):
        for field in fields:
            label = since(bodies[name], field_names(field)[-1])
            if label == "1.0" and (name, *field_names(field)) not in old_fields:
                yield f"{name}.{field_names(field)[-1]} says Since: 1.0, and came later"
    for header in headers(today):
        text = header.read_text(encoding="utf-8")
        for label in re.findall(r"Since: 1\.(\d+)", text):
            if int(label) > minor or label not in history:
                yield f"{header.name} says Since: 1.{label}, of which the history knows nothing"
        for interface in re.findall(r'#define BP_\w+_INTERFACE "([\w.]+)"', text):
            if f"`{interface}`" not in manual.partition("## History")[2]:
                yield f"the history does not name {interface}"


def since(body, field):
    """The version in the comment above a function of a struct with this body; None where it has none."""
    place = re.search(r"\(\*" + field + r"\)", body)
    labels = re.findall(r"Since:\s*(?:\*\s*)?([\d.]+)", body[: place.start()]) if place else []
    return labels[-1] if labels else None


def read_table():
    return [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("BP_LAYOUT")]


def write():
    new = layout(INCLUDE)
    broken = list(differences(read_table(), new)) if TABLE.exists() else []
    if not broken:
        TABLE.write_text(TITLE + "\n".join(new) + "\n", encoding="utf-8")
    return broken


def check():
    old, new = read_table(), layout(INCLUDE)
    yield from differences(old, new)
    yield from signature_changes(FROZEN, INCLUDE)
    yield from wrong_labels(FROZEN, INCLUDE, MANUAL.read_text(encoding="utf-8"))
    for key in entries(new).keys() - entries(old).keys():
        yield f"{' '.join(key[1:])} is new: run tests/abi/make_layout.py --write"
    for key, value in entries(new).items():
        if key[0] == "STRUCT" and entries(old).get(key, value) != value:
            yield f"struct {key[1]} has grown: run tests/abi/make_layout.py --write"


# (file, text to replace, replacement, part of the expected finding)
CHANGES = [
    ("value.h", "  uint64_t offset; /* bytes", "  uint64_t more;\n  uint64_t offset; /* bytes", "bp_tensor offset"),
    ("value.h", "  int32_t rank;\n  bp_dtype dtype;", "  bp_dtype dtype;\n  int32_t rank;", "bp_tensor rank"),
    ("base.h", "  const char* data;\n  uint64_t size;\n} bp_str;",
     "  const char* data;\n  uint64_t size;\n  uint64_t more;\n} bp_str;", "struct bp_str"),
    ("base.h", "#define BP_FAILED 7", "#define BP_FAILED 70", "BP_FAILED was 7"),
    ("kernel.h", "  void (*destroy)(bp_kernel* kernel);", "", "bp_kernel_def destroy is gone"),
    ("kernel.h", "  void (*destroy)(bp_kernel* kernel);", "  int (*destroy)(bp_kernel* kernel);", "bp_kernel_def: 'void (*destroy)"),
    ("host.h", "  void (*dealloc)(void* memory);", "  void (*dealloc)(const void* memory);", "bp_host_api: 'void (*dealloc)"),
    ("optional/plan_capture.h", "#define BP_KERNEL_CAPTURE 256u", "#define BP_KERNEL_CAPTURE 8u", "BP_KERNEL_CAPTURE was 256"),
    ("optional/host_memory.h", "  uint64_t alignment;   /*", "  uint64_t more;\n  uint64_t alignment;   /*",
     "bp_host_memory_caps alignment"),
    ("optional/first_look.h", "Since: 1.3", "Since: 1.0", "bp_first_look.pass_over says Since: 1.0"),
    ("optional/session.h", '"bp.sessions"', '"bp.other_sessions"', "does not name bp.other_sessions"),
    ("base.h", "#define BP_ABI_MINOR ", "#define BP_ABI_MINOR 9", "the history has no row for 1.9"),
    ("graph.h", "Since: 1.2", "Since: 1.7", "graph.h says Since: 1.7"),
]


def self_test():
    old, failed = layout(INCLUDE), 0
    for name, text, replacement, expected in CHANGES:
        with tempfile.TemporaryDirectory() as folder:
            include = pathlib.Path(folder) / "include"
            shutil.copytree(INCLUDE, include)
            header = include / "backplane/plugin_api" / name
            content = header.read_text(encoding="utf-8")
            assert content.count(text) == 1, (name, text)
            header.write_text(content.replace(text, replacement), encoding="utf-8")
            found = [*differences(old, layout(include)), *signature_changes(INCLUDE, include),
                     *wrong_labels(FROZEN, include, MANUAL.read_text(encoding="utf-8"))]
        if not any(expected in one for one in found):
            failed += 1
            print(f"FAILED: a change of {name} was to be found as '{expected}', found: {found}")
    print(f"{len(CHANGES) - failed} passed, {failed} failed, 0 skipped")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for mode in ("write", "check", "self-test"):
        parser.add_argument(f"--{mode}", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return 1 if self_test() else 0
    if not arguments.check and not arguments.write:
        print("\n".join(layout(INCLUDE)))
        return 0
    problems = write() if arguments.write else list(check())
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
