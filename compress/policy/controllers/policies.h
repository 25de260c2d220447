// SPDX-License-Identifier: Apache-2.0
// The factories of all policies, for the registry, and what their options have in common.
// Thread-safe: all functions are pure.
#ifndef SLIMPS_COMPRESS_POLICY_CONTROLLERS_POLICIES_H_
#define SLIMPS_COMPRESS_POLICY_CONTROLLERS_POLICIES_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compress/policy/controllers/codec_levels.h"
#include "compress/policy/controllers/controller.h"
#include "compress/spec/option_reader.h"
#include "compress/spec/spec_text.h"

namespace slimps {

// InvalidArgument (all): an option or value is unknown, or out of its range.
absl::StatusOr<std::unique_ptr<Controller>> MakeUniform(const SpecText& spec);
absl::StatusOr<std::unique_ptr<Controller>> MakeClusters(const SpecText& spec);
absl::StatusOr<std::unique_ptr<Controller>> MakeGlobalTopK(const SpecText& spec);
absl::StatusOr<std::unique_ptr<Controller>> MakeLgreco(const SpecText& spec);
absl::StatusOr<std::unique_ptr<Controller>> MakeLgrecoAccordion(const SpecText& spec);
absl::StatusOr<std::unique_ptr<Controller>> MakeAccordion(const SpecText& spec);
absl::StatusOr<std::unique_ptr<Controller>> MakeGravac(const SpecText& spec);
absl::StatusOr<std::unique_ptr<Controller>> MakeJoint(const SpecText& spec);

// Returns "policy NAME", as errors begin.
std::string OwnerOf(const SpecText& spec);

// Reads an option that is a codec; `fallback` if it is not given.
// InvalidArgument: the value has no codec's form.
[[nodiscard]] absl::StatusOr<SpecText> InnerCodecOption(const SpecText& spec,
                                                        const std::string& option,
                                                        std::string_view fallback);

// Reads every=ROUNDS, from 1 to a million.
[[nodiscard]] absl::StatusOr<uint64_t> EveryOption(const SpecText& spec, uint64_t fallback);

// Reads min_elements=N: smaller tensors are sent raw. Default: 256.
[[nodiscard]] absl::StatusOr<uint64_t> MinElementsOption(const SpecText& spec);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_CONTROLLERS_POLICIES_H_
