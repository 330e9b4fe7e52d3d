# SPDX-License-Identifier: Apache-2.0
"""What gcc and its linker say of a firmware: the deepest chain of calls, and memory by file."""

from tvm_megcc.runtime.calls import deepest, memory_by_file


def node(name: str, file: str, stack: str) -> str:
    return f'node: {{ title: "{name}" label: "{name}\\n{file}:1:5\\n{stack}" }}\n'


def edge(source: str, target: str) -> str:
    return f'edge: {{ sourcename: "{source}" targetname: "{target}" label: "a.c:1:2" }}\n'


PROGRAM = (node("reset", "start.c", "8 bytes (static)") + node("vm.c:run_task", "/x/vm.c", "40 bytes (static)")
           + edge("reset", "vm.c:run_task") + edge("vm.c:run_task", "__indirect_call") + edge("reset", "memcpy")
           + node("kernel_a", "/x/kernels/a.c", "100 bytes (static)") + edge("kernel_a", "a.c:row")
           + node("a.c:row", "/x/kernels/a.c", "30 bytes (static)")
           + node("kernel_b", "/x/kernels/b.c", "120 bytes (static)") + node("unused", "/x/u.c", "999 bytes (dynamic)"))


def test_the_deepest_chain():
    found = deepest(PROGRAM)
    assert (found.bytes, found.path) == (178, ("reset", "vm.c:run_task", "kernel_a", "a.c:row"))
    assert found.unknown == ("memcpy",)
    assert found.unbounded == ()


def test_what_has_no_limit():
    found = deepest(PROGRAM + edge("a.c:row", "kernel_a") + edge("kernel_b", "unused"))
    assert set(found.unbounded) == {"kernel_a", "unused"}


def test_memory_by_file():
    hashed = "0123456789abcdef01234567"
    text = f""" .text.dropped  0x00000000       0x20 /o/gone-{hashed}.o
Linker script and memory map
 .text          0x00000040       0x10 /o/vm-{hashed}.o
 .text.megcc_session_step
                0x00000050       0x08 /o/vm-{hashed}.o
 .rodata.model_data
                0x00000080      0x100 /o/model_data-{hashed}.o
 .text          0x00000180       0x04 /usr/lib/libgcc.a(_udivmoddi4.o)
 .bss.memory    0x20000000       0x40 /o/firmware-{hashed}.o
 .bss.given     0x20000040       0x80 /o/firmware-{hashed}.o
 .data          0x20000100       0x02 /o/vm-{hashed}.o
"""
    assert memory_by_file(text) == {"flash": {"model_data.c": 256, "vm.c": 26, "library": 4},
                            "ram": {"firmware.c": 64, "vm.c": 2}}
