// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/transport/raw_stream.h"

#include <gtest/gtest.h>

namespace slimps {
namespace {

size_t SendAll(RawStream* stream) {
  size_t sent = 0;
  for (; stream->CanSend(); ++sent) stream->OnSent();
  return sent;
}

TEST(RawStream, SendsNoMoreThanItsWindowUnacknowledged) {
  RawStream stream({.to_send = 10, .to_receive = 0, .window = 4});
  EXPECT_EQ(SendAll(&stream), 4u);
  EXPECT_TRUE(stream.OnAcknowledged(3));
  EXPECT_EQ(SendAll(&stream), 3u);
  EXPECT_TRUE(stream.OnAcknowledged(4));
  EXPECT_EQ(SendAll(&stream), 3u);
  EXPECT_FALSE(stream.done());
  EXPECT_TRUE(stream.OnAcknowledged(3));
  EXPECT_TRUE(stream.done());
}

TEST(RawStream, OwesEachReceivedMessageOneAcknowledgement) {
  RawStream stream({.to_send = 0, .to_receive = 3, .window = 1});
  EXPECT_FALSE(stream.CanSend());
  EXPECT_EQ(stream.TakeAcknowledgements(), 0u);
  stream.OnReceived();
  stream.OnReceived();
  EXPECT_EQ(stream.TakeAcknowledgements(), 2u);
  EXPECT_EQ(stream.TakeAcknowledgements(), 0u);
  stream.OnReceived();
  EXPECT_FALSE(stream.done());  // the last acknowledgement has not gone
  EXPECT_EQ(stream.TakeAcknowledgements(), 1u);
  EXPECT_TRUE(stream.done());
}

TEST(RawStream, RefusesAcknowledgementsOfWhatWasNotSent) {
  RawStream stream({.to_send = 5, .to_receive = 0, .window = 2});
  EXPECT_FALSE(stream.OnAcknowledged(1));
  SendAll(&stream);
  EXPECT_FALSE(stream.OnAcknowledged(3));
  EXPECT_TRUE(stream.OnAcknowledged(2));
  EXPECT_FALSE(stream.OnAcknowledged(1));
}

TEST(RawStream, BothDirectionsMustEnd) {
  RawStream stream({.to_send = 1, .to_receive = 1, .window = 1});
  SendAll(&stream);
  EXPECT_TRUE(stream.OnAcknowledged(1));
  EXPECT_FALSE(stream.done());
  stream.OnReceived();
  EXPECT_EQ(stream.TakeAcknowledgements(), 1u);
  EXPECT_TRUE(stream.done());
  EXPECT_TRUE(RawStream().done());
}

}  // namespace
}  // namespace slimps
