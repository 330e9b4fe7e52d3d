# SPDX-License-Identifier: Apache-2.0
"""The algorithms: a folder a family, in it the classes of its kernels, how they pack and tile, and their templates.

The table says which kernels can realise which operator; of several that can at the same cost, the first is taken.
"""

from __future__ import annotations

from .. import ops
from .attention.queries import AttentionColumns, AttentionLines
from .base import realise
from .conv2d.depthwise import DepthwiseConv
from .conv2d.direct import DirectConv
from .conv2d.pixels import PixelConv
from .conv2d.plain import PlainConv
from .conv2d.winograd import WinogradConv
from .conv2d_transpose.phases import PhasesTransposedConv, PlainTransposedConv
from .conv3d.rows import RowsConv3d
from .draw.philox import PhiloxBlocks
from .elementwise.halves import HALF_BLOCKS, HALVES
from .elementwise.lookup import LookupBytes
from .elementwise.loops import LANES, SCALAR, VECTOR
from .extern.call import ExternCall
from .input.convert import ConvertRuns
from .integer.depthwise import DepthwiseBytes
from .integer.dot import DotConv, DotMatMul
from .integer.helium import HeliumConv, HeliumDepthwise, HeliumMatMul
from .integer.listed import ListedConv, ListedMatMul
from .integer.pairs import PairConv, PairMatMul
from .integer.panel import PanelBytesMatMul
from .integer.plain import PlainBytesConv, PlainBytesMatMul
from .integer.planes import DspDepthwise
from .integer.sums import MaxPoolBytes, ReduceSumBytes, SumPoolBytes
from .integer.triples import DspConv, DspMatMul
from .integer.winograd import WinogradBytes
from .linear.coupling import Coupling
from .linear.determinant import DeterminantKernel, InverseKernel
from .linear.fourier import FourierPasses
from .matmul.nibbles import NibbleRows, NibblesMatMul
from .matmul.packed import DotsMatMul, PackedMatMul, PanelMatMul, ScalarMatMul
from .move.append import AppendRows
from .move.copies import ConcatRuns, PadRows
from .move.copy import StridedCopy
from .move.gather import GatherLines, GatherParts, GatherPoints, GatherRuns
from .move.relayout import RelayoutBlocks, RelayoutElements, RelayoutMatrix
from .move.resample import ResampleRuns
from .move.resize import ResizeLinear, ResizeNearest, TablesKernel
from .move.reverse import ReverseRuns
from .move.scatter import ScatterLines, ScatterRows
from .move.strided import StridedExpand, StridedSlice, StridedTile, StridedTranspose, TransposeMatrix
from .norm.l2 import L2Lines
from .norm.layer import LayerNormBytes, LayerNormRows
from .norm.lrn import LrnPixels
from .pool.columns import ColumnsRows, ScatterMaxima
from .pool.windows import GlobalPool, PlainGlobalPool, PlainPool, WindowPool
from .quant.axis import PerAxisKernel
from .quant.dynamic import DynamicQuantizeKernel
from .reduce.along_axis import ArgExtremeScalars, CumulativeScalars
from .reduce.folds import ReduceScalars, ReduceVectors
from .reduce.products import FixedProducts
from .rnn.fixed import FixedSteps
from .rnn.measured import MeasuredSteps
from .rnn.steps import DotSteps, PackedSteps
from .sample.deform_conv import WindowsDeformConv
from .sample.grid import GridPixels
from .sample.roi import RoiAlignBins, RoiPoolBins
from .shape.control import Inlined
from .shape.dims import DimsKernel
from .softmax.fixed import SoftmaxFixedLines, SoftmaxWideLines
from .softmax.lines import SoftmaxColumns, SoftmaxRows, SoftmaxShortRows
from .softmax.log import LogSoftmaxFixedLines
from .softmax.quantised import SoftmaxQuantisedLines
from .sort.counted import NonMaxSearch, NonZeroCount, NonZeroScan
from .sort.detections import DetectionsSearch
from .sort.grams import GramSearch
from .sort.heap import TopKHeap
from .sort.unique import UniqueSort
from .tir.loops import TirLoops
from .tree.masks import TreeMasks
from .tree.walk import TreeWalk

realise(ops.conv.Conv2d, DirectConv(), WinogradConv(), WinogradConv(raw=True), DepthwiseConv(), PixelConv(),
        PlainConv())
realise(ops.conv3d.Conv3d, RowsConv3d())
realise(ops.conv_transpose.Conv2dTranspose, PhasesTransposedConv(), PlainTransposedConv())
realise(ops.deform_conv.DeformConv, WindowsDeformConv())
realise(ops.attention_fused.Attention, AttentionColumns(), AttentionLines())
realise(ops.matmul.MatMul, PackedMatMul(), DotsMatMul(), PanelMatMul(), ScalarMatMul())
realise(ops.nibbles.MatMulNibbles, NibblesMatMul())
realise(ops.nibbles.DequantizeNibbles, NibbleRows())
realise(ops.integer.Conv2dInteger, DotConv(), ListedConv(), WinogradBytes(), PairConv(), DspConv(), DspDepthwise(),
        HeliumConv(), HeliumDepthwise(), DepthwiseBytes(), PlainBytesConv())
realise(ops.integer.MatMulInteger, DotMatMul(), ListedMatMul(), PairMatMul(), DspMatMul(), HeliumMatMul(),
        PanelBytesMatMul(), PlainBytesMatMul())
realise(ops.integer_sums.SumPoolInteger, SumPoolBytes())
realise(ops.integer_sums.ReduceSumInteger, ReduceSumBytes())
realise(ops.spectral.Determinant, DeterminantKernel())
realise(ops.fourier.Fourier, FourierPasses())
realise(ops.spectral.Inverse, InverseKernel())
realise(ops.coupling.CoupledProbabilities, Coupling())
realise(ops.rnn.Lstm, PackedSteps(), DotSteps())
realise(ops.rnn.Gru, PackedSteps(), DotSteps())
realise(ops.rnn.Rnn, PackedSteps(), DotSteps())
realise(ops.product_fixed.ProductFixed, FixedProducts())
realise(ops.dynamic_quantize.DynamicQuantize, DynamicQuantizeKernel())
realise(ops.layer_norm.LayerNorm, LayerNormRows())
realise(ops.layer_norm_quantised.LayerNormQuantised, LayerNormBytes())
realise(ops.lstm_fixed.LstmFixed, FixedSteps())
realise(ops.recurrent_steps.RecurrentSteps, MeasuredSteps())

realise(ops.elementwise.Elementwise, VECTOR, SCALAR)
realise(ops.elementwise.Fused, VECTOR, SCALAR, LANES)
realise(ops.activation.Clip, VECTOR, SCALAR)
realise(ops.elementwise.Where, SCALAR)
realise(ops.elementwise.Cast, HALVES, HALF_BLOCKS, SCALAR)
realise(ops.lookup.Lookup, LookupBytes())
realise(ops.quant._Quantisation, PerAxisKernel())

realise(ops.pool._Pool, WindowPool(), PlainPool())
realise(ops.pool.MaxPool, WindowPool(), PlainPool(), MaxPoolBytes())
realise(ops.pool.MaxPoolIndices, PlainPool())
realise(ops.pool._GlobalPool, GlobalPool(), PlainGlobalPool())
realise(ops.columns.Col2Im, ColumnsRows())
realise(ops.columns.MaxUnpool, ScatterMaxima())
realise(ops.lrn.Lrn, LrnPixels())
realise(ops.inverse_root.L2Fixed, L2Lines())
realise(ops.reduce.Reduction, ReduceVectors(), ReduceScalars())
realise(ops.reduce.ArgExtreme, ArgExtremeScalars())
realise(ops.reduce.Cumulative, CumulativeScalars())
realise(ops.softmax.Softmax, SoftmaxRows(), SoftmaxShortRows(), SoftmaxColumns())
realise(ops.softmax_fixed.SoftmaxFixed, SoftmaxFixedLines())
realise(ops.softmax_wide.SoftmaxWide, SoftmaxWideLines())
realise(ops.softmax_quantised.SoftmaxQuantised, SoftmaxQuantisedLines())
realise(ops.log_softmax_fixed.LogSoftmaxFixed, LogSoftmaxFixedLines())
realise(ops.sort.TopK, TopKHeap())
realise(ops.grams.CountGrams, GramSearch())
realise(ops.detections.Detections, DetectionsSearch())
realise(ops.counted.NonMaxSuppression, NonMaxSearch())
realise(ops.control.Loop, Inlined())
realise(ops.control.Branch, Inlined())
realise(ops.counted.CountNonZero, NonZeroCount())
realise(ops.counted.NonZero, NonZeroScan())
realise(ops.unique.Unique, UniqueSort())

realise(ops.move.Transpose, TransposeMatrix(), StridedTranspose())
realise(ops.move.Relayout, RelayoutMatrix(), RelayoutBlocks(), RelayoutElements())
realise(ops.move.Concat, ConcatRuns())
realise(ops.move.Slice, StridedSlice())
realise(ops.move.Pad, PadRows())
realise(ops.move.Tile, StridedTile())
realise(ops.shape.Expand, StridedExpand())
realise(ops.shape.Dims, DimsKernel())
realise(ops.copy.Copy, StridedCopy())
realise(ops.gather.Gather, GatherRuns())
realise(ops.gather.GatherElements, GatherLines(), GatherParts())
realise(ops.gather.GatherPointsOperator, GatherPoints())
realise(ops.append.Append, AppendRows())
realise(ops.scatter.ScatterElements, ScatterLines())
realise(ops.scatter.ScatterPoints, ScatterRows())
realise(ops.reverse.ReverseSequence, ReverseRuns())
realise(ops.inputs.ConvertInput, ConvertRuns())

realise(ops.resample.Resample, ResampleRuns())
realise(ops.resize.Resize, ResizeNearest(), ResizeLinear())
realise(ops.resize_tables.ResizeTables, TablesKernel())
realise(ops.sampling.GridSample, GridPixels())
realise(ops.roi.RoiAlign, RoiAlignBins())
realise(ops.roi.MaxRoiPool, RoiPoolBins())

realise(ops.philox.Draw, PhiloxBlocks())
realise(ops.extern.Extern, ExternCall())
realise(ops.tir.Tir, TirLoops())
realise(ops.trees.Trees, TreeMasks(), TreeWalk())
