// SPDX-License-Identifier: Apache-2.0
// SelectionRun: the encoding of codecs that send the elements with the largest keys (|x|, x or -x;
// select.h). It reads the gradient once; later passes look at candidates, which are few. RankedRun
// (ranked_run.h), mstopk.cc and threshold.cc derive from it. Its passes:
//
//   collect    leaves x in the residual and lists the elements whose key is at least `floor`. The
//              floor is guessed from a sample so that a few more than `rank` are expected
//   histogram  only where the sample misled: collect found fewer than `rank`, or more than there is
//              room for. Three passes over x find the rank-th key by its bits; then `collect`
//              again, of all keys over it
//   count      Choose() has said which keys are sure and which may fill up; counts both, by block
//   pick       finds what each block sends
//   write      writes payload and residual
//
// What is sent depends on neither the sample nor the room.
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_SELECTION_RUN_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_SELECTION_RUN_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec/encode_run.h"
#include "compress/codec/sparse/select/candidate_list.h"
#include "compress/codec/sparse/select/selection.h"
#include "compress/codec/sparse/select/sparse_builder.h"
#include "compress/kernels/kernels.h"

namespace slimps {

// Owned by one encoding.
class SelectionRun {
 public:
  virtual ~SelectionRun() = default;

  // Encodes. Called once.
  virtual EncodeStats Run();

 protected:
  struct Scales {
    float scale0 = 0, scale1 = 0;
  };

  // What scales are made of: sums of the sent x >= 0 and of the sent x < 0. They are fp64, added in
  // order within blocks, then over blocks.
  struct SentOfSign {
    double positive = 0, negative = 0;
    uint32_t positives = 0, negatives = 0;
  };

  SelectionRun(const Kernels& kernels, const EncodeInput& input, std::span<std::byte> payload,
               EncodeWorkspace& workspace, const SelectionGoal& goal, SparseValues values);

  // ---- What codecs replace.
  //
  // Returns a floor that at least goal.rank keys are expected to reach. 0: CollectFirst lists all
  // elements that may be sent. Not called for a fixed floor.
  virtual float GuessFirstFloor();

  // Says which elements to send. Not called for a fixed floor.
  virtual Selection Choose(const Listed& listed);

  // Returns the payload's scales.
  virtual Scales ScalesOf(const SentOfSign&) { return {}; }

  // Returns x of one element before the first pass, for the sample.
  virtual float SampleInput(size_t element) const;

  // Does the first pass over a block: leaves x in the residual and lists candidates, as
  // SelectKernels::collect does.
  virtual Candidates CollectFirst(size_t block, float floor, uint32_t* index, float* value);

  // Prefetches the memory that AfterSend, which is called soon, touches.
  virtual void PrefetchSent(size_t /*block*/, std::span<const uint32_t> /*index*/) const {}

  // Called once the block's residual is written. `index`: the sent elements, counted within the
  // block.
  virtual void AfterSend(size_t /*block*/, std::span<const uint32_t> /*index*/) {}

  const Kernels& kernels() const { return kernels_; }
  const EncodeInput& input() const { return input_; }
  EncodeWorkspace& workspace() { return workspace_; }

 private:
  struct Block : SentBlock {
    uint32_t offset = 0;  // where its candidates begin in the list
    uint32_t listed = 0;
    float rest2 = 0;  // sum of squares of what is not listed
    ChoiceCounts counts;
    uint32_t fill = 0;       // how many of counts.filler it sends
    uint32_t sent_from = 0;  // where its entries begin in sent_index_ and sent_value_
  };

  // x of a block after the first pass: values * scale.
  struct Source {
    const float* values;
    float scale;
    size_t elements;
  };

  Source SourceOf(size_t block) const;
  // True if the list has all that the block sends.
  bool FromList(const Block& block) const {
    return list_.complete() && (fills_from_list_ || block.fill == 0);
  }
  void CollectAll();
  void CollectAgain();
  void KeepCandidates(size_t block, const Candidates& found, const uint32_t* index,
                      const float* value);
  float RankthKey() const;
  Listed MakeListed();
  void Count();
  SentOfSign Pick();
  static void AddBySign(std::span<const float> values, SentOfSign& sums);
  void Prefetch(size_t block) const;
  void Write();

  const Kernels& kernels_;
  const EncodeInput input_;
  EncodeWorkspace& workspace_;
  const SelectionGoal goal_;
  const std::span<Block> blocks_;
  SparseBuilder builder_;

  float floor_ = 0;
  CandidateList list_;        // candidates of block b at [offset, offset + listed)
  double magnitude_sum_ = 0;  // Listed has these two
  float magnitude_max_ = 0;
  bool fills_from_list_ = false;  // selection_.filler >= floor_
  Selection selection_;
  std::span<uint32_t> sent_index_;
  std::span<float> sent_value_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_SELECTION_RUN_H_
