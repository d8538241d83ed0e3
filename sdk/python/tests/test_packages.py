"""Vendoring of packages, from wheels in a local folder."""

import tempfile
import unittest
import zipfile
from pathlib import Path

from toolbay_sdk import build, packages


def wheel(folder: Path, name: str, tag: str, needs: str = "", files: tuple[str, ...] = ()) -> None:
    """Writes a wheel of version 1 whose only module is its name."""
    about = f"{name}-1.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n" + (f"Requires-Dist: {needs}\n" if needs else "")
    contents = {f"{name}.py": f'NAME = "{name}"\n', f"{about}/METADATA": metadata}
    contents |= {f"{about}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n"}
    contents |= dict.fromkeys(files, "")
    record = "".join(f"{file},,\n" for file in [*contents, f"{about}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-1-{tag}.whl", "w") as archive:
        for file, text in [*contents.items(), (f"{about}/RECORD", record)]:
            archive.writestr(file, text)


class Packages(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="toolbay größe ")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.vendored = self.folder / "target/packages"
        self.wheels = self.folder / "wheels"
        self.wheels.mkdir()
        wheel(self.wheels, "pure", "py3-none-any")
        wheel(self.wheels, "native", "cp314-cp314-manylinux_2_17_x86_64")
        wheel(self.wheels, "both", "cp314-cp314-manylinux_2_17_x86_64", files=("both_fast.so",))
        wheel(self.wheels, "both", "py3-none-any")
        wheel(self.wheels, "mislabelled", "py3-none-any", files=("mislabelled/fast.so",))
        wheel(self.wheels, "user", "py3-none-any", needs="native")

    def vendor(self, *lines: str) -> None:
        manifest = self.folder / "requirements.txt"
        manifest.write_text("\n".join(["--no-index", "--find-links wheels", *lines, ""]))
        packages.vendor(manifest, self.vendored)

    def refused(self, *lines: str) -> str:
        with self.assertRaises(build.Failed) as raised:
            self.vendor(*lines)
        self.assertFalse(self.vendored.exists())
        return str(raised.exception)

    def test_packages_of_pure_python_are_put_into_the_folder(self) -> None:
        self.vendor("pure == 1  # a comment", "both")
        self.assertTrue((self.vendored / "pure.py").is_file() and (self.vendored / "both.py").is_file())
        self.assertEqual(list(self.vendored.glob("**/*.so")), [])

    def test_unchanged_requirements_do_not_run_pip(self) -> None:
        self.vendor("pure")
        (self.wheels / "pure-1-py3-none-any.whl").unlink()
        self.vendor("pure")
        self.assertTrue((self.vendored / "pure.py").is_file())

    def test_all_native_packages_are_named_in_one_error(self) -> None:
        wheel(self.wheels, "other", "cp314-abi3-manylinux_2_28_x86_64")
        said = self.refused("pure", "user", "other")
        self.assertIn("\n  native==1 (for user)\n  other==1\n", said)
        self.assertNotIn("pure==1", said)

    def test_a_compiled_module_in_a_wheel_that_claims_to_be_pure_is_refused(self) -> None:
        self.assertIn("\n  mislabelled==1\n", self.refused("mislabelled"))

    def test_sources_are_refused_before_pip_runs(self) -> None:
        for line in ["./tree", "-e .", "git+https://example.com/x", "x @ https://example.com/x.tar.gz"]:
            self.assertIn(f"`{line}` names sources", self.refused(line))

    def test_the_host_is_no_package_of_a_plugin(self) -> None:
        for line in ["toolbay", "toolbay==0.1.0", "Toolbay[build]", "toolbay ; python_version > '3'"]:
            self.assertIn("`import toolbay_sdk`", self.refused(line))

    def test_a_package_without_wheels_is_named(self) -> None:
        self.assertIn("`absent` has no wheel for Python 3.14", self.refused("absent"))

    def test_markers_are_those_of_the_guest(self) -> None:
        self.vendor('pure; sys_platform == "wasi" and python_version == "3.14"', 'absent; sys_platform != "wasi"')
        self.assertTrue((self.vendored / "pure.py").is_file())

    def test_hashes_are_compared(self) -> None:
        wrong = f"pure==1 --hash=sha256:{'0' * 64}"
        self.assertIn("HASH", self.refused(wrong).upper())

    def test_requirements_come_from_either_manifest(self) -> None:
        project = self.folder / "pyproject.toml"
        project.write_text('[project]\nname = "n"\ndependencies = ["toolbay-sdk[build]>=0.1", "toolbay-sdk-extra", "pure==1"]\n')
        self.assertEqual(packages.requirements(project), ["toolbay-sdk-extra", "pure==1"])
        (self.folder / "more.txt").write_text("both \\\n  ==1\n")
        listed = self.folder / "requirements.txt"
        listed.write_text("pure\n-r more.txt\n")
        self.assertEqual(packages.requirements(listed), ["pure", "both ==1"])


if __name__ == "__main__":
    unittest.main()
