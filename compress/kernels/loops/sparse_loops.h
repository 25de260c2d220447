// SPDX-License-Identifier: Apache-2.0
// The kernels of sparse.h, for any set of lanes. Entries are few, and loops over them are plain
// where lanes would not help: their cost is memory.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_SPARSE_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_SPARSE_LOOPS_H_

#include "compress/kernels/loops/input_loops.h"
#include "compress/kernels/loops/philox_loops.h"
#include "compress/kernels/sparse.h"

namespace slimps {
namespace {

inline void EncodePacked(const uint32_t* index, size_t n, size_t start, uint8_t* out) {
  size_t i = 0;
  if (start == 1 && n > 0) {
    out[0] = static_cast<uint8_t>(index[0] << 4);
    out[1] = static_cast<uint8_t>(index[0] >> 4);
    out += 2;
    i = 1;
  }
  for (; i + 2 <= n; i += 2, out += 3) {
    const uint32_t pair = index[i] | index[i + 1] << 12;
    out[0] = static_cast<uint8_t>(pair);
    out[1] = static_cast<uint8_t>(pair >> 8);
    out[2] = static_cast<uint8_t>(pair >> 16);
  }
  if (i == n) return;
  out[0] = static_cast<uint8_t>(index[i]);
  out[1] = static_cast<uint8_t>(index[i] >> 8);
}

inline void DecodePacked(const uint8_t* in, size_t start, size_t n, uint32_t base,
                         uint32_t* index) {
  size_t i = 0;
  if (start == 1 && n > 0) {
    index[0] = base + (static_cast<uint32_t>(in[0] >> 4) | static_cast<uint32_t>(in[1]) << 4);
    in += 2;
    i = 1;
  }
  // Four indices lie in six bytes. The load takes eight bytes, so six indices must be left.
  for (; i + 6 <= n; i += 4, in += 6) {
    uint64_t word;
    std::memcpy(&word, in, sizeof word);
    for (size_t j = 0; j < 4; ++j)
      index[i + j] = base + (static_cast<uint32_t>(word >> (12 * j)) & 0xfff);
  }
  for (; i + 2 <= n; i += 2, in += 3) {
    const uint32_t pair =
        in[0] | static_cast<uint32_t>(in[1]) << 8 | static_cast<uint32_t>(in[2]) << 16;
    index[i] = base + (pair & 0xfff);
    index[i + 1] = base + (pair >> 12);
  }
  if (i < n) index[i] = base + (in[0] | (static_cast<uint32_t>(in[1]) & 15) << 8);
}

inline size_t DeltaBytes(const uint32_t* index, size_t n) {
  size_t bytes = n;
  uint32_t next = 0;  // one more than the index before
  for (size_t i = 0; i < n; ++i) {
    bytes += (index[i] - next) / 255;
    next = index[i] + 1;
  }
  return bytes;
}

inline size_t EncodeDelta(const uint32_t* index, size_t n, uint8_t* out) {
  uint8_t* const begin = out;
  uint32_t next = 0;
  for (size_t i = 0; i < n; ++i) {
    uint32_t gap = index[i] - next;
    for (; gap >= 255; gap -= 255) *out++ = 255;
    *out++ = static_cast<uint8_t>(gap);
    next = index[i] + 1;
  }
  return static_cast<size_t>(out - begin);
}

inline size_t DecodeDelta(const uint8_t* in, size_t bytes, uint32_t base, uint32_t* index) {
  size_t found = 0;
  uint32_t next = base;
  for (size_t i = 0; i < bytes; ++i) {
    // No branch: the next index overwrites what a skip leaves.
    const uint32_t is_index = in[i] != 255 ? 1 : 0;
    next += in[i];
    index[found] = next;
    next += is_index;
    found += is_index;
  }
  return found;
}

inline bool Rising(const uint32_t* index, size_t n, uint32_t bound) {
  if (n == 0) return true;
  uint32_t wrong = index[n - 1] >= bound ? 1 : 0;
  ForLanes(n - 1, [&](size_t i, auto count) {
    const Mask16 less = GtI(LoadI(index + i + 1, count), LoadI(index + i, count));
    wrong |= ~Bits(less) & count.bits();
  });
  return wrong == 0;
}

inline bool Finite(const float* values, size_t n) {
  const F32x16 most = SetF(3.402823466e38f);
  uint32_t wrong = 0;
  ForLanes(n, [&](size_t i, auto count) {
    wrong |= Bits(NotLeF(AbsF(LoadF(values + i, count)), most)) & count.bits();
  });
  return wrong == 0;
}

// Draws the words of 64 elements from `first_element` on.
inline void DrawWords(const PhiloxLanes& philox, uint32_t first_element, uint32_t* words) {
  const PhiloxWords drawn = philox(first_element / 4);
  for (size_t i = 0; i < 4; ++i) StoreI(drawn.word[i], words + kLanes * i, AllLanes());
}

// Draws `count` > 0 indices among the `elements` of the block that begins at `first_element`. Adds
// `base` to each.
inline void DrawBlock(const PhiloxLanes& philox, uint32_t first_element, uint32_t elements,
                      uint32_t count, uint32_t base, uint32_t* index) {
  uint32_t words[64 + 64];  // words of 64 elements, and of the next 64 when entries reach them
  DrawWords(philox, first_element, words);
  const auto turn = static_cast<uint32_t>((uint64_t{words[0]} * elements) >> 32);
  const I32x16 step = SetI((elements << 16) / count), end = SetI(elements);
  for (uint32_t j = 0; j < count; j += kLanes) {
    // Entry j takes word j + 1, so the last of four groups needs a word of the next 64.
    if (j % 64 == 48) DrawWords(philox, first_element + j + kLanes, words + 64);
    const I32x16 random = ShiftRightI<16>(LoadI(words + j % 64 + 1, AllLanes()));
    if (j % 64 == 48) std::memcpy(words, words + 64, 64 * sizeof *words);
    const I32x16 scaled = MulI(AddI(Iota(), SetI(j)), step);
    const I32x16 low = ShiftRightI<16>(scaled), high = ShiftRightI<16>(AddI(scaled, step));
    const I32x16 within = ShiftRightI<16>(MulI(random, SubI(high, low)));
    const I32x16 turned = AddI(AddI(low, within), SetI(turn));
    // Less than 2 * elements, so one subtraction does what the modulo would.
    const I32x16 place = SelectI(GtI(end, turned), turned, SubI(turned, end));
    StoreI(AddI(place, SetI(base)), index + j, AllLanes());
  }
}

inline void Draw(const RandomStream& stream, const SeededGrid& grid, size_t first_block,
                 size_t blocks, uint32_t* index) {
  constexpr uint64_t kBlock = 4096;
  const PhiloxLanes philox(stream);
  const uint64_t first = first_block * kBlock;
  const uint64_t last =
      first + blocks * kBlock < grid.elements ? first + blocks * kBlock : grid.elements;
  uint64_t before = first < last ? grid.Before(first) : 0;
  for (uint64_t begin = first; begin < last; begin += kBlock) {
    const uint64_t end = begin + kBlock < last ? begin + kBlock : last;
    const uint64_t after = grid.Before(end), count = after - before;
    before = after;
    if (count == 0) continue;
    DrawBlock(philox, static_cast<uint32_t>(begin), static_cast<uint32_t>(end - begin),
              static_cast<uint32_t>(count), static_cast<uint32_t>(begin - first), index);
    index += count;
  }
}

inline void EncodeSigns(const float* values, size_t n, size_t start, uint8_t* out) {
  uint32_t carry = 0;  // bits that are not in a byte yet
  ForLanes(n, [&](size_t i, auto count) {
    const uint32_t bits = Bits(GeF(LoadF(values + i, count), SetF(0))) & count.bits();
    carry |= bits << start;
    const size_t bytes = count.size() == kLanes ? 2 : (start + count.size() + 7) / 8;
    std::memcpy(out + i / 8, &carry, bytes);
    carry >>= 16;
  });
  if (n % kLanes == 0 && start > 0 && n > 0) out[n / 8] = static_cast<uint8_t>(carry);
}

inline void DecodeSigns(const uint8_t* in, size_t start, float positive, float negative, size_t n,
                        float* values) {
  const F32x16 plus = SetF(positive), minus = SetF(negative);
  ForLanes(n, [&](size_t i, auto count) {
    uint32_t bits = 0;
    std::memcpy(&bits, in + i / 8, (start + count.size() + 7) / 8);
    StoreF(SelectBitsF(bits >> start, plus, minus), values + i, count);
  });
}

inline void AddEntries(const uint32_t* index, const float* values, size_t n, float* dst) {
  constexpr size_t kAhead = 48;  // more than the cache misses that a core can have under way
  size_t i = 0;
  for (; i + kAhead < n; ++i) {
    __builtin_prefetch(dst + index[i + kAhead], 1);
    dst[index[i]] += values[i];
  }
  for (; i < n; ++i) dst[index[i]] += values[i];
}

inline void PutEntries(const uint32_t* index, const float* values, size_t n, float* dst) {
  for (size_t i = 0; i < n; ++i) dst[index[i]] = values[i];
}

inline void GatherEntries(const uint32_t* index, const float* from, size_t n, float* values) {
  for (size_t i = 0; i < n; ++i) values[i] = from[index[i]];
}

inline void PrefetchEntries(const uint32_t* index, size_t n, const float* dst) {
  for (size_t i = 0; i < n; ++i) __builtin_prefetch(dst + index[i], 1);
}

inline SentSums PutError(const uint32_t* index, const float* values, const float* decoded, size_t n,
                         float* residual) {
  F32x16 sent2 = SetF(0), decoded2 = SetF(0), error2 = SetF(0);
  ForLanes(n, [&](size_t i, auto count) {
    const F32x16 x = LoadF(values + i, count), y = LoadF(decoded + i, count);
    const F32x16 error = SubF(x, y);
    AddSquare(sent2, x);
    AddSquare(decoded2, y);
    AddSquare(error2, error);
    if (residual == nullptr) return;
    // Lanes have no scatter: errors are stored one by one.
    float errors[kLanes];
    StoreF(error, errors, AllLanes());
    for (size_t j = 0; j < count.size(); ++j) residual[index[i + j]] = errors[j];
  });
  return {FoldSum(sent2), FoldSum(decoded2), FoldSum(error2)};
}

template <bool kResidual>
float StoreInput(const float* gradient, float* residual, float grad_scale, size_t n) {
  const F32x16 scale = SetF(grad_scale);
  F32x16 input2 = SetF(0);
  ForLanes(n, [&](size_t i, auto count) {
    const F32x16 x = InputLanes<kResidual>(gradient, residual, scale, i, count);
    if constexpr (kResidual) StoreF(x, residual + i, count);
    AddSquare(input2, x);
  });
  return FoldSum(input2);
}

constexpr SparseKernels kSparseKernels = {
    .encode_packed = EncodePacked,
    .decode_packed = DecodePacked,
    .delta_bytes = DeltaBytes,
    .encode_delta = EncodeDelta,
    .decode_delta = DecodeDelta,
    .rising = Rising,
    .finite = Finite,
    .draw = Draw,
    .encode_signs = EncodeSigns,
    .decode_signs = DecodeSigns,
    .add = AddEntries,
    .put = PutEntries,
    .gather = GatherEntries,
    .prefetch = PrefetchEntries,
    .put_error = PutError,
    .store_input = ByResidual<StoreInput<false>, StoreInput<true>>,
};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_SPARSE_LOOPS_H_
