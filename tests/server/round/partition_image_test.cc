// SPDX-License-Identifier: Apache-2.0
// A partition that was saved and restored at any moment goes on, bit for bit, as the one that was
// not: each answer, each verdict, each error. A member that an image lacks shows in some script.
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/round/partition.h"
#include "tests/server/round/partition_script.h"

namespace slimps {
namespace {

// Returns a subject without a partition if nothing can be restored.
Subject Restored(const Scenario& scenario, const PartitionImage& image) {
  Subject subject;
  subject.waiting = std::make_shared<WaitingBytes>(scenario.most_waiting);
  PartitionImage read;  // as from a file: nothing is shared
  EXPECT_TRUE(read.fields.ParseFromString(image.fields.SerializeAsString()));
  for (const Payload& part : image.parts) read.Add(Payload::Copy(part.bytes()));
  auto partition = Partition::Restore(read, subject.waiting, &subject.codecs);
  if (partition.ok()) subject.partition = *std::move(partition);
  return subject;
}

// What happened to a partition, what it said and answered, and its image after each event.
struct History {
  std::vector<Event> events;
  std::vector<std::string> said, answers;
  std::vector<PartitionImage> images;

  explicit History(const Scenario& scenario) : events(EventsOf(scenario)) {
    Subject original = MakeSubject(scenario);
    Note("", original);
    for (const Event& event : events) Note(event(original), original);
  }
  void Note(std::string words, Subject& subject) {
    said.push_back(std::move(words));
    answers.push_back(Answers(subject));
    images.push_back(subject.partition->Save());
  }

  // Returns how many events after event `at` a partition that is restored from `image` first
  // differs; nullopt: never. 0: it differs at once, or cannot be restored.
  std::optional<size_t> FirstDifference(const Scenario& scenario, const PartitionImage& image,
                                        size_t at) const {
    Subject restored = Restored(scenario, image);
    if (restored.partition == nullptr || Answers(restored) != answers[at]) return 0;
    for (size_t next = at + 1; next <= events.size(); ++next) {
      if (events[next - 1](restored) != said[next] || Answers(restored) != answers[next]) {
        return next - at;
      }
    }
    return std::nullopt;
  }
};

class PartitionImageTest : public ::testing::TestWithParam<Scenario> {};

TEST_P(PartitionImageTest, WhatIsRestoredAtAnyMomentGoesOnBitForBit) {
  const Scenario& scenario = GetParam();
  const History history(scenario);
  // The images are read last: the partition has gone on since they were made.
  for (size_t at = 0; at < history.images.size(); ++at) {
    EXPECT_EQ(history.FirstDifference(scenario, history.images[at], at), std::nullopt)
        << "restored after event " << at;
  }
}

std::vector<Scenario> Scenarios() {
  using Kind = wire::OptimizerSpec;
  using Push = Scenario::Push;
  std::vector<Scenario> all = {
      {.name = "sum"},
      {.name = "sgd", .optimizer = Rule(Kind::SGD)},
      {.name = "adam", .optimizer = Rule(Kind::ADAM)},
      {.name = "adamw", .optimizer = Rule(Kind::ADAMW), .push = Push::kSigns},
      {.name = "onebit_adam", .optimizer = Rule(Kind::ONEBIT_ADAM, 2), .codecs = {"1bit"}},
      {.name = "onebit_adam_raw", .optimizer = Rule(Kind::ONEBIT_ADAM, 4)},
      {.name = "majority",
       .optimizer = Rule(Kind::SGD),
       .push = Push::kSigns,
       .combine = Combine::kMajority},
      {.name = "lanes", .push = Push::kLanes},
      {.name = "lanes_folded", .push = Push::kLanes, .most_waiting = 8 * kElements, .workers = 12},
      {.name = "rows", .optimizer = Rule(Kind::ADAM), .push = Push::kRows},
      {.name = "rows_folded",
       .optimizer = Rule(Kind::SGD),
       .push = Push::kRows,
       .most_waiting = 4 * kElements},
      {.name = "folded", .optimizer = Rule(Kind::SGD), .most_waiting = 9 * kElements},
      {.name = "clipped", .optimizer = Rule(Kind::SGD), .clipped = true},
      {.name = "clipped_folded",
       .optimizer = Rule(Kind::ADAM),
       .codecs = {"1bit"},
       .most_waiting = 9 * kElements,
       .clipped = true},
      {.name = "clipped_rows", .optimizer = Rule(Kind::ADAM), .push = Push::kRows, .clipped = true},
      {.name = "half", .optimizer = Rule(Kind::SGD), .dtype = wire::FLOAT16},
      {.name = "half_then_change",
       .optimizer = Rule(Kind::SGD),
       .codecs = {"1bit", "", "fp16"},
       .dtype = wire::BFLOAT16},
      {.name = "async", .optimizer = Rule(Kind::ADAM), .mode = wire::DIST_ASYNC},
      {.name = "ssp", .optimizer = Rule(Kind::SGD), .mode = wire::DIST_SSP},
      {.name = "auxiliary", .push = Push::kFirstRows, .auxiliary = Combine::kSum},
      {.name = "auxiliary_maximum", .auxiliary = Combine::kMaximum},
  };
  for (const char* const codec : {"1bit", "qsgd", "topk", "fp16", "drive"}) {
    all.push_back(
        {.name = absl::StrCat("change_", codec), .optimizer = Rule(Kind::SGD), .codecs = {codec}});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, PartitionImageTest, ::testing::ValuesIn(Scenarios()),
                         [](const auto& info) { return info.param.name; });

// Removes a field wherever it is in the message.
void RemoveField(const google::protobuf::FieldDescriptor* field,
                 google::protobuf::Message* message) {
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  if (message->GetDescriptor() == field->containing_type()) reflection.ClearField(message, field);
  std::vector<const google::protobuf::FieldDescriptor*> present;
  reflection.ListFields(*message, &present);
  for (const auto* one : present) {
    if (one->message_type() == nullptr) continue;
    const int count = one->is_repeated() ? reflection.FieldSize(*message, one) : 1;
    for (int i = 0; i < count; ++i) {
      RemoveField(field, one->is_repeated() ? reflection.MutableRepeatedMessage(message, one, i)
                                            : reflection.MutableMessage(message, one));
    }
  }
}

// Adds the fields of `type`, and of the images in it.
void ListFields(const google::protobuf::Descriptor* type,
                std::set<const google::protobuf::FieldDescriptor*>* fields) {
  for (int i = 0; i < type->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = type->field(i);
    fields->insert(field);
    const google::protobuf::Descriptor* const inner = field->message_type();
    if (inner != nullptr && inner->file() == type->file()) ListFields(inner, fields);
  }
}

TEST(PartitionImage, EachFieldMatters) {
  std::set<const google::protobuf::FieldDescriptor*> untold;
  ListFields(saved::Partition::descriptor(), &untold);
  for (const Scenario& scenario : Scenarios()) {
    const History history(scenario);
    for (size_t at = 1; at < history.images.size(); at += 3) {
      std::erase_if(untold, [&](const google::protobuf::FieldDescriptor* field) {
        PartitionImage image = history.images[at];
        RemoveField(field, &image.fields);
        if (image.fields.SerializeAsString() == history.images[at].fields.SerializeAsString()) {
          return false;
        }
        return history.FirstDifference(scenario, image, at).has_value();
      });
    }
  }
  std::vector<std::string> names;
  for (const auto* field : untold) names.push_back(field->full_name());
  // The shard has the one, the file the other.
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("slimps.saved.Partition.priority",
                                                     "slimps.saved.Partition.parts"));
}

}  // namespace
}  // namespace slimps
