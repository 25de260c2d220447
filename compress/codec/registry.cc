#include "compress/codec/registry.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/codec/one_bit.h"
#include "compress/codec/options.h"
#include "compress/codec/raw_codecs.h"
#include "compress/codec/two_bit.h"
#include "compress/format/kernels.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

struct Entry {
  std::string_view name;
  std::vector<std::string_view> options;
  absl::StatusOr<std::unique_ptr<Codec>> (*make)(const CodecSpec&, const Kernels&);
};

std::vector<Entry> Entries() {
  return {
      {"none", {}, MakeFp32Codec},
      {"fp16", {"error_feedback"}, MakeFp16Codec},
      {"bf16", {"error_feedback"}, MakeBf16Codec},
      {"1bit", {"scaling", "threshold", "error_feedback"}, MakeOneBitCodec},
      {"2bit", {"threshold", "error_feedback"}, MakeTwoBitCodec},
  };
}

absl::StatusOr<Entry> FindEntry(const CodecSpec& spec) {
  std::vector<std::string_view> names;
  for (Entry& entry : Entries()) {
    if (entry.name == spec.name) return std::move(entry);
    names.push_back(entry.name);
  }
  return UnknownName("codec", spec.name, names);
}

absl::Status CheckOptionNames(const CodecSpec& spec, const Entry& entry) {
  for (const auto& [option, value] : spec.options) {
    bool known = false;
    for (std::string_view name : entry.options) known = known || name == option;
    if (!known)
      return UnknownName(absl::StrCat("option of codec ", spec.name), option, entry.options);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCodecNames(const CodecSpec& spec) {
  SLIMPS_ASSIGN_OR_RETURN(const Entry entry, FindEntry(spec));
  return CheckOptionNames(spec, entry);
}

absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const CodecSpec& spec, const Kernels& kernels) {
  SLIMPS_ASSIGN_OR_RETURN(const Entry entry, FindEntry(spec));
  SLIMPS_RETURN_IF_ERROR(CheckOptionNames(spec, entry));
  return entry.make(spec, kernels);
}

absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const CodecSpec& spec) {
  return MakeCodec(spec, BestKernels());
}

}  // namespace slimps
