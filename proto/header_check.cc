// SPDX-License-Identifier: Apache-2.0
#include "proto/header_check.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/stubs/common.h"
#include "proto/base/status_macros.h"
#include "proto/element_count.h"

namespace slimps {
namespace {

namespace pb = google::protobuf;

constexpr size_t kLongestShown = 64;  // bytes of a text in an error

size_t MaxCount(const pb::FieldDescriptor& field, const Limits& limits) {
  if (field.full_name() == "slimps.wire.KeyInfo.shape") return limits.max_shape_dims;
  if (field.full_name() == "slimps.wire.KeyPlace.partitions") return limits.max_partitions;
  return limits.max_items;
}

size_t MaxBytes(const pb::FieldDescriptor& field, const Limits& limits) {
  if (field.full_name() == "slimps.wire.KeyInfo.name") return limits.max_key_name_bytes;
  if (field.full_name() == "slimps.wire.PullItem.rows") return limits.max_row_bytes;
  if (field.full_name() == "slimps.wire.CodecMap.policy_state") return limits.max_state_bytes;
  if (field.full_name() == "slimps.wire.Heartbeat.report") return limits.max_report_bytes;
  if (field.full_name() == "slimps.wire.Part.piece") return limits.max_part_bytes;
  return limits.max_text_bytes;
}

// Checks a string field. proto3 refuses to parse a string that is not UTF-8, so a sender that let
// one out would wait for an answer in vain.
absl::Status CheckText(const pb::FieldDescriptor& field, const std::string& text,
                       const Limits& limits) {
  const size_t limit = MaxBytes(field, limits);
  if (text.size() > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat(": has ", text.size(), " bytes, at most ", limit, " are allowed"));
  }
  // The check that the receiver's parser makes.
  if (field.type() != pb::FieldDescriptor::TYPE_STRING ||
      pb::internal::IsStructurallyValidUTF8(text)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      ": expected UTF-8, got \"", absl::CHexEscape(text.substr(0, kLongestShown)), "\""));
}

absl::Status CheckFields(const pb::Message& message, const Limits& limits);

// Checks one value of `field`. `index` is -1 for a field that is not repeated.
absl::Status CheckValue(const pb::Message& message, const pb::FieldDescriptor& field, int index,
                        const Limits& limits) {
  const pb::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_STRING: {
      std::string scratch;
      const std::string& text =
          index < 0 ? reflection.GetStringReference(message, &field, &scratch)
                    : reflection.GetRepeatedStringReference(message, &field, index, &scratch);
      return CheckText(field, text, limits);
    }
    case pb::FieldDescriptor::CPPTYPE_ENUM: {
      const int value = index < 0 ? reflection.GetEnumValue(message, &field)
                                  : reflection.GetRepeatedEnumValue(message, &field, index);
      if (field.enum_type()->FindValueByNumber(value) != nullptr) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat(": ", value, " is no value of ", field.enum_type()->name()));
    }
    case pb::FieldDescriptor::CPPTYPE_DOUBLE: {
      const double value = index < 0 ? reflection.GetDouble(message, &field)
                                     : reflection.GetRepeatedDouble(message, &field, index);
      if (std::isfinite(value)) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(": ", value, " is not finite"));
    }
    case pb::FieldDescriptor::CPPTYPE_MESSAGE:
      return CheckFields(index < 0 ? reflection.GetMessage(message, &field)
                                   : reflection.GetRepeatedMessage(message, &field, index),
                         limits);
    default:
      return absl::OkStatus();
  }
}

// Adds the field to the path that leads an error's message.
absl::Status AtField(const pb::FieldDescriptor& field, int index, const absl::Status& status) {
  std::string place = index < 0 ? field.name() : absl::StrCat(field.name(), "[", index, "]");
  const char* separator = !status.message().empty() && status.message()[0] == ':' ? "" : ".";
  return absl::Status(status.code(), absl::StrCat(place, separator, status.message()));
}

// Walks every field that is set, so a message type added later is checked without a line here.
// Errors read ": why" and get the path to the field prepended on the way up.
absl::Status CheckFields(const pb::Message& message, const Limits& limits) {
  std::vector<const pb::FieldDescriptor*> fields;
  const pb::Reflection& reflection = *message.GetReflection();
  reflection.ListFields(message, &fields);
  for (const pb::FieldDescriptor* field : fields) {
    if (!field->is_repeated()) {
      absl::Status status = CheckValue(message, *field, -1, limits);
      if (!status.ok()) return AtField(*field, -1, status);
      continue;
    }
    const size_t count = static_cast<size_t>(reflection.FieldSize(message, field));
    const size_t limit = MaxCount(*field, limits);
    if (count > limit) {
      return AtField(*field, -1,
                     absl::InvalidArgumentError(absl::StrCat(": has ", count, " entries, at most ",
                                                             limit, " are allowed")));
    }
    for (size_t i = 0; i < count; ++i) {
      absl::Status status = CheckValue(message, *field, static_cast<int>(i), limits);
      if (!status.ok()) return AtField(*field, static_cast<int>(i), status);
    }
  }
  return absl::OkStatus();
}

// Checks the messages of training without reflection, which would cost more than all other work on
// a small message. True means that CheckFields would refuse nothing. False means that CheckFields
// must decide.
class PlainLook final {
 public:
  explicit PlainLook(const Limits& limits) : limits_(limits) {}

  bool IsPlain(const wire::Header& header) const {
    if (!IsPlainText(header.job_id()) || !wire::Role_IsValid(header.sender().role())) return false;
    switch (header.body_case()) {
      case wire::Header::kPush:
        return ArePlain(header.push().items());
      case wire::Header::kPushReply:
        return ArePlain(header.push_reply().items());
      case wire::Header::kPull:
        return ArePlain(header.pull().items());
      case wire::Header::kPullReply:
        return ArePlain(header.pull_reply().items()) && ArePlain(header.pull_reply().pushed());
      case wire::Header::kPushPull:
        return ArePlain(header.push_pull().push()) && ArePlain(header.push_pull().pull());
      default:
        return false;
    }
  }

 private:
  template <typename Items>
  bool ArePlain(const Items& items) const {
    return static_cast<size_t>(items.size()) <= limits_.max_items &&
           std::all_of(items.begin(), items.end(),
                       [this](const auto& item) { return IsPlainItem(item); });
  }
  bool IsPlainItem(const wire::PushItem& item) const {
    return wire::Format_IsValid(item.format()) && IsPlainText(item.change_codec()) &&
           item.unmasked_size() == 0 && std::isfinite(item.hyper().learning_rate()) &&
           std::isfinite(item.hyper().weight_decay()) && std::isfinite(item.hyper().momentum()) &&
           std::isfinite(item.gradient_scale());
  }
  bool IsPlainItem(const wire::PullItem& item) const {
    return item.rows().size() <= limits_.max_row_bytes;
  }
  bool IsPlainItem(const wire::ItemStatus& item) const {
    return IsPlainText(item.status().message()) && !item.has_standing();
  }
  bool IsPlainItem(const wire::PullReplyItem& item) const {
    return wire::Format_IsValid(item.format()) && IsPlainText(item.status().message()) &&
           !item.has_state() && !item.has_momentum() && std::isfinite(item.norm2()) &&
           static_cast<size_t>(item.contributors_size()) <= limits_.max_items;
  }
  // ASCII is always valid UTF-8. Longer texts are left to CheckFields.
  bool IsPlainText(const std::string& text) const {
    return text.size() <= std::min(limits_.max_text_bytes, kLongestShown) &&
           std::none_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; });
  }

  const Limits& limits_;
};

absl::Status ItemError(const wire::ItemId& id, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("key ", absl::Hex(id.key(), absl::kZeroPad16),
                                                 " partition ", id.partition(), ": ", why));
}

absl::Status CheckId(const wire::ItemId& id, uint64_t elements, const Limits& limits) {
  if (id.partition() >= limits.max_partitions) {
    return ItemError(id, absl::StrCat("a key has at most ", limits.max_partitions, " partitions"));
  }
  if (elements > limits.max_elements) {
    return ItemError(id, absl::StrCat("declares ", elements, " elements, at most ",
                                      limits.max_elements, " are allowed"));
  }
  return absl::OkStatus();
}

absl::Status CheckKeyInfo(const wire::KeyInfo& info, const Limits& limits) {
  if (ElementCount(info, limits.max_elements).has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("key ", info.name(), ": expected a shape of at most ", limits.max_elements,
                   " elements, got [", absl::StrJoin(info.shape(), ", "), "]"));
}

// Checks an InitItem, PushItem or PullReplyItem. The decoders check the payloads of LEVELS, SPARSE,
// LOW_RANK, ROWS and ROTATED (compress/format).
template <typename Item>
absl::Status CheckPayloadItem(const Item& item, const Limits& limits) {
  SLIMPS_RETURN_IF_ERROR(CheckId(item.id(), item.elements(), limits));
  if (item.payload_bytes() > limits.max_message_bytes) {
    return ItemError(item.id(),
                     absl::StrCat("declares a payload of ", item.payload_bytes(),
                                  " bytes, over the message limit of ", limits.max_message_bytes));
  }
  uint64_t expected = 0;
  switch (item.format()) {
    case wire::ABSENT:
      break;
    case wire::RAW_F32:
      expected = item.elements() * 4;  // elements met its limit above: no overflow
      break;
    case wire::RAW_F16:
    case wire::RAW_BF16:
      expected = item.elements() * 2;
      break;
    case wire::LEVELS:
    case wire::SPARSE:
    case wire::LOW_RANK:
    case wire::ROWS:
    case wire::ROTATED:
      return absl::OkStatus();
    default:
      return ItemError(item.id(),
                       absl::StrCat("format ", static_cast<int>(item.format()), " is unknown"));
  }
  if (item.payload_bytes() == expected) return absl::OkStatus();
  return ItemError(
      item.id(), absl::StrCat("format ", wire::Format_Name(item.format()), " of ", item.elements(),
                              " elements takes ", expected, " payload bytes, the item declares ",
                              item.payload_bytes()));
}

absl::Status CheckInit(const wire::Init& init, const Limits& limits) {
  for (const wire::InitItem& item : init.items()) {
    SLIMPS_RETURN_IF_ERROR(CheckPayloadItem(item, limits));
    SLIMPS_RETURN_IF_ERROR(CheckKeyInfo(item.info(), limits));
    if (item.partitions() > limits.max_partitions || item.offset() > limits.max_elements) {
      return ItemError(item.id(), absl::StrCat("offset ", item.offset(), " or ", item.partitions(),
                                               " partitions over the limit"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPushItems(const pb::RepeatedPtrField<wire::PushItem>& items,
                            const Limits& limits) {
  for (const wire::PushItem& item : items) {
    SLIMPS_RETURN_IF_ERROR(CheckPayloadItem(item, limits));
    if (item.has_gradient_scale() && item.format() != wire::ABSENT) {
      return ItemError(item.id(), "has a gradient_scale and a payload, expected one of the two");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPullItems(const pb::RepeatedPtrField<wire::PullItem>& items,
                            const Limits& limits) {
  for (const wire::PullItem& item : items) {
    SLIMPS_RETURN_IF_ERROR(CheckId(item.id(), item.elements(), limits));
    if (item.norm() && item.state_tensor() > 0) {
      return ItemError(item.id(), "asks for a norm and for state, expected one of the two");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPart(const wire::Part& part, const Limits& limits) {
  const size_t most = kWholeLimits.max_header_bytes / limits.max_part_bytes;
  if (part.number() < part.parts() && part.parts() <= most && !part.piece().empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("part ", part.number(), " of ", part.parts(), " with ", part.piece().size(),
                   " bytes: expected a piece of at least one byte, and at most ", most, " parts"));
}

absl::Status CheckRelay(const wire::Relay& relay, const Limits& limits) {
  if (relay.payload_bytes() <= limits.max_message_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "relay of chunk ", relay.chunk(), ": declares a payload of ", relay.payload_bytes(),
      " bytes, over the message limit of ", limits.max_message_bytes));
}

absl::Status CheckBody(const wire::Header& header, const Limits& limits) {
  switch (header.body_case()) {
    case wire::Header::BODY_NOT_SET:
      return absl::InvalidArgumentError("the header has no body");
    case wire::Header::kInit:
      return CheckInit(header.init(), limits);
    case wire::Header::kPush:
      return CheckPushItems(header.push().items(), limits);
    case wire::Header::kPull:
      return CheckPullItems(header.pull().items(), limits);
    case wire::Header::kPullReply:
      for (const wire::PullReplyItem& item : header.pull_reply().items()) {
        SLIMPS_RETURN_IF_ERROR(CheckPayloadItem(item, limits));
      }
      return absl::OkStatus();
    case wire::Header::kPushPull:
      SLIMPS_RETURN_IF_ERROR(CheckPushItems(header.push_pull().push(), limits));
      return CheckPullItems(header.push_pull().pull(), limits);
    case wire::Header::kDeclareKeys:
      for (const wire::KeyInfo& info : header.declare_keys().keys()) {
        SLIMPS_RETURN_IF_ERROR(CheckKeyInfo(info, limits));
      }
      return absl::OkStatus();
    case wire::Header::kPart:
      return CheckPart(header.part(), limits);
    case wire::Header::kRelay:
      return CheckRelay(header.relay(), limits);
    default:
      return absl::OkStatus();
  }
}

template <typename Items>
void AppendClaims(const Items& items, std::vector<PayloadClaim>* claims) {
  for (const auto& item : items) {
    if (item.payload_bytes() == 0) continue;
    claims->push_back({item.id().key(), item.id().partition(), item.payload_bytes(),
                       item.payload_hash(), item.format()});
  }
}

}  // namespace

absl::Status CheckHeader(const wire::Header& header, const Limits& limits) {
  if (header.protocol_version() != kProtocolVersion) {
    return absl::InvalidArgumentError(absl::StrCat("protocol version ", header.protocol_version(),
                                                   " in the header, expected ", kProtocolVersion));
  }
  if (!PlainLook(limits).IsPlain(header)) SLIMPS_RETURN_IF_ERROR(CheckFields(header, limits));
  return CheckBody(header, limits);
}

std::vector<PayloadClaim> PayloadClaims(const wire::Header& header) {
  std::vector<PayloadClaim> claims;
  switch (header.body_case()) {
    case wire::Header::kInit:
      AppendClaims(header.init().items(), &claims);
      break;
    case wire::Header::kPush:
      AppendClaims(header.push().items(), &claims);
      break;
    case wire::Header::kPullReply:
      AppendClaims(header.pull_reply().items(), &claims);
      break;
    case wire::Header::kPushPull:
      AppendClaims(header.push_pull().push(), &claims);
      break;
    case wire::Header::kRelay:
      if (header.relay().payload_bytes() > 0) {
        claims.push_back(
            {.bytes = header.relay().payload_bytes(), .hash = header.relay().payload_hash()});
      }
      break;
    default:
      break;
  }
  return claims;
}

std::string VerbName(const wire::Header& header) {
  const pb::FieldDescriptor* field =
      header.GetDescriptor()->FindFieldByNumber(static_cast<int>(header.body_case()));
  return field == nullptr ? "no body" : field->name();
}

}  // namespace slimps
