// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/state/state_store.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/hash.h"
#include "tests/compress/codec/state/add_state.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(StateStore, StartsAtZeroAndKeepsWhatIsWritten) {
  StateStore store;
  EXPECT_EQ(store.Find(1, 0), nullptr);
  std::span<float> residual = AddState(store, 1, 0, 1000).residual();
  EXPECT_THAT(residual, Each(0.0f));
  residual[7] = 2;
  for (KeyId key = 2; key < 100; ++key) AddState(store, key, 0, 3);
  EXPECT_EQ(store.Find(1, 0)->residual().data(), residual.data())
      << "spans stay as the store grows";
  EXPECT_EQ(AddState(store, 1, 0, 1000).residual()[7], 2.0f);
  EXPECT_EQ(store.Find(1, 1), nullptr);
}

TEST(StateStore, ThreadsMayCreateDifferentPartitionsAtOnce) {
  StateStore store;
  std::vector<std::thread> threads;
  for (uint32_t partition = 0; partition < 4; ++partition) {
    threads.emplace_back([&store, partition] {
      for (KeyId key = 0; key < 50; ++key) {
        const std::span<float> residual = AddState(store, key, partition, 64).residual();
        std::ranges::fill(residual, static_cast<float>(partition));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t partition = 0; partition < 4; ++partition) {
    EXPECT_THAT(store.Find(49, partition)->residual(), Each(static_cast<float>(partition)));
  }
}

TEST(StateStore, BytesBringEverythingBack) {
  StateStore store;
  for (KeyId key : {KeyId{5}, ~KeyId{0}}) {
    for (uint32_t partition : {0u, 7u}) {
      const std::vector<float> values = RandomFloats(100 + partition, key + partition);
      std::ranges::copy(values, AddState(store, key, partition, values.size()).residual().begin());
    }
  }
  AddState(store, 3, 0, 4, "dgc");
  const std::string bytes = store.Serialize();
  StateStore parsed;
  AddState(parsed, 1, 1, 1);
  const absl::Status status = parsed.Parse(bytes);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(parsed.Find(1, 1), nullptr) << "replaced, not merged";
  EXPECT_THAT(parsed.Keys(), ElementsAre(3, 5, ~KeyId{0}));
  EXPECT_EQ(parsed.Serialize(), bytes);
  EXPECT_EQ(Difference(parsed.Find(~KeyId{0}, 7)->residual(), store.Find(~KeyId{0}, 7)->residual()),
            "");
  ASSERT_TRUE(parsed.Parse(StateStore().Serialize()).ok());
  EXPECT_THAT(parsed.Keys(), IsEmpty());
}

// Files of earlier stores hold these bytes.
TEST(StateStore, BytesStayWhatTheyAre) {
  StateStore store;
  CodecState& residual = AddState(store, 5, 1, 3);
  residual.residual()[0] = 1.5f;
  residual.residual()[1] = -2;
  CodecState& both = AddState(store, 7, 0, 2, "dgc");
  both.residual()[1] = 0.25f;
  both.momentum()[0] = -8;
  const std::string bytes = store.Serialize();
  EXPECT_EQ(bytes.size(), 180u);
  EXPECT_EQ(HashText(bytes), 0x1753eb8ef553bfde);
}

TEST(StateStore, StatesMayTakeAnothersPlace) {
  StateStore store, other;
  const float* const residual = AddState(store, 5, 0, 100).residual().data();
  AddState(other, 77, 0, 5);
  other.ReplaceBy(std::move(store));
  EXPECT_EQ(other.Find(77, 0), nullptr);
  EXPECT_EQ(other.Find(5, 0)->residual().data(), residual) << "moved, not copied";
  EXPECT_THAT(store.Keys(), IsEmpty());  // NOLINT(bugprone-use-after-move): that is promised
}

TEST(StateStore, EveryTruncationAndChangedByteIsRefusedAndNothingChanges) {
  StateStore store;
  std::ranges::fill(AddState(store, 1, 0, 9).residual(), 1.0f);
  std::ranges::fill(AddState(store, 2, 0, 2).residual(), 2.0f);
  const std::string good = store.Serialize();
  StateStore loaded;
  AddState(loaded, 77, 0, 5);
  const std::string before = loaded.Serialize();
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(loaded.Parse(good.substr(0, size)).code(), absl::StatusCode::kDataLoss) << size;
  }
  EXPECT_FALSE(loaded.Parse(good + "x").ok());
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x80);
    EXPECT_FALSE(loaded.Parse(bad).ok()) << i;
  }
  EXPECT_EQ(loaded.Serialize(), before);
}

// Replaces the checksum of a header by the one of its present fields.
void SealHeader(std::string& file, size_t offset, size_t bytes) {
  const uint64_t hash = HashText(std::string_view(file).substr(offset, bytes - sizeof(uint64_t)));
  std::memcpy(file.data() + offset + bytes - sizeof hash, &hash, sizeof hash);
}

TEST(StateStore, HostileHeadersWithRightChecksumsAreRefused) {
  StateStore store;
  AddState(store, 1, 0, 1, "dgc");
  const std::string good = store.Serialize();
  constexpr size_t kFile = 32, kEntry = 40;
  ASSERT_EQ(good.size(), kFile + 2 * (kEntry + 4));
  const auto load = [&](size_t at, uint64_t value, size_t bytes, size_t header, size_t size) {
    std::string bad = good;
    std::memcpy(bad.data() + at, &value, bytes);
    SealHeader(bad, header, size);
    return StateStore().Parse(bad).code();
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
}

TEST(StateStore, AResidualOfNoElementsIsRefused) {
  StateStore store;
  AddState(store, 1, 0, 1, "dgc");
  const std::string good = store.Serialize();
  constexpr size_t kFile = 32, kEntry = 40;
  std::string bad = good.substr(0, kFile + kEntry);
  const uint64_t no_elements = 0, hash_of_nothing = HashBytes({});
  std::memcpy(bad.data() + kFile + 16, &no_elements, 8);
  std::memcpy(bad.data() + kFile + 24, &hash_of_nothing, 8);
  SealHeader(bad, kFile, kEntry);
  bad += good.substr(kFile + kEntry + 4);
  EXPECT_EQ(StateStore().Parse(bad).code(), absl::StatusCode::kDataLoss);
}

TEST(StateStore, BytesBringMomentaAndBoundsBack) {
  StateStore store;
  CodecState& state = AddState(store, 3, 1, 5000, "dgc");
  std::ranges::copy(RandomFloats(5000, 1), state.residual().begin());
  state.residual()[77] = -9.5f;
  std::ranges::copy(RandomFloats(5000, 2), state.momentum().begin());
  state.momentum()[4999] = 8.25f;
  StateStore loaded;
  ASSERT_TRUE(loaded.Parse(store.Serialize()).ok());
  CodecState& other = *loaded.Find(3, 1);
  EXPECT_EQ(Difference(other.residual(), state.residual()), "");
  EXPECT_EQ(Difference(other.momentum(), state.momentum()), "");
  EXPECT_EQ(other.residual_bound(), 9.5f);
  EXPECT_EQ(other.momentum_bound(), 8.25f);
}

TEST(StateStore, NonFiniteNumbersAreRefused) {
  StateStore store;
  AddState(store, 1, 0, 2).residual()[1] = NAN;  // the checksum is right
  EXPECT_EQ(store.Parse(store.Serialize()).code(), absl::StatusCode::kInvalidArgument);
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
}

TEST(StateStore, AnotherLengthIsRefused) {
  StateStore store;
  AddState(store, 1, 0, 10);
  const auto sign = *MakeCodec({.name = "1bit", .options = {}});
  for (const size_t elements : {0, 9, 11}) {
    const std::vector<float> gradient(elements);
    EncodeInput input{.gradient = gradient};
    EXPECT_EQ(store.Prepare(*sign, 1, 0, input).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
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
        AddState(store, key, static_cast<uint32_t>(first / grid.partition_elements), n, "dgc");
    for (size_t i = 0; i < n; ++i) {
      state.residual()[i] = static_cast<float>(first + i + 1);
      state.momentum()[i] = -state.residual()[i];
    }
    for (const StateKind kind : kStateKinds) state.part(kind).bound = INFINITY;
  }
}

TEST(StateStore, RepartitionKeepsEveryElementsStates) {
  constexpr size_t kSizes[] = {1, 7, 64, 100, 999, 1000, 5000};
  for (const size_t from : kSizes) {
    for (const size_t to : kSizes) {
      StateStore store, wanted;
      Number(store, 5, {1000, from});
      for (StateStore* const one : {&store, &wanted}) {
        Number(*one, 4, {10, 10});
        Number(*one, 6, {10, 10});
      }
      Number(wanted, 5, {1000, to});
      ASSERT_TRUE(store.Repartition(5, {1000, from}, {1000, to}).ok());
      EXPECT_EQ(store.Serialize(), wanted.Serialize()) << from << " to " << to;
      for (uint32_t partition = 0; partition * to < 1000; ++partition) {
        EXPECT_EQ(store.Find(5, partition)->residual_bound(), INFINITY);
      }
    }
  }
}

TEST(StateStore, RepartitionOfMissingPiecesGivesZerosOrNothing) {
  StateStore store;
  std::ranges::fill(AddState(store, 1, 1, 10).residual(), 3.0f);  // elements 10 .. 19 of 35
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
