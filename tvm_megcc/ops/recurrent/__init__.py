# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN layers."""

from . import activations, hybrid, lstm_int8, rnn
