# SPDX-License-Identifier: Apache-2.0
"""`megcc program` and its verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .parser import Verb, add_compiler, add_feeds, add_output, add_target, add_verb

if TYPE_CHECKING:
    from .parser import Verbs


def programs(verbs: Verbs) -> None:
    """Adds `megcc program` and its verbs."""
    from . import program

    steps = verbs.add_parser("program", help="programs of several networks: compile their description to one folder "
                                             "and one function, run it").add_subparsers(
        required=True, metavar="VERB", parser_class=Verb)
    verb = add_verb(steps, "compile", program.compile_, "compile a description into one folder of C")
    verb.add_argument("description", metavar="TOML", help="a description, or the name of one of 'megcc program list'")
    add_output(verb, "NAME_megcc")
    verb.add_argument("--models", metavar="DIR",
                      help="folder that paths of networks are relative to (default: that of the description)")
    add_target(verb, "CPU to compile for ('megcc list targets')", "native")
    verb.add_argument("--threads", type=int, default=1, metavar="N",
                      help="most workers that share the work of a network (default: 1)")
    verb = add_verb(steps, "run", program.run_, "run a program on this machine")
    verb.add_argument("path", metavar="DIR", help="a folder that 'megcc program compile' wrote")
    add_feeds(verb)
    verb.add_argument("--wav", action="append", default=[], metavar="[INPUT=]FILE",
                      help="a sound for an input; one that is longer is given in blocks, one run after the other")
    verb.add_argument("--picture", action="append", default=[], metavar="[INPUT=]FILE",
                      help="a picture for an input, which is resized to the input's size")
    verb.add_argument("--text", action="append", default=[], metavar="[INPUT=]STRING",
                      help="a string for an input; several for one with a row for each")
    verb.add_argument("--outputs", metavar="NPZ", help="write the outputs")
    verb.add_argument("--sequence", action="store_true",
                      help="the files of --inputs and --outputs have an additional first axis: the runs in order")
    verb.add_argument("--repeat", type=int, default=10, metavar="N", help="runs to time (default: 10)")
    add_compiler(verb)
    add_target(verb, "target of the folder (default: the one it was compiled for)")
    add_verb(steps, "list", program.list_, "list the descriptions that ship with the package")
