# SPDX-License-Identifier: Apache-2.0
"""Memory in several regions: what --region may say, where the planner puts what, and what is said where it does not
fit."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graphs import Builder
from tests.rows_graphs import separable
from tests.unit.codegen.test_memory import buffer_lists, short_search  # noqa: F401
from tvm_megcc.codegen import bundle, container
from tvm_megcc.codegen.memory.offsets import Buffer, plan, verify, with_constants
from tvm_megcc.codegen.memory.planner import own_bytes
from tvm_megcc.compiler import compile_graph, context_of, lower
from tvm_megcc.context import Regions
from tvm_megcc.errors import InternalError, MegccError
from tvm_megcc.target import parse_targets

M4 = parse_targets("cortex-m4")


def test_what_may_be_said():
    regions = Regions.parse("dtcm=64K, sram=256k,flash=1M")
    assert regions == Regions((("dtcm", 65536), ("sram", 262144)), 2, 1 << 20)
    assert Regions.parse(str(regions)) == regions
    assert Regions.parse("a=1") == Regions((("a", 1),), 1) == Regions.parse(str(Regions.parse("a=1")))
    before = Regions.parse("dtcm=64,flash=5,sram=7")
    assert before == Regions((("dtcm", 64), ("sram", 7)), 1, 5) and Regions.parse(str(before)) == before


@pytest.mark.parametrize("text, said", [
    ("x=0", "at least one"), ("x=2048M", "fewer than 2 GB"), ("x=99999999999", "fewer than 2 GB"), ("x", "NAME=SIZE"),
    ("", "NAME=SIZE"), ("=4K", "NAME=SIZE"), ("x=-1", "NAME=SIZE"), ("x=4G", "NAME=SIZE"), ("x=4K,x=8K", "twice"),
    ("X=4K", "NAME=SIZE"), ('x"];=4', "NAME=SIZE"), ("x\n=4", "x"), ("9a=4", "NAME=SIZE"), ("ä=4", "NAME=SIZE"),
    ("x=٤", "NAME=SIZE"), ("a" * 25 + "=4", "NAME=SIZE"), ("flash=1M", "1 to 4"), ("a=1,b=1,c=1,d=1,e=1", "1 to 4"),
    ("a=1,,b=1", "NAME=SIZE")])
def test_nonsense_is_refused(text, said):
    if text == "x\n=4":     # space around a name is nothing
        assert Regions.parse(text).ram == (("x", 4),)
        return
    with pytest.raises(MegccError, match=re.escape(said)) as refused:
        Regions.parse(text)
    assert "\n" not in str(refused.value)


@given(buffer_lists(), st.lists(st.integers(0, 60), min_size=1, max_size=4), st.integers(0, 4), st.randoms())
@settings(deadline=None, max_examples=150)
def test_plans_verify(short_search, buffers, sizes, hot, rng):  # noqa: F811
    buffers = [replace(b, traffic=rng.random() * 9) for b in buffers]
    limits = [256 * size for size in sizes]
    result = plan(buffers, 16, limits)
    if result.missing:
        assert result.arena_bytes - result.missing == sum(limits)
        return
    constants = [Buffer(f"c{i}", rng.randrange(3000), 0, 99, kind="constant", traffic=rng.random()) for i in range(5)]
    result = with_constants(buffers, constants, result, min(hot, len(limits)))
    placed = [b for b in constants if b.name in result.offsets]
    verify([*buffers, *placed], result)
    assert all(used <= limit for used, limit in zip(result.regions, limits, strict=True))
    assert sum(result.regions) == result.arena_bytes
    assert not hot or all(result.offsets[b.name] < sum(result.regions[:hot]) for b in placed)


def test_the_verifier_sees_what_lies_in_two_regions():
    buffers = [Buffer("a", 96, 0, 1), Buffer("b", 64, 0, 1)]
    good = plan(buffers, 16, [96, 64])
    verify(buffers, good)
    with pytest.raises(InternalError, match="'a' at 64"):
        verify(buffers, replace(good, offsets={"a": 64, "b": 0}))


def test_what_is_touched_most_is_in_the_first_region():
    cold, hot = Buffer("cold", 96, 0, 1, traffic=1), Buffer("hot", 64, 0, 1, traffic=50)
    result = plan([cold, hot], 16, [96, 960])
    assert result.offsets["hot"] == 0 and result.offsets["cold"] >= 96
    once, often = (Buffer(name, 32, 0, 1, kind="constant", traffic=t) for name, t in (("once", 1), ("often", 9)))
    placed = with_constants([cold, hot], [once, often], result, 1)
    assert placed.offsets["often"] == 64 and "once" not in placed.offsets and placed.regions == (96, 96)
    assert "once" in with_constants([cold, hot], [once, often], result, 2).offsets


def test_what_follows_a_region_that_shrinks_stays_aligned():
    buffers = [Buffer("a", 16, 0, 1, traffic=9), Buffer("b", 128, 0, 1, 64)]
    placed = with_constants(buffers, [], plan(buffers, 16, [64, 128]), 1)
    verify(buffers, placed)
    assert placed.offsets == {"a": 0, "b": 64} and placed.regions == (64, 128)


def test_what_a_session_needs_is_what_the_runtime_asks_for():
    b = Builder()
    x, y = (b.input(name, 4) for name in "xy")
    graph = b.graph(*(b.op(kind, x, y) for kind in ("add", "sub", "mul")))
    (program,) = container.read(compile_graph(graph, M4).container).programs
    plan = lower(graph, context_of(graph, M4[0])).plan
    assert own_bytes(plan) + program.device_models[0].arena_bytes == container.program_bytes(program, 4)


def test_a_network_by_region():
    artifact = compile_graph(separable(), M4, regions=Regions.parse("dtcm=4K,sram=64K"))
    files = bundle.contents([artifact], embed=True)
    (program,) = container.read(artifact.container).programs
    (memories,) = program.device_models
    rows = artifact.manifest["programs"][0]["regions"]
    assert [row["name"] for row in rows] == ["dtcm", "sram"] and tuple(row["bytes"] for row in rows) == memories.regions
    assert container.program_bytes(program, 4) <= 4096 and 0 < memories.regions[1] <= 64 << 10
    copied = [slot for tensor, slot in zip(program.tensors, memories.tensors, strict=True)
              if tensor.storage == container.Storage.weight and slot.bytes]
    assert copied
    header, data = (files[f"{artifact.name}{end}"].decode() for end in (".h", "_data.c"))
    name, macro = artifact.name, artifact.name.upper()
    assert f"#define {macro}_MEMORY_BYTES_DTCM {macro}_MEMORY_BYTES\n" in header
    assert f"#define {macro}_MEMORY_BYTES_SRAM {memories.regions[1]}u\n" in header
    assert f"ALIGNED {macro}_SECTION_SRAM unsigned char {name}_memory_sram[{macro}_MEMORY_BYTES_SRAM];" in data
    assert f"region dtcm {' ' * 8}" in artifact.report
    # Flash first: constants stay there.
    flash = compile_graph(separable(), M4, regions=Regions.parse("flash=1M,dtcm=4K,sram=64K"))
    (memories,) = container.read(flash.container).programs[0].device_models
    assert not any(slot.bytes for tensor, slot in zip(program.tensors, memories.tensors, strict=True)
                   if tensor.storage == container.Storage.weight)


def test_one_region_is_a_limit_of_ram():
    free = compile_graph(separable(), M4)
    needed = container.program_bytes(container.read(free.container).programs[0], 4)
    named = compile_graph(separable(), M4, regions=Regions.parse(f"flash=1M,sram={needed}"))
    assert container.program_bytes(container.read(named.container).programs[0], 4) == needed


def test_by_how_much_it_does_not_fit():
    with pytest.raises(MegccError) as refused:
        compile_graph(separable(), M4, regions=Regions.parse("dtcm=1K,sram=1K"))
    said = str(refused.value)
    assert re.search(r"the regions are dtcm=1024,sram=1024: [\d,]+ bytes are missing", said)
    assert "(in no region)" in said
    with pytest.raises(MegccError, match=r"bytes of flash, the limit is 100: [\d,]+ bytes are missing"):
        compile_graph(separable(), M4, regions=Regions.parse("sram=64K,flash=100"))


def test_layers_by_rows_where_that_fits():
    artifact = compile_graph(separable(), M4)
    arena = artifact.manifest["programs"][0]["arena_bytes"]
    by_rows = compile_graph(separable(), M4, regions=Regions.parse(f"flash=1M,dtcm=1K,sram={arena * 3 // 4}"))
    assert "rows" in by_rows.manifest["programs"][0] and "rows" not in artifact.manifest["programs"][0]


def test_states_are_in_the_first_region():
    b = Builder()
    x, h = b.input("x", 1, 64), b.input("h", 1, 64)
    graph = b.graph(b.op("add", x, h, name="y"))
    states = {graph.outputs[0]: "h"}
    with pytest.raises(MegccError, match=r"states .* first region, dtcm, which has 300: \d+ bytes are missing"):
        compile_graph(graph, M4, states=states, regions=Regions.parse("dtcm=300,sram=64K"))
    compile_graph(graph, M4, states=states, regions=Regions.parse("dtcm=800,sram=64K"))


def test_where_regions_are_not_planned():
    regions = Regions.parse("sram=64K")
    with pytest.raises(MegccError, match="leave out ram"):
        compile_graph(separable(), M4, regions=regions, ram=1 << 20)
    with pytest.raises(MegccError, match="microcontrollers only, and x86-64 is not one"):
        compile_graph(separable(), parse_targets("x86-64,cortex-m4"), regions=regions)


