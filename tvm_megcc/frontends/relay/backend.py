# SPDX-License-Identifier: Apache-2.0
"""The backend inside a TVM with Relay: partitions modules and compiles our regions. TVM compiles the rest, into the
same library.

    mod = partition_for_megcc(mod, params, target="megcc-native")
    lib = relay.build(mod, target="megcc-native")
    lib.export_library("model.so")                  # or lib["default"](tvm.cpu()), in memory

Importing this module registers with TVM: target tags, the pattern table "megcc", `relay.ext.megcc`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

import tvm
from tvm import relay

from ...compiler import compile_graph
from ...errors import MegccError
from ...runtime import tvm_module
from ..tvm_common import target as tvm_target
from ..tvm_common.link import linker_of, targets_of
from ..tvm_common.options import from_attributes, region_options, to_attributes
from ..tvm_common.target import our_target
from . import in_memory
from . import patterns as relay_patterns
from .functions import by_function, with_references
from .importer import import_region
from .patterns import COMPILER
from .prepare import prepare
from .regions import OUTSIDE, TARGET, attr, buckets_of, finished, is_ours

logger = logging.getLogger(__name__)


def partition_for_megcc(mod: tvm.IRModule, params: Mapping | None = None, target=None, mod_name: str = "default",
                        **options) -> tvm.IRModule:
    """Partitions a module into regions that megcc has kernels for, and the rest, which stays with TVM.

    Args:
        mod: a Relay module from any of TVM's importers.
        params: weights to bind, {name: array} of "main". Weights that are not bound cannot be packed beforehand.
        target: what to compile for: "megcc-arm64", a `tvm.target.Target` or a `tvm_megcc.Target`; by default the target
            of the context, else this machine. It is fixed here, since TVM does not pass it to the code generator.
        mod_name: part of the names of regions, for several modules in one library.
        options: `optimize`, `reproducible`, `activations` and `half`, as in `tvm_megcc.compile`.

    Returns:
        The module, in which each region is a function with the attribute Compiler = "megcc". `report(mod)` lists the
        operators of both parts.

    Raises:
        MegccError: for unknown parameters or options.
    """
    chosen = region_options(options, "partition_for_megcc")
    cpu = our_target(target)
    mod = prepare(mod, params)
    referring = with_references(mod)
    if referring:
        logger.warning("nothing was partitioned: %s has references, which of TVM's executors only the interpreter "
                       "runs, and that runs no regions of megcc", ", ".join(referring))
        return mod
    with relay_patterns.checking_for(cpu):
        mod = by_function(mod, lambda name: tvm.transform.Sequential([
            relay.transform.MergeComposite(relay_patterns.registered()),
            relay.transform.AnnotateTarget(COMPILER), relay.transform.MergeCompilerRegions(),
            relay.transform.PartitionGraph(mod_name if name == "main" else f"{mod_name}_{name}")]))
    return finished(mod, {TARGET: cpu.name, **to_attributes(chosen)})


def codegen(function: relay.Function) -> tvm.runtime.Module:
    """Compiles one region into an object file; registered as `relay.ext.megcc`. A function with the attribute `OUTSIDE`
    is the one that dispatch calls for shapes in no bucket: its object raises an error with that message."""
    symbol, cpu = str(function.attrs["global_symbol"]), our_target(attr(function, TARGET, "native"))
    if attr(function, OUTSIDE) is not None:
        with tvm_module.compile_failing(symbol, f"ValueError: {attr(function, OUTSIDE)}", cpu) as path:
            return in_memory.loaded(path, [symbol], cpu)
    artifact = compile_graph(import_region(function, symbol), [cpu], from_attributes(partial(attr, function)),
                             name="region0", buckets=buckets_of(function))
    with tvm_module.compile_regions({symbol: artifact}, cpu, "packed") as (path, symbols):
        return in_memory.loaded(path, symbols, cpu)


def no_constants(_function, _symbol):
    """Tells TVM not to store a region's constants, which our object file contains; registered as
    `relay.ext.megcc.constant_updater`."""
    return tvm.runtime.convert({})


def build(mod: tvm.IRModule, target="megcc-native", params: Mapping | None = None, **options):
    """Partitions and builds a Relay module, by `relay.build` with its graph executor.

    Args:
        target, params, options: as in `partition_for_megcc`.

    Returns:
        TVM's library, which can be exported or run in memory.
    """
    cpu = our_target(target)
    if not any(map(is_ours, mod.functions.values())):
        mod = partition_for_megcc(mod, params, cpu, **options)
    elif params or options:
        raise MegccError("the module is partitioned already: give params and options to partition_for_megcc")
    return relay.build(mod, target=tvm.target.Target(tvm_target.config(cpu)))


def _export_library(self, file_name, fcompile=None, *addons, **keywords):
    """Replaces `export_library` of TVM's modules: links with the compiler of our target if that is another machine.

    addons: further positional parameters, which older versions of TVM have after fcompile.
    """
    targets = targets_of(in_memory.ours(self), tvm.runtime.Module.implements_function)
    for part in self._collect_dso_modules() if targets else ():
        if part.type_key == "llvm":
            _require_same_machine(tvm.target.Target(part.get_function("_get_target_string")()), targets)
    if fcompile is None and not str(file_name).endswith(".tar"):
        fcompile = linker_of(targets)
    with in_memory.exporting(self):
        if addons:
            return _tvm_export_library(self, file_name, fcompile, *addons, **keywords)
        return _tvm_export_library(self, file_name, fcompile=fcompile, **keywords)


def _require_same_machine(host: tvm.target.Target, targets) -> None:
    """Raises MegccError if a region was compiled for another machine than TVM's part of the module. host: the target of
    TVM's part. targets: those of the regions."""
    machine = our_target(host).machine
    for target in targets:
        if target.machine not in (machine, "any"):
            raise MegccError(f"the module was partitioned for {target} and built for {host}; give both the same, for "
                             f"example partition_for_megcc(mod, target='megcc-{target}') and "
                             f"relay.build(mod, target='megcc-{target}')")


_tvm_export_library = tvm.runtime.Module.export_library


def register() -> None:
    """Registers everything with TVM; called when this module is imported."""
    tvm_target.register()
    relay_patterns.register()
    tvm.register_func("relay.ext.megcc", codegen, override=True)
    tvm.register_func("relay.ext.megcc.constant_updater", no_constants, override=True)
    tvm.runtime.Module.export_library = _export_library
    in_memory.register()


register()
