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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import tvm
from tvm import relay

from ...compiler import compile_graph
from ...errors import MegccError
from ...options import CompileOptions
from ...runtime import tvm_module
from ...target import Target
from ...tuning_log import TuningLog
from ..tvm_common import target as tvm_target
from ..tvm_common.link import linker_of, targets_of
from ..tvm_common.options import from_attributes, region_options, to_attributes
from ..tvm_common.target import our_target
from ..tvm_common.tune import require_log, require_tuning_arguments
from . import in_memory
from . import patterns as relay_patterns
from .functions import by_function, with_references
from .importer import import_region
from .patterns import COMPILER
from .prepare import prepare
from .regions import OUTSIDE, TARGET, attr, buckets_of, finished, is_ours, require_module, typed
from .tune import log_of, tune_regions, with_log

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
        MegccError: for unknown parameters or options, and for anything but a Relay module.
    """
    require_module(mod, "partition_for_megcc")
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


def tune_megcc_kernels(mod: tvm.IRModule, target=None, trials: int | None = None, log: str | Path | None = None,
                       runner=None) -> tvm.IRModule:
    """Times all candidate kernels of a module's regions, so that the build can choose the fastest.

    Args:
        mod: the module; it is partitioned first if that has not been done.
        target: as in `partition_for_megcc`; by default the one the module was partitioned for.
        trials: the largest number of candidates to time for each call, most promising first; None: all.
        log: tuning log (docs/tuning.md). Times in it are not measured again; new times are appended.
        runner: where to measure; None: on this machine. `runtime.remote.RpcRunner("host:port", "key")` measures on the
            devices registered under a key at TVM's RPC tracker.

    Returns:
        The module with the times as attributes of its regions. A build does not need the log, and is reproducible.

    Raises:
        MegccError: if this machine cannot run the target's code and there is no runner, if all devices are lost, for an
            invalid line in the log, and for arguments of another kind.
    """
    require_module(mod, "tune_megcc_kernels")
    require_tuning_arguments(trials, log)
    if not _regions(mod):
        mod = partition_for_megcc(mod, target=target)
    regions = _regions(mod)
    if not regions:
        return mod
    return tune_regions(mod, _cpu_of(regions[0], target), _options_of(regions[0]).optimize, trials, log, runner)


def build_megcc_kernels(mod: tvm.IRModule, target=None, log: str | Path | None = None) -> tvm.IRModule:
    """Compiles the regions of a partitioned module, into the cache of objects. `relay.build` takes them from there.

    Args:
        target: as in `partition_for_megcc`; by default the one the module was partitioned for.
        log: tuning log; by default the times that `tune_megcc_kernels` stored in the module.

    Returns:
        The module, whose regions have the target and the times of the log as attributes.

    Raises:
        MegccError: for an invalid line in the log; ToolError: if a C compiler or objcopy is missing or fails.
    """
    require_module(mod, "build_megcc_kernels")
    require_log(log)
    regions = _regions(mod)
    if not regions:
        return mod
    cpu = _cpu_of(regions[0], target)
    mod = typed({var: function.with_attr(TARGET, cpu.name) if attr(function, TARGET) is not None else function
                 for var, function in mod.functions.items()}, mod)
    if log is not None:
        mod = with_log(mod, TuningLog.read(log), cpu, _options_of(regions[0]).optimize)
    for function in _regions(mod):
        with _compiled(function, cpu):
            pass
    return mod


def _regions(mod: tvm.IRModule) -> list:
    return [function for function in mod.functions.values() if is_ours(function)]


def _cpu_of(region, given=None) -> Target:
    """Returns the CPU that a region is compiled for. given: a target that counts more than the region's attribute."""
    return our_target(given if given is not None else attr(region, TARGET, "native"))


def _options_of(region) -> CompileOptions:
    return from_attributes(partial(attr, region))


@contextmanager
def _compiled(region: relay.Function, cpu: Target) -> Iterator[tuple[Path, list[str]]]:
    """Compiles a region into an object file that lives as long as the context. Returns its path and the symbols that it
    exports."""
    symbol = str(region.attrs["global_symbol"])
    artifact = compile_graph(import_region(region, symbol), [cpu], _options_of(region),
                             name="region0",  # the only one in its object file
                             log=log_of(region), buckets=buckets_of(region))
    with tvm_module.compile_regions({symbol: artifact}, cpu, abi="packed") as compiled:
        yield compiled


def codegen(function: relay.Function) -> tvm.runtime.Module:
    """Compiles one region into an object file; registered as `relay.ext.megcc`. A function with the attribute `OUTSIDE`
    is the one that dispatch calls for shapes in no bucket: its object raises an error with that message."""
    cpu = _cpu_of(function)
    if attr(function, OUTSIDE) is not None:
        symbol = str(function.attrs["global_symbol"])
        with tvm_module.compile_failing(symbol, f"ValueError: {attr(function, OUTSIDE)}", cpu) as path:
            return in_memory.loaded(path, [symbol], cpu)
    with _compiled(function, cpu) as (path, symbols):
        return in_memory.loaded(path, symbols, cpu)


def no_constants(_function, _symbol):
    """Tells TVM not to store a region's constants, which our object file contains; registered as
    `relay.ext.megcc.constant_updater`."""
    return tvm.runtime.convert({})


def build(mod: tvm.IRModule, target="megcc-native", params: Mapping | None = None, **options):
    """Partitions and builds a Relay module, by `relay.build` with its graph executor.

    Args:
        mod: the module; it is partitioned first if that has not been done.
        target, params, options: as in `partition_for_megcc`.

    Returns:
        TVM's library, which can be exported or run in memory.

    Raises:
        MegccError: for anything but a Relay module, and for params or options of a module that is partitioned already.
    """
    require_module(mod, "build")
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
    if fcompile is None and not str(file_name).endswith(".tar"):  # TVM packs a .tar without linking
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
