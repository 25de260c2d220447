// The kernels of bins.h, for any set of lanes.
#ifndef SLIMPS_COMPRESS_KERNELS_BINS_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_BINS_LOOPS_H_

#include "compress/kernels/bins.h"
#include "compress/kernels/input_loops.h"

namespace slimps {
namespace {

constexpr size_t kBinsBlock = 4096;       // kBlockElements
constexpr uint32_t kLongestByteBin = 64;  // longer bins have entries of two bytes

// Index in the bin, then the sign, then "last of its piece".
struct ByteEntry {
  static constexpr uint32_t kSign = 1u << 6, kLast = 1u << 7;
  static constexpr int kSignShift = 31 - 6, kLastShift = 7;
  static constexpr size_t kBytes = 1;
  static uint32_t Load(const std::byte* p, size_t i) { return static_cast<uint32_t>(p[i]); }
  template <typename Count>
  static void Store(I32x16 entries, std::byte* p, Count count) {
    StoreBytes(entries, reinterpret_cast<uint8_t*>(p), count);
  }
};
struct ShortEntry {
  static constexpr uint32_t kSign = 1u << 14, kLast = 1u << 15;
  static constexpr int kSignShift = 31 - 14, kLastShift = 15;
  static constexpr size_t kBytes = 2;
  static uint32_t Load(const std::byte* p, size_t i) {
    uint16_t entry;
    std::memcpy(&entry, p + i * sizeof entry, sizeof entry);
    return entry;
  }
  template <typename Count>
  static void Store(I32x16 entries, std::byte* p, Count count) {
    StoreShorts(entries, p, count);
  }
};

// Entries as 32-bit words until there are enough of them to be worth narrowing.
template <typename Entry>
struct EntryStage {
  static constexpr size_t kEnough = 1024;

  std::byte* out;
  size_t count = 0;
  uint32_t total = 0;  // flushed
  // A piece may begin just under kEnough. In front lies a place for the flag of a piece without entries: the entry
  // before it has the flag already, or is out.
  uint32_t words[1 + kEnough + kBinsBlock + kLanes];

  explicit EntryStage(std::byte* entries) : out(entries) { words[0] = 0; }
  uint32_t* next() { return words + 1 + count; }
  uint32_t written() const { return total + static_cast<uint32_t>(count); }
  void MarkLast() { words[count] |= Entry::kLast; }
  void Flush() {
    ForLanes(count, [&](size_t i, auto lanes) {
      Entry::Store(LoadI(words + 1 + i, lanes), out + (total + i) * Entry::kBytes, lanes);
    });
    total += static_cast<uint32_t>(count);
    count = 0;
  }
};

// G of the group's elements: made in whole vectors just ahead of the bins that need it, which straddle them.
template <bool kResidual>
struct BinInput {
  static constexpr size_t kAhead = 1024;

  const BinGroup& group;
  const F32x16 scale;
  F32x16 input2 = SetF(0);
  size_t made = 0;

  explicit BinInput(const BinGroup& g) : group(g), scale(SetF(g.grad_scale)) {}
  void MakeUntil(size_t end) {
    if (end <= made) return;
    const size_t rest = group.elements - made;
    const size_t want = (end - made + kAhead) / kLanes * kLanes;
    ForLanes(rest < want ? rest : want, [&](size_t i, auto count) {
      const F32x16 x =
          InputLanes<kResidual>(group.gradient, group.residual, scale, made + i, count);
      AddSquare(input2, x);
      if constexpr (kResidual) StoreF(x, group.residual + made + i, count);
    });
    made += rest < want ? rest : want;
  }
  template <typename Count>
  F32x16 Gradient(size_t i, Count count) const {
    return MulF(LoadF(group.gradient + i, count), scale);
  }
  template <typename Count>
  F32x16 Sum(size_t i, Count count) const {
    if constexpr (kResidual) return LoadF(group.residual + i, count);
    return Gradient(i, count);
  }
};

// What is sent where |H| >= the bin's largest |G|.
struct SoftChoice {
  const F32x16 extra, most;
  SoftChoice(const BinGroup& group, float largest)
      : extra(SetF(group.extra)), most(SetF(largest)) {}
  Mask16 operator()(F32x16 sum, F32x16 gradient) {
    const Mask16 reaches = GeF(AbsF(AddF(sum, MulF(gradient, extra))), most);
    return AndM(reaches, GtF(AbsF(sum), SetF(0)));
  }
};
struct FirstChoice {
  const F32x16 most;
  uint32_t open = 0xffff;
  FirstChoice(const BinGroup& /*group*/, float largest) : most(SetF(largest)) {}
  Mask16 operator()(F32x16 sum, F32x16 /*gradient*/) {
    const F32x16 magnitude = AbsF(sum);
    const uint32_t bits = Bits(AndM(GeF(magnitude, most), GtF(magnitude, SetF(0)))) & open;
    if (bits != 0) open = 0;
    return MaskOf(bits & (0 - bits));
  }
};

template <bool kResidual, typename Entry, typename Choice>
BinSums SelectBins(const BinGroup& group, const BinGroupOut& out) {
  EntryStage<Entry> stage(out.entries);
  BinInput<kResidual> input(group);
  BinSums sums;
  F32x16 unsent2 = SetF(0), magnitude = SetF(0);
  size_t cut = group.until_cut, bit = out.first_bit, cuts = 0;
  uint32_t before_cut = 0;  // entries
  for (size_t begin = 0; begin < group.elements;) {
    const size_t rest = group.elements - begin;
    const size_t end = begin + (rest < group.bin_length ? rest : group.bin_length);
    input.MakeUntil(end);
    F32x16 most = SetF(0);
    ForLanes(end - begin,
             [&](size_t i, auto count) { most = MaxF(most, AbsF(input.Sum(begin + i, count))); });
    const float largest = FoldMax(most);
    sums.maxima += static_cast<double>(largest);
    Choice choice(group, largest);
    for (size_t from = begin; from < end;) {
      const size_t to = end < cut ? end : cut;
      const uint32_t written = stage.written();
      I32x16 word = AddI(Iota(), SetI(static_cast<uint32_t>(from - begin)));
      ForLanes(to - from, [&](size_t i, auto count) {
        const F32x16 sum = input.Sum(from + i, count);
        const Mask16 sent = choice(sum, input.Gradient(from + i, count));
        const I32x16 sign = AndI(ShiftRightI<Entry::kSignShift>(AsI(sum)), SetI(Entry::kSign));
        stage.count += CompressI(sent, OrI(word, sign), stage.next());
        word = AddI(word, SetI(kLanes));
        AddSquare(unsent2, SelectF(sent, SetF(0), sum));
        if constexpr (!kResidual) magnitude = AddF(magnitude, KeepF(sent, AbsF(sum)));
      });
      stage.MarkLast();
      const uint32_t any = stage.written() != written ? 1 : 0;
      if (cuts == 0) out.bitmap[bit / 8] |= static_cast<uint8_t>(any << (bit % 8));
      if (to == cut) {
        if (cuts > 0) out.carried[cuts - 1] = stage.written() - before_cut;
        if (cuts == 0) sums.own = stage.written();
        before_cut = stage.written();
        cut += kBinsBlock;
        ++cuts;
      }
      if (stage.count >= EntryStage<Entry>::kEnough) stage.Flush();
      from = to;
    }
    ++bit;
    begin = end;
  }
  stage.Flush();
  if (cuts == 0) sums.own = stage.total;
  if (cuts > 0 && group.elements + kBinsBlock > cut)
    out.carried[cuts - 1] = stage.total - before_cut;
  sums.entries = stage.total;
  sums.input2 = FoldSum(input.input2);
  sums.unsent2 = FoldSum(unsent2);
  sums.sent_magnitude = FoldSum(magnitude);
  return sums;
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

// Calls each(dst index, value) for each entry.
template <typename Entry, typename Each>
inline void ForEntries(const BinBlock& block, const Each& each) {
  // Where the bins of pieces with entries begin, modulo 2^32.
  uint32_t begins[kBinsBlock + kLanes];
  const I32x16 steps = MulI(Iota(), SetI(block.bin_length));
  uint32_t begin = static_cast<uint32_t>(block.first_bin);
  size_t found = 0;
  ForLanes(block.pieces, [&](size_t i, auto count) {
    const Mask16 filled = MaskOf(LoadBits(block.bitmap, i, count));
    found += CompressI(filled, AddI(SetI(begin), steps), begins + found);
    begin += kLanes * block.bin_length;
  });
  const uint32_t scale = BitsOf(block.scale);
  size_t piece = 0;
  for (size_t i = 0; i < block.count; ++i) {
    const uint32_t entry = Entry::Load(block.entries, i);
    const uint32_t sign = (entry & Entry::kSign) << Entry::kSignShift;
    each(static_cast<uint32_t>(begins[piece] + (entry & (Entry::kSign - 1))),
         FloatOf(scale ^ sign));
    piece += entry >> Entry::kLastShift;
  }
}

template <typename Each>
inline void ForEntriesOf(const BinBlock& block, const Each& each) {
  if (block.bin_length <= kLongestByteBin) {
    ForEntries<ByteEntry>(block, each);
  } else {
    ForEntries<ShortEntry>(block, each);
  }
}

inline void StoreBins(const BinBlock& block, float* dst) {
  ForEntriesOf(block, [dst](uint32_t i, float value) { dst[i] = value; });
}
inline void AddBins(const BinBlock& block, float* dst) {
  ForEntriesOf(block, [dst](uint32_t i, float value) { dst[i] += value; });
}
inline float SubtractBins(const BinBlock& block, float* dst) {
  float error2 = 0;
  ForEntriesOf(block, [dst, &error2](uint32_t i, float value) {
    const float error = dst[i] - value;
    dst[i] = error;
    error2 += error * error;
  });
  return error2;
}

constexpr BinKernels kBinKernels = {
    .select_soft = Select<SoftChoice>,
    .select_first = Select<FirstChoice>,
    .store = StoreBins,
    .add = AddBins,
    .subtract = SubtractBins,
};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_BINS_LOOPS_H_
