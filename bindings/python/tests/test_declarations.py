"""The declarations against a compiler's own account of the headers: its debugging information.

declare.py reads the headers as text; here the compiler says which functions, members, offsets and
constants there are, and both must say the same of everything.
"""
import ctypes
import os
import re
import subprocess
import tempfile
import unittest

from common import CC, ROOT
from tern import _c as c

HEADERS = ("tern.h", "tern_agent.h", "tern_audio.h", "tern_embed.h", "tern_image.h", "tern_memory.h", "tern_tools.h", "tern_train.h")


class Dwarf:
    """Entries of .debug_info by offset: (tag, attributes, children's offsets)."""

    def __init__(self, text):
        self.entries, self.top = {}, []
        stack = []
        for line in text.splitlines():
            head = re.match(r" *<([0-9a-f]+)><([0-9a-f]+)>: Abbrev Number: (\d+)(?: \((\w+)\))?", line)
            if head:
                depth, at, tag = int(head[1], 16), int(head[2], 16), head[4]
                if tag is None:
                    continue
                self.entries[at] = (tag, {}, [])
                del stack[depth:]
                if stack:
                    self.entries[stack[-1]][2].append(at)
                stack.append(at)
                continue
            attribute = re.match(r" *<[0-9a-f]+> +(DW_AT_\w+) *: (?:\([^)]*\):? ?)?(.*)", line)
            if attribute and stack:
                self.entries[stack[-1]][1][attribute[1]] = attribute[2].strip()

    def all(self, tag):
        return [(at, attributes) for at, (t, attributes, _) in self.entries.items() if t == tag]

    def children(self, at, tag):
        return [child for child in self.entries[at][2] if self.entries[child][0] == tag]

    def number(self, at, name):
        return int(self.entries[at][1][name].split()[0], 0)

    def type_at(self, at):
        reference = self.entries[at][1].get("DW_AT_type")
        return int(re.match(r"<0x([0-9a-f]+)>", reference)[1], 16) if reference else None

    def describe(self, at):
        """The type at an offset, as describe() below has those of ctypes."""
        if at is None:
            return "void"
        tag, attributes, _ = self.entries[at]
        if tag in ("DW_TAG_typedef", "DW_TAG_const_type"):
            return self.describe(self.type_at(at))
        if tag == "DW_TAG_pointer_type":
            return "*" + self.describe(self.type_at(at))
        if tag == "DW_TAG_structure_type":
            return attributes["DW_AT_name"].split()[-1]
        if tag == "DW_TAG_enumeration_type":
            return "i%d" % self.number(at, "DW_AT_byte_size")
        if tag == "DW_TAG_subroutine_type":
            takes = [self.describe(self.type_at(p)) for p in self.children(at, "DW_TAG_formal_parameter")]
            return "(%s)(%s)" % (self.describe(self.type_at(at)), ", ".join(takes))
        if tag == "DW_TAG_array_type":
            (bound,) = self.children(at, "DW_TAG_subrange_type")
            n = self.number(bound, "DW_AT_count") if "DW_AT_count" in self.entries[bound][1] else \
                self.number(bound, "DW_AT_upper_bound") + 1
            return "%s[%d]" % (self.describe(self.type_at(at)), n)
        assert tag == "DW_TAG_base_type", tag
        size = self.number(at, "DW_AT_byte_size")
        encoding = attributes["DW_AT_encoding"]
        letter = next(l for word, l in (("boolean", "b"), ("float", "f"), ("unsigned char", "u"), ("signed char", "c"),
                                        ("unsigned", "u"), ("signed", "i")) if word in encoding)
        return letter + str(size)


def describe(kind):
    """A ctypes type in one line. An enum is i4, as an int: their sizes and registers are the same."""
    if kind is None:
        return "void"
    if issubclass(kind, ctypes.Structure):
        return kind.__name__
    if issubclass(kind, ctypes.Array):
        return "%s[%d]" % (describe(kind._type_), kind._length_)
    if kind is ctypes.c_char_p:
        return "*c1"
    if kind is ctypes.c_void_p:
        return "*void"
    if issubclass(kind, ctypes._Pointer):
        return "*" + describe(kind._type_)
    if issubclass(kind, ctypes._CFuncPtr):
        return "*(%s)(%s)" % (describe(kind._restype_), ", ".join(map(describe, kind._argtypes_)))
    code = kind._type_
    letter = {"?": "b", "f": "f", "d": "f", "c": "c"}.get(code) or ("u" if code.isupper() else "i")
    return letter + str(ctypes.sizeof(kind))


class Declarations(unittest.TestCase):
    """Seen to fail: a member left out at a struct's end (in its padding, too), two parameters exchanged,
    int32_t for int64_t, an enum's constant added in the middle, a function left out, uint8_t for char."""

    @classmethod
    def setUpClass(cls):
        cls.text = "".join(open(os.path.join(ROOT, "include", name), encoding="utf-8").read() for name in HEADERS)
        cls.functions = re.findall(r"^TERN_API\b[^;(]*?(tern_\w+)\(", cls.text, re.M)
        lines = ['#include "%s"' % name for name in HEADERS]
        lines += ["__typeof__(%s) *call_%s;" % (name, name) for name in cls.functions]
        # What is used by no function would not be in the information.
        lines += ["%s use_%s;" % (name, name) for name in re.findall(r"^\} (tern_\w+);|^typedef enum (?:\w+) \{[^}]*\} (tern_\w+);",
                                                                        cls.text, re.M) for name in name if name]
        lines += ["%s *fn_%s;" % (name, name) for name in re.findall(r"^typedef [^;{}]*\(\*(tern_\w+)\)", cls.text, re.M)]
        with tempfile.TemporaryDirectory() as folder:
            source, out = os.path.join(folder, "all.c"), os.path.join(folder, "all.o")
            with open(source, "w") as file:
                file.write("\n".join(lines) + "\n")
            subprocess.run([CC, "-g", "-gdwarf-4", "-fno-eliminate-unused-debug-types", "-c", "-I", os.path.join(ROOT, "include"),
                            "-o", out, source], check=True, stderr=subprocess.DEVNULL if "clang" in CC else None)
            dump = subprocess.run(["readelf", "--debug-dump=info", "-W", out], check=True, capture_output=True, text=True)
        cls.dwarf = Dwarf(dump.stdout)

    def test_every_function(self):
        self.assertEqual(len(self.functions), len(re.findall(r"^TERN_API ", self.text, re.M)))
        self.assertGreater(len(self.functions), 80)
        variables = {a["DW_AT_name"].split()[-1]: at for at, a in self.dwarf.all("DW_TAG_variable") if "DW_AT_name" in a}
        told = {}
        for name in self.functions:
            told[name] = self.dwarf.describe(self.dwarf.type_at(variables["call_" + name]))
        mine = {}
        for name, (result, takes) in c.FUNCTIONS.items():
            mine[name] = "*(%s)(%s)" % (describe(result), ", ".join(map(describe, takes)))
        self.assertEqual(mine, told)

    def test_every_struct(self):
        told, mine = {}, {}
        for at, attributes in self.dwarf.all("DW_TAG_structure_type"):
            name = attributes.get("DW_AT_name", "").split()[-1:]
            if not name or not name[0].startswith("tern_") or "DW_AT_declaration" in attributes:
                continue
            rows = [("size", self.dwarf.number(at, "DW_AT_byte_size"), "")]
            for member in self.dwarf.children(at, "DW_TAG_member"):
                rows.append((self.dwarf.entries[member][1]["DW_AT_name"].split()[-1],
                             self.dwarf.number(member, "DW_AT_data_member_location"), self.dwarf.describe(self.dwarf.type_at(member))))
            told[name[0]] = rows
        for name, kind in vars(c).items():
            if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and hasattr(kind, "_fields_"):
                rows = [("size", ctypes.sizeof(kind), "")]
                rows += [(member, getattr(kind, member).offset, describe(type_)) for member, type_ in kind._fields_]
                mine[name] = rows
        self.assertGreater(len(mine), 45)
        self.assertEqual(mine, told)

    def test_every_constant(self):
        told = {}
        for at, attributes in self.dwarf.all("DW_TAG_enumeration_type"):
            told[attributes["DW_AT_name"].split()[-1]] = {
                self.dwarf.entries[e][1]["DW_AT_name"].split()[-1]: self.dwarf.number(e, "DW_AT_const_value")
                for e in self.dwarf.children(at, "DW_TAG_enumerator")}
        self.assertEqual(c.ENUMS, told)
        for values in told.values():
            for name, value in values.items():
                self.assertEqual(getattr(c, name), value)

    def test_every_macro(self):
        numbers = [name for name in re.findall(r"^#define (TERN_\w+) +[^\s\"]", self.text, re.M) if name != "TERN_API"]
        self.assertGreater(len(numbers), 5)
        code = "#include <stdio.h>\n" + "".join('#include "%s"\n' % name for name in HEADERS) + "int main(void) {\n"
        code += "".join('printf("%s %%d\\n", (int)%s);\n' % (name, name) for name in numbers) + "return 0; }\n"
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, "n.c"), os.path.join(folder, "n")
            with open(source, "w") as file:
                file.write(code)
            subprocess.run([CC, "-I", os.path.join(ROOT, "include"), "-o", program, source], check=True)
            rows = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split("\n")
        for name, value in (row.split() for row in rows if row):
            self.assertEqual(getattr(c, name, None), int(value), name)


if __name__ == "__main__":
    unittest.main()
