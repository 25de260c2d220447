// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/advice.h"

#include <gtest/gtest.h>

namespace slimps {
namespace {

Figures Waiting() {
  Figures figures;
  figures.overlap = 0.3;
  figures.push_bytes_per_s = 5e5;
  figures.pull_bytes_per_s = 11.2e6;
  figures.uncompressed_pull_bytes_per_s = 11.2e6;
  return figures;
}

TEST(AdviceTest, RawPullsThatFillTheLinkAreNamed) {
  EXPECT_EQ("pulls take 11.2 MB/s raw, 22 times the pushes: compress them too (pull_compression)",
            AdviceFor(Waiting()));
}

TEST(AdviceTest, NothingIsSaidWhereTrainingDoesNotWait) {
  Figures figures = Waiting();
  figures.overlap = 0.95;
  EXPECT_EQ("", AdviceFor(figures));
  figures.overlap.reset();
  EXPECT_EQ("", AdviceFor(figures));
  EXPECT_EQ("", AdviceFor(Figures()));
}

TEST(AdviceTest, NothingIsSaidOfPullsThatAreCompressedOrFew) {
  Figures compressed = Waiting();
  compressed.uncompressed_pull_bytes_per_s = 0;
  EXPECT_EQ("", AdviceFor(compressed));
  Figures pushed = Waiting();
  pushed.push_bytes_per_s = 20e6;
  EXPECT_EQ("", AdviceFor(pushed));
}

TEST(AdviceTest, AServerThatCarriesFarMoreThanOthersIsNamed) {
  Figures figures;
  figures.server_bytes_per_s = {{0, 1e6}, {1, 8e6}, {2, 1e6}};
  EXPECT_EQ("server 1 carries 80 % of all bytes: cut large tensors into smaller partitions",
            AdviceFor(figures));
  figures.server_bytes_per_s = {{0, 6e6}, {1, 8e6}};
  EXPECT_EQ("", AdviceFor(figures));
  figures.server_bytes_per_s = {{0, 8e6}};
  EXPECT_EQ("", AdviceFor(figures));
}

TEST(AdviceTest, AServerThatIsFarBusierThanOthersIsNamed) {
  Figures figures;
  figures.server_busy = {{0, 0.1}, {1, 0.9}};
  EXPECT_EQ(
      "server 1 is busy 0.9 s per second, far more than the others: look what else its machine "
      "does",
      AdviceFor(figures));
}

TEST(AdviceTest, EncodingThatTakesLongerThanSendingIsNamed) {
  Figures figures;
  figures.overlap = 0.3;
  figures.stage_s["encode"] = 1.5;
  figures.stage_s["copy"] = 0.5;
  figures.stage_s["send"] = 0.25;
  EXPECT_EQ(
      "encoding takes 2.0 s per second, more than sending (0.2 s): use a cheaper codec, or "
      "compress fewer tensors (threshold)",
      AdviceFor(figures));
}

TEST(AdviceTest, AWorkerThatIsAlwaysTheLastIsNamed) {
  Figures figures;
  figures.waited_for = {{0, 0.05}, {2, 0.4}};
  EXPECT_EQ("rounds waited 40 % of the time for worker 2 alone", AdviceFor(figures));
  figures.waited_for = {{0, 0.2}, {2, 0.2}};
  EXPECT_EQ("", AdviceFor(figures));
}

}  // namespace
}  // namespace slimps
