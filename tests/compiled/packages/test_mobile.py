# SPDX-License-Identifier: Apache-2.0
"""`megcc export` for Android and Swift. Java's class runs here; the rest is compiled as the NDK and Xcode would, with
stand-ins for both."""

from __future__ import annotations

import json
import os
import plistlib
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.compiled.packages.test_languages import (
    DIGITS,
    hostile_network,
    named_as_variables,
    needs,
    of_zeros,
    ran,
    written,
)
from tests.graphs import assert_golden
from tvm_megcc.cli import main
from tvm_megcc.codegen.packages import base
from tvm_megcc.codegen.packages.languages import ports
from tvm_megcc.codegen.packages.mobile import abis, check_parameters, slices
from tvm_megcc.errors import MegccError
from tvm_megcc.runtime.toolchain import zig_command
from tvm_megcc.target import TARGETS

#: What the runtime and the JDK's jni.h take from a C library, which is not here.
LIBRARY = {
    "stdlib.h": "int posix_memalign(void **, size_t, size_t);\nvoid free(void *);\n", "stdio.h": "",
    "string.h": "void *memcpy(void *, const void *, size_t);\nvoid *memset(void *, int, size_t);\n"
                "int memcmp(const void *, const void *, size_t);\n",
    "sys/auxv.h": "unsigned long getauxval(unsigned long);\n#define AT_HWCAP 16\n#define AT_HWCAP2 26\n"}
#: What Android's own libraries have for the package's, and the compiler's for 32 bits.
FROM_ANDROID = re.compile(r"posix_memalign|free|mem(cpy|set|cmp)|getauxval|__aeabi_\w+|__(u?(div|mod)|clz)\w+")
#: The NDK's toolchain file, as much as there is of it here.
NDK = """
set(ANDROID ON)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_C_COMPILER clang)
string(REPLACE "android-" "" level ${ANDROID_PLATFORM})
set(triple_arm64-v8a aarch64-linux-android)
set(triple_armeabi-v7a armv7a-linux-androideabi)
set(triple_x86_64 x86_64-linux-android)
set(triple_riscv64 riscv64-linux-android)
set(CMAKE_C_COMPILER_TARGET ${triple_${ANDROID_ABI}}${level})
set(CMAKE_C_FLAGS_INIT "-ffreestanding -Wall -Wextra -Werror -isystem $ENV{LIBRARY} -isystem $ENV{JAVA_HOME}/include \\
-isystem $ENV{JAVA_HOME}/include/linux")
if(ANDROID_ABI STREQUAL riscv64)
  string(APPEND CMAKE_C_FLAGS_INIT " -march=rv64gc")
endif()
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-nostdlib -fuse-ld=lld")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ANDROID_ABI ANDROID_PLATFORM)
"""


def java_home() -> Path:
    needs("javac", "java", "cmake", "cc")
    return Path(shutil.which("javac")).resolve().parents[1]


def java(made: Path, name: str, program: str, monkeypatch) -> str:
    """What a program prints that uses the package's class, with the library built for this machine."""
    monkeypatch.setenv("JAVA_HOME", str(java_home()))
    monkeypatch.setenv("CFLAGS", "-Wall -Wextra -Werror")
    (made / "Main.java").write_text(program)
    ran("cmake", "-S", ".", "-B", "build/host", cwd=made)
    ran("cmake", "--build", "build/host", "-j2", cwd=made)
    ran("javac", "-Xlint:all", "-Werror", "-d", "classes", f"java/{name}/Model.java", "Main.java", cwd=made)
    said = ran("java", "-Xcheck:jni", "-Djava.library.path=build/host", "-cp", "classes", "Main", cwd=made)
    assert "WARNING" not in said and "FATAL" not in said, said
    return said


@pytest.mark.slow
def test_java(tmp_path, monkeypatch):
    java_home()
    made = tmp_path / "package"
    assert main(["export", str(DIGITS), "--for", "android", "--name", "some_digits", "--target", "c", "-q",
                 "-o", str(made)]) == 0
    said = java(made, "some_digits", """
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import some_digits.Model;

class Main {
    static void refused(Class<?> type, Runnable call) {
        try {
            call.run();
        } catch (RuntimeException error) {
            if (error.getClass() == type)
                return;
            throw error;
        }
        throw new AssertionError("nothing was thrown");
    }

    static ByteBuffer direct(int bytes) {
        return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
    }

    public static void main(String[] arguments) {
        float[] zeros = new float[Model.INPUT_IMAGE], ones = new float[Model.INPUT_IMAGE];
        Arrays.fill(ones, 1);
        Model model = new Model(), other = new Model();
        float[] first = model.run(zeros).logits.clone();
        System.out.println(Arrays.toString(first));
        float[] second = other.run(ones).logits;
        if (Arrays.equals(first, second) || !Arrays.equals(first, model.run(zeros).logits))
            throw new AssertionError("models share memory");

        ByteBuffer image = direct(1000), logits = direct(1000);
        image.position(3).limit(3 + 256);
        logits.position(9).limit(9 + 40);
        for (int i = 0; i < 64; i++)
            image.putFloat(3 + 4 * i, 1);
        model.runDirect(image, logits);
        for (int i = 0; i < 10; i++)
            if (logits.getFloat(9 + 4 * i) != second[i])
                throw new AssertionError("direct buffers");
        if (logits.get(8) != 0 || logits.position() != 9 || logits.limit() != 49)
            throw new AssertionError("beside the buffer");

        refused(IllegalArgumentException.class, () -> model.run(new float[63]));
        refused(NullPointerException.class, () -> model.run(null));
        refused(IllegalArgumentException.class, () -> model.runDirect(direct(255), logits));
        refused(IllegalArgumentException.class, () -> model.runDirect(ByteBuffer.allocate(256), logits));
        refused(IllegalArgumentException.class, () -> model.runDirect(image, direct(40).asReadOnlyBuffer()));
        model.close();
        model.close();
        refused(IllegalStateException.class, () -> model.run(zeros));
        refused(IllegalStateException.class, () -> model.runDirect(image, logits));
        refused(IllegalStateException.class, () -> model.reset());
        other.close();
    }
}
""", monkeypatch)
    values = [float(text) for text in said.partition("[")[2].partition("]")[0].split(",")]
    np.testing.assert_array_equal(np.array(values, np.float32), of_zeros(tmp_path / "c"))


@pytest.mark.slow
@pytest.mark.long  # Kotlin's compiler alone takes ten seconds
def test_kotlin(tmp_path, monkeypatch):
    """The call of docs/mobile.md in Kotlin, compiled and run here, without a warning."""
    needs("kotlinc", "kotlin")
    made = tmp_path / "package"
    assert main(["export", str(DIGITS), "--for", "android", "--name", "some_digits", "--target", "c", "-q",
                 "-o", str(made)]) == 0
    java(made, "some_digits", "class Main { public static void main(String[] arguments) { } }", monkeypatch)
    (made / "app.kt").write_text("""
import some_digits.Model

fun main() {
    val image = FloatArray(Model.INPUT_IMAGE)
    Model().use { model ->
        val outputs = model.run(image)
        println(outputs.logits.toList())
        try {
            model.run(FloatArray(63))
            println("not refused")
        } catch (error: IllegalArgumentException) {
        }
        model.reset()
    }
}
""")
    ran("kotlinc", "-Werror", "-cp", "classes", "app.kt", "-d", "app.jar", cwd=made)
    said = ran("kotlin", "-J-Djava.library.path=build/host", "-cp", "classes:app.jar", "AppKt", cwd=made)
    values = [float(text) for text in said.partition("[")[2].partition("]")[0].split(",")]
    np.testing.assert_array_equal(np.array(values, np.float32), of_zeros(tmp_path / "c"))
    assert "not refused" not in said


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    return hostile_network(tmp_path_factory.mktemp("hostile"), "c,arm64,arm64-v82,armv7,x86-64,riscv64")


@pytest.mark.slow
def test_java_with_hostile_names_and_states(hostile, tmp_path, monkeypatch):
    java_home()
    made = written(base.package(hostile, "android", name="a__1"), tmp_path / "package")
    java(made, "a__1", """
class Main {
    public static void main(String[] arguments) {
        try (a__1.Model model = new a__1.Model()) {
            for (int turn = 1; turn < 4; turn++)
                if (model.run(new float[] {1, 2, 3, 4}, new float[] {.5f, .5f, .5f, .5f}).y_x[3] != 4.5f * turn)
                    throw new AssertionError(turn);
            model.reset();
            if (model.run(new float[4], new float[] {1, 1, 1, 1}).y_x[3] != 1)
                throw new AssertionError("reset");
        }
    }
}
""", monkeypatch)


@pytest.mark.slow
def test_java_with_ports_named_as_variables(tmp_path):
    needs("javac")
    made = written(base.package(named_as_variables(tmp_path), "android"), tmp_path / "made")
    ran("javac", "-d", "classes", "java/names/Model.java", cwd=made)


@pytest.mark.slow
def test_presets(hostile, tmp_path, monkeypatch):
    """CMake reads the presets, and builds a library for each ABI that wants nothing of Android but what it has."""
    needs("cmake", "ninja", "clang", "ld.lld", "llvm-nm", "llvm-readelf")
    home = java_home()
    if not (home / "include/linux").is_dir():
        pytest.skip("the JDK is for no Linux: its jni.h is not tried")
    made = written(base.package(hostile, "android", name="fn_net"), tmp_path / "package")
    written({f"library/{name}": f"#pragma once\n#include <stddef.h>\n{text}".encode() for name, text in LIBRARY.items()}
            | {"ndk/build/cmake/android.toolchain.cmake": NDK.encode()}, tmp_path)
    for name, value in {"ANDROID_NDK_HOME": tmp_path / "ndk", "LIBRARY": tmp_path / "library",
                        "JAVA_HOME": home}.items():
        monkeypatch.setenv(name, str(value))
    presets = re.findall(r'^  "(\S+)"', ran("cmake", "--list-presets", cwd=made), re.MULTILINE)
    assert presets == ["arm64-v8a", "armeabi-v7a", "x86_64", "riscv64"]
    for preset in presets:
        ran("cmake", "--preset", preset, cwd=made)
        ran("cmake", "--build", "--preset", preset, "-j2", cwd=made)
        library = made / "build" / preset / "libfn_net_jni.so"
        symbols = [line.split() for line in ran("llvm-nm", "-D", "--undefined-only", library, cwd=made).splitlines()]
        assert [row[-1] for row in symbols if not FROM_ANDROID.fullmatch(row[-1])] == []
        given = ran("llvm-nm", "-D", "--defined-only", "--format=just-symbols", library, cwd=made).split()
        natives = re.findall(r"static native \w+ (\w+)\(", (made / "java/fn_net/Model.java").read_text())
        assert sorted(given) == sorted(f"Java_fn_1net_Model_{method}" for method in natives)
        loads = [line.split() for line in ran("llvm-readelf", "-lW", library, cwd=made).splitlines() if "LOAD" in line]
        assert {row[-1] for row in loads} == {"0x4000"}


def test_what_android_and_apple_have():
    def named(*targets: str) -> list:
        return [TARGETS[target] for target in targets]

    assert [abi.name for abi in abis(named("arm64-v82", "x86-64-v3"))] == ["arm64-v8a", "x86_64"]
    assert [abi.cflags for abi in abis(named("armv7", "c"))] == [(), ("-mfpu=neon-vfpv4",), (), ()]
    assert [abi.name for abi in abis(named("c"))] == ["arm64-v8a", "armeabi-v7a", "x86_64", "riscv64"]
    assert [part.identifier for part in slices(named("arm64"))] == ["ios-arm64", "ios-arm64-simulator", "macos-arm64"]
    with pytest.raises(MegccError, match="no ABI of Android's"):
        abis(named("cortex-m4"))
    with pytest.raises(MegccError, match="Apple's devices"):
        slices(named("x86-64", "armv7"))
    check_parameters(254)
    with pytest.raises(MegccError, match="255 inputs and outputs"):
        check_parameters(255)


def test_gradle_builds_the_abis_of_the_oldest_level(tmp_path):
    for target, filters in (("c", '"arm64-v8a", "armeabi-v7a", "x86_64"'), ("riscv64", '"riscv64"')):
        folder = tvm_megcc.compile(DIGITS, target).save(tmp_path / target, embed=True)
        assert f"abiFilters {filters} }}" in base.package(folder, "android")["README.md"].decode()


@pytest.mark.parametrize(("language", "word"), [("android", "val"), ("android", "byte"), *(
    ("swift", word) for word in ("func", "fallthrough", "defer", "deinit"))])
def test_words_of_ports(language, word):
    row = {"inputs": [{"name": word, "dtype": "int8", "shape": [1]}], "outputs": [], "states": [], "buckets": []}
    assert [ports(row, name)[0][0].word for name in (language, "")] == [f"{word}_in0", word]


@pytest.mark.parametrize("system", ["android", "swift"])
def test_descriptions_are_valid(system, hostile):
    files = base.package(hostile, system, name="fn_net")
    if system == "android":
        described = json.loads(files["CMakePresets.json"])
        hidden, *rows = described["configurePresets"]
        assert described["version"] == 3 and hidden["hidden"] and {row["inherits"] for row in rows} == {hidden["name"]}
        assert [row["cacheVariables"]["ANDROID_ABI"] for row in rows] == [row["name"] for row in rows]
        assert [row["configurePreset"] for row in described["buildPresets"]] == [row["name"] for row in rows]
    else:
        described = plistlib.loads(files["xcframework/Info.plist"])
        assert described["CFBundlePackageType"] == "XFWK" and described["XCFrameworkFormatVersion"] == "1.0"
        found = {row["LibraryIdentifier"]: row for row in described["AvailableLibraries"]}
        assert list(found) == ["ios-arm64", "ios-arm64_x86_64-simulator", "macos-arm64_x86_64"]
        for identifier, row in found.items():
            parts = [row["SupportedPlatform"], "_".join(row["SupportedArchitectures"]),
                     *([row["SupportedPlatformVariant"]] if "SupportedPlatformVariant" in row else [])]
            assert "-".join(parts) == identifier


def test_swift_as_text(hostile):
    """Nothing here compiles it."""
    files = base.package(hostile, "swift", name="fn_net")
    names = ("Package.swift", "src/include/module.modulemap", "Sources/fn_net/Model.swift",
             "Tests/fn_net_tests/ModelTests.swift")
    text = "\n".join(f"--- {name}\n{files[name].decode()}" for name in names)
    assert_golden("export_swift", re.sub(r"(Generated by \w+) [\w.]+", r"\1", text))


@pytest.mark.slow
def test_swift(tmp_path):
    """The package itself, where there is a Swift."""
    needs("swift")
    made = tmp_path / "package"
    assert main(["export", str(DIGITS), "--for", "swift", "--name", "some_digits", "-q", "-o", str(made)]) == 0
    ran("swift", "test", cwd=made)


@pytest.mark.slow
@pytest.mark.long
def test_xcframework(tmp_path):
    """The script with LLVM's tools in place of Xcode's: every slice has its architectures, clang finds the module, and
    a program for macOS links."""
    lipo = next((name for name in ("llvm-lipo", *(f"llvm-lipo-{n}" for n in range(30, 12, -1))) if shutil.which(name)),
                "llvm-lipo")
    needs("clang", "llvm-ar", lipo)
    folder = hostile_network(tmp_path, "arm64,x86-64")
    made = written(base.package(folder, "swift", name="fn_net"), tmp_path / "a package")
    variables = {"CLANG": "clang", "AR": "llvm-ar", "LIPO": lipo, "CFLAGS": "-ffreestanding -O0 -Wall -Wextra -Werror"}
    done = subprocess.run(["sh", "xcframework/build.sh", "out"], cwd=made, env={**os.environ, **variables},
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    framework = made / "out/fn_net.xcframework"
    rows = plistlib.loads((framework / "Info.plist").read_bytes())["AvailableLibraries"]
    assert {path.name for path in framework.iterdir()} == {"Info.plist", *(row["LibraryIdentifier"] for row in rows)}
    (made / "module.m").write_text("@import fn_net_c;\nunsigned x(void) { return fn_block_bytes(); }\n")
    for row in rows:
        folder = framework / row["LibraryIdentifier"]
        said = ran(lipo, "-info", folder / row["LibraryPath"], cwd=made)
        assert set(said.rpartition(": ")[2].split()) == set(row["SupportedArchitectures"])
        ran("clang", "-target", "arm64-apple-ios13.0", "-ffreestanding", "-fmodules", "-fmodules-cache-path=modules",
            "-fsyntax-only", "-Werror", "-I", folder / row["HeadersPath"], "module.m", cwd=made)
    if not zig_command():
        pytest.skip("no zig on this machine: no program for macOS is linked")
    (made / "main.c").write_text("#include <fn_net_c/fn_net_block.h>\nint main(void) { return fn_block_open(0); }\n")
    ran(*zig_command(), "cc", "-target", "aarch64-macos", "main.c", "-I", folder / "Headers",
        folder / "libfn_net.a", "-o", "program", cwd=made)
    assert (made / "program").read_bytes().startswith(b"\xcf\xfa\xed\xfe")
