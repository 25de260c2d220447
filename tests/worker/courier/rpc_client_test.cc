// SPDX-License-Identifier: Apache-2.0
#include "worker/courier/rpc_client.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status_proto.h"
#include "tests/worker/courier/fake_transport.h"

namespace slimps {
namespace {

using ::testing::SizeIs;

constexpr absl::Duration kLong = absl::Seconds(30);  // only a failing test waits this long
constexpr absl::Duration kRetry = absl::Milliseconds(2);
constexpr PeerId kPeer{9};
constexpr RpcClient::Patience kMayReturn = RpcClient::Patience::kMayReturn;

wire::Header Question() {
  wire::Header question;
  question.mutable_leave()->set_from_round(3);
  return question;
}

Message AckTo(const Message& question, const absl::Status& status = absl::OkStatus()) {
  Message answer;
  answer.header.set_request_id(question.header.request_id());
  *answer.header.mutable_ack()->mutable_status() = ToStatusProto(status);
  return answer;
}

class RpcClientTest : public ::testing::Test {
 protected:
  // Answers each question at once with what `answer` returns.
  void AnswerWith(std::function<Message(const Message&)> answer) {
    transport_.set_on_send([this, answer](PeerId, const Message& question) {
      EXPECT_TRUE(client_.HandleMessage(answer(question)));
      return absl::OkStatus();
    });
  }
  absl::StatusOr<wire::Header> Call(absl::Duration timeout = kLong) {
    return client_.Call(kPeer, Question(), timeout, "leaving");
  }

  FakeTransport transport_;
  RpcClient client_{&transport_, kRetry};
};

TEST_F(RpcClientTest, TheAnswerIsReturnedAndEveryCallHasAnIdOfItsOwn) {
  AnswerWith([](const Message& question) {
    Message answer = AckTo(question);
    answer.header.set_job_id("j");
    return answer;
  });
  for (int i = 0; i < 2; ++i) {
    const auto answer = Call();
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->job_id(), "j");
  }
  const auto sent = transport_.sent();
  ASSERT_THAT(sent, SizeIs(2));
  EXPECT_EQ(sent[0].to, kPeer);
  EXPECT_EQ(sent[0].message.header.leave().from_round(), 3u);
  EXPECT_NE(sent[0].message.header.request_id(), 0u);
  EXPECT_NE(sent[0].message.header.request_id(), sent[1].message.header.request_id());
}

TEST_F(RpcClientTest, AQuestionIsRepeatedUnderItsIdUntilAnswered) {
  transport_.set_on_send([this](PeerId, const Message& question) {
    if (transport_.sent().size() == 4) client_.HandleMessage(AckTo(question));
    return absl::OkStatus();
  });
  EXPECT_TRUE(Call().ok());
  const auto sent = transport_.sent();
  ASSERT_THAT(sent, SizeIs(4));
  for (const auto& one : sent) {
    EXPECT_EQ(one.message.header.request_id(), sent[0].message.header.request_id());
  }
}

TEST_F(RpcClientTest, TheDeadlineNamesWhatAndWhatComesLaterIsNoAnswer) {
  const auto answer = Call(absl::Milliseconds(300));
  EXPECT_EQ(answer.status(), absl::DeadlineExceededError("leaving: no answer within 300ms"));
  const auto sent = transport_.sent();
  EXPECT_GE(sent.size(), 2u);
  EXPECT_FALSE(client_.HandleMessage(AckTo(sent[0].message)));
}

TEST_F(RpcClientTest, WhereAServerMayReturnTheDeadlineSaysItsLastRefusal) {
  AnswerWith([](const Message& question) {
    return AckTo(question, absl::UnavailableError("cannot write /full: No space left on device"));
  });
  const auto answer =
      client_.Exchange([] { return kPeer; }, {.header = Question(), .payloads = {}},
                       absl::Milliseconds(30), "waiting for a snapshot", kMayReturn);
  EXPECT_EQ(answer.status(), absl::DeadlineExceededError(
                                 "waiting for a snapshot: refused for 30ms, the last time: cannot "
                                 "write /full: No space left on device"));
}

TEST_F(RpcClientTest, WithoutTimeNothingIsSent) {
  EXPECT_EQ(Call(absl::ZeroDuration()).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(transport_.sent(), SizeIs(0));
}

TEST_F(RpcClientTest, ABadStatusIsTheCallsAndSaysWhat) {
  AnswerWith([](const Message& question) {
    return AckTo(question, absl::FailedPreconditionError("rounds have begun"));
  });
  EXPECT_EQ(Call().status(), absl::FailedPreconditionError("leaving: rounds have begun"));
  AnswerWith([](const Message& question) {
    Message answer;
    answer.header.set_request_id(question.header.request_id());
    *answer.header.mutable_error()->mutable_status() =
        ToStatusProto(absl::PermissionDeniedError("no worker"));
    return answer;
  });
  EXPECT_EQ(Call().status(), absl::PermissionDeniedError("leaving: no worker"));
}

TEST_F(RpcClientTest, ACodeThatNobodyKnowsIsAnErrorNevertheless) {
  AnswerWith([](const Message& question) {
    Message answer = AckTo(question);
    answer.header.mutable_ack()->mutable_status()->set_code(12345);
    return answer;
  });
  EXPECT_EQ(Call().status().code(), absl::StatusCode::kUnknown);
}

TEST_F(RpcClientTest, OfTwoAnswersTheFirstCounts) {
  transport_.set_on_send([this](PeerId, const Message& question) {
    EXPECT_TRUE(client_.HandleMessage(AckTo(question)));
    EXPECT_TRUE(client_.HandleMessage(AckTo(question, absl::InternalError("second"))));
    return absl::OkStatus();
  });
  EXPECT_TRUE(Call().ok());
}

TEST_F(RpcClientTest, AnAnswerToAnUnknownIdIsNobodys) {
  EXPECT_FALSE(client_.HandleMessage(Message())) << "nothing was asked";
  transport_.set_on_send([this](PeerId, const Message& question) {
    Message other = AckTo(question);
    other.header.set_request_id(question.header.request_id() + 1);
    EXPECT_FALSE(client_.HandleMessage(other));
    if (transport_.sent().size() == 3) client_.HandleMessage(AckTo(question));
    return absl::OkStatus();
  });
  EXPECT_TRUE(Call().ok());
  EXPECT_THAT(transport_.sent(), SizeIs(3));
}

TEST_F(RpcClientTest, WhatCannotBeSentFailsAtOnceUnlessTheQueueIsFull) {
  transport_.set_on_send(
      [](PeerId, const Message&) { return absl::InvalidArgumentError("leave: too long"); });
  EXPECT_EQ(Call().status(), absl::InvalidArgumentError("leaving: leave: too long"));
  EXPECT_THAT(transport_.sent(), SizeIs(1));

  transport_.set_on_send([this](PeerId, const Message& question) {
    if (transport_.sent().size() < 4) return absl::ResourceExhaustedError("full");
    client_.HandleMessage(AckTo(question));
    return absl::OkStatus();
  });
  EXPECT_TRUE(Call().ok());
}

TEST_F(RpcClientTest, FailAllEndsCallsThatWaitAndThoseToCome) {
  RpcClient patient(&transport_, kLong);
  std::vector<std::thread> callers;
  std::atomic<int> aborted = 0;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      const auto answer = patient.Call(kPeer, Question(), kLong, "leaving");
      if (answer.status() == absl::AbortedError("the job is down")) ++aborted;
    });
  }
  EXPECT_TRUE(transport_.AwaitSent(3));
  patient.FailAll(absl::AbortedError("the job is down"));
  patient.FailAll(absl::InternalError("a later reason"));
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(aborted, 3);
  EXPECT_EQ(patient.Call(kPeer, Question(), kLong, "leaving").status(),
            absl::AbortedError("the job is down"));
}

TEST_F(RpcClientTest, CallsOfManyThreadsGetTheirOwnAnswers) {
  constexpr int kCallers = 8;
  RpcClient patient(&transport_, kLong);
  std::vector<std::thread> callers;
  std::vector<uint64_t> got(kCallers);
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, i] {
      wire::Header question;
      question.mutable_leave()->set_from_round(static_cast<uint64_t>(i));
      const auto answer = patient.Call(kPeer, question, kLong, "leaving");
      if (answer.ok()) got[i] = answer->membership_epoch();
    });
  }
  ASSERT_TRUE(transport_.AwaitSent(kCallers));
  auto sent = transport_.sent();
  std::reverse(sent.begin(), sent.end());
  for (const auto& one : sent) {
    Message answer = AckTo(one.message);
    answer.header.set_membership_epoch(100 + one.message.header.leave().from_round());
    EXPECT_TRUE(patient.HandleMessage(answer));
  }
  for (std::thread& caller : callers) caller.join();
  for (int i = 0; i < kCallers; ++i) EXPECT_EQ(got[i], 100u + static_cast<uint64_t>(i));
}

TEST_F(RpcClientTest, AServerThatStopsIsAskedUntilItIsBackWhereverThatIs) {
  std::atomic<int> asked{0};
  transport_.set_on_send([&](PeerId to, const Message& question) {
    ++asked;
    if (to == PeerId{1}) return absl::NotFoundError("no such peer");
    const absl::Status stopping = absl::UnavailableError("the server is stopping");
    EXPECT_TRUE(
        client_.HandleMessage(AckTo(question, to == PeerId{2} ? stopping : absl::OkStatus())));
    return absl::OkStatus();
  });
  uint64_t peer = 0;
  const auto answer =
      client_.Exchange([&peer] { return PeerId{++peer}; }, {.header = Question(), .payloads = {}},
                       kLong, "leaving", kMayReturn);
  EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace slimps
