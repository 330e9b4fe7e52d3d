# SPDX-License-Identifier: Apache-2.0
"""Imports TFLite files as Relax modules through TVM's importer. Refuses what it silently ignores and corrects its
errors."""

from __future__ import annotations

import math

import tvm
from tvm import relax
from tvm.relax import op

from ...errors import MegccError
from ..tvm_versions import Call, type_of
from .module import OUTPUTS

#: Operators that run other subgraphs of the file.
_CALLERS = ("IF", "WHILE", "CALL", "CALL_ONCE", "STABLEHLO_COMPOSITE", "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_WHILE")


def from_tflite_file(data: bytes, tflite) -> tvm.IRModule:
    """Returns the only graph of a file as a module whose attribute `OUTPUTS` has the names of its results.

    Args:
        tflite: the Python package of that name.

    Raises:
        MegccError: for a file with several graphs. TVM's importer raises exceptions of many types for models that it
            does not support.
    """
    from tvm.relax.frontend.tflite import from_tflite

    model = tflite.Model.GetRootAsModel(data, 0)
    _require_one_graph(model, tflite)
    graph = model.Subgraphs(0)
    outputs = [graph.Tensors(graph.Outputs(index)).Name().decode() for index in range(graph.OutputsLength())]
    mod = from_tflite(model)
    mod["main"] = _RoundedAverages(mod).visit_expr(mod["main"])
    return mod.with_attr(OUTPUTS, outputs)


def _require_one_graph(model, tflite) -> None:
    """Raises MegccError if the file has subgraphs that neither are the first one nor are run by an operator."""
    names = [(model.SignatureDefs(index).SignatureKey() or b"").decode(errors="replace")
             for index in range(model.SignatureDefsLength())]
    advice = ("Convert the one that is wanted by itself: tf.lite.TFLiteConverter.from_saved_model(folder, "
              "signature_keys=[name]), or from_concrete_functions([function])")
    if len(names) > 1:
        raise MegccError(f"it has {len(names)} signatures ({', '.join(names)}), and TVM's importer reads the first "
                         f"graph only. {advice}")
    codes = (model.OperatorCodes(index) for index in range(model.OperatorCodesLength()))
    used = {max(code.BuiltinCode(), code.DeprecatedBuiltinCode()) for code in codes}
    callers = {getattr(tflite.BuiltinOperator, name, None) for name in _CALLERS}
    if model.SubgraphsLength() > 1 and not used & callers:
        raise MegccError(f"it has {model.SubgraphsLength()} graphs of which none runs another, and TVM's importer "
                         f"reads the first only. {advice}")


@relax.expr_functor.mutator
class _RoundedAverages(relax.PyExprMutator):
    """Makes integer average pools round to the nearest, ties away from zero, as TFLite does. TVM's importer truncates,
    which loses half a quantisation step in each pool."""

    def visit_call_(self, call: Call) -> relax.Expr:
        call = super().visit_call_(call)
        if call.op != tvm.ir.Op.get("relax.nn.avg_pool2d") or str(type_of(call.args[0]).dtype) != "int32":
            return call
        x = self.builder_.emit(op.astype(call.args[0], "float32"))
        mean = self.builder_.emit(Call(call.op, [x], call.attrs))
        # Adds slightly more than 1/2, since multiplying by 1 / n may round a tie down. Any mean of n integers below
        # k + 1/2 is at least 1 / 2n below it, and the excess of 1 / 4n does not reach that.
        slightly_over_half = relax.const(0.5 + 0.25 / math.prod(int(extent) for extent in call.attrs.pool_size))
        magnitude = self.builder_.emit(op.floor(op.add(op.abs(mean), slightly_over_half)))
        return self.builder_.emit(op.astype(op.multiply(op.sign(mean), magnitude), "int32"))
