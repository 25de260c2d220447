// ResidualStore: the error feedback e of every partition of every tensor of one worker, in fp32 and in the units that
// codecs see (gradient * grad_scale). A residual is zero until the first encoding writes it.
//
//   std::span<float> e = *residuals.GetOrCreate(key, partition, n);    // compressed push: codec->Encode with it
//   std::span<float> e = residuals.Find(key, partition);               // raw push: "none" with it sends g + e
//
// A raw push by another way than a codec uses AddAndClear. Thread-safe, but one partition's residual belongs to one
// thread at a time: the one that encodes it. Spans live until Clear, Load or the store's end.
#ifndef SLIMPS_COMPRESS_CODEC_RESIDUAL_H_
#define SLIMPS_COMPRESS_CODEC_RESIDUAL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/buffer.h"
#include "proto/base/key.h"
#include "proto/base/mutex.h"

namespace slimps {

class ResidualStore final {
 public:
  // Zeros at first. FailedPrecondition: the partition has a residual of another length.
  [[nodiscard]] absl::StatusOr<std::span<float>> GetOrCreate(KeyId key, uint32_t partition,
                                                             size_t elements);
  // Empty: this partition was never compressed.
  std::span<float> Find(KeyId key, uint32_t partition);
  // scaled_gradient[i] += e[i], e[i] = 0; without a residual nothing. FailedPrecondition: lengths disagree.
  [[nodiscard]] absl::Status AddAndClear(KeyId key, uint32_t partition,
                                         std::span<float> scaled_gradient);
  void Clear();
  size_t TotalBytes() const;

  // All residuals as one file, replaced as a whole. No encoding may go on meanwhile. Unavailable: cannot be written.
  [[nodiscard]] absl::Status Save(const std::string& path) const;
  // Replaces all residuals by the file's; on an error they stay as they were. NotFound, InvalidArgument: not such a
  // file, or numbers that are not finite. DataLoss: cut off or changed.
  [[nodiscard]] absl::Status Load(const std::string& path);

 private:
  using Id = std::pair<KeyId, uint32_t>;

  mutable Mutex mutex_;
  // The buffers stay where they are as the map grows.
  std::map<Id, AlignedBuffer> residuals_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_RESIDUAL_H_
