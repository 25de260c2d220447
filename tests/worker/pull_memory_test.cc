// Memory that runs out around a PullMerger: who waits for a pull is told, whatever it came to.
#include <functional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/proto/base/failing_allocations.h"
#include "tests/worker/pull_merger_fixture.h"

namespace slimps {
namespace {

using PullOutOfMemory = PullMergerTest;

TEST_F(PullOutOfMemory, WhatIsSubmittedLaterTakesNoneThen) {
  Make();
  std::vector<float> out(4);
  Outcome outcome;
  const auto submit =
      merger_->SubmitLater({.tensor = &tensor_, .out = out, .done = outcome.Setter()});
  EXPECT_FALSE(RunsOut(0, [&] { submit(absl::OkStatus()); }));
  for (const wire::PullItem& asked : Asked()) Answer(asked, 1, 7);
  EXPECT_TRUE(outcome.Await().ok());
  EXPECT_EQ(out, std::vector<float>(4, 7));
}

TEST_F(PullOutOfMemory, WhatIsNotSubmittedAfterAllIsToldByThePullThread) {
  Make();
  Outcome outcome;
  std::thread::id teller;
  const auto submit =
      merger_->SubmitLater({.tensor = &tensor_, .done = [&](const absl::Status& status) {
                              teller = std::this_thread::get_id();
                              outcome.Setter()(status);
                            }});
  const absl::Status gone = absl::UnavailableError("server 0 is gone");
  EXPECT_FALSE(RunsOut(0, [&] { submit(gone); }));
  EXPECT_EQ(outcome.Await(), gone);
  EXPECT_NE(teller, std::this_thread::get_id());
  EXPECT_TRUE(transport_.idle());
}

}  // namespace
}  // namespace slimps
