#!/usr/bin/env python3
"""Lets PyTorch's CUDA build import on a machine without CUDA, for work on the CPU.

  torch-stubs.py TORCH_PACKAGE OUT     prints the folder that LD_LIBRARY_PATH must begin with

The wheel's libraries link CUDA's, and Python loads them with every function resolved. Work on the CPU calls none of them, so each
library that is wanted is made here with empty functions under the wanted names and versions: they say that there is no device.
Needs a C compiler and nm; standard library only.
"""
import collections
import glob
import os
import re
import subprocess
import sys

CUDA = re.compile(r"lib(cu|nv|nccl)")
NO_DEVICE = 100  # cudaErrorNoDevice

SPECIAL = {
    "cudaGetDeviceCount": f"int cudaGetDeviceCount(int *count) {{ *count = 0; return {NO_DEVICE}; }}",
    "cudaGetLastError": "int cudaGetLastError(void) { return 0; }",
    "cudaPeekAtLastError": "int cudaPeekAtLastError(void) { return 0; }",
    "__cudaRegisterFatBinary": "static void *handle; void **__cudaRegisterFatBinary(void *image) { (void)image; return &handle; }",
}


def function(name):
    if name in SPECIAL:
        return SPECIAL[name]
    if re.search(r"(Error|Status)(String|Name)$", name):
        return f'const char *{name}(void) {{ return "CUDA is not here"; }}'
    return f"int {name}(void) {{ return {NO_DEVICE}; }}"


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def wanted_libraries(files):
    names = set()
    for file in files:
        names |= set(re.findall(r"NEEDED\s+(\S+)", output("objdump", "-p", file)))
    return {name for name in names if CUDA.match(name)}


def wanted_functions(files):
    """{version: names}; version "" where the reference has none."""
    wanted = collections.defaultdict(set)
    for file in files:
        for line in output("nm", "-D", "--undefined-only", "--with-symbol-versions", file).splitlines():
            name, _, version = line.split()[-1].partition("@")
            if re.match(r"(__cuda|cu|nccl|nv)[A-Za-z]", name) and not name.startswith("_Z"):
                wanted[version.lstrip("@")].add(name)
    return wanted


def build(out, soname, version, names, plain):
    """One library: its versioned names under that version, and the names without version."""
    source = "\n".join(function(name) for name in sorted(names | plain)) + "\n"
    script = os.path.join(out, soname + ".map")
    with open(script, "w") as file:
        if plain:
            file.write("PLAIN { global: " + "; ".join(sorted(plain)) + "; };\n")
        if names:
            file.write(version + " { global: " + "; ".join(sorted(names)) + "; };\n")
    command = ["cc", "-w", "-fno-builtin", "-shared", "-fPIC", "-x", "c", "-", f"-Wl,-soname,{soname}", "-o", os.path.join(out, soname)]
    if names or plain:
        command.append(f"-Wl,--version-script,{script}")
    subprocess.run(command, input=source, text=True, check=True)


def main():
    package, out = sys.argv[1:]
    files = glob.glob(package + "/lib/*.so") + glob.glob(package + "/_C*.so")
    wanted = wanted_functions(files)
    libraries = wanted_libraries(files)
    os.makedirs(out, exist_ok=True)
    plain = wanted.pop("", set())
    plain_home = next(name for name in sorted(libraries) if name.startswith("libnccl"))
    for soname in sorted(libraries):
        version = soname if soname in wanted else "NVSHMEM" if "nvshmem" in soname else ""
        build(out, soname, version, wanted.get(version, set()) if version else set(), plain if soname == plain_home else set())
    print(os.path.abspath(out))


if __name__ == "__main__":
    main()
