// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/state/state_store.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/hash.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::string Path() {
  return ::testing::TempDir() + "/states_" +
         ::testing::UnitTest::GetInstance()->current_test_info()->name();
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

std::span<float> Residual(StateStore& store, KeyId key, uint32_t partition, size_t elements) {
  return (*store.GetOrCreate(key, partition, elements))->residual();
}

TEST(StateStore, StartsAtZeroAndKeepsWhatIsWritten) {
  StateStore store;
  EXPECT_EQ(store.Find(1, 0), nullptr);
  std::span<float> residual = (*store.GetOrCreate(1, 0, 1000))->residual();
  EXPECT_THAT(residual, Each(0.0f));
  residual[7] = 2;
  for (KeyId key = 2; key < 100; ++key) ASSERT_TRUE(store.GetOrCreate(key, 0, 3).ok());
  EXPECT_EQ(store.Find(1, 0)->residual().data(), residual.data())
      << "spans stay as the store grows";
  EXPECT_EQ((*store.GetOrCreate(1, 0, 1000))->residual()[7], 2.0f);
  EXPECT_EQ(store.Find(1, 1), nullptr);
  EXPECT_EQ(store.TotalBytes(), 4 * (1000 + 98 * 3));
}

TEST(StateStore, AnotherLengthIsRefused) {
  StateStore store;
  ASSERT_TRUE(store.GetOrCreate(1, 0, 10).ok());
  EXPECT_EQ(store.GetOrCreate(1, 0, 11).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store.GetOrCreate(1, 0, 0).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(StateStore, ThreadsMayCreateDifferentPartitionsAtOnce) {
  StateStore store;
  std::vector<std::thread> threads;
  for (uint32_t partition = 0; partition < 4; ++partition) {
    threads.emplace_back([&store, partition] {
      for (KeyId key = 0; key < 50; ++key) {
        const std::span<float> residual = (*store.GetOrCreate(key, partition, 64))->residual();
        std::ranges::fill(residual, static_cast<float>(partition));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t partition = 0; partition < 4; ++partition) {
    EXPECT_THAT(store.Find(49, partition)->residual(), Each(static_cast<float>(partition)));
  }
}

TEST(StateStore, FileBringsEverythingBack) {
  StateStore store;
  for (KeyId key : {KeyId{5}, ~KeyId{0}}) {
    for (uint32_t partition : {0u, 7u}) {
      const std::vector<float> values = RandomFloats(100 + partition, key + partition);
      std::ranges::copy(values, Residual(store, key, partition, values.size()).begin());
    }
  }
  ASSERT_TRUE(store.Save(Path()).ok());
  StateStore other;
  ASSERT_TRUE(other.GetOrCreate(1, 1, 1).ok());
  const absl::Status status = other.Load(Path());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(other.Find(1, 1), nullptr) << "replaced, not merged";
  EXPECT_EQ(other.TotalBytes(), store.TotalBytes());
  EXPECT_EQ(Difference(other.Find(~KeyId{0}, 7)->residual(), store.Find(~KeyId{0}, 7)->residual()),
            "");
  StateStore empty;
  ASSERT_TRUE(empty.Save(Path()).ok());
  ASSERT_TRUE(other.Load(Path()).ok());
  EXPECT_EQ(other.TotalBytes(), 0u);
  std::remove(Path().c_str());
}

TEST(StateStore, BytesAreThoseOfTheFileAndMayTakeAnothersPlace) {
  StateStore store;
  std::ranges::copy(RandomFloats(100, 1), Residual(store, 5, 0, 100).begin());
  std::ranges::copy(RandomFloats(9, 2), Residual(store, 3, 2, 9).begin());
  ASSERT_TRUE(store.GetOrCreate(3, 0, 4, StateStore::Momentum::kWanted).ok());
  ASSERT_TRUE(store.Save(Path()).ok());
  const std::string bytes = store.Serialize();
  EXPECT_EQ(bytes, ReadFile(Path()));
  std::remove(Path().c_str());
  StateStore parsed;
  ASSERT_TRUE(parsed.GetOrCreate(1, 1, 1).ok());
  ASSERT_TRUE(parsed.Parse(bytes).ok());
  EXPECT_THAT(parsed.Keys(), ElementsAre(3, 5));
  EXPECT_EQ(parsed.Serialize(), bytes);
  std::string bad = bytes;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  EXPECT_EQ(parsed.Parse(bad).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(parsed.Parse(bytes.substr(0, bytes.size() - 1)).code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(parsed.Parse("").ok());
  EXPECT_EQ(parsed.Serialize(), bytes) << "unchanged by what was refused";
  StateStore other;
  ASSERT_TRUE(other.GetOrCreate(77, 0, 5).ok());
  const float* const residual = parsed.Find(5, 0)->residual().data();
  other.ReplaceBy(std::move(parsed));
  EXPECT_EQ(other.Find(77, 0), nullptr);
  EXPECT_EQ(other.Find(5, 0)->residual().data(), residual) << "moved, not copied";
  EXPECT_THAT(parsed.Keys(), ::testing::IsEmpty());
}

TEST(StateStore, SavingLeavesTheDraftsOfOtherProcessesAlone) {
  const std::string drafts[] = {Path() + ".tmp", Path() + ".1.tmp"};
  for (const std::string& draft : drafts) WriteFile(draft, "another's");
  ASSERT_TRUE(StateStore().Save(Path()).ok());
  for (const std::string& draft : drafts) {
    EXPECT_EQ(ReadFile(draft), "another's");
    std::remove(draft.c_str());
  }
  std::remove(Path().c_str());
}

TEST(StateStore, EveryTruncationAndChangedByteIsRefusedAndNothingChanges) {
  StateStore store;
  std::ranges::fill(Residual(store, 1, 0, 9), 1.0f);
  std::ranges::fill(Residual(store, 2, 0, 2), 2.0f);
  ASSERT_TRUE(store.Save(Path()).ok());
  const std::string good = ReadFile(Path());
  StateStore loaded;
  ASSERT_TRUE(loaded.GetOrCreate(77, 0, 5).ok());
  for (size_t size = 0; size < good.size(); ++size) {
    WriteFile(Path(), good.substr(0, size));
    EXPECT_FALSE(loaded.Load(Path()).ok()) << size;
  }
  WriteFile(Path(), good + "x");
  EXPECT_FALSE(loaded.Load(Path()).ok());
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x80);
    WriteFile(Path(), bad);
    EXPECT_FALSE(loaded.Load(Path()).ok()) << i;
  }
  EXPECT_EQ(loaded.Find(77, 0)->residual().size(), 5u);
  std::remove(Path().c_str());
  EXPECT_EQ(loaded.Load(Path()).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store.Save("/nonexistent/folder/states").code(), absl::StatusCode::kUnavailable);
}

// Replaces the checksum of a header by the one of its present fields.
void SealHeader(std::string& file, size_t offset, size_t bytes) {
  const uint64_t hash = HashText(std::string_view(file).substr(offset, bytes - sizeof(uint64_t)));
  std::memcpy(file.data() + offset + bytes - sizeof hash, &hash, sizeof hash);
}

TEST(StateStore, HostileHeadersWithRightChecksumsAreRefused) {
  StateStore store;
  ASSERT_TRUE(store.GetOrCreate(1, 0, 1, StateStore::Momentum::kWanted).ok());
  ASSERT_TRUE(store.Save(Path()).ok());
  const std::string good = ReadFile(Path());
  constexpr size_t kFile = 32, kEntry = 40;
  ASSERT_EQ(good.size(), kFile + 2 * (kEntry + 4));
  const auto load = [&](size_t at, uint64_t value, size_t bytes, size_t header, size_t size) {
    std::string bad = good;
    std::memcpy(bad.data() + at, &value, bytes);
    SealHeader(bad, header, size);
    WriteFile(Path(), bad);
    return StateStore().Load(Path()).code();
  };
  const size_t second = kFile + kEntry + 4;
  EXPECT_EQ(load(16, 2, 8, 0, kFile), absl::StatusCode::kOk);
  EXPECT_EQ(load(16, ~uint64_t{0}, 8, 0, kFile), absl::StatusCode::kDataLoss) << "entries";
  EXPECT_EQ(load(16, 1, 8, 0, kFile), absl::StatusCode::kInvalidArgument) << "bytes left over";
  EXPECT_EQ(load(8, 1, 4, 0, kFile), absl::StatusCode::kInvalidArgument) << "version";
  EXPECT_EQ(load(0, 0, 1, 0, kFile), absl::StatusCode::kInvalidArgument) << "magic";
  for (const uint64_t elements : {uint64_t{1} << 62, ~uint64_t{0}, uint64_t{100}}) {
    EXPECT_EQ(load(kFile + 16, elements, 8, kFile, kEntry), absl::StatusCode::kDataLoss)
        << "checked before anything is allocated";
  }
  EXPECT_EQ(load(kFile + 12, 2, 4, kFile, kEntry), absl::StatusCode::kInvalidArgument) << "kind";
  EXPECT_EQ(load(second + 12, 0, 4, second, kEntry), absl::StatusCode::kInvalidArgument) << "twice";
  EXPECT_EQ(load(second, 0, 8, second, kEntry), absl::StatusCode::kInvalidArgument) << "order";
  EXPECT_EQ(load(second + 16, 0, 8, second, kEntry), absl::StatusCode::kInvalidArgument)
      << "momentum of another length";
  std::remove(Path().c_str());
}

TEST(StateStore, AResidualOfNoElementsIsRefused) {
  StateStore store;
  ASSERT_TRUE(store.GetOrCreate(1, 0, 1, StateStore::Momentum::kWanted).ok());
  ASSERT_TRUE(store.Save(Path()).ok());
  const std::string good = ReadFile(Path());
  constexpr size_t kFile = 32, kEntry = 40;
  std::string bad = good.substr(0, kFile + kEntry);
  const uint64_t no_elements = 0, hash_of_nothing = HashBytes({});
  std::memcpy(bad.data() + kFile + 16, &no_elements, 8);
  std::memcpy(bad.data() + kFile + 24, &hash_of_nothing, 8);
  SealHeader(bad, kFile, kEntry);
  WriteFile(Path(), bad + good.substr(kFile + kEntry + 4));
  EXPECT_EQ(StateStore().Load(Path()).code(), absl::StatusCode::kDataLoss);
  std::remove(Path().c_str());
}

TEST(StateStore, FilesBringMomentaAndBoundsBack) {
  StateStore store;
  CodecState& state = **store.GetOrCreate(3, 1, 5000, StateStore::Momentum::kWanted);
  std::ranges::copy(RandomFloats(5000, 1), state.residual().begin());
  state.residual()[77] = -9.5f;
  std::ranges::copy(RandomFloats(5000, 2), state.momentum().begin());
  state.momentum()[4999] = 8.25f;
  ASSERT_TRUE(store.Save(Path()).ok());
  StateStore loaded;
  ASSERT_TRUE(loaded.Load(Path()).ok());
  CodecState& other = *loaded.Find(3, 1);
  EXPECT_EQ(Difference(other.residual(), state.residual()), "");
  EXPECT_EQ(Difference(other.momentum(), state.momentum()), "");
  EXPECT_EQ(other.residual_bound(), 9.5f);
  EXPECT_EQ(other.momentum_bound(), 8.25f);
  std::remove(Path().c_str());
}

TEST(StateStore, NonFiniteNumbersInAFileAreRefused) {
  StateStore store;
  Residual(store, 1, 0, 2)[1] = NAN;  // the file's checksum is right
  ASSERT_TRUE(store.Save(Path()).ok());
  EXPECT_EQ(store.Load(Path()).code(), absl::StatusCode::kInvalidArgument);
  std::remove(Path().c_str());
}

TEST(StateStore, PrepareGivesACodecWhatItWants) {
  StateStore store;
  const std::vector<float> gradient(10, 1.0f);
  const auto none = *MakeCodec({.name = "none", .options = {}});
  const auto sign = *MakeCodec({.name = "1bit", .options = {}});
  EncodeInput input{.gradient = gradient, .residual = {}};
  EXPECT_EQ(*store.Prepare(*none, 1, 0, input), nullptr);
  EXPECT_TRUE(input.residual.empty());
  CodecState* state = *store.Prepare(*sign, 1, 0, input);
  EXPECT_EQ(input.residual.data(), state->residual().data());
  EXPECT_EQ(input.residual_bound, 0.0f);
  EXPECT_TRUE(input.momentum.empty());
  std::vector<std::byte> payload(none->MaxPayloadBytes(10));
  input.residual[3] = 2;  // on average 1.1 is sent
  state->NoteEncoded(*sign->Encode(input, payload));
  EXPECT_GE(state->residual_bound(), 1.9f);
  EXPECT_LT(state->residual_bound(), 2.1f);
  EXPECT_EQ(*store.Prepare(*none, 1, 0, input), state) << "what is left goes with a raw push";
  state->NoteEncoded(*none->Encode(input, payload));
  EXPECT_THAT(state->residual(), Each(0.0f));
  EXPECT_EQ(state->residual_bound(), 0.0f);
  state->ForgetBounds();
  EXPECT_EQ(state->residual_bound(), INFINITY);
  input.gradient = input.gradient.first(9);
  EXPECT_EQ(store.Prepare(*sign, 1, 0, input).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(StateStore, MomentumIsThereForCodecsThatWantIt) {
  StateStore store;
  const std::vector<float> gradient(10, 2.0f);
  const auto dgc = *MakeCodec({.name = "dgc", .options = {{"mu", "0.5"}}});
  const auto qsgd = *MakeCodec({.name = "qsgd", .options = {{"momentum", "nesterov"}}});
  EncodeInput input{.gradient = gradient, .gradient_bound = 2};
  CodecState* const state = *store.Prepare(*dgc, 1, 0, input);
  EXPECT_EQ(input.momentum.data(), state->momentum().data());
  EXPECT_EQ(input.momentum_bound, 0.0f);
  std::vector<std::byte> payload(dgc->MaxPayloadBytes(10));
  state->NoteEncoded(*dgc->Encode(input, payload));
  EXPECT_GE(state->momentum_bound(), 2.0f);
  EXPECT_LT(state->momentum_bound(), 2.01f);
  EXPECT_EQ(state->momentum()[1], 2.0f);
  EncodeInput raw{.gradient = gradient};
  const auto none = *MakeCodec({.name = "none", .options = {}});
  EXPECT_EQ(*store.Prepare(*none, 1, 0, raw), state);
  EXPECT_TRUE(raw.momentum.empty()) << "a codec without momentum leaves it as it is";
  payload.resize(40);
  state->NoteEncoded(*none->Encode(raw, payload));
  EXPECT_GE(state->momentum_bound(), 2.0f);
  EncodeInput unbiased{.gradient = gradient};
  ASSERT_NE(*store.Prepare(*qsgd, 2, 0, unbiased), nullptr);
  EXPECT_TRUE(unbiased.residual.empty()) << "error feedback stays off";
  EXPECT_EQ(unbiased.momentum.size(), 10u);
}

// Fills both states of a tensor under `grid`: element i is i + 1 in the residual and -(i + 1) in
// the momentum.
void Number(StateStore& store, KeyId key, const PartitionGrid& grid) {
  for (size_t first = 0; first < grid.elements; first += grid.partition_elements) {
    const size_t n = std::min(grid.partition_elements, grid.elements - first);
    CodecState& state =
        **store.GetOrCreate(key, static_cast<uint32_t>(first / grid.partition_elements), n,
                            StateStore::Momentum::kWanted);
    for (size_t i = 0; i < n; ++i) {
      state.residual()[i] = static_cast<float>(first + i + 1);
      state.momentum()[i] = -state.residual()[i];
    }
    state.ForgetBounds();
  }
}

TEST(StateStore, RepartitionKeepsEveryElementsStates) {
  constexpr size_t kSizes[] = {1, 7, 64, 100, 999, 1000, 5000};
  for (const size_t from : kSizes) {
    for (const size_t to : kSizes) {
      StateStore store, wanted;
      Number(store, 5, {1000, from});
      Number(store, 4, {10, 10});
      Number(store, 6, {10, 10});
      Number(wanted, 5, {1000, to});
      ASSERT_TRUE(store.Repartition(5, {1000, from}, {1000, to}).ok());
      EXPECT_EQ(store.TotalBytes(), wanted.TotalBytes() + 160);
      for (uint32_t partition = 0; partition * to < 1000; ++partition) {
        CodecState& state = *store.Find(5, partition);
        EXPECT_EQ(Difference(state.residual(), wanted.Find(5, partition)->residual()), "");
        EXPECT_EQ(Difference(state.momentum(), wanted.Find(5, partition)->momentum()), "");
        EXPECT_EQ(state.residual_bound(), INFINITY);
      }
      EXPECT_EQ(store.Find(4, 0)->residual()[9], 10.0f) << "other keys stay";
      EXPECT_EQ(store.Find(6, 0)->momentum()[9], -10.0f);
    }
  }
}

TEST(StateStore, RepartitionOfMissingPiecesGivesZerosOrNothing) {
  StateStore store;
  std::ranges::fill((*store.GetOrCreate(1, 1, 10))->residual(), 3.0f);  // elements 10 .. 19 of 35
  ASSERT_TRUE(store.Repartition(1, {35, 10}, {35, 14}).ok());
  EXPECT_EQ(store.Find(1, 0)->residual()[9], 0.0f);
  EXPECT_EQ(store.Find(1, 0)->residual()[10], 3.0f);
  EXPECT_EQ(store.Find(1, 1)->residual()[5], 3.0f);
  EXPECT_EQ(store.Find(1, 1)->residual()[6], 0.0f);
  EXPECT_EQ(store.Find(1, 2), nullptr);
  EXPECT_TRUE(store.Find(1, 0)->momentum().empty());
  EXPECT_TRUE(store.Repartition(2, {35, 10}, {35, 14}).ok()) << "no states at all";
}

TEST(StateStore, RepartitionRefusesGridsThatDoNotFit) {
  StateStore store;
  Number(store, 1, {25, 10});
  for (const auto& [from, to] :
       std::vector<std::pair<PartitionGrid, PartitionGrid>>{{{25, 10}, {26, 10}},
                                                            {{25, 0}, {25, 10}},
                                                            {{25, 10}, {25, 0}},
                                                            {{25, 9}, {25, 5}},
                                                            {{20, 10}, {20, 5}},
                                                            {{30, 10}, {30, 5}}}) {
    EXPECT_EQ(store.Repartition(1, from, to).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(store.Find(1, 2)->residual()[4], 25.0f) << "and nothing changes";
}

}  // namespace
}  // namespace slimps
