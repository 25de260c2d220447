// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/catalogue/registry.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/codec/catalogue/decorators.h"
#include "compress/codec/options.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

absl::StatusOr<CodecEntry> FindEntry(const CodecSpec& spec) {
  std::vector<std::string_view> names;
  for (CodecEntry& entry : AllCodecs()) {
    if (entry.name == spec.name) return std::move(entry);
    names.push_back(entry.name);
  }
  return UnknownName("codec", spec.name, names);
}

absl::Status CheckOptionNames(const CodecSpec& spec, const CodecEntry& entry) {
  std::vector<std::string_view> valid = entry.options;
  for (const std::string_view name : DecoratorOptions(entry)) valid.push_back(name);
  for (const auto& [option, value] : spec.options) {
    // A decorator that the codec refuses passes here: MakeDecorated refuses it and says why.
    if (std::ranges::find(valid, option) == valid.end() && !IsDecoratorOption(entry, option)) {
      return UnknownName(absl::StrCat("option of codec ", spec.name), option, valid);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<CodecEntry> AllCodecs() {
  std::vector<CodecEntry> all;
  for (const auto family : {RawCodecs, SignCodecs, QuantizerCodecs, SparseCodecs, BinCodecs,
                            MomentumCodecs, LowRankCodecs}) {
    for (CodecEntry& entry : family()) all.push_back(std::move(entry));
  }
  return all;
}

absl::Status CheckCodecNames(const CodecSpec& spec) {
  SLIMPS_ASSIGN_OR_RETURN(const CodecEntry entry, FindEntry(spec));
  return CheckOptionNames(spec, entry);
}

absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const CodecSpec& spec, const Kernels& kernels) {
  SLIMPS_ASSIGN_OR_RETURN(const CodecEntry entry, FindEntry(spec));
  SLIMPS_RETURN_IF_ERROR(CheckOptionNames(spec, entry));
  return MakeDecorated(entry, spec, kernels);
}

absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const CodecSpec& spec) {
  return MakeCodec(spec, BestKernels());
}

absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(std::string_view text) {
  SLIMPS_ASSIGN_OR_RETURN(const CodecSpec spec, ParseCodecSpec(text));
  return MakeCodec(spec);
}

}  // namespace slimps
