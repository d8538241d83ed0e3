"""Reads native modules: for which machine, C library and Python they are, and what they need of each."""

import io
import json
import pathlib
import re
import subprocess
import sys

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection

MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
# The newest glibc that the name of a package allows.
GLIBC = (2, 17)
DF_1_NODELETE = 0x8
# What the tables of symbols call the interpreter's.
INTERPRETER = re.compile(r"_?Py|napi_")


def check_module(data: bytes, machine: str, libc: str, entries: set[str], musl: pathlib.Path) -> None:
    """Checks a module that exports these functions. The file is the C library of musl."""
    elf = ELFFile(io.BytesIO(data))
    assert elf["e_machine"] == MACHINES[machine], f"the module is not for {machine}"
    assert elf.get_section_by_name(".dep-v0"), "the module lacks the list of its dependencies"
    (dynamic,) = (section for section in elf.iter_sections() if isinstance(section, DynamicSection))
    tags = list(dynamic.iter_tags())
    assert any(tag.entry.d_tag == "DT_FLAGS_1" and tag.entry.d_val & DF_1_NODELETE for tag in tags), "it can be unloaded"
    needed = {tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"}
    undefined, exported = symbols(elf.get_section_by_name(".dynsym"))
    assert exported == entries, f"the module exports {sorted(exported)}"
    versions = glibc_versions(elf)
    match libc:
        case "gnu":
            assert versions and max(versions) <= GLIBC, f"the module needs glibc {max(versions)}"
        case "musl":
            assert needed == {"libc.so"}, f"the module needs {sorted(needed)}"
            assert not versions, "a module for musl names versions of glibc"
            # This is the one for this machine, and its symbols are the same on all.
            _, offered = symbols(ELFFile(io.BytesIO(musl.read_bytes())).get_section_by_name(".dynsym"))
            missing = {name for name in undefined - offered if not INTERPRETER.match(name)}
            assert not missing, f"musl lacks {sorted(missing)}"


def symbols(table: SymbolTableSection) -> tuple[set[str], set[str]]:
    """The names that a library must find elsewhere, and those that it offers."""
    undefined, exported = set(), set()
    for symbol in table.iter_symbols():
        if symbol["st_shndx"] != "SHN_UNDEF":
            exported.add(symbol.name)
        elif symbol["st_info"]["bind"] != "STB_WEAK":
            undefined.add(symbol.name)
    return undefined - {""}, exported


def glibc_versions(elf: ELFFile) -> set[tuple[int, ...]]:
    """The versions of glibc that a library names."""
    versions = set()
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _, names in section.iter_versions():
                found = (re.fullmatch(r"GLIBC_([0-9.]+)", name.name) for name in names)
                versions |= {tuple(map(int, match[1].split("."))) for match in found if match}
    return versions


def audit_wheel(file: pathlib.Path, platform: str, machine: str, musl: pathlib.Path) -> None:
    """Lets the tools of Trail of Bits and PyPA read a wheel. The second names the oldest platform on which it runs.

    On a machine with glibc, it takes the C library of musl for one that the wheel lacks: then its word on symbols counts.
    """
    tools = pathlib.Path(sys.executable).parent
    subprocess.run([tools / "abi3audit", "--strict", file], check=True)
    command = [tools / "auditwheel", "show", "--json", "--ldpaths", musl.parent, file]
    show = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    tag = "sym_tag" if platform.startswith("musl") else "overall_tag"
    oldest = json.loads(show.stdout)[tag].removesuffix(f"_{machine}")
    (kind, *numbers), (own_kind, *own_numbers) = oldest.split("_"), platform.split("_")
    compatible = kind == own_kind and list(map(int, numbers)) <= list(map(int, own_numbers))
    assert compatible, f"auditwheel calls {file.name} {oldest}"
