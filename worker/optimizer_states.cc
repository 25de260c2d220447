#include "worker/optimizer_states.h"

#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/hash.h"
#include "proto/base/status_macros.h"
#include "proto/limits.h"

namespace slimps {
namespace {

static_assert(std::endian::native == std::endian::little, "the content is copied as it lies");

constexpr std::string_view kMagic = "SLPSOPTS";
constexpr uint32_t kVersion = 1;
constexpr uint32_t kMostTensors = 2;

template <typename T>
void Append(T value, std::string* content) {
  content->append(reinterpret_cast<const char*>(&value), sizeof value);
}

absl::Status Wrong(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("optimizer states: ", why));
}

// Takes the content apart from its begin; `rest` ends before the checksum.
class Reader final {
 public:
  explicit Reader(std::string_view rest) : rest_(rest) {}

  absl::StatusOr<std::string_view> Take(uint64_t bytes, const char* what) {
    if (bytes > rest_.size()) {
      return absl::DataLossError(absl::StrCat("optimizer states: ", what, ": expected ", bytes,
                                              " more bytes, got ", rest_.size()));
    }
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  template <typename T>
  absl::Status Read(T* value, const char* what) {
    SLIMPS_ASSIGN_OR_RETURN(const std::string_view bytes, Take(sizeof *value, what));
    std::memcpy(value, bytes.data(), sizeof *value);
    return absl::OkStatus();
  }
  size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
};

// Checked before anything inside is believed.
absl::StatusOr<std::string_view> CheckedBody(std::string_view content) {
  if (content.substr(0, kMagic.size()) != kMagic) {
    return Wrong(absl::StrCat("expected content that begins with ", std::string(kMagic), ", got ",
                              content.size(), " bytes of something else"));
  }
  uint64_t checksum = 0;
  if (content.size() < kMagic.size() + sizeof checksum) {
    return absl::DataLossError(
        absl::StrCat("optimizer states: cut short, to ", content.size(), " bytes"));
  }
  const std::string_view body = content.substr(0, content.size() - sizeof checksum);
  std::memcpy(&checksum, content.data() + body.size(), sizeof checksum);
  const uint64_t found = HashBytes(std::as_bytes(std::span(body.data(), body.size())));
  if (found != checksum) {
    return absl::DataLossError(absl::StrCat("optimizer states: damaged: expected checksum ",
                                            absl::Hex(checksum), ", got ", absl::Hex(found)));
  }
  return body.substr(kMagic.size());
}

absl::Status ReadKey(Reader& reader, uint32_t tensors, OptimizerStates* states) {
  uint32_t name_bytes = 0;
  SLIMPS_RETURN_IF_ERROR(reader.Read(&name_bytes, "a key's name"));
  SLIMPS_ASSIGN_OR_RETURN(const std::string_view name, reader.Take(name_bytes, "a key's name"));
  KeyState key;
  SLIMPS_RETURN_IF_ERROR(reader.Read(&key.elements, "a key's elements"));
  SLIMPS_RETURN_IF_ERROR(reader.Read(&key.updates, "a key's updates"));
  if (key.elements > kDefaultLimits.max_elements) {
    return Wrong(absl::StrCat("key ", std::string(name), ": expected at most ",
                              kDefaultLimits.max_elements, " elements, got ", key.elements));
  }
  for (uint32_t i = 0; i < tensors; ++i) {
    SLIMPS_ASSIGN_OR_RETURN(const std::string_view bytes,
                            reader.Take(key.elements * sizeof(float), "a key's state"));
    std::vector<float>& values = key.tensors.emplace_back(key.elements);
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  if (!states->keys.emplace(name, std::move(key)).second) {
    return Wrong(absl::StrCat("key ", std::string(name), " comes twice"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string BuildOptimizerStates(const OptimizerStates& states) {
  std::string content(kMagic);
  Append(kVersion, &content);
  Append(static_cast<uint32_t>(states.kind), &content);
  Append(states.tensors, &content);
  Append(static_cast<uint32_t>(states.keys.size()), &content);
  for (const auto& [name, key] : states.keys) {
    Append(static_cast<uint32_t>(name.size()), &content);
    content += name;
    Append(key.elements, &content);
    Append(key.updates, &content);
    for (const std::vector<float>& tensor : key.tensors) {
      content.append(reinterpret_cast<const char*>(tensor.data()), tensor.size() * sizeof(float));
    }
  }
  Append(HashBytes(std::as_bytes(std::span<const char>(content))), &content);
  return content;
}

absl::StatusOr<OptimizerStates> ParseOptimizerStates(std::string_view content) {
  SLIMPS_ASSIGN_OR_RETURN(const std::string_view body, CheckedBody(content));
  Reader reader(body);
  uint32_t version = 0, kind = 0, keys = 0;
  OptimizerStates states;
  SLIMPS_RETURN_IF_ERROR(reader.Read(&version, "version"));
  if (version != kVersion) {
    return Wrong(absl::StrCat("expected version ", kVersion, ", got ", version));
  }
  SLIMPS_RETURN_IF_ERROR(reader.Read(&kind, "optimizer"));
  SLIMPS_RETURN_IF_ERROR(reader.Read(&states.tensors, "tensors"));
  SLIMPS_RETURN_IF_ERROR(reader.Read(&keys, "keys"));
  if (kind > static_cast<uint32_t>(wire::OptimizerSpec::Kind_MAX) ||
      !wire::OptimizerSpec::Kind_IsValid(static_cast<int>(kind)) || states.tensors > kMostTensors) {
    return Wrong(absl::StrCat("expected an optimizer with up to ", kMostTensors,
                              " state tensors, got kind ", kind, " with ", states.tensors));
  }
  states.kind = static_cast<wire::OptimizerSpec::Kind>(kind);
  for (uint32_t i = 0; i < keys; ++i) {
    SLIMPS_RETURN_IF_ERROR(ReadKey(reader, states.tensors, &states));
  }
  if (reader.left() > 0) {
    return Wrong(absl::StrCat(reader.left(), " bytes are left after the last key"));
  }
  return states;
}

}  // namespace slimps
