// SPDX-License-Identifier: Apache-2.0
// The sparse format's layout, bounds and kernels. Other tests cover what the codecs put into it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "compress/codec/sparse/select/sparse_builder.h"
#include "compress/format/decode.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/codec/sparse/sparse_test_util.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

struct Entry {
  size_t element;
  float value;
};

std::vector<Entry> RandomEntries(size_t elements, double density, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::bernoulli_distribution sent(density);
  std::normal_distribution<float> normal;
  std::vector<Entry> entries;
  for (size_t i = 0; i < elements; ++i) {
    if (sent(random)) entries.push_back({i, normal(random)});
  }
  return entries;
}

std::vector<std::byte> Build(const Kernels& kernels, SparseLayout shape,
                             const std::vector<Entry>& entries) {
  EncodeWorkspace workspace;
  std::vector<std::byte> payload(SparseBuilder::MaxPayloadBytes(shape, entries.size()),
                                 std::byte{0xA5});
  SparseBuilder builder(kernels, shape, payload, workspace);
  std::vector<std::vector<uint32_t>> index(shape.blocks());
  std::vector<std::vector<float>> values(shape.blocks());
  for (const Entry& entry : entries) {
    index[entry.element / 4096].push_back(static_cast<uint32_t>(entry.element % 4096));
    values[entry.element / 4096].push_back(entry.value);
  }
  for (size_t block = 0; block < index.size(); ++block) builder.SetBlock(block, index[block]);
  builder.Plan(shape.scale0, shape.scale1);
  for (size_t block = 0; block < index.size(); ++block) {
    std::vector<float> decoded(values[block].size());
    builder.WriteBlock(block, index[block], values[block], decoded.data());
  }
  payload.resize(builder.payload_bytes());
  return payload;
}

float Meaning(const SparseLayout& shape, float value) {
  switch (shape.values) {
    case SparseValues::kF32:
      return value;
    case SparseValues::kF16: {
      std::byte half[2];
      FindKernels("scalar")->raw.encode_f16(&value, nullptr, 1, 1, half);
      FindKernels("scalar")->raw.decode_f16(half, 1, &value);
      return value;
    }
    case SparseValues::kOne:
      return shape.scale0;
    case SparseValues::kSign:
      return value >= 0 ? shape.scale0 : -shape.scale0;
    case SparseValues::kSignTwo:
      return value >= 0 ? shape.scale0 : shape.scale1;
  }
  return 0;
}

std::vector<SparseLayout> Shapes(size_t elements) {
  return {{.values = SparseValues::kF32, .elements = elements},
          {.values = SparseValues::kF16, .elements = elements},
          {.values = SparseValues::kOne, .elements = elements, .scale0 = -0.75f},
          {.values = SparseValues::kSign, .elements = elements, .scale0 = 0.5f},
          {.values = SparseValues::kSignTwo, .elements = elements, .scale0 = 2, .scale1 = -3}};
}

const std::string kExamplePacked =
    "B8000000 05000000 02000000 00000000 00000000 00000000 0000003F 000000C0 014000";
const std::string kExampleDelta =
    "B8010300 05000000 02000000 00000040 00000000 00000000 01 00000000 0102";

TEST(SparseFormat, WorkedExamplesAreAsTheHeaderSays) {
  const std::vector<float> wanted = {0, 0.5f, 0, 0, -2};
  const auto packed = BytesFromHex(kExamplePacked);
  EXPECT_EQ(packed.size(), 35u);
  ASSERT_TRUE(ValidateSparse(packed, 5).ok()) << ValidateSparse(packed, 5);
  EXPECT_EQ(DecodeAllSparse(packed, 5), wanted);
  EXPECT_EQ(HexFromBytes(Build(BestKernels(), {.elements = 5}, {{1, 0.5f}, {4, -2}})),
            HexFromBytes(packed));
  const auto delta = BytesFromHex(kExampleDelta);
  EXPECT_EQ(delta.size(), 31u);
  ASSERT_TRUE(ValidateSparse(delta, 5).ok()) << ValidateSparse(delta, 5);
  EXPECT_EQ(DecodeAllSparse(delta, 5), (std::vector<float>{0, 2, 0, 0, -2}));
}

TEST(SparseFormat, WhatIsBuiltDecodesWithAnyKernelsFromAnyBlock) {
  for (const size_t n : {0, 1, 7, 4095, 4096, 4097, 3 * 4096 + 17, 8 * 4096}) {
    for (const double density : {0.0, 0.0005, 0.01, 0.3, 1.0}) {
      const auto entries = RandomEntries(n, density, n);
      for (const SparseLayout& shape : Shapes(n)) {
        const auto payload = Build(*FindKernels("scalar"), shape, entries);
        ASSERT_TRUE(ValidateSparse(payload, n).ok()) << ValidateSparse(payload, n);
        std::vector<float> wanted(n, 0.0f);
        for (const Entry& entry : entries) wanted[entry.element] = Meaning(shape, entry.value);
        for (const Kernels* kernels : AllKernels()) {
          if (!kernels->runs_here()) continue;
          ASSERT_EQ(Build(*kernels, shape, entries), payload) << kernels->name;
          std::vector<float> out(n, 7.0f), sum(n, 0.25f);
          for (size_t first = 0; first < n; first += 2 * 4096) {
            const auto part = std::span(out).subspan(first, std::min<size_t>(8192, n - first));
            DecodeSparse(*kernels, payload, n, first, part);
          }
          DecodeAddSparse(*kernels, payload, n, 0, sum);
          ASSERT_EQ(Difference(out, wanted), "") << kernels->name << " n " << n;
          for (size_t i = 0; i < n; ++i) ASSERT_EQ(sum[i], 0.25f + wanted[i]);
        }
      }
    }
  }
}

TEST(SparseFormat, TheSmallerIndexCodingIsTaken) {
  constexpr size_t kElements = 16 * 4096;
  const auto coding = [&](double density, size_t& bytes) {
    const auto entries = RandomEntries(kElements, density, 5);
    const auto payload = Build(BestKernels(), {.elements = kElements}, entries);
    bytes = payload.size();
    EXPECT_LE(bytes, PackedBytes(kElements, entries.size(), 32));
    if (payload[1] == std::byte{0}) {
      EXPECT_EQ(bytes, PackedBytes(kElements, entries.size(), 32));
    }
    return payload[1];
  };
  size_t bytes = 0;
  EXPECT_EQ(coding(0.0005, bytes), std::byte{0});
  EXPECT_EQ(coding(0.01, bytes), std::byte{1});
  EXPECT_EQ(coding(0.3, bytes), std::byte{1});
}

// Encodes the same entries once in each coding.
TEST(SparseFormat, PackedAndDeltaDecodeAlike) {
  for (const size_t n : {17, 4096, 5 * 4096 + 3}) {
    for (const double density : {0.001, 0.02, 0.9}) {
      const auto entries = RandomEntries(n, density, n + 1);
      const auto wanted = DecodeAllSparse(Build(BestKernels(), {.elements = n}, entries), n);
      for (const auto indices : {SparseIndices::kPacked, SparseIndices::kDelta}) {
        SparseLayout layout = {.indices = indices, .elements = n, .count = entries.size()};
        std::vector<std::byte> values(4 * entries.size()), bytes, offsets;
        std::vector<uint32_t> before(layout.blocks(), 0);
        for (size_t i = 0; i < entries.size(); ++i) {
          std::memcpy(values.data() + 4 * i, &entries[i].value, 4);
          for (size_t b = entries[i].element / 4096 + 1; b < before.size(); ++b) ++before[b];
        }
        if (indices == SparseIndices::kDelta) {
          size_t i = 0;
          for (size_t b = 0; b < layout.blocks(); ++b) {
            const auto offset = static_cast<uint32_t>(bytes.size());
            offsets.resize(4 * b + 4);
            std::memcpy(offsets.data() + 4 * b, &offset, 4);
            for (size_t next = 0; i < entries.size() && entries[i].element / 4096 == b; ++i) {
              size_t gap = entries[i].element % 4096 - next;
              for (; gap >= 255; gap -= 255) bytes.push_back(std::byte{255});
              bytes.push_back(static_cast<std::byte>(gap));
              next = entries[i].element % 4096 + 1;
            }
          }
        } else {
          bytes.assign((3 * entries.size() + 1) / 2, std::byte{0});
          for (size_t bit = 0; bit < 12 * entries.size(); ++bit) {
            const size_t index = entries[bit / 12].element % 4096;
            bytes[bit / 8] |= static_cast<std::byte>((index >> (bit % 12) & 1) << (bit % 8));
          }
        }
        std::vector<std::byte> payload(layout.ValuesOffset());
        BuildSparseHeader(layout, payload);
        std::memcpy(payload.data() + 20, before.data(), 4 * before.size());
        for (const auto* part : {&values, &offsets, &bytes}) {
          payload.insert(payload.end(), part->begin(), part->end());
        }
        ASSERT_TRUE(ValidateSparse(payload, n).ok()) << ValidateSparse(payload, n);
        EXPECT_EQ(Difference(DecodeAllSparse(payload, n), wanted), "");
      }
    }
  }
}

struct Damage {
  std::string hex;
  size_t elements;
  const char* message;
};

TEST(SparseFormat, MalformedPayloadsAreRefusedAndSaidWhy) {
  const std::string head = "B8000000 05000000 02000000 00000000 00000000 ";
  const Damage damages[] = {
      {"", 5, "at least 20 bytes"},
      {"B7000000 05000000 02000000 00000000 00000000", 5, "magic"},
      {"B8030000 05000000 02000000 00000000 00000000", 5, "index coding"},
      {"B8000500 05000000 02000000 00000000 00000000", 5, "value coding"},
      {"B8000001 05000000 02000000 00000000 00000000", 5, "flags"},
      {kExamplePacked, 6, "elements"},
      {"B8000000 05000000 06000000 00000000 00000000", 5, "entries"},
      {"B8000000 05000000 02000000 0000803F 00000000 00000000 0000003F 000000C0 014000", 5,
       "do not use"},
      {"B8000300 05000000 02000000 0000807F 00000000 00000000 01 014000", 5, "scales"},
      {head + "00000000 0000003F 000000C0 0140", 5, "expected 35 bytes"},
      {head + "00000000 0000003F 000000C0 01400000", 5, "expected 35 bytes"},
      {head + "01000000 0000003F 000000C0 014000", 5, "entries of block 0"},
      {head + "00000000 0000003F 0000C07F 014000", 5, "values of block 0"},
      {head + "00000000 0000003F 000080FF 014000", 5, "values of block 0"},
      {head + "00000000 0000003F 000000C0 011000", 5, "rising"},  // 1, 1
      {head + "00000000 0000003F 000000C0 015000", 5, "rising"},  // 1, 5
      {"B8000000 05000000 01000000 00000000 00000000 00000000 0000003F 0110", 5, "last index"},
      {"B8000300 05000000 02000000 00000040 00000000 00000000 05 014000", 5, "last sign"},
      {"B8010300 05000000 02000000 00000040 00000000 00000000 01 01000000 0102", 5, "index bytes"},
      {"B8010300 05000000 02000000 00000040 00000000 00000000 01 00000000 01", 5, "index bytes"},
      {"B8010300 05000000 02000000 00000040 00000000 00000000 01 00000000 01FF", 5, "index bytes"},
      {"B8010300 05000000 02000000 00000040 00000000 00000000 01 00000000 010203", 5, "indices"},
      {"B8010300 05000000 02000000 00000040 00000000 00000000 01 00000000 0103", 5, "rising"},
      {"B8010300 00000000 00000000 00000040 00000000 00", 0, "expected 20 bytes"},
      {"B8020000 05000000 01000000 00000000 00000000 00000000", 5, "at least 40"},
      {"B8020000 05000000 01000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
       5, "expected 44 bytes"},
  };
  for (const Damage& damage : damages) {
    const absl::Status status =
        ValidatePayload(PayloadFormat::kSparse, BytesFromHex(damage.hex), damage.elements);
    EXPECT_FALSE(status.ok()) << damage.hex;
    EXPECT_THAT(std::string(status.message()), HasSubstr(damage.message)) << damage.hex;
  }
}

// Changes single bytes. The payload must be refused, or decode in bounds and alike with all
// kernels.
TEST(SparseFormat, ChangedBytesNeverLeadOutOfBounds) {
  constexpr size_t kElements = 4096 + 300;
  const auto entries = RandomEntries(kElements, 0.008, 3);
  std::vector<std::vector<std::byte>> payloads;
  for (const SparseLayout& shape : Shapes(kElements)) {
    payloads.push_back(Build(BestKernels(), shape, entries));
    payloads.push_back(Build(BestKernels(), shape, RandomEntries(kElements, 0.0005, 4)));
  }
  payloads.push_back(EncodeSparse("randomk:k=20", RandomFloats(kElements, 1)).payload);
  std::mt19937_64 random(1);
  for (const auto& payload : payloads) {
    for (size_t at = 0; at < payload.size(); ++at) {
      for (int change = 0; change < 3; ++change) {
        // An allocation of exactly this size shows a sanitizer one byte too many.
        std::vector<std::byte> changed(payload);
        changed[at] ^= static_cast<std::byte>(change == 0 ? 255 : 1 << (random() % 8));
        if (!ValidateSparse(changed, kElements).ok()) continue;
        std::vector<float> wanted(kElements), out(kElements);
        DecodeSparse(*FindKernels("scalar"), changed, kElements, 0, wanted);
        DecodeSparse(BestKernels(), changed, kElements, 0, out);
        ASSERT_EQ(Difference(out, wanted), "");
      }
    }
  }
}

// Half a million blocks, all empty but the last. A decoder that looked ahead to the end from each
// block would take for ever.
TEST(SparseFormat, LargePartitionsAreDecodedBlockByBlock) {
  const SparseLayout shape = {
      .values = SparseValues::kOne, .elements = (size_t{1} << 31) - 1, .count = 1, .scale0 = 3};
  std::vector<std::byte> payload(shape.PayloadBytes(0));
  BuildSparseHeader(shape, payload);
  payload[shape.IndicesOffset()] = std::byte{5};
  ASSERT_TRUE(ValidateSparse(payload, shape.elements).ok());
  std::vector<float> sum(4096);
  for (size_t block = 0; block < shape.blocks(); ++block) {
    DecodeAddSparse(BestKernels(), payload, shape.elements, block * 4096,
                    std::span(sum).first(shape.BlockElements(block)));
  }
  EXPECT_EQ(sum[5], 3);
  EXPECT_EQ(std::ranges::count(sum, 0.0f), 4095);
}

TEST(SparseFormat, EveryCutOffPayloadIsRefused) {
  for (const std::string& hex : {kExamplePacked, kExampleDelta}) {
    const auto payload = BytesFromHex(hex);
    for (size_t size = 0; size < payload.size(); ++size) {
      const std::vector<std::byte> cut(payload.begin(), payload.begin() + static_cast<long>(size));
      EXPECT_FALSE(ValidateSparse(cut, 5).ok()) << size;
    }
  }
}

}  // namespace
}  // namespace slimps
