# SPDX-License-Identifier: Apache-2.0
"""`tvm_megcc.Program`: a description that can be read from a file and compiled."""

from __future__ import annotations

from pathlib import Path

from ... import folders
from ...errors import InternalError, MegccError
from . import steps
from .compile import write
from .description import Description
from .names import located
from .reading import read

#: The descriptions that ship with the package.
SHIPPED = Path(__file__).with_name("descriptions")


class Program(Description):
    """A program of several networks, from Python as from a TOML file (docs/programs.md).

    Its steps are made by `Program.Network`, `Operator`, `Image`, `Feature`, `Detection`, `Search`, `Text`, `Tokenizer`
    and `Loop`, its states by `State`, the values that a loop carries by `Carried`.
    """

    Network, Operator = steps.Network, steps.Operator
    Image, Feature, Detection = steps.Image, steps.Feature, steps.Detection
    Search, Text, Tokenizer = steps.Search, steps.Text, steps.Tokenizer
    Loop, Carried = steps.Loop, steps.Carried
    State = steps.State

    @classmethod
    def read(cls, path: str | Path, models: str | Path | None = None) -> Program:
        """Reads a description.

        Args:
            path: a TOML file, or the name of a description that ships with the package.
            models: the folder that paths of networks are relative to; by default that of the file.

        Raises:
            MegccError: if there is no such file, or it is no description.
        """
        found = Path(path)
        if not found.exists() and (SHIPPED / f"{path}.toml").is_file() and Path(path).name == str(path):
            found = SHIPPED / f"{path}.toml"
            if models is None:
                raise MegccError(f"{path} ships without its networks: say with 'models' (--models DIR) which folder "
                                 "has them")
        if found.suffix == ".toml":
            folders.require_exists(found)
        else:
            raise MegccError(f"{path} is no description: a file of TOML, or one of {', '.join(shipped())}")
        fields = read(found, Path(models) if models is not None else found.parent)
        try:
            return cls(**fields)
        except MegccError as error:
            raise MegccError(f"{found}: {located(error, fields['steps'])}") from None

    def compile(self, folder: str | Path, target: str = "native", force: bool = False, threads: int = 1) -> Path:
        """Compiles the program into a folder, which `tvm_megcc.load` loads, and returns it.

        Args:
            folder: where to write; an earlier folder of the same program is replaced.
            target: one CPU, as `megcc list targets` shows them.
            force: replaces an existing folder whatever it contains.
            threads: the largest number of workers that share the work of a network.

        Raises:
            MegccError: for a type that does not fit where it goes, saying both ends; for a network that cannot be
                compiled; for an existing folder with other files.
        """
        try:
            return write(self, folder, target, force, threads)
        except InternalError:
            raise
        except MegccError as error:
            raise MegccError(located(error, self.steps)) from error


def shipped() -> dict[str, str]:
    """Returns the descriptions that ship with the package: name -> what its first comment says."""
    found = {}
    for path in sorted(SHIPPED.glob("*.toml")):
        lines = path.read_text("utf-8").splitlines()
        found[path.stem] = lines[1].lstrip("# ") if len(lines) > 1 else ""
    return found
