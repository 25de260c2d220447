// DrydenRun: how many of each side are sent is known only after all elements were seen once. So the first pass counts both
// sides and lists candidates over a magnitude guessed from a sample; then one thread chooses among those. Where the guess
// missed, a second pass lists everything that is not 0: rare, and it takes 8 bytes of workspace per element.
#ifndef SLIMPS_COMPRESS_CODEC_DRYDEN_RUN_H_
#define SLIMPS_COMPRESS_CODEC_DRYDEN_RUN_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec/candidate_list.h"
#include "compress/codec/encode_run.h"
#include "compress/codec/sparse_builder.h"
#include "compress/codec/sparse_options.h"
#include "compress/kernels/kernels.h"

namespace slimps {

// Owned by one encoding; Blocks from several threads, as EncodeRun says.
class DrydenRun final : public EncodeRun {
 public:
  DrydenRun(const Kernels& kernels, const EncodeInput& input, std::span<std::byte> payload,
            EncodeWorkspace& workspace, SentCount proportion);

  size_t passes() const override { return passes_; }
  void Blocks(size_t pass, size_t first, size_t last) override;
  void EndPass(size_t pass) override;
  EncodeStats Finish() override;

 private:
  enum class Stage : uint8_t { kCollect, kCollectAll, kWrite };

  struct Block : SentBlock {
    uint32_t positives = 0, negatives = 0;
    uint32_t offset = 0, listed = 0;  // in the list
  };
  // The elements of one sign.
  struct Side {
    size_t elements = 0;
    size_t wanted = 0;
    float limit = 0;   // the smallest |x| that is sent
    size_t equal = 0;  // how many of exactly that are still to be sent
    size_t sent = 0;
    double sum = 0;  // of their x

    float Mean() const {
      return sent == 0 ? 0 : static_cast<float>(sum / static_cast<double>(sent));
    }
  };

  float GuessFloorOfBoth(EncodeWorkspace& workspace);
  void Collect(size_t block);
  void Write(size_t block);
  // Sets the sides' limits; false: the list lacks some.
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

  Stage stage_ = Stage::kCollect;
  size_t passes_ = 2;
  float floor_ = 0;
  // Candidates of block b at [offset, offset + listed). What is sent moves to the front of its block's place.
  CandidateList list_;
  Side positive_, negative_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_DRYDEN_RUN_H_
