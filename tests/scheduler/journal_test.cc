// SPDX-License-Identifier: Apache-2.0
#include "scheduler/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "scheduler/barrier.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const JournalHead kHead{.job_id = "job", .num_workers = 2, .num_servers = 1};

JournalEntry Barrier(const std::string& name, uint64_t ticket) {
  JournalEntry entry;
  entry.header.mutable_barrier()->set_name(name);
  entry.header.mutable_barrier()->set_ticket(ticket);
  return entry;
}

JournalEntry Sum(const std::string& name, uint64_t ticket) {
  JournalEntry entry = Barrier(name, ticket);
  entry.header.mutable_barrier()->add_values(1);
  return entry;
}

JournalEntry Goodbye(uint32_t rank) {
  JournalEntry entry;
  entry.header.mutable_sender()->set_rank(rank);
  entry.header.mutable_goodbye();
  return entry;
}

JournalEntry Pushed(uint32_t rank) {
  JournalEntry entry;
  entry.header.mutable_sender()->set_rank(rank);
  entry.header.mutable_heartbeat()->set_has_pushed(true);
  return entry;
}

class JournalTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(path_); }

  std::vector<JournalEntry> Reopen() {
    auto journal = Journal::Open(path_, kHead);
    EXPECT_TRUE(journal.ok()) << journal.status();
    return journal.ok() ? (*journal)->TakeEntries() : std::vector<JournalEntry>();
  }
  std::vector<uint32_t> RanksAfterReopening() {
    std::vector<uint32_t> ranks;
    for (const JournalEntry& entry : Reopen()) ranks.push_back(entry.header.sender().rank());
    return ranks;
  }
  std::string Content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Write(const std::string& content) const {
    std::ofstream(path_, std::ios::binary) << content;
  }

  const std::string path_ = testing::TempDir() + "/journal";
};

TEST_F(JournalTest, WhatWasAppendedIsReadAgainInOrder) {
  JournalEntry taken = Goodbye(3);
  taken.kind = JournalEntry::Kind::kTakesPlace;
  ASSERT_TRUE((*Journal::Open(path_, kHead))->Append({Goodbye(1), Goodbye(2)}).ok());
  ASSERT_TRUE((*Journal::Open(path_, kHead))->Append({taken}).ok());
  const auto entries = Reopen();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[1].header.sender().rank(), 2u);
  EXPECT_EQ(entries[1].kind, JournalEntry::Kind::kMessage);
  EXPECT_EQ(entries[2].kind, JournalEntry::Kind::kTakesPlace);
}

TEST_F(JournalTest, ATornOrDamagedEndIsDroppedWhereverItBegins) {
  ASSERT_TRUE((*Journal::Open(path_, kHead))->Append({Goodbye(1)}).ok());
  const size_t kept = Content().size();
  ASSERT_TRUE((*Journal::Open(path_, kHead))->Append({Goodbye(2)}).ok());
  const std::string whole = Content();
  for (size_t size = kept; size < whole.size(); ++size) {
    Write(whole.substr(0, size));
    EXPECT_THAT(RanksAfterReopening(), ElementsAre(1)) << size << " bytes are left";
    std::string flipped = whole;
    flipped[size] = static_cast<char>(flipped[size] ^ 4);
    Write(flipped);
    EXPECT_THAT(RanksAfterReopening(), ElementsAre(1)) << "byte " << size << " is flipped";
  }
}

TEST_F(JournalTest, WhatIsNoJournalOrAnotherJobsIsRefusedAndNamed) {
  Write("certainly no journal");
  const absl::Status none = Journal::Open(path_, kHead).status();
  EXPECT_TRUE(absl::IsDataLoss(none));
  EXPECT_THAT(std::string(none.message()), HasSubstr(path_));
  std::filesystem::remove(path_);
  ASSERT_TRUE(Journal::Open(path_, kHead).ok());
  for (const JournalHead& other :
       {JournalHead{"other", 2, 1}, JournalHead{"job", 3, 1}, JournalHead{"job", 2, 2}}) {
    const absl::Status refused = Journal::Open(path_, other).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("got job \"job\" with 2 and 1"));
  }
}

TEST_F(JournalTest, AFolderThatIsNotThereIsNamed) {
  const absl::Status missing = Journal::Open("/nowhere/journal", kHead).status();
  EXPECT_TRUE(absl::IsUnavailable(missing));
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/nowhere/journal"));
}

TEST_F(JournalTest, AFullDiskIsToldAndNothingHalfIsLeft) {
  std::filesystem::create_symlink("/dev/full", path_ + ".new");
  const absl::Status full = Journal::Open(path_, kHead).status();
  EXPECT_THAT(std::string(full.message()), HasSubstr("No space left"));
  std::filesystem::remove(path_ + ".new");
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(JournalTest, BarriersOfALongTrainingAreDroppedAndThoseBeforeItKept) {
  std::vector<JournalEntry> entries = {Sum("a", 1), Sum("a", 2), Pushed(0),
                                       Sum("a", 3), Pushed(1),   Sum("a", 3)};
  const uint64_t fit =
      BarrierTable::kBytesOfTraining / BarrierTable::BytesToRemember(Sum("a", 1).header.barrier());
  for (uint64_t ticket = 4; ticket <= 10 * fit; ++ticket) {
    entries.push_back(Sum("a", ticket));
    entries.push_back(Barrier("only opens", ticket));
  }
  entries.push_back(Goodbye(0));
  std::map<std::string, std::vector<uint64_t>> left;
  for (const JournalEntry& entry : WithoutOldBarriers(entries, /*num_workers=*/2)) {
    const wire::Barrier& barrier = entry.header.barrier();
    if (entry.header.has_barrier()) left[barrier.name()].push_back(barrier.ticket());
  }
  std::vector<uint64_t> expected = {1, 2, 3, 3};
  for (uint64_t ticket = 4; ticket < 4 + fit; ++ticket) expected.push_back(ticket);
  expected.push_back(10 * fit - 1);
  expected.push_back(10 * fit);
  EXPECT_EQ(left["a"], expected);
  EXPECT_THAT(left["only opens"], ElementsAre(10 * fit - 1, 10 * fit));
}

}  // namespace
}  // namespace slimps
