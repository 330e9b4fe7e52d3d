# SPDX-License-Identifier: Apache-2.0
"""Names that build systems use for the CPUs of our targets, and boards that have them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..target import Target

#: In place of a board that we do not know: users replace the word.
_NONE = "BOARD"


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

    zephyr: str = _NONE
    kconfig: tuple[str, ...] = ()
    cores: tuple[str, ...] = ()
    platformio: tuple[str, str] = ("PLATFORM", _NONE)
    arduino: tuple[str, ...] = ("*",)

    @property
    def filter(self) -> str:
        """`kconfig` as a filter expression for Zephyr's twister."""
        words = [re.sub(r"\w+", r"CONFIG_\g<0>", option) for option in self.kconfig]
        return " or ".join(words).replace("&&", "and").replace("!", "not ")


_M4 = Boards(zephyr="mps2/an386", kconfig=("CPU_CORTEX_M4", "CPU_CORTEX_M7"), cores=("Cortex-M4", "Cortex-M7"),
             platformio=("ststm32", "nucleo_f446re"), arduino=("mbed_nano", "nrf52", "renesas_uno", "samd", "stm32"))
_C3 = Boards(zephyr="qemu_riscv32", kconfig=("RISCV && !64BIT",), platformio=("espressif32", "esp32-c3-devkitm-1"),
             arduino=("esp32",))
#: Name of a target -> its boards.
_BOARDS = {
    "cortex-m0plus": Boards(
        zephyr="qemu_cortex_m0", kconfig=("CPU_CORTEX_M0", "CPU_CORTEX_M0PLUS"), cores=("Cortex-M0", "Cortex-M0+"),
        platformio=("atmelsam", "zeroUSB"), arduino=("mbed_rp2040", "rp2040", "samd", "stm32")),
    "cortex-m3": Boards(
        zephyr="qemu_cortex_m3", kconfig=("CPU_CORTEX_M3",), cores=("Cortex-M3",), platformio=("atmelsam", "due"),
        arduino=("sam", "stm32")),
    "cortex-m23": Boards(kconfig=("CPU_CORTEX_M23",), cores=("Cortex-M23",)),
    "cortex-m4": _M4,
    "cortex-m4-soft": _M4,
    "cortex-m7": Boards(
        zephyr="mps2/an500", kconfig=("CPU_CORTEX_M7",), cores=("Cortex-M7",), platformio=("ststm32", "nucleo_f767zi"),
        arduino=("mbed_giga", "mbed_opta", "mbed_portenta", "stm32")),
    "cortex-m33": Boards(
        zephyr="mps2/an521/cpu0", kconfig=("CPU_CORTEX_M33",), cores=("Cortex-M33",),
        platformio=("ststm32", "nucleo_l552ze_q"), arduino=("renesas_portenta", "rp2040", "silabs", "stm32")),
    "cortex-m52": Boards(kconfig=("CPU_CORTEX_M52 && FPU",), cores=("Cortex-M52",)),
    "cortex-m55": Boards(
        zephyr="mps3/corstone300/an547", kconfig=("CPU_CORTEX_M55 && FPU",), cores=("Cortex-M55",)),
    "cortex-m85": Boards(kconfig=("CPU_CORTEX_M85 && FPU",), cores=("Cortex-M85",)),
    "riscv32": _C3,
    "riscv32-f": Boards(
        kconfig=_C3.kconfig, platformio=("espressif32", "esp32-p4-evboard"), arduino=("esp32",)),
    "c": Boards(zephyr="qemu_cortex_m3", platformio=("espressif32", "esp32dev")),
}


def boards_of(targets: Sequence[Target]) -> Boards:
    """Returns the boards of several targets: a condition holds for the CPU of any of them; Zephyr's board is that of
    the first target that has one, and PlatformIO's that of the first target."""
    rows = [_BOARDS.get(target.name, Boards()) for target in targets]

    def of_any(rows_of_field: list[tuple[str, ...]], anything: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the words of all targets, or `anything` if that is the row of one target."""
        return anything if anything in rows_of_field else tuple(sorted(set().union(*rows_of_field)))

    return Boards(zephyr=next((row.zephyr for row in rows if row.zephyr != _NONE), _NONE),
                  kconfig=of_any([row.kconfig for row in rows], anything=()),
                  cores=of_any([row.cores for row in rows], anything=()), platformio=rows[0].platformio,
                  arduino=of_any([row.arduino for row in rows], anything=("*",)))
