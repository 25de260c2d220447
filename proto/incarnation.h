// Incarnations: 128 random bits that each start of a process draws, by which its scheduler and its servers know it.
//
//   const Incarnation own = DrawIncarnation();
//   SetIncarnation(own, &header);
//   if (IncarnationOf(header) == IncarnationOf(entry)) ...
//
// Whoever can name a member's incarnation passes for it, so none is written into an answer to a stranger, an error or a
// log.
#ifndef SLIMPS_PROTO_INCARNATION_H_
#define SLIMPS_PROTO_INCARNATION_H_

#include <cstdint>

namespace slimps {

struct Incarnation {
  uint64_t high = 0;
  uint64_t low = 0;

  // False of what names none: no process has it.
  bool is_set() const { return (high | low) != 0; }
  // Compares all bits, wherever the first difference is.
  friend bool operator==(const Incarnation& a, const Incarnation& b) {
    return ((a.high ^ b.high) | (a.low ^ b.low)) == 0;
  }
};

// From the system's source of random bits.
[[nodiscard]] Incarnation DrawIncarnation();

// Returns the incarnation in a Header or RosterEntry.
template <typename Holder>
Incarnation IncarnationOf(const Holder& holder) {
  return {.high = holder.incarnation_high(), .low = holder.incarnation()};
}

// Writes it into a Header or RosterEntry.
template <typename Holder>
void SetIncarnation(const Incarnation& incarnation, Holder* holder) {
  holder->set_incarnation_high(incarnation.high);
  holder->set_incarnation(incarnation.low);
}

}  // namespace slimps

#endif  // SLIMPS_PROTO_INCARNATION_H_
