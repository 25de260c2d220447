// SPDX-License-Identifier: Apache-2.0
// Incarnations: 128 random bits that a process draws at each start. Its scheduler and its servers
// know it by them.
//
//   const Incarnation own = DrawIncarnation();
//   SetIncarnation(own, &header);
//   if (IncarnationOf(header) == IncarnationOf(entry)) ...
//
// A process that can name the incarnation of a member passes for that member. So no incarnation is
// written into an answer to a stranger, into an error or into a log. All functions are thread-safe.
#ifndef SLIMPS_PROTO_INCARNATION_H_
#define SLIMPS_PROTO_INCARNATION_H_

#include <cstdint>

namespace slimps {

struct Incarnation {
  uint64_t high = 0;
  uint64_t low = 0;

  // False for an incarnation that no process has (all bits are 0).
  bool is_set() const { return (high | low) != 0; }
  // Compares all bits, so its time does not tell where the first difference is.
  friend bool operator==(const Incarnation& a, const Incarnation& b) {
    return ((a.high ^ b.high) | (a.low ^ b.low)) == 0;
  }
};

// Returns a new incarnation from the system's source of random bits.
[[nodiscard]] Incarnation DrawIncarnation();

// Returns the incarnation in a Header or RosterEntry.
template <typename Holder>
Incarnation IncarnationOf(const Holder& holder) {
  return {.high = holder.incarnation_high(), .low = holder.incarnation()};
}

// Writes the incarnation into a Header or RosterEntry.
template <typename Holder>
void SetIncarnation(const Incarnation& incarnation, Holder* holder) {
  holder->set_incarnation_high(incarnation.high);
  holder->set_incarnation(incarnation.low);
}

}  // namespace slimps

#endif  // SLIMPS_PROTO_INCARNATION_H_
