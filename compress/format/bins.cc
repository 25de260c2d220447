// SPDX-License-Identifier: Apache-2.0
#include "compress/format/bins.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "compress/format/bytes.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// 1 MiB of floats. Where more blocks are decoded at once, they may lie in memory and not in cache.
constexpr size_t kCachedBlocks = 64;

// Reads the header and checks nothing. REQUIRES: payload.size() >= kBinsHeaderBytes.
BinsLayout ReadHeader(std::span<const std::byte> payload) {
  return {.bin_length = Load<uint16_t>(payload, 2), .elements = Load<uint32_t>(payload, 4)};
}

absl::Status CheckHeader(std::span<const std::byte> payload, size_t elements) {
  if (const auto magic = Load<uint8_t>(payload, 0); magic != kBinsMagic) {
    return Malformed("bins", "magic byte", absl::StrCat(kBinsMagic), absl::StrCat(magic));
  }
  const BinsLayout layout = ReadHeader(payload);
  if (layout.bin_length < 1 || layout.bin_length > kMaxBinLength) {
    return Malformed("bins", "bin length", absl::StrCat("1 to ", kMaxBinLength),
                     absl::StrCat(layout.bin_length));
  }
  if (const auto bits = Load<uint8_t>(payload, 1); bits != layout.entry_bytes() * 8) {
    return Malformed("bins", absl::StrCat("bits per entry of bins of ", layout.bin_length),
                     absl::StrCat(layout.entry_bytes() * 8), absl::StrCat(bits));
  }
  if (layout.elements != elements) {
    return Malformed("bins", "elements", absl::StrCat(elements), absl::StrCat(layout.elements));
  }
  const auto scale = Load<float>(payload, 8);
  if (!std::isfinite(scale) || std::signbit(scale)) {
    return Malformed("bins", "scale", "a finite number, +0 or more", absl::StrCat(scale));
  }
  return absl::OkStatus();
}

size_t EndOf(std::span<const std::byte> payload, size_t block) {
  return Load<uint32_t>(payload, BinsLayout::DirectoryOffset(block));
}
size_t BeginOf(std::span<const std::byte> payload, size_t block) {
  return block == 0 ? 0 : EndOf(payload, block - 1);
}

// Checks that the directory rises and that the payload ends where it says.
absl::Status CheckDirectory(std::span<const std::byte> payload, const BinsLayout& layout) {
  if (payload.size() < layout.EntriesOffset()) {
    return absl::DataLossError(absl::StrCat("bins payload of ", layout.elements,
                                            " elements: expected at least ", layout.EntriesOffset(),
                                            " bytes, got ", payload.size()));
  }
  size_t entries = 0;
  for (size_t block = 0; block < layout.blocks(); ++block) {
    const size_t end = EndOf(payload, block);
    const size_t most = entries + layout.BlockEnd(block) - block * kBlockElements;
    if (end < entries || end > most) {
      return Malformed("bins", absl::StrCat("entries up to block ", block),
                       absl::StrCat(entries, " to ", most), absl::StrCat(end));
    }
    entries = end;
  }
  if (payload.size() != layout.PayloadBytes(entries)) {
    return absl::DataLossError(absl::StrCat("bins payload of ", entries, " entries: expected ",
                                            layout.PayloadBytes(entries), " bytes, got ",
                                            payload.size()));
  }
  return absl::OkStatus();
}

// Checks a block's entries one by one.
template <typename Entry>
class EntryCheck {
 public:
  static constexpr int kBits = 8 * sizeof(Entry);

  // REQUIRES: the directory is valid.
  EntryCheck(std::span<const std::byte> payload, const BinsLayout& layout, size_t block)
      : payload_(payload),
        layout_(layout),
        block_(block),
        entries_offset_(layout.EntriesOffset()),
        next_(BeginOf(payload, block)),
        end_(EndOf(payload, block)) {}

  absl::Status Run() {
    const size_t pieces = layout_.Pieces(block_);
    const auto bitmap = payload_.subspan(layout_.BitmapOffset(block_));
    const size_t bytes = block_ + 1 == layout_.blocks() ? (pieces + 7) / 8 : layout_.BitmapStride();
    for (size_t i = 0; i < bytes; ++i) {
      for (auto bits = std::to_integer<unsigned>(bitmap[i]); bits != 0; bits &= bits - 1) {
        const size_t piece = i * 8 + static_cast<size_t>(std::countr_zero(bits));
        if (piece >= pieces) return Bad("bits of its bitmap", absl::StrCat(pieces), "more");
        SLIMPS_RETURN_IF_ERROR(CheckPiece(piece));
      }
    }
    if (next_ == end_) return absl::OkStatus();
    return Bad("entries after its last piece", "none", absl::StrCat(end_ - next_));
  }

 private:
  // Checks that the piece's entries rise within it, up to one marked as the last.
  absl::Status CheckPiece(size_t piece) {
    const size_t bin = (layout_.FirstBin(block_) + piece) * layout_.bin_length;
    const size_t begin = std::max(bin, block_ * kBlockElements) - bin;
    const size_t end = std::min<size_t>(layout_.bin_length, layout_.BlockEnd(block_) - bin);
    for (size_t lowest = begin;;) {
      if (next_ == end_) return Bad(absl::StrCat("entries of piece ", piece), "a last one", "none");
      const auto entry = Load<Entry>(payload_, entries_offset_ + next_++ * sizeof(Entry));
      const size_t index = entry & ((1u << (kBits - 2)) - 1);
      if (index < lowest || index >= end) {
        return Bad(absl::StrCat("index ", next_ - 1), absl::StrCat(lowest, " to under ", end),
                   absl::StrCat(index));
      }
      if (entry >> (kBits - 1) != 0) return absl::OkStatus();
      lowest = index + 1;
    }
  }

  absl::Status Bad(const std::string& what, const std::string& expected,
                   const std::string& got) const {
    return Malformed("bins", absl::StrCat("block ", block_, ", ", what), expected, got);
  }

  const std::span<const std::byte> payload_;
  const BinsLayout& layout_;
  const size_t block_;
  const size_t entries_offset_;
  size_t next_;
  const size_t end_;
};

template <typename Entry>
absl::Status CheckEntries(std::span<const std::byte> payload, const BinsLayout& layout) {
  for (size_t block = 0; block < layout.blocks(); ++block) {
    absl::Status status = EntryCheck<Entry>(payload, layout, block).Run();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

void BuildBinsHeader(const BinsLayout& layout, float scale, std::span<std::byte> payload) {
  Store(kBinsMagic, payload, 0);
  Store(static_cast<uint8_t>(layout.entry_bytes() * 8), payload, 1);
  Store(static_cast<uint16_t>(layout.bin_length), payload, 2);
  Store(static_cast<uint32_t>(layout.elements), payload, 4);
  Store(scale, payload, 8);
}

void BuildBinsEnd(size_t block, size_t entries, std::span<std::byte> payload) {
  Store(static_cast<uint32_t>(entries), payload, BinsLayout::DirectoryOffset(block));
}

absl::Status ValidateBins(std::span<const std::byte> payload, size_t elements) {
  if (payload.size() < kBinsHeaderBytes) {
    return absl::DataLossError(absl::StrCat("bins payload: expected at least ", kBinsHeaderBytes,
                                            " bytes, got ", payload.size()));
  }
  SLIMPS_RETURN_IF_ERROR(CheckHeader(payload, elements));
  const BinsLayout layout = ReadHeader(payload);
  SLIMPS_RETURN_IF_ERROR(CheckDirectory(payload, layout));
  return layout.entry_bytes() == 1 ? CheckEntries<uint8_t>(payload, layout)
                                   : CheckEntries<uint16_t>(payload, layout);
}

BinsReader::BinsReader(std::span<const std::byte> payload)
    : payload_(payload),
      layout_(ReadHeader(payload)),
      scale_(Load<float>(payload, 8)),
      entries_offset_(layout_.EntriesOffset()),
      bitmaps_offset_(layout_.BitmapOffset(0)),
      bitmap_stride_(layout_.BitmapStride()) {}

BinBlock BinsReader::Block(size_t block) const {
  const size_t begin = BeginOf(payload_, block);
  // How far the first bin begins before the block: under 16384, the longest bin.
  const size_t before = block * kBlockElements - layout_.FirstBin(block) * layout_.bin_length;
  const std::byte* const bitmap = payload_.data() + bitmaps_offset_ + block * bitmap_stride_;
  return {.entries = payload_.data() + entries_offset_ + begin * layout_.entry_bytes(),
          .count = EndOf(payload_, block) - begin,
          .bitmap = reinterpret_cast<const uint8_t*>(bitmap),
          .pieces = layout_.Pieces(block),
          .first_bin = -static_cast<int32_t>(before),
          .bin_length = layout_.bin_length,
          .scale = scale_};
}

void PrefetchBins(const Kernels& kernels, const BinBlock& block, const float* dst) {
  constexpr size_t kMany = kBlockElements / 16;
  if (block.count < kMany) kernels.bins.prefetch(block, dst);
}

void DecodeBins(const Kernels& kernels, std::span<const std::byte> payload, size_t /*elements*/,
                size_t first, std::span<float> dst) {
  const BinsReader reader(payload);
  for (size_t done = 0; done < dst.size(); done += kBlockElements) {
    float* const out = dst.data() + done;
    std::fill_n(out, std::min(kBlockElements, dst.size() - done), 0.0f);
    kernels.bins.store(reader.Block((first + done) / kBlockElements), out);
  }
}

void DecodeAddBins(const Kernels& kernels, std::span<const std::byte> payload, size_t /*elements*/,
                   size_t first, std::span<float> dst) {
  const BinsReader reader(payload);
  const size_t begin = first / kBlockElements;
  const size_t blocks = (dst.size() + kBlockElements - 1) / kBlockElements;
  const bool far = blocks > kCachedBlocks;
  BinBlock next = blocks > 0 ? reader.Block(begin) : BinBlock();
  for (size_t i = 0; i < blocks; ++i) {
    const BinBlock block = next;
    float* const out = dst.data() + i * kBlockElements;
    if (i + 1 < blocks) {
      next = reader.Block(begin + i + 1);
      // Memory is under way for the next block while this one is added.
      if (far) PrefetchBins(kernels, next, out + kBlockElements);
    }
    kernels.bins.add(block, out);
  }
}

}  // namespace slimps
