// SPDX-License-Identifier: Apache-2.0
#include "proto/header_check.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

wire::Header Versioned() {
  wire::Header header;
  header.set_protocol_version(kProtocolVersion);
  return header;
}

// Returns what is wrong with a header that `make` filled in, or "" if nothing is.
std::string Refusal(const std::function<void(wire::Header&)>& make,
                    const Limits& limits = kDefaultLimits) {
  wire::Header header = Versioned();
  make(header);
  const absl::Status status = CheckHeader(header, limits);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

constexpr char kNoText[] = "s:caf\xe9";  // Latin-1

TEST(HeaderCheck, TextThatIsNotUtf8IsNamedWhereverItStands) {
  EXPECT_EQ(Refusal([](wire::Header& header) {
              header.mutable_declare_keys()->add_keys()->set_name("s:w");
              header.mutable_declare_keys()->add_keys()->set_name(kNoText);
            }),
            "declare_keys.keys[1].name: expected UTF-8, got \"s:caf\\xe9\"");
  EXPECT_THAT(Refusal([](wire::Header& header) {
                header.mutable_init()->add_items()->mutable_info()->set_name(kNoText);
              }),
              HasSubstr("init.items[0].info.name: expected UTF-8"));
  EXPECT_THAT(Refusal([](wire::Header& header) {
                header.mutable_goodbye();
                header.set_job_id("\xff");
              }),
              HasSubstr("job_id: expected UTF-8, got \"\\xff\""));
  EXPECT_THAT(Refusal([](wire::Header& header) {
                header.mutable_register_()->add_endpoints("tcp://a:1");
                header.mutable_register_()->add_endpoints("\x80");
              }),
              HasSubstr("endpoints[1]: expected UTF-8"));
}

TEST(HeaderCheck, AnyUtf8IsAllowedAndNothingThatOnlyLooksLikeIt) {
  const auto named = [](const std::string& name) {
    return Refusal([&](wire::Header& header) { header.mutable_barrier()->set_name(name); });
  };
  for (const char* good : {"", "conv1.weight", "\u00e9\u6743\u91cd\U0001f600", "\x7f\x01"}) {
    EXPECT_EQ(named(good), "") << good;
  }
  EXPECT_EQ(named(std::string("a\0b", 3)), "");
  // A lone continuation byte, a cut character, an overlong slash, a surrogate, a code beyond
  // U+10FFFF.
  for (const char* bad : {"\x80", "\xe6\x9d", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80"}) {
    EXPECT_THAT(named(bad), HasSubstr("barrier.name: expected UTF-8"));
  }
}

TEST(HeaderCheck, ALongTextIsNotRepeatedWhole) {
  const std::string refusal = Refusal(
      [](wire::Header& header) { header.mutable_barrier()->set_name(std::string(5000, '\xff')); });
  EXPECT_LT(refusal.size(), 400u);
}

TEST(HeaderCheck, KeyNamesHaveALimitOfTheirOwn) {
  const auto key = [](size_t bytes) {
    return Refusal([bytes](wire::Header& header) {
      header.mutable_declare_keys()->add_keys()->set_name(std::string(bytes, 'x'));
    });
  };
  EXPECT_EQ(key(1024), "");
  EXPECT_EQ(key(1025), "declare_keys.keys[0].name: has 1025 bytes, at most 1024 are allowed");
  const auto barrier = [](size_t bytes) {
    return Refusal([bytes](wire::Header& header) {
      header.mutable_barrier()->set_name(std::string(bytes, 'x'));
    });
  };
  EXPECT_EQ(barrier(16384), "");
  EXPECT_THAT(barrier(16385), HasSubstr("barrier.name: has 16385 bytes, at most 16384"));
}

TEST(HeaderCheck, ListsAreBoundedEachByItsOwnLimit) {
  Limits limits;
  limits.max_items = 2;
  limits.max_partitions = 4;
  limits.max_shape_dims = 3;
  const auto partitions = [&](int count) {
    return Refusal(
        [count](wire::Header& header) {
          wire::KeyPlace* place = header.mutable_placement()->add_keys();
          for (int i = 0; i < count; ++i) place->add_partitions();
        },
        limits);
  };
  EXPECT_EQ(partitions(4), "");
  EXPECT_EQ(partitions(5), "placement.keys[0].partitions: has 5 entries, at most 4 are allowed");
  const auto shape = [&](int count) {
    return Refusal(
        [count](wire::Header& header) {
          wire::KeyInfo* info = header.mutable_declare_keys()->add_keys();
          for (int i = 0; i < count; ++i) info->add_shape(1);
        },
        limits);
  };
  EXPECT_EQ(shape(3), "");
  EXPECT_THAT(shape(4), HasSubstr("shape: has 4 entries, at most 3"));
  const auto values = [&](int count) {
    return Refusal(
        [count](wire::Header& header) {
          for (int i = 0; i < count; ++i) header.mutable_barrier()->add_values(i);
        },
        limits);
  };
  EXPECT_EQ(values(2), "");
  EXPECT_THAT(values(3), HasSubstr("barrier.values: has 3 entries, at most 2"));
}

TEST(HeaderCheck, NumbersAreFiniteInListsToo) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(Refusal([bad](wire::Header& header) {
                  header.mutable_barrier()->add_values(1);
                  header.mutable_barrier()->add_values(bad);
                }),
                AllOf(HasSubstr("barrier.values[1]: "), HasSubstr("is not finite")));
    EXPECT_THAT(Refusal([bad](wire::Header& header) {
                  header.mutable_set_optimizer()->mutable_spec()->set_learning_rate(bad);
                }),
                HasSubstr("set_optimizer.spec.learning_rate: "));
  }
}

TEST(HeaderCheck, UnknownEnumValuesAreNamed) {
  EXPECT_EQ(
      Refusal([](wire::Header& header) {
        header.mutable_declare_keys()->add_keys()->set_layer(static_cast<wire::LayerKind>(99));
      }),
      "declare_keys.keys[0].layer: 99 is no value of LayerKind");
  EXPECT_THAT(Refusal([](wire::Header& header) {
                header.mutable_goodbye();
                header.mutable_sender()->set_role(static_cast<wire::Role>(-1));
              }),
              HasSubstr("sender.role: -1 is no value of Role"));
}

TEST(HeaderCheck, ShapesAreNeitherNegativeNorTooLarge) {
  const auto shape = [](std::vector<int64_t> dims) {
    return Refusal([&](wire::Header& header) {
      wire::KeyInfo* info = header.mutable_init()->add_items()->mutable_info();
      info->set_name("s:w");
      for (const int64_t dim : dims) info->add_shape(dim);
    });
  };
  EXPECT_EQ(shape({}), "");
  EXPECT_EQ(shape({int64_t{1} << 16, int64_t{1} << 16}), "");
  EXPECT_EQ(shape({int64_t{1} << 33, 0}),
            "key s:w: expected a shape of at most 4294967296 elements, got [8589934592, 0]");
  EXPECT_EQ(shape({0, int64_t{1} << 20}), "");
  EXPECT_THAT(shape({-1}), HasSubstr("got [-1]"));
  EXPECT_THAT(shape({1 << 16, (1 << 16) + 1}), HasSubstr("got [65536, 65537]"));
}

// Fills in the fields that the items of all verbs share.
template <typename Item>
void Fill(Item* item, uint64_t elements, wire::Format format, uint64_t bytes) {
  item->mutable_id()->set_key(0xab);
  item->mutable_id()->set_partition(2);
  item->set_elements(elements);
  item->set_format(format);
  item->set_payload_bytes(bytes);
}

TEST(HeaderCheck, PayloadsAreCheckedInEveryVerbThatHasThem) {
  const std::function<void(wire::Header&, uint64_t)> verbs[] = {
      [](wire::Header& h, uint64_t bytes) {
        Fill(h.mutable_init()->add_items(), 3, wire::RAW_F32, bytes);
      },
      [](wire::Header& h, uint64_t bytes) {
        Fill(h.mutable_push()->add_items(), 3, wire::RAW_F32, bytes);
      },
      [](wire::Header& h, uint64_t bytes) {
        Fill(h.mutable_pull_reply()->add_items(), 3, wire::RAW_F32, bytes);
      },
      [](wire::Header& h, uint64_t bytes) {
        Fill(h.mutable_push_pull()->add_push(), 3, wire::RAW_F32, bytes);
      },
  };
  for (const auto& verb : verbs) {
    EXPECT_EQ(Refusal([&](wire::Header& h) { verb(h, 12); }), "");
    EXPECT_EQ(Refusal([&](wire::Header& h) { verb(h, 13); }),
              "key 00000000000000ab partition 2: format RAW_F32 of 3 elements takes 12 payload "
              "bytes, the item declares 13");
    wire::Header header = Versioned();
    verb(header, 12);
    const auto claims = PayloadClaims(header);
    ASSERT_THAT(claims, SizeIs(1)) << VerbName(header);
    EXPECT_EQ(claims[0].key, 0xabu);
    EXPECT_EQ(claims[0].partition, 2u);
    EXPECT_EQ(claims[0].bytes, 12u);
  }
}

TEST(HeaderCheck, FormatsKnowTheirSizesAndEncodedOnesTheMessagesLimit) {
  const auto push = [](wire::Format format, uint64_t bytes) {
    return Refusal([&](wire::Header& h) { Fill(h.mutable_push()->add_items(), 5, format, bytes); });
  };
  EXPECT_EQ(push(wire::RAW_F16, 10), "");
  EXPECT_EQ(push(wire::RAW_BF16, 10), "");
  EXPECT_EQ(push(wire::ABSENT, 0), "");
  EXPECT_THAT(push(wire::RAW_F16, 20), HasSubstr("RAW_F16 of 5 elements takes 10"));
  EXPECT_THAT(push(wire::ABSENT, 1), HasSubstr("takes 0 payload bytes"));
  EXPECT_EQ(push(wire::LEVELS, 77), "") << "its length is the decoder's to judge";
  EXPECT_EQ(push(wire::LOW_RANK, 77), "");
  EXPECT_EQ(push(wire::ROWS, 77), "");
  EXPECT_EQ(push(wire::ROTATED, 77), "");
  EXPECT_EQ(push(wire::SPARSE, kDefaultLimits.max_message_bytes), "");
  EXPECT_THAT(push(wire::SPARSE, kDefaultLimits.max_message_bytes + 1),
              HasSubstr("over the message limit of 67108864"));
}

TEST(HeaderCheck, AReportIsBoundedInBytesAndNeedNotBeText) {
  wire::Header header;
  header.set_protocol_version(kProtocolVersion);
  header.mutable_heartbeat()->set_report(std::string(kDefaultLimits.max_report_bytes, '\xff'));
  EXPECT_TRUE(CheckHeader(header, kDefaultLimits).ok());
  header.mutable_heartbeat()->mutable_report()->push_back('x');
  EXPECT_THAT(std::string(CheckHeader(header, kDefaultLimits).message()),
              HasSubstr("heartbeat.report: has 262145 bytes, at most 262144"));
}

TEST(HeaderCheck, RowsOfAPullAreBoundedInBytesAndNeedNotBeText) {
  wire::Header header;
  header.set_protocol_version(kProtocolVersion);
  header.mutable_pull()->add_items()->set_rows(std::string(kDefaultLimits.max_row_bytes, '\xff'));
  EXPECT_TRUE(CheckHeader(header, kDefaultLimits).ok());
  header.mutable_pull()->mutable_items(0)->mutable_rows()->push_back('x');
  EXPECT_THAT(std::string(CheckHeader(header, kDefaultLimits).message()),
              HasSubstr("pull.items[0].rows: has 262145 bytes, at most 262144"));
  EXPECT_GT(kDefaultLimits.max_row_bytes, kDefaultLimits.max_text_bytes);
  EXPECT_LT(2 * kDefaultLimits.max_row_bytes, kDefaultLimits.max_header_bytes) << "with all else";
}

TEST(HeaderCheck, WhatAPushUnmasksIsBounded) {
  wire::Header header = Versioned();
  wire::PushItem* const push = header.mutable_push()->add_items();
  for (size_t i = 0; i < kDefaultLimits.max_items; ++i) push->add_unmasked(1);
  EXPECT_TRUE(CheckHeader(header, kDefaultLimits).ok());
  push->add_unmasked(1);
  EXPECT_THAT(std::string(CheckHeader(header, kDefaultLimits).message()),
              HasSubstr("push.items[0].unmasked: has 16385 entries, at most 16384"));
}

TEST(HeaderCheck, PullsAreBoundedAloneAndBesidePushes) {
  const auto bad_partition = [](wire::PullItem* item) {
    item->mutable_id()->set_partition(static_cast<uint32_t>(kDefaultLimits.max_partitions));
  };
  const auto bad_elements = [](wire::PullItem* item) {
    item->set_elements(kDefaultLimits.max_elements + 1);
  };
  EXPECT_THAT(Refusal([&](wire::Header& h) { bad_partition(h.mutable_pull()->add_items()); }),
              HasSubstr("a key has at most 65536 partitions"));
  EXPECT_THAT(Refusal([&](wire::Header& h) { bad_elements(h.mutable_pull()->add_items()); }),
              HasSubstr("declares 4294967297 elements"));
  EXPECT_THAT(Refusal([&](wire::Header& h) { bad_partition(h.mutable_push_pull()->add_pull()); }),
              HasSubstr("a key has at most 65536 partitions"));
  EXPECT_THAT(Refusal([&](wire::Header& h) { bad_elements(h.mutable_push_pull()->add_pull()); }),
              HasSubstr("declares 4294967297 elements"));
}

TEST(HeaderCheck, AnItemOfClippingAsksOrSaysNothingElse) {
  wire::Header header = Versioned();
  wire::PushItem* const push = header.mutable_push_pull()->add_push();
  push->set_gradient_scale(0.5);
  wire::PullItem* const pull = header.mutable_push_pull()->add_pull();
  pull->set_norm(true);
  EXPECT_EQ(CheckHeader(header, kDefaultLimits), absl::OkStatus());
  pull->set_state_tensor(1);
  EXPECT_THAT(std::string(CheckHeader(header, kDefaultLimits).message()),
              HasSubstr("asks for a norm and for state"));
  Fill(push, 1, wire::RAW_F32, 4);
  EXPECT_THAT(std::string(CheckHeader(header, kDefaultLimits).message()),
              HasSubstr("has a gradient_scale and a payload"));
}

TEST(HeaderCheck, InitsSayHowManyPartitionsAndWhere) {
  const auto init = [](uint32_t partitions, uint64_t offset) {
    return Refusal([&](wire::Header& h) {
      wire::InitItem* item = h.mutable_init()->add_items();
      item->set_partitions(partitions);
      item->set_offset(offset);
    });
  };
  EXPECT_EQ(init(65536, kDefaultLimits.max_elements), "");
  EXPECT_THAT(init(65537, 0), HasSubstr("65537 partitions over the limit"));
  EXPECT_THAT(init(1, kDefaultLimits.max_elements + 1), HasSubstr("offset 4294967297"));
}

// ---- what is looked at without reflection -------------------------------

// Makes every text, list, enum and number below `message` wrong, one after the other. Calls `check`
// each time.
void SpoilEachField(google::protobuf::Message* message,
                    const std::function<void(const std::string& field)>& check) {
  using Field = google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const Field* field = message->GetDescriptor()->field(i);
    if (field->is_repeated() && field->cpp_type() == Field::CPPTYPE_UINT32) {
      for (uint32_t more = 0; more < 4; ++more) reflection.AddUInt32(message, field, more);
      check(field->full_name());  // four numbers where three are allowed
      reflection.ClearField(message, field);
    } else if (field->is_repeated() && field->cpp_type() == Field::CPPTYPE_UINT64) {
      for (uint64_t more = 0; more < 4; ++more) reflection.AddUInt64(message, field, more);
      check(field->full_name());
      reflection.ClearField(message, field);
    } else if (field->is_repeated()) {
      ASSERT_EQ(field->cpp_type(), Field::CPPTYPE_MESSAGE)
          << field->full_name() << ": say how to spoil it";
      SpoilEachField(reflection.AddMessage(message, field), check);
      for (int more = 0; more < 3; ++more) reflection.AddMessage(message, field);
      check(field->full_name());  // four items where three are allowed
      reflection.ClearField(message, field);
    } else if (field->cpp_type() == Field::CPPTYPE_MESSAGE) {
      SpoilEachField(reflection.MutableMessage(message, field), check);
    } else if (field->cpp_type() == Field::CPPTYPE_STRING) {
      for (const std::string& bad : {std::string("\xff"), std::string(300000, 'x')}) {
        if (field->type() == Field::TYPE_BYTES && bad.size() == 1) continue;
        reflection.SetString(message, field, bad);
        check(field->full_name());
      }
      reflection.ClearField(message, field);
    } else if (field->cpp_type() == Field::CPPTYPE_ENUM) {
      reflection.SetEnumValue(message, field, 99);
      check(field->full_name());
      reflection.ClearField(message, field);
    } else if (field->cpp_type() == Field::CPPTYPE_DOUBLE) {
      for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
        reflection.SetDouble(message, field, bad);
        check(field->full_name());
      }
      reflection.ClearField(message, field);
    } else if (field->cpp_type() == Field::CPPTYPE_FLOAT) {
      ADD_FAILURE() << field->full_name() << ": the quick look has to ask whether it is finite";
    }
  }
}

TEST(HeaderCheck, WhatIsLookedAtQuicklyIsRefusedAllTheSame) {
  Limits limits;
  limits.max_items = 3;
  for (const char* verb : {"push", "push_reply", "pull", "pull_reply", "push_pull"}) {
    wire::Header header = Versioned();
    const auto* field = header.GetDescriptor()->FindFieldByName(verb);
    google::protobuf::Message* body = header.GetReflection()->MutableMessage(&header, field);
    int spoilt = 0;
    SpoilEachField(body, [&](const std::string& what) {
      const absl::Status status = CheckHeader(header, limits);
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << verb << ", " << what << ": " << status;
      ++spoilt;
    });
    EXPECT_GT(spoilt, 0) << verb;
    EXPECT_EQ(CheckHeader(header, limits), absl::OkStatus()) << verb;
    header.set_job_id("\xff");
    EXPECT_THAT(std::string(CheckHeader(header, limits).message()), HasSubstr("job_id")) << verb;
    header.set_job_id("job");
    header.mutable_sender()->set_role(static_cast<wire::Role>(9));
    EXPECT_THAT(std::string(CheckHeader(header, limits).message()), HasSubstr("role")) << verb;
  }
}

TEST(HeaderCheck, ABodyIsNamedAndClaimsPayloadsOnlyWhereItemsHaveThem) {
  EXPECT_EQ(VerbName(wire::Header()), "no body");
  EXPECT_EQ(Refusal([](wire::Header&) {}), "the header has no body");
  wire::Header header = Versioned();
  Fill(header.mutable_push()->add_items(), 0, wire::ABSENT, 0);
  Fill(header.mutable_push()->add_items(), 1, wire::RAW_F32, 4);
  header.mutable_push()->mutable_items(1)->set_payload_hash(9);
  EXPECT_EQ(VerbName(header), "push");
  const auto claims = PayloadClaims(header);
  ASSERT_THAT(claims, SizeIs(1)) << "nothing for the absent one";
  EXPECT_EQ(claims[0].hash, 9u);
  header.mutable_pull()->add_items();
  EXPECT_EQ(VerbName(header), "pull");
  EXPECT_THAT(PayloadClaims(header), SizeIs(0));
}

}  // namespace
}  // namespace slimps
