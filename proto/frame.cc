// SPDX-License-Identifier: Apache-2.0
#include "proto/frame.h"

#include <bit>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "proto/base/status_macros.h"
#include "proto/header_body.h"
#include "proto/header_check.h"

namespace slimps {
namespace {

static_assert(std::endian::native == std::endian::little,
              "raw payloads travel as they lie in memory, which the wire has little-endian");

constexpr char kMagic[4] = {'S', 'L', 'P', 'S'};

void AppendU16(uint16_t value, std::string* out) {
  out->push_back(static_cast<char>(value & 0xff));
  out->push_back(static_cast<char>(value >> 8));
}

uint16_t ReadU16(std::span<const std::byte> bytes, size_t at) {
  return static_cast<uint16_t>(std::to_integer<unsigned>(bytes[at]) |
                               std::to_integer<unsigned>(bytes[at + 1]) << 8);
}

absl::Status CheckSizes(size_t header_bytes, size_t payload_frames, const Limits& limits) {
  if (header_bytes > limits.max_header_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("header of ", header_bytes, " bytes, at most ",
                                                   limits.max_header_bytes, " are allowed"));
  }
  if (payload_frames > limits.max_payload_frames) {
    return absl::InvalidArgumentError(absl::StrCat(payload_frames, " payload frames, at most ",
                                                   limits.max_payload_frames, " are allowed"));
  }
  return absl::OkStatus();
}

// Checks the sizes of payloads against claims and limits. `sizes(i)` is the size of payload i.
template <typename Sizes>
absl::Status CheckPayloadSizes(const wire::Header& header, size_t header_bytes,
                               const std::vector<PayloadClaim>& claims, size_t frames,
                               const Sizes& sizes, const Limits& limits) {
  if (claims.size() != frames) {
    return absl::InvalidArgumentError(absl::StrCat(VerbName(header), " announces ", claims.size(),
                                                   " payload frames, got ", frames));
  }
  size_t room = limits.max_message_bytes - std::min(header_bytes, limits.max_message_bytes);
  for (size_t i = 0; i < frames; ++i) {
    const size_t size = sizes(i);
    if (size != claims[i].bytes) {
      return absl::DataLossError(
          absl::StrCat("payload of key ", absl::Hex(claims[i].key, absl::kZeroPad16), " partition ",
                       claims[i].partition, ": expected ", claims[i].bytes, " bytes, got ", size));
    }
    if (size > room) {
      return absl::InvalidArgumentError(
          absl::StrCat("message over the limit of ", limits.max_message_bytes, " bytes at payload ",
                       i, " of key ", absl::Hex(claims[i].key, absl::kZeroPad16)));
    }
    room -= size;
  }
  return absl::OkStatus();
}

absl::Status NoHeader(std::span<const std::byte> bytes) {
  return absl::InvalidArgumentError(
      absl::StrCat("the header's ", bytes.size(), " bytes are no valid wire::Header"));
}

// Returns the field number of the body that `bytes` hold; 0 if they hold none. Refuses two bodies:
// only one is given beforehand, so the parser would allocate the other (proto/header_body.h).
absl::StatusOr<int> FindBody(std::span<const std::byte> bytes) {
  using google::protobuf::internal::WireFormatLite;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  int body = 0;
  while (const uint32_t tag = in.ReadTag()) {
    const int field = WireFormatLite::GetTagFieldNumber(tag);
    if (!WireFormatLite::SkipField(&in, tag)) return NoHeader(bytes);
    // A field of another wire type is unknown to the parser, so it gives the header no body.
    const bool is_message =
        WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    if (!is_message || !IsBody(field) || field == body) continue;
    if (body != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the header holds two bodies, ", body, " and ", field));
    }
    body = field;
  }
  return body;
}

// Parses a header. Memory may run out here, so the body is given before the parser asks for it
// (proto/header_body.h).
absl::StatusOr<wire::Header> ParseHeader(std::span<const std::byte> bytes) {
  SLIMPS_ASSIGN_OR_RETURN(const int body, FindBody(bytes));
  wire::Header header;
  GiveBody(static_cast<wire::Header::BodyCase>(body), &header);
  const int size = static_cast<int>(bytes.size());
  google::protobuf::io::ArrayInputStream in(bytes.data(), size);
  // Merges, because parsing would first clear the header and its body.
  if (!header.MergeFromBoundedZeroCopyStream(&in, size)) return NoHeader(bytes);
  return header;
}

absl::StatusOr<wire::Header> ParseHeaderPart(std::span<const std::byte> part) {
  if (part.size() < kPreludeBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("header part of ", part.size(), " bytes, a prelude takes ", kPreludeBytes));
  }
  if (std::memcmp(part.data(), kMagic, sizeof(kMagic)) != 0) {
    return absl::InvalidArgumentError("no slimps frame: it does not begin with SLPS");
  }
  const uint16_t version = ReadU16(part, 4);
  if (version != kProtocolVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("protocol version ", version, ", expected ", kProtocolVersion));
  }
  const uint16_t verb = ReadU16(part, 6);
  SLIMPS_ASSIGN_OR_RETURN(wire::Header header, ParseHeader(part.subspan(kPreludeBytes)));
  if (verb != static_cast<uint16_t>(header.body_case())) {
    return absl::InvalidArgumentError(absl::StrCat("the prelude says verb ", verb,
                                                   ", the header holds ", VerbName(header), " (",
                                                   static_cast<int>(header.body_case()), ")"));
  }
  return header;
}

absl::Status CheckHash(const PayloadClaim& claim, std::span<const std::byte> payload) {
  if (claim.hash == 0) return absl::OkStatus();
  const uint64_t hash = HashBytes(payload);
  if (hash == claim.hash) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("payload of key ", absl::Hex(claim.key, absl::kZeroPad16),
                                          " partition ", claim.partition, ": expected hash ",
                                          absl::Hex(claim.hash, absl::kZeroPad16), ", got ",
                                          absl::Hex(hash, absl::kZeroPad16)));
}

}  // namespace

absl::StatusOr<Frame> BuildFrame(Message message, const Limits& limits) {
  message.header.set_protocol_version(kProtocolVersion);
  SLIMPS_RETURN_IF_ERROR(CheckHeader(message.header, limits));
  const size_t header_bytes = kPreludeBytes + message.header.ByteSizeLong();
  SLIMPS_RETURN_IF_ERROR(CheckSizes(header_bytes, message.payloads.size(), limits));
  SLIMPS_RETURN_IF_ERROR(CheckPayloadSizes(
      message.header, header_bytes, PayloadClaims(message.header), message.payloads.size(),
      [&](size_t i) { return message.payloads[i].size(); }, limits));

  auto head = std::make_shared<std::string>(kMagic, sizeof(kMagic));
  head->reserve(header_bytes);
  AppendU16(kProtocolVersion, head.get());
  AppendU16(static_cast<uint16_t>(message.header.body_case()), head.get());
  {
    // Deterministic, so that golden files compare bytes.
    google::protobuf::io::StringOutputStream stream(head.get());
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    if (!message.header.SerializeToCodedStream(&coded)) {
      return absl::InternalError("the header could not be serialised");
    }
  }
  Frame frame;
  frame.reserve(1 + message.payloads.size());
  const auto bytes = std::as_bytes(std::span<const char>(head->data(), head->size()));
  frame.emplace_back(std::move(head), bytes);
  for (Payload& payload : message.payloads) frame.push_back(std::move(payload));
  return frame;
}

absl::StatusOr<UnhashedFrame> ParseUnhashed(std::span<const std::span<const std::byte>> parts,
                                            const Limits& limits) {
  if (parts.empty()) return absl::InvalidArgumentError("a frame without a header part");
  const std::span<const std::span<const std::byte>> payloads = parts.subspan(1);
  SLIMPS_RETURN_IF_ERROR(CheckSizes(parts[0].size(), payloads.size(), limits));
  SLIMPS_ASSIGN_OR_RETURN(wire::Header header, ParseHeaderPart(parts[0]));
  SLIMPS_RETURN_IF_ERROR(CheckHeader(header, limits));
  std::vector<PayloadClaim> claims = PayloadClaims(header);
  SLIMPS_RETURN_IF_ERROR(CheckPayloadSizes(
      header, parts[0].size(), claims, payloads.size(),
      [&](size_t i) { return payloads[i].size(); }, limits));
  return UnhashedFrame{std::move(header), std::move(claims)};
}

absl::Status CheckHashes(std::span<const PayloadClaim> claims, std::span<const Payload> payloads) {
  for (size_t i = 0; i < payloads.size(); ++i) {
    SLIMPS_RETURN_IF_ERROR(CheckHash(claims[i], payloads[i].bytes()));
  }
  return absl::OkStatus();
}

absl::StatusOr<wire::Header> ParseFrame(std::span<const std::span<const std::byte>> parts,
                                        const Limits& limits) {
  SLIMPS_ASSIGN_OR_RETURN(UnhashedFrame frame, ParseUnhashed(parts, limits));
  for (size_t i = 1; i < parts.size(); ++i) {
    SLIMPS_RETURN_IF_ERROR(CheckHash(frame.claims[i - 1], parts[i]));
  }
  return std::move(frame.header);
}

}  // namespace slimps
