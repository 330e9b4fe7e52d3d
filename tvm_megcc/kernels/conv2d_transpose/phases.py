# SPDX-License-Identifier: Apache-2.0
"""Kernels of transposed convolution."""

from __future__ import annotations

from ...ir.dims import Dim, ceildiv, product, round_up
from ...ir.graph import Attrs
from ...ir.types import PLAIN
from ..base import FLOAT32, Kernel, Lowered, Operand, extent_symbols
from ..conv2d.geometry import blocked, has_bias
from ..site import Site
from ..tiling import Tiling


class _TransposedConv(Kernel):
    """What the candidates share: geometry, name and operands beside their layouts."""

    dtypes, static = (FLOAT32,), (1,)
    fuses_epilogue = True

    @staticmethod
    def _geometry(site: Site) -> dict[str, Dim]:
        """Values of the extents; IC and OC are those of one group."""
        groups = site.attrs.groups
        (n, ic, ih, iw), oc = site.x.shape, site.inputs[1].shape[1]
        return {"N": n, "G": groups, "IC": ic // groups, "IH": ih, "IW": iw, "OC": oc, "OH": site.y.shape[2],
                "OW": site.y.shape[3], "PT": site.attrs.pads[0], "PL": site.attrs.pads[1]}

    @staticmethod
    def _params(op, inputs) -> dict[str, object]:
        (sh, sw), (dh, dw), (kh, kw) = op.attrs.strides, op.attrs.dilations, inputs[1].shape[2:]
        return {"kh": kh, "kw": kw, "sh": sh, "sw": sw, "dh": dh, "dw": dw, "bias": has_bias(op)}

    @staticmethod
    def _name(params) -> str:
        """`conv2d_transpose_3x3_s2`: what the kernel's code is specialised to."""
        parts = [f"conv2d_transpose_{params['kh']}x{params['kw']}"]
        for letter in "sd":
            pair = (params[f"{letter}h"], params[f"{letter}w"])
            parts += [letter + "x".join(map(str, dict.fromkeys(pair)))] if pair != (1, 1) else []
        return "_".join(parts + ["bias"] * bool(params["bias"]))


class PhasesTransposedConv(_TransposedConv):
    """Register tiles of outputs that lie a stride apart: along such a phase the taps that reach an output are the
    same, and their inputs are neighbours."""

    name = "phases"
    constants = (1, 2)

    def layouts(self, site):
        yield (blocked(site.target), *(PLAIN,) * (len(site.op.own_inputs) - 1)), (blocked(site.target),)

    @staticmethod
    def _is_depthwise(op, inputs) -> bool:
        return 1 < op.attrs.groups == inputs[0].shape[1] and inputs[1].shape[1] == 1

    def refuse(self, site):
        lanes, groups = site.isa.lanes, site.attrs.groups
        if groups > 1 and not self._is_depthwise(site.op, site.inputs) \
                and (site.inputs[1].shape[0] // groups % lanes or site.inputs[1].shape[1] % lanes):
            return f"groups of {site.inputs[1].shape[0] // groups} channels are no whole vectors"
        return None

    def lower(self, site):
        lanes, params, extents = site.isa.lanes, self._params(site.op, site.inputs), self._geometry(site)
        depthwise = self._is_depthwise(site.op, site.inputs)
        taps = params["kh"] * params["kw"]
        N, G, IC, IH, IW, OC, OH, OW = extent_symbols("N", "G", "IC", "IH", "IW", "OC", "OH", "OW")
        if depthwise:
            # A group a channel becomes one group whose channels do not mix.
            extents.update(G=1, IC=site.attrs.groups, OC=site.attrs.groups)
        weights = round_up(OC, lanes) * (1 if depthwise else G * IC) * taps
        pack = ("depthwise", lanes) if depthwise else ("conv_iohw", lanes, site.attrs.groups)
        operands = [Operand("x", 0, N * G * round_up(IC, lanes) * IH * IW), Operand("w", 1, weights, pack)]
        if params["bias"]:
            operands.append(Operand("b", 2, round_up(G * OC, lanes), ("channel", lanes)))
        kind = "depthwise" if depthwise else "grouped" if site.attrs.groups > 1 else ""
        return Lowered(
            "conv2d_transpose/phases", Attrs(**params, depthwise=depthwise, tiling=Tiling.of(site.isa)), extents,
            tuple(operands), (Operand("y", 0, N * G * round_up(OC, lanes) * OH * OW),), N * G * OH,
            "_".join(filter(None, (kind, self._name(params)))), "phases", scratch=24 * taps,
            channels=round_up(G * OC, lanes))

    def cost(self, site):
        if not (site.x.is_static and site.y.is_static):
            return float(product(site.inputs[1].shape[:2]))
        lanes, (_, oc, kh, kw) = site.isa.lanes, site.inputs[1].shape
        if self._is_depthwise(site.op, site.inputs):
            return 200 + 2.0 * site.x.stored * kh * kw / lanes
        return 200 + site.x.size * kh * kw * (ceildiv(oc, lanes) + 0.8) + 2 * site.y.stored / lanes


class PlainTransposedConv(_TransposedConv):
    """Any transposed convolution in plain layout, one output after the other: slow, and always there."""

    name = "plain"

    def lower(self, site):
        params, extents = self._params(site.op, site.inputs), self._geometry(site)
        N, G, IC, IH, IW, OC, OH, OW = extent_symbols("N", "G", "IC", "IH", "IW", "OC", "OH", "OW")
        operands = [Operand("x", 0, N * G * IC * IH * IW),
                    Operand("w", 1, G * IC * OC * params["kh"] * params["kw"])]
        if params["bias"]:
            operands.append(Operand("b", 2, G * OC))
        return Lowered("conv2d_transpose/plain", Attrs(**params), extents, tuple(operands),
                       (Operand("y", 0, N * G * OC * OH * OW),), N * G * OC * OH, self._name(params), "plain",
                       channels=G * OC)

    def cost(self, site):
        if not site.x.is_static:
            return 1000.0 * product(site.inputs[1].shape[:2])
        return 1000 + 4.0 * site.x.size * product(site.inputs[1].shape[1:])
