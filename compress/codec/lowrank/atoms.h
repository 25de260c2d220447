// SPDX-License-Identifier: Apache-2.0
// Which atoms of a decomposition are sent, and with what probability. Pure; thread-safe.
//
//   const std::vector<double> p = AtomProbabilities(singular_values, /*budget=*/3);
//   for (size_t i : DrawAtoms(p, /*uniform=*/0.37)) Send(i, singular_values[i] / p[i]);
//
// Source: Wang et al., "ATOMO: Communication-efficient Learning via Atomic Sparsification", NeurIPS
// 2018.
#ifndef SLIMPS_COMPRESS_CODEC_LOWRANK_ATOMS_H_
#define SLIMPS_COMPRESS_CODEC_LOWRANK_ATOMS_H_

#include <cstddef>
#include <span>
#include <vector>

namespace slimps {

// Returns the probabilities of algorithm 1 of the paper: those that sum to the budget (or to the
// number of atoms that are not 0, if that is less) and make the variance least. An atom whose share
// exceeds 1 is always sent, and the others share the rest of the budget by their sizes.
// REQUIRES: `sizes` fall and are at least 0; budget > 0.
std::vector<double> AtomProbabilities(std::span<const double> sizes, double budget);

// Returns the atoms drawn, rising: each with its probability, and never more than the sum of the
// probabilities rounded up. `uniform` is a random number in [0, 1).
//
// The atoms' intervals of length p lie one after another on a line, and those that hold uniform,
// uniform + 1, uniform + 2, ... are drawn (systematic sampling). The paper draws each atom by
// itself. Mean and variance of what is sent are the same both ways, since atoms are orthogonal. But
// one by one, the number of atoms, and with it the payload's size, would have no bound.
std::vector<size_t> DrawAtoms(std::span<const double> probabilities, double uniform);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_LOWRANK_ATOMS_H_
