// SPDX-License-Identifier: Apache-2.0
#include "worker/saved/optimizer_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <span>
#include <string>

#include "proto/base/hash.h"
#include "proto/limits.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

OptimizerStates Adam() {
  return {.kind = wire::OptimizerSpec::ADAM,
          .tensors = 2,
          .keys = {{"s:b", {.elements = 2, .updates = 7, .tensors = {{1, 2}, {3, 4}}}},
                   {"s:a", {.elements = 0, .updates = 0, .tensors = {{}, {}}}},
                   {"s:c", {.elements = 1, .updates = 9, .tensors = {{-0.0f}, {0.5f}}}}}};
}

// Returns `content` with its last 8 bytes replaced by the right checksum.
std::string Signed(std::string content) {
  content.resize(content.size() - 8);
  const uint64_t hash = HashBytes(std::as_bytes(std::span<const char>(content)));
  content.append(reinterpret_cast<const char*>(&hash), sizeof hash);
  return content;
}

std::string With(std::string content, size_t offset, uint32_t value) {
  std::memcpy(content.data() + offset, &value, sizeof value);
  return Signed(std::move(content));
}

std::string Refusal(const std::string& content, absl::StatusCode code) {
  const absl::Status status = ParseOptimizerStates(content).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}

TEST(OptimizerStates, WhatWasBuiltIsReadBack) {
  const OptimizerStates none = {.kind = wire::OptimizerSpec::TEST};
  for (const OptimizerStates& states : {Adam(), none}) {
    const auto read = ParseOptimizerStates(BuildOptimizerStates(states));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, states);
  }
}

TEST(OptimizerStates, TheLayoutIsAsTheHeaderSays) {
  const OptimizerStates states = {
      .kind = wire::OptimizerSpec::SGD,
      .tensors = 1,
      .keys = {{"i:5", {.elements = 1, .updates = 3, .tensors = {{0.5f}}}}}};
  const std::string expected(
      "SLPSOPTS\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0"
      "\x03\0\0\0i:5\x01\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\x3f--------",
      59);
  EXPECT_EQ(BuildOptimizerStates(states), Signed(expected));
}

TEST(OptimizerStates, EveryDamagedByteAndEveryCutIsNoticed) {
  const std::string good = BuildOptimizerStates(Adam());
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    EXPECT_FALSE(ParseOptimizerStates(bad).ok()) << at;
    EXPECT_FALSE(ParseOptimizerStates(good.substr(0, at)).ok()) << at;
  }
  EXPECT_THAT(Refusal(good + "x", absl::StatusCode::kDataLoss), HasSubstr("damaged"));
  EXPECT_THAT(Refusal("", absl::StatusCode::kInvalidArgument), HasSubstr("begins with SLPSOPTS"));
}

TEST(OptimizerStates, FieldsThatAreNoneAreRefusedThoughTheChecksumHolds) {
  const std::string good = BuildOptimizerStates(Adam());
  const auto refusal = [&](size_t offset, uint32_t value, absl::StatusCode code) {
    return Refusal(With(good, offset, value), code);
  };
  EXPECT_THAT(refusal(8, 2, absl::StatusCode::kInvalidArgument), HasSubstr("version 1, got 2"));
  EXPECT_THAT(refusal(12, 99, absl::StatusCode::kInvalidArgument), HasSubstr("got kind 99"));
  EXPECT_THAT(refusal(12, ~0u, absl::StatusCode::kInvalidArgument),
              HasSubstr("got kind 4294967295"));
  EXPECT_THAT(refusal(16, 4, absl::StatusCode::kInvalidArgument), HasSubstr("with 4"));
  EXPECT_THAT(refusal(20, 4, absl::StatusCode::kDataLoss), HasSubstr("a key's name"));
  EXPECT_THAT(refusal(20, 2, absl::StatusCode::kInvalidArgument), HasSubstr("are left after"));
  EXPECT_THAT(refusal(24, 1000, absl::StatusCode::kDataLoss),
              HasSubstr("expected 1000 more bytes"));
  // The number of s:a's elements, low and high word: more bytes than the file has, and more than a
  // key may have.
  EXPECT_THAT(refusal(31, 1000, absl::StatusCode::kDataLoss), HasSubstr("a key's state"));
  EXPECT_THAT(refusal(35, ~0u, absl::StatusCode::kInvalidArgument), HasSubstr("expected at most"));
}

TEST(OptimizerStates, UpdatesThatNobodyMadeAreRefused) {
  OptimizerStates states = Adam();
  states.keys["s:c"].updates = kMaxUpdates;
  EXPECT_TRUE(ParseOptimizerStates(BuildOptimizerStates(states)).ok());
  ++states.keys["s:c"].updates;
  EXPECT_THAT(Refusal(BuildOptimizerStates(states), absl::StatusCode::kInvalidArgument),
              HasSubstr("key s:c: expected at most 4611686018427387904 updates, got 461168601842"));
}

TEST(OptimizerStates, MomentsThatAreNotFiniteAreRefused) {
  for (const float bad : {std::nanf(""), INFINITY}) {
    OptimizerStates states = Adam();
    states.keys["s:b"].tensors[1].back() = bad;
    EXPECT_THAT(Refusal(BuildOptimizerStates(states), absl::StatusCode::kInvalidArgument),
                HasSubstr("of state tensor 2 is "));
  }
}

TEST(OptimizerStates, AKeyThatComesTwiceIsRefused) {
  OptimizerStates states = Adam();
  std::string content = BuildOptimizerStates(states);
  content[content.find("s:b") + 2] = 'a';
  EXPECT_THAT(Refusal(Signed(content), absl::StatusCode::kInvalidArgument),
              HasSubstr("key s:a comes twice"));
}

}  // namespace
}  // namespace slimps
