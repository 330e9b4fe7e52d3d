# SPDX-License-Identifier: Apache-2.0
"""Packages of build systems: each is built as its system builds it, with a stand-in for the system itself, and what
its example prints is what the model computes."""

import json
import os
import shutil
import subprocess
import threading
import xml.etree.ElementTree as ElementTree
import zipfile
from itertools import dropwhile, islice
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import tvm_megcc
from tests.onnx_models import model, node, saved
from tvm_megcc import paths
from tvm_megcc.cli import main
from tvm_megcc.codegen.packages import base as package
from tvm_megcc.codegen.packages.languages import in_one_folder
from tvm_megcc.codegen.packages.systems import SYSTEMS
from tvm_megcc.errors import MegccError
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.export import packages as export

DIGITS = paths.examples() / "digits.onnx"
#: Systems whose packages are sources.
WRITTEN = [name for name, row in SYSTEMS.items() if not row.built]

#: What the examples include of their systems, as a program of this machine.
STAND_INS = {
    "zephyr/sys/printk.h": "#include <stdio.h>\n#define printk printf\n",
    "Arduino.h": """
#pragma once
#include <cstdio>
#include <cstdlib>
struct Console {
    operator bool() const { return true; }
    void begin(long) {}
    void print(const char *text) { std::printf("%s", text); }
    void println(int value) { std::printf("%d\\n", value); }
    void println(long value) { std::printf("%ld\\n", value); }
    void println(float value) { std::printf("%.4f\\n", value); }
};
static Console Serial;
static inline void delay(int) { std::exit(0); }
void setup();
void loop();
int main() { setup(); for (;;) loop(); }
""",
}
ZEPHYR = """
foreach(module ${ZEPHYR_EXTRA_MODULES})
  file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/prj.conf settings REGEX "^CONFIG_[A-Z0-9_]+=y$")
  foreach(setting ${settings})
    string(REPLACE "=y" "" setting ${setting})
    set(${setting} y)
  endforeach()
endforeach()
macro(zephyr_library_named name)
  add_library(${name} STATIC)
  set(current ${name})
  list(APPEND libraries ${name})
endmacro()
function(zephyr_library_sources)
  target_sources(${current} PRIVATE ${ARGN})
endfunction()
function(zephyr_library_compile_options)
  target_compile_options(${current} PRIVATE ${ARGN})
endfunction()
function(zephyr_include_directories)
  target_include_directories(${current} PUBLIC ${ARGN})
endfunction()
macro(project)
  _project(${ARGN})
  file(WRITE ${CMAKE_BINARY_DIR}/empty.c "")
  add_executable(app ${CMAKE_BINARY_DIR}/empty.c)
  target_include_directories(app PRIVATE $ENV{STAND_INS})
  foreach(module ${ZEPHYR_EXTRA_MODULES})
    include(${module}/zephyr/CMakeLists.txt)
  endforeach()
  target_link_libraries(app PRIVATE ${libraries})
endmacro()
"""
IDF = """
macro(idf_component_register)
  cmake_parse_arguments(arg "" "" "SRCS;SRC_DIRS;INCLUDE_DIRS;PRIV_REQUIRES" ${ARGN})
  get_filename_component(COMPONENT_LIB ${CMAKE_CURRENT_LIST_DIR} NAME)
  foreach(folder ${arg_SRC_DIRS})
    file(GLOB found ${CMAKE_CURRENT_LIST_DIR}/${folder}/*.c)
    list(APPEND arg_SRCS ${found})
  endforeach()
  if(COMPONENT_LIB STREQUAL main)
    add_executable(main ${arg_SRCS} $ENV{STAND_INS}/start.c)
  else()
    add_library(${COMPONENT_LIB} STATIC ${arg_SRCS})
  endif()
  target_include_directories(${COMPONENT_LIB} PUBLIC ${arg_INCLUDE_DIRS})
  target_link_libraries(${COMPONENT_LIB} PUBLIC ${arg_PRIV_REQUIRES})
endmacro()
macro(project)
  _project(${ARGN})
  foreach(component ${EXTRA_COMPONENT_DIRS})
    get_filename_component(component ${component} REALPATH)
    get_filename_component(name ${component} NAME)
    add_subdirectory(${component} ${CMAKE_BINARY_DIR}/${name})
  endforeach()
  add_subdirectory(main)
endmacro()
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """The digits for portable C and for a microcontroller."""
    made = tmp_path_factory.mktemp("generated")
    return {target: tvm_megcc.compile(DIGITS, target).save(made / f"{target}_megcc", embed=True)
            for target in ("c", "cortex-m4")}


@pytest.fixture(scope="module")
def thousandths(folders) -> list[int]:
    """What the network computes of zeros."""
    zeros = {"image": np.zeros((1, 1, 8, 8), np.float32)}
    return [int(1000 * value) for value in tvm_megcc.load(folders["c"]).run(zeros)["logits"].ravel()]


def exported(folder: Path, system: str, where: Path) -> Path:
    """The package; its folder has the model's name, as some systems want it."""
    where = where / "digits"
    assert main(["export", str(folder), "--for", system, "-o", str(where), "-q"]) == 0
    return where


def built(source: Path, program: str, environment: dict[str, str], tmp_path: Path) -> str:
    """What a program prints that CMake builds."""
    if not shutil.which("cmake"):
        pytest.skip("no cmake on this machine")
    stand_ins = tmp_path / "stand_ins"
    for name, text in {**STAND_INS, "start.c": "void app_main(void);\nint main(void) { app_main(); return 0; }\n",
                       "tools/cmake/project.cmake": IDF, "cmake/ZephyrConfig.cmake": ZEPHYR}.items():
        (stand_ins / name).parent.mkdir(parents=True, exist_ok=True)
        (stand_ins / name).write_text(text)
    variables = {name: str(stand_ins) for name in ("STAND_INS", *environment)}
    build = tmp_path / "build"
    for command in (["cmake", "-S", source, "-B", build, f"-DZephyr_DIR={stand_ins / 'cmake'}"],
                    ["cmake", "--build", build, "-j2"]):
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})
        assert done.returncode == 0, done.stdout + done.stderr
    (binary,) = (path for path in build.rglob(program) if path.is_file())
    return subprocess.run([binary], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize(("system", "example", "program", "home"), [
    ("zephyr", "samples/digits", "app", "ZEPHYR_BASE"), ("esp-idf", "examples/digits", "main", "IDF_PATH")])
def test_examples_of_cmake(system, example, program, home, folders, thousandths, tmp_path):
    """ESP-IDF calls a component as its folder, which need not be the network's name."""
    package = exported(folders["c"], system, tmp_path).rename(tmp_path / "my_component")
    said = built(package / example, program, {home: ""}, tmp_path).splitlines()
    assert said[0] == "digits: 0"
    assert [int(line.removesuffix(" / 1000")) for line in said[1:]] == thousandths


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_elements_that_c_has_no_numbers_of_are_printed_as_bits(dtype, tmp_path):
    """By the examples, whose numbers would be others."""
    kind = TensorProto.FLOAT16 if dtype == "float16" else TensorProto.BFLOAT16
    one = helper.make_tensor("one", kind, [1], [1.5])
    made = model([node("Constant", "", "one", value=one), node("Add", "x one", "y")], {"x": (kind, [2])},
                 {"y": (kind, [2])})
    folder = tvm_megcc.compile(made, "c", name="digits").save(tmp_path / "c", embed=True)
    bits = ["0x3e00" if dtype == "float16" else "0x3fc0"] * 2
    assert built(exported(folder, "esp-idf", tmp_path) / "examples/digits", "main", {"IDF_PATH": ""},
                 tmp_path).splitlines() == ["digits: 0", *bits]
    subprocess.run(["make", "-C", folder, "-j2"], check=True, capture_output=True)
    assert subprocess.run([folder / "build/make/main"], capture_output=True, text=True).stdout.split() == bits
    assert "Serial.println(y[i], HEX);" in package.package(folder, "arduino")["examples/digits/digits.ino"].decode()
    files = package.package(folder, "cpp")
    for name, data in files.items():
        (tmp_path / "cpp" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cpp" / name).write_bytes(data)
    for command in (["cmake", "-B", "build"], ["cmake", "--build", "build"]):
        subprocess.run(command, cwd=tmp_path / "cpp", check=True, capture_output=True)
    said = subprocess.run([tmp_path / "cpp/build/zeros"], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["y:", *bits]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not os.environ.get("ZEPHYR_BASE"), reason="ZEPHYR_BASE names no Zephyr: its own build is not tried")
def test_zephyr_itself(thousandths, tmp_path):
    """Zephyr's own build, for an emulated board. Without west, ZEPHYR_MODULES names CMSIS; the toolchain is the
    environment's, or GCC for Arm as Debian has it."""
    for tool in ("cmake", "ninja", "qemu-system-arm", "arm-none-eabi-gcc"):
        if not shutil.which(tool):
            pytest.skip(f"no {tool} on this machine")
    folder = tvm_megcc.compile(DIGITS, "cortex-m3").save(tmp_path / "m3", embed=True)
    sample, build = exported(folder, "zephyr", tmp_path) / "samples/digits", tmp_path / "build"
    variables = {"ZEPHYR_TOOLCHAIN_VARIANT": "cross-compile", **os.environ,
                 "CROSS_COMPILE": shutil.which("arm-none-eabi-gcc").removesuffix("gcc")}
    modules = [f"-DZEPHYR_MODULES={os.environ['ZEPHYR_MODULES']}"] if "ZEPHYR_MODULES" in os.environ else []
    for command in (["cmake", "-GNinja", "-S", sample, "-B", build, "-DBOARD=qemu_cortex_m3", *modules],
                    ["ninja", "-C", build]):
        done = subprocess.run(command, capture_output=True, text=True, env=variables)
        assert done.returncode == 0, done.stdout + done.stderr
    board = subprocess.Popen(["qemu-system-arm", "-M", "lm3s6965evb", "-nographic", "-kernel",
                              build / "zephyr/zephyr.elf"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    alarm = threading.Timer(60, board.kill)  # the kernel idles when its main program has returned
    alarm.start()
    said = islice(dropwhile(lambda line: not line.startswith("digits:"), board.stdout), 1 + len(thousandths))
    status, *results = [line.strip() for line in said] or ["nothing"]
    alarm.cancel()
    board.kill()
    assert status == "digits: 0"
    assert [int(line.removesuffix(" / 1000")) for line in results] == thousandths


@pytest.mark.slow
@pytest.mark.parametrize(("system", "sketch"), [("arduino", "examples/digits/digits.ino"),
                                                ("platformio", "examples/digits/src/main.cpp")])
def test_sketches(system, sketch, folders, thousandths, tmp_path):
    """All C below src/ is compiled, by a rule that has one include folder and no flags of ours."""
    package = exported(folders["c"], system, tmp_path)
    (tmp_path / "Arduino.h").write_text(STAND_INS["Arduino.h"])
    objects = []
    for number, source in enumerate(sorted((package / "src").rglob("*.c"))):
        objects.append(tmp_path / f"{number}.o")
        subprocess.run(["gcc", "-std=gnu11", "-Os", "-w", f"-I{package / 'src'}", "-c", source, "-o", objects[-1]],
                       check=True)
    flags = ["-std=gnu++17", "-Os", "-Wall", "-Werror", f"-I{package / 'src'}", f"-I{tmp_path}", "-includeArduino.h"]
    subprocess.run(["g++", *flags, "-x", "c++", package / sketch, "-x", "none", *objects, "-o", tmp_path / "sketch"],
                   check=True)
    said = subprocess.run([tmp_path / "sketch"], capture_output=True, text=True, check=True).stdout.split("\n")
    assert said[0] == "digits: 0" or system == "platformio"
    assert [int(1000 * float(line)) for line in said[1:-1]] == pytest.approx(thousandths, abs=1)


@pytest.mark.slow
def test_every_file_is_compiled_for_the_microcontroller_without_a_flag_of_ours(folders, tmp_path):
    """And gives the code that it gives with -ffp-contract=off."""
    if not shutil.which("arm-none-eabi-gcc"):
        pytest.skip("no arm-none-eabi-gcc on this machine")
    package = exported(folders["cortex-m4"], "stm32cube", tmp_path)
    command = ["arm-none-eabi-gcc", "-std=gnu11", "-O2", "-mthumb", "-mcpu=cortex-m4", "-mfloat-abi=hard", "-Wall",
               "-Werror", "-mfpu=fpv4-sp-d16", f"-I{package / 'src'}", f"-I{package / 'app'}", "-S", "-o", "-"]
    for source in sorted([*(package / "src").rglob("*.c"), *(package / "app").glob("*.c")]):
        strings = [subprocess.run([*command, *flags, source], capture_output=True, text=True, check=True).stdout
                 for flags in ([], ["-ffp-contract=off"])]
        assert strings[0] == strings[1], source


def test_all_packages_have_the_same_sources(folders, tmp_path):
    for target, folder in folders.items():
        others = ("mlperf-tiny", "go", *(("android", "swift", "esp-idf") if target != "c" else ()))
        packages = [package.package(folder, system) for system in WRITTEN if system not in others]
        sources = [{name: data for name, data in files.items() if name.startswith("src/")
                    and not name.startswith("src/include/")
                    and name not in ("src/main.c", "src/lib.rs", "src/digits_block.c")}
                   for files in packages]
        # Those that share a runtime with others have the part for shapes that change as well.
        configured = {system: files.pop("src/megcc_config.h") for system, files in
                      zip((system for system in WRITTEN if system not in others), sources, strict=True)}
        assert {system for system, text in configured.items() if b"MEGCC_NO_DYNAMIC" not in text} == {"rust", "cpp"}
        assert len(set(configured.values())) == 2
        for files in sources:
            assert files == sources[0], target
        beside = package.package(folder, "go")
        assert in_one_folder(sources[0]).items() <= beside.items()


def test_descriptions_name_files_that_are_there(folders, tmp_path):
    files = package.package(folders["cortex-m4"], "cmsis-pack", "2.0.1", "https://example.com/packs/")
    root = ElementTree.fromstring(files["tvm_megcc.digits.pdsc"])
    named = [row.get("name") for row in root.iter("file")]
    assert {name for name in named if not name.endswith("/")} <= files.keys()
    assert {name for name in files if name.endswith(".c")} <= set(named)
    assert {row.get("Dcore") for row in root.iter("accept")} >= {"Cortex-M4"}
    assert root.findtext("url") == "https://example.com/packs/"
    (tmp_path / "x.pack").write_bytes(files["tvm_megcc.digits.2.0.1.pack"])
    with zipfile.ZipFile(tmp_path / "x.pack") as archive:
        assert set(archive.namelist()) == files.keys() - {"tvm_megcc.digits.2.0.1.pack"}
    described = json.loads(package.package(folders["c"], "platformio")["library.json"])
    assert described["version"] == "1.0.0" and described["headers"] == ["digits.h"]
    properties = package.package(folders["c"], "arduino")["library.properties"].decode()
    assert {line.partition("=")[0] for line in properties.splitlines()} >= {
        "name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url", "architectures"}


def test_what_is_said_of_the_cpu(folders, tmp_path):
    """Boards, and what a build system refuses to build for another CPU."""
    m4 = {system: package.package(folders["cortex-m4"], system) for system in ("zephyr", "arduino", "platformio")}
    assert b"architectures=mbed_nano,nrf52,renesas_uno,samd,stm32\n" in m4["arduino"]["library.properties"]
    assert b"board = nucleo_f446re" in m4["platformio"]["examples/digits/platformio.ini"]
    assert b"depends on CPU_CORTEX_M4 || CPU_CORTEX_M7\n" in m4["zephyr"]["zephyr/Kconfig"]
    sample = m4["zephyr"]["samples/digits/sample.yaml"].decode()
    assert "filter: CONFIG_CPU_CORTEX_M4 or CONFIG_CPU_CORTEX_M7\n" in sample
    assert b"CONFIG_FPU" not in m4["zephyr"]["samples/digits/prj.conf"]
    with pytest.raises(MegccError, match="none of which esp-idf has: compile the model again, with target riscv32"):
        package.package(folders["cortex-m4"], "esp-idf")
    c = {system: package.package(folders["c"], system) for system in ("zephyr", "arduino", "cmsis-pack")}
    assert b"architectures=*\n" in c["arduino"]["library.properties"]
    assert b"depends" not in c["zephyr"]["zephyr/Kconfig"]
    assert b"<url></url>" in c["cmsis-pack"]["tvm_megcc.digits.pdsc"]
    m52, m55, riscv = (tvm_megcc.compile(DIGITS, target).save(tmp_path / target, embed=True)
                       for target in ("cortex-m52", "cortex-m55", "riscv32"))
    assert b"CONFIG_FPU=y" in package.package(m55, "zephyr")["samples/digits/prj.conf"]
    versions = {folder.name: ElementTree.fromstring(package.package(folder, "cmsis-pack")["tvm_megcc.digits.pdsc"])
                .get("schemaVersion") for folder in (m52, m55)}
    assert versions == {"cortex-m52": "1.7.31", "cortex-m55": "1.7.7"}
    sample = package.package(riscv, "zephyr")["samples/digits/sample.yaml"]
    assert b"filter: CONFIG_RISCV and not CONFIG_64BIT\n" in sample
    assert b"board = esp32-c3-devkitm-1" in package.package(riscv, "platformio")["examples/digits/platformio.ini"]
    assert b"set-target esp32c3" in package.package(riscv, "esp-idf")["README.md"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_has_a_target_of_its_own(system):
    """That a model file is compiled for where no --target is given."""
    for name in export.default_target(system).split(","):
        assert name in TARGETS and name in (SYSTEMS[system].only or (name,))


def test_states_are_not_written(tmp_path):
    """A network that keeps a state: the example leaves it to the session."""
    made = model([node("Add", "x h", "y"), node("Identity", "y", "n")], {"x": [4], "h": [4]}, {"y": [4], "n": [4]})
    path = saved(made, tmp_path / "sum.onnx")
    folder = tvm_megcc.compile(path, "c", states={"n": "h"}).save(tmp_path / "sum_megcc", embed=True)
    example = package.package(folder, "esp-idf")["examples/sum/main/main.c"].decode()
    assert "if (i == 1) {\n            continue; /* the session keeps this state */" in example


def test_many_states_are_one_condition(tmp_path):
    """Eight to a line."""
    states = {f"n{i}": f"h{i}" for i in range(9)}
    nodes = [node("Add", f"x {h}", n) for n, h in states.items()]
    made = model([*nodes, node("Sum", " ".join(states), "y")], {name: [4] for name in ["x", *states.values()]},
                 {name: [4] for name in ["y", *states]})
    folder = tvm_megcc.compile(saved(made, tmp_path / "sums.onnx"), "c", states=states).save(tmp_path / "sums_megcc",
                                                                                         embed=True)
    example = package.package(folder, "esp-idf")["examples/sums/main/main.c"].decode()
    first = " || ".join(f"i == {i}" for i in range(1, 9))
    assert f"if ({first} ||\n            i == 9) {{\n            continue; /* the session keeps these" in example


#: The harness of MLPerf Tiny, as much as a run needs of it: it loads the bytes of stdin, infers twice, and asks for
#: the results.
HARNESS = """
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#define EE_CFG_ENERGY_MODE 0
#define EE_MSG_TIMESTAMP "lap %lu\\n"
#define EE_MSG_TIMESTAMP_MODE "performance\\n"
void th_load_tensor(), th_results(), th_infer(), th_timestamp(void), th_printf(const char *, ...);
void th_final_initialize(void), th_serialport_initialize(void), th_timestamp_initialize(void), th_pre(), th_post();
void th_command_ready(char volatile *), ee_serial_command_parser_callback(char *);
int th_vprintf(const char *, va_list);
char th_getchar();
size_t ee_get_buffer(uint8_t *, size_t);
"""
HARNESS_MAIN = """
#include "api/submitter_implemented.h"
void ee_serial_command_parser_callback(char *) {}
size_t ee_get_buffer(uint8_t *to, size_t most) { return fread(to, 1, most, stdin); }
int main()
{
    th_serialport_initialize(), th_timestamp_initialize(), th_final_initialize(), th_load_tensor();
    th_infer(), th_infer(), th_timestamp(), th_results();
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("elements", [49 * 10, 32 * 32 * 3, 640])
def test_mlperf_tiny(elements, tmp_path):
    """The functions that the harness calls: what it sends comes out as the network's results."""
    generator = np.random.default_rng(elements)
    outputs = elements if elements == 640 else 10
    weights = generator.integers(-127, 128, (elements, outputs)).astype(np.int8)
    one, zero, scale = np.float32(1), np.int8(0), np.float32(1 / 256)
    made = model(
        [node("DequantizeLinear", "x s z", "a"), node("DequantizeLinear", "w t z", "b"), node("MatMul", "a b", "c"),
         node("QuantizeLinear", "c u v", "y")], {"x": ("int8", [1, elements])}, {"y": ("int8", [1, outputs])},
        {"w": weights, "s": one, "t": np.float32(1e-5), "u": scale, "z": zero, "v": np.int8(-128)})
    folder = tvm_megcc.compile(saved(made, tmp_path / "net.onnx"), "native,c").save(tmp_path / "net", embed=True)
    session = tvm_megcc.load(folder)
    if elements == 640:
        sent = generator.normal(0, 40, elements).astype(np.float32)
        given = session.inputs[0].quant.quantize(sent, "int8")
        reals = session.run_float([given[None]])["y"].ravel()
        expected = [float(np.mean((reals - given) ** 2))]
    else:
        sent = generator.integers(0, 256, elements).astype(np.uint8)
        given = sent.view(np.int8) if elements == 490 else (sent.astype(int) - 128).astype(np.int8)
        expected = session.run_float([given[None]])["y"].ravel().tolist()
    files = package.package(folder, "mlperf-tiny")
    for name, data in {**files, "api/submitter_implemented.h": HARNESS.encode(), "main.cpp": HARNESS_MAIN.encode(),
                       "api/internally_implemented.h": b""}.items():
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_bytes(data)
    for command in ("cc -O1 -Isrc -c $(find src -name '[a-z]*.c')",
                    "c++ -O1 -Wall -Wextra -Werror -Isrc -I. *.cpp *.o -o benchmark"):
        subprocess.run(command, shell=True, check=True, cwd=tmp_path / "out")
    said = subprocess.run([tmp_path / "out" / "benchmark"], input=sent.tobytes(), capture_output=True, check=True)
    results = said.stdout.decode().splitlines()[-1]
    assert results.startswith("m-results-[") and results.endswith("]")
    np.testing.assert_allclose([float(text) for text in results[11:-1].split(",")], expected, atol=1.01e-3)


def test_other_networks_are_none_of_mlperf_tiny(folders):
    with pytest.raises(MegccError, match="not a network of MLPerf Tiny"):
        package.package(folders["c"], "mlperf-tiny")


@pytest.mark.parametrize(("change", "message"), [
    ({"target": "native"}, "none of which is a microcontroller"),
    ({"embed": False}, "a package of zephyr needs it in the code: compile it again with --weights text"),
    ({"version": "1.0"}, "three numbers"), ({"url": "http://a b"}, "no address of a web page"),
    ({"url": "http://a//*b"}, "no address of a web page"), ({"url": "http://" + "a/" * 200}, "no address"),
    ({"dispatch": "image[0]=1..*"}, "has no upper bound")])
def test_refusals(change, message, tmp_path):
    dispatch = {"dispatch": change["dispatch"]} if "dispatch" in change else {}
    folder = tvm_megcc.compile(DIGITS, change.get("target", "c"), **dispatch).save(
        tmp_path / "digits", embed=change.get("embed", True))
    with pytest.raises(MegccError, match=message):
        package.package(folder, "zephyr", change.get("version", "1.0.0"), change.get("url", ""))


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(DIGITS), "--for", "arduino"]) == 0
    made = tmp_path / "digits_arduino"
    assert "Compiled for any CPU:" in (made / "library.properties").read_text()
    assert "an Arduino library" in capsys.readouterr().out and (made / "library.properties").exists()
    assert main(["export", str(DIGITS), "--for", "arduino", "--target", "cortex-m4"]) == 1
    assert "exists already" in capsys.readouterr().err
    assert main(["export", str(DIGITS), "--for", "arduino", "--target", "cortex-m4", "--force"]) == 0
    with pytest.raises(SystemExit):
        main(["export", str(DIGITS), "--for", "mbed"])
    assert "zephyr" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../../outside.c", "/tmp/outside.c", "kernels/../../outside.h", "a\\..\\b.c",
                                  "C:b.c", ""])
def test_files_outside_of_the_folder_are_refused(name, folders, tmp_path):
    """Or a hostile folder would have any file read, and written anywhere."""
    (tmp_path / "in").mkdir()
    manifest = json.loads((folders["c"] / "manifest.json").read_text())
    manifest["files"][name] = "0"
    (tmp_path / "in" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(MegccError, match="a file is not below the folder"):
        package.package(tmp_path / "in", "zephyr")


def test_a_readme_begins_with_whole_commands(tmp_path):
    """Each line of a block of commands is one."""
    folder = tvm_megcc.compile(DIGITS, "cortex-m4").save(tmp_path / "digits", embed=True)
    text = package.package(folder, "cmake")["README.md"].decode()
    assert "\n\n    cmake --preset cortex-m4\n    cmake --build --preset cortex-m4 " in text
