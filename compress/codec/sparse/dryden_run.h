// SPDX-License-Identifier: Apache-2.0
// DrydenRun: dryden's encoding. How many elements of each sign are sent is known only once all
// elements were seen. So the first pass counts both signs and lists the candidates whose magnitude
// is at least a floor guessed from a sample. If the guess missed, a second pass lists everything
// that is not 0. That is rare, and takes 8 bytes of workspace per element.
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_DRYDEN_RUN_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_DRYDEN_RUN_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec/encode_run.h"
#include "compress/codec/sparse/select/candidate_list.h"
#include "compress/codec/sparse/select/sparse_builder.h"
#include "compress/codec/sparse/sparse_options.h"
#include "compress/kernels/kernels.h"

namespace slimps {

// Owned by one encoding.
class DrydenRun final {
 public:
  DrydenRun(const Kernels& kernels, const EncodeInput& input, std::span<std::byte> payload,
            EncodeWorkspace& workspace, SentCount proportion);

  // Encodes. Called once.
  EncodeStats Run();

 private:
  struct Block : SentBlock {
    uint32_t positives = 0, negatives = 0;
    uint32_t offset = 0, listed = 0;  // its candidates in the list
  };
  // The elements of one sign.
  struct Side {
    size_t elements = 0;
    size_t wanted = 0;
    float limit = 0;   // the smallest |x| that is sent
    size_t equal = 0;  // how many of |x| == limit are still to be sent
    size_t sent = 0;
    double sum = 0;  // of the sent x

    float Mean() const {
      return sent == 0 ? 0 : static_cast<float>(sum / static_cast<double>(sent));
    }
  };

  float GuessFloorOfBoth(EncodeWorkspace& workspace);
  // x of a block after Collect: values * scale.
  struct X {
    const float* values;
    float scale;
  };
  X XOf(const BlockInput& in) const;

  // Leaves x in the residual, counts both signs, and lists candidates.
  void Collect();
  void CollectAll();
  void Keep(Block& block, const Candidates& found, const uint32_t* index, const float* value);
  // Sets both sides' counts and limits. False: the list lacks elements that must be sent.
  bool FindLimits();
  bool FindLimit(bool positive, Side& side);
  void ChooseFromList();
  void ChooseFromBlock(Block& block);

  const Kernels& kernels_;
  const EncodeInput input_;
  EncodeWorkspace& workspace_;
  const SentCount proportion_;
  const std::span<Block> blocks_;
  SparseBuilder builder_;

  float floor_ = 0;

  // Block b's candidates are at [offset, offset + listed). Those that are sent move to the front of
  // that range.
  CandidateList list_;
  Side positive_, negative_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_DRYDEN_RUN_H_
