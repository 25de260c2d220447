// SPDX-License-Identifier: Apache-2.0
#include "compress/format/sparse.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compress/format/bytes.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr size_t kStreamBytes = 5 * sizeof(uint32_t);
constexpr size_t kLongestSkips = kBlockElements / 255;  // most bytes of 255 in a block
// A decoded block may write this many indices past its entries: index bytes may exceed the entries
// by kLongestSkips before they are refused, and vectors are stored whole.
constexpr size_t kIndexSlack = kLongestSkips + 16;

// Blocks are decoded together in runs. A run ends after this many entries: enough that the cache
// lines of the next blocks are already on their way.
constexpr size_t kRunEntries = 4096;
constexpr size_t kLongestRun =
    (size_t{1} << 30) / kBlockElements;  // in blocks: indices in a run have 32 bits

// Reads the header and checks nothing. REQUIRES: payload.size() >= kSparseHeaderBytes, and
// kStreamBytes more if seeded.
SparseLayout ReadHeader(std::span<const std::byte> payload) {
  SparseLayout layout = {.indices = static_cast<SparseIndices>(Load<uint8_t>(payload, 1)),
                         .values = static_cast<SparseValues>(Load<uint8_t>(payload, 2)),
                         .elements = Load<uint32_t>(payload, 4),
                         .count = Load<uint32_t>(payload, 8),
                         .scale0 = Load<float>(payload, 12),
                         .scale1 = Load<float>(payload, 16)};
  if (layout.indices == SparseIndices::kSeeded) {
    layout.stream = {.key0 = Load<uint32_t>(payload, 20),
                     .key1 = Load<uint32_t>(payload, 24),
                     .round = Load<uint32_t>(payload, 28),
                     .worker = Load<uint32_t>(payload, 32),
                     .partition = Load<uint32_t>(payload, 36)};
  }
  return layout;
}

// Finds the parts of a payload. Its answers about directories and indices are right once those were
// checked.
class Reader final {
 public:
  Reader(const Kernels& kernels, std::span<const std::byte> payload)
      : kernels_(kernels),
        payload_(payload),
        layout_(ReadHeader(payload)),
        seeded_(kernels, layout_) {}

  const SparseLayout& layout() const { return layout_; }

  // Returns the number of entries before `block`. Block blocks() is allowed.
  size_t Before(size_t block) const {
    if (layout_.indices == SparseIndices::kSeeded) return seeded_.Before(block);
    if (block == layout_.blocks()) return layout_.count;
    return Load<uint32_t>(payload_, kSparseHeaderBytes + 4 * block);
  }

  // Returns where the bytes of a delta-coded block begin in the payload.
  size_t DeltaOffset(size_t block) const {
    if (block == layout_.blocks()) return payload_.size();
    const size_t directory = layout_.IndicesOffset();
    return directory + 4 * layout_.blocks() + Load<uint32_t>(payload_, directory + 4 * block);
  }

  // Returns how many of the `blocks` blocks from `block` on have at most `entries` entries
  // together, but at least 1.
  size_t BlocksWithin(size_t block, size_t blocks, size_t entries) const {
    if (layout_.indices == SparseIndices::kSeeded) {
      const size_t within =
          entries * layout_.elements / (std::max<size_t>(layout_.count, 1) * kBlockElements);
      return std::clamp<size_t>(within, 1, blocks);
    }
    const size_t most = Before(block) + entries, last = block + blocks;
    size_t end = block + 1;
    while (end < last && Before(end + 1) <= most) ++end;
    return end - block;
  }

  // Writes the indices of `blocks` blocks, counted from the first block's begin. REQUIRES: `index`
  // has room for them and kIndexSlack more.
  void Indices(size_t block, size_t blocks, uint32_t* index) const {
    if (layout_.indices == SparseIndices::kSeeded) return seeded_.Draw(block, blocks, index);
    for (size_t i = 0; i < blocks; ++i) {
      index += BlockIndices(block + i, static_cast<uint32_t>(i * kBlockElements), index);
    }
  }

  // Writes the indices of one block, each plus `base`. Returns how many. REQUIRES: not seeded; room
  // as above.
  size_t BlockIndices(size_t block, uint32_t base, uint32_t* index) const {
    const auto* bytes = reinterpret_cast<const uint8_t*>(payload_.data());
    if (layout_.indices == SparseIndices::kDelta) {
      const size_t begin = DeltaOffset(block);
      return kernels_.sparse.decode_delta(bytes + begin, DeltaOffset(block + 1) - begin, base,
                                          index);
    }
    const size_t begin = Before(block), count = Before(block + 1) - begin;
    kernels_.sparse.decode_packed(bytes + layout_.IndicesOffset() + 3 * begin / 2, begin % 2, count,
                                  base, index);
    return count;
  }

  void Values(size_t first, size_t count, float* values) const {
    if (count == 0) return;
    const std::byte* const begin = payload_.data() + layout_.ValuesOffset();
    switch (layout_.values) {
      case SparseValues::kF32:
        std::memcpy(values, begin + 4 * first, 4 * count);
        return;
      case SparseValues::kF16:
        return kernels_.raw.decode_f16(begin + 2 * first, count, values);
      case SparseValues::kOne:
        std::fill_n(values, count, layout_.scale0);
        return;
      case SparseValues::kSign:
      case SparseValues::kSignTwo:
        return kernels_.sparse.decode_signs(
            reinterpret_cast<const uint8_t*>(begin) + first / 8, first % 8, layout_.scale0,
            layout_.values == SparseValues::kSign ? -layout_.scale0 : layout_.scale1, count,
            values);
    }
  }

 private:
  const Kernels& kernels_;
  const std::span<const std::byte> payload_;
  const SparseLayout layout_;
  const SeededIndices seeded_;  // used with seeded indices only
};

absl::Status TooShort(size_t expected, size_t got) {
  return absl::DataLossError(
      absl::StrCat("sparse payload: expected at least ", expected, " bytes, got ", got));
}

absl::Status CheckHeader(std::span<const std::byte> payload, size_t elements) {
  if (payload.size() < kSparseHeaderBytes) return TooShort(kSparseHeaderBytes, payload.size());
  if (const auto magic = Load<uint8_t>(payload, 0); magic != kSparseMagic) {
    return Malformed("sparse", "magic byte", absl::StrCat(kSparseMagic), absl::StrCat(magic));
  }
  if (const auto coding = Load<uint8_t>(payload, 1); coding > 2) {
    return Malformed("sparse", "index coding", "0, 1 or 2", absl::StrCat(coding));
  }
  if (const auto coding = Load<uint8_t>(payload, 2); coding > 4) {
    return Malformed("sparse", "value coding", "0 to 4", absl::StrCat(coding));
  }
  if (const auto flags = Load<uint8_t>(payload, 3); flags != 0) {
    return Malformed("sparse", "flags", "0", absl::StrCat(flags));
  }
  if (Load<uint8_t>(payload, 1) == 2 && payload.size() < kSparseHeaderBytes + kStreamBytes) {
    return TooShort(kSparseHeaderBytes + kStreamBytes, payload.size());
  }
  const SparseLayout layout = ReadHeader(payload);
  if (layout.elements != elements) {
    return Malformed("sparse", "elements", absl::StrCat(elements), absl::StrCat(layout.elements));
  }
  if (layout.count > elements) {
    return Malformed("sparse", "entries", absl::StrCat("at most ", elements),
                     absl::StrCat(layout.count));
  }
  if (!std::isfinite(layout.scale0) || !std::isfinite(layout.scale1)) {
    return Malformed("sparse", "scales", "finite numbers",
                     absl::StrCat(layout.scale0, " and ", layout.scale1));
  }
  const bool one = layout.values >= SparseValues::kOne;
  const bool two = layout.values == SparseValues::kSignTwo;
  if ((!one && Load<uint32_t>(payload, 12) != 0) || (!two && Load<uint32_t>(payload, 16) != 0)) {
    return Malformed("sparse", "scales that the values do not use", "0",
                     absl::StrCat(layout.scale0, " and ", layout.scale1));
  }
  return absl::OkStatus();
}

absl::Status CheckLength(std::span<const std::byte> payload, const SparseLayout& layout) {
  // Delta-coded indices have a length of their own, checked block by block.
  const bool is_delta = layout.indices == SparseIndices::kDelta && layout.elements > 0;
  const size_t expected = layout.PayloadBytes(0);
  if (is_delta ? payload.size() >= expected : payload.size() == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "sparse payload of ", layout.count, " entries of ", layout.elements, " elements: expected ",
      is_delta ? "at least " : "", expected, " bytes, got ", payload.size()));
}

absl::Status CheckDirectory(const Reader& reader, size_t block) {
  const SparseLayout& layout = reader.layout();
  const size_t before = reader.Before(block), after = reader.Before(block + 1);
  if ((block == 0 && before != 0) || after < before || after > layout.count ||
      after - before > layout.BlockElements(block)) {
    return Malformed("sparse", absl::StrCat("entries of block ", block),
                     absl::StrCat("up to ", layout.BlockElements(block), " of ", layout.count),
                     absl::StrCat(before, " to ", after));
  }
  return absl::OkStatus();
}

// Checks that decoding the block's indices stays within its room and within the payload.
absl::Status CheckDeltaBytes(const Reader& reader, std::span<const std::byte> payload, size_t block,
                             size_t count) {
  const size_t begin = reader.DeltaOffset(block), end = reader.DeltaOffset(block + 1);
  const size_t base = reader.DeltaOffset(0);
  const bool first_is_base = base == reader.layout().IndicesOffset() + 4 * reader.layout().blocks();
  if (!first_is_base || begin > end || end > payload.size() || end - begin < count ||
      end - begin - count > kLongestSkips || (end > begin && payload[end - 1] == std::byte{255})) {
    return Malformed("sparse", absl::StrCat("index bytes of block ", block),
                     absl::StrCat(count, " to ", count + kLongestSkips, ", the last not 255"),
                     absl::StrCat("bytes ", begin, " to ", end, " of ", payload.size()));
  }
  return absl::OkStatus();
}

absl::Status CheckBlock(const Reader& reader, std::span<const std::byte> payload, size_t block) {
  const SparseLayout& layout = reader.layout();
  const size_t first = reader.Before(block), count = reader.Before(block + 1) - first;
  const SparseKernels& kernels = BestKernels().sparse;
  uint32_t index[kBlockElements + kIndexSlack];
  if (layout.indices == SparseIndices::kDelta) {
    absl::Status status = CheckDeltaBytes(reader, payload, block, count);
    if (!status.ok()) return status;
  }
  if (layout.indices != SparseIndices::kSeeded) {
    if (const size_t found = reader.BlockIndices(block, 0, index); found != count) {
      return Malformed("sparse", absl::StrCat("indices of block ", block), absl::StrCat(count),
                       absl::StrCat(found));
    }
    if (!kernels.rising(index, count, static_cast<uint32_t>(layout.BlockElements(block)))) {
      return Malformed("sparse", absl::StrCat("indices of block ", block),
                       absl::StrCat("rising ones under ", layout.BlockElements(block)), "others");
    }
  }
  if (layout.values == SparseValues::kF32 || layout.values == SparseValues::kF16) {
    float values[kBlockElements];
    reader.Values(first, count, values);
    if (!kernels.finite(values, count)) {
      return Malformed("sparse", absl::StrCat("values of block ", block), "finite numbers",
                       "NaN or infinity");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckUnusedBits(std::span<const std::byte> payload, const SparseLayout& layout) {
  const bool signs = layout.ValueBits() == 1;
  if (signs && layout.count % 8 != 0) {
    const auto byte = Load<uint8_t>(payload, layout.IndicesOffset() - 1);
    if ((byte >> (layout.count % 8)) != 0) {
      return Malformed("sparse", "bits past the last sign", "0", absl::StrCat(byte));
    }
  }
  if (layout.indices == SparseIndices::kPacked && layout.count % 2 != 0) {
    const auto byte = Load<uint8_t>(payload, payload.size() - 1);
    if ((byte >> 4) != 0) {
      return Malformed("sparse", "bits past the last index", "0", absl::StrCat(byte >> 4));
    }
  }
  return absl::OkStatus();
}

// Calls use(index, values, count, floats) for runs of at most `run_blocks` blocks.
template <typename Use>
void ForRuns(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
             std::span<float> dst, size_t run_blocks, const Use& use) {
  if (dst.empty()) return;
  const Reader reader(kernels, payload);
  uint32_t index[kRunEntries + kBlockElements + kIndexSlack];
  float values[kRunEntries + kBlockElements];
  const size_t last = (first + dst.size() + kBlockElements - 1) / kBlockElements;
  for (size_t block = first / kBlockElements; block < last;) {
    const size_t blocks =
        reader.BlocksWithin(block, std::min(last - block, run_blocks), kRunEntries);
    const size_t before = reader.Before(block), count = reader.Before(block + blocks) - before;
    reader.Indices(block, blocks, index);
    reader.Values(before, count, values);
    const std::span<float> rest = dst.subspan(block * kBlockElements - first);
    use(index, values, count, rest.first(std::min(rest.size(), blocks * kBlockElements)));
    block += blocks;
  }
}

}  // namespace

size_t SparseLayout::ValueBits() const {
  switch (values) {
    case SparseValues::kF32:
      return 32;
    case SparseValues::kF16:
      return 16;
    case SparseValues::kOne:
      return 0;
    case SparseValues::kSign:
    case SparseValues::kSignTwo:
      return 1;
  }
  return 0;
}

size_t SparseLayout::ValuesOffset() const {
  return kSparseHeaderBytes + (indices == SparseIndices::kSeeded ? kStreamBytes : 4 * blocks());
}

size_t SparseLayout::PayloadBytes(size_t delta_bytes) const {
  switch (indices) {
    case SparseIndices::kPacked:
      return IndicesOffset() + (3 * count + 1) / 2;
    case SparseIndices::kDelta:
      return IndicesOffset() + 4 * blocks() + delta_bytes;
    case SparseIndices::kSeeded:
      return IndicesOffset();
  }
  return 0;
}

void BuildSparseHeader(const SparseLayout& layout, std::span<std::byte> payload) {
  Store(kSparseMagic, payload, 0);
  Store(layout.indices, payload, 1);
  Store(layout.values, payload, 2);
  Store(uint8_t{0}, payload, 3);
  Store(static_cast<uint32_t>(layout.elements), payload, 4);
  Store(static_cast<uint32_t>(layout.count), payload, 8);
  Store(layout.values >= SparseValues::kOne ? layout.scale0 : 0.0f, payload, 12);
  Store(layout.values == SparseValues::kSignTwo ? layout.scale1 : 0.0f, payload, 16);
  if (layout.indices != SparseIndices::kSeeded) return;
  Store(layout.stream.key0, payload, 20);
  Store(layout.stream.key1, payload, 24);
  Store(layout.stream.round, payload, 28);
  Store(layout.stream.worker, payload, 32);
  Store(layout.stream.partition, payload, 36);
}

SeededIndices::SeededIndices(const Kernels& kernels, const SparseLayout& layout)
    : kernels_(&kernels),
      layout_(layout),
      grid_{.elements = layout.elements,
            .count = layout.count,
            .offset =
                layout.elements * uint64_t{Philox({0xffffffff, layout.stream.round,
                                                   layout.stream.worker, layout.stream.partition},
                                                  {layout.stream.key0, layout.stream.key1})[0]} >>
                32} {}

size_t SeededIndices::Before(size_t block) const {
  if (block == 0) return 0;
  return block == layout_.blocks() ? layout_.count : grid_.Before(block * kBlockElements);
}

void SeededIndices::Draw(size_t first, size_t blocks, uint32_t* index) const {
  const PhiloxStream& stream = layout_.stream;
  kernels_->sparse.draw({stream.key0, stream.key1, stream.round, stream.worker, stream.partition},
                        grid_, first, blocks, index);
}

size_t ReadSparseBlock(const Kernels& kernels, std::span<const std::byte> payload, size_t block,
                       uint32_t* index, float* values) {
  const Reader reader(kernels, payload);
  const size_t first = reader.Before(block), count = reader.Before(block + 1) - first;
  reader.Indices(block, 1, index);
  reader.Values(first, count, values);
  return count;
}

absl::Status ValidateSparse(std::span<const std::byte> payload, size_t elements) {
  SLIMPS_RETURN_IF_ERROR(CheckHeader(payload, elements));
  const Reader reader(BestKernels(), payload);
  const SparseLayout& layout = reader.layout();
  SLIMPS_RETURN_IF_ERROR(CheckLength(payload, layout));
  for (size_t block = 0; block < layout.blocks(); ++block) {
    SLIMPS_RETURN_IF_ERROR(CheckDirectory(reader, block));
    SLIMPS_RETURN_IF_ERROR(CheckBlock(reader, payload, block));
  }
  return CheckUnusedBits(payload, layout);
}

void DecodeSparse(const Kernels& kernels, std::span<const std::byte> payload, size_t /*elements*/,
                  size_t first, std::span<float> dst) {
  // Runs are short, so that the zeros are still in cache when values are put among them.
  ForRuns(kernels, payload, first, dst, 8,
          [&](const uint32_t* index, const float* values, size_t count, std::span<float> run) {
            std::ranges::fill(run, 0.0f);
            kernels.sparse.put(index, values, count, run.data());
          });
}

void DecodeAddSparse(const Kernels& kernels, std::span<const std::byte> payload,
                     size_t /*elements*/, size_t first, std::span<float> dst) {
  // Nothing is filled here, so only the number of entries ends a run.
  ForRuns(kernels, payload, first, dst, kLongestRun,
          [&](const uint32_t* index, const float* values, size_t count, std::span<float> run) {
            kernels.sparse.add(index, values, count, run.data());
          });
}

}  // namespace slimps
