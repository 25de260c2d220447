// One encoding in passes over fixed blocks, so that several threads can share the work and the result does not depend
// on how many they are.
//
//   auto run = codec.Begin(input, payload, workspace);
//   for (size_t pass = 0; pass < run->passes(); ++pass) {
//     run->Blocks(pass, 0, n); run->Blocks(pass, n, blocks);    // any split, any threads
//     run->EndPass(pass);                                       // one thread, when all blocks are done
//   }
//   EncodeStats stats = run->Finish();
//
// The first pass reads the gradient and, where a residual is given, leaves x in it: later passes read that, and the last
// subtracts what was sent. So a gradient is read once, and error feedback costs no pass of its own.
#ifndef SLIMPS_COMPRESS_CODEC_ENCODE_RUN_H_
#define SLIMPS_COMPRESS_CODEC_ENCODE_RUN_H_

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "compress/codec/codec.h"
#include "compress/kernels/block_sums.h"
#include "proto/base/buffer.h"

namespace slimps {

class EncodeRun {
 public:
  virtual ~EncodeRun() = default;
  virtual size_t passes() const = 0;
  // Blocks [first, last) of pass `pass`. Disjoint ranges may run at the same time.
  virtual void Blocks(size_t pass, size_t first, size_t last) = 0;
  virtual void EndPass(size_t /*pass*/) {}
  virtual EncodeStats Finish() = 0;
};

// Memory for runs, one at a time: kept and used again, since touching fresh pages costs more than encoding.
// Thread-compatible; Take is for the threads that may call Begin and EndPass.
class EncodeWorkspace final {
 public:
  // Uninitialised, 64-byte aligned, valid until Reset.
  template <typename T>
  std::span<T> Take(size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::span<std::byte> bytes = TakeBytes(count * sizeof(T));
    return {reinterpret_cast<T*>(bytes.data()), count};
  }
  // Everything taken may be taken again.
  void Reset();

 private:
  std::span<std::byte> TakeBytes(size_t bytes);

  std::vector<AlignedBuffer> chunks_;  // the last one is being used up
  size_t used_ = 0;                    // of the last chunk
};

// The blocks' sums in their order, which does not depend on threads. `payload_bytes` is left 0.
EncodeStats SumOf(std::span<const BlockSums> blocks);

// What kernels that list a block's elements need: they write whole vectors.
inline constexpr size_t kBlockRoom = kBlockElements + 16;

// x of one element.
inline float InputOf(const EncodeInput& input, size_t element) {
  const float scaled = input.gradient[element] * input.grad_scale;
  return input.residual.empty() ? scaled : scaled + input.residual[element];
}

// One block of an EncodeInput, as kernels take it.
struct BlockInput {
  const float* gradient = nullptr;
  float* residual = nullptr;  // nullptr: no error feedback
  float* momentum = nullptr;  // nullptr: none
  size_t elements = 0;

  // REQUIRES: block < Codec::Blocks(input.gradient.size()).
  BlockInput(const EncodeInput& input, size_t block)
      : gradient(input.gradient.data() + block * kBlockElements),
        residual(input.residual.empty() ? nullptr : input.residual.data() + block * kBlockElements),
        momentum(input.momentum.empty() ? nullptr : input.momentum.data() + block * kBlockElements),
        elements(input.gradient.size() - block * kBlockElements) {
    if (elements > kBlockElements) elements = kBlockElements;
  }
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_ENCODE_RUN_H_
