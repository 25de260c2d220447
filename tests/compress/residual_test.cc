#include "compress/codec/residual.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::string Path() {
  return ::testing::TempDir() + "/residuals_" +
         ::testing::UnitTest::GetInstance()->current_test_info()->name();
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

TEST(ResidualStore, StartsAtZeroAndKeepsWhatIsWritten) {
  ResidualStore store;
  EXPECT_TRUE(store.Find(1, 0).empty());
  std::span<float> residual = *store.GetOrCreate(1, 0, 1000);
  EXPECT_THAT(residual, Each(0.0f));
  residual[7] = 2;
  for (KeyId key = 2; key < 100; ++key) ASSERT_TRUE(store.GetOrCreate(key, 0, 3).ok());
  EXPECT_EQ(store.Find(1, 0).data(), residual.data()) << "spans stay as the store grows";
  EXPECT_EQ((*store.GetOrCreate(1, 0, 1000))[7], 2.0f);
  EXPECT_TRUE(store.Find(1, 1).empty());
  EXPECT_EQ(store.TotalBytes(), 4 * (1000 + 98 * 3));
}

TEST(ResidualStore, AnotherLengthIsRefused) {
  ResidualStore store;
  ASSERT_TRUE(store.GetOrCreate(1, 0, 10).ok());
  EXPECT_EQ(store.GetOrCreate(1, 0, 11).status().code(), absl::StatusCode::kFailedPrecondition);
  std::vector<float> gradient(9);
  EXPECT_EQ(store.AddAndClear(1, 0, gradient).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ResidualStore, ARawPushTakesTheResidualAlong) {
  ResidualStore store;
  std::span<float> residual = *store.GetOrCreate(1, 2, 3);
  residual[0] = 0.5f;
  residual[2] = -1;
  std::vector<float> gradient = {1, 2, 3};
  ASSERT_TRUE(store.AddAndClear(1, 2, gradient).ok());
  EXPECT_THAT(gradient, ElementsAre(1.5f, 2.0f, 2.0f));
  EXPECT_THAT(residual, Each(0.0f));
  ASSERT_TRUE(store.AddAndClear(99, 0, gradient).ok());  // never compressed
  EXPECT_THAT(gradient, ElementsAre(1.5f, 2.0f, 2.0f));
}

TEST(ResidualStore, ThreadsMayCreateDifferentPartitionsAtOnce) {
  ResidualStore store;
  std::vector<std::thread> threads;
  for (uint32_t partition = 0; partition < 4; ++partition) {
    threads.emplace_back([&store, partition] {
      for (KeyId key = 0; key < 50; ++key) {
        const std::span<float> residual = *store.GetOrCreate(key, partition, 64);
        std::ranges::fill(residual, static_cast<float>(partition));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t partition = 0; partition < 4; ++partition) {
    EXPECT_THAT(store.Find(49, partition), Each(static_cast<float>(partition)));
  }
}

TEST(ResidualStore, FileBringsEverythingBack) {
  ResidualStore store;
  for (KeyId key : {KeyId{5}, ~KeyId{0}}) {
    for (uint32_t partition : {0u, 7u}) {
      const std::vector<float> values = RandomFloats(100 + partition, key + partition);
      std::ranges::copy(values, store.GetOrCreate(key, partition, values.size())->begin());
    }
  }
  ASSERT_TRUE(store.Save(Path()).ok());
  ResidualStore other;
  ASSERT_TRUE(other.GetOrCreate(1, 1, 1).ok());
  const absl::Status status = other.Load(Path());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(other.Find(1, 1).empty()) << "replaced, not merged";
  EXPECT_EQ(other.TotalBytes(), store.TotalBytes());
  EXPECT_EQ(Difference(other.Find(~KeyId{0}, 7), store.Find(~KeyId{0}, 7)), "");
  ResidualStore empty;
  ASSERT_TRUE(empty.Save(Path()).ok());
  ASSERT_TRUE(other.Load(Path()).ok());
  EXPECT_EQ(other.TotalBytes(), 0u);
  std::remove(Path().c_str());
}

TEST(ResidualStore, EveryTruncationAndChangedByteIsRefusedAndNothingChanges) {
  ResidualStore store;
  std::ranges::fill(*store.GetOrCreate(1, 0, 9), 1.0f);
  std::ranges::fill(*store.GetOrCreate(2, 0, 2), 2.0f);
  ASSERT_TRUE(store.Save(Path()).ok());
  const std::string good = ReadFile(Path());
  ResidualStore loaded;
  ASSERT_TRUE(loaded.GetOrCreate(77, 0, 5).ok());
  for (size_t size = 0; size < good.size(); ++size) {
    WriteFile(Path(), good.substr(0, size));
    EXPECT_FALSE(loaded.Load(Path()).ok()) << size;
  }
  WriteFile(Path(), good + "x");
  EXPECT_FALSE(loaded.Load(Path()).ok());
  size_t unnoticed = 0;  // keys and partitions are not under a checksum
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x80);
    WriteFile(Path(), bad);
    ResidualStore fresh;
    if (fresh.Load(Path()).ok()) ++unnoticed;
  }
  EXPECT_LE(unnoticed, 2u * (sizeof(KeyId) + sizeof(uint32_t)));
  EXPECT_EQ(loaded.Find(77, 0).size(), 5u);
  std::remove(Path().c_str());
  EXPECT_EQ(loaded.Load(Path()).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store.Save("/nonexistent/folder/residuals").code(), absl::StatusCode::kUnavailable);
}

TEST(ResidualStore, ADeclaredSizeIsCheckedBeforeItIsAllocated) {
  ResidualStore store;
  ASSERT_TRUE(store.GetOrCreate(1, 0, 1).ok());
  ASSERT_TRUE(store.Save(Path()).ok());
  std::string bad = ReadFile(Path());
  for (size_t i = 0; i < 8; ++i) bad[24 + 16 + i] = '\x7f';  // elements: 2^63 or so
  WriteFile(Path(), bad);
  EXPECT_EQ(store.Load(Path()).code(), absl::StatusCode::kDataLoss);
  std::remove(Path().c_str());
}

TEST(ResidualStore, NonFiniteNumbersInAFileAreRefused) {
  ResidualStore store;
  (*store.GetOrCreate(1, 0, 2))[1] = NAN;  // the file's checksum is right
  ASSERT_TRUE(store.Save(Path()).ok());
  EXPECT_EQ(store.Load(Path()).code(), absl::StatusCode::kInvalidArgument);
  std::remove(Path().c_str());
}

}  // namespace
}  // namespace slimps
