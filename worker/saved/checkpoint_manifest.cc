// SPDX-License-Identifier: Apache-2.0
#include "worker/saved/checkpoint_manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/crc32.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "slimps checkpoint 1";
constexpr std::string_view kSeal = ",\n \"crc32_of_the_above\": \"";

std::string Hex8(uint32_t value) { return absl::StrCat(absl::Hex(value, absl::kZeroPad8)); }

std::string Describe(const wire::KeyInfo& info) {
  return absl::StrCat("shape [", absl::StrJoin(info.shape(), ", "), "], type ",
                      wire::DType_Name(info.dtype()));
}

absl::Status Differs(const std::string& what, const std::string& expected, const std::string& got) {
  return absl::InvalidArgumentError(
      absl::StrCat("checkpoint: ", what, ": expected ", expected, ", got ", got));
}

std::string SealOf(std::string_view text) {
  return absl::StrCat(absl::string_view(kSeal.data(), kSeal.size()), Hex8(Crc32(0, text)),
                      "\"\n}\n");
}

// Throws what Json throws where a field is missing or of another type.
CheckpointManifest FromJson(const Json& json) {
  CheckpointManifest manifest;
  manifest.id = std::stoull(json.at("id").get<std::string>(), nullptr, 16);
  manifest.rounds = json.at("rounds").get<uint64_t>();
  manifest.kvstore = json.at("kvstore").get<std::string>();
  manifest.workers = json.at("workers").get<uint32_t>();
  manifest.servers = json.at("servers").get<uint32_t>();
  manifest.compression = json.at("compression").get<std::string>();
  manifest.optimizer = json.at("optimizer").get<std::string>();
  for (const Json& one : json.at("tensors")) {
    wire::KeyInfo& tensor = manifest.tensors.emplace_back();
    tensor.set_name(one.at("key").get<std::string>());
    for (const Json& extent : one.at("shape")) tensor.add_shape(extent.get<int64_t>());
    wire::DType dtype = wire::FLOAT32;
    wire::DType_Parse(one.at("dtype").get<std::string>(), &dtype);
    tensor.set_dtype(dtype);
  }
  for (const Json& one : json.at("files")) {
    wire::CheckpointFile& file = manifest.files.emplace_back();
    file.set_name(one.at("name").get<std::string>());
    file.set_bytes(one.at("bytes").get<uint64_t>());
    file.set_crc32(
        static_cast<uint32_t>(std::stoul(one.at("crc32").get<std::string>(), nullptr, 16)));
  }
  return manifest;
}

}  // namespace

std::string PlainName(const std::string& typed_name) {
  return typed_name.size() > 2 && typed_name[1] == ':' ? typed_name.substr(2) : typed_name;
}

absl::Status CheckpointManifest::CheckFits(const std::string& own_kvstore, uint32_t own_workers,
                                           const std::vector<const TensorPlan*>& keys) const {
  if (kvstore != own_kvstore) return Differs("kind of store", own_kvstore, kvstore);
  if (workers != own_workers) {
    return Differs("number of workers, each of which has its part", absl::StrCat(own_workers),
                   absl::StrCat(workers));
  }
  for (const wire::KeyInfo& tensor : tensors) {
    const auto same = [&](const TensorPlan* one) { return one->key.typed_name() == tensor.name(); };
    const auto found = std::ranges::find_if(keys, same);
    if (found == keys.end()) {
      return Differs(absl::StrCat("key ", tensor.name()), "a key of this store",
                     "one that was never initialised");
    }
    if (Describe((*found)->info) != Describe(tensor)) {
      return Differs(absl::StrCat("key ", tensor.name()), Describe((*found)->info),
                     Describe(tensor));
    }
  }
  if (tensors.size() == keys.size()) return absl::OkStatus();
  return Differs("number of keys", absl::StrCat(keys.size()), absl::StrCat(tensors.size()));
}

std::string BuildManifest(const CheckpointManifest& manifest) {
  Json json = {{"format", kFormat},
               {"id", absl::StrCat(absl::Hex(manifest.id, absl::kZeroPad16))},
               {"rounds", manifest.rounds},
               {"kvstore", manifest.kvstore},
               {"workers", manifest.workers},
               {"servers", manifest.servers},
               {"compression", manifest.compression},
               {"optimizer", manifest.optimizer},
               {"tensors", Json::array()},
               {"files", Json::array()}};
  for (const wire::KeyInfo& tensor : manifest.tensors) {
    json["tensors"].push_back(
        {{"name", PlainName(tensor.name())},
         {"key", tensor.name()},
         {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
         {"dtype", wire::DType_Name(tensor.dtype())}});
  }
  for (const wire::CheckpointFile& file : manifest.files) {
    json["files"].push_back(
        {{"name", file.name()}, {"bytes", file.bytes()}, {"crc32", Hex8(file.crc32())}});
  }
  std::string text = json.dump(1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  text.resize(text.size() - 2);  // "\n}"
  return text + SealOf(text);
}

absl::StatusOr<CheckpointManifest> ParseManifest(std::string_view text) {
  const auto wrong = [](const std::string& why) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint: ", CheckpointManifest::kFile, ": ", why));
  };
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const size_t sealed = text.rfind(kSeal);
  const bool is_whole =
      sealed != std::string_view::npos && text.substr(sealed) == SealOf(text.substr(0, sealed));
  if (!json.is_object() || !is_whole) {
    return absl::DataLossError(absl::StrCat("checkpoint: ", CheckpointManifest::kFile,
                                            ": damaged: its last line expects another content"));
  }
  try {
    const auto format = json.at("format").get<std::string>();
    if (format != kFormat) return wrong(absl::StrCat("expected ", kFormat, ", got ", format));
    return FromJson(json);
  } catch (const std::exception& error) {
    return wrong(error.what());
  }
}

}  // namespace slimps
