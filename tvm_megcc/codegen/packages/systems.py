# SPDX-License-Identifier: Apache-2.0
"""The systems that `megcc export` writes packages for, a row each; the command, the packages and their tests read these
rows. The module imports nothing of the project, since the command's help needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: Targets of systems that build programs for many CPUs.
_ANY = "x86-64-v3,arm64,c"
#: Names of targets that CMake, CTest and CPack have themselves, and those of Meson.
_CMAKE = frozenset(("all", "clean", "depend", "edit_cache", "help", "install", "package", "package_source",
                    "preinstall", "rebuild_cache", "test"))
_MESON = frozenset(("all", "benchmark", "clean", "coverage", "dist", "distcheck", "install", "phony", "reconfigure",
                    "test", "uninstall"))


@dataclass(frozen=True)
class System:
    """A system that packages are written for.

    what: the package in words, for messages and help.
    target: what a model is compiled for where no target is given; "": the levels of this machine.
    only: the targets that it supports; empty: all.
    hosted: it also takes code for CPUs with an operating system.
    language: a programming language: a package has one model, and functions with its inputs and outputs.
    built: the package contains compiled code.
    shares: several packages in a program share one runtime.
    text: a model file is compiled to C text, whatever its size.
    text_only: why the model must be C text, and not a file that the assembler includes, for messages; "": both work.
    weights_file: the weights are a file of their own in the package.
    programs: there are packages of folders that `megcc lm compile` and `megcc program compile` wrote.
    reserved: names that a package cannot have, besides words of a language.
    """

    what: str
    target: str = "c"
    only: tuple[str, ...] = ()
    hosted: bool = False
    language: bool = False
    built: bool = False
    shares: bool = False
    text: bool = False
    text_only: str = ""
    weights_file: bool = False
    programs: bool = False
    reserved: frozenset[str] = frozenset()


def _language(what: str, target: str = _ANY, **given: Any) -> System:
    return System(what, target, hosted=True, language=True, **given)


SYSTEMS = {
    "zephyr": System("a Zephyr module with a sample"),
    "esp-idf": System("an ESP-IDF component with an example", only=("riscv32", "riscv32-f", "c")),
    "arduino": System("an Arduino library with an example sketch"),
    "platformio": System("a PlatformIO library with an example project"),
    "cmsis-pack": System("a CMSIS-Pack", "cortex-m4", text_only="compilers other than gcc and clang do not find"),
    "stm32cube": System("a folder for Middlewares/Third_Party of an STM32Cube project", "cortex-m4"),
    "cmake": System("a CMake project with a toolchain file and presets", reserved=_CMAKE),
    "meson": System("a Meson project", _ANY, hosted=True, reserved=_MESON),
    "mlperf-tiny": System("the functions that the harness of MLPerf Tiny calls", "cortex-m4", text=True),
    "rust": _language("a Rust crate, no_std and without dependencies", shares=True, programs=True),
    "cpp": _language("a C++17 header with the C sources and CMake", shares=True, programs=True,
                     reserved=_CMAKE | {"generate", "zeros"}),
    "go": _language("a Go package, with cgo", programs=True, text_only="cgo neither copies nor watches"),
    "android": _language("a Java class with the C sources, and CMake presets for the NDK",
                         "arm64,arm64-v82,armv7,x86-64", programs=True, reserved=_CMAKE),
    "swift": _language("a Swift package, with a script that makes an XCFramework", programs=True,
                       target="arm64,arm64-v82,x86-64,x86-64-v3", text_only="Swift's package manager does not find"),
    "npm": System("an ES module with the network in WebAssembly", "wasm32-simd128", built=True, text=True,
                  programs=True),
    "wheel": System("a Python package with the network compiled in", "", built=True, weights_file=True,
                    programs=True),
    "tvm-ffi": System("a library of functions for TVM's FFI", "", built=True),
}
