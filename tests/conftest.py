# SPDX-License-Identifier: Apache-2.0
"""Configures pytest: marks the tests that `make check` (slow) and `make test` (long) leave out, groups tests that share
work in one process, and gives each process a cache."""

import os
import re
import resource
from pathlib import Path

import pytest

from tvm_megcc.codegen import table
from tvm_megcc.runtime import objects

TESTS = Path(__file__).parent
#: Folder of the object files that earlier runs compiled, by a digest of source and options. Empty it to measure a first
#: run.
SHARED_CACHE = Path(os.environ.get("MEGCC_TEST_CACHE") or Path.home() / ".cache" / "tvm_megcc-tests")

#: The tests that `make check` leaves out, since they take more than 0.5 seconds of CPU time. A line of the file has the
#: seconds and the name; `make slow-tests` measures them and writes the file.
SLOW = {line.split(maxsplit=1)[1] for line in (TESTS / "slow.txt").read_text().splitlines()}

#: File -> suffixes of the names of tests that only `make test-all` runs: they take long, and `make test` runs others of
#: the same kind.
LONG = {
    "compiled/models/test_draws.py": ("test_in_loops",),
    "compiled/models/test_integers.py": tuple(f"[speed-{name}]" for name in (
        "armv7", "arm64-v82", "arm64-v86", "wasm32-simd128", "riscv64", "x86-64", "x86-64-v3")) + (
        "test_random_models[arm64]",),
    "compiled/models/test_random_programs.py": ("test_some_interpreted", "test_some_compiled"),
    "compiled/models/test_rescaled_reals.py": ("[x86-64-v3]",),
    "compiled/models/test_sequences.py": ("test_sequences_that_turns_read_and_change[c]",),
    "compiled/models/test_special_arguments.py": tuple(f"[{name}]" for name in (
        "riscv64-v", "armv7", "arm64", "wasm32-simd128", "x86-64-v3", "cortex-m55")),
    "compiled/models/test_tflite.py": ("test_networks[basic_pitch_nmp]", "test_networks[ssd_mobilenet_v1_coco_int8]"),
    "compiled/packages/test_builds.py": ("test_eight_processes_and_one_cold_cache",),
    "compiled/packages/test_bundle.py": ("test_cmake_in_a_project_and_installed[embedded]",
                                         "test_cmake_in_a_project_and_installed[file]",
                                         "test_make_c_and_cplusplus[file]", "test_short_names[file]",
                                         "test_example_with_shapes_that_change[sets]"),
    "compiled/packages/test_embedding.py": ("test_sections_and_alignment[compiler2]",
                                            "test_sections_and_alignment[compiler3]"),
    "compiled/packages/test_languages.py": ("test_two_crates_in_one_program",),
    "compiled/packages/test_mobile.py": ("test_presets", "test_java"),
    "compiled/packages/test_objects.py": ("test_builds_without_a_store",),
    "compiled/packages/test_tvm_ffi.py": ("test_resnet8",),
    "compiled/packages/test_wheel.py": ("test_wheel_without_the_checkout",),
    "compiled/packages/test_wheels.py": ("test_states_are_kept_and_names_are_no_code",),
    "compiled/packages/test_windows.py": ("test_clang_cl_has_all_levels",),
    "compiled/programs/test_fuzz.py": ("test_any_data[sounds]", "test_any_data[boxes]"),
    "compiled/runtime/test_hostile_data.py": ("test_extreme_floats_run[x86-64-v3]", "test_extreme_floats_run[c]"),
    "compiled/runtime/test_realtime.py": tuple(f"[{name}]" for name in ("wavenet", "late lstm", "wide", "strided")),
    "compiled/runtime/test_reproducible.py": tuple(f"as_written[{name}]" for name in ("x86-64-v4", "x86-64-v3")),
    "compiled/runtime/test_runtime.py": ("test_memory_macro", "test_behaviour[large]",
                                         "test_emulated[arm-linux-gnueabihf-gcc-qemu-arm]"),
    "compiled/runtime/test_runtime_fuzz.py": ("of_a_network[size]", "of_a_network[buckets]", "of_a_network[speed]",
                                              "test_kept_corpus[calls]", "test_guided[some]"),
    "compiled/shapes/test_counts.py": ("test_boxes_of_any_size[riscv64-v]",),
    "compiled/streaming/test_cache_types.py": ("-riscv64-v]", "test_the_same_bits[float16]"),
    "compiled/streaming/test_dtln.py": ("test_it_is_what_the_networks_say",
                                        "test_every_callback_executes_as_many_instructions_as_others"),
    "compiled/streaming/test_grown_states.py": ("test_the_example", *(f"test_parts_of_a_sequence[{name}]" for name in (
        "llama-arm64", "gpt2-arm64", "counted-native"))),
    "compiled/streaming/test_streams.py": ("test_bytes_stay_bytes[cortex-m4]",),
    "compiled/tools/test_against.py": ("test_ours_beside_onnxruntime",),
    "compiled/tools/test_language_model.py": ("test_a_conversation_in_c[portable]", "test_a_program_in_c[portable]",
                                              "test_drawn_text_in_c[arm64]"),
    "compiled/tools/test_onnx_backend.py": ("test_with_parameters_as_constants[48]",
                                            "test_with_parameters_as_operands[0]", "test_others_are_forbidden"),
    "compiled/tools/test_tune.py": ("test_real_networks[resnet8_cifar10_f32-0.0001]",),
    "compiled/tools/test_tutorials.py": tuple(f"[{name}]" for name in (
        "08_quantise", "06_changing_shapes", "05_a_faster_kernel", "09_bring_your_own_codegen",
        "11_language_model")),
    "kernels/test_helium.py": ("test_kernels_as_c",),
    "kernels/test_nbits.py": tuple(f"test_products[{name}]" for name in (
        "x86-64", "riscv64-v", "x86-64-v3", "x86-64-v3-vnni", "wasm32-simd128", "arm64-v86")),
    "models/test_collection.py": ("test_verdicts_of_a_comparison",),
    "models/test_dynamic.py": (
        "test_sanitizers_find_nothing[resnet8_cifar10_f32]", *(f"find_nothing[{name}]" for name in (
            "minilm_l1_f32", "vespa_tiny_transformer", "yunet_n_dynamic", "silero_vad_op18_ifless")),
        "test_emulated[yunet_n_dynamic]", "test_emulated[minilm_l1_f32]", "test_random_shapes[yunet_n_dynamic-5]"),
    "models/test_reference.py": tuple(f"[light_{name}]" for name in (
        "vgg19", "zfnet512", "densenet121", "inception_v2", "bvlc_alexnet")),
    "models/test_targets.py": tuple(f"[resnet8_cifar10_f32-{name}]" for name in (
        "armv7", "riscv64", "riscv64-v", "arm64-v82", "wasm32-simd128")),
    "relax/test_dispatch.py": ("test_resnet_in_a_container", "test_eighty_one_cells_of_a_network"),
    "relax/test_files.py": ("test_tflite_networks[deeplab_v3_257]",),
    "relax/test_models.py": tuple(f"[{name}]" for name in (
        "sinet_portrait_seg", "kwt1_keyword_transformer", "yunet_n_dynamic", "mobilenet_v1_025_224_uint8")),
    "relax/test_random.py": tuple(f"[{seed}]" for seed in range(12, 100)),
    "relax/test_tir.py": ("test_kernels[operators-x86-64-v3-size]",),
    "unit/codegen/test_c_braces.py": tuple(f"[{name}-speed]" for name in ("arm64", "arm64-v86", "cortex-m4")),
}

#: File -> name of its unit. The tests of a unit run in one process, and do their shared work once.
UNITS = {
    "compiled/programs/test_detections.py": "detections", "compiled/programs/test_features.py": "features",
    "compiled/tools/test_audio.py": "audio", "models/test_size.py": "size",
    "unit/kernels/test_parameters.py": "parameters",  # shared: the parameters of all templates
    "unit/project/test_architecture.py": "sources", "unit/project/test_docstrings.py": "sources",
    "unit/project/test_vocabulary.py": "sources",  # shared: the parsed sources
    "unit/project/test_typing.py": "mypy"}
#: Files whose tests have a unit for each value of the first parameter, such as a network's name.
UNIT_BY_PARAMETER = {"compiled/packages/test_cv.py", "compiled/tokenizers/test_c_sentencepiece.py",
          "compiled/tokenizers/test_c_tokenizer.py", "compiled/tokenizers/test_c_unigram.py",
          "compiled/tokenizers/test_c_wordpiece.py", "compiled/tools/test_language_model.py", "kernels/test_math.py",
          "models/test_builds.py", "models/test_compiled.py", "models/test_dynamic.py"}


def unit(nodeid: str) -> str:
    """Returns the name of the unit of a test."""
    file, _, name = nodeid.removeprefix("tests/").partition("::")
    if file in UNIT_BY_PARAMETER and "[" in name:
        return f"{file} {re.split(r'-|]$', name.partition('[')[2])[0]}"
    return UNITS.get(file, nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With `--dist loadgroup`, distributes units. Units are not marks, since xdist 3.8 ignores `xdist_group` silently:
    it stores the group in an attribute that pytest 9.2 does not have."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit(nodeid)

    return Units(config, log)


def pytest_addoption(parser):
    parser.addoption("--cpu", metavar="FILE", help="appends the seconds of CPU time of each test and its subprocesses")


def cpu_seconds() -> float:
    """Returns the CPU time of this process and of the subprocesses that it waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    begin = cpu_seconds()
    yield
    if file := item.config.getoption("--cpu"):
        with open(file, "a") as out:
            out.write(f"{cpu_seconds() - begin:.2f} {item.path.relative_to(TESTS).as_posix()}::{item.name}\n")


def pytest_collection_modifyitems(items):
    for item in items:
        file = item.path.relative_to(TESTS).as_posix()
        if f"{file}::{item.name}" in SLOW:
            item.add_marker(pytest.mark.slow)
        if item.name.endswith(LONG.get(file, ())):
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="session")
def caches(tmp_path_factory):
    """Gives each process a cache of its own, whose object files are in a folder that all processes and runs share."""
    cache = tmp_path_factory.getbasetemp() / "cache"
    cache.mkdir()
    for name in ("objects", "precompiled"):
        (SHARED_CACHE / name).mkdir(parents=True, exist_ok=True)
        (cache / name).symlink_to(SHARED_CACHE / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "STORE_BYTES", 8 << 30)
        patch.setenv("MEGCC_CACHE", str(cache))
        yield


@pytest.fixture(autouse=True, scope="session")
def shared_calls():
    """Workers share every call, so that small networks test them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "WORTH_CYCLES", 0)
        patch.setattr(table, "WORTH_NANOSECONDS", 0)
        yield


def pytest_terminal_summary(terminalreporter):
    """Prints the sums over all tests of what they counted with `record_property("counted", (name, number))`."""
    totals: dict[str, int] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "counted" and getattr(report, "when", "") == "call":
                    totals[value[0]] = totals.get(value[0], 0) + value[1]
    if totals:
        terminalreporter.write_line(", ".join(f"{what}: {count:,}" for what, count in totals.items()))


@pytest.fixture
def unshared(monkeypatch):
    """Switches the shared store of object files off, for tests of builds."""
    monkeypatch.setattr(objects, "_store", lambda: None)
