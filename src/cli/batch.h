// nibble run --batch: the requests of a file through a server without sockets.
#pragma once

#include "cli/verb.h"

namespace nibble {

inline constexpr Option kBatchOption = {
    "batch", "FILE", "", "answer the requests of a file of OpenAI batch lines (JSONL)"};
inline constexpr Option kBatchOutputOption = {
    "output", "FILE", "",
    "with --batch: answers, as they come; an unfinished batch goes on there [standard output]"};
inline constexpr Option kBatchSequencesOption = {
    "max-num-seqs", "N|auto", "auto",
    "with --batch: sequences computed at once; auto: on a card by its memory, on a CPU 16"};

/// The exit code: 0 if every line has its answer, 1 if some failed, 3 if the card did, 130 if
/// interrupted.
Result<int> run_batch(const Arguments& arguments, Terminal& terminal);

}  // namespace nibble
