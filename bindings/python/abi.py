#!/usr/bin/env python3
"""What programs that are linked with libtern know of it: numbers, structs with their sizes and offsets, functions.

    bindings/python/abi.py _c.py                      prints them; _c.py is what bindings/python/declare.py made of the headers
    bindings/python/abi.py _c.py include/abi.txt        compares them with the last release's

What is new is no matter: functions, numbers, structs. Anything else that differs asks for another
TERN_ABI_VERSION, since programs would have to be compiled again, and the library gets another soname.

Seen to fail: a member in the middle of tern_sampling, and one at its end; a parameter more; a value of an enum
that moved; a function that was renamed.
"""
import ctypes
import importlib.util
import sys


def name_of(kind):
    """A type as text, with what functions take and give."""
    if kind is None:
        return "void"
    if hasattr(kind, "_argtypes_"):
        return f"{name_of(kind._restype_)}({', '.join(map(name_of, kind._argtypes_))})"
    if hasattr(kind, "_length_"):
        return f"{name_of(kind._type_)}[{kind._length_}]"
    if issubclass(kind, ctypes._Pointer):
        return name_of(kind._type_) + "*"
    return kind.__name__.replace("c_", "", 1) if kind.__module__ == "ctypes" else kind.__name__


def describe(path):
    spec = importlib.util.spec_from_file_location("declarations", path)
    c = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(c)
    lines = [f"{name} = {value}" for name, value in vars(c).items()
             if name.startswith("TERN_") and isinstance(value, int) and not name.startswith("TERN_VERSION_")]
    for name, kind in vars(c).items():
        if not (isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind is not ctypes.Structure):
            continue
        fields = getattr(kind, "_fields_", None)
        if not fields:  # programs have pointers to it alone
            continue
        lines.append(f"struct {name}: {ctypes.sizeof(kind)} bytes")
        lines += [f"struct {name}.{member[0]}: {name_of(member[1])} at {getattr(kind, member[0]).offset}" for member in fields]
    functions = next(value for value in vars(c).values() if isinstance(value, dict) and "tern_version" in value)
    lines += [f"{name}: {name_of(result)}({', '.join(map(name_of, takes))})" for name, (result, takes) in functions.items()]
    return sorted(lines)


def main():
    now = describe(sys.argv[1])
    if len(sys.argv) == 2:
        print("\n".join(now))
        return 0
    with open(sys.argv[2], encoding="utf-8") as file:
        before = file.read().splitlines()
    version = next(line for line in before if line.startswith("TERN_ABI_VERSION"))
    if version not in now:
        return 0
    lost = sorted(set(before) - set(now))
    # A struct that was there may not grow either: who made it has not the room.
    structs = {line.split(":")[0] for line in before if line.startswith("struct ") and " bytes" in line}
    grown = [line for line in sorted(set(now) - set(before)) if line.split(".")[0] in structs and "." in line]
    for sign, lines in (("-", lost), ("+", grown)):
        for line in lines:
            print(f"{sign} {line}", file=sys.stderr)
    if lost or grown:
        print(f"  ^ programs of the last release would have to be compiled again: another TERN_ABI_VERSION "
              f"({sys.argv[2]} has {version.split()[-1]}), or it stays as it was; before the first release: `make abi`",
              file=sys.stderr)
    return 1 if lost or grown else 0


sys.exit(main())
