// SPDX-License-Identifier: Apache-2.0
// SLIMPS_LENT over a distributed store: its codec reads a gradient on loan where it lies.
#include <memory>
#include <utility>

#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"
#include "tests/worker/capi/c_api_fixture.h"
#include "worker/capi/c_api_handle.h"

namespace {

constexpr size_t kElements = 5000;  // several partitions
constexpr slimps_place kLent = {SLIMPS_LENT, 0, nullptr};

// A job of one worker whose gradients travel with one bit per element. It has the keys "w" and "v".
class CApiLent : public ::testing::Test {
 protected:
  void Begin(bool fails) {
    slimps::ClusterOptions options;
    options.job_fails = fails;
    options.workers = options.servers = 1;
    options.store.compression = "1bit";
    options.store.fixed_threshold_bytes = 0;
    options.store.partition_bytes = 4096;
    cluster_ = std::make_unique<slimps::InProcessCluster>(options);
    auto joined = cluster_->JoinWorker(0);
    ASSERT_TRUE(joined.ok()) << joined.status();
    store_.reset(new slimps_store{
        std::make_shared<slimps::SharedStore>("dist_sync", *std::move(joined)), nullptr});
    for (const char* key : {"w", "v"}) {
      ASSERT_C_OK(InitKey(store_, slimps_text_key(key), Values(kElements)));
    }
  }
  void End() {
    EXPECT_C_OK(slimps_close(store_.get()));
    store_.reset();
    cluster_.reset();
  }
  // Pushes and pulls random gradients of "w" in a job of its own. Returns all that was pulled.
  std::vector<Values> PulledWith(const slimps_place* place) {
    std::vector<Values> pulled;
    Begin(/*fails=*/false);
    for (const uint64_t round : {1, 2, 3}) {  // the later ones with residuals
      const Values gradient = slimps::Random(kElements, round);
      Items items;
      items.Add("w", {gradient.data()}, nullptr, kElements).at(0).places = place;
      EXPECT_C_OK(slimps_push_list(store_.get(), items.data(), 1, 0));
      pulled.push_back(PullOf(store_, kW, kElements));
      EXPECT_NE(pulled.back(), gradient) << "it was to be compressed";
    }
    End();
    return pulled;
  }

  std::unique_ptr<slimps::InProcessCluster> cluster_;
  Store store_;  // declared last: the cluster waits for its end
};

TEST_F(CApiLent, AGradientOnLoanGivesTheBitsOfACopiedOne) {
  EXPECT_EQ(PulledWith(&kLent), PulledWith(nullptr));
}

TEST_F(CApiLent, ALoanThatIsNotFiniteFailsTheWaitByItsKey) {
  Begin(/*fails=*/true);
  Values gradient(kElements, 1.0f);
  gradient[4000] = NAN;
  Items items;
  items.Add("w", {gradient.data()}, nullptr, kElements);
  EXPECT_C_REFUSES(slimps_push_list(store_.get(), items.data(), 1, 0), "element 4000 is nan")
      << "it is copied";
  EXPECT_C_OK(slimps_wait(store_.get()));
  items.at(0).places = &kLent;
  EXPECT_C_OK(slimps_push_list(store_.get(), items.data(), 1, 0)) << "it is read later";
  EXPECT_C_FAILS(slimps_wait(store_.get()), SLIMPS_ABORTED, "push of key w: element 4000 is nan");
  store_.reset();  // until here the gradient must stay
}

TEST_F(CApiLent, TwoKeysMayShareALoanThatNoneIsPulledInto) {
  Begin(/*fails=*/false);
  Values gradient = slimps::Random(kElements, 1);
  Values w(kElements), v(kElements);
  Items items;
  items.Add("w", {gradient.data()}, w.data(), kElements);
  items.Add("v", {gradient.data()}, v.data(), kElements);
  items.at(0).places = items.at(1).places = &kLent;
  EXPECT_C_OK(slimps_pushpull_list(store_.get(), items.data(), 2, 0));
  EXPECT_EQ(w, v);
  EXPECT_NE(w, Values(kElements));
  items.at(1).out = gradient.data();
  const Values before = gradient;
  EXPECT_C_REFUSES(slimps_pushpull_list(store_.get(), items.data(), 2, 0),
                   "items: two share memory");
  EXPECT_EQ(gradient, before);
  EXPECT_EQ(PullOf(store_, kW, kElements), w) << "nothing was pushed";
  End();
}

}  // namespace
