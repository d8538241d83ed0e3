"""Checks the files of a release with libraries of others: `check.py FOLDER VERSION MUSL [--shipped]`.

MUSL is the C library of musl. The sizes of files that were built as they are shipped are checked, too.

The tarballs and the OCI layout are read with the standard library, the SBOM is validated against the schema of CycloneDX
and the manifests against the schemas of Kubernetes.
"""

import base64
import csv
import email
import gzip
import hashlib
import json
import pathlib
import re
import sys
import tarfile
import zipfile

import kubernetes_validate
import license_expression
import packaging.utils
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from native import audit_wheel, check_module

SHIPPED = (
    "bin/toolbay",
    "lib/toolbay/plugins/text.wasm",
    "lib/systemd/system/toolbay.service",
    "share/man/man1/toolbay.1",
    "share/bash-completion/completions/toolbay",
    "share/doc/toolbay/LICENSE",
    "share/doc/toolbay/THIRD-PARTY-LICENSES",
    "share/toolbay/origin",
    "share/doc/toolbay/toolbay.cdx.json",
)
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
INTERPRETER = 3
# What the library for Python has besides its module.
LIBRARY = ("__init__.py", "_host.py", "_native.pyi", "_schema.py", "py.typed", "vendor.py")
# The most bytes of a package, and of what it installs.
PACKED_BYTES, INSTALLED_BYTES = 36_000_000, 85_000_000


def check_tarball(file: pathlib.Path, machine: str) -> None:
    with tarfile.open(file) as archive:
        members = archive.getmembers()
        top = members[0].name.split("/")[0]
        names = [member.name for member in members]
        assert names == sorted(names), "the names are not sorted"
        assert {(member.uid, member.gid) for member in members} == {(0, 0)}
        assert len({member.mtime for member in members}) == 1
        for path in SHIPPED:
            assert f"{top}/{path}" in names, f"{file.name} lacks {path}"
        program = archive.extractfile(f"{top}/bin/toolbay").read()
    check_static(program, machine)
    assert b".dep-v0" in program, "the program lacks the list of its dependencies"


def check_static(program: bytes, machine: str) -> None:
    """Reads the header and the segments of an ELF file."""

    def number(at: int, size: int) -> int:
        return int.from_bytes(program[at : at + size], "little")

    assert program[:4] == b"\x7fELF"
    assert number(18, 2) == ELF_MACHINES[machine], f"the program is not for {machine}"
    start, size, count = number(32, 8), number(54, 2), number(56, 2)
    kinds = {number(start + index * size, 4) for index in range(count)}
    assert INTERPRETER not in kinds, "the program is linked dynamically"


def check_wheel(file: pathlib.Path, parts: set[str], program: str | None) -> None:
    """Checks the list of files, the metadata, the packages that the SBOM must name, and the program for a kind of machine."""
    name, version, _, tags = packaging.utils.parse_wheel_filename(file.name)
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        (information,) = {path.split("/")[0] for path in archive.namelist() if ".dist-info/" in path}
        listed = {row[0]: row[1:] for row in csv.reader(archive.read(f"{information}/RECORD").decode().splitlines())}
        assert set(listed) == set(archive.namelist()), "the list has other files than the wheel"
        for path, (digest, size) in listed.items():
            if path != f"{information}/RECORD":
                data = archive.read(path)
                sum = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert (digest, size) == (f"sha256={sum}", str(len(data))), path
        metadata = email.message_from_bytes(archive.read(f"{information}/METADATA"))
        assert packaging.utils.canonicalize_name(metadata["Name"]) == name
        assert metadata["Version"] == str(version)
        check_expression(metadata["License-Expression"])
        for path in metadata.get_all("License-File"):
            assert f"{information}/licenses/{path}" in listed, path
        assert email.message_from_bytes(archive.read(f"{information}/WHEEL"))["Tag"] in map(str, tags)
        (sbom,) = (path for path in listed if path.startswith(f"{information}/sboms/"))
        check_components(archive.read(sbom).decode(), parts)
        if program:
            (script,) = (path for path in listed if path.endswith(".data/scripts/toolbay"))
            check_static(archive.read(script), program)


def check_library(file: pathlib.Path, platform: str, machine: str, libc: str, musl: pathlib.Path) -> None:
    """Checks what Python imports."""
    audit_wheel(file, platform, machine, musl)
    with zipfile.ZipFile(file) as archive:
        for name in LIBRARY:
            assert f"toolbay/{name}" in archive.namelist(), f"{file.name} lacks {name}"
        check_module(archive.read("toolbay/_native.abi3.so"), machine, libc, {"PyInit__native"}, musl)


def check_node_module(file: pathlib.Path, machine: str, libc: str, musl: pathlib.Path) -> None:
    """Checks what Node loads."""
    with tarfile.open(file) as archive:
        check_components(archive.extractfile("package/sbom.cdx.json").read().decode(), {"toolbay-cli", "toolbay-node"})
        module = archive.extractfile("package/toolbay.node").read()
    check_module(module, machine, libc, {"napi_register_module_v1"}, musl)


def check_sizes(file: pathlib.Path) -> None:
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as archive:
            installed = sum(entry.file_size for entry in archive.infolist())
    else:
        with tarfile.open(file) as archive:
            installed = sum(member.size for member in archive)
    packed = file.stat().st_size
    print(f"{file.name}: {packed / 1e6:.1f} MB, installed {installed / 1e6:.1f} MB")
    assert packed <= PACKED_BYTES and installed <= INSTALLED_BYTES, f"{file.name} is too large"


def check_npm(file: pathlib.Path, program: str | None) -> dict:
    """Checks the archive and the manifest, and returns the manifest."""
    with tarfile.open(file) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
    assert all(name.startswith("package/") for name in files)
    manifest = json.loads(files["package/package.json"])
    assert "scripts" not in manifest, f"{file.name} has scripts"
    check_expression(manifest["license"])
    assert "package/LICENSE" in files
    if program:
        check_static(files["package/bin/toolbay"], program)
        check_components(files["package/sbom.cdx.json"].decode(), {"wasmtime"})
    return manifest


def check_expression(text: str) -> None:
    assert not license_expression.get_spdx_licensing().validate(text).errors, text


def check_packages(folder: pathlib.Path, version: str, musl: pathlib.Path) -> None:
    for machine, cpu in ("x86_64", "x64"), ("aarch64", "arm64"):
        for platform, libc, field in ("manylinux_2_17", "gnu", "glibc"), ("musllinux_1_2", "musl", "musl"):
            (wheel,) = folder.glob(f"toolbay-*-cp311-abi3-{platform}_{machine}.whl")
            check_wheel(wheel, {"wasmtime", "toolbay-cli", "toolbay-python"}, machine)
            check_library(wheel, platform, machine, libc, musl)
            package = folder / f"toolbay-linux-{cpu}-{libc}-{version}.tgz"
            manifest = check_npm(package, machine)
            check_node_module(package, machine, libc, musl)
            assert (manifest["os"], manifest["cpu"], manifest["libc"]) == (["linux"], [cpu], [field])
            assert manifest["preferUnplugged"] is True
            library = check_npm(folder / f"toolbay-{version}.tgz", None)
            assert library["optionalDependencies"][manifest["name"]] == version == manifest["version"]
            if "--shipped" in sys.argv:
                check_sizes(wheel)
                check_sizes(package)
    (plugins,) = folder.glob("toolbay_plugins-*-py3-none-any.whl")
    check_wheel(plugins, {"plugin-text"}, None)
    check_npm(folder / f"toolbay-plugins-{version}.tgz", None)
    sums = (folder / "SHA256SUMS").read_text()
    for file in [*folder.glob("*.whl"), *folder.glob("*.tgz"), *folder.glob("*.tar.gz")]:
        assert f"  {file.name}\n" in sums, f"{file.name} has no checksum"


def check_installers(folder: pathlib.Path, version: str) -> None:
    for name in "install.sh", "toolbay.rb":
        text = (folder / name).read_text()
        assert version in text and re.search(r"@[A-Z0-9_]+@", text) is None, f"{name} has empty places"
        for machine in ELF_MACHINES:
            tarball = (folder / f"toolbay-{version}-{machine}-linux.tar.gz").read_bytes()
            assert hashlib.sha256(tarball).hexdigest() in text, f"{name} has another checksum for {machine}"


def check_layout(folder: pathlib.Path) -> None:
    def blob(descriptor: dict) -> bytes:
        kind, digest = descriptor["digest"].split(":")
        data = (folder / "blobs" / kind / digest).read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest
        assert len(data) == descriptor["size"]
        return data

    assert json.loads((folder / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    (named,) = json.loads((folder / "index.json").read_text())["manifests"]
    platforms = set()
    for descriptor in json.loads(blob(named))["manifests"]:
        manifest = json.loads(blob(descriptor))
        config = json.loads(blob(manifest["config"]))
        (layer,) = manifest["layers"]
        tar = gzip.decompress(blob(layer))
        assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(tar).hexdigest()]
        assert config["config"]["User"] == "65532"
        platforms.add(config["architecture"])
    assert platforms == {"amd64", "arm64"}


def check_components(text: str, expected: set[str]) -> None:
    """Checks an SBOM, and that it names these packages."""
    error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)
    assert error is None, error
    names = {component["name"] for component in json.loads(text)["components"]}
    assert expected <= names
    assert "xtask" not in names


def check_manifests(file: pathlib.Path, version: str) -> None:
    documents = list(yaml.safe_load_all(file.read_text()))
    for document in documents:
        kubernetes_validate.validate(document, "1.37", strict=True)
    kinds = {document["kind"]: document for document in documents}
    assert {"Deployment", "Service", "PersistentVolumeClaim", "ConfigMap"} == set(kinds)
    pod = kinds["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == f"toolbay:{version}"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["securityContext"]["runAsNonRoot"] is True
    probes = {name: container[name]["httpGet"]["path"] for name in ("readinessProbe", "livenessProbe")}
    assert probes == {"readinessProbe": "/readyz", "livenessProbe": "/healthz"}
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert volumes == {mount["name"] for mount in container["volumeMounts"]}


def main() -> None:
    folder, version, musl = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    for machine in ELF_MACHINES:
        check_tarball(folder / f"toolbay-{version}-{machine}-linux.tar.gz", machine)
    check_layout(folder / "oci")
    check_packages(folder, version, musl)
    check_installers(folder, version)
    sbom = (folder / f"toolbay-{version}.cdx.json").read_text()
    check_components(sbom, {"wasmtime", "toolbay-core", "plugin-text"})
    check_manifests(folder / "kubernetes.yaml", version)


main()
