// SPDX-License-Identifier: Apache-2.0
// The kernels of bins.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_BINS_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_BINS_LOOPS_H_

#include "compress/kernels/bins.h"
#include "compress/kernels/loops/input_loops.h"

namespace slimps {
namespace {

constexpr size_t kBinsBlock = 4096;       // kBlockElements
constexpr uint32_t kLongestByteBin = 64;  // entries of longer bins have two bytes

// The bits of an entry: index in the bin, then the sign, then "last of its piece".
template <typename Word>
struct BinEntry {
  static constexpr int kLastShift = 8 * sizeof(Word) - 1, kSignShift = 31 - (kLastShift - 1);
  static constexpr uint32_t kSign = 1u << (kLastShift - 1), kLast = 1u << kLastShift;

  static uint32_t Load(const std::byte* p, size_t i) {
    Word word;
    std::memcpy(&word, p + i * sizeof word, sizeof word);
    return word;
  }
  static void Store(uint32_t entry, std::byte* p, size_t i) {
    const auto word = static_cast<Word>(entry);
    std::memcpy(p + i * sizeof word, &word, sizeof word);
  }
};
using ByteEntry = BinEntry<uint8_t>;
using ShortEntry = BinEntry<uint16_t>;

// Makes G, and dW, of a group's elements.
template <bool kResidual>
struct BinInput {
  const float* gradient;
  float* residual;
  float grad_scale;
  F32x16 scale;

  explicit BinInput(const BinGroup& group)
      : gradient(group.gradient),
        residual(group.residual),
        grad_scale(group.grad_scale),
        scale(SetF(group.grad_scale)) {}

  // Makes the elements [begin, end), each once. Adds their squares to `sum2` and returns it.
  F32x16 Make(size_t begin, size_t end, F32x16 sum2) const {
    ForLanes(end - begin, [&](size_t i, auto count) {
      const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, begin + i, count);
      CountSquare(sum2, x);
      if constexpr (kResidual) StoreF(x, residual + begin + i, count);
    });
    return sum2;
  }

  // The functions below are for elements that are made.
  template <typename Count>
  F32x16 Gradient(size_t i, Count count) const {
    return MulF(LoadF(gradient + i, count), scale);
  }
  template <typename Count>
  F32x16 Sum(size_t i, Count count) const {
    if constexpr (kResidual) return LoadF(residual + i, count);
    return Gradient(i, count);
  }
  float OneSum(size_t i) const {
    if constexpr (kResidual) return residual[i];
    return gradient[i] * grad_scale;
  }

  // Returns the largest |G| in [begin, end). The last vector overlaps the one before, so that it is
  // whole.
  float Largest(size_t begin, size_t end) const {
    F32x16 most = SetF(0);
    const auto look = [&](size_t i, auto count) { most = MaxF(most, AbsF(Sum(i, count))); };
    if (end - begin < kLanes) {
      look(begin, SomeLanes{end - begin});
    } else {
      for (; end - begin >= kLanes; begin += kLanes) look(begin, AllLanes());
      look(end - kLanes, AllLanes());
    }
    return FoldMax(most);
  }
};

// Stays() says which lanes are not sent: those that do not reach their bin's largest |G|.
struct SoftChoice {
  static constexpr bool kFirstOnly = false;
  const F32x16 extra;
  explicit SoftChoice(const BinGroup& group) : extra(SetF(group.extra)) {}
  Mask16 Stays(F32x16 sum, F32x16 gradient, F32x16 largest) const {
    return LtF(AbsF(AddF(sum, MulF(gradient, extra))), largest);
  }
};
struct FirstChoice {
  static constexpr bool kFirstOnly = true;
  explicit FirstChoice(const BinGroup& /*group*/) {}
  Mask16 Stays(F32x16 sum, F32x16 /*gradient*/, F32x16 largest) const {
    return LtF(AbsF(sum), largest);
  }
};

// Selects from the bins of a group and writes entries side by side. It takes several bins at a
// time, each step for all of them. The reason: branch prediction cannot foresee what is sent, and
// to wait for one bin's maximum before going on would cost more than all else. Only the search for
// maxima goes bin by bin. The comparison with them does not care where bins begin.
template <bool kResidual, typename Entry, typename Choice>
class BinSelection {
 public:
  static constexpr size_t kSome = 512;  // elements at a time, unless one bin has more

  BinSelection(const BinGroup& group, const BinGroupOut& out)
      : group_(group), out_(out), input_(group), choice_(group) {}

  // Selects from the whole bins in [begin, end). Their bits of the bitmap begin at `bit`. REQUIRES:
  // one bin, or at most kSome elements.
  void Whole(size_t begin, size_t end, size_t bit) {
    Search(begin, end);
    for (size_t from = begin; from < end; ++bit) {
      const size_t to = BinEnd(from, end);
      bool open = true;
      const uint32_t entries = Send(begin, from, from, to, open);
      out_.bitmap[bit / 8] |= static_cast<uint8_t>((entries != 0 ? 1 : 0) << (bit % 8));
      from = to;
    }
    sums_.own = sums_.entries;
  }

  // Selects from the group's last bin, which block ends cut into pieces. Each piece has its own
  // entries and its own "last" mark.
  void Cut(size_t begin, size_t end, size_t bit) {
    Search(begin, end);
    bool open = true;
    uint32_t* carried = out_.carried;
    size_t cut = group_.until_cut;
    for (size_t from = begin; from < end; cut += kBinsBlock) {
      const size_t to = end < cut ? end : cut;
      const uint32_t entries = Send(begin, begin, from, to, open);
      if (from == begin) {
        sums_.own += entries;
        out_.bitmap[bit / 8] |= static_cast<uint8_t>((entries != 0 ? 1 : 0) << (bit % 8));
      } else {
        *carried++ = entries;
      }
      from = to;
    }
  }

  BinSums Sums() {
    sums_.input2 = FoldSum(input2_);
    sums_.unsent2 = FoldSum(unsent2_) + equals2_;
    return sums_;
  }

 private:
  static constexpr size_t kWord = 64;        // elements whose choice fits into one word
  static constexpr size_t kLongest = 16384;  // elements of the longest bin
  static constexpr size_t kAhead = 256;

  static size_t LowestBit(uint64_t bits) { return static_cast<size_t>(__builtin_ctzll(bits)); }
  size_t BinEnd(size_t begin, size_t end) const {
    return end - begin < group_.bin_length ? end : begin + group_.bin_length;
  }

  // Makes the elements up to `end`, in whole vectors and a little ahead. So memory has work while
  // bins are searched.
  void MakeUntil(size_t end) {
    if (end <= made_) return;
    const size_t rest = group_.elements - made_;
    const size_t want = (end - made_ + kAhead) / kLanes * kLanes;
    const size_t to = made_ + (rest < want ? rest : want);
    const BinInput<kResidual> input = input_;  // a copy, which stores cannot change
    input2_ = input.Make(made_, to, input2_);
    made_ = to;
  }
  // Returns what an element must reach to be sent: the bin's largest |G|.
  float LimitOf(size_t begin, size_t end) {
    const float largest = input_.Largest(begin, end);
    sums_.maxima += static_cast<double>(largest);
    return largest > 0 ? largest : __builtin_inff();  // nothing reaches infinity
  }

  // Makes the elements [begin, end) and finds those that reach their bins' maxima.
  void Search(size_t begin, size_t end) {
    MakeUntil(end);
    if (BinEnd(begin, end) == end) {
      const F32x16 limit = SetF(LimitOf(begin, end));
      return Find(begin, end, [&](size_t, auto) { return limit; });
    }
    for (size_t from = begin; from < end;) {
      const size_t to = BinEnd(from, end);
      const F32x16 limit = SetF(LimitOf(from, to));
      for (size_t i = from; i < to; i += kLanes) StoreF(limit, limits_ + (i - begin), AllLanes());
      from = to;
    }
    Find(begin, end, [&](size_t i, auto count) { return LoadF(limits_ + i, count); });
  }
  template <typename Limit>
  void Find(size_t begin, size_t end, const Limit& limit) {
    auto* const bits = reinterpret_cast<uint8_t*>(reaching_);
    const BinInput<kResidual> input = input_;
    const Choice choice = choice_;
    F32x16 unsent2 = unsent2_;
    ForLanes(end - begin, [&](size_t i, auto count) {
      const F32x16 sum = input.Sum(begin + i, count);
      const Mask16 stays = choice.Stays(sum, input.Gradient(begin + i, count), limit(i, count));
      StoreBits(~Bits(stays), bits, i, count);
      CountSquare(unsent2, KeepF(stays, sum));
    });
    unsent2_ = unsent2;
  }

  // Writes the entries of the elements [from, to) that reach the limit, and marks the last. They
  // belong to the bin that begins at `bin`. The found bits begin at element `begin`. Returns how
  // many entries it wrote. An element that is 0 leaves no entry: it is written, and the next one
  // overwrites it.
  uint32_t Send(size_t begin, size_t bin, size_t from, size_t to, bool& open) {
    std::byte* const entries = out_.entries;
    const BinInput<kResidual> input = input_;
    const uint32_t before = sums_.entries;
    uint32_t written = before;
    float magnitude = 0;
    for (size_t at = from; at < to; at += kWord) {
      uint64_t word = Word(at - begin, to - at);
      if constexpr (Choice::kFirstOnly) word = FirstOf(word, at, open);
      for (; word != 0; word &= word - 1) {
        const size_t element = at + LowestBit(word);
        const float sum = input.OneSum(element);
        const uint32_t sign = BitsOf(sum) >> Entry::kSignShift & Entry::kSign;
        Entry::Store(static_cast<uint32_t>(element - bin) | sign, entries, written);
        written += sum != 0 ? 1 : 0;
        if constexpr (!kResidual) magnitude += __builtin_fabsf(sum);
      }
    }
    if constexpr (!kResidual) sums_.sent_magnitude += magnitude;
    if (written == before) return 0;
    Entry::Store(Entry::Load(entries, written - 1) | Entry::kLast, entries, written - 1);
    sums_.entries = written;
    return written - before;
  }

  // Returns the bits [first, first + n), at most 64 of them.
  uint64_t Word(size_t first, size_t n) const {
    const size_t shift = first % kWord;
    const uint64_t* const words = reaching_ + first / kWord;
    const uint64_t word = words[0] >> shift | words[1] << 1 << (kWord - 1 - shift);
    return n < kWord ? word & ((uint64_t{1} << n) - 1) : word;
  }
  // Returns only the word's lowest bit, or 0 once the bin has sent its element. Counts the squares
  // of the others, which stay.

  uint64_t FirstOf(uint64_t word, size_t at, bool& open) {
    const uint64_t first = open ? word & (0 - word) : 0;
    if (first != 0) open = false;
    for (uint64_t rest = word ^ first; rest != 0; rest &= rest - 1) {
      const float sum = input_.OneSum(at + LowestBit(rest));
      equals2_ += sum * sum;
    }
    return first;
  }

  const BinGroup group_;
  const BinGroupOut out_;
  const BinInput<kResidual> input_;
  const Choice choice_;
  BinSums sums_;
  size_t made_ = 0;
  F32x16 input2_ = SetF(0), unsent2_ = SetF(0);
  float equals2_ = 0;             // squares of elements that equal the one sent for their bin
  float limits_[kSome + kLanes];  // for each element what it must reach
  uint64_t reaching_[kLongest / kWord + 2];  // bit i: element i of those searched reaches it
};

template <bool kResidual, typename Entry, typename Choice>
BinSums SelectBins(const BinGroup& group, const BinGroupOut& out) {
  using Selection = BinSelection<kResidual, Entry, Choice>;
  Selection selection(group, out);
  const size_t length = group.bin_length;
  // The elements that no cut divides.
  const size_t whole =
      group.elements <= group.until_cut ? group.elements : group.until_cut / length * length;
  const size_t some = length < Selection::kSome ? Selection::kSome / length * length : length;
  for (size_t begin = 0; begin < whole; begin += some) {
    selection.Whole(begin, whole - begin < some ? whole : begin + some,
                    out.first_bit + begin / length);
  }
  if (whole < group.elements) {
    selection.Cut(whole, group.elements, out.first_bit + whole / length);
  }
  return selection.Sums();
}

template <typename Choice>
BinSums Select(const BinGroup& group, const BinGroupOut& out) {
  const bool bytes = group.bin_length <= kLongestByteBin;
  if (group.residual == nullptr) {
    return bytes ? SelectBins<false, ByteEntry, Choice>(group, out)
                 : SelectBins<false, ShortEntry, Choice>(group, out);
  }
  return bytes ? SelectBins<true, ByteEntry, Choice>(group, out)
               : SelectBins<true, ShortEntry, Choice>(group, out);
}

// Returns the sum of each(index in dst, value) over all entries. `each` returns its part instead of
// keeping a sum: that would lie in memory, and the compiler would have to assume that `each` may
// overwrite it.
template <typename Entry, typename Each>
inline float SumOfEntries(const BinBlock& block, const Each& each) {
  // Where the bins of pieces with entries begin, modulo 2^32.
  uint32_t begins[kBinsBlock + kLanes];
  const I32x16 steps = MulI(Iota(), SetI(block.bin_length));
  uint32_t begin = static_cast<uint32_t>(block.first_bin);
  size_t found = 0;
  ForLanes(block.pieces, [&](size_t i, auto count) {
    const Mask16 filled = MaskOf(LoadBits(block.bitmap, i, count));
    found += CompressI(filled, AddI(SetI(begin), steps), begins + found);
    begin += static_cast<uint32_t>(kLanes) * block.bin_length;
  });
  const uint32_t scale = BitsOf(block.scale);
  const size_t entries = block.count;
  const std::byte* const from = block.entries;
  size_t piece = 0;
  float sum = 0;
  for (size_t i = 0; i < entries; ++i) {
    const uint32_t entry = Entry::Load(from, i);
    const uint32_t sign = (entry & Entry::kSign) << Entry::kSignShift;
    const uint32_t element = begins[piece] + (entry & (Entry::kSign - 1));
    sum += each(element, FloatOf(scale ^ sign));
    piece += entry >> Entry::kLastShift;
  }
  return sum;
}

template <typename Each>
inline float SumOfEntriesOf(const BinBlock& block, const Each& each) {
  return block.bin_length <= kLongestByteBin ? SumOfEntries<ByteEntry>(block, each)
                                             : SumOfEntries<ShortEntry>(block, each);
}

inline void StoreBins(const BinBlock& block, float* dst) {
  SumOfEntriesOf(block, [dst](uint32_t i, float value) {
    dst[i] = value;
    return 0.0f;
  });
}
inline void AddBins(const BinBlock& block, float* dst) {
  SumOfEntriesOf(block, [dst](uint32_t i, float value) {
    dst[i] += value;
    return 0.0f;
  });
}
inline float SubtractBins(const BinBlock& block, float* dst) {
  return SumOfEntriesOf(block, [dst](uint32_t i, float value) {
    const float error = dst[i] - value;
    dst[i] = error;
    return error * error;
  });
}

inline void PrefetchBins(const BinBlock& block, const float* dst) {
  SumOfEntriesOf(block, [dst](uint32_t i, float /*value*/) {
    Prefetch(dst + i);
    return 0.0f;
  });
}

constexpr BinKernels kBinKernels = {
    .select_soft = Select<SoftChoice>,
    .select_first = Select<FirstChoice>,
    .prefetch = PrefetchBins,
    .store = StoreBins,
    .add = AddBins,
    .subtract = SubtractBins,
};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_BINS_LOOPS_H_
