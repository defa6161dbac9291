#!/usr/bin/env python3
"""Writes a wheel, and prints its name.

    wheel.py FOLDER VERSION README LICENSE [NOTICE...] -- FILE...

Files are named as they lie in FOLDER, where the wheel is put. Notices are those of others' code that is in the
library; each has the name of its folder. The same files make the same bytes. The
platform is that of the shared library: "manylinux" of the newest glibc that it asks for, if it needs
nothing else, so that pip installs it elsewhere; else "linux". For Python it is any: nothing is compiled.
"""
import base64
import glob
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import zipfile

NAME = "tern_engine"
GLIBC = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux[\w-]*)\.so\.\d+")


def platform_of(library):
    plain = re.sub(r"\W", "_", sysconfig.get_platform())  # linux_x86_64
    if not plain.startswith("linux_"):
        return plain
    said = subprocess.run(["readelf", "-W", "--dynamic", "--version-info", library], check=True, capture_output=True, text=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", said)
    versions = [tuple(map(int, v.split("."))) for v in re.findall(r"\bGLIBC_(\d+\.\d+)", said)]
    if not needed or not versions or not all(GLIBC.fullmatch(name) for name in needed):
        return plain
    return "manylinux_%d_%d_%s" % (*max(versions), plain[len("linux_"):])


def metadata(version, readme):
    head = ["Metadata-Version: 2.1", "Name: " + NAME.replace("_", "-"), "Version: " + version,
            "Summary: Small language models on the device they run on", "License: MIT", "Requires-Python: >=3.9",
            "Provides-Extra: numpy", "Requires-Dist: numpy; extra == 'numpy'", "Classifier: Typing :: Typed",
            "Description-Content-Type: text/markdown"]
    return "\n".join(head) + "\n\n" + readme


def add(wheel, record, name, data, executable=False):
    info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
    info.external_attr = (0o100755 if executable else 0o100644) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    wheel.writestr(info, data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    record.append("%s,sha256=%s,%d" % (name, digest, len(data)))


def main():
    between = sys.argv.index("--")
    folder, version, readme, licence, *notices = sys.argv[1:between]
    files = sys.argv[between + 1:]
    tag = "py3-none-" + platform_of(next(f for f in files if f.endswith(".so")))
    notes = "%s-%s.dist-info/" % (NAME, version)
    path = os.path.join(folder, "%s-%s-%s.whl" % (NAME, version, tag))
    for old in glob.glob(os.path.join(folder, NAME + "-*.whl")):
        os.remove(old)
    record = []
    with zipfile.ZipFile(path + ".tmp", "w") as wheel:
        for file in sorted(files):
            with open(file, "rb") as source:
                add(wheel, record, os.path.relpath(file, folder), source.read(), file.endswith(".so"))
        names = {licence: "LICENSE"}
        names.update((path, "licenses/" + os.path.basename(os.path.dirname(path))) for path in notices)
        for file, name in names.items():
            with open(file, "rb") as source:
                add(wheel, record, notes + name, source.read())
        with open(readme, encoding="utf-8") as source:
            add(wheel, record, notes + "METADATA", metadata(version, source.read()).encode())
        wheel_file = "Wheel-Version: 1.0\nGenerator: tern (%s)\nRoot-Is-Purelib: false\nTag: %s\n" % (version, tag)
        add(wheel, record, notes + "WHEEL", wheel_file.encode())
        rows = "\n".join(record + [notes + "RECORD,,"]) + "\n"
        add(wheel, [], notes + "RECORD", rows.encode())
    os.replace(path + ".tmp", path)
    print("  wheel " + path)


if __name__ == "__main__":
    main()
