// SPDX-License-Identifier: Apache-2.0
#include "worker/saved/safetensors.h"

#include <bit>
#include <map>
#include <nlohmann/json.hpp>

#include "worker/saved/checkpoint_manifest.h"

namespace slimps {
namespace {

constexpr char kMetadata[] = "__metadata__";

}  // namespace

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie");

std::vector<std::string> SafetensorsNames(const std::vector<std::string>& typed_names) {
  std::map<std::string, int> counts;
  for (const std::string& name : typed_names) ++counts[PlainName(name)];
  std::vector<std::string> names;
  for (const std::string& name : typed_names) {
    const std::string plain = PlainName(name);
    const bool is_typed = counts[plain] > 1 || plain == kMetadata || PlainName(plain) != plain;
    names.push_back(is_typed ? name : plain);
  }
  return names;
}

std::string SafetensorsHead(const std::vector<SafetensorsEntry>& tensors, uint64_t rounds) {
  using Json = nlohmann::ordered_json;
  Json json = {{kMetadata, {{"format", "pt"}, {"rounds", std::to_string(rounds)}}}};
  uint64_t end = 0;
  for (const SafetensorsEntry& one : tensors) {
    const uint64_t begin = end;
    end += one.elements * sizeof(float);
    json[one.name] = {
        {"dtype", "F32"}, {"shape", one.shape}, {"data_offsets", Json::array({begin, end})}};
  }
  std::string text = json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  while (text.size() % sizeof(uint64_t) != 0) text += ' ';
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace slimps
