// SPDX-License-Identifier: Apache-2.0
#include "proto/net/shared/sharing_wire.h"

#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");

constexpr char kMagic[4] = {'S', 'L', 'S', 'M'};
constexpr uint16_t kVersion = 1;
constexpr size_t kPrefixBytes = 16;
constexpr size_t kOfferBytes = 16;
constexpr size_t kReferenceBytes = 40;
constexpr size_t kMaxReasonBytes = 1024;
constexpr uint64_t kMaxPid = 1 << 30;  // the kernel's own limit is 2^22

template <typename Number>
void Append(Number number, std::string* out) {
  char bytes[sizeof(number)];
  std::memcpy(bytes, &number, sizeof(number));
  out->append(bytes, sizeof(bytes));
}

// Reads numbers one after the other.
// REQUIRES: the bytes hold all numbers that are read.
class Reader final {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename Number>
  Number Next() {
    Number number;
    std::memcpy(&number, bytes_.data(), sizeof(number));
    bytes_ = bytes_.subspan(sizeof(number));
    return number;
  }

 private:
  std::span<const std::byte> bytes_;
};

absl::Status Malformed(const char* kind, size_t bytes, const std::string& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("sharing part ", kind, " with ", bytes, " bytes of body, expected ", expected));
}

// Returns how many entries of `entry_bytes` the body holds.
// InvalidArgument: it holds none, more than `most`, or a part of one.
absl::StatusOr<size_t> CountEntries(const char* kind, std::span<const std::byte> body,
                                    size_t entry_bytes, size_t most) {
  const size_t count = body.size() / entry_bytes;
  if (body.size() % entry_bytes != 0 || count == 0 || count > most) {
    return Malformed(kind, body.size(), absl::StrCat("1 to ", most, " times ", entry_bytes));
  }
  return count;
}

absl::Status ParseOffer(std::span<const std::byte> body, SharingPart* part) {
  if (body.size() != kOfferBytes) return Malformed("OFFER", body.size(), "16");
  Reader reader(body);
  part->segment.pid = part->pid;
  part->segment.id = reader.Next<uint64_t>();
  part->segment.fd = reader.Next<uint32_t>();
  return absl::OkStatus();
}

absl::Status ParseReturn(std::span<const std::byte> body, SharingPart* part) {
  SLIMPS_ASSIGN_OR_RETURN(const size_t count,
                          CountEntries("RETURN", body, sizeof(uint64_t), kMaxLeasesPerReturn));
  Reader reader(body);
  for (size_t i = 0; i < count; ++i) part->leases.push_back(reader.Next<uint64_t>());
  return absl::OkStatus();
}

absl::Status ParseReferences(std::span<const std::byte> body, const Limits& limits,
                             SharingPart* part) {
  SLIMPS_ASSIGN_OR_RETURN(const size_t count, CountEntries("REFERENCES", body, kReferenceBytes,
                                                           limits.max_payload_frames));
  Reader reader(body);
  for (size_t i = 0; i < count; ++i) {
    PayloadReference reference;
    reference.payload = reader.Next<uint32_t>();
    reference.segment.pid = part->pid;
    reference.segment.fd = reader.Next<uint32_t>();
    reference.segment.id = reader.Next<uint64_t>();
    reference.offset = reader.Next<uint64_t>();
    reference.bytes = reader.Next<uint64_t>();
    reference.lease = reader.Next<uint64_t>();
    const bool rises =
        part->references.empty() || reference.payload > part->references.back().payload;
    if (!rises || reference.payload >= limits.max_payload_frames) {
      return absl::InvalidArgumentError(
          absl::StrCat("reference ", i, " stands for payload ", reference.payload,
                       ", expected payloads in rising order, under ", limits.max_payload_frames));
    }
    part->references.push_back(reference);
  }
  return absl::OkStatus();
}

}  // namespace

bool IsSharingPart(std::span<const std::byte> part) {
  return part.size() >= sizeof(kMagic) && std::memcmp(part.data(), kMagic, sizeof(kMagic)) == 0;
}

Payload BuildSharingPart(const SharingPart& part) {
  auto text = std::make_shared<std::string>(kMagic, sizeof(kMagic));
  Append(kVersion, text.get());
  Append(static_cast<uint16_t>(part.kind), text.get());
  Append(part.pid, text.get());
  switch (part.kind) {
    case SharingKind::kOffer:
      Append(part.segment.id, text.get());
      Append(part.segment.fd, text.get());
      Append(uint32_t{0}, text.get());
      break;
    case SharingKind::kAccept:
      break;
    case SharingKind::kRefuse:
      text->append(part.reason, 0, kMaxReasonBytes);
      break;
    case SharingKind::kReturn:
      for (const uint64_t lease : part.leases) Append(lease, text.get());
      break;
    case SharingKind::kReferences:
      for (const PayloadReference& reference : part.references) {
        Append(reference.payload, text.get());
        Append(reference.segment.fd, text.get());
        Append(reference.segment.id, text.get());
        Append(reference.offset, text.get());
        Append(reference.bytes, text.get());
        Append(reference.lease, text.get());
      }
      break;
  }
  const auto bytes = std::as_bytes(std::span<const char>(text->data(), text->size()));
  return Payload(std::move(text), bytes);
}

absl::StatusOr<SharingPart> ParseSharingPart(std::span<const std::byte> bytes,
                                             const Limits& limits) {
  if (!IsSharingPart(bytes) || bytes.size() < kPrefixBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("no sharing part: ", bytes.size(), " bytes, its prefix takes ", kPrefixBytes));
  }
  Reader reader(bytes.subspan(sizeof(kMagic)));
  const auto version = reader.Next<uint16_t>();
  const auto kind = reader.Next<uint16_t>();
  SharingPart part;
  part.kind = static_cast<SharingKind>(kind);
  part.pid = reader.Next<uint64_t>();
  if (version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("sharing part of version ", version, ", expected ", kVersion));
  }
  if (part.pid == 0 || part.pid > kMaxPid) {
    return absl::InvalidArgumentError(
        absl::StrCat("sharing part of process ", part.pid, ", expected 1 to ", kMaxPid));
  }
  const std::span<const std::byte> body = bytes.subspan(kPrefixBytes);
  absl::Status parsed;
  switch (part.kind) {
    case SharingKind::kOffer:
      parsed = ParseOffer(body, &part);
      break;
    case SharingKind::kAccept:
      if (!body.empty()) parsed = Malformed("ACCEPT", body.size(), "none");
      break;
    case SharingKind::kRefuse:
      if (body.size() > kMaxReasonBytes) return Malformed("REFUSE", body.size(), "at most 1024");
      part.reason.assign(reinterpret_cast<const char*>(body.data()), body.size());
      break;
    case SharingKind::kReturn:
      parsed = ParseReturn(body, &part);
      break;
    case SharingKind::kReferences:
      parsed = ParseReferences(body, limits, &part);
      break;
    default:
      parsed = absl::InvalidArgumentError(
          absl::StrCat("sharing part of kind ", kind, ", expected 1 to 5"));
  }
  if (!parsed.ok()) return parsed;
  return part;
}

}  // namespace slimps
