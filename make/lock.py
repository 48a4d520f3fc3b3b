"""Writes requirements.lock: for each of pyproject.toml's dependency groups every package, also the indirect ones, with
the hashes of its wheels. After a change of a group, or to take newer indirect packages:

    .venv/bin/python make/lock.py
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = [
    *(f"manylinux_2_{minor}_x86_64" for minor in range(28, 4, -1)),
    *("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"),
]
# Groups of which a part is used that works without what the packages require for others.
ALONE = ("cuda12",)
HEAD = f"# Wheels for Python {', '.join(PYTHONS)} on Linux with glibc 2.28 or newer; written by make/lock.py.\n"


@dataclass
class Package:
    """A package of a group: its version, the hashes of its wheels and the Pythons that want it."""

    name: str
    version: str
    hashes: set[str] = field(default_factory=set)
    pythons: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Its lines in the lock."""
        marker = "" if len(self.pythons) == len(PYTHONS) else f' ; python_version in "{" ".join(self.pythons)}"'
        return f"{self.name}=={self.version}{marker}" + "".join(
            f" \\\n    --hash=sha256:{each}" for each in sorted(self.hashes)
        )


def resolve(wanted: list[str], python: str, alone: bool) -> list[Package]:
    """Return what pip would install for a Python of that version."""
    options = [word for platform in PLATFORMS for word in ("--platform", platform)]
    options += ["--python-version", python, "--only-binary", ":all:", *(["--no-deps"] if alone else [])]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed", "--target", folder]
        done = subprocess.run([*command, *options, "--report", f"{folder}/report", *wanted], check=False)
        if done.returncode:
            raise SystemExit(f"{LOCK.name} stays as it is: pip finds no wheels for Python {python} of {wanted}")
        report = json.loads(Path(folder, "report").read_text(encoding="utf-8"))
    return [
        Package(
            each["metadata"]["name"].lower().replace("_", "-"),
            each["metadata"]["version"],
            {each["download_info"]["archive_info"]["hashes"]["sha256"]},
            [python],
        )
        for each in report["install"]
    ]


def lock_group(wanted: list[str], alone: bool) -> list[Package]:
    """The packages of a group, in one version each: that of the oldest Python that wants them."""
    packages: dict[str, Package] = {}
    for python in PYTHONS:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as versions:
            versions.writelines(f"{each.name}=={each.version}\n" for each in packages.values())
            versions.flush()
            for found in resolve([*wanted, "--constraint", versions.name], python, alone):
                package = packages.setdefault(found.name, Package(found.name, found.version))
                package.hashes |= found.hashes
                package.pythons += found.pythons
    return sorted(packages.values(), key=lambda package: package.name)


def main() -> None:
    """Locks every group, then writes the file."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    text = HEAD
    for group, wanted in groups.items():
        text += f"\n# group {group}\n"
        text += "".join(f"{package.text()}\n" for package in lock_group(wanted, group in ALONE))
        print(f"{group}: {text.rpartition('# group ')[2].count('==')} packages", flush=True)
    LOCK.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
