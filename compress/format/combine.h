// How a server joins the workers' gradients of one key: a property of the key, set with its codec
// (Codec::combine()), not of a payload.
#ifndef SLIMPS_COMPRESS_FORMAT_COMBINE_H_
#define SLIMPS_COMPRESS_FORMAT_COMBINE_H_

#include <cstdint>

namespace slimps {

// Values equal wire::Combine's.
enum class Combine : uint8_t {
  kSum = 0,
  kMajority =
      1,  // the sign of the sum; 0 stays 0. Source: signSGD with majority vote, Bernstein et al. 2018
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_COMBINE_H_
