# SPDX-License-Identifier: Apache-2.0
"""The structs and types of the C API: slimps/c_api.h and the headers beside it."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint64, c_void_p

KEY_INT, KEY_TEXT = 1, 2
FLOAT32, FLOAT16 = 0, 1

# The kinds of layers, for codecs that treat layers differently, in the order of SLIMPS_LAYER_...;
# "": by the tensor's dimensions.
LAYERS = ("", "convolution", "dense", "recurrent", "embedding", "normalisation", "other")

UNDER_WAY = -1  # slimps_status
UNKNOWN = 2
FAILED_PRECONDITION = 9


class Key(ctypes.Structure):
    _fields_ = [("kind", c_int32), ("reserved", c_int32), ("number", c_int64), ("text", c_char_p)]


class Place(ctypes.Structure):
    _fields_ = [("kind", c_int32), ("device", c_int32), ("stream", c_void_p)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("key", Key),
        ("shape", c_void_p),
        ("dimensions", c_size_t),
        ("values", c_void_p),
        ("dtype", c_int32),
        ("layer", c_int32),
        ("place", c_void_p),
    ]


class Bytes(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("data", c_void_p),
        ("bytes", c_size_t),
        ("written", c_int32),
    ]


class Parameter(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("shape", c_void_p),
        ("dimensions", c_size_t),
        ("values", c_void_p),
        ("layer", c_int32),
        ("spare", c_int32),
        ("place", c_void_p),
    ]


class ExchangeSettings(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("backup_model", c_int32),
        ("skip_non_finite", c_int32),
        ("local_lr", c_double),
        ("timeout_s", c_double),
        ("clip_norm", c_double),
        ("overlap_forward", c_int32),
        ("reserved", c_int32),
    ]


class ExchangeTimes(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("wait_s", c_double),
        ("local_update_s", c_double),
        ("overlap_s", c_double),
    ]


class Clipping(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("norm", c_double),
        ("scale", c_double),
        ("skipped_steps", c_uint64),
    ]


class Totals(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("elements_pushed", c_uint64),
        ("elements_sent", c_uint64),
        ("bytes_pushed", c_uint64),
        ("bytes_pulled", c_uint64),
        ("bytes_shared", c_uint64),
        ("changes_pulled", c_uint64),
        ("copy_s", c_double),
        ("encode_s", c_double),
        ("send_s", c_double),
        ("wait_s", c_double),
        ("decode_s", c_double),
        ("compression_gain", c_double),
        ("compression_error", c_double),
    ]


class OptimizerState(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("key", Key),
        ("tensors", c_void_p * 3),
        ("elements", c_size_t),
        ("count", c_uint64),
        ("updates", c_uint64),
        ("round", c_uint64),
    ]


NOT_COMPRESSED = 2**64 - 1


class Decision(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("is_decided", c_uint64),
        ("from_round", c_uint64),
        ("threshold_bytes", c_uint64),
        ("pull_threshold_bytes", c_uint64),
        ("codec", c_char_p),
        ("pull_codec", c_char_p),
        ("policy", c_char_p),
        ("reason", c_char_p),
    ]


class KeyCodec(ctypes.Structure):
    _fields_ = [("key", Key), ("codec", c_char_p), ("reason", c_char_p)]


class ThresholdRow(ctypes.Structure):
    _fields_ = [
        ("is_pull", c_uint64),
        ("bytes", c_uint64),
        ("t_c_ms", c_double),
        ("t_cq_ms", c_double),
        ("t_pq_ms", c_double),
    ]


# status (*)(user_data, key, gradient, weight, elements)
Updater = ctypes.CFUNCTYPE(c_int32, c_void_p, Key, c_void_p, c_void_p, c_size_t)
