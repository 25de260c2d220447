// SPDX-License-Identifier: Apache-2.0
// Gives a partition states without encoding it.
#ifndef SLIMPS_TESTS_COMPRESS_CODEC_STATE_ADD_STATE_H_
#define SLIMPS_TESTS_COMPRESS_CODEC_STATE_ADD_STATE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/codec/codec.h"
#include "compress/codec/state/state_store.h"

namespace slimps {

// Returns the partition's state, which then has what `codec` wants: "1bit" wants a residual, "dgc"
// a momentum too.
inline CodecState& AddState(StateStore& store, KeyId key, uint32_t partition, size_t elements,
                            const char* codec = "1bit") {
  const std::vector<float> gradient(elements);
  EncodeInput input{.gradient = gradient};
  return **store.Prepare(**MakeCodec({.name = codec, .options = {}}), key, partition, input);
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_COMPRESS_CODEC_STATE_ADD_STATE_H_
