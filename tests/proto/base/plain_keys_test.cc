// SPDX-License-Identifier: Apache-2.0
#include "proto/base/plain_keys.h"

#include <gtest/gtest.h>

namespace slimps {
namespace {

TEST(PlainKeys, TypesOfKeysAreNotShown) {
  EXPECT_EQ(WithPlainKeys("push of key s:w: element 0 is nan"), "push of key w: element 0 is nan");
  EXPECT_EQ(WithPlainKeys("key s:w is of another kind than key i:-5; a store has one kind"),
            "key w is of another kind than key -5; a store has one kind");
  EXPECT_EQ(WithPlainKeys("tensor s:conv1.weight: waited in vain"),
            "tensor conv1.weight: waited in vain");
  EXPECT_EQ(WithPlainKeys("key s:s:w partition 0"), "key s:w partition 0") << "it is named s:w";
}

TEST(PlainKeys, EverythingElseStays) {
  for (const char* message :
       {"", "s:", "key ", "worker s:w", "monkey s:w", "key w", "key 's:w'", "after 5 s: nothing"}) {
    EXPECT_EQ(WithPlainKeys(message), message);
  }
  EXPECT_EQ(WithPlainKeys("key s:"), "key ");
}

}  // namespace
}  // namespace slimps
