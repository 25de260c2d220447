#include "compress/codec/residual.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

absl::Status WrongLength(KeyId key, uint32_t partition, size_t expected, size_t got) {
  return absl::FailedPreconditionError(absl::StrCat("residual of key ", absl::Hex(key),
                                                    ", partition ", partition, ": expected ",
                                                    expected, " elements, got ", got));
}

}  // namespace

absl::StatusOr<std::span<float>> ResidualStore::GetOrCreate(KeyId key, uint32_t partition,
                                                            size_t elements) {
  MutexLock lock(&mutex_);
  const auto [entry, created] = residuals_.try_emplace(Id(key, partition));
  AlignedBuffer& buffer = entry->second;
  if (created) {
    buffer = AlignedBuffer::OfFloats(elements);
    std::ranges::fill(buffer.floats(), 0.0f);
  }
  if (buffer.floats().size() != elements) {
    return WrongLength(key, partition, buffer.floats().size(), elements);
  }
  return buffer.floats();
}

std::span<float> ResidualStore::Find(KeyId key, uint32_t partition) {
  MutexLock lock(&mutex_);
  const auto entry = residuals_.find(Id(key, partition));
  return entry == residuals_.end() ? std::span<float>() : entry->second.floats();
}

absl::Status ResidualStore::AddAndClear(KeyId key, uint32_t partition,
                                        std::span<float> scaled_gradient) {
  const std::span<float> residual = Find(key, partition);
  if (residual.empty()) return absl::OkStatus();
  if (residual.size() != scaled_gradient.size()) {
    return WrongLength(key, partition, residual.size(), scaled_gradient.size());
  }
  for (size_t i = 0; i < residual.size(); ++i) {
    scaled_gradient[i] += residual[i];
    residual[i] = 0;
  }
  return absl::OkStatus();
}

void ResidualStore::Clear() {
  MutexLock lock(&mutex_);
  residuals_.clear();
}

size_t ResidualStore::TotalBytes() const {
  MutexLock lock(&mutex_);
  size_t total = 0;
  for (const auto& [id, buffer] : residuals_) total += buffer.size();
  return total;
}

}  // namespace slimps
