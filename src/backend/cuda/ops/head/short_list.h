// The short list of each row of logits [V], which is usually all that sampling needs
// (model/short_list.h): the kListTokens best sampleable tokens, best first, ties to the lower one.
//   rest, total: the sums of exp((logit - best) / T) over the sampleable tokens not listed, and all
//   drawn: the kListGroup logits among which the draw u falls; before: the mass of those below
//
//   Oracle: OwnedShortList in double (bench/cuda/short_list_check.cc). Bytes moved: the logits
//   once, 4 V for each row, and the groups twice. Workspace: `groups`. Any number of rows, V up to
//   kListVocabMax; a row's bits do not depend on the others. `groups` and `lists` overlap neither
//   the logits nor each other.
#pragma once

#include <cstdint>

#include "backend/cuda/batch_view.h"
#include "backend/cuda/runtime/launcher.h"

namespace nibble::cuda {

inline constexpr int kListTokens = 128;  // of one list
inline constexpr int kListGroup = 64;    // logits that are summed together, neighbours
inline constexpr int32_t kListVocabMax = 4096 * kListGroup;
constexpr int64_t list_groups(int64_t vocab) { return (vocab + kListGroup - 1) / kListGroup; }

/// model/short_list.h's ShortList of one row.
struct ShortListRow {
  int32_t count;  // of tokens
  int32_t all;    // 1: no other token is sampleable
  int32_t sound;
  int32_t drawn_begin;
  int32_t drawn_count;
  float rest;
  float total;
  float before;
  int32_t tokens[kListTokens];
  float logits[kListTokens];
  float drawn[kListGroup];
};

/// A summary of the logits of one group.
struct ListGroup {
  uint32_t key;  // ordered() of the largest sampleable one; 0: none is
  float mass;    // of the sampleable ones, relative to it; NaN: one of them all is not sound
};

struct ShortListArgs {
  const float* logits = nullptr;         // [rows][vocab]
  const uint32_t* sampleable = nullptr;  // bits of [list_groups(vocab) * kListGroup] tokens, clear
                                         // from vocab on
  const DrawView* draws = nullptr;       // [rows]
  int32_t rows = 0;
  int32_t vocab = 0;              // at most kListVocabMax
  ListGroup* groups = nullptr;    // scratch, [rows][list_groups(vocab)]
  ShortListRow* lists = nullptr;  // [rows], may be page-locked host memory
};
void short_lists(const ShortListArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
