# SPDX-License-Identifier: Apache-2.0
"""X25519 of RFC 7748, as far as keys are made by it. Pure."""

BYTES = 32
_PRIME = 2**255 - 19
_BASE_POINT = 9


def public_key(secret):
    """Returns the public key of a secret one: section 5 of the RFC, with the base point.

    It does not take the same time for all keys, so nobody else may measure it: keys are made
    beforehand, and not while someone talks.
    """
    number = int.from_bytes(secret, "little")
    number = (number & ~(7 | 1 << 255)) | 1 << 254
    x_1, x_2, z_2, x_3, z_3 = _BASE_POINT, 1, 0, _BASE_POINT, 1
    swapped = 0
    for place in range(254, -1, -1):
        bit = number >> place & 1
        if swapped != bit:
            x_2, x_3, z_2, z_3 = x_3, x_2, z_3, z_2
        swapped = bit
        sum_2, difference_2 = x_2 + z_2, x_2 - z_2
        square, other_square = sum_2 * sum_2 % _PRIME, difference_2 * difference_2 % _PRIME
        left = (x_3 - z_3) * sum_2 % _PRIME
        right = (x_3 + z_3) * difference_2 % _PRIME
        x_3 = (left + right) ** 2 % _PRIME
        z_3 = x_1 * (left - right) ** 2 % _PRIME
        x_2 = square * other_square % _PRIME
        difference = square - other_square
        z_2 = difference * (square + 121665 * difference) % _PRIME
    if swapped:
        x_2, z_2 = x_3, z_3
    return (x_2 * pow(z_2, _PRIME - 2, _PRIME) % _PRIME).to_bytes(BYTES, "little")
