# SPDX-License-Identifier: Apache-2.0
"""`megcc keygen`, `pack`, `unpack`: containers that are signed with Ed25519, for updates of devices.

The format is in c_runtime/signed/megcc_signed.h, which checks it on a device. Signing is done by the package
`cryptography`, which is installed with `tvm_megcc[sign]`.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from ... import folders
from ...codegen import container
from ...codegen.manifest import read_manifest
from ...errors import MegccError, MissingTool, refused_by_system
from ...foreign import printable
from ...runtime.build import generated_folder, model_of
from ...version import VERSION

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

#: The signed header before the container: magic, format, bytes of the container, counter, 8 bytes of zeros, product.
_HEAD = struct.Struct("<8sIIQ8x32s")
_MAGIC, _FORMAT = b"MEGCCsig", 1
#: Bytes of the signature, which is before the header.
_SIGNATURE = 64
#: Bytes before the container.
HEAD = _SIGNATURE + _HEAD.size
#: The most characters of a product's name; a zero byte follows.
LONGEST_PRODUCT = 31


def keygen(name: str) -> dict:
    """Makes a pair of keys: NAME.pem, which signs and only its owner can read, NAME.pub.pem, and NAME_key.h, the public
    one as an array of C. Files that exist are not overwritten.

    Raises:
        MegccError: if one of these files exists or cannot be written.
        MissingTool: without the package cryptography.
    """
    _require()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    base = Path(name)
    word = base.name.replace("-", "_")
    if not (word.isascii() and word.isidentifier()):
        raise MegccError(f"'{printable(base.name)}' is no name of a key: letters, digits, '_' and '-', a letter first")
    key = Ed25519PrivateKey.generate()
    public = key.public_key()
    rows = _rows(public.public_bytes_raw())
    header = (f"/* The public key {word}, made by tvm_megcc {VERSION}, for megcc_signed_check(). */\n"
              f"static const unsigned char {word}_key[32] = {{\n{rows}}};\n")
    files = {base.with_name(f"{base.name}.pem"): (0o600, key.private_bytes(
                 serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())),
             base.with_name(f"{base.name}.pub.pem"): (0o644, public.public_bytes(
                 serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)),
             base.with_name(f"{word}_key.h"): (0o644, header.encode())}
    for path in files:
        if path.exists():
            raise MegccError(f"{path} exists already, and a key that is written over is lost: choose another name")
    for path, (mode, data) in files.items():
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(data)
        except OSError as error:
            raise refused_by_system(error, f"{path} cannot be written") from None
    return {"files": list(map(str, files)), "public": public.public_bytes_raw().hex()}


def keygen_text(report: dict) -> str:
    private, public, header = report["files"]
    return (f"{private}: signs; keep it secret, and keep it\n{public}: for 'megcc unpack'\n{header}: for the device, "
            f"{report['public']}\n")


def pack(path: str | Path, key: str | Path, counter: int, output: str | Path | None = None, product: str | None = None,
         model: str | None = None) -> dict:
    """Signs a container.

    Args:
        path: a .megcc file, or a folder that `megcc compile` wrote, with its models in files.
        key: the file NAME.pem of `keygen`.
        counter: a newer update has a larger one; from 0 to 2^64 - 1.
        output: the file to write, by default NAME.signed.
        product: the name of what the container is for, which devices compare; by default the model's name.
        model: the name of the model, if the folder has several.

    Raises:
        MegccError: if there is no such container or key, or counter or product do not fit.
        MissingTool: without the package cryptography.
    """
    _require()
    source = _container_of(Path(path), model)
    data = _read(source)
    try:
        name = container.read(data).name
    except MegccError as error:
        raise MegccError(f"{source}: {error}") from None
    product = name if product is None else product
    if not (product.isascii() and product.isprintable() and 0 < len(product) <= LONGEST_PRODUCT):
        raise MegccError(f"'{printable(product)}' is no name of a product: 1 to {LONGEST_PRODUCT} printable characters "
                         "of ASCII; give one with --product")
    if not 0 <= counter < 1 << 64:
        raise MegccError(f"the counter {counter} does not fit into 64 bits")
    head = _HEAD.pack(_MAGIC, _FORMAT, len(data), counter, product.encode())
    signed = _private(Path(key)).sign(head + data) + head + data
    output = Path(output or f"{source.stem}.signed")
    folders.require_other_file(output, source, key)
    _write(output, signed)
    return {"file": str(output), "bytes": len(signed), "model": name, "product": product, "counter": counter}


def unpack(path: str | Path, key: str | Path, output: str | Path | None = None, product: str | None = None) -> dict:
    """Checks a signed container, and writes what is in it.

    Args:
        path: as `pack` writes it.
        key: the file NAME.pub.pem or NAME.pem of `keygen`.
        output: the container to write, by default MODEL.megcc.
        product: the name of what the container has to be for; None: anything.

    Raises:
        MegccError: if it is not a signed container, is damaged, or is signed with another key or for another product.
        MissingTool: without the package cryptography.
    """
    _require()
    from cryptography.exceptions import InvalidSignature

    path = Path(path)
    data = _read(path)
    if len(data) < HEAD:
        raise MegccError(f"{path} is no signed container: it has {len(data)} bytes")
    magic, format_, size, counter, field = _HEAD.unpack_from(data, _SIGNATURE)
    if magic != _MAGIC or format_ != _FORMAT:
        raise MegccError(f"{path} is no signed container of a format known here")
    if size > len(data) - HEAD:
        raise MegccError(f"{path} is damaged: it says that it has {size} bytes of a container")
    if field[-1]:
        raise MegccError(f"{path} is damaged: no zero byte ends the name of its product")
    try:
        _public(Path(key)).verify(data[:_SIGNATURE], data[_SIGNATURE:HEAD + size])
    except InvalidSignature:
        raise MegccError(f"{path} is not signed with {key}, or was changed") from None
    found = field.split(b"\0")[0].decode("ascii", "replace")
    if product is not None and product != found:
        raise MegccError(f"{path} is for '{printable(found)}', not for '{printable(product)}'")
    plain = data[HEAD:HEAD + size]
    name = container.read(plain).name
    output = Path(output or f"{printable(name).replace('/', '_')}.megcc")
    folders.require_other_file(output, path, key)
    _write(output, plain)
    return {"file": str(output), "bytes": size, "model": name, "product": found, "counter": counter}


def text(report: dict) -> str:
    return (f"{report['file']}: {report['bytes']:,} bytes, model {printable(report['model'])} for "
            f"{printable(report['product'])}, counter {report['counter']}\n")


def _require() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise MissingTool("signatures are made by the package cryptography, which is not installed: "
                          "pip install 'tvm_megcc[sign]'") from None


def _container_of(path: Path, model: str | None) -> Path:
    if path.is_file():
        return path
    folder = generated_folder(path)[0]
    name = model_of(read_manifest(folder), model, folder)["name"]
    if not (folder / f"{name}.megcc").is_file():
        raise MegccError(f"{folder} has '{name}' as constants of C, which are signed with the firmware: compile it "
                         "without --embed")
    return folder / f"{name}.megcc"


def _private(path: Path) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = _loaded(path, lambda data: load_pem_private_key(data, None))
    if not isinstance(key, Ed25519PrivateKey):
        raise MegccError(f"{path} has no private key of Ed25519: 'megcc keygen NAME' makes one, NAME.pem")
    return key


def _public(path: Path) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if b"PRIVATE KEY" in _read(path):
        return _private(path).public_key()
    key = _loaded(path, load_pem_public_key)
    if not isinstance(key, Ed25519PublicKey):
        raise MegccError(f"{path} has no public key of Ed25519: 'megcc keygen NAME' makes one, NAME.pub.pem")
    return key


def _loaded(path: Path, load) -> object:
    """Returns the key in a file; None if there is none. load: parses the bytes of the file.

    Raises:
        MegccError: if the file cannot be read or is encrypted.
    """
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return load(_read(path))
    except TypeError:
        raise MegccError(f"{path} is encrypted with a password, which is not supported: decrypt it first") from None
    except (ValueError, UnsupportedAlgorithm):
        return None


def _read(path: Path) -> bytes:
    try:
        return folders.read(path)
    except OSError as error:
        raise MegccError(f"cannot read {path}: {error.strerror}") from None


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise refused_by_system(error, f"{path} cannot be written") from None


def _rows(data: bytes) -> str:
    return "".join("    " + " ".join(f"0x{byte:02x}," for byte in data[offset:offset + 8]) + "\n"
                   for offset in range(0, len(data), 8))
