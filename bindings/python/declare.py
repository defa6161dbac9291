#!/usr/bin/env python3
"""Writes ctypes declarations of the public headers, as a Python module.

    declare.py OUT.py HEADER...

It reads the C that those headers are written in and no more: enums, structs of plain members, function
pointers, and functions marked TERN_API. What it does not understand is an error, never left out. That it
understood right is checked against a compiler's own account (tests/test_declarations.py).
"""
import re
import sys

PLAIN = {
    "void": "None", "bool": "c_bool", "char": "c_char", "int": "c_int", "unsigned": "c_uint", "float": "c_float",
    "double": "c_double", "size_t": "c_size_t", "int32_t": "c_int32", "int64_t": "c_int64", "uint8_t": "c_uint8",
    "uint32_t": "c_uint32", "uint64_t": "c_uint64",
}
HINTS = {"c_bool": "bool", "c_float": "float", "c_double": "float", "c_char_p": "Optional[bytes]"}
NAME = r"[A-Za-z_]\w*"


class Header:
    """What was read so far, in the order of the headers."""

    def __init__(self):
        self.constants = {}  # name: value
        self.enums = {}  # name: {constant: value}
        self.structs = []  # names, the opaque ones too
        self.callbacks = {}  # name: expression
        self.functions = {}  # name: (result, [arguments])
        self.hints = {}  # struct: [(member, type)]
        self.body = []  # lines: callbacks and members, which may need what stands before them

    # ---- Types -----------------------------------------------------------------------------------

    def pointer_to(self, base, is_text):
        if base == "void":
            return "c_void_p"
        if base == "char":
            return "c_char_p" if is_text else "POINTER(c_char)"
        return "POINTER(%s)" % self.value_of(base)

    def value_of(self, base):
        if base in PLAIN:
            return PLAIN[base]
        if base in self.enums:
            return "c_int"
        if base in self.callbacks or base in self.structs:
            return base
        raise SyntaxError("declare.py knows no type %r" % base)

    def type_of(self, text, is_text=True):
        """ctypes' expression for a C type. is_text: a char pointer ends with a zero."""
        stars = text.count("*")
        base = " ".join(w for w in text.replace("*", " ").split() if w not in ("const", "struct"))
        if stars == 0:
            return self.value_of(base)
        inner = self.pointer_to(base, is_text)
        for _ in range(stars - 1):
            inner = "POINTER(%s)" % inner
        return inner

    def arguments_of(self, text, of_callback=False):
        """Types of a list of parameters. Text that is followed by its length may have no zero: what a
        callback gets must not be looked at beyond it."""
        parts = [p.strip() for p in text.split(",")]
        if parts == ["void"]:
            return []
        types = []
        for i, part in enumerate(parts):
            match = re.fullmatch(r"(.*?)(%s)" % NAME, part, re.S)
            counted = of_callback and i + 1 < len(parts) and re.match(r"size_t n", parts[i + 1])
            types.append(self.type_of(match[1], is_text=not counted))
        return types

    # ---- Declarations ----------------------------------------------------------------------------

    def read_enum(self, name, body):
        rows = re.findall(r"ROW\((\w+), \"", self.status_map) if "ROW" in body else \
            [part.strip() for part in body.split(",") if part.strip()]
        values, next_value = {}, 0
        for row in rows:
            match = re.fullmatch(r"(\w+)(?:\s*=\s*(\w+))?", row)
            if not match:
                raise SyntaxError("declare.py cannot read %r of enum %s" % (row, name))
            if match[2]:
                next_value = self.number(match[2])
            values[match[1]] = next_value
            next_value += 1
        self.enums[name] = values
        self.constants.update(values)

    def number(self, text):
        total = 0
        for term in text.split("+"):
            term = term.strip()
            total += self.constants[term] if term in self.constants else int(term, 0)
        return total

    def read_struct(self, name, body):
        members = []
        for declaration in filter(None, (d.strip() for d in body.split(";"))):
            pointer = re.fullmatch(r"(.*?)\(\*(%s)\)\((.*)\)" % NAME, declaration, re.S)
            if pointer:
                members.append((pointer[2], self.callback_of(pointer[1], pointer[3])))
                continue
            first = re.match(r"((?:const |struct )*%s(?: const)?)\s*(.*)" % NAME, declaration, re.S)
            for part in first[2].split(","):
                match = re.fullmatch(r"\s*((?:\*\s*(?:const\s*)?)*)(%s)(?:\[([^\]]*)\])?\s*" % NAME, part)
                if not match:
                    raise SyntaxError("declare.py cannot read %r of struct %s" % (part, name))
                kind = self.type_of(first[1] + match[1])
                members.append((match[2], kind if match[3] is None else "%s * %d" % (kind, self.number(match[3]))))
        self.add_struct(name)
        self.body.append("%s._fields_ = [" % name)
        self.body += ['    ("%s", %s),' % member for member in members]
        self.body.append("]")
        self.hints[name] = members

    def add_struct(self, name):
        if name not in self.structs:
            self.structs.append(name)

    def callback_of(self, result, arguments):
        return "CFUNCTYPE(%s)" % ", ".join([self.type_of(result)] + self.arguments_of(arguments, True))

    def read_function(self, text):
        match = re.fullmatch(r"TERN_API (.*?)(%s)\((.*)\)" % NAME, text, re.S)
        if not match:
            raise SyntaxError("declare.py cannot read %r" % text)
        result = match[1]
        counted = "char" in result and "size_t *n_" in match[3]  # its length is told
        self.functions[match[2]] = (self.type_of(result, not counted), self.arguments_of(match[3]))

    def read(self, text):
        text = re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", "", text, flags=re.S)).replace("\\\n", " ")
        found = re.search(r"#define TERN_STATUS_MAP\(ROW\)([^\n]*)", text)
        self.status_map = found[1] if found else ""
        for name, value in re.findall(r"#define (TERN_[A-Z_]+) +(\d+|\(-\d+\))\s*\n", text):
            self.constants[name] = int(value.strip("()"))
        text = re.sub(r"#if defined\(_WIN32\).*?#endif|#ifdef __cplusplus.*?#endif", "", text, flags=re.S)
        text = re.sub(r"^\s*#[^\n]*", "", text, flags=re.M)
        # A struct may be pointed at by name before it is declared.
        for name in re.findall(r"(?:typedef|const) struct (%s)\b" % NAME, text):
            self.add_struct(name)
        at = 0
        declaration = re.compile(r"\s*(typedef enum (%s) \{(.*?)\} \w+;|typedef struct (%s) \{(.*?)\} \w+;"
                                 r"|typedef struct %s %s;|typedef ([^;{]*?)\(\*(%s)\)\(([^;]*)\);|(TERN_API [^;]*);)"
                                 % (NAME, NAME, NAME, NAME, NAME), re.S)
        while text[at:].strip():
            match = declaration.match(text, at)
            if not match:
                raise SyntaxError("declare.py cannot read what begins with %r" % text[at:].strip()[:80])
            at = match.end()
            if match[2]:
                self.read_enum(match[2], match[3])
            elif match[4]:
                self.read_struct(match[4], match[5])
            elif match[7]:
                self.callbacks[match[7]] = self.callback_of(match[6], match[8])
                self.body.append("%s = %s" % (match[7], self.callbacks[match[7]]))
            elif match[9]:
                self.read_function(match[9])


def hint_of(kind):
    """What Python sees in a member."""
    return HINTS.get(kind) or ("int" if re.fullmatch(r"c_u?int\d*|c_size_t", kind) else "Any")


def write(header, names):
    out = ['"""ctypes declarations of %s, made by declare.py: not to be edited."""' % ", ".join(names),
           "from ctypes import (", "    CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float,",
           "    c_int, c_int32, c_int64, c_size_t, c_uint, c_uint8, c_uint32, c_uint64, c_void_p,", ")",
           "from typing import Any, Dict, List, Optional, Tuple", ""]
    out += ["%s = %d" % item for item in header.constants.items()]
    out += ["", "ENUMS: Dict[str, Dict[str, int]] = {"]
    for name, values in header.enums.items():
        out += ['    "%s": {' % name] + ['        "%s": %d,' % item for item in values.items()] + ["    },"]
    out += ["}", ""]
    for name in header.structs:
        out += ["", "class %s(Structure):" % name]
        out += ["    %s: %s" % (member, hint_of(kind)) for member, kind in header.hints.get(name, [])] or ["    pass"]
        out += [""]
    out += [""] + header.body + [""]
    out += ["# name: (what it returns, its arguments)", "FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {"]
    for name, (result, arguments) in header.functions.items():
        out.append('    "%s": (%s, [%s]),' % (name, result, ", ".join(arguments)))
    out += ["}", ""]
    return "\n".join(out)


def main():
    header = Header()
    paths = sys.argv[2:]
    for path in paths:
        with open(path, encoding="utf-8") as file:
            header.read(file.read())
    text = write(header, [path.rsplit("/", 1)[-1] for path in paths])
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
