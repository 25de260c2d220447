# SPDX-License-Identifier: Apache-2.0
"""Compression on the GPU, with which slimps bench gpu compares compression on the CPU."""

import ctypes

import torch

BLOCK = 4096  # elements: kBlockElements
THRESHOLD = 0.5  # 2bit's, as on the CPU
BITS = {"1bit": 1, "2bit": 2}


def blocks_of(elements):
    return -(-elements // BLOCK)


def payload_bytes(codec, elements):
    """Returns a payload's size (compress/format/levels.h)."""
    scales = blocks_of(elements) if codec == "1bit" else 0
    return 16 + 4 * scales + BITS[codec] * -(-elements // 8)


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


class DeviceCodec:
    """The residuals and payloads of a model's gradients, all on the GPU."""

    def __init__(self, codec, parameters, launch):
        self._codec = codec
        self._launch = launch
        self._parameters = list(parameters)
        self.residuals = [
            torch.zeros_like(parameter, memory_format=torch.contiguous_format).detach()
            for parameter in self._parameters
        ]
        self.payloads = [
            torch.empty(
                payload_bytes(codec, parameter.numel()), dtype=torch.uint8, device=parameter.device
            )
            for parameter in self._parameters
        ]

    def encode(self):
        """Encodes all gradients, on the current stream."""
        value = [ctypes.c_float(THRESHOLD)] if self._codec == "2bit" else []
        for parameter, residual, payload in zip(self._parameters, self.residuals, self.payloads):
            gradient = parameter.grad.contiguous()
            self._launch(
                "slimps_encode_" + self._codec,
                blocks_of(gradient.numel()),
                [pointer(gradient), pointer(residual), ctypes.c_float(1)]
                + value
                + [ctypes.c_uint32(gradient.numel()), pointer(payload)],
            )
