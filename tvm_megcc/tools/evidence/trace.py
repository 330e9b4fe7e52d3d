# SPDX-License-Identifier: Apache-2.0
"""The trace table: operator of the model, passes, kernel call, C function, memory, test; and back from every function.

The passes are those that the manifest of a folder of the safety profile records (codegen/trace.py), the memory is that
of the container, the functions are the symbols of the object files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...codegen import container
from ...target import TARGETS
from .sources import Sources

#: The test that compares all kernels of an operator kind with the operator's definition in numpy. mode: a target and
#: what it is compiled for (TARGET_AND_MODE of the test).
_KERNEL_TEST = "MEGCC_ALL_KERNELS=1 pytest tests/kernels/test_kernels.py -k 'test_kernels and {kind} and {mode}'"
#: ISAs with kernels of their own -> the mode in which the tests run the templates of these; several ISAs share some.
_MODES = {"cortex_m4": "cortex-m4-speed", "cortex_m33": "cortex-m4-speed", "cortex_m55": "cortex-m55-speed",
          "rv32": "riscv64-speed"}
#: The same for ISAs of which only integer products have kernels of their own (`Isa.pairs`).
_INTEGER_MODES = {"cortex_m0": "cortex-m0plus-size", "cortex_m3": "cortex-m0plus-size"}
_INTEGER_PRODUCTS = ("conv2d_integer", "matmul_integer", "matmul_nbits_int8")
_RUNTIME_TEST = "pytest tests/compiled/runtime tests/compiled/safety"
_LICENCE = re.compile(r"SPDX-License-" + r"Identifier: \S+")
_COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)


def memory_of(image: bytes, isa: int) -> list[list[dict[str, Any]]]:
    """Returns for each kernel call its operands, inputs first: direction, memory, offset and bytes.

    Args:
        image: the container.
        isa: MEGCC_ISA_* of the program.
    """
    program = next(row for row in container.read(image).programs if row.isa == isa)
    slots = program.device_models[0].tensors
    rows = []
    for instruction in program.instructions:
        first = instruction.operands
        operands = program.operands[first:first + instruction.inputs + instruction.outputs]
        rows.append([{"direction": "in" if index < instruction.inputs else "out",
                      **_place(program, slots, tensor)} for index, tensor in enumerate(operands)])
    return rows


def _place(program: container.Program, slots: Sequence[container.TensorSlot], tensor: int) -> dict[str, Any]:
    """Returns the memory in which a tensor is, its offset and its bytes."""
    row = program.tensors[tensor]
    is_view = row.storage == container.Storage.view
    offset, root = (row.data, row.root) if is_view else (0, tensor)
    size = row.bytes or slots[tensor].bytes     # that of weights and views is in the row, that of others in the slot
    storage = program.tensors[root].storage
    if storage == container.Storage.weight:
        return {"memory": "weights", "offset": program.tensors[root].data + offset, "bytes": size}
    if storage == container.Storage.caller:
        return {"memory": "the caller's", "offset": offset, "bytes": size}
    return {"memory": "states" if storage == container.Storage.state else "arena",
            "offset": slots[root].offset + offset, "bytes": size}


def operator_rows(program: Mapping[str, Any], kernels: Mapping[str, str],
                  memory: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Returns a row for each operator of the model and call of it, and for each call that the compiler inserted.

    Args:
        program: the facts of a target's program in the manifest.
        kernels: kernel -> its source file.
        memory: the operands of each call (`memory_of`).
    """
    trace, rows = program["trace"], []
    for operator in trace["operators"]:
        common = {"operator": operator["name"], "kind": operator["kind"], "result": operator["result"],
                  "passes": operator["passes"]}
        rows += [{**common, **_call_row(program, index, kernels, memory)} for index in operator["calls"]] or \
            [{**common, "end": operator["end"], "test": kernel_test(operator["kind"], program["target"])}]
    rows += [{"operator": "", "kind": program["calls"][row["call"]]["kind"],
              "result": program["calls"][row["call"]]["output"], "passes": row["passes"],
              **_call_row(program, row["call"], kernels, memory)} for row in trace["inserted"]]
    return rows


def _call_row(program: Mapping[str, Any], index: int, kernels: Mapping[str, str],
              memory: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    call = program["calls"][index]
    return {"call": index, "function": call["kernel"], "file": kernels.get(call["kernel"], ""),
            "memory": memory[call["instruction"]], "test": kernel_test(call["kind"], program["target"])}


def kernel_test(kind: str, target: str) -> str:
    """Returns the command of the test that covers the kernels of an operator kind on a target."""
    modes = {**_MODES, **_INTEGER_MODES} if kind in _INTEGER_PRODUCTS else _MODES
    return _KERNEL_TEST.format(kind=kind, mode=modes.get(TARGETS[target].isa.name, "c-size"))


def function_rows(sources: Sources, program: Mapping[str, Any], kernels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns a row for each function of the object files: its file, what it serves, and the test that covers it.
    kernels: kernel -> its source file."""
    by_file: dict[str, list[str]] = {}
    for kernel, source in kernels.items():
        by_file.setdefault(source, []).append(kernel)
    origins: dict[str, list[str]] = {}
    kinds: dict[str, str] = {}
    trace = program["trace"]
    for operator in trace["operators"]:
        for index in operator["calls"]:
            origins.setdefault(program["calls"][index]["kernel"], []).append(operator["name"])
    for row in trace["inserted"]:
        kernel = program["calls"][row["call"]]["kernel"]
        origins.setdefault(kernel, []).append(f"inserted by {', '.join(row['passes'])}")
    for call in program["calls"]:
        kinds[call["kernel"]] = call["kind"]
    rows = []
    for source, name, letter in sources.symbols:
        if letter in "tTW" and not name.startswith(("$", ".")):
            served = by_file.get(source, [])
            operators = list(dict.fromkeys(origin for kernel in served for origin in origins.get(kernel, ())))
            purpose = "" if operators else _purpose((sources.folder / source).read_text())
            rows.append({"function": name, "file": source, "operators": operators, "purpose": purpose,
                         "test": kernel_test(kinds[served[0]], program["target"]) if served else _RUNTIME_TEST})
    return rows


def _purpose(text: str) -> str:
    """Returns the first sentence of the comment at the head of a file."""
    comment = _COMMENT.search(text)
    words = re.sub(r"\s*\n \*[ \t]*", " ", comment[1] if comment else "")
    words = _LICENCE.sub("", words).strip()
    return " ".join(words.partition(". ")[0].split()).removesuffix(".")


def gaps(operators: Sequence[Mapping[str, Any]], functions: Sequence[Mapping[str, Any]], program: Mapping[str, Any],
         sources: Sources) -> list[str]:
    """Returns what the trace lacks, in both directions; none: it is complete."""
    found = [f"operator {row['operator']} has neither a call nor an end" for row in operators
             if "call" not in row and not row.get("end")]
    found += [f"call {row['call']} has no file" for row in operators if "call" in row and not row["file"]]
    reached = {row["call"] for row in operators if "call" in row}
    found += [f"call {index} ({call['kernel']}) has no row" for index, call in enumerate(program["calls"])
              if index not in reached]
    found += [f"call {row['call']} comes from no operator and no pass" for row in operators
              if not row["operator"] and not row["passes"]]
    found += [f"{row['file']}: {row['function']} serves no operator and has no purpose" for row in functions
              if not row["operators"] and not row["purpose"]]
    named = {row["file"] for row in operators if "call" in row}
    found += [f"{source} is called by nothing" for source in sources.objects
              if source.startswith("kernels/") and source not in named]
    return found
