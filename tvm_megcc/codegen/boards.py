# SPDX-License-Identifier: Apache-2.0
"""Names that build systems use for the CPUs of our targets, and boards that have them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..target import Target


@dataclass(frozen=True)
class Boards:
    """The boards of one target, in packages of `megcc export`; those that `megcc run` emulates are in
    runtime/emulator/firmware.py.

    zephyr: a board that Zephyr emulates.
    kconfig: Zephyr's Kconfig symbols for the CPU, of which one must be set; empty: any CPU.
    cores: the processors that a CMSIS-Pack lists; empty: any.
    platformio: platform and board of an example.
    arduino: architectures of Arduino's cores that have boards with the CPU.
    """

    zephyr: str = "BOARD"
    kconfig: tuple[str, ...] = ()
    cores: tuple[str, ...] = ()
    platformio: tuple[str, str] = ("PLATFORM", "BOARD")
    arduino: tuple[str, ...] = ("*",)

    @property
    def filter(self) -> str:
        """`kconfig` as a filter expression for Zephyr's twister."""
        words = [re.sub(r"\w+", r"CONFIG_\g<0>", option) for option in self.kconfig]
        return " or ".join(words).replace("&&", "and").replace("!", "not ")


_M4 = Boards("mps2/an386", ("CPU_CORTEX_M4", "CPU_CORTEX_M7"), ("Cortex-M4", "Cortex-M7"), ("ststm32", "nucleo_f446re"),
             ("mbed_nano", "nrf52", "renesas_uno", "samd", "stm32"))
_C3 = Boards("qemu_riscv32", ("RISCV && !64BIT",), (), ("espressif32", "esp32-c3-devkitm-1"), ("esp32",))
_BOARDS = {
    "cortex-m0plus": Boards("qemu_cortex_m0", ("CPU_CORTEX_M0", "CPU_CORTEX_M0PLUS"), ("Cortex-M0", "Cortex-M0+"),
                            ("atmelsam", "zeroUSB"), ("mbed_rp2040", "rp2040", "samd", "stm32")),
    "cortex-m3": Boards("qemu_cortex_m3", ("CPU_CORTEX_M3",), ("Cortex-M3",), ("atmelsam", "due"), ("sam", "stm32")),
    "cortex-m23": Boards(kconfig=("CPU_CORTEX_M23",), cores=("Cortex-M23",)),
    "cortex-m4": _M4,
    "cortex-m4-soft": _M4,
    "cortex-m7": Boards("mps2/an500", ("CPU_CORTEX_M7",), ("Cortex-M7",), ("ststm32", "nucleo_f767zi"),
                        ("mbed_giga", "mbed_opta", "mbed_portenta", "stm32")),
    "cortex-m33": Boards("mps2/an521/cpu0", ("CPU_CORTEX_M33",), ("Cortex-M33",), ("ststm32", "nucleo_l552ze_q"),
                         ("renesas_portenta", "rp2040", "silabs", "stm32")),
    "cortex-m52": Boards(kconfig=("CPU_CORTEX_M52 && FPU",), cores=("Cortex-M52",)),
    "cortex-m55": Boards("mps3/corstone300/an547", ("CPU_CORTEX_M55 && FPU",), ("Cortex-M55",)),
    "cortex-m85": Boards(kconfig=("CPU_CORTEX_M85 && FPU",), cores=("Cortex-M85",)),
    "riscv32": _C3,
    "riscv32-f": Boards("BOARD", _C3.kconfig, (), ("espressif32", "esp32-p4-evboard"), ("esp32",)),
    "c": Boards("qemu_cortex_m3", platformio=("espressif32", "esp32dev")),
}


def boards_of(targets: Sequence[Target]) -> Boards:
    """Returns the boards that suit any of these targets; boards are those of the first that has one."""
    rows = [_BOARDS.get(target.name, Boards()) for target in targets]

    def of_any(field: str, anything: tuple[str, ...]) -> tuple[str, ...]:
        found = [getattr(row, field) for row in rows]
        return anything if anything in found else tuple(sorted({word for words in found for word in words}))

    return Boards(next((row.zephyr for row in rows if row.zephyr != "BOARD"), "BOARD"), of_any("kconfig", ()),
                  of_any("cores", ()), rows[0].platformio, of_any("arduino", ("*",)))
