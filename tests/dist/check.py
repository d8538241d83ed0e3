"""Checks the files of a release with libraries of others: `check.py FOLDER VERSION`.

The tarballs and the OCI layout are read with the standard library, the SBOM is validated against the schema of CycloneDX
and the manifests against the schemas of Kubernetes.
"""

import gzip
import hashlib
import json
import pathlib
import sys
import tarfile

import kubernetes_validate
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

SHIPPED = (
    "bin/toolbay",
    "lib/toolbay/plugins/text.wasm",
    "lib/systemd/system/toolbay.service",
    "share/man/man1/toolbay.1",
    "share/bash-completion/completions/toolbay",
    "share/doc/toolbay/LICENSE",
    "share/doc/toolbay/toolbay.cdx.json",
)
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
INTERPRETER = 3


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


def check_sbom(file: pathlib.Path) -> None:
    error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(file.read_text())
    assert error is None, error
    document = json.loads(file.read_text())
    names = {component["name"] for component in document["components"]}
    assert {"wasmtime", "toolbay-core", "plugin-text"} <= names
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
    folder, version = pathlib.Path(sys.argv[1]), sys.argv[2]
    for machine in ELF_MACHINES:
        check_tarball(folder / f"toolbay-{version}-{machine}-linux.tar.gz", machine)
    check_layout(folder / "oci")
    check_sbom(folder / f"toolbay-{version}.cdx.json")
    check_manifests(folder / "kubernetes.yaml", version)


main()
