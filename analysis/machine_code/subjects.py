"""Subjects of commands about machine code: a version, a cubin, an executable or a disassembly.

    listing = start(resolve("v07", "sm_80")).listing()

Two started subjects are disassembled side by side. A version means the cubin that was built for it and the config of
its header, unless another config is chosen; instances of other sets are found in their own build folders.
"""

import argparse
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.building import built
from analysis.errors import AnalysisError
from analysis.files import in_checkout, root
from analysis.ladder.config import KernelConfig, parse_short_form
from analysis.ladder.headers import VERSION, Version, load, stem_of
from analysis.machine_code.cubin import Cubin, Kernel
from analysis.machine_code.images import Image, has_images, is_cubin, read_bytes, read_images
from analysis.machine_code.names import config_of, name_of
from analysis.machine_code.notes import note
from analysis.machine_code.opcodes import KNOWN
from analysis.machine_code.sass import Job, Listing, parse_listing, select, start_job

MEANT_AS_VERSION = re.compile(r"[vbf]\d{1,2}[a-z]?", re.IGNORECASE)
A_VERSION = "version (v07), " if in_checkout() else ""
DEFAULT_ARCH = "sm_90"  # of the GPUs that measured: sass/ keeps the code for them, and the tables of pages quote it


@dataclass(frozen=True)
class Subject:
    """A kernel that was chosen: one of a cubin, or an already parsed one of a listing."""

    name: str  # what the user typed
    path: Path  # of the cubin or listing
    arch: str
    kernel: Kernel | None
    cubin: Cubin | None
    parsed: Listing | None
    folder: "tempfile.TemporaryDirectory[str] | None" = None  # holds an unpacked cubin while this lives

    @property
    def symbol(self) -> str:
        if self.kernel is not None:
            return self.kernel.symbol
        return self.parsed.symbol if self.parsed else ""

    @property
    def config(self) -> KernelConfig | None:
        return config_of(self.symbol) if self.symbol else None

    @property
    def label(self) -> str:
        return name_of(self.symbol) if self.symbol else "unnamed kernel"

    def cubin_or_refuse(self, purpose: str) -> tuple[Cubin, Kernel]:
        if self.cubin is None or self.kernel is None:
            raise AnalysisError(f"{self.name}: {purpose} needs a cubin, this is a listing")
        return self.cubin, self.kernel


@dataclass(frozen=True)
class Pending:
    """A subject whose listing is on its way."""

    subject: Subject
    job: Job | None

    def listing(self) -> Listing:
        listing = self.job.listing() if self.job is not None else self.subject.parsed
        assert listing is not None
        note_unknown(self.subject.name, listing)
        return listing


def note_unknown(name: str, listing: Listing) -> None:
    """Names the opcodes that no table has, and the branches that nobody knows the targets of."""
    if listing.lost:
        locations = ", ".join(f"{at.opcode} at {at.address:04x}" for at in listing.lost)
        note(f"{name}: {listing.label}: targets not known, loops through them are missed: {locations}")
    if listing.unknown:
        note_unknown_opcodes(name, listing.symbol, listing.unknown)


def note_unknown_opcodes(name: str, symbol: str, counted: Mapping[str, int]) -> None:
    """Names those of some opcodes that no table has."""
    unknown = [f"{opcode} ({times})" for opcode, times in sorted(counted.items()) if opcode not in KNOWN]
    if unknown:
        kernel = name_of(symbol) if symbol else "unnamed kernel"
        note(f'{name}: {kernel}: opcodes not known, read as printed and counted as "other": {", ".join(unknown)}')


def start(subject: Subject, options: Sequence[str] = ()) -> Pending:
    if subject.cubin is None or subject.kernel is None:
        return Pending(subject, None)
    return Pending(subject, start_job(subject.cubin, subject.kernel, subject.path, options))


def resolve(name: str, arch: str | None = None, choice: KernelConfig | str | None = None) -> Subject:
    """The kernel that a version's name or a file means. Without an architecture: DEFAULT_ARCH, or the only one."""
    if VERSION.fullmatch(name):
        return _of_version(name, arch, choice)
    path = Path(name)
    if MEANT_AS_VERSION.fullmatch(name) and in_checkout() and not path.exists():
        load(root(), name)  # the error names the version
    data = read_bytes(path)
    if is_cubin(data):
        cubin = Cubin(data, name)
        choose_arch([cubin.arch], arch, name)
        return _of_cubin(name, path, cubin, choice)
    if has_images(data):
        return _of_executable(name, path, arch, choice)
    if b"\0" in data[:4096]:
        raise AnalysisError(f"{name}: neither a cubin, an executable nor a listing")
    parsed = select(parse_listing(data.decode("utf-8", "replace"), name), choice, name)
    if parsed.arch:
        choose_arch([parsed.arch], arch, name)
    return Subject(name, path, parsed.arch, None, None, parsed)


def cubins_of_version(version: str, arch: str) -> list[Path]:
    """The cubins built for a version: the default set's first, then those of other sets."""
    build, stem = root() / "build", stem_of(version)
    return [
        path
        for path in (build / stem / f"{arch}.cubin", *sorted(build.glob(f"{stem}.*/{arch}.cubin")))
        if path.exists()
    ]


def arch_of(version: Version, asked: str | None) -> str:
    """The architecture to read of a version: the one asked for, else DEFAULT_ARCH; the only one where there is one."""
    own = version.header.arch
    if not version.one_arch:
        return asked or DEFAULT_ARCH
    if asked is not None and not version.archs([asked]):
        raise AnalysisError(f"{version.version} is for {own} alone, not for {asked}")
    return own


def built_cubins(name: str, arch: str | None, config: str = "") -> list[Path]:
    """The cubins of a version for the architecture of arch_of(), at least one. ./fl builds the one with `config`."""
    wanted = arch_of(load(root(), name), arch)
    built("cubins", VER=stem_of(name), ARCHS=wanted.removeprefix("sm_"), KERNELS=config)
    paths = cubins_of_version(name, wanted)
    if not paths:
        raise AnalysisError(f"{name} is not built for {wanted}: run `make {name} ARCHS={wanted.removeprefix('sm_')}`")
    return paths


def _of_version(name: str, arch: str | None, choice: KernelConfig | str | None) -> Subject:
    version = load(root(), name)
    wanted = version.header.config if choice is None else choice
    if isinstance(wanted, str) and wanted.startswith("("):
        wanted = parse_short_form(wanted)
    other = isinstance(wanted, KernelConfig) and wanted != version.header.config
    paths = built_cubins(name, arch, str(wanted) if other else "")
    if isinstance(wanted, KernelConfig):
        for path in paths:
            cubin = Cubin.read(path)
            if any(config_of(kernel.symbol) == wanted for kernel in cubin.entries):
                return _of_cubin(name, path, cubin, wanted)
        raise AnalysisError(f"{name} is not built with {wanted}: run `make {name} KERNELS='{wanted}'`")
    return _of_cubin(name, paths[0], Cubin.read(paths[0]), wanted)


def subject_of_cubin(path: Path, choice: KernelConfig | str | None) -> Subject:
    return _of_cubin(str(path), path, Cubin.read(path), choice)


def _of_cubin(name: str, path: Path, cubin: Cubin, choice: KernelConfig | str | None) -> Subject:
    return Subject(name, path, cubin.arch, select(cubin.entries, choice, name), cubin, None)


def choose_arch(there: Iterable[str], asked: str | None, name: str) -> str:
    """The architecture to read of those that a file has: the one asked for, else the only one, else the default one.

    A file without code for the default one may have code for sm_90a, which is for the same GPUs, or for sm_80.
    """
    known = sorted(set(there))
    if asked is None and len(known) == 1:
        return known[0]
    wanted = asked or next(
        (arch for arch in (DEFAULT_ARCH, f"{DEFAULT_ARCH}a", "sm_80") if arch in known), DEFAULT_ARCH
    )
    if wanted not in known:
        raise AnalysisError(f"{name}: no code for {wanted}; choose with --arch: {', '.join(known)}")
    return wanted


def cubins_for(images: Sequence[Image], arch: str | None, name: str) -> dict[int, Image]:
    """The cubins in a file's list of images, by index, of the architecture that choose_arch() says."""
    cubins = {location: image for location, image in enumerate(images) if image.kind == "cubin"}
    if not cubins:
        raise AnalysisError(f"{name}: holds PTX but no machine code")
    chosen = choose_arch((image.arch for image in cubins.values()), arch, name)
    return {location: image for location, image in cubins.items() if image.arch == chosen}


def _of_executable(name: str, path: Path, arch: str | None, choice: KernelConfig | str | None) -> Subject:
    """A kernel of a cubin inside another file, which is unpacked for as long as the subject lives."""
    fitting = cubins_for(read_images(path), arch, name)
    owners = [(image, kernel) for image in fitting.values() for kernel in image.cubin(name).entries]
    kernel = select([kernel for _, kernel in owners], choice, name)
    image = next(image for image, each in owners if each is kernel)
    folder = tempfile.TemporaryDirectory(prefix="flashladder.")
    unpacked = Path(folder.name) / f"{path.stem}.{image.arch}.cubin"
    unpacked.write_bytes(image.data)
    return Subject(name, unpacked, image.arch, kernel, image.cubin(name), None, folder)


# ---- arguments -------------------------------------------------------------------------------------------------------


def add_arch_argument(parser: argparse.ArgumentParser) -> None:
    """--arch of every command that reads the machine code of versions; only this line sets its default."""
    parser.add_argument("--arch", type=normal_arch, metavar="ARCH",
                        help=f"architecture to read, if there are several: sm_80, sm_90 ({DEFAULT_ARCH})")  # fmt: skip


def add_choice_arguments(parser: argparse.ArgumentParser) -> None:
    add_arch_argument(parser)
    parser.add_argument(
        "--config",
        metavar="CONFIG",
        help="the kernel to read, if there are several: symbol, name, index, or short form of ours",
    )


def add_subject_arguments(parser: argparse.ArgumentParser, many: bool = False) -> None:
    """One subject, or with `many` several: versions or files, also as --cubin FILE."""
    what = f"{A_VERSION}cubin, executable or listing"
    parser.add_argument("subjects" if many else "subject", nargs="*" if many else "?", metavar="SUBJECT", help=what)
    parser.add_argument("--cubin", metavar="FILE", help="the subject, given as an option")
    add_choice_arguments(parser)


def subjects_of(args: argparse.Namespace) -> list[Subject]:
    """The subjects that the arguments name, at least one."""
    return [resolve(name, args.arch, args.config) for name in names_in(args)]


def names_in(args: argparse.Namespace) -> list[str]:
    """The subjects as they are typed, at least one."""
    names = [*getattr(args, "subjects", [])] or [name for name in [getattr(args, "subject", None)] if name]
    names += [args.cubin] if args.cubin else []
    if not names:
        raise AnalysisError(f"SUBJECT: missing; name a {A_VERSION}cubin, executable or disassembly")
    return names


def subject_of(args: argparse.Namespace) -> Subject:
    found = subjects_of(args)
    if len(found) > 1:
        raise AnalysisError("SUBJECT: must be one version or file")
    return found[0]


def normal_arch(text: str) -> str:
    """sm_80 from 80 or sm_80."""
    arch = text if text.startswith("sm_") else f"sm_{text}"
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise AnalysisError(f"--arch {text}: expected sm_80, sm_90 or another architecture")
    return arch
