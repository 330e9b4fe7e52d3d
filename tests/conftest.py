# SPDX-License-Identifier: Apache-2.0
"""Which tests `make check` leaves out: those that compile much C, but for one of each kind. Which `make test` leaves
out too: more of what it has already. And which run together, and what they share."""

import os
from pathlib import Path

import pytest

from tvm_megcc.runtime import objects

TESTS = Path(__file__).parent

#: File -> part of the test's name that stays quick; all other tests of the file are slow. "" keeps none.
QUICK_PART = {
    "compiled/runtime/test_runtime_fuzz.py": "corpus[indexed]",
    "models/test_compiled.py": "mnist8-native-speed",
    "models/test_builds.py": "",
    "models/test_streaming.py": "dtln_stage1-native",
}

#: File -> tests that take seconds and show little that another quick one does not, by how their names begin.
SLOW = {
    "compiled/runtime/test_runtime.py": (
        "test_switches[DYNAMIC]", "test_switches[THREADS]", "test_switches[CPU_DETECT]", "test_no_warnings[clang",
        "test_no_warnings[aarch64"),
    "compiled/packages/test_builds.py": ("test_all_files_are_free_of_warnings",),
    "kernels/test_math.py": ("test_functions_of_doubles",),
    "compiled/packages/test_precompiled.py": ("test_used_and_the_same_code[x86-64-v4", "test_a_header_for_other_flags"),
    "compiled/packages/test_bundle.py": ("test_two_models_in_one_folder", "test_example_with_shapes_that_change"),
    "compiled/tools/test_tune.py": ("test_every_candidate_is_in_the_log", "test_the_same_log_gives_the_same_bytes"),
    "compiled/runtime/test_hostile_data.py": ("test_sequence_lengths_off_the_input",),
    "models/test_memory_bound.py": ("test_arena_meets_the_bound_of_the_onnx_graph[light_resnet50",),
    "relax/test_random.py": tuple(f"test_random_graph[{seed}]" for seed in range(3, 100)),
    "compiled/models/test_tflite.py": ("test_quantised_network[",),
}

#: File -> tests that `make test-all` runs alone, by how their names end.
LONG = {
    "models/test_compiled.py": tuple(f"[light_{name}{rest}]" for name in (
        "vgg19", "zfnet512", "bvlc_alexnet", "densenet121", "inception_v2")
        for rest in ("", "-native-speed", "-arm64-speed")) + (
        "[yolox_nano_416-arm64-size]",) + tuple(f"[{name}-arm64-speed]" for name in (
        "deeplab_v3_257", "basic_pitch_nmp", "yolox_nano_416", "lw_person_detector_192", "sinet_portrait_seg",
        "yunet_n_dynamic", "light_shufflenet", "kwt1_keyword_transformer")),
    "models/test_builds.py": ("[ultraface_rfb320]", "[yolox_nano_416]", "find_nothing[light_resnet50]"),
    "models/test_dynamic.py": tuple(f"find_nothing[{name}]" for name in (
        "minilm_l1_f32", "vespa_tiny_transformer", "yunet_n_dynamic")),
    "models/test_reference.py": ("[light_vgg19]", "[light_zfnet512]"),
    "compiled/packages/test_bundle.py": ("test_cmake_in_a_project_and_installed[embedded]",),
    "compiled/runtime/test_runtime_fuzz.py": ("of_a_network[size]", "of_a_network[buckets]"),
    "relax/test_random.py": tuple(f"[{seed}]" for seed in range(20, 100)),
    "compiled/shapes/test_counts.py": ("test_boxes_of_any_size[riscv64-v]",),
    "relax/test_dispatch.py": ("test_resnet_in_a_container",),
    "compiled/tools/test_onnx_backend.py": ("test_with_parameters_as_constants[48]",),
}

#: Files whose tests share what a fixture compiled for a network, by the name of the parameter that is its name: those
#: of one network run in one process.
SHARED = {"models/test_compiled.py": "name", "models/test_builds.py": "name", "models/test_dynamic.py": "model"}


def pytest_collection_modifyitems(items):
    for item in items:
        file = item.path.relative_to(TESTS).as_posix()
        if file in SHARED and hasattr(item, "callspec") and SHARED[file] in item.callspec.params:
            item.add_marker(pytest.mark.xdist_group(f"{file} {item.callspec.params[SHARED[file]]}"))
        part = QUICK_PART.get(file)
        if part is not None and not (part and part in item.name) and hasattr(item, "callspec"):
            item.add_marker(pytest.mark.slow)
        if item.name.startswith(SLOW.get(file, ())):
            item.add_marker(pytest.mark.slow)
        if item.name.endswith(LONG.get(file, ())):
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="session")
def caches(tmp_path_factory):
    """A cache for each process, and object files that all processes share."""
    own = tmp_path_factory.getbasetemp()
    store = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "objects"
    store.mkdir(exist_ok=True)
    (own / "cache").mkdir()
    (own / "cache" / "objects").symlink_to(store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEGCC_CACHE", str(own / "cache"))
        yield


def pytest_terminal_summary(terminalreporter):
    """A line of what tests counted (`record_property("counted", (what, how many))`), summed over all of them."""
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
    """For tests about building: every folder compiles its own."""
    monkeypatch.setattr(objects, "_store", lambda: None)
