# SPDX-License-Identifier: Apache-2.0
"""Signed containers: Ed25519 in C against RFC 8032, Wycheproof and cryptography; `megcc pack`; two slots."""

from __future__ import annotations

import csv
import ctypes
import hashlib
import json
import random
import stat
import subprocess
from pathlib import Path

import pytest

import tvm_megcc
from tests.c_flags import WARNINGS
from tvm_megcc import paths
from tvm_megcc.cli import main
from tvm_megcc.codegen.packages.base import package
from tvm_megcc.runtime.build import c_sources
from tvm_megcc.runtime.emulator import counting, elf, firmware
from tvm_megcc.runtime.toolchain import find_compiler, find_emulator
from tvm_megcc.target import parse_targets
from tvm_megcc.tools.export import signed

from .test_runtime import CC, FLAGS, ROOT, SANITIZE, call, has_flags, need

pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler")
MONOCYPHER = ROOT / "signed" / "monocypher"
OWN = [ROOT / "signed" / "megcc_signed.c", ROOT / "signed" / "megcc_ed25519.c"]
SOURCES = [*OWN, *sorted(MONOCYPHER.glob("*.c"))]
STRICT = [*WARNINGS, "-Wframe-larger-than=1024"]
#: The declarations of PSA Crypto, as <psa/crypto.h>.
PSA = Path(__file__).parent / "psa"
DIGITS = paths.examples() / "digits.onnx"
#: The order of the base point, and of the field.
ORDER, FIELD = 2**252 + 27742317777372353535851937790883648493, 2**255 - 19

#: RFC 8032, 7.1: public key, message, signature.
VECTORS = [
    ("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
     "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"),
    ("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
     "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"),
    ("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
     "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"),
    ("ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
     "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
     "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
     "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b589"
     "09351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704"),
]
#: Encodings of points of small order: of order 1, 2, 4, 4, 8, 8, 8, 8.
SMALL_ORDER = ["01" + "00" * 31, "ec" + "ff" * 30 + "7f", "00" * 32, "00" * 31 + "80",
               "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
               "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
               "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
               "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85"]


@pytest.fixture(scope="module")
def verify(tmp_path_factory):
    """The function of C."""
    return _library(tmp_path_factory.mktemp("signed"), SOURCES)


def _library(folder: Path, sources: list[Path], *flags: str):
    library = folder / "signed.so"
    call([CC, "-std=c99", "-O2", f"-I{ROOT / 'include'}", *flags, "-fPIC", "-shared", *sources, "-o", library])
    found = ctypes.CDLL(str(library)).megcc_ed25519_verify
    found.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    return lambda signature, key, message: found(bytes(signature), bytes(key), bytes(message), len(message))


def _wycheproof() -> list[dict[str, str]]:
    with open(Path(__file__).with_name("wycheproof_ed25519.csv")) as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


@pytest.mark.parametrize("flag", sorted({row["flag"] for row in _wycheproof()}))
def test_wycheproof(flag, verify):
    rows = [row for row in _wycheproof() if row["flag"] == flag]
    assert len({row["result"] for row in rows}) == 1
    for row in rows:
        taken = verify(*(bytes.fromhex(row[name]) for name in ("signature", "key", "message")))
        assert taken == (row["result"] == "valid"), row["test"]


@pytest.mark.parametrize("vector", VECTORS, ids=["empty", "one", "two", "hash"])
def test_vectors_of_the_rfc(vector, verify):
    key, message, signature = map(bytes.fromhex, vector)
    assert verify(signature, key, message) == 1
    for changed in range(0, 512, 7):
        for what in range(3):
            parts = [bytearray(signature), bytearray(key), bytearray(message)]
            if changed // 8 < len(parts[what]):
                parts[what][changed // 8] ^= 1 << changed % 8
                assert verify(*parts) == 0, (what, changed)
    assert verify(signature, key, message + b"\0") == 0


def test_signatures_have_one_form(verify):
    """S and S + L are the same number of the group; R, of a point, has one encoding too."""
    key, message, signature = map(bytes.fromhex, VECTORS[2])
    s = int.from_bytes(signature[32:], "little")
    for other in (s + ORDER, s + 8 * ORDER, ORDER, 2**256 - 1):
        assert verify(signature[:32] + other.to_bytes(32, "little"), key, message) == 0
    for beyond in range(FIELD, 2**255):
        assert verify(beyond.to_bytes(32, "little") + bytes(32), key, message) == 0


def test_keys_that_are_none(verify):
    """With a key of small order, R = B and S = 1 would be a signature of many messages, of order 1 of all."""
    base = ((4 * pow(5, -1, FIELD)) % FIELD).to_bytes(32, "little")
    forged = base + (1).to_bytes(32, "little")
    for key in map(bytes.fromhex, SMALL_ORDER):
        assert not any(verify(forged, key, bytes([i])) for i in range(64)), key.hex()
    # not below the field's size, also those that would be right if they were reduced; x = 0 with a sign
    for y in (*range(FIELD, 2**255), *(y | 1 << 255 for y in (1, FIELD - 1, FIELD, FIELD + 1))):
        assert verify(forged, y.to_bytes(32, "little"), b"") == 0
    no_points = 0
    for y in range(2, 40):
        u, v = y * y - 1, -121665 * pow(121666, -1, FIELD) * y * y + 1
        if pow(u * pow(v, -1, FIELD), (FIELD - 1) // 2, FIELD) == FIELD - 1:
            no_points += 1
            assert verify(forged, y.to_bytes(32, "little"), b"") == 0
    assert no_points > 10


def test_against_cryptography(verify):
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    random_ = random.Random(0)
    for length in (*range(300), 1000, 5000):
        private = ed25519.Ed25519PrivateKey.from_private_bytes(random_.randbytes(32))
        key, message = private.public_key().public_bytes_raw(), random_.randbytes(length)
        signature = private.sign(message)
        assert verify(signature, key, message) == 1, length
        wrong = bytearray(signature)
        wrong[random_.randrange(64)] ^= 1 << random_.randrange(8)
        assert verify(wrong, key, message) == 0
        assert verify(signature, random_.randbytes(32), message) == 0


def test_without_warnings(tmp_path):
    """Ours with the flags of strict people, Monocypher with those of its authors."""
    for cc, *flags in (["gcc"], ["clang"], ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb"]):
        for source in SOURCES:
            warnings = STRICT if source in OWN else ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]
            call([need(cc), "-std=c99", "-Os", *flags, *warnings, f"-I{ROOT / 'include'}", "-c", source,
                  "-o", tmp_path / f"{source.stem}.o"])
    undefined, defined = (
        {line.split()[-1] for line in call(["arm-none-eabi-nm", flag, *tmp_path.glob("*.o")]).splitlines()
         if " " in line} for flag in ("-u", "--defined-only"))
    assert undefined - defined <= {"memcpy", "memmove", "memset", "__aeabi_uldivmod"}


def test_monocypher_is_the_release():
    """Its files are those of the tag, by the digests that the bill of materials gives too."""
    component = json.loads((MONOCYPHER / "component.cdx.json").read_text())
    assert component["purl"].endswith(f"Monocypher@{component['version']}")
    digests = {row["name"]: row["hashes"] for row in component["components"]}
    assert digests == {path.name: [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}]
                       for path in MONOCYPHER.iterdir() if path.suffix != ".json"}
    page = (ROOT.parent / "docs" / "updates.md").read_text()
    assert f"Monocypher {component['version']}" in page


def test_generated_folders_have_it(digits):
    folder = digits / "runtime" / "signed"
    assert {path.name for path in folder.rglob("*") if path.is_file()} >= {
        "megcc_signed.c", "megcc_signed.h", "megcc_ed25519.c", *(path.name for path in MONOCYPHER.iterdir())}


def test_psa_in_its_place(tmp_path):
    """The example for devices with PSA Crypto, over a small one of the tests."""
    source = ROOT / "signed" / "example" / "psa" / "megcc_ed25519_psa.c"
    assert not set(SOURCES) & {source}
    check = _library(tmp_path, [source, *MONOCYPHER.glob("*.c")], f"-I{PSA}", f"-I{ROOT / 'signed'}")
    for key, message, signature in (map(bytes.fromhex, vector) for vector in VECTORS):
        assert check(signature, key, message) == 1
        assert check(signature, key, message + b"x") == check(signature, key[::-1], message) == 0
        assert check(signature, key, message) == 1


#: A firmware that checks a container and prints the bytes of stack that were in use.
FIRMWARE = """
#include "board.h"
#include "megcc_signed.h"
#include "kws_key.h"
#include "data.h"

int main(void)
{
    int32_t status = 0;
#ifdef CHECK
    megcc_signed found;
    status = megcc_signed_check(&found, data, sizeof data, kws_key, "digits", NULL);
#endif
    uint32_t used = board_stack_used();
    char text[16] = { 0 };
    int at = 14;
    text[at] = '\\n';
    do {
        text[--at] = (char)('0' + used % 10u);
        used /= 10u;
    } while (used != 0);
    board_text(text + at);
    return status;
}
"""


@pytest.mark.slow
def test_costs_on_a_cortex_m4(keys, digits, tmp_path):
    """What docs/updates.md says: flash, stack, instructions for a container of any size."""
    target = parse_targets("cortex-m4")[0]
    compiler, (qemu, *_) = find_compiler(target), find_emulator(target)
    signed.pack(digits, keys / "kws.pem", 1, tmp_path / "signed")
    whole = (tmp_path / "signed").read_bytes()
    (tmp_path / "data.h").write_text(
        f"static const unsigned char data[] __attribute__((aligned(64))) = {{{','.join(map(str, whole))}}};\n")
    (tmp_path / "main.c").write_text(FIRMWARE)
    images = [tmp_path / "without.elf", tmp_path / "with.elf"]
    for image, check in zip(images, ((), ("-DCHECK", "-DMEGCC_NO_STRINGS")), strict=True):
        call([*compiler.command, *target.cflags, *check, "-Os", "-ffunction-sections", "-fdata-sections",
              *firmware.FLAGS, f"-I{ROOT / 'include'}", f"-I{ROOT / 'signed'}", f"-I{firmware.port()}", f"-I{keys}",
              firmware.port() / "start.c", tmp_path / "main.c", *SOURCES,
              *firmware.link_flags(target, {"stack": 8192}), "-o", image])
    code = counting.disassembly(images[1], compiler)
    counted = counting.options(qemu, {counting.BEGIN: code.functions["megcc_signed_check"],
                                      counting.END: code.functions["board_stack_used"]})
    done = subprocess.run(firmware.emulation(qemu, target, images[1], counted), cwd=tmp_path, capture_output=True,
                          text=True, check=True, timeout=120)
    flash = elf.total(images[1]).text - elf.total(images[0]).text - len(whole)
    instructions, = counting.instructions(counting.read((tmp_path / "counts.txt").read_text()))
    stack = int(done.stderr)
    print(f"{flash} bytes of flash, {stack} of stack, {instructions} instructions for {len(whole)} bytes")
    assert 8 * 1024 < flash < 12 * 1024
    assert 1024 < stack < 2048
    assert 100 * len(whole) < instructions < 2_500_000 + 120 * len(whole)


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> Path:
    pytest.importorskip("cryptography")
    folder = tmp_path_factory.mktemp("keys")
    for name in ("kws", "other"):
        signed.keygen(str(folder / name))
    return folder


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    return tvm_megcc.compile(DIGITS, "c").save(tmp_path_factory.mktemp("digits") / "digits")


def test_there_and_back(keys, digits, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert stat.S_IMODE((keys / "kws.pem").stat().st_mode) == 0o600
    private, public = str(keys / "kws.pem"), str(keys / "kws.pub.pem")
    assert main(["pack", str(digits), "--key", private, "--counter", "3"]) == 0
    assert "model digits for digits, counter 3" in capsys.readouterr().out
    container = (digits / "digits.megcc").read_bytes()
    data = Path("digits.signed").read_bytes()
    assert data[signed.HEAD:] == container
    assert main(["unpack", "digits.signed", "--key", public, "--json", "--product", "digits"]) == 0
    assert json.loads(capsys.readouterr().out)["counter"] == 3
    assert Path("digits.megcc").read_bytes() == container
    assert main(["pack", "digits.megcc", "--key", private, "--counter", "3", "-o", "again"]) == 0
    assert Path("again").read_bytes() == data
    capsys.readouterr()

    def refused(*argv: str) -> str:
        assert main(list(argv)) == 1
        return capsys.readouterr().err

    assert "is not signed with" in refused("unpack", "again", "--key", str(keys / "other.pub.pem"))
    assert "is for 'digits', not for 'x'" in refused("unpack", "again", "--key", public, "--product", "x")
    for at in (0, 70, 75, 80, 96, 128, len(data) - 1):
        Path("bad").write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
        assert "signed" in refused("unpack", "bad", "--key", public), at
    Path("bad").write_bytes(data[:-1])
    assert "damaged" in refused("unpack", "bad", "--key", public)
    Path("bad").write_bytes(data[:127] + b"x" + data[128:])
    assert "no zero byte ends the name of its product" in refused("unpack", "bad", "--key", public)
    Path("bad").write_bytes(b"")
    assert "0 bytes" in refused("unpack", "bad", "--key", public)
    for output in ("digits.megcc", private):
        assert "would be lost" in refused("pack", "digits.megcc", "--key", private, "--counter", "3", "-o", output)
    for output in ("again", public):
        assert "would be lost" in refused("unpack", "again", "--key", public, "-o", output)
    assert "no private key" in refused("pack", "digits.megcc", "--key", public, "--counter", "3")
    assert "no public key" in refused("unpack", "again", "--key", "bad")
    assert "cannot read none" in refused("pack", "digits.megcc", "--key", "none", "--counter", "3")
    assert "64 bits" in refused("pack", "digits.megcc", "--key", private, "--counter", "-1")
    for product in ("", "x" * 32, "é", "a\nb"):
        assert "no name of a product" in refused("pack", "digits.megcc", "--key", private, "--counter", "3",
                                                 "--product", product)
    assert "no megcc container" in refused("pack", str(DIGITS), "--key", private, "--counter", "3")
    assert "exists already" in refused("keygen", str(keys / "kws"))
    assert "no name of a key" in refused("keygen", "1 x")


def test_without_the_package(monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "cryptography", None)
    assert main(["keygen", "x"]) == 1
    assert "pip install 'tvm_megcc[sign]'" in capsys.readouterr().err


def test_embedded_models_are_not_signed(keys, tmp_path, capsys):
    folder = tvm_megcc.compile(DIGITS, "c").save(tmp_path / "out", embed=True)
    assert main(["pack", str(folder), "--key", str(keys / "kws.pem"), "--counter", "1"]) == 1
    assert "without --embed" in capsys.readouterr().err
    assert not [name for name in package(folder, "cmsis-pack") if "signed" in name or "monocypher" in name]


@pytest.mark.slow
def test_two_slots(keys, digits, tmp_path):
    """The newer slot that is right, under the sanitizers: damaged in each part, cut off, too old, of other code."""
    sanitize = SANITIZE if has_flags(*SANITIZE) else []
    example = ROOT / "signed" / "example"
    program, objects = tmp_path / "slots", []
    for source in MONOCYPHER.glob("*.c"):   # which is not free of our warnings
        objects.append(tmp_path / f"{source.stem}.o")
        call([CC, "-std=c99", "-O1", *sanitize, "-c", source, "-o", objects[-1]])
    call([CC, *FLAGS, *sanitize, f"-I{digits}", f"-I{ROOT / 'signed'}", '-DHEADER="digits.h"', "-DMODULE=digits_module",
          '-DPRODUCT="digits"', f'-DKEY="{keys}/kws_key.h"', "-DPUBLIC_KEY=kws_key", example / "main.c",
          example / "slots.c", *OWN, *objects, *c_sources(digits), "-lm", "-pthread", "-o", program])

    def slot(name: str, counter: int, key: str = "kws", product: str = "digits", change=bytes) -> Path:
        signed.pack(digits, keys / f"{key}.pem", counter, tmp_path / name, product)
        (tmp_path / name).write_bytes(change((tmp_path / name).read_bytes()))
        return tmp_path / name

    def flipped(at: int):
        return lambda data: data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1:]

    def started(a: Path, b: Path, least: int = 0, code: int = 0) -> str:
        done = subprocess.run([program, a, b, str(least)], capture_output=True, text=True, timeout=120)
        assert done.returncode == code and not done.stderr, done.stderr
        return done.stdout.strip()

    old, new = slot("old", 7), slot("new", 2**40 + 8)
    assert started(old, new) == f"slot b, counter {2**40 + 8}, digits"
    assert started(new, old) == f"slot a, counter {2**40 + 8}, digits"
    assert started(tmp_path / "none", old) == "slot b, counter 7, digits"
    assert started(old, tmp_path / "none") == started(old, old) == "slot a, counter 7, digits"
    size = len(new.read_bytes())
    wrong = [lambda data, at=at: flipped(at)(data) for at in (0, 40, 64, 72, 76, 85, 97, 127, 130, size // 2, size - 1)]
    wrong += [lambda data, end=end: data[:end] for end in (0, 1, 64, 127, 128, size // 2, size - 1)]
    for change in wrong:
        assert started(old, slot("bad", 9, change=change)) == "slot a, counter 7, digits"
    assert started(old, slot("more", 9, change=lambda data: data + b"\xff" * 1000)).startswith("slot b, counter 9")
    assert started(old, slot("bad", 9, key="other")).startswith("slot a")
    assert started(old, slot("bad", 9, product="digits2")).startswith("slot a")
    assert started(old, slot("bad", 9, product="digit")).startswith("slot a")
    assert started(old, new, least=8).startswith("slot b")
    assert started(old, slot("bad", 9, change=flipped(size // 2)), least=8, code=1).startswith("none: not signed")
    # Signed, but for other code: the container's own check refuses it.
    other = tvm_megcc.compile(DIGITS, "arm64").save(tmp_path / "other", force=True)
    signed.pack(other, keys / "kws.pem", 9, tmp_path / "foreign")
    assert started(old, tmp_path / "foreign") == "slot a, counter 7, digits"
