// SPDX-License-Identifier: Apache-2.0
#include "worker/capi/c_api_structs.h"

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

// A struct as the first version of an API has it, and as later versions have it.
struct First {
  size_t struct_size = sizeof(First);
  uint64_t a = 1;
};
struct Grown {
  size_t struct_size = sizeof(Grown);
  uint64_t a = 2, b = 3;
};

namespace slimps {

template <>
inline constexpr size_t kFirstSize<First> = sizeof(First);
template <>
inline constexpr size_t kFirstSize<Grown> = sizeof(First);

namespace {

using ::testing::HasSubstr;

TEST(CApiStructs, AnOldProgramsStructIsReadByANewerLibrary) {
  struct {
    First old;
    uint64_t behind = 9;
  } program;
  const auto read = ReadSized<Grown>("tensors", &program);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->a, 1u);
  EXPECT_EQ(read->b, 0u);
}

TEST(CApiStructs, ANewProgramsStructIsReadByAnOlderLibraryUnlessItAsksForMore) {
  Grown program;
  const auto refused = ReadSized<First>("tensors", &program);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("beyond the 16 bytes"));
  program.b = 0;
  const auto read = ReadSized<First>("tensors", &program);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->a, 2u);
}

TEST(CApiStructs, AreFilledAsFarAsTheyGo) {
  struct {
    First old;
    uint64_t behind = 9;
  } program;
  ASSERT_TRUE(FillSized("totals", Grown(), reinterpret_cast<Grown*>(&program)).ok());
  EXPECT_EQ(program.old.a, 2u);
  EXPECT_EQ(program.old.struct_size, sizeof(First));
  EXPECT_EQ(program.behind, 9u);
  Grown newer;
  ASSERT_TRUE(FillSized("totals", First(), reinterpret_cast<First*>(&newer)).ok());
  EXPECT_EQ(newer.a, 1u);
  EXPECT_EQ(newer.b, 0u);
  EXPECT_EQ(newer.struct_size, sizeof(Grown));
}

TEST(CApiStructs, ASizeThatNobodySetIsRefused) {
  for (const size_t size : {size_t{0}, size_t{8}, size_t{17}, size_t{1} << 20}) {
    Grown grown{.struct_size = size};
    EXPECT_FALSE(ReadSized<Grown>("tensors", &grown).ok()) << size;
    const absl::Status filled = FillSized("totals", Grown(), &grown);
    EXPECT_THAT(std::string(filled.message()),
                HasSubstr("totals.struct_size: expected the struct's sizeof, at least 16"));
  }
}

// Programs built with these sizes must go on working.
TEST(CApiStructs, TheFirstVersionsSizesHold) {
  EXPECT_EQ(kFirstSize<slimps_tensor>, 64u);
  EXPECT_EQ(kFirstSize<slimps_totals>, 112u);
  EXPECT_EQ(kFirstSize<slimps_decision>, 40u);
  EXPECT_EQ(kFirstSize<slimps_item>, 64u);
  EXPECT_EQ(kFirstSize<slimps_parameter>, 48u);
  EXPECT_EQ(kFirstSize<slimps_exchange_settings>, 32u);
  EXPECT_EQ(kFirstSize<slimps_exchange_times>, 32u);
  EXPECT_GE(sizeof(slimps_tensor), kFirstSize<slimps_tensor>);
  EXPECT_GE(sizeof(slimps_totals), kFirstSize<slimps_totals>);
  EXPECT_GE(sizeof(slimps_decision), kFirstSize<slimps_decision>);
}

}  // namespace
}  // namespace slimps
