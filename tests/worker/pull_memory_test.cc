// Memory that runs out around a PullMerger: who waits for a pull is told, whatever it came to.
#include <functional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/proto/base/failing_allocations.h"
#include "tests/worker/pull_merger_fixture.h"

namespace slimps {
namespace {

class PullOutOfMemory : public PullMergerTest {
 protected:
  // What there was no memory to send is sent again.
  PullOutOfMemory() : PullMergerTest(absl::Milliseconds(10)) {}
};

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

// The pull thread has nobody to throw to, and who was not told would wait for ever.
TEST_F(PullOutOfMemory, EveryPullIsDoneWhereverThePullThreadRunsOut) {
  PullMergerOptions options;
  options.measures = [](const TensorPlan&, uint64_t) { return true; };
  options.on_measured = [](const PullMeasurement&) {};
  Make(std::move(options));
  const TensorPlan empty{.key = Key("nothing")};
  // Runs `body` on the pull thread.
  const auto there = [&](const std::function<void()>& body) {
    Outcome outcome;
    merger_->Submit({.tensor = &empty, .done = [&](const absl::Status& status) {
                       body();
                       outcome.Setter()(status);
                     }});
    EXPECT_TRUE(outcome.Await().ok());
  };
  int refused = 0;
  for (int n = 0;; ++n) {
    SCOPED_TRACE(n);
    std::vector<float> plain(4), copied(4);
    Outcome of_plain, of_copied;
    there([n] { FailAllocation(n); });
    Submit(1, PullKind::kPlain, plain, of_plain);
    Submit(1, PullKind::kThroughCopy, copied, of_copied);
    while (!of_plain.done() || !of_copied.done()) {
      const wire::PullItem asked = transport_.Next(absl::Milliseconds(5));
      if (asked.has_id()) Answer(asked, 1, 7);
    }
    for (const absl::Status& status : {of_plain.Await(), of_copied.Await()}) {
      refused += absl::IsResourceExhausted(status);
      EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
    }
    bool ran_out = false;
    there([&] { ran_out = EndFailing(); });
    for (;;) {  // what is measured
      const wire::PullItem asked = transport_.Next(absl::Milliseconds(5));
      if (!asked.has_id()) break;
      Answer(asked, 1, 7);
    }
    if (!ran_out) break;
  }
  EXPECT_GT(refused, 5);
}

}  // namespace
}  // namespace slimps
