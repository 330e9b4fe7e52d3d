# SPDX-License-Identifier: Apache-2.0
"""The builds of a folder for phones: Android ABIs and slices of an XCFramework."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...errors import MegccError
from ...target import Target


@dataclass(frozen=True)
class Abi:
    """An Android ABI.

    name: Android's name, such as "arm64-v8a".
    machine: the operating system's name of the machine, such as "aarch64".
    level: the oldest API level that the package supports.
    cflags: compiler flags in addition to the NDK's.
    """

    name: str
    machine: str
    level: int = 21
    cflags: tuple[str, ...] = ()


#: See https://developer.android.com/ndk/guides/abis. API 21 is the oldest with 64 bits; getauxval(), by which the
#: runtime detects the CPU, exists since API 18. The NDK has riscv64 from API 35 on.
_ABIS = (Abi("arm64-v8a", "aarch64"), Abi("armeabi-v7a", "arm"), Abi("x86_64", "x86_64"),
         Abi("riscv64", "riscv64", 35))


@dataclass(frozen=True)
class Slice:
    """A library of an XCFramework.

    platform: "ios" or "macos".
    variant: "simulator" or "".
    sdk: the name of the SDK for `xcrun`, such as "iphoneos".
    architectures: those of the library, such as "arm64".
    triples: clang's targets, one for each architecture, such as "arm64-apple-ios13.0".
    """

    platform: str
    variant: str
    sdk: str
    architectures: tuple[str, ...]
    triples: tuple[str, ...]

    @property
    def identifier(self) -> str:
        """The name of its folder in the XCFramework, such as `ios-arm64`."""
        return "-".join([self.platform, "_".join(self.architectures), *([self.variant] if self.variant else [])])


#: (platform, variant, SDK, end of triples). Devices are arm64; Macs, and simulators, which run on Macs, have two
#: architectures.
_PLATFORMS = (("ios", "", "iphoneos", "ios13.0"), ("ios", "simulator", "iphonesimulator", "ios13.0-simulator"),
              ("macos", "", "macosx", "macos11.0"))
_ARCHITECTURES = {"aarch64": "arm64", "x86_64": "x86_64"}


def abis(targets: Sequence[Target]) -> list[Abi]:
    """Returns the ABIs that run one of the targets.

    Raises:
        MegccError: if there is none.
    """
    flags = {target.machine: target.cflags for target in targets}  # the levels of one machine have the same
    found = [replace(abi, cflags=flags.get(abi.machine, ())) for abi in _ABIS if _runs(abi.machine, targets)]
    if not found:
        raise MegccError(f"no ABI of Android's runs {', '.join(map(str, targets))}: compile the model again, with "
                         "--target arm64,arm64-v82,armv7,x86-64 for example")
    return found


def check_parameters(count: int) -> None:
    """Raises MegccError for more inputs and outputs, including shapes of inputs, than a Java method can have
    parameters: 255 words (Java Virtual Machine Specification, 4.3.3), one of them for the model's address.
    """
    if count > 254:
        raise MegccError(f"{count} inputs and outputs: methods of Java have no more than 254 parameters; take the "
                         "folder as it is, or 'megcc export --for cpp'")


def slices(targets: Sequence[Target]) -> list[Slice]:
    """Returns the slices of an XCFramework, architectures in the order of their names.

    Raises:
        MegccError: if no target runs on arm64, which all of Apple's devices are.
    """
    if not _runs("aarch64", targets):
        raise MegccError(f"Apple's devices do not run {', '.join(map(str, targets))}: compile the model again, with "
                         "--target arm64,arm64-v82,x86-64 for example")
    found = []
    for platform, variant, sdk, end in _PLATFORMS:
        archs = tuple(name for machine, name in _ARCHITECTURES.items()
                      if _runs(machine, targets) and (name == "arm64" or sdk != "iphoneos"))
        found.append(Slice(platform, variant, sdk, archs, tuple(f"{name}-apple-{end}" for name in archs)))
    return found


def _runs(machine: str, targets: Sequence[Target]) -> bool:
    """Returns whether a machine runs one of the targets; "any" is portable C."""
    return any(target.machine in (machine, "any") for target in targets)
