// SPDX-License-Identifier: Apache-2.0
// Memory runs out at any one allocation while states are written as bytes.
#include <string>

#include "compress/codec/state/state_store.h"
#include "gtest/gtest.h"
#include "tests/compress/codec/state/add_state.h"
#include "tests/proto/base/failing_allocations.h"

namespace slimps {
namespace {

TEST(StateStoreOutOfMemory, WhatIsSerializedIsWhole) {
  StateStore store;
  for (uint32_t partition = 0; partition < 3; ++partition) {
    AddState(store, 7, partition, 1000).residual()[partition] = 1;
  }
  const std::string whole = store.Serialize();
  for (int n = 0;; ++n) {
    std::string content;
    bool returned = false;
    const bool ran_out = RunsOut(n, [&] {
      content = store.Serialize();
      returned = true;
    });
    EXPECT_NE(ran_out, returned) << "allocation " << n;
    if (ran_out) continue;
    EXPECT_TRUE(content == whole);
    EXPECT_GT(n, 0) << "it does allocate";
    return;
  }
}

}  // namespace
}  // namespace slimps
