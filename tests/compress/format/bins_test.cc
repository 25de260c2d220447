// SPDX-License-Identifier: Apache-2.0
// The bins layout of sparse payloads: the worked example, decoding against a plain decoder, and
// hostile bytes.
#include "compress/format/bins.h"

#include <algorithm>
#include <memory>
#include <random>

#include "compress/format/decode.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

// Builds a payload, element by element, from the layout's description. sent[i] is 1 or -1 (times
// the scale), or 0 (not sent).
std::vector<std::byte> MakeBins(uint32_t length, float scale, const std::vector<int>& sent) {
  const size_t n = sent.size(), blocks = (n + 4095) / 4096;
  const size_t entry_bytes = length <= 64 ? 1 : 2;
  std::vector<uint32_t> directory;
  std::vector<uint8_t> bitmaps;
  std::vector<uint16_t> entries;
  for (size_t block = 0; block < blocks; ++block) {
    const size_t begin = block * 4096, end = std::min(n, begin + 4096);
    const size_t first_bin = begin / length, pieces = (end - 1) / length - first_bin + 1;
    const size_t bytes = block + 1 == blocks ? (pieces + 7) / 8 : (4094 / length + 9) / 8;
    const size_t bitmap = bitmaps.size();
    bitmaps.resize(bitmap + bytes);
    for (size_t piece = 0; piece < pieces; ++piece) {
      const size_t bin = (first_bin + piece) * length;
      const size_t before = entries.size();
      for (size_t i = std::max(bin, begin); i < std::min(bin + length, end); ++i) {
        if (sent[i] == 0) continue;
        const uint32_t sign = sent[i] < 0 ? 1u << (entry_bytes * 8 - 2) : 0;
        entries.push_back(static_cast<uint16_t>((i - bin) | sign));
      }
      if (entries.size() == before) continue;
      entries.back() |= static_cast<uint16_t>(1u << (entry_bytes * 8 - 1));
      bitmaps[bitmap + piece / 8] |= static_cast<uint8_t>(1u << piece % 8);
    }
    directory.push_back(static_cast<uint32_t>(entries.size()));
  }
  std::vector<std::byte> payload(12);
  BuildBinsHeader({.bin_length = length, .elements = n}, scale, payload);
  const auto append = [&payload](const void* data, size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    payload.insert(payload.end(), from, from + bytes);
  };
  append(directory.data(), directory.size() * 4);
  append(bitmaps.data(), bitmaps.size());
  for (const uint16_t entry : entries) append(&entry, entry_bytes);
  return payload;
}

std::vector<int> RandomSent(size_t n, double density, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int> sent(n);
  for (int& one : sent) {
    const auto u = static_cast<double>(random() % 100000) / 100000;
    one = u < density / 2 ? 1 : u < density ? -1 : 0;
  }
  return sent;
}

std::vector<float> Expected(const std::vector<int>& sent, float scale) {
  std::vector<float> out(sent.size());
  for (size_t i = 0; i < sent.size(); ++i) out[i] = sent[i] == 0 ? 0 : sent[i] < 0 ? -scale : scale;
  return out;
}

constexpr uint32_t kLengths[] = {1, 2, 3, 50, 64, 65, 500, 4096, 5000, 8192, 16384};
constexpr size_t kCounts[] = {0, 1, 49, 50, 51, 257, 4095, 4096, 4097, 3 * 4096 + 5, 20000};

TEST(Bins, WorkedExampleIsAsDocumented) {
  const std::vector<std::byte> payload = MakeBins(3, 0.5f, {0, 1, -1, 0, 0, 0, -1});
  EXPECT_EQ(HexFromBytes(payload),
            HexFromBytes(BytesFromHex("B9080300 07000000 0000003F 03000000 05 01C2C0")));
  ASSERT_TRUE(ValidatePayload(PayloadFormat::kSparse, payload, 7).ok());
  std::vector<float> out(7, 9.0f);
  Decode(PayloadFormat::kSparse, payload, 7, 0, out);
  EXPECT_THAT(out, ::testing::ElementsAre(0, 0.5f, -0.5f, 0, 0, 0, -0.5f));
}

TEST(Bins, EverySetDecodesEveryRangeAsThePlainDecoder) {
  for (const uint32_t length : kLengths) {
    for (const size_t n : kCounts) {
      for (const double density : {0.0, 0.02, 0.5, 1.0}) {
        const std::vector<int> sent = RandomSent(n, density, n + length);
        const std::vector<std::byte> payload = MakeBins(length, 0.75f, sent);
        ASSERT_TRUE(ValidateBins(payload, n).ok()) << ValidateBins(payload, n);
        EXPECT_EQ(payload.size(),
                  (BinsLayout{.bin_length = length, .elements = n}.PayloadBytes(
                      n - static_cast<size_t>(std::count(sent.begin(), sent.end(), 0)))));
        const std::vector<float> wanted = Expected(sent, 0.75f);
        for (const Kernels* kernels : AllKernels()) {
          if (!kernels->runs_here()) continue;
          for (size_t first = 0; first < std::max<size_t>(n, 1); first += 4096) {
            const size_t size =
                (length + first) % 3 == 0 ? n - first : std::min<size_t>(n - first, 4096);
            const std::unique_ptr<float[]> out(new float[size]), sum(new float[size]);
            std::fill_n(out.get(), size, 7.0f);
            std::fill_n(sum.get(), size, 0.1f);
            DecodeBins(*kernels, payload, n, first, {out.get(), size});
            DecodeAddBins(*kernels, payload, n, first, {sum.get(), size});
            std::vector<float> wanted_sum(size, 0.1f);
            for (size_t i = 0; i < size; ++i) {
              if (sent[first + i] != 0) wanted_sum[i] += wanted[first + i];
            }
            EXPECT_EQ(Difference({out.get(), size}, std::span(wanted).subspan(first, size)), "")
                << kernels->name << " " << length << " " << n;
            EXPECT_EQ(Difference({sum.get(), size}, wanted_sum), "") << kernels->name;
          }
        }
      }
    }
  }
}

// There are so many blocks that the decoder prefetches their memory.
TEST(Bins, ManyBlocksAtOnceAddAsOneByOne) {
  const size_t n = 80 * 4096 + 5;
  for (const double density : {0.002, 0.2}) {
    const std::vector<std::byte> payload = MakeBins(500, 0.5f, RandomSent(n, density, 3));
    for (const Kernels* kernels : AllKernels()) {
      if (!kernels->runs_here()) continue;
      std::vector<float> at_once(n, 0.1f), one_by_one(n, 0.1f);
      DecodeAddBins(*kernels, payload, n, 0, at_once);
      for (size_t first = 0; first < n; first += 4096) {
        DecodeAddBins(*kernels, payload, n, first,
                      std::span(one_by_one).subspan(first, std::min<size_t>(4096, n - first)));
      }
      EXPECT_EQ(Difference(at_once, one_by_one), "");
    }
  }
}

TEST(Bins, MalformedHeadersAreRefusedWithTheFieldsName) {
  const std::vector<std::byte> good = MakeBins(50, 0.5f, RandomSent(9000, 0.1, 1));
  const struct {
    size_t offset;
    uint32_t value;  // of four bytes, little-endian
    const char* says;
  } cases[] = {
      {0, 0x003210B9, "bits per entry"},
      {0, 0x003200B9, "bits per entry"},
      {0, 0x000008B9, "bin length"},
      {0, 0x400108B9, "bin length"},
      {0, 0x004108B9, "bits per entry"},
      {4, 8999, "elements"},
      {8, 0x7fc00000, "scale"},
      {8, 0x7f800000, "scale"},
      {8, 0xbf000000, "scale"},
      {8, 0x80000000, "scale"},
      {12, 4097, "entries up to block 0"},
      {16, 0, "entries up to block 1"},
  };
  for (const auto& c : cases) {
    std::vector<std::byte> bad = good;
    std::memcpy(bad.data() + c.offset, &c.value, 4);
    const absl::Status status = ValidatePayload(PayloadFormat::kSparse, bad, 9000);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says));
  }
  EXPECT_EQ(ValidateBins(good, 9001).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Bins, EveryOtherLengthIsRefused) {
  const std::vector<std::byte> good = MakeBins(64, 0.5f, RandomSent(4100, 0.02, 1));
  for (size_t size = 0; size < good.size(); ++size) {
    const std::unique_ptr<std::byte[]> exact(new std::byte[size]);
    std::copy_n(good.begin(), size, exact.get());
    EXPECT_FALSE(ValidateBins({exact.get(), size}, 4100).ok()) << size;
  }
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  EXPECT_EQ(ValidateBins(longer, 4100).code(), absl::StatusCode::kDataLoss);
}

TEST(Bins, EntriesMustFitTheirPieces) {
  // In the worked example byte 16 is the bitmap, and bytes 17 to 19 are the entries.
  const struct {
    size_t offset;
    uint8_t value;
    const char* says;
  } cases[] = {
      {17, 0x02, "index 1"},                       // not rising
      {17, 0x03, "index 0"},                       // in no bin of 3
      {18, 0xC0, "index 1"},                       // falling
      {18, 0x42, "index 2"},                       // the first piece continues into the second's
      {17, 0x81, "index 1"},                       // two last ones
      {19, 0x40, "a last one"},                    // none
      {19, 0xC1, "index 2"},                       // past the tensor
      {16, 0x07, "a last one"},                    // a piece more
      {16, 0x01, "entries after its last piece"},  // a piece less
      {16, 0x0D, "bits of its bitmap"},            // past the last piece
  };
  for (const auto& c : cases) {
    std::vector<std::byte> bad = MakeBins(3, 0.5f, {0, 1, -1, 0, 0, 0, -1});
    bad[c.offset] = std::byte{c.value};
    const absl::Status status = ValidateBins(bad, 7);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says)) << static_cast<int>(c.value);
  }
}

TEST(Bins, HugeDeclaredCountsCostNothing) {
  std::vector<std::byte> payload(12);
  BuildBinsHeader({.bin_length = 1, .elements = 0xffffffff}, 1.0f, payload);
  EXPECT_EQ(ValidateBins(payload, 0xffffffff).code(), absl::StatusCode::kDataLoss);
}

// The sanitizers see reads and writes out of bounds.
TEST(Bins, MutatedPayloadsAreRefusedOrDecodeInBounds) {
  std::mt19937_64 random(9);
  size_t accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    const uint32_t length = kLengths[random() % std::size(kLengths)];
    const size_t n = 4096 + random() % 5000;
    std::vector<std::byte> payload = MakeBins(length, 0.5f, RandomSent(n, 0.02, random()));
    for (uint64_t k = random() % 4; k > 0; --k) {
      payload[random() % (random() % 2 == 0 ? 24 : payload.size())] =
          static_cast<std::byte>(random());
    }
    if (random() % 8 == 0) payload.resize(random() % (payload.size() + 64));
    if (!ValidateBins(payload, n).ok()) continue;
    ++accepted;
    const std::unique_ptr<float[]> exact(new float[n]());
    for (const Kernels* kernels : AllKernels()) {
      if (kernels->runs_here()) DecodeAddBins(*kernels, payload, n, 0, {exact.get(), n});
    }
  }
  EXPECT_GT(accepted, 300u);
  EXPECT_LT(accepted, 2700u);
}

}  // namespace
}  // namespace slimps
