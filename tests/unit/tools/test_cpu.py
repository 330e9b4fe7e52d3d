# SPDX-License-Identifier: Apache-2.0
"""Reports name the microarchitecture, also if a virtual machine hides the model's name."""

import pytest

from tvm_megcc.tools.bench.cpu import cpu_name

EPYC = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: {}\nmodel\t\t: {}\nmodel name\t: AMD EPYC\n\n"


@pytest.mark.parametrize(("family", "model", "name"), [
    (23, 49, "AMD EPYC (Zen 2)"), (25, 1, "AMD EPYC (Zen 3)"), (25, 17, "AMD EPYC (Zen 4)"),
    (25, 160, "AMD EPYC (Zen 4)"), (26, 2, "AMD EPYC (Zen 5)"), (99, 0, "AMD EPYC")])
def test_amd(family, model, name):
    assert cpu_name(EPYC.format(family, model)) == name


def test_the_first_processor_speaks_for_all():
    assert cpu_name(EPYC.format(25, 17) + EPYC.format(26, 2)) == "AMD EPYC (Zen 4)"


def test_intel():
    xeon = "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 143\nmodel name : Intel(R) Xeon(R) Processor\n"
    assert cpu_name(xeon) == "Intel(R) Xeon(R) Processor (Sapphire Rapids)"
    assert cpu_name(xeon.replace("Processor", "Sapphire Rapids")) == "Intel(R) Xeon(R) Sapphire Rapids"


def test_arm_has_parts():
    assert cpu_name("CPU implementer : 0x41\nCPU part : 0xd0b\n").endswith("(Cortex-A76)")


@pytest.mark.parametrize("info", [
    "", "no colon", "model : x\ncpu family : 6\nvendor_id : GenuineIntel", "CPU part : -"])
def test_without_a_known_cpu(info):
    assert "(" not in cpu_name(info) and cpu_name(info)
