# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: LSTM, GRU and RNN of floats and of integers."""
